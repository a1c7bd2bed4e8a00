// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors that the runtime watches for us.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a duplicate of `descriptor` with the runtime, which then reports when it is readable.
/// The duplicate stays open as long as the result lives.
///
/// # Errors
/// Duplicating the descriptor or registering it fails.
///
/// # Panics
/// Outside a tokio runtime with I/O enabled.
pub fn watch_readable(descriptor: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    #[allow(deprecated, reason = "an OwnedFd keeps the promise that the new, unsafe name asks for")]
    AsyncFd::with_interest(descriptor.try_clone_to_owned()?, Interest::READABLE)
}
