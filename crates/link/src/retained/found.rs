// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovers a link's outgoing stream as its last owner left it in ring and slab. Checks each record
//! from the base up to the end (SPEC 14.4).
//!
//! ```text
//!   base                                        tail
//!   ┼────────┬──────────┬────────┬──────────────┼────────
//!   │ valid  │ valid    │ valid  │ valid        │ 0        the stream ends at the 0
//!   │ valid  │ neither valid nor 0 ─────────────────▶      damage at this position
//!   │ valid record of another stream, at the base 0 ─▶    a new stream that has no record yet
//! ```
//!
//! A process of this user wrote the bytes. But the memory may have decayed, or a faulty version of
//! this code may have written them. So each byte is checked as if a peer had written it. The check
//! changes nothing.
//!
//! # Invariants
//!
//! - A published record that is damaged never silently counts as the end. One exception: at the
//!   positions 0, 64, 128 and 192 only one byte of the first word is not 0. If exactly that byte
//!   decays to 0, the record seems unpublished. A peer that has received the record detects the
//!   loss (SPEC 12.3: the receiver is ahead).

use super::blobs::Blobs;
use super::{Boundaries, Boundary, as_usize, at};
use partywall_layout::link::RecordFault;
use partywall_layout::link::record::{self, Body, LinkRecord};
use partywall_layout::record_ring::KIND_MASK;
use partywall_layout::seeded_fault;
use partywall_layout::{RingSize, SLOT_BYTES};
use partywall_reconcile::{Position, RecordDigest, StreamId};
use partywall_ring::OwnMem;
use std::fmt;

/// Damage in the memory of a stream, found when its records were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The position where the damaged record begins; the base, if the base itself is wrong.
    pub position: Position,
    /// The kind of the damage at that position.
    pub what: Flaw,
}

/// The kind of damage in the memory of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The base that the state names is impossible, or the digest at the base is wrong.
    Base,
    /// A published record of the stream is damaged, as the contained fault says.
    Record(RecordFault),
    /// A record of a BLOB (a message in the slab) names another slab offset than the one that
    /// follows from the earlier BLOBs, or a range beyond the end of the slab.
    BlobPlace,
    /// The bytes of a BLOB, a message in the slab, do not match the checksum in its record.
    BlobBytes,
    /// No record follows a PAD, although a record is always published with the PAD before it.
    PadAlone,
    /// The records fill the ring, and no slot is left for the 0 that ends the stream.
    NoEnd,
}

impl Damage {
    /// Whether the only damage is that whole records fill the ring and leave no slot for the end of
    /// the stream.
    pub(crate) fn is_without_end(&self) -> bool {
        self.what == Flaw::NoEnd
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stream is damaged at position {}: ", self.position.0)?;
        match self.what {
            Flaw::Base => write!(f, "no stream can begin there"),
            Flaw::Record(fault) => return write!(f, "{fault}"),
            Flaw::BlobPlace => write!(f, "its BLOB cannot lie where the record says"),
            Flaw::BlobBytes => write!(f, "the bytes of its BLOB have another checksum"),
            Flaw::PadAlone => write!(f, "a PAD without a record behind it"),
            Flaw::NoEnd => write!(f, "there are more records than the ring can hold"),
        }?;
        write!(f, " (SPEC 14.4)")
    }
}

impl std::error::Error for Damage {}

/// Checks each record of `stream` in this memory, from `base` on. Returns the ends of the records,
/// the places of the BLOBs (messages in the slab), and the end of the stream.
///
/// # Errors
///
/// [`Damage`] names the first invalid record; the check changes nothing.
pub(super) fn walk(
    ring: &OwnMem,
    size: RingSize,
    slab: &OwnMem,
    stream: StreamId,
    base: Boundary,
) -> Result<(Boundaries, Blobs, Position), Damage> {
    let mut walk = Walk::new(ring, size, slab, stream, base)?;
    while walk.step(base.position)? {}
    let Walk { boundaries, blobs, next: tail, .. } = walk;
    Ok((boundaries, blobs, tail))
}

/// The result of [`proven`]: the part of a stream, from its first kept record on, whose records are
/// all valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    /// The end of the last valid record. After that record come free room, damage, or an incomplete
    /// record.
    pub(crate) tail: Boundary,
    /// The number of messages from the first kept record up to the last valid one.
    pub(crate) messages: u64,
    /// The damage after the last valid record, if the bytes there are neither 0 nor a whole record;
    /// `None` if they are 0.
    pub(crate) damage: Option<Damage>,
}

