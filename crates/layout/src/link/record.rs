// SPDX-License-Identifier: MIT OR Apache-2.0
//! A record of a link, with its own checksum; the same in a ring, in a file and on a socket (SPEC
//! 14).
//!
//! ```text
//!  byte 0        8      12     16     20        24       32          36       40
//!       | word0 | len  | tag  | crc  | blob_crc | ack_pos | ack_digest | ack_tag | DATA: message
//!       └─ header, SPEC 4.2 ─┘└─ payload: LinkPrefix ──────────────────────────┘ BLOB: LinkBlob
//!       └───────────────────┘  ╎  └───────────────────────────────────────────────────────────┘
//!               the crc covers these bytes, one after the other
//!
//!       | word0  | len  | crc  | the message of a compact record; `compact.rs`
//! ```
//!
//! This file does not know which end owns a record, what its message means, or which record
//! follows. It checks bytes in place: a caller copies them first if another process may change
//! them.
//!
//! # Invariants
//!
//! - No change of a single byte of a DATA, BLOB or compact record, unused bytes aside, yields a
//!   valid record. The byte with the kind is protected with probability 1 - 2⁻³²: a changed kind
//!   passes only if the tag of one record equals the crc of the other.

use super::checksum::{crc32c, crc32c_of};
use super::compact;
use crate::check::Violation;
use crate::record_ring::{
    HEADER_BYTES, Kind, Position, RecordHeader, RingSize, SLOT_BYTES, word0, word1,
};
use core::fmt;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size in bytes of a [`LinkPrefix`], with which the payload of each DATA and BLOB record begins.
pub const PREFIX_BYTES: u64 = 24;
/// Size in bytes of the payload of a BLOB record: prefix and [`LinkBlob`].
pub const BLOB_PAYLOAD_BYTES: u64 = PREFIX_BYTES + 16;

/// The start of the payload of each DATA and BLOB record.
///
/// Each field after its offset in bytes:
/// ```text
///  0  crc    4  blob_crc    8  ack_pos    16  ack_digest    20  ack_tag
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LinkPrefix {
    /// The crc32c of the header and of the payload after this field. The crc is also the record
    /// digest at the position where the record ends.
    pub crc: U32,
    /// The crc32c of the message's bytes in the slab; 0 in a DATA record, which contains its
    /// message.
    pub blob_crc: U32,
    /// The position up to which the sender of the record had consumed the stream that it receives.
    pub ack_pos: U64,
    /// The record digest at the position `ack_pos`.
    pub ack_digest: U32,
    /// The [`tag`] of the acknowledged stream. If the sender of the record receives no stream, the
    /// tag, `ack_pos` and `ack_digest` are 0.
    pub ack_tag: U32,
}

/// The rest of the payload of a BLOB record, after the prefix: where the message's bytes lie in the
/// sender's slab.
///
/// Each field after its offset in bytes:
/// ```text
///  0  offset    8  length
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LinkBlob {
    /// Offset of the message's bytes in the slab: a multiple of 64.
    pub offset: U64,
    /// Length in bytes of the message in the slab; not 0.
    pub length: U64,
}

const _: () = {
    assert!(size_of::<LinkPrefix>() as u64 == PREFIX_BYTES);
    assert!(core::mem::offset_of!(LinkPrefix, crc) == 0);
    assert!(core::mem::offset_of!(LinkPrefix, blob_crc) == 4);
    assert!(core::mem::offset_of!(LinkPrefix, ack_pos) == 8);
    assert!(core::mem::offset_of!(LinkPrefix, ack_digest) == 16);
    assert!(core::mem::offset_of!(LinkPrefix, ack_tag) == 20);
    assert!((size_of::<LinkPrefix>() + size_of::<LinkBlob>()) as u64 == BLOB_PAYLOAD_BYTES);
    assert!(core::mem::offset_of!(LinkBlob, offset) == 0);
    assert!(core::mem::offset_of!(LinkBlob, length) == 8);
    assert!(HEADER_BYTES + BLOB_PAYLOAD_BYTES <= SLOT_BYTES, "a BLOB record takes one slot");
};

/// The tag of `stream`, never 0: it is the `stream` field in the header of each DATA and BLOB
/// record. A wrong tag reveals a record of another stream.
#[must_use]
#[inline]
pub const fn tag(stream: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the word holds two u32")]
    let folded = stream as u32 ^ (stream >> 32) as u32;
    if folded == 0 { 1 } else { folded }
}

