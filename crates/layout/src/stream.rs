// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of a session: their numbers, the cost of a message, and the bodies of their records
//! (SPEC 11).
//!
//! ```text
//!  OPEN      0 content (u16)   2 zero (6)              8 metadata
//!  RESET     0 code (u32)      4 directions (u32)      8
//!  CREDIT    0 credited (u64)                          8
//!  GO_AWAY   0 code (u32)      4 flags (u32)           8 reason, only with CLOSING
//!  PING      0 answer (u64)    8 token (u64)          16
//! ```
//!
//! This file checks bodies only. The state machine of a session decides when a record is allowed.

use crate::check::Violation;
use crate::record_ring::RecordHeader;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the longest metadata of an OPEN record, in bytes. The smallest ring has room for an
/// OPEN record with this metadata and its head.
pub const METADATA_BYTES_MAX: usize = 1000;
/// Value of [`OpenHead::content`]: the opener does not say what the stream carries.
pub const CONTENT_APPLICATION: u16 = 0;
/// Value of [`OpenHead::content`]: the stream carries bytes, as SPEC 11.8 defines.
pub const CONTENT_BYTES: u16 = 1;
/// Value of [`OpenHead::content`]: the stream carries calls, as CALLS.md defines.
pub const CONTENT_CALLS: u16 = 2;

/// Bit of [`GoAwayBody::flags`]: the sender closes the session, and a reason may follow.
pub const CLOSING: u32 = 1;
/// Length of the longest reason of a GO_AWAY with [`CLOSING`], in bytes.
pub const REASON_BYTES_MAX: usize = 255;

/// The stream number in records that concern the whole session and no single stream.
pub const SESSION: u32 = 0;

/// Bit of [`ResetBody::directions`]: the sender of the RESET sends no more.
pub const SENDING: u32 = 1;
/// Bit of [`ResetBody::directions`]: the sender of the RESET receives no more.
pub const RECEIVING: u32 = 1 << 1;

/// The lowest code of RESET that is reserved for the protocol; the application may use lower codes.
pub const RESERVED_CODES: u32 = 0xffff_ff00;
/// Code of RESET: the stream was refused before the application received it.
pub const REFUSED: u32 = 0xffff_ff01;
/// Code of RESET: the application dropped the stream.
pub const DROPPED: u32 = 0xffff_ff02;

/// Value of [`PingBody::answer`]: the PING record is a request, which the peer must answer.
pub const ASK: u64 = 0;
/// Value of [`PingBody::answer`]: the PING record is the response to a request.
pub const ANSWER: u64 = 1;

/// Returns the number of the `index`-th stream, counted from 0, that one side opens. That side is
/// the acceptor if `is_acceptor`, otherwise the connector.
#[inline]
#[must_use]
pub const fn number(index: u32, is_acceptor: bool) -> u32 {
    2 * index + 1 + is_acceptor as u32
}

/// Returns the index of a stream among those of its opener, and whether the acceptor opened it.
/// Returns `None` for number 0, that of the session itself.
#[inline]
#[must_use]
pub const fn index(number: u32) -> Option<(u32, bool)> {
    if number == SESSION {
        return None;
    }
    Some(((number - 1) / 2, number % 2 == 0))
}

/// Maximum number of streams that one side can open: each stream needs its own number of 32 bits.
pub const STREAMS_MAX: u32 = (u32::MAX - 1) / 2;

/// The head of an OPEN record: the first bytes of its payload, before the metadata (SPEC 11.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct OpenHead {
    /// The kind of content that the stream carries: one of the `CONTENT_…` values. Only tools use
    /// this field; a receiver never decides by it.
    pub content: U16,
    /// A field that is reserved for the priority of the stream, always 0.
    pub priority: u8,
    /// A reserved field of the OPEN's head, always 0.
    pub zero: [u8; 5],
}

/// The body of a RESET record (SPEC 11.3).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ResetBody {
    /// The reason for the RESET: a code of the application if it is below [`RESERVED_CODES`],
    /// otherwise a code of the protocol.
    pub code: U32,
    /// The directions of the stream that the RESET ends: [`SENDING`], [`RECEIVING`] or both.
    pub directions: U32,
}

/// The body of a CREDIT record (SPEC 11.4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CreditBody {
    /// Total cost in bytes of all messages of the stream that the receiver has consumed.
    pub credited: U64,
}

/// The body of a GO_AWAY record (SPEC 11.6).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct GoAwayBody {
    /// The reason for the GO_AWAY, chosen by the application.
    pub code: U32,
    /// Flags of the GO_AWAY, a union of bits: only [`CLOSING`] is defined. The sender sets the
    /// other bits to 0, and the receiver ignores them.
    pub flags: U32,
}

/// The body of a PING record (SPEC 11.6).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PingBody {
    /// Whether the PING is a request, with the value [`ASK`], or a response, with [`ANSWER`].
    pub answer: U64,
    /// A value that the sender of the request chooses, and that the response repeats.
    pub token: U64,
}

const _: () = {
    assert!(size_of::<OpenHead>() == 8);
    assert!(size_of::<ResetBody>() == 8);
    assert!(core::mem::offset_of!(ResetBody, directions) == 4);
    assert!(size_of::<CreditBody>() == 8);
    assert!(size_of::<GoAwayBody>() == 8);
    assert!(core::mem::offset_of!(GoAwayBody, flags) == 4);
    assert!(size_of::<PingBody>() == 16);
    assert!(core::mem::offset_of!(PingBody, token) == 8);
};

/// Length in bytes of the longest body that a RESET, CREDIT, GO_AWAY or PING record can have; the
/// reason of a GO_AWAY is not counted.
pub const BODY_BYTES_MAX: usize = size_of::<PingBody>();