/// Checks each record of a stream, from its base on, in memory of which pages may be missing after
/// a power loss. Returns the part of the stream whose records are whole.
///
/// # Errors
///
/// [`Damage`] if the base, from which the records are checked, is itself impossible.
pub(crate) fn proven(
    ring: &OwnMem,
    size: RingSize,
    slab: &OwnMem,
    stream: StreamId,
    base: Boundary,
) -> Result<Proven, Damage> {
    let mut walk = Walk::new(ring, size, slab, stream, base)?;
    let damage = loop {
        match walk.step(base.position) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(damage) => break Some(damage),
        }
    };
    Ok(Proven { tail: walk.boundaries.tail(), messages: walk.messages, damage })
}

/// Upper bound of the base in a file, so that the sum of a position and a length does not overflow.
const BASE_MAX: u64 = u64::MAX / 2;

struct Walk<'a> {
    ring: &'a OwnMem,
    size: RingSize,
    slab: &'a OwnMem,
    tag: u32,
    next: Position,
    after_pad: bool,
    messages: u64,
    boundaries: Boundaries,
    blobs: Blobs,
}

impl<'a> Walk<'a> {
    fn new(
        ring: &'a OwnMem,
        size: RingSize,
        slab: &'a OwnMem,
        stream: StreamId,
        base: Boundary,
    ) -> Result<Self, Damage> {
        let is_start = base.position == Position::START;
        let is_possible = base.position.0 % SLOT_BYTES == 0 && base.position.0 <= BASE_MAX;
        if !is_possible || (is_start && base != Boundary::START) {
            return Err(Damage { position: base.position, what: Flaw::Base });
        }
        Ok(Self {
            ring,
            size,
            slab,
            tag: record::tag(stream.0.get()),
            next: base.position,
            after_pad: false,
            messages: 0,
            boundaries: Boundaries::new(base, size),
            blobs: Blobs::new(slab.len() as u64),
        })
    }

    /// Checks the next record. Returns `false` at the end of the stream. Each call advances by at
    /// least one slot, so the size of the ring bounds the number of calls.
    fn step(&mut self, base: Position) -> Result<bool, Damage> {
        let position = self.next;
        let damage = |what| Damage { position, what };
        if position.since(base) + SLOT_BYTES > self.size.bytes() {
            return Err(damage(Flaw::NoEnd));
        }
        let offset = as_usize(self.size.offset(at(position)));
        let bytes = self.ring.slice(offset, self.ring.len() - offset);
        let record = match LinkRecord::check(at(position), self.tag, self.size, bytes) {
            Ok(Some(record)) => record,
            Ok(None) if self.after_pad => return Err(damage(Flaw::PadAlone)),
            Ok(None) => return Ok(false),
            Err(_) if position == Position::START && self.is_of_a_former_stream(bytes) => {
                return Ok(false);
            }
            Err(fault) => return Err(damage(Flaw::Record(fault))),
        };
        let end = Position(position.0 + record.header.footprint());
        if let Body::Blob { offset, length, crc } = record.body {
            if !self.blobs.put(end, offset, length) {
                return Err(damage(Flaw::BlobPlace));
            }
            // The call of `Blobs::put` above has checked that the BLOB, a message in the slab, lies
            // within the slab. So taking these bytes of the slab does not panic.
            let bytes = self.slab.slice(as_usize(offset), as_usize(length));
            if record::blob_crc(bytes) != crc && !seeded_fault("link_blob_unchecked") {
                return Err(damage(Flaw::BlobBytes));
            }
        }
        self.after_pad = record.body == Body::Pad;
        if !self.after_pad {
            let end = Boundary { position: end, digest: RecordDigest(record.digest) };
            self.boundaries.append(end, matches!(record.body, Body::Blob { .. }));
            self.boundaries.publish();
            self.messages += 1;
        }
        self.next = end;
        Ok(true)
    }

    /// Whether the ring's first slot holds a complete record of another stream than the one that
    /// the state names. If so, the owner was killed while it began a stream: after the state named
    /// the new stream, and before the slot was zeroed (see [`super`]).
    fn is_of_a_former_stream(&self, bytes: &[u8]) -> bool {
        let word = |start: usize| {
            let word = bytes.get(start..).and_then(|rest| rest.first_chunk::<8>());
            word.map_or(0, |word| u64::from_le_bytes(*word))
        };
        let position = at(Position(word(0) & !(KIND_MASK | 1)));
        let [.., t0, t1, t2, t3] = word(8).to_le_bytes();
        let tag = u32::from_le_bytes([t0, t1, t2, t3]);
        let is_ours = tag == self.tag || seeded_fault("link_former_is_damage");
        if is_ours || self.size.offset(position) != 0 {
            return false;
        }
        matches!(LinkRecord::check(position, tag, self.size, bytes), Ok(Some(record)) if record.body != Body::Pad)
    }
}
