// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors and credentials that a socket delivers with the bytes of a message.
//!
//! ```text
//!   ┌ cmsg_len: usize ┬ level: i32 ┬ type: i32 ┬ data: cmsg_len - 16 ┬ pad to 8 ┐ next …
//! ```
//!
//! `rustix`'s own iterator reads the credentials into a struct whose pid cannot be zero, but the
//! kernel reports pid 0 for a sender outside this process's pid namespace. So this file parses the
//! bytes as numbers. The buffer is zeroed before the call, so `cmsg_len == 0` marks the end of what
//! the kernel wrote.
//!
//! # Invariants
//!
//! - Every descriptor that the kernel installs is owned exactly once: returned, or closed.

use core::mem::{self, MaybeUninit};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::io;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, RecvMsg, recvmsg};

use crate::peer::Credentials;
use crate::socket::FDS_MAX;

/// The ancillary data of one message: credentials, descriptors and a pidfd.
#[derive(Debug, Default)]
pub(crate) struct Ancillary {
    pub(crate) fds: Vec<OwnedFd>,
    pub(crate) credentials: Option<Credentials>,
    /// A pidfd of the sender's process, if the receiving socket asks for one and the kernel
    /// supports that.
    pub(crate) process: Option<OwnedFd>,
    /// Whether the sender attached more than [`FDS_MAX`] descriptors; the excess has been closed.
    pub(crate) excess: bool,
}

/// Receives bytes from `socket` into a buffer, and what the kernel delivers with them: credentials,
/// descriptors and a pidfd.
pub(crate) fn receive(
    socket: impl AsFd,
    bytes: &mut [IoSliceMut<'_>],
    flags: RecvFlags,
) -> io::Result<(RecvMsg, Ancillary)> {
    let mut space = Space([MaybeUninit::new(0); SPACE_SIZE]);
    let mut control = RecvAncillaryBuffer::new(&mut space.0);
    let received = recvmsg(socket, bytes, &mut control, flags);
    // The buffer `control` is forgotten, because dropping it would close the received descriptors,
    // which this function takes over.
    mem::forget(control);
    let received = received?;
    // SAFETY: every byte of the buffer is initialised: this function has set all of them to zero,
    // and the kernel has overwritten some.
    let space = space.0.map(|byte| unsafe { byte.assume_init() });
    let mut ancillary = Ancillary::default();
    for message in messages(&space) {
        ancillary.take(message);
    }
    Ok((received, ancillary))
}

impl Ancillary {
    fn take(&mut self, message: Message<'_>) {
        match message {
            Message::Credentials(credentials) => self.credentials = Some(credentials),
            // The kernel could not make the pidfd of the sender: the negative number is the
            // kernel's error.
            Message::Process(number) if number < 0 => {}
            Message::Process(number) => {
                // SAFETY: the kernel has just installed this descriptor for this process, and no
                // other code knows its number.
                self.process = Some(unsafe { OwnedFd::from_raw_fd(number) });
            }
            Message::Rights(data) => {
                for number in data.chunks_exact(FD_SIZE) {
                    // SAFETY: the kernel has just installed this descriptor for this process, and
                    // no other code knows its number.
                    let fd = unsafe { OwnedFd::from_raw_fd(int(number)) };
                    if self.fds.len() < FDS_MAX {
                        self.fds.push(fd);
                    } else {
                        self.excess = true;
                    }
                }
            }
        }
    }
}

/// A control message: the unit of ancillary data, the data that a socket delivers besides bytes.
/// Each variant is a kind that this file parses.
#[derive(Debug, PartialEq)]
enum Message<'a> {
    Rights(&'a [u8]),
    Credentials(Credentials),
    Process(i32),
}

/// Iterates over the control messages in a buffer of ancillary data, up to its end or the first
/// message of an impossible length.
fn messages(mut rest: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        loop {
            let (header, _) = rest.split_at_checked(HEADER_SIZE)?;
            let (length, kind) = header.split_at(size_of::<usize>());
            let length = usize::from_ne_bytes(length.try_into().ok()?);
            let message = rest.get(HEADER_SIZE..length)?;
            rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or(&[]);
            match (int(&kind[..4]), int(&kind[4..])) {
                (SOL_SOCKET, SCM_RIGHTS) => return Some(Message::Rights(message)),
                (SOL_SOCKET, SCM_CREDENTIALS) if message.len() >= CREDENTIALS_SIZE => {
                    return Some(Message::Credentials(Credentials {
                        pid: int(&message[0..4]),
                        uid: unsigned(&message[4..8]),
                        gid: unsigned(&message[8..12]),
                    }));
                }
                (SOL_SOCKET, SCM_PIDFD) if message.len() >= FD_SIZE => {
                    return Some(Message::Process(int(message)));
                }
                _ => continue, // another kind: a time stamp, a security label
            }
        }
    })
}

