// SPDX-License-Identifier: MIT OR Apache-2.0
//! The credentials of the process that called `listen`, for a socket that connected to it:
//! `SO_PEERCRED`.
//!
//! The function of rustix returns the process id as a number that is never 0. The kernel reports 0
//! for a process in a pid namespace that this process does not see.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::peer::Credentials;

pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = libc::socklen_t::try_from(size_of_val(&found)).map_err(io::Error::other)?;
    let descriptor = socket.as_raw_fd();
    // SAFETY: the descriptor is borrowed, so it is open; the kernel writes at most `size` bytes to
    // `found`, a C structure of integers, and keeps no reference to it.
    let result = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut size,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { pid: found.pid, uid: found.uid, gid: found.gid })
}
