// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bell: an eventfd one side rings and the other waits for.
//!
//! It does not decide when to ring (that is the sleep handshake of the ring), nor wait ([`poll`](crate::poll)).
//!
//! An eventfd is *one* open description for both processes. A hostile holder can fill the counter and
//! clear `O_NONBLOCK`, after which our `ring` would block; [`Doorbell::from_peer`] sees only how things are at
//! that moment. So bells are for peers that are trusted not to harm us; others get a byte on the socket.
//!
//! # Invariants
//!
//! - A bell rung once or many times is one event: `drain` empties it with one read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, read, retry_on_intr, write};

use crate::procfs;

/// An eventfd, non-blocking, close-on-exec.
///
/// ```
/// let doorbell = partywall_sys::Doorbell::new()?;
/// doorbell.notify()?;
/// assert!(doorbell.drain()?);
/// assert!(!doorbell.drain()?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
}

impl Doorbell {
    /// Makes a silent bell.
    ///
    /// # Errors
    ///
    /// `EMFILE`/`ENFILE`: no descriptor left. `ENOMEM`.
    pub fn new() -> io::Result<Doorbell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Doorbell { fd })
    }

    /// Takes over a descriptor that a peer sent as its bell.
    ///
    /// # Errors
    ///
    /// See [`DoorbellError`]: not an eventfd, of the semaphore kind, blocking, or not to be checked.
    pub fn from_peer(fd: OwnedFd) -> Result<Doorbell, DoorbellError> {
        let info = procfs::fdinfo(&fd).map_err(|source| DoorbellError::Unverifiable { source })?;
        if procfs::field(&info, "eventfd-count").is_none() {
            return Err(DoorbellError::NotEventfd);
        }
        // Newer kernels tell; a semaphore would take many reads to fall silent.
        if procfs::field(&info, "eventfd-semaphore").is_some_and(|value| value != "0") {
            return Err(DoorbellError::Semaphore);
        }
        let flags =
            fcntl_getfl(&fd).map_err(|e| DoorbellError::Unverifiable { source: e.into() })?;
        if !flags.contains(OFlags::NONBLOCK) {
            return Err(DoorbellError::Blocking);
        }
        Ok(Doorbell { fd })
    }

    /// Rings: the holder of the other end wakes, or will not fall asleep. Ringing twice is ringing once.
    ///
    /// # Errors
    ///
    /// None that a sound eventfd gives.
    pub fn notify(&self) -> io::Result<()> {
        match retry_on_intr(|| write(&self.fd, &1u64.to_ne_bytes())) {
            // EAGAIN: the counter is full, so the bell is already ringing.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Silences the bell and tells whether it had rung. Never blocks.
    ///
    /// # Errors
    ///
    /// None that a sound eventfd gives.
    pub fn drain(&self) -> io::Result<bool> {
        let mut count = [0; 8];
        match retry_on_intr(|| read(&self.fd, &mut count)) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An eventfd that blocks its reader while it is 0, close-on-exec: not a bell, but the floor that bells are
/// measured against.
///
/// # Errors
///
/// As [`Doorbell::new`].
pub fn blocking_counter() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
}

/// Why a descriptor was not accepted as a bell.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorbellError {
    /// Some other kind of descriptor.
    #[error("the peer's bell is no eventfd")]
    NotEventfd,
    /// Made with EFD_SEMAPHORE.
    #[error("the peer's bell is an eventfd of the semaphore kind")]
    Semaphore,
    /// Without O_NONBLOCK, ringing could block us.
    #[error("the peer's bell lacks O_NONBLOCK")]
    Blocking,
    /// We could not look.
    #[error("the peer's bell cannot be checked through /proc ({source}): is /proc mounted?")]
    Unverifiable {
        /// What the kernel said.
        source: io::Error,
    },
}

impl DoorbellError {
    /// True if the peer broke the rules; false if this process lacks something.
    pub fn is_violation(&self) -> bool {
        !matches!(self, DoorbellError::Unverifiable { .. })
    }
}
