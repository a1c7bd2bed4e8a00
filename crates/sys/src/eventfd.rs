// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doorbell: an eventfd that one process notifies and the other process waits for.
//!
//! This file does not decide when to notify (the sleep handshake of the ring does), nor does it
//! wait ([`poll`](crate::poll) does).
//!
//! An eventfd is *one* open description for both processes. A hostile holder can fill the counter
//! and clear `O_NONBLOCK`, after which a write of the other process would block. `from_peer` can
//! only check the state at the moment of the call. So only trusted peers share a doorbell; an
//! untrusted peer is notified by a byte on the socket.
//!
//! # Invariants
//!
//! - Any number of notifications before a drain is one event: `drain` clears them with one read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use rustix::io::{Errno, read, retry_on_intr, write};

use crate::procfs;

/// An eventfd that is non-blocking and closed by `exec`.
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
    /// Creates a doorbell without a pending notification.
    ///
    /// # Errors
    ///
    /// `EMFILE` or `ENFILE` if no descriptor is left, `ENOMEM`.
    pub fn new() -> io::Result<Doorbell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Doorbell { fd })
    }

    /// Takes over a descriptor that a peer sent as its doorbell.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`DoorbellError`].
    pub fn from_peer(fd: OwnedFd) -> Result<Doorbell, DoorbellError> {
        let info = procfs::fdinfo(&fd).map_err(|source| DoorbellError::Unverifiable { source })?;
        if procfs::field(&info, "eventfd-count").is_none() {
            return Err(DoorbellError::NotEventfd);
        }
        // An eventfd that is a semaphore would take many reads to clear. Only newer kernels report
        // whether an eventfd is a semaphore.
        if procfs::field(&info, "eventfd-semaphore").is_some_and(|value| value != "0") {
            return Err(DoorbellError::Semaphore);
        }
        if !procfs::flags(&info).is_some_and(|flags| flags.contains(OFlags::NONBLOCK)) {
            return Err(DoorbellError::Blocking);
        }
        Ok(Doorbell { fd })
    }

    /// Notifies the process that waits for the doorbell: the process wakes, or its next wait
    /// returns immediately. Further notifications before [`drain`](Self::drain) have no effect.
    ///
    /// # Errors
    ///
    /// A call on a valid eventfd never fails.
    pub fn notify(&self) -> io::Result<()> {
        match retry_on_intr(|| write(&self.fd, &1u64.to_ne_bytes())) {
            // The error EAGAIN means that the counter of the eventfd is full, so a notification is
            // pending already.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Notifies a waiter of this process that reacts to edges and never drains the doorbell. A
    /// trusted peer can fill the counter, and then a further notification makes no edge, so in that
    /// case the counter is cleared first.
    ///
    /// # Errors
    ///
    /// A call on a valid eventfd never fails.
    pub fn notify_edge(&self) -> io::Result<()> {
        loop {
            match retry_on_intr(|| write(&self.fd, &1u64.to_ne_bytes())) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => drop(self.drain()?),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Clears the pending notifications and returns whether there were any. The call never blocks.
    ///
    /// # Errors
    ///
    /// A call on a valid eventfd never fails.
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

/// An eventfd whose reader blocks while the counter is 0. It is not a doorbell, but the baseline
/// that benchmarks compare doorbells with.
///
/// # Errors
///
/// `EMFILE` or `ENFILE` if no descriptor is left, `ENOMEM`.
pub fn blocking_counter() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
}

/// Why a descriptor that a peer sent was rejected as a doorbell.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorbellError {
    /// The descriptor that the peer sent is not an eventfd.
    #[error("the peer's doorbell is not an eventfd")]
    NotEventfd,
    /// The eventfd that the peer sent was created with EFD_SEMAPHORE.
    #[error("the peer's doorbell is a semaphore eventfd")]
    Semaphore,
    /// The eventfd lacks O_NONBLOCK, so a notification could block this process.
    #[error("the peer's doorbell lacks O_NONBLOCK")]
    Blocking,
    /// The kind of the descriptor cannot be checked, because `/proc` cannot be read.
    #[error("the peer's doorbell cannot be checked through /proc ({source}): is /proc mounted?")]
    Unverifiable {
        /// The kernel's error for the attempt to read `/proc`.
        source: io::Error,
    },
}

impl DoorbellError {
    /// Whether the error shows that the peer broke the protocol; false if this process lacks a
    /// resource.
    pub fn is_violation(&self) -> bool {
        !matches!(self, DoorbellError::Unverifiable { .. })
    }
}