/// Computes the crc32c that the field `blob_crc` holds for a BLOB with these bytes.
#[must_use]
pub fn blob_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes)
}

/// An acknowledgement: the position up to which the sender of a record had consumed the stream that
/// it receives. All fields are 0 if it receives none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The position up to which the record acknowledges the stream.
    pub position: u64,
    /// The record digest at `position`.
    pub digest: u32,
    /// The [`tag`] of the acknowledged stream.
    pub tag: u32,
}

impl LinkPrefix {
    /// Returns the prefix of a record of `kind` at `position`, with the crc of the whole record.
    /// The parts of `body` together are the payload after the prefix.
    ///
    /// # Panics
    ///
    /// If the payload exceeds the length field of the header.
    #[must_use]
    pub fn sealed(
        position: Position,
        kind: Kind,
        tag: u32,
        ack: Ack,
        blob_crc: u32,
        body: &[&[u8]],
    ) -> Self {
        let bytes: u64 = body.iter().map(|part| part.len() as u64).sum();
        let len = u32::try_from(PREFIX_BYTES + bytes).unwrap_or(u32::MAX);
        assert!(len < u32::MAX, "a record is at most a quarter of a ring");
        let mut prefix = Self {
            crc: U32::new(0),
            blob_crc: U32::new(blob_crc),
            ack_pos: U64::new(ack.position),
            ack_digest: U32::new(ack.digest),
            ack_tag: U32::new(ack.tag),
        };
        let words = (word0(position, kind), word1(len, tag));
        prefix.crc = U32::new(seal(words, &prefix, body));
        prefix
    }

    /// The acknowledgement that this prefix carries: how far the record's sender has consumed the
    /// stream that it receives.
    #[must_use]
    pub const fn ack(&self) -> Ack {
        Ack { position: self.ack_pos.get(), digest: self.ack_digest.get(), tag: self.ack_tag.get() }
    }
}

/// Returns the crc32c of a link's record: of its header, and of its payload after the crc field.
fn seal((first, second): (u64, u64), prefix: &LinkPrefix, body: &[&[u8]]) -> u32 {
    let mut fixed = [0; FIXED];
    fixed[..HEADER / 2].copy_from_slice(&first.to_le_bytes());
    fixed[HEADER / 2..HEADER].copy_from_slice(&second.to_le_bytes());
    fixed[HEADER..].copy_from_slice(&prefix.as_bytes()[CRC_BYTES..]);
    crc32c_of(&fixed, body)
}

/// Size in bytes of the part that the crc covers in every DATA and BLOB record: the header, and the
/// prefix after its crc.
const FIXED: usize = HEADER + size_of::<LinkPrefix>() - CRC_BYTES;

/// Size in bytes of the field [`LinkPrefix::crc`]. The crc covers the payload after that field.
const CRC_BYTES: usize = 4;

/// A record of a link whose header, checksum and body have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRecord<'a> {
    /// The checked header of the record.
    pub header: RecordHeader,
    /// The record digest at the position where the record ends; 0 for a PAD, which has none.
    pub digest: u32,
    /// The acknowledgement that the record carries for the stream of the opposite direction; all
    /// its fields are 0 in a compact record.
    pub ack: Ack,
    /// The content of the record: a message, or the place in the slab where its message lies.
    pub body: Body<'a>,
}

/// The content of a link's record: a message, the place of a message in the slab, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The message of a DATA or compact record.
    Message(&'a [u8]),
    /// In a BLOB: the offset of the message's bytes in the sender's slab. On a socket these bytes
    /// follow the record.
    Blob {
        /// Offset in bytes of the message in the slab, a multiple of 64. The caller checks it
        /// against the size of the slab.
        offset: u64,
        /// Length in bytes of the message in the slab; not 0.
        length: u64,
        /// The crc32c of the message's bytes in the slab.
        crc: u32,
    },
    /// A PAD fills the ring up to its end and has no content. The next record is at the ring's
    /// start.
    Pad,
}

