// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a record ring, in which one side writes records for its peer: positions, headers,
//! kinds, and the bodies of those kinds that have one (SPEC 4).
//!
//! ```text
//!  position   0        64       128            192  ...            size          size+64
//!             |record A|record B             |record C| ... |PAD   |record D     |
//!  offset     0        64       128            192          ...    0
//!
//!  a record   byte 0               8        12       16                            footprint
//!             | word0              | len    | stream | payload, len bytes | unused |
//!
//!  word0      bit 63 ............... 6 | 5 ...... 1 | 0
//!             position / 64            | kind       | committed
//! ```
//!
//! A position counts bytes since the ring was made and never wraps; its offset in the ring is
//! `position mod size`. Records start at multiples of [`SLOT_BYTES`] and never wrap around the end.
//!
//! `word0` is stored last, with Release: a consumer that sees `word0` sees the whole record. A word
//! is accepted at position `p` iff `word0 & !0x3e == p | 1`. An older record, old payload at the
//! same offset, and a record of another position all fail that test.
//!
//! This file defines bytes only. Channels, sessions and links define what a record of each kind
//! *does*.

use crate::check::Violation;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Records start at multiples of this many bytes: one cache line.
pub const SLOT_BYTES: u64 = 64;

/// The smallest ring that a region may announce, in bytes.
pub const RING_BYTES_MIN: u64 = 4096;

/// The largest ring that a region may announce, in bytes.
pub const RING_BYTES_MAX: u64 = 1 << 30;

/// A position in a stream of records: the number of ring bytes that all records before it take.
///
/// Positions are multiples of [`SLOT_BYTES`] and never repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// Returns the position that lies `bytes` bytes after this position.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// Number of bytes from the position `earlier` to this position. The caller must have checked
    /// that `earlier` does not lie after this position.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }
}

/// The size of a record ring in bytes: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize(u64);

impl RingSize {
    /// The size of a ring of `bytes`; `None` unless `bytes` is a power of two and at least four
    /// slots.
    ///
    /// Regions must announce at least [`RING_BYTES_MIN`]; smaller rings serve models and tests.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= 4 * SLOT_BYTES && bytes <= RING_BYTES_MAX {
            Some(Self(bytes))
        } else {
            None
        }
    }

    /// The size of the record ring in bytes, as a plain number.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The offset in the ring at which `position` lies, in bytes.
    #[must_use]
    pub const fn offset(self, position: Position) -> u64 {
        position.0 & (self.0 - 1)
    }

    /// Number of bytes between `position` and the end of the ring; never 0.
    #[must_use]
    pub const fn until_end(self, position: Position) -> u64 {
        self.0 - self.offset(position)
    }

    /// The largest footprint of one record in bytes (SPEC 4.4): a quarter of the ring.
    #[must_use]
    pub const fn record_max(self) -> u64 {
        self.0 / 4
    }

    /// The largest payload of one record in the ring, in bytes: a quarter of the ring, without the
    /// header.
    #[must_use]
    pub const fn payload_max(self) -> u64 {
        self.record_max() - HEADER_BYTES
    }

    /// The largest footprint in bytes of all records of one batch together (SPEC 4.5): half the
    /// ring.
    #[must_use]
    pub const fn batch_max(self) -> u64 {
        self.0 / 2
    }

    /// Number of consumed bytes after which a consumer must store its consumed position, so that
    /// the producer can reuse their memory (SPEC 4.6).
    #[must_use]
    pub const fn publish_every(self) -> u64 {
        self.0 / 8
    }
}

/// The ring bytes that a record with a payload of `len` bytes takes: header and payload, rounded up
/// to whole slots.
#[must_use]
pub const fn footprint(len: u64) -> u64 {
    (HEADER_BYTES + len + SLOT_BYTES - 1) & !(SLOT_BYTES - 1)
}

/// Size of a record's header, in bytes.
pub const HEADER_BYTES: u64 = 16;

/// The bits of `word0`, the first word of a record's header, that hold the record's kind.
pub const KIND_MASK: u64 = 0x3e;

