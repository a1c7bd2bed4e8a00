// SPDX-License-Identifier: MIT OR Apache-2.0
//! The unread bytes of a socket's send queue: `SIOCOUTQ`.
//!
//! ```text
//!   written ─▶ our kernel ─▶ peer's kernel ─▶ read
//!   TCP        ├ counted ──┤
//!   Unix       ├ counted (the same kernel) ─┤
//! ```
//!
//! It does not wait. Bytes that the peer has read count as taken, whether processed or not.

use core::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// Bytes in the queue; 0 if all were taken. A Unix socket also counts the overhead of its buffers.
pub(crate) fn untaken(socket: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: SIOCOUTQ only writes, and it writes one C int.
    let getter = unsafe { Getter::<SIOCOUTQ, c_int>::new() };
    // SAFETY: the number means SIOCOUTQ on every socket, and TIOCOUTQ, which writes the same, on a
    // terminal.
    let counted = unsafe { ioctl(socket, getter) };
    Ok(usize::try_from(counted?).unwrap_or(0))
}

/// From `<linux/sockios.h>`; the same number on every supported architecture.
const SIOCOUTQ: Opcode = 0x5411;
