// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors that the runtime watches for us.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime tell when `descriptor` becomes readable: a duplicate of it, which stays open as long
/// as it is watched.
pub(super) fn watch(descriptor: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    #[allow(deprecated, reason = "an OwnedFd keeps the promise that the new, unsafe name asks for")]
    AsyncFd::with_interest(descriptor.try_clone_to_owned()?, Interest::READABLE)
}
