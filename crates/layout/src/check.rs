// SPDX-License-Identifier: MIT OR Apache-2.0
//! The violations of the protocol that a peer can commit.
//!
//! Every value from the other process is loaded once, checked, then used. A failed check yields a
//! [`Violation`], which names the broken rule of SPEC.md and the offending value, and which ends
//! the connection. No check panics.

use core::fmt;

/// A rule of the protocol that the peer broke. A violation ends the connection, and the peer's
/// memory is no longer trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The region header of the peer holds an impossible value (SPEC 3.2).
    RegionHeader {
        /// The name of the field of the region header that has the impossible value.
        field: &'static str,
        /// The impossible value of the field that `field` names.
        found: u64,
    },
    /// At a position where a record must begin, the ring holds a word with which no record can
    /// begin (SPEC 4.2).
    Word {
        /// Position in the ring at which a record should begin.
        position: u64,
        /// The word that was loaded from the peer's ring at `position`.
        found: u64,
    },
    /// The ring holds a record of an unknown kind (SPEC 4.3).
    Kind {
        /// Position in the ring of the record of an unknown kind.
        position: u64,
        /// The number of the unknown record kind.
        kind: u8,
    },
    /// The ring holds a record of a kind that is not allowed in the connection's state or in its
    /// service: channel, session or link (SPEC 4.3).
    Unexpected {
        /// Position in the ring of the record that is not allowed.
        position: u64,
        /// The number of the kind of the record that is not allowed.
        kind: u8,
    },
    /// The ring holds a record that is longer than the ring allows at the record's position (SPEC
    /// 4.4).
    RecordLength {
        /// Position in the ring of the record that is too long.
        position: u64,
        /// Length in bytes of the payload of the record that is too long.
        len: u32,
        /// The longest payload that is allowed at the position, in bytes.
        max: u64,
    },
    /// The ring holds a PAD that does not reach exactly to the ring's end (SPEC 4.3).
    Pad {
        /// Position in the ring of the PAD record.
        position: u64,
        /// Length of the PAD's payload in bytes.
        len: u32,
    },
    /// The ring holds a record whose body has the wrong size or impossible content (SPEC 5).
    Body {
        /// Position in the ring of the record with the invalid body.
        position: u64,
        /// The name of the field of the record's body whose value is wrong.
        what: &'static str,
        /// The wrong value of the field that `what` names.
        found: u64,
    },
    /// The peer's consumed position in this side's ring is invalid: it is not a multiple of 64, has
    /// decreased, or exceeds the sent bytes (SPEC 4.6).
    Consumed {
        /// The consumed position that was loaded from the peer's memory.
        found: u64,
        /// The last valid consumed position; the next one must not be lower.
        from: u64,
        /// The largest valid consumed position: the position up to which this side has sent.
        to: u64,
    },
    /// The peer's count of the blocks that it has returned, the word `released`, is invalid: it has
    /// decreased, or exceeds the number of blocks in flight (SPEC 5.3).
    Released {
        /// The count of returned blocks that was loaded from the peer's memory.
        found: u64,
        /// The last valid count of returned blocks; the next one must not be lower.
        from: u64,
        /// The largest valid count of returned blocks: it counts all blocks in flight as returned.
        to: u64,
    },
    /// The peer released a block of this side's memory that is not in flight (SPEC 5.3).
    Block {
        /// The block id that the peer wrote to its release ring.
        id: u64,
    },
    /// The peer sent a message that is longer than the maximum agreed in the handshake (SPEC 2.3).
    MessageLength {
        /// Length in bytes of the message that is too long.
        len: u64,
        /// The longest length of a message in bytes on which both sides agreed in the handshake.
        max: u64,
    },
    /// The peer announced more memory to map than the maximum agreed in the handshake (SPEC 5.4).
    Memory {
        /// Total size of the memory that would be mapped if the announcement were accepted, in
        /// bytes.
        wanted: u64,
        /// The maximum of mapped memory in bytes on which both sides agreed in the handshake.
        max: u64,
    },
    /// The peer announced more segments, mapped ones included, than the maximum agreed in the
    /// handshake (SPEC 5.4).
    Segments {
        /// Number of segments that would be mapped, including the announced segment.
        wanted: u64,
        /// The maximum number of segments that both sides agreed on.
        max: u64,
    },
    /// The peer announced a segment, but the segment's descriptor did not arrive before the record
    /// that announces it (SPEC 5.4).
    SegmentMissing {
        /// The number of the segment whose descriptor is missing.
        number: u32,
    },
    /// The peer sent fragments of a message that are out of order or have a wrong total length
    /// (SPEC 5.5).
    Fragment {
        /// Position in the ring of the record with the fragment.
        position: u64,
        /// The rule of SPEC 5.5 on fragments that the record breaks, as text.
        what: &'static str,
    },
    /// The peer sent a record that is not allowed in the state of the record's stream (SPEC 11.2,
    /// 11.3, 11.5).
    Stream {
        /// The number of the stream that the invalid record names.
        stream: u32,
        /// The rule of SPEC 11 on streams that the record breaks, as text.
        what: &'static str,
    },
    /// The peer sent a message beyond the credit of its stream, or returned credit for bytes that
    /// were never sent (SPEC 11.4).
    Credit {
        /// The number of the stream whose credit is violated.
        stream: u32,
        /// The value found: the cost of the message in bytes, or a total credit in bytes.
        found: u64,
        /// The largest cost or total credit allowed, in bytes.
        max: u64,
    },
    /// An invalid frame of the handshake or on the control socket (SPEC 2).
    Frame {
        /// The name of the invalid frame or field.
        what: &'static str,
        /// The invalid value in the frame or field that `what` names.
        found: u64,
    },
}