impl<'a> LinkRecord<'a> {
    /// Checks `first` and `second`, the two words of the record header at `position`, in a ring of
    /// `size` whose stream has this `tag`. Returns `Ok(None)` if no record was published at
    /// `position`.
    ///
    /// # Errors
    ///
    /// The [`RecordFault`] of the rule that the header breaks. The payload is not checked.
    #[inline]
    pub fn check_header(
        position: Position,
        tag: u32,
        size: RingSize,
        first: u64,
        second: u64,
    ) -> Result<Option<RecordHeader>, RecordFault> {
        let checked = RecordHeader::check_of_link(position, size, first, second);
        let Some(header) = checked.map_err(RecordFault::Header)? else { return Ok(None) };
        let len = u64::from(header.len);
        let (is_long_enough, stream) = match header.kind {
            Kind::Data => (len >= PREFIX_BYTES, tag),
            Kind::Blob => (len == BLOB_PAYLOAD_BYTES, tag),
            Kind::Pad => (len == size.until_end(position) - HEADER_BYTES, 0),
            // A compact record has its crc in the header field where other records have their tag.
            // The tag of a compact record needs no check of its own, because the crc covers it.
            Kind::CompactRecord if may_be_compact(position, size) => (true, header.stream),
            kind => return Err(RecordFault::Kind { kind: kind as u8 }),
        };
        if header.stream != stream {
            return Err(RecordFault::Tag { found: header.stream, expected: stream });
        }
        if !is_long_enough {
            return Err(RecordFault::Length { len: header.len });
        }
        Ok(Some(header))
    }

    /// Checks the record at the start of `bytes`, which may be longer than the record. Returns
    /// `Ok(None)` if the first word is 0, so that no record was published there. Of a PAD only the
    /// header is checked. The caller checks the bytes that a BLOB refers to.
    ///
    /// # Errors
    ///
    /// The [`RecordFault`] of the first rule that the record breaks.
    pub fn check(
        position: Position,
        tag: u32,
        size: RingSize,
        bytes: &'a [u8],
    ) -> Result<Option<Self>, RecordFault> {
        let word = |start: usize| {
            let word = bytes.get(start..).and_then(|rest| rest.first_chunk::<8>());
            word.map(|word| u64::from_le_bytes(*word)).ok_or(RecordFault::Cut)
        };
        let (first, second) = (word(0)?, word(8)?);
        let header = Self::check_header(position, tag, size, first, second)?;
        let Some(header) = header else { return Ok(None) };
        if header.kind == Kind::Pad {
            return Ok(Some(Self { header, digest: 0, ack: Ack::default(), body: Body::Pad }));
        }
        let payload = bytes.get(HEADER..).and_then(|rest| rest.get(..header.len as usize));
        let payload = payload.ok_or(RecordFault::Cut)?;
        if header.kind == Kind::CompactRecord {
            return Self::check_compact(header, tag, payload).map(Some);
        }
        let (prefix, body) = LinkPrefix::read_from_prefix(payload).map_err(|_| RecordFault::Cut)?;
        let crc = seal((first, second), &prefix, &[body]);
        if crc != prefix.crc.get() {
            return Err(RecordFault::Crc { found: prefix.crc.get(), expected: crc });
        }
        let ack = prefix.ack();
        check_ack(ack)?;
        let body = check_body(header.kind, prefix.blob_crc.get(), body)?;
        Ok(Some(Self { header, digest: crc, ack, body }))
    }

    fn check_compact(
        header: RecordHeader,
        tag: u32,
        message: &'a [u8],
    ) -> Result<Self, RecordFault> {
        let (found, expected) = (header.stream, compact::crc(header.position, tag, &[message]));
        if found != expected {
            return Err(RecordFault::Crc { found, expected });
        }
        Ok(Self { header, digest: found, ack: Ack::default(), body: Body::Message(message) })
    }

    /// Number of bytes of the record on a socket: header and payload, without a BLOB's message.
    #[must_use]
    #[inline]
    pub const fn wire_bytes(&self) -> u64 {
        wire_bytes(&self.header)
    }
}

/// Number of bytes that a link's record with this header takes on a socket: header and payload. A
/// socket carries only the header of a PAD.
#[must_use]
#[inline]
pub const fn wire_bytes(header: &RecordHeader) -> u64 {
    match header.kind {
        Kind::Pad => HEADER_BYTES,
        _ => HEADER_BYTES + header.len as u64,
    }
}