/// The kind of a record, which says what the record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// DATA: the record holds a whole message, whose bytes are its payload.
    Data = 1,
    /// BLOB: the record refers to a whole message in slab memory; its payload is a [`BlobBody`]. On
    /// a socket the message's bytes follow the record, and positions do not count them.
    Blob = 2,
    /// FRAGMENT_FIRST: the first part of a message that is sent in fragments, because the sender
    /// has no memory for the whole message. The payload is the message's total length, then bytes
    /// of the message.
    FragmentFirst = 3,
    /// FRAGMENT_MID: a middle part of a message that is sent in fragments.
    FragmentMid = 4,
    /// FRAGMENT_LAST: the last part of a message that is sent in fragments; it completes the
    /// message.
    FragmentLast = 5,
    /// FRAGMENT_ABORT: the sender aborts a message in fragments; the receiver drops the parts
    /// received so far.
    FragmentAbort = 6,
    /// SEGMENT: the sender has a further segment; the payload is a [`SegmentBody`].
    Segment = 7,
    /// SEGMENT_RETIRE: the sender will not use a segment again; the payload is a [`SegmentBody`].
    SegmentRetire = 8,
    /// OPEN: the sender of the record opens a stream (sessions).
    Open = 9,
    /// CLOSE_WRITE: the sender will send no more on the record's stream, or no more at all on a
    /// channel.
    CloseWrite = 10,
    /// RESET: one or both directions of a stream end immediately, with an error code (sessions).
    Reset = 11,
    /// CREDIT: the receiver of a stream allows its peer to send more on the stream (sessions).
    Credit = 12,
    /// GO_AWAY: the sender of the record asks its peer to open no further streams (sessions).
    GoAway = 13,
    /// PING: a request that the peer must answer, or the peer's answer to a PING (sessions).
    Ping = 14,
    /// END: the last record of a stream; the side that did not open the stream sends it (sessions).
    End = 15,
    /// Compact record: the record holds a whole message of a link, without the prefix of a link's
    /// DATA record. Only links have this kind.
    CompactRecord = 16,
    /// MOVE: the connector begins to move the connection from the socket to shared memory; a
    /// descriptor comes with the record. Only sockets have this kind.
    Move = 20,
    /// SWITCH: the last record of a direction on the socket: the direction goes on in shared
    /// memory. Only sockets have this kind.
    Switch = 21,
    /// PAD: padding up to the end of the ring, where the next record would cross that end.
    Pad = 31,
}

impl Kind {
    /// Returns the kind with this number; `None` if no kind has this number.
    #[must_use]
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Data,
            2 => Self::Blob,
            3 => Self::FragmentFirst,
            4 => Self::FragmentMid,
            5 => Self::FragmentLast,
            6 => Self::FragmentAbort,
            7 => Self::Segment,
            8 => Self::SegmentRetire,
            9 => Self::Open,
            10 => Self::CloseWrite,
            11 => Self::Reset,
            12 => Self::Credit,
            13 => Self::GoAway,
            14 => Self::Ping,
            15 => Self::End,
            16 => Self::CompactRecord,
            20 => Self::Move,
            21 => Self::Switch,
            31 => Self::Pad,
            _ => return None,
        })
    }
}

/// Returns the first word of a record of `kind` at `position`: storing this word publishes the
/// record.
#[inline]
#[must_use]
pub const fn word0(position: Position, kind: Kind) -> u64 {
    position.0 | (kind as u64) << 1 | 1
}

/// Returns the second word of a record's header: payload length and stream number.
#[inline]
#[must_use]
pub const fn word1(len: u32, stream: u32) -> u64 {
    len as u64 | (stream as u64) << 32
}

/// The header of a record, with the same bytes in memory and on a socket.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WireHeader {
    /// The first word of the header: the record's position divided by 64, its kind, and the
    /// committed bit.
    pub word0: U64,
    /// Length of the record's payload in bytes.
    pub len: U32,
    /// Number of the stream to which the record belongs; 0 on a channel.
    pub stream: U32,
}

