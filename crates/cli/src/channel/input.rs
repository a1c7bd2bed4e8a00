// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stdin of `listen` and `connect` (`Input`), with a wait that also ends when the peer's
//! process dies.
//!
//! ```text
//!   stdin has bytes or has ended     ─▶ Readable   also if the peer is dead: the next send says so
//!   stdin has none, and the peer's
//!   process has ended                ─▶ Dead       no process is left to receive bytes of stdin
//! ```
//! An `Input` does *not* notice a death over TCP, where the process is unknown, nor without pidfds
//! (Linux before 5.3). In these cases the next write reports the death, as with a pipe.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use partywall::Peer;
use partywall_sys::PidFd;
use partywall_sys::poll::{self, PollFd, PollFlags};

/// The stdin of a command, and the peer's process to which the command sends its bytes.
pub struct Input {
    file: File,
    peer: Option<PidFd>,
}

/// The reason why [`Input::wait`] returned: stdin can be read, or the peer's process is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Stdin has bytes, or has ended.
    Readable,
    /// Stdin has no bytes, and the peer's process has ended.
    Dead,
}

impl Input {
    /// Makes an input that reads `file`, whose bytes are sent to `peer`.
    pub fn new(file: File, peer: &Peer) -> Self {
        // If the peer has died already, its pid may belong to another process by now, and `wait`
        // would report that process's death as the peer's. The report is true all the same, because
        // the peer is dead.
        let peer = peer.credentials.and_then(|who| PidFd::of_pid(who.pid).ok());
        Self { file, peer }
    }

    /// Waits until stdin is readable or the peer has died.
    pub fn wait(&self) -> io::Result<Next> {
        let Some(peer) = &self.peer else { return Ok(Next::Readable) };
        let mut either = [PollFd::new(&self.file, PollFlags::IN), PollFd::new(peer, PollFlags::IN)];
        poll::wait(&mut either, None)?;
        Ok(if either[0].revents().is_empty() { Next::Dead } else { Next::Readable })
    }

    /// Reads from stdin once; the call blocks even on a non-blocking descriptor.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll::wait(&mut [PollFd::new(&self.file, PollFlags::IN)], None)?;
                }
                other => return other,
            }
        }
    }
}
