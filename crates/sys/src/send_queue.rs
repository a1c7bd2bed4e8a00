// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks the kernel, by the ioctl `SIOCOUTQ`, how many bytes written to a socket are still in the
//! socket's send queue. Which bytes the kernel counts depends on the kind of socket:
//!
//! ```text
//!   written ─▶ own kernel ─▶ peer's kernel ─▶ read
//!   TCP        ├ counted ──┤
//!   Unix       ├ counted (the same kernel) ─┤
//! ```
//!
//! The call does not wait. Bytes that the peer has read count as taken, even if the peer has not
//! processed them.

use core::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// Number of bytes in the send queue of `socket`; 0 if the peer has taken all bytes. On a Unix
/// socket the number contains the overhead of the buffers.
pub(crate) fn untaken(socket: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: `Getter` needs an opcode whose ioctl writes its argument, of the given type, and
    // nothing else. SIOCOUTQ writes one C int.
    let getter = unsafe { Getter::<SIOCOUTQ, c_int>::new() };
    // SAFETY: the opcode means SIOCOUTQ on every socket. On a terminal it means TIOCOUTQ, which
    // writes a C int as well.
    let counted = unsafe { ioctl(socket, getter) };
    Ok(usize::try_from(counted?).unwrap_or(0))
}

/// The number of SIOCOUTQ in `<linux/sockios.h>`; it is the same on every supported architecture.
const SIOCOUTQ: Opcode = 0x5411;
