// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks the kernel for a descriptor of the process that sends each message: `SO_PASSPIDFD`.
//!
//! ```text
//!   on:  each read of a Unix socket brings SCM_PIDFD   (Linux 6.5)
//!   off: no read brings a pidfd
//! ```
//!
//! `SO_PEERPIDFD` would save a call, but it names the process that called `listen`. That may be a
//! manager that passed its socket on, or the parent of the process that accepts.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets whether each read from `socket` also returns a pidfd of the sender's process
/// (`SO_PASSPIDFD`).
pub(crate) fn set(socket: BorrowedFd<'_>, is_on: bool) -> io::Result<()> {
    let value = libc::c_int::from(is_on);
    let size = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    let descriptor = socket.as_raw_fd();
    // SAFETY: the descriptor is borrowed, so it is open; the kernel reads one C int, which `value`
    // is, and keeps no reference to it.
    let result = unsafe {
        libc::setsockopt(descriptor, SOL_SOCKET, SO_PASSPIDFD, (&raw const value).cast(), size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// The number of SOL_SOCKET, from `<asm-generic/socket.h>`; on PA-RISC and SPARC the number differs.
const SOL_SOCKET: libc::c_int = 1;
const SO_PASSPIDFD: libc::c_int = 76;
