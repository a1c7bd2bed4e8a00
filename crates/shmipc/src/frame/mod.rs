// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of shmipc on the socket: headers, bodies, and errors.
//!
//! ```text
//!   0          4      6         7      8
//!   │ length   │ 7758 │ version │ kind │ body …       big-endian; the length includes the header
//!
//!   handshake     0 ShmByPath  4 ExchangeVersion  5 ShmByMemfd
//!                 6 AckShm  7 AckReadyRecvFd  10 Negotiation
//!   established   1 Polling  2 StreamClose  3 FallbackData  8 HotRestart  9 HotRestartAck
//! ```
//!
//! [`encode`] builds messages, and [`Parser`] parses the traffic of established connections;
//! `handshake/` parses the bodies of handshakes. This module accesses neither a socket nor shared
//! memory. It does not know which side may send a message: the owner of the connection refuses a
//! `HotRestart` to a server.
//!
//! Invariants: a length is used only after a comparison with the limits of its kind. So no peer
//! makes this process allocate or wait for more than the named limits. No input causes a panic.

pub mod encode;
mod parser;

pub use parser::{Frame, PAYLOAD_BYTES_MAX, Parser};

use std::fmt;

/// The first eight bytes of a message, with a valid magic and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the message in bytes, including the eight bytes of the header.
    pub length: u32,
    /// The version of the protocol that the header states; in [`Kind::ExchangeVersion`], the newest
    /// version that the sender supports.
    pub version: u8,
    /// Kind of the message, which follows from its number in the header.
    pub kind: Kind,
}

impl Header {
    /// Parses a header. The caller checks the version, and whether the length, which is at least
    /// eight, is possible for the kind.
    ///
    /// # Errors
    /// [`FrameError::Magic`], [`FrameError::UnknownKind`], or [`FrameError::TooShort`] if the
    /// length is below that of the header.
    pub fn read(bytes: [u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let [l0, l1, l2, l3, m0, m1, version, kind] = bytes;
        if [m0, m1] != MAGIC {
            return Err(FrameError::Magic { found: [m0, m1] });
        }
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        let kind = Kind::from_number(kind).ok_or(FrameError::UnknownKind { found: kind })?;
        if length < HEADER_LENGTH {
            return Err(FrameError::TooShort { kind, least: HEADER_LENGTH, found: length });
        }
        Ok(Self { length, version, kind })
    }

    /// Encodes the header as the eight bytes that begin a message.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        [l0, l1, l2, l3, MAGIC[0], MAGIC[1], self.version, self.kind as u8]
    }
}

/// Kind of a message of shmipc, under the names of other implementations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Sent by a client: the paths of the files that hold queue and buffers.
    ShmByPath = 0,
    /// Sent by either side: its queue has elements for the receiver of the message.
    Polling = 1,
    /// Sent by either side: it has closed a stream. The message is needed only if the queue is
    /// full, or if the stream's data used the socket; otherwise the queue announces the close.
    StreamClose = 2,
    /// Sent by either side: data of a stream for which the shared memory had no room.
    FallbackData = 3,
    /// Sent by either side: the newest version that the sender supports.
    ExchangeVersion = 4,
    /// Sent by a client: the names of queue and buffers, whose descriptors follow.
    ShmByMemfd = 5,
    /// Sent by a server: it has mapped queue and buffers.
    AckShm = 6,
    /// Sent by a server: it is ready to receive the descriptors.
    AckReadyRecvFd = 7,
    /// Sent by a server: the client is to connect to the process that takes over.
    HotRestart = 8,
    /// Sent by a client: it has connected to the new process.
    HotRestartAck = 9,
    /// Sent by a client of version 4: its features as JSON. This crate recognises the message in
    /// order to refuse it.
    Negotiation = 10,
}

impl Kind {
    /// The kind of message with this number; `None` if there is no such kind.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::ShmByPath,
            1 => Self::Polling,
            2 => Self::StreamClose,
            3 => Self::FallbackData,
            4 => Self::ExchangeVersion,
            5 => Self::ShmByMemfd,
            6 => Self::AckShm,
            7 => Self::AckReadyRecvFd,
            8 => Self::HotRestart,
            9 => Self::HotRestartAck,
            10 => Self::Negotiation,
            _ => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?} (type {})", *self as u8)
    }
}

