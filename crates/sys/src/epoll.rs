// SPDX-License-Identifier: MIT OR Apache-2.0
//! A long-lived set of descriptors to wait for: `epoll`. The set is itself a descriptor, which can
//! be waited for.
//!
//! The set does not own its descriptors. Remove a descriptor before closing it if a duplicate of it
//! may stay open: the kernel watches the open description, not the number.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use crate::poll;

pub use rustix::event::epoll::EventFlags;

/// A set of watched descriptors, which a thread can wait for.
///
/// ```
/// use partywall_sys::{Doorbell, EpollSet, epoll::EventFlags};
///
/// let (doorbell, set) = (Doorbell::new()?, EpollSet::new()?);
/// set.add(&doorbell, EventFlags::IN, 7)?;
/// doorbell.notify()?;
/// let mut ready = Vec::new();
/// set.wait(&mut ready, None)?;
/// assert_eq!(ready[0].token, 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct EpollSet {
    fd: OwnedFd,
}

/// A descriptor of the set that is ready, identified by its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that the caller chose when it added the descriptor to the set.
    pub token: u64,
    /// The events that the descriptor is ready for; `ERR` and `HUP` are always reported.
    pub flags: EventFlags,
}

impl EpollSet {
    /// Creates a set without descriptors.
    ///
    /// # Errors
    ///
    /// `EMFILE` or `ENFILE` if no descriptor is left, `ENOMEM`.
    pub fn new() -> io::Result<EpollSet> {
        Ok(EpollSet { fd: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Adds the descriptor `source` to the set, to watch it for the events `interest`; a wait
    /// reports them with the token `token`.
    ///
    /// # Errors
    ///
    /// `EEXIST` if `source` is in the set already, `ENOSPC` at `fs.epoll.max_user_watches`,
    /// `ENOMEM`, `EPERM` for a regular file.
    pub fn add(&self, source: impl AsFd, interest: EventFlags, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.fd, source, epoll::EventData::new_u64(token), interest)?)
    }

    /// Changes the events for which the set watches the descriptor `source`, and the token that a
    /// wait reports.
    ///
    /// # Errors
    ///
    /// `ENOENT` if `source` is not in the set.
    pub fn modify(&self, source: impl AsFd, interest: EventFlags, token: u64) -> io::Result<()> {
        Ok(epoll::modify(&self.fd, source, epoll::EventData::new_u64(token), interest)?)
    }

    /// Removes the descriptor `source` from the set, which no longer watches it.
    ///
    /// # Errors
    ///
    /// `ENOENT` if `source` is not in the set.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, source)?)
    }

    /// Waits until a descriptor is ready or `deadline` has come (`None`: no deadline). The call
    /// replaces the content of `ready` by at most [`READY_MAX`] entries (none at the deadline) and
    /// returns their count.
    ///
    /// # Errors
    ///
    /// A call on a valid set never fails.
    pub fn wait(&self, ready: &mut Vec<Ready>, deadline: Option<Instant>) -> io::Result<usize> {
        ready.clear();
        let mut buffer = [NO_EVENT; READY_MAX];
        let count = self.wait_into(&mut buffer, deadline)?;
        ready.extend(buffer[..count].iter().map(|event| {
            let (flags, data) = (event.flags, event.data);
            Ready { token: data.u64(), flags }
        }));
        Ok(ready.len())
    }

    /// Waits until a descriptor is ready or `deadline` has come (`None`: no deadline), and returns
    /// the tokens of the ready descriptors as bits. The call is for a set of few descriptors whose
    /// tokens are less than 64. In the result, bit `t` is set if the descriptor with token `t` is
    /// ready. The call allocates no memory.
    ///
    /// # Errors
    ///
    /// A call on a valid set never fails.
    pub fn wait_tokens(&self, deadline: Option<Instant>) -> io::Result<u64> {
        let mut buffer = [NO_EVENT; FEW];
        let count = self.wait_into(&mut buffer, deadline)?;
        Ok(buffer[..count].iter().fold(0, |tokens, event| {
            let data = event.data;
            tokens | 1 << (data.u64() & 63)
        }))
    }

    fn wait_into(
        &self,
        buffer: &mut [epoll::Event],
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        loop {
            let left = poll::time_left(deadline);
            match epoll::wait(&self.fd, &mut *buffer, left.as_ref()) {
                Ok(0) if !poll::has_passed(deadline) => continue,
                Err(Errno::INTR) => continue,
                other => return Ok(other?),
            }
        }
    }
}

impl AsFd for EpollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Upper bound of the descriptors that one wait reports; the next wait reports the rest.
pub const READY_MAX: usize = 64;

/// Maximum number of descriptors that one call of [`EpollSet::wait_tokens`] reports; the next call
/// reports the rest.
const FEW: usize = 4;

/// Initial content of the entries of the buffer to which the kernel writes the ready descriptors.
const NO_EVENT: epoll::Event =
    epoll::Event { flags: EventFlags::empty(), data: epoll::EventData::new_u64(0) };
