// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was written to a socket and has not been taken by the other side: `SIOCOUTQ`.
//!
//! ```text
//!   written ─▶ our system ─▶ their system ─▶ read
//!   TCP        ├ counted ──┤
//!   Unix       ├ counted (it is one system) ─┤
//! ```
//!
//! It does not wait, and says nothing about what is done with what was read.

use core::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// How much that is, 0 if nothing: in bytes over TCP; on a Unix socket some more, with what the bytes lie in.
pub(crate) fn untaken(socket: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: SIOCOUTQ only writes, and what it writes is one C int.
    let getter = unsafe { Getter::<SIOCOUTQ, c_int>::new() };
    // SAFETY: the number means SIOCOUTQ on every socket, and TIOCOUTQ, which writes the same, on a terminal.
    let counted = unsafe { ioctl(socket, getter) };
    Ok(usize::try_from(counted?).unwrap_or(0))
}

/// From `<linux/sockios.h>`; the same number on every processor that we run on.
const SIOCOUTQ: Opcode = 0x5411;