impl Violation {
    /// The number of the violation, the same in every release and in every language's
    /// implementation.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Self::RegionHeader { .. } => 1,
            Self::Word { .. } => 2,
            Self::Kind { .. } => 3,
            Self::Unexpected { .. } => 4,
            Self::RecordLength { .. } => 5,
            Self::Pad { .. } => 6,
            Self::Body { .. } => 7,
            Self::Consumed { .. } => 8,
            Self::Released { .. } => 9,
            Self::Block { .. } => 10,
            Self::MessageLength { .. } => 11,
            Self::Memory { .. } | Self::Segments { .. } => 12,
            Self::SegmentMissing { .. } => 13,
            Self::Fragment { .. } => 14,
            Self::Frame { .. } => 15,
            Self::Stream { .. } => 16,
            Self::Credit { .. } => 17,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RegionHeader { field, found } => {
                write!(f, "the region header has an impossible {field} ({found:#x}; SPEC 3.2)")
            }
            Self::Word { position, found } => {
                write!(f, "no record can begin with {found:#x} at position {position} (SPEC 4.2)")
            }
            Self::Kind { position, kind } => {
                write!(f, "the record at position {position} has unknown kind {kind} (SPEC 4.3)")
            }
            Self::Unexpected { position, kind } => {
                write!(
                    f,
                    "a record of kind {kind} is not allowed at position {position} (SPEC 4.3)"
                )
            }
            Self::RecordLength { position, len, max } => write!(
                f,
                "the record at position {position} has length {len}, the maximum is {max} (SPEC 4.4)"
            ),
            Self::Pad { position, len } => write!(
                f,
                "the padding of {len} bytes at position {position} does not end the ring (SPEC 4.3)"
            ),
            Self::Body { position, what, found } => {
                write!(f, "the record at position {position} has a bad {what} ({found}; SPEC 5)")
            }
            Self::Consumed { found, from, to } => {
                write!(f, "consumed is {found}, outside {from}..={to} (SPEC 4.6)")
            }
            Self::Released { found, from, to } => {
                write!(f, "released is {found}, outside {from}..={to} (SPEC 5.3)")
            }
            Self::Block { id } => {
                write!(f, "block {id:#x} was released but is not in flight (SPEC 5.3)")
            }
            Self::MessageLength { len, max } => {
                write!(f, "a message of {len} bytes exceeds the agreed maximum of {max} (SPEC 2.3)")
            }
            Self::Memory { wanted, max } => {
                write!(f, "{wanted} bytes to map exceed the agreed maximum of {max} (SPEC 5.4)")
            }
            Self::Segments { wanted, max } => {
                write!(f, "{wanted} segments exceed the agreed maximum of {max} (SPEC 5.4)")
            }
            Self::SegmentMissing { number } => write!(
                f,
                "segment {number} came without its descriptor (SPEC 5.4); if the peer is honest, \
                 this process is at its descriptor limit or a security module refused it"
            ),
            Self::Fragment { position, what } => {
                write!(f, "the fragment at position {position} {what} (SPEC 5.5)")
            }
            Self::Stream { stream, what } => {
                write!(f, "a record of stream {stream} {what} (SPEC 11)")
            }
            Self::Credit { stream, found, max } => {
                write!(
                    f,
                    "stream {stream} was charged or credited {found}, beyond {max} (SPEC 11.4)"
                )
            }
            Self::Frame { what, found } => {
                write!(f, "the socket carried an impossible {what} ({found:#x}; SPEC 2)")
            }
        }
    }
}

impl core::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_numbers::NumberTable;
    use crate::walk_variants;

    #[test]
    fn every_violation_has_the_number_of_the_specification() {
        let (position, found, what) = (64, 1, "");
        let (from, to, max, stream) = (0, 0, 0, 1);
        let mut table = NumberTable::of_section("9.3 Violations");
        walk_variants!(table, Violation::code, Violation {
            RegionHeader = Violation::RegionHeader { field: "", found } => "region header",
            Word = Violation::Word { position, found } => "word",
            Kind = Violation::Kind { position, kind: 30 } => "kind",
            Unexpected = Violation::Unexpected { position, kind: 9 } => "unexpected",
            RecordLength = Violation::RecordLength { position, len: 1, max } => "record length",
            Pad = Violation::Pad { position, len: 1 } => "pad",
            Body = Violation::Body { position, what, found } => "body",
            Consumed = Violation::Consumed { found, from, to } => "consumed",
            Released = Violation::Released { found, from, to } => "released",
            Block = Violation::Block { id: 1 } => "block",
            MessageLength = Violation::MessageLength { len: 1, max } => "message length",
            Memory = Violation::Memory { wanted: 1, max } => "memory",
            Segments = Violation::Segments { wanted: 1, max } => "memory",
            SegmentMissing = Violation::SegmentMissing { number: 1 } => "segment missing",
            Fragment = Violation::Fragment { position, what } => "fragment",
            Stream = Violation::Stream { stream, what } => "stream",
            Credit = Violation::Credit { stream, found, max } => "credit",
            Frame = Violation::Frame { what, found } => "frame",
        });
        table.assert_all_met(0..=u32::MAX);
    }
}