/// Reads the C `int` at the start of `bytes`, which has at least four bytes.
fn int(bytes: &[u8]) -> i32 {
    i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Reads the C `unsigned int` at the start of `bytes`, which has at least four bytes.
fn unsigned(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// A buffer for ancillary data. It is aligned as the kernel's `cmsghdr`, so that rustix skips no
/// byte at the buffer's start.
#[repr(C, align(8))]
struct Space([MaybeUninit<u8>; SPACE_SIZE]);

const ALIGNMENT: usize = size_of::<usize>();
const HEADER_SIZE: usize = size_of::<usize>() + 8;
const FD_SIZE: usize = 4;
const CREDENTIALS_SIZE: usize = 12;

/// Size in bytes of the buffer for ancillary data: it has room for the sender's credentials, its
/// pidfd and [`FDS_MAX`] descriptors. The kernel drops what does not fit and sets `MSG_CTRUNC`.
const SPACE_SIZE: usize = (HEADER_SIZE + CREDENTIALS_SIZE).next_multiple_of(ALIGNMENT)
    + (HEADER_SIZE + FD_SIZE).next_multiple_of(ALIGNMENT)
    + (HEADER_SIZE + FD_SIZE * FDS_MAX).next_multiple_of(ALIGNMENT);

// The values of these socket constants are those of <linux/socket.h> and <asm-generic/socket.h>. On
// MIPS, PA-RISC, SPARC and Alpha the value of SOL_SOCKET differs.
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const SCM_CREDENTIALS: i32 = 2;
const SCM_PIDFD: i32 = 4;

#[cfg(any(target_arch = "mips", target_arch = "mips64", target_arch = "sparc64"))]
compile_error!("SOL_SOCKET has another number on this architecture");

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER_SIZE + data.len()).to_ne_bytes().to_vec();
        bytes.extend(SOL_SOCKET.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes
    }

    #[test]
    fn sender_without_visible_pid_is_zero() {
        let mut data = 0i32.to_ne_bytes().to_vec();
        data.extend(65534u32.to_ne_bytes());
        data.extend(7u32.to_ne_bytes());
        let mut buffer = message(SCM_CREDENTIALS, &data);
        buffer.extend(message(SCM_RIGHTS, &[1, 0, 0, 0]));
        buffer.resize(SPACE_SIZE, 0);
        let found: Vec<_> = messages(&buffer).collect();
        let sender = Credentials { pid: 0, uid: 65534, gid: 7 };
        assert_eq!(found, [Message::Credentials(sender), Message::Rights(&[1, 0, 0, 0])]);
    }

    #[test]
    fn process_that_the_kernel_cannot_name_is_none() {
        let mut buffer = message(SCM_PIDFD, &(-3i32).to_ne_bytes());
        buffer.extend(message(SCM_PIDFD, &[1]));
        let found: Vec<_> = messages(&buffer).collect();
        assert_eq!(found, [Message::Process(-3)]);
        let mut ancillary = Ancillary::default();
        found.into_iter().for_each(|message| ancillary.take(message));
        assert!(ancillary.process.is_none());
    }

    #[test]
    fn unknown_kind_is_skipped_and_impossible_length_ends_list() {
        let mut buffer = message(29, &[0; 16]);
        buffer.extend(message(SCM_RIGHTS, &[]));
        assert_eq!(messages(&buffer).collect::<Vec<_>>(), [Message::Rights(&[])]);

        for length in [1usize, HEADER_SIZE - 1, 4096, usize::MAX, usize::MAX - 3] {
            let mut broken = message(SCM_RIGHTS, &[0; 4]);
            broken[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(messages(&broken).count(), 0, "length {length}");
        }
        assert_eq!(messages(&[0; SPACE_SIZE]).count(), 0);
        assert_eq!(messages(&[]).count(), 0);
    }
}
