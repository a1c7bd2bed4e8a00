// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stdin as a channel is fed from it: waited for together with the life of the other side.
//!
//! ```text
//!   stdin has bytes, or ended ─▶ read them      whatever became of the other side: sending will tell
//!   the other side's process ended ─▶ Dead      nobody is left to whom bytes of stdin could go
//! ```
//! What it does *not* do: notice an end over TCP, where no process is known, or without pidfds (Linux
//! before 5.3). There, like any pipe, one learns of it by the next write.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use partywall::Peer;
use partywall_sys::PidFd;
use partywall_sys::poll::{self, PollFd, PollFlags};

/// Stdin, and whoever it is for.
pub struct Input {
    file: File,
    peer: Option<PidFd>,
}

/// What waiting for stdin came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is something to read, or the end.
    Readable,
    /// Nothing is there, and the other side's process has ended.
    Dead,
}

impl Input {
    /// `file`, whose bytes go to `peer`.
    pub fn new(file: File, peer: &Peer) -> Self {
        // By number: if it stood for another process by now, the one it stood for would be dead. So
        // what `Dead` says is true all the same, at worst it is said late.
        let peer = peer.credentials.and_then(|who| PidFd::of_pid(who.pid).ok());
        Self { file, peer }
    }

    /// Waits until there is something to read, or nobody to send it to.
    pub fn wait(&self) -> io::Result<Next> {
        let Some(peer) = &self.peer else { return Ok(Next::Readable) };
        let mut either = [PollFd::new(&self.file, PollFlags::IN), PollFd::new(peer, PollFlags::IN)];
        poll::wait(&mut either, None)?;
        Ok(if either[0].revents().is_empty() { Next::Dead } else { Next::Readable })
    }

    /// Reads once; waits even if the descriptor does not.
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
