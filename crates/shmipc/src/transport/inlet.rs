// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes on the socket, message by message.

use super::Limits;
use crate::frame::{Frame, Parser};
use partywall::dialect::DialectError;
use partywall_sys::{Family, Socket};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Inlet {
    socket: Arc<Socket>,
    parser: Parser,
    end: Option<End>,
}

/// How the connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Between two messages.
    Clean,
    /// Within one, or by force.
    Cut,
}

/// What a look at the socket found.
#[derive(Debug)]
pub(super) enum Inflow {
    Frame(Frame),
    /// All that has come so far was read.
    Dry,
    /// Nothing will come any more.
    End(End),
}

impl Inlet {
    pub(super) fn new(socket: Arc<Socket>, read: &[u8], limits: Limits) -> Self {
        let mut parser = Parser::new(limits.fallback_message_max);
        let fed = parser.feed(read);
        debug_assert_eq!(fed, read.len(), "a handshake reads ahead a few bytes at most");
        Self { socket, parser, end: None }
    }

    pub(super) fn next(&mut self) -> Result<Inflow, DialectError> {
        loop {
            match self.parser.next() {
                Ok(Some(frame)) => return Ok(Inflow::Frame(frame)),
                Ok(None) => {}
                Err(error) => return Err(DialectError::Violation { what: error.to_string() }),
            }
            if let Some(end) = self.end {
                return Ok(Inflow::End(end));
            }
            match self.socket.read(self.parser.wanted(), true) {
                Ok(0) => {
                    let is_cut = self.parser.is_within_message();
                    self.end = Some(if is_cut { End::Cut } else { End::Clean });
                }
                Ok(count) => self.parser.filled(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Inflow::Dry),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    self.end = Some(End::Cut);
                }
                Err(source) => {
                    return Err(DialectError::System { what: "reading the socket", source });
                }
            }
        }
    }

    /// Whether something of this stream may be under way though all was read that has come. What TCP has taken may still be in the
    /// buffers of its sender, and is, within a message; or is lost, when the connection was cut. A Unix socket has none: what was
    /// written is there, and only the rest of a message that was begun may be yet to be written.
    pub(super) fn is_behind(&self, stream: u32) -> bool {
        match self.socket.family() {
            Family::Tcp => self.end == Some(End::Cut) || self.parser.is_within_message(),
            Family::Unix => self.parser.is_within_message_of(stream),
        }
    }

    pub(super) fn close(&self) {
        let _ = self.socket.shutdown_both();
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
