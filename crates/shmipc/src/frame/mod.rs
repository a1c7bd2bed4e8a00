// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages on the socket: header, bodies, and what is wrong with them.
//!
//! ```text
//!   0          4      6         7      8
//!   │ length   │ 7758 │ version │ kind │ body …       big-endian; the length counts the header too
//!
//!   handshake     0 ShmByPath  4 ExchangeVersion  5 ShmByMemfd  6 AckShm  7 AckReadyRecvFd  10 Negotiation
//!   established   1 Polling  2 StreamClose  3 FallbackData  8 HotRestart  9 HotRestartAck
//! ```
//!
//! [`encode`] makes them, [`Parser`] takes established traffic apart; the bodies of the handshake are read in
//! `handshake/`. Nothing here touches a socket or shared memory, and nothing knows which side may send what: that a
//! server gets no `HotRestart` is for the owner of the connection to say.
//!
//! Invariants: no length is believed before it was compared with what its kind allows, so nobody is made to
//! allocate or to wait for more than the named limits; no input panics.

pub mod encode;
mod parser;

pub use parser::{Frame, PAYLOAD_BYTES_MAX, Parser};

use std::fmt;

/// The first eight bytes of each message, with a magic and a kind that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many bytes the message has, these eight among them.
    pub length: u32,
    /// The version of the protocol, or, in [`Kind::ExchangeVersion`], the newest that its sender speaks.
    pub version: u8,
    /// What follows.
    pub kind: Kind,
}

impl Header {
    /// Reads a header. The version is for the caller to judge, and so is a length of eight or more.
    ///
    /// # Errors
    /// [`FrameError::Magic`], [`FrameError::UnknownKind`], or [`FrameError::TooShort`] where the header itself would
    /// not fit into the length.
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

    /// The bytes of it.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        [l0, l1, l2, l3, MAGIC[0], MAGIC[1], self.version, self.kind as u8]
    }
}

/// What a message is. The names are those of the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Client: the files that hold queue and buffers.
    ShmByPath = 0,
    /// Either side: there is something in the queue.
    Polling = 1,
    /// Either side: a stream is closed, said here because its queue was full or its data went this way.
    StreamClose = 2,
    /// Either side: data for which shared memory had no room.
    FallbackData = 3,
    /// Either side: the newest version it speaks.
    ExchangeVersion = 4,
    /// Client: the names of queue and buffers, whose descriptors follow.
    ShmByMemfd = 5,
    /// Server: it has mapped both.
    AckShm = 6,
    /// Server: the descriptors may come.
    AckReadyRecvFd = 7,
    /// Server: connect anew, to the process that takes over.
    HotRestart = 8,
    /// Client: it did.
    HotRestartAck = 9,
    /// Client, of version 4 only: what it supports, as JSON. Known in order to be refused.
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

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Not this protocol, or a length before it was wrong.
    #[error("a message begins with the magic 7758, this one with {:02x}{:02x}", found[0], found[1])]
    Magic {
        /// What stood there.
        found: [u8; 2],
    },
    /// A version that we do not speak.
    #[error("a message of version {found} came; after the handshake they have version 1, 2 or 3")]
    Version {
        /// What stood there.
        found: u8,
    },
    /// A type that does not exist.
    #[error("a message of type {found} came; types go from 0 to 10")]
    UnknownKind {
        /// What stood there.
        found: u8,
    },
    /// A message of the handshake, or of another version, when the handshake was over.
    #[error("{kind} came, which has no place after the handshake")]
    OutOfPlace {
        /// What came.
        kind: Kind,
    },
    /// A length in which the message does not fit.
    #[error("{kind} has {least} bytes at least, this one says {found}")]
    TooShort {
        /// What came.
        kind: Kind,
        /// The shortest it can be, in bytes.
        least: u32,
        /// What its header says.
        found: u32,
    },
    /// A length that is not the only possible one.
    #[error("{kind} has {expected} bytes, this one says {found}")]
    Length {
        /// What came.
        kind: Kind,
        /// How long each message of this kind is, in bytes.
        expected: u32,
        /// What its header says.
        found: u32,
    },
    /// More than we are willing to keep.
    #[error("{kind} of {found} bytes came; at most {most} are accepted")]
    TooLong {
        /// What came.
        kind: Kind,
        /// The limit, in bytes.
        most: u32,
        /// What its header says.
        found: u32,
    },
}

impl From<FrameError> for partywall::protocol::ProtocolError {
    fn from(error: FrameError) -> Self {
        Self::Violation { what: error.to_string() }
    }
}

/// What bytes 4 and 5 of each message are.
pub const MAGIC: [u8; 2] = [0x77, 0x58];
/// How long a header is.
pub const HEADER_BYTES: usize = 8;
/// The same, as headers say it.
const HEADER_LENGTH: u32 = 8;
/// How long [`Kind::StreamClose`] is.
const STREAM_CLOSE_LENGTH: u32 = 12;
/// What stands before the data of [`Kind::FallbackData`]: header, stream, status.
pub const FALLBACK_HEADER_BYTES: usize = 16;
/// The same, as headers say it.
const FALLBACK_HEADER_LENGTH: u32 = 16;
/// How long [`Kind::HotRestart`] and its answer are.
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
