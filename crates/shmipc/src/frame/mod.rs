// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on the socket: headers, bodies, and errors.
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
//! [`encode`] builds messages, and [`Parser`] parses established traffic; `handshake/` parses the
//! bodies of handshakes. Nothing here touches a socket or shared memory. Nothing here knows which
//! side may send a message: the owner of the connection refuses a `HotRestart` to a server.
//!
//! Invariants: a length is used only after a comparison with the limits of its kind. So no peer
//! makes us allocate or wait for more than the named limits. No input panics.

pub mod encode;
mod parser;

pub use parser::{Frame, PAYLOAD_BYTES_MAX, Parser};

use std::fmt;

/// The first eight bytes of each message, with a valid magic and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the message in bytes, with these eight.
    pub length: u32,
    /// The version of the protocol; in [`Kind::ExchangeVersion`] the newest that the sender
    /// supports.
    pub version: u8,
    /// Kind of the message.
    pub kind: Kind,
}

impl Header {
    /// Parses a header. The caller checks the version, and a length of eight or more.
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

    /// The header as bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        [l0, l1, l2, l3, MAGIC[0], MAGIC[1], self.version, self.kind as u8]
    }
}

/// Kind of a message, under the peers' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Client: the files of queue and buffers.
    ShmByPath = 0,
    /// Either side: the queue has elements.
    Polling = 1,
    /// Either side: a stream is closed. Sent on the socket if the queue was full or its data used
    /// the socket.
    StreamClose = 2,
    /// Either side: data for which the shared memory had no room.
    FallbackData = 3,
    /// Either side: the newest version it supports.
    ExchangeVersion = 4,
    /// Client: the names of queue and buffers, whose descriptors follow.
    ShmByMemfd = 5,
    /// Server: it has mapped both.
    AckShm = 6,
    /// Server: it is ready for the descriptors.
    AckReadyRecvFd = 7,
    /// Server: connect to the process that takes over.
    HotRestart = 8,
    /// Client: it has connected.
    HotRestartAck = 9,
    /// Client, in version 4 only: supported features as JSON. Recognised in order to refuse it.
    Negotiation = 10,
}

impl Kind {
    /// The kind with this number.
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

/// Why bytes are no valid message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The magic is wrong: another protocol, or an earlier length was wrong.
    #[error("a message begins with the magic 7758, this one with {:02x}{:02x}", found[0], found[1])]
    Magic {
        /// The two bytes.
        found: [u8; 2],
    },
    /// The version is not supported.
    #[error("a message of version {found} came; after the handshake they have version 1, 2 or 3")]
    Version {
        /// The version.
        found: u8,
    },
    /// The kind does not exist.
    #[error("a message of type {found} came; types go from 0 to 10")]
    UnknownKind {
        /// Its number.
        found: u8,
    },
    /// A message of the handshake or of another version, after the handshake.
    #[error("{kind} came, which has no place after the handshake")]
    OutOfPlace {
        /// Kind of the message.
        kind: Kind,
    },
    /// The length is too short for this kind.
    #[error("{kind} has {least} bytes at least, this one says {found}")]
    TooShort {
        /// Kind of the message.
        kind: Kind,
        /// The least length, in bytes.
        least: u32,
        /// The length in the header.
        found: u32,
    },
    /// This kind has a fixed length, and the header has another.
    #[error("{kind} has {expected} bytes, this one says {found}")]
    Length {
        /// Kind of the message.
        kind: Kind,
        /// The fixed length, in bytes.
        expected: u32,
        /// The length in the header.
        found: u32,
    },
    /// The length exceeds our limit.
    #[error("{kind} of {found} bytes came; at most {most} are accepted")]
    TooLong {
        /// Kind of the message.
        kind: Kind,
        /// The limit, in bytes.
        most: u32,
        /// The length in the header.
        found: u32,
    },
}

impl From<FrameError> for partywall::protocol::ProtocolError {
    fn from(error: FrameError) -> Self {
        Self::Violation { what: error.to_string() }
    }
}

/// Bytes 4 and 5 of each message.
pub const MAGIC: [u8; 2] = [0x77, 0x58];
/// Length of a header.
pub const HEADER_BYTES: usize = 8;
/// The same, in the type of a length.
const HEADER_LENGTH: u32 = 8;
/// Length of [`Kind::StreamClose`].
const STREAM_CLOSE_LENGTH: u32 = 12;
/// Length of header, stream and status before the data of [`Kind::FallbackData`].
pub const FALLBACK_HEADER_BYTES: usize = 16;
/// The same, in the type of a length.
const FALLBACK_HEADER_LENGTH: u32 = 16;
/// Length of [`Kind::HotRestart`] and its answer.
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