/// Why bytes that arrived on the socket are no valid message of shmipc.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The magic in the header is wrong: the bytes are of another protocol, or an earlier length
    /// was wrong.
    #[error("a message begins with the magic 7758, this one with {:02x}{:02x}", found[0], found[1])]
    Magic {
        /// The two received bytes where the magic should be.
        found: [u8; 2],
    },
    /// The protocol version in the header is not supported.
    #[error("a message of version {found} came; after the handshake they have version 1, 2 or 3")]
    Version {
        /// The version that the received header has.
        found: u8,
    },
    /// The kind that the header states does not exist.
    #[error("a message of type {found} came; types go from 0 to 10")]
    UnknownKind {
        /// The unknown number that the received header has as its kind.
        found: u8,
    },
    /// A message of the handshake or of another version arrived after the handshake.
    #[error("{kind} came, which has no place after the handshake")]
    OutOfPlace {
        /// Kind of the message that is not allowed after the handshake.
        kind: Kind,
    },
    /// The length in the header is too short for a message of its kind.
    #[error("{kind} has {least} bytes at least, this one says {found}")]
    TooShort {
        /// Kind of the message whose length is too short.
        kind: Kind,
        /// The shortest possible length of a message of this kind, in bytes.
        least: u32,
        /// The length that the received header has, in bytes.
        found: u32,
    },
    /// Messages of this kind have a fixed length, and the header states another length.
    #[error("{kind} has {expected} bytes, this one says {found}")]
    Length {
        /// Kind of the message whose length is wrong.
        kind: Kind,
        /// The fixed length of messages of this kind, in bytes.
        expected: u32,
        /// The length that the received header has, in bytes.
        found: u32,
    },
    /// The length of the message exceeds the limit of this process.
    #[error("{kind} of {found} bytes came; at most {most} are accepted")]
    TooLong {
        /// Kind of the message whose length is too long.
        kind: Kind,
        /// The limit of this process for messages of this kind, in bytes.
        most: u32,
        /// The length that the received header has, in bytes.
        found: u32,
    },
}

impl From<FrameError> for partywall::protocol::ProtocolError {
    fn from(error: FrameError) -> Self {
        Self::Violation { what: error.to_string() }
    }
}

/// The magic of shmipc: bytes 4 and 5 of each message.
pub const MAGIC: [u8; 2] = [0x77, 0x58];
/// Length of a header, in bytes.
pub const HEADER_BYTES: usize = 8;
/// [`HEADER_BYTES`] as a `u32`, the type of the length field in a message's header.
const HEADER_LENGTH: u32 = 8;
const STREAM_CLOSE_LENGTH: u32 = 12;
/// Length in bytes of header, stream and status, which precede the data of [`Kind::FallbackData`].
pub const FALLBACK_HEADER_BYTES: usize = 16;
/// [`FALLBACK_HEADER_BYTES`] as a `u32`, the type of the length field in a message's header.
const FALLBACK_HEADER_LENGTH: u32 = 16;
const HOT_RESTART_LENGTH: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for number in 0..=10 {
            let kind = Kind::from_number(number).unwrap();
            let header = Header { length: 8 + u32::from(number), version: number, kind };
            assert_eq!(kind as u8, number);
            assert_eq!(Header::read(header.to_bytes()), Ok(header));
        }
        assert_eq!(Kind::from_number(11), None);
    }

    #[test]
    fn a_header_that_cannot_be_says_why() {
        let bad = Header::read(*b"\0\0\0\x08wY\x03\x01").unwrap_err();
        assert_eq!(bad.to_string(), "a message begins with the magic 7758, this one with 7759");
        let bad = Header::read(*b"\0\0\0\x08wX\x03\x0b").unwrap_err();
        assert_eq!(bad.to_string(), "a message of type 11 came; types go from 0 to 10");
        let bad = Header::read(*b"\0\0\0\x07wX\x03\x01").unwrap_err();
        assert_eq!(bad.to_string(), "Polling (type 1) has 8 bytes at least, this one says 7");
    }
}