impl OpenHead {
    /// The head of an OPEN record for an opener that does not say what the stream carries.
    pub const APPLICATION: Self =
        Self { content: U16::new(CONTENT_APPLICATION), priority: 0, zero: [0; 5] };

    /// Checks the length of `record`, an OPEN. Returns the length of its metadata in bytes.
    ///
    /// # Errors
    /// [`Violation::Body`] if the record is shorter than its head, or its metadata too long.
    pub fn metadata_len(record: &RecordHeader) -> Result<usize, Violation> {
        let len = (record.len as usize).checked_sub(size_of::<Self>());
        len.filter(|len| *len <= METADATA_BYTES_MAX)
            .ok_or_else(|| bad(record, "length of OPEN", record.len.into()))
    }
}

impl ResetBody {
    /// Reads and checks the body of `record`, a RESET, from `bytes`.
    ///
    /// # Errors
    /// [`Violation::Body`] if the length of the body or its directions are invalid.
    pub fn read(record: &RecordHeader, bytes: &[u8]) -> Result<Self, Violation> {
        let body: Self = exactly(record, bytes)?;
        match body.directions.get() {
            1..=3 => Ok(body),
            other => Err(bad(record, "directions of RESET", other.into())),
        }
    }
}

impl CreditBody {
    /// Reads and checks the body of `record`, a CREDIT, from `bytes`.
    ///
    /// # Errors
    /// [`Violation::Body`] if the length of the body is invalid.
    pub fn read(record: &RecordHeader, bytes: &[u8]) -> Result<Self, Violation> {
        exactly(record, bytes)
    }
}

impl GoAwayBody {
    /// Reads and checks the body of `record`, a GO_AWAY, from `bytes`. Returns the body and the
    /// reason after it, which is for people and need not be UTF-8.
    ///
    /// # Errors
    /// [`Violation::Body`] if the length of the body is invalid.
    pub fn read<'a>(record: &RecordHeader, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Violation> {
        let long = || bad(record, "body length", record.len.into());
        let (body, reason) = Self::read_from_prefix(bytes).map_err(|_| long())?;
        let reason_max = if body.is_closing() { REASON_BYTES_MAX } else { 0 };
        if reason.len() > reason_max {
            return Err(long());
        }
        Ok((body, reason))
    }

    /// Whether the sender of the GO_AWAY closes the session.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        self.flags.get() & CLOSING != 0
    }
}

impl PingBody {
    /// Reads and checks the body of `record`, a PING, from `bytes`.
    ///
    /// # Errors
    /// [`Violation::Body`] if the length of the body is invalid, or the body is neither request nor
    /// response.
    pub fn read(record: &RecordHeader, bytes: &[u8]) -> Result<Self, Violation> {
        let body: Self = exactly(record, bytes)?;
        match body.answer.get() {
            ASK | ANSWER => Ok(body),
            other => Err(bad(record, "answer of PING", other)),
        }
    }
}

fn exactly<T: FromBytes>(record: &RecordHeader, bytes: &[u8]) -> Result<T, Violation> {
    T::read_from_bytes(bytes).map_err(|_| bad(record, "body length", record.len.into()))
}

const fn bad(record: &RecordHeader, what: &'static str, found: u64) -> Violation {
    Violation::Body { position: record.position.0, what, found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_ring::Kind;
    use crate::record_ring::Position;

    fn record(kind: Kind, len: u32) -> RecordHeader {
        RecordHeader { position: Position(0), kind, len, stream: 1 }
    }

    #[test]
    fn number_and_index_are_inverse() {
        for (given, is_acceptor) in [(0, false), (0, true), (7, false), (STREAMS_MAX - 1, true)] {
            assert_eq!(index(number(given, is_acceptor)), Some((given, is_acceptor)));
        }
        assert_eq!((number(0, false), number(0, true), number(1, false)), (1, 2, 3));
        assert_eq!(index(SESSION), None);
    }

    #[test]
    fn reset_without_direction_is_refused() {
        for (directions, is_fine) in [(0u32, false), (1, true), (2, true), (3, true), (4, false)] {
            let body = ResetBody { code: U32::new(7), directions: U32::new(directions) };
            let read = ResetBody::read(&record(Kind::Reset, 8), body.as_bytes());
            assert_eq!(read.is_ok(), is_fine, "{directions}");
        }
    }

    #[test]
    fn open_has_a_head_and_bounded_metadata() {
        for (len, metadata) in
            [(8, Some(0)), (1008, Some(1000)), (7, None), (0, None), (1009, None)]
        {
            let found = OpenHead::metadata_len(&record(Kind::Open, len)).ok();
            assert_eq!(found, metadata, "{len}");
        }
        assert_eq!(OpenHead::APPLICATION.as_bytes(), [0; 8]);
    }

    #[test]
    fn reason_comes_only_with_closing() {
        for (flags, len, is_fine) in [
            (0, 8, true),
            (0, 9, false),
            (1, 8, true),
            (1, 263, true),
            (1, 264, false),
            (2, 9, false),
        ] {
            let mut bytes = [0; 264];
            bytes[4] = flags;
            let read = GoAwayBody::read(&record(Kind::GoAway, len), &bytes[..len as usize]);
            assert_eq!(read.is_ok(), is_fine, "flags {flags}, {len} bytes");
        }
    }

    #[test]
    fn body_of_other_length_is_refused() {
        assert!(CreditBody::read(&record(Kind::Credit, 7), &[0; 7]).is_err());
        assert!(GoAwayBody::read(&record(Kind::GoAway, 9), &[0; 9]).is_err());
        assert!(PingBody::read(&record(Kind::Ping, 16), &[2; 16]).is_err());
        assert!(PingBody::read(&record(Kind::Ping, 16), &[0; 16]).is_ok());
    }
}