const _: () = {
    assert!(size_of::<WireHeader>() as u64 == HEADER_BYTES);
    assert!(core::mem::offset_of!(WireHeader, word0) == 0);
    assert!(core::mem::offset_of!(WireHeader, len) == 8);
    assert!(core::mem::offset_of!(WireHeader, stream) == 12);
};

/// A record's header that was loaded once and checked, so its length and its position are safe to
/// use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Position at which the record begins in the stream of records.
    pub position: Position,
    /// The kind of the record.
    pub kind: Kind,
    /// Length of the record's payload in bytes.
    pub len: u32,
    /// Number of the stream to which the record belongs; 0 on a channel.
    pub stream: u32,
}

impl RecordHeader {
    /// Checks the two header words loaded from the place where the record at `position` must begin.
    ///
    /// Returns `Ok(None)` if no record is published at `position` yet. Both words must have been
    /// loaded *once* into private memory before the call.
    ///
    /// # Errors
    /// A [`Violation`] if no record at `position` can have these words. They may state another
    /// position or an unknown kind. The record may leave the ring or exceed a quarter of the ring,
    /// or may be a misplaced PAD.
    #[inline]
    pub fn check(
        position: Position,
        size: RingSize,
        first: u64,
        second: u64,
    ) -> Result<Option<Self>, Violation> {
        Self::check_in(size, position, first, second, false)
    }

    /// Checks the two header words loaded from the place in a link's ring where the record at
    /// `position` must begin. Unlike in other rings, the record may be compact (kind 16). Returns
    /// `Ok(None)` if no record is published at `position` yet.
    ///
    /// # Errors
    /// A [`Violation`] if no record at `position` can have these words, as in
    /// [`check`](Self::check).
    #[inline]
    pub fn check_of_link(
        position: Position,
        size: RingSize,
        first: u64,
        second: u64,
    ) -> Result<Option<Self>, Violation> {
        Self::check_in(size, position, first, second, true)
    }

    #[inline]
    fn check_in(
        size: RingSize,
        position: Position,
        first: u64,
        second: u64,
        is_link: bool,
    ) -> Result<Option<Self>, Violation> {
        if first == 0 {
            return Ok(None);
        }
        let header = Self::of_words(position, first, second, |kind| match kind {
            Kind::CompactRecord => is_link,
            Kind::Move | Kind::Switch => false,
            _ => true,
        });
        header?.check_place(size).map(Some)
    }

    /// Returns this header if the ring, which has the size `size`, may hold a record of this length
    /// at this position.
    #[inline]
    fn check_place(self, size: RingSize) -> Result<Self, Violation> {
        let Self { position, kind, len, .. } = self;
        let taken = footprint(u64::from(len));
        let until_end = size.until_end(position);
        if kind == Kind::Pad {
            if size.offset(position) == 0 || taken != until_end {
                return Err(Violation::Pad { position: position.0, len });
            }
        } else if taken > size.record_max() || taken > until_end {
            let max = size.payload_max().min(until_end - HEADER_BYTES);
            return Err(Violation::RecordLength { position: position.0, len, max });
        }
        Ok(self)
    }

    /// Checks the header of a record that came from a socket, where no ring bounds the length of
    /// the record. `moves` says that both sides agreed on the feature MOVE.
    ///
    /// # Errors
    /// [`Violation::Word`] if the header's first word states another position than `position`, or
    /// if the lowest bit of that word, which marks a record as complete (committed), is 0;
    /// [`Violation::Kind`] if the kind of the record does not exist, exists only in links, or was
    /// not agreed on.
    #[inline]
    pub fn check_words(
        position: Position,
        first: u64,
        second: u64,
        moves: bool,
    ) -> Result<Self, Violation> {
        Self::of_words(position, first, second, |kind| match kind {
            Kind::CompactRecord => false,
            Kind::Move | Kind::Switch => moves,
            _ => true,
        })
    }

