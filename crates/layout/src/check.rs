// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a neighbour can say that is not true.
//!
//! Every value that comes from the other process is loaded once, checked, then used. A check that
//! fails yields a [`Violation`]: it names the rule of SPEC.md that was broken and the value that
//! broke it, and it ends the connection. Nothing here panics.

use core::fmt;

/// The neighbour broke a rule of the protocol. The connection is over; the memory is not believed
/// any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The header of a half holds an impossible value (SPEC 3.2).
    RegionHeader {
        /// Which field.
        field: &'static str,
        /// What was there.
        found: u64,
    },
    /// Where a record must begin lies a word that is none of this position (SPEC 4.2).
    Word {
        /// The position.
        position: u64,
        /// The word found.
        found: u64,
    },
    /// A record of a kind that does not exist (SPEC 4.3).
    Kind {
        /// The position of the record.
        position: u64,
        /// The kind's number.
        kind: u8,
    },
    /// A record of a kind that may not come now, or not on this service (SPEC 4.3).
    Unexpected {
        /// The position of the record.
        position: u64,
        /// The kind's number.
        kind: u8,
    },
    /// A record longer than the ring allows at its place (SPEC 4.4).
    RecordLength {
        /// The position of the record.
        position: u64,
        /// Its length.
        len: u32,
        /// The most it may be.
        max: u64,
    },
    /// A PAD that is not at the ring's end, or does not reach exactly there (SPEC 4.3).
    Pad {
        /// The position of the record.
        position: u64,
        /// Its length.
        len: u32,
    },
    /// A record whose body has the wrong size or impossible content (SPEC 5).
    Body {
        /// The position of the record.
        position: u64,
        /// What is wrong.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// `consumed` went back, beyond what was sent, or is no position (SPEC 4.6).
    Consumed {
        /// The word found.
        found: u64,
        /// The last value that was believed.
        from: u64,
        /// The most it may be.
        to: u64,
    },
    /// `released` went back, or beyond the number of blocks that are out (SPEC 5.3).
    Released {
        /// The word found.
        found: u64,
        /// The last value that was believed.
        from: u64,
        /// The most it may be.
        to: u64,
    },
    /// A block was released that is not out (SPEC 5.3).
    Block {
        /// The block id found.
        id: u64,
    },
    /// A message longer than was agreed (SPEC 2.3).
    MessageLength {
        /// Its length.
        len: u64,
        /// The most it may be.
        max: u64,
    },
    /// More memory than was agreed (SPEC 5.4).
    Memory {
        /// How much the neighbour wants mapped in all, in bytes.
        wanted: u64,
        /// The most that was agreed.
        max: u64,
    },
    /// More segments than was agreed, mapped or under way (SPEC 5.4).
    Segments {
        /// How many the neighbour wants there to be.
        wanted: u64,
        /// The most that was agreed.
        max: u64,
    },
    /// A segment whose descriptor did not come before its record (SPEC 5.4).
    SegmentMissing {
        /// The segment's number.
        number: u32,
    },
    /// Fragments out of order or of the wrong total length (SPEC 5.5).
    Fragment {
        /// The position of the record.
        position: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A record of a stream that cannot come now (SPEC 11.2, 11.3, 11.5).
    Stream {
        /// The stream's number.
        stream: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// More than was credited, or credit for what was never sent (SPEC 11.4).
    Credit {
        /// The stream's number.
        stream: u32,
        /// The value found: a message's cost, or a total.
        found: u64,
        /// The most it may be.
        max: u64,
    },
    /// A frame of the handshake, or beside the wall, that cannot be (SPEC 2).
    Frame {
        /// Which frame or field.
        what: &'static str,
        /// What was there.
        found: u64,
    },
}

impl Violation {
    /// A stable number for logs and other languages.
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
                write!(f, "the half's header has an impossible {field} ({found:#x}; SPEC 3.2)")
            }
            Self::Word { position, found } => {
                write!(f, "no record can begin with {found:#x} at position {position} (SPEC 4.2)")
            }
            Self::Kind { position, kind } => {
                write!(f, "the record at position {position} has unknown kind {kind} (SPEC 4.3)")
            }
            Self::Unexpected { position, kind } => {
                write!(f, "a record of kind {kind} may not come at position {position} (SPEC 4.3)")
            }
            Self::RecordLength { position, len, max } => write!(
                f,
                "the record at position {position} claims {len} bytes, {max} are possible (SPEC 4.4)"
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
                write!(f, "block {id:#x} was released but is not out (SPEC 5.3)")
            }
            Self::MessageLength { len, max } => {
                write!(f, "a message of {len} bytes was announced, {max} were agreed (SPEC 2.3)")
            }
            Self::Memory { wanted, max } => {
                write!(f, "{wanted} bytes are to be mapped, {max} were agreed (SPEC 5.4)")
            }
            Self::Segments { wanted, max } => {
                write!(f, "there would be {wanted} segments, {max} were agreed (SPEC 5.4)")
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
