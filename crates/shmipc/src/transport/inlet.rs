// SPDX-License-Identifier: MIT OR Apache-2.0
//! The inlet of a connection: reads the connection's socket, and parses the bytes into messages.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The connection ended between two messages.
    Clean,
    /// The connection ended within a message, or by a reset.
    Cut,
}

/// Result of reading from the connection's socket.
#[derive(Debug)]
pub(super) enum Inflow {
    Frame(Frame),
    /// All bytes that have arrived on the socket were read, and they complete no further message.
    Dry,
    /// The connection has ended: no more bytes will arrive.
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

    /// Whether data of the peer may still arrive or be lost, although everything that has arrived
    /// on the socket was read. That is so after a part of a message, because the peer may have
    /// buffered data of any stream behind it. It is also so over TCP, where the sender's buffers
    /// may hold data, which a reset of the connection loses. On a Unix socket, everything that was
    /// written has arrived.
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