    #[inline]
    fn of_words(
        position: Position,
        first: u64,
        second: u64,
        is_agreed: impl FnOnce(Kind) -> bool,
    ) -> Result<Self, Violation> {
        if first & !KIND_MASK != position.0 | 1 {
            return Err(Violation::Word { position: position.0, found: first });
        }
        let number = ((first & KIND_MASK) >> 1) as u8;
        let kind = Kind::from_number(number);
        let Some(kind) = kind.filter(|kind| is_agreed(*kind)) else {
            return Err(Violation::Kind { position: position.0, kind: number });
        };
        #[expect(clippy::cast_possible_truncation, reason = "the word holds two u32")]
        let (len, stream) = (second as u32, (second >> 32) as u32);
        Ok(Self { position, kind, len, stream })
    }

    /// The number of ring bytes that this record takes: header and payload, rounded up to whole
    /// slots.
    #[inline]
    #[must_use]
    pub const fn footprint(&self) -> u64 {
        footprint(self.len as u64)
    }

    /// The header of the record as bytes, in the form that a socket carries.
    #[must_use]
    pub const fn to_wire(&self) -> WireHeader {
        WireHeader {
            word0: U64::new(word0(self.position, self.kind)),
            len: U32::new(self.len),
            stream: U32::new(self.stream),
        }
    }
}

/// The body of a BLOB record: where in slab memory its message lies (SPEC 5.2).
///
/// Each field below its offset in bytes:
/// ```text
///  0              8          12         16             24            32
///  | block id     | segment  | zero     | offset       | length       |
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BlobBody {
    /// Block id, which the receiver writes to its release ring when it has finished with the block.
    pub block: U64,
    /// The segment that holds the message; 0 is the slab of the region itself.
    pub segment: U32,
    /// A reserved field of the BLOB's body, always 0.
    pub zero: U32,
    /// Offset in the segment at which the message begins, in bytes.
    pub offset: U64,
    /// Length in bytes of the message that the record refers to.
    pub length: U64,
}

const _: () = {
    assert!(size_of::<BlobBody>() == 32);
    assert!(core::mem::offset_of!(BlobBody, segment) == 8);
    assert!(core::mem::offset_of!(BlobBody, offset) == 16);
    assert!(core::mem::offset_of!(BlobBody, length) == 24);
};

/// A credit that may follow a [`BlobBody`] in a session: how much the sender of the BLOB accepts in
/// the other direction of the same stream (SPEC 5.2).
pub type BlobCredit = U64;

/// The body of SEGMENT and SEGMENT_RETIRE records, which add and remove a segment: slab memory
/// outside the region (SPEC 5.4).
///
/// Each field below its offset in bytes:
/// ```text
///  0          4          8             16
///  | number   | zero     | size, bytes |
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SegmentBody {
    /// The segment's number, from 1.
    pub number: U32,
    /// A reserved field of the SEGMENT's body, always 0.
    pub zero: U32,
    /// Size of the segment in bytes.
    pub size: U64,
}

const _: () = {
    assert!(size_of::<SegmentBody>() == 16);
    assert!(core::mem::offset_of!(SegmentBody, size) == 8);
};

/// Size in bytes of the field with the message's total length, with which the payload of a
/// FRAGMENT_FIRST record begins.
pub const FRAGMENT_PREFIX_BYTES: u64 = 8;