/// Offset in a record of this kind at which the message begins, in bytes. In a BLOB, the offset of
/// the [`LinkBlob`], which says where in the slab the message lies.
#[must_use]
#[inline]
pub const fn body_offset(kind: Kind) -> u64 {
    match kind {
        Kind::CompactRecord => HEADER_BYTES,
        _ => HEADER_BYTES + PREFIX_BYTES,
    }
}

/// Whether a record at `position` may be compact: anywhere but at the start of the ring. At the
/// start of the ring a record of an earlier stream may still lie. Only a tag, which compact records
/// lack, reveals such a record (SPEC 14.4).
#[must_use]
#[inline]
pub const fn may_be_compact(position: Position, size: RingSize) -> bool {
    size.offset(position) != 0
}

fn check_ack(ack: Ack) -> Result<(), RecordFault> {
    let is_none = ack == Ack::default();
    let is_some = ack.tag != 0 && ack.position % SLOT_BYTES == 0;
    let is_proved = ack.position != 0 || ack.digest == 0;
    if is_none || (is_some && is_proved) { Ok(()) } else { Err(RecordFault::Ack) }
}

fn check_body(kind: Kind, blob_crc: u32, body: &[u8]) -> Result<Body<'_>, RecordFault> {
    if kind == Kind::Data {
        return if blob_crc == 0 { Ok(Body::Message(body)) } else { Err(RecordFault::Blob) };
    }
    let blob = LinkBlob::read_from_bytes(body).map_err(|_| RecordFault::Blob)?;
    let (offset, length) = (blob.offset.get(), blob.length.get());
    if length == 0 || offset % SLOT_BYTES != 0 || offset.checked_add(length).is_none() {
        return Err(RecordFault::Blob);
    }
    Ok(Body::Blob { offset, length, crc: blob_crc })
}

#[expect(clippy::cast_possible_truncation, reason = "16")]
const HEADER: usize = HEADER_BYTES as usize;

/// Why the bytes at a position are not the record that the reader expects at that position (SPEC
/// 14.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordFault {
    /// The header breaks a rule that also holds in the record rings of channels and sessions.
    Header(Violation),
    /// The record has a kind that links do not have, or that is not allowed at the record's
    /// position.
    Kind {
        /// The number of the kind that the record has.
        kind: u8,
    },
    /// The record belongs to another stream, or is a PAD whose tag is not 0.
    Tag {
        /// The tag that the record's header holds.
        found: u32,
        /// The tag that the record should have: that of the stream, or 0 in a PAD.
        expected: u32,
    },
    /// The length of the record's payload is invalid for the record's kind.
    Length {
        /// Length of the record's payload in bytes, as its header states it.
        len: u32,
    },
    /// The bytes given to the check end within the record, so a part of the record is missing.
    Cut,
    /// The checksum is wrong: the record differs from the one that its sender wrote.
    Crc {
        /// The crc that is stored in the record.
        found: u32,
        /// The crc computed from the record's bytes.
        expected: u32,
    },
    /// The acknowledgement in the record is impossible: its tag is 0, its position is no multiple
    /// of a slot, or it has a digest at position 0.
    Ack,
    /// The body of a BLOB is invalid, or a DATA record has a `blob_crc`.
    Blob,
}

impl RecordFault {
    /// The number of the fault, the same in every release and in every language's implementation.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Self::Header(_) => 1,
            Self::Kind { .. } => 2,
            Self::Tag { .. } => 3,
            Self::Length { .. } => 4,
            Self::Cut => 5,
            Self::Crc { .. } => 6,
            Self::Ack => 7,
            Self::Blob => 8,
        }
    }
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Header(violation) => write!(f, "{violation}"),
            Self::Kind { kind } => write!(f, "a record of kind {kind} is not allowed there"),
            Self::Tag { found, expected } => {
                write!(f, "a record of another stream: tag {found:#x} instead of {expected:#x}")
            }
            Self::Length { len } => write!(f, "{len} bytes are not a valid length for this kind"),
            Self::Cut => write!(f, "the record is truncated"),
            Self::Crc { found, expected } => {
                write!(f, "the record is damaged: checksum {found:#x} instead of {expected:#x}")
            }
            Self::Ack => write!(f, "the record acknowledges an impossible position"),
            Self::Blob => write!(f, "the record describes an impossible BLOB"),
        }?;
        write!(f, " (SPEC 14.3)")
    }
}

impl core::error::Error for RecordFault {}
