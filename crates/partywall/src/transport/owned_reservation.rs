// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserved memory for one message without a lifetime: any thread may fill it, keep it or drop it,
//! and a sender of its connection commits it.
//!
//! ```text
//!   reserve_owned ─▶ OwnedReservation ── write ──┬─ commit_owned(reservation) ─▶ sent
//!                        │                       └─ drop ─▶ home: the memory is free again
//!                        └─ home: the channel's room waiter, or the session
//! ```
//!
//! A reservation keeps no connection open. Its memory stays mapped after the connection has ended,
//! so writing it is always sound.

use super::memory::Memory;
use super::space::SpaceWaiter;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Reserved memory for one message that borrows no sender: fill it, then commit it by a sender of
/// the same connection.
///
/// A channel makes one by [`Sender::reserve_owned`](crate::Sender::reserve_owned), and a session by
/// the same method of its streams. Dropping the reservation frees the memory without sending a
/// message, in any thread, also after the sender was dropped.
///
/// # Panics
/// Reading or writing the memory panics in a forked child.
///
/// # Examples
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/app.sock", directory.path().display());
/// # use partywall::{Begin, Config};
/// # let config = Config::default().begin(Begin::SharedMemory);
/// # let mut listener = partywall::Listener::bind(&address)?;
/// # let client = std::thread::spawn(move || partywall::connect_with(&address, &config).unwrap());
/// # let mut peer = listener.accept()?;
/// # let mut channel = client.join().unwrap();
/// let mut frame = channel.sender().reserve_owned(1 << 20, None)?;
/// let render = std::thread::spawn(move || {
///     frame.fill(7); // straight into shared memory, in a thread without the channel
///     frame
/// });
/// channel.sender().commit_owned(render.join().unwrap(), None)?;
/// # assert_eq!(peer.recv()?.unwrap().len(), 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the reservation sends nothing"]
pub struct OwnedReservation {
    memory: Option<Memory>,
    home: Home,
}

/// The channel or session in which an owned reservation was made, and to which the reserved memory
/// returns.
#[derive(Clone, Debug)]
pub(crate) enum Home {
    /// The reservation was made by a channel. `owner` identifies the channel's sender, whatever
    /// transport the channel uses.
    Channel { owner: Arc<()>, space: Arc<dyn SpaceWaiter> },
    /// The reservation was made by a session. All streams of the session may commit it.
    Session(Arc<dyn SessionHome>),
}

/// The session to which owned reservations return their memory.
pub(crate) trait SessionHome: fmt::Debug + Send + Sync {
    /// Whether the calling process is a forked child, in which shared memory is not mapped.
    fn is_inherited(&self) -> bool;

    /// Frees reserved memory in which no message was sent.
    fn give_back(&self, memory: Memory);
}

impl OwnedReservation {
    pub(crate) const fn new(memory: Option<Memory>, home: Home) -> Self {
        Self { memory, home }
    }

    /// Shortens the message to `len` bytes. Does nothing if the message is not longer than `len`.
    pub fn truncate(&mut self, len: usize) {
        if let Some(memory) = &mut self.memory {
            memory.truncate(len);
        }
    }

    pub(crate) const fn home(&self) -> &Home {
        &self.home
    }

    /// Returns the reserved memory for an attempt to send it. An attempt that succeeds takes the
    /// memory. Memory that it leaves is freed when the reservation is dropped.
    pub(crate) const fn memory_mut(&mut self) -> &mut Option<Memory> {
        &mut self.memory
    }

    /// Panics in a forked child, because a child does not have the shared memory of its parent's
    /// connections mapped.
    #[inline]
    fn assert_owner(&self) {
        assert!(!self.home.is_inherited(), "this reservation belongs to the parent process");
    }
}

impl Home {
    /// Whether the reservation with this `Home` was made by the channel's sender that `other`
    /// identifies, which then may commit it.
    pub(crate) fn is_channel(&self, other: &Arc<()>) -> bool {
        matches!(self, Self::Channel { owner, .. } if Arc::ptr_eq(owner, other))
    }

    /// Whether the reservation with this `Home` was made by the session at the address `other`,
    /// whose streams then may commit it.
    pub(crate) fn is_session(&self, other: *const ()) -> bool {
        matches!(self, Self::Session(session) if Arc::as_ptr(session).cast::<()>() == other)
    }

    fn is_inherited(&self) -> bool {
        match self {
            Self::Channel { space, .. } => space.is_inherited(),
            Self::Session(session) => session.is_inherited(),
        }
    }
}

impl Deref for OwnedReservation {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.assert_owner();
        self.memory.as_ref().map_or(&[], Memory::as_slice)
    }
}

impl DerefMut for OwnedReservation {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.assert_owner();
        self.memory.as_mut().map_or(&mut [], Memory::as_mut_slice)
    }
}

impl Drop for OwnedReservation {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if self.home.is_inherited() {
            // In a forked child nothing is freed: the memory belongs to the parent process, whose
            // own reservation frees it.
            return;
        }
        match &self.home {
            Home::Channel { space, .. } => space.give_back(memory),
            Home::Session(session) => session.give_back(memory),
        }
    }
}

impl fmt::Debug for OwnedReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.memory.as_ref().map_or(0, |memory| memory.as_slice().len());
        f.debug_struct("OwnedReservation").field("len", &len).finish_non_exhaustive()
    }
}