const _: () = assert!(SLOT_BYTES > KIND_MASK, "kind and committed bit lie below a position");

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> RingSize {
        RingSize::new(4096).unwrap()
    }

    #[test]
    fn kind_survives_encoding_in_word0() {
        for number in 0..32 {
            let Some(kind) = Kind::from_number(number) else { continue };
            let word = word0(Position(640), kind);
            let header =
                RecordHeader::of_words(Position(640), word, word1(5, 7), |_| true).unwrap();
            assert_eq!((header.kind, header.len, header.stream), (kind, 5, 7));
            let is_of_move = matches!(kind, Kind::Move | Kind::Switch);
            for moves in [false, true] {
                let elsewhere = RecordHeader::check_words(Position(640), word, word1(5, 7), moves);
                let exists = kind != Kind::CompactRecord && (moves || !is_of_move);
                assert_eq!(elsewhere.is_ok(), exists, "{kind:?} on a socket, {moves}");
            }
            let size = RingSize::new(4096).unwrap();
            let in_ring = RecordHeader::check(Position(640), size, word, word1(5, 7));
            assert!(!is_of_move || in_ring.is_err(), "{kind:?} in a ring");
        }
    }

    #[test]
    fn compact_record_outside_link_is_unknown_kind_of_any_length() {
        let word = word0(Position(64), Kind::CompactRecord);
        for len in [0, 48, 1009, u32::MAX] {
            let found = RecordHeader::check(Position(64), ring(), word, word1(len, 0));
            assert_eq!(found, Err(Violation::Kind { position: 64, kind: 16 }));
        }
        let of_link = |len| RecordHeader::check_of_link(Position(64), ring(), word, word1(len, 0));
        assert!(of_link(1008).is_ok() && of_link(1009).is_err());
    }

    #[test]
    fn zero_word_is_no_record_yet() {
        assert_eq!(RecordHeader::check(Position(64), ring(), 0, 99), Ok(None));
    }

    #[test]
    fn word_of_other_position_is_refused() {
        let word = word0(Position(64), Kind::Data);
        assert!(matches!(
            RecordHeader::check(Position(128), ring(), word, 0),
            Err(Violation::Word { position: 128, .. })
        ));
        let uncommitted = word & !1;
        assert!(RecordHeader::check(Position(64), ring(), uncommitted, 0).is_err());
    }

    #[test]
    fn unknown_kind_is_refused() {
        for number in [0u64, 16, 30] {
            let word = 64 | number << 1 | 1;
            assert!(matches!(
                RecordHeader::check(Position(64), ring(), word, 0),
                Err(Violation::Kind { .. })
            ));
        }
    }

    #[test]
    fn length_beyond_ring_is_refused() {
        let word = word0(Position(0), Kind::Data);
        assert!(RecordHeader::check(Position(0), ring(), word, word1(1008, 0)).is_ok());
        assert!(RecordHeader::check(Position(0), ring(), word, word1(1009, 0)).is_err());
        assert!(RecordHeader::check(Position(0), ring(), word, word1(u32::MAX, 0)).is_err());
        let last = Position(4096 - 64);
        let word = word0(last, Kind::Data);
        assert!(RecordHeader::check(last, ring(), word, word1(48, 0)).is_ok());
        assert!(RecordHeader::check(last, ring(), word, word1(49, 0)).is_err());
    }

    #[test]
    fn pad_must_end_at_ring_end() {
        let near_end = Position(4096 - 128);
        let word = word0(near_end, Kind::Pad);
        assert!(RecordHeader::check(near_end, ring(), word, word1(112, 0)).is_ok());
        assert!(RecordHeader::check(near_end, ring(), word, word1(48, 0)).is_err());
        let start = Position(4096);
        let word = word0(start, Kind::Pad);
        assert!(RecordHeader::check(start, ring(), word, word1(4080, 0)).is_err());
    }

    #[test]
    fn footprint_is_whole_slots() {
        assert_eq!(footprint(0), 64);
        assert_eq!(footprint(48), 64);
        assert_eq!(footprint(49), 128);
        assert_eq!(footprint(112), 128);
        assert_eq!(footprint(113), 192);
    }

    #[test]
    fn ring_size_must_be_power_of_two() {
        assert!(RingSize::new(0).is_none());
        assert!(RingSize::new(128).is_none());
        assert!(RingSize::new(4097).is_none());
        assert!(RingSize::new(RING_BYTES_MAX * 2).is_none());
        let size = RingSize::new(4096).unwrap();
        assert_eq!(size.offset(Position(4096 + 64)), 64);
        assert_eq!(size.until_end(Position(8192)), 4096);
        assert_eq!(size.payload_max(), 1024 - 16);
    }
}
