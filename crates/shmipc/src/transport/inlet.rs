// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes on the socket, message by message.

use super::FallbackLimits;
use crate::frame::{Frame, Parser};
use partywall::protocol::ProtocolError;
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
    pub(super) fn new(socket: Arc<Socket>, read: &[u8], limits: FallbackLimits) -> Self {
        let mut parser = Parser::new(limits.fallback_message_max);
        let fed = parser.feed(read);
        debug_assert_eq!(fed, read.len(), "a handshake reads ahead a few bytes at most");
        Self { socket, parser, end: None }
    }

    pub(super) fn next(&mut self) -> Result<Inflow, ProtocolError> {
        loop {
            match self.parser.next() {
                Ok(Some(frame)) => return Ok(Inflow::Frame(frame)),
                Ok(None) => {}
                Err(error) => return Err(ProtocolError::Violation { what: error.to_string() }),
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
                    return Err(ProtocolError::System { what: "reading the socket", source });
                }
            }
        }
    }

    /// Whether more is surely under way, or lost, though all was read that has come. Within a message that is so, and what waits behind
    /// it at its sender may be of any stream. What TCP has taken may be in the buffers of its sender, and is lost with them when the
    /// connection is cut; of a Unix socket what was written is there.
    pub(super) fn is_behind(&self) -> bool {
        let is_lost = self.socket.family() == Family::Tcp && self.end == Some(End::Cut);
        is_lost || self.parser.is_within_message()
    }

    pub(super) fn close(&self) {
        let _ = self.socket.shutdown_both();
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
