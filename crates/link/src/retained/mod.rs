// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outgoing stream of one link, in its sender's own memory until the receiver has consumed it (SPEC 14).
//!
//! ```text
//!            base           acked                        tail     open batch
//!  ──────────┼──────────────┼────────────────────────────┼────────┼──────▶ position
//!   free     │ consumed     │ kept for the receiver      │ being  │ free
//!            └ trim_to ─────▶                              written  └ the slot at the tail begins with 0
//!
//!  mod.rs       publish, acknowledge, trim; a stream begins and ends
//!  appending.rs messages become records
//!  found.rs     the stream that a memory holds, each record judged
//!  unsent.rs    what of it goes over a socket next
//!  boundary.rs  where records end: up to where the base may rise
//!  blobs.rs     where in the slab large messages lie
//! ```
//!
//! The memory is a ring and a slab. Nothing here knows files, sockets or the neighbour, and nothing is stored but
//! records: base, `acked` and the stream's id are for the owner to commit in its state (SPEC 13.4).
//!
//! # Killed between any two stores
//!
//! One store publishes a batch: the `word0` of its first record. Before it everything is written that it makes
//! visible, and 0 into the slot behind. So from the base on there are whole records and then a slot that begins with 0,
//! whatever of the next batch is written already: its first word is held back. The base is committed *before* the
//! room below it is used again, so the records from it on are whole too.
//!
//! A new stream begins at position 0 in the same ring, over the records of the former:
//!
//! ```text
//!   end(next)     1. the slot at offset 0 := 0, unless a record that is kept begins there
//!   the caller    2. commits the state that names `next`, base 0          before this: the former stream, whole
//!   begin         3. the slot at offset 0 := 0                            after it: `next`, with nothing in it
//! ```
//!
//! 1 changes nothing of the former stream: what it zeroes is free. Who is killed between 2 and 3 leaves at offset 0
//! either 0, or a *whole* record of the former stream: it was published, and a record always begins at that offset. Its
//! tag is not that of `next`, which [`end`](Retained::end) insists on. So for a stream with base 0 a first slot with a
//! whole record of another tag is the end, and anything else that is no record is damage. Without 1 there could
//! be a half of a record there, which nobody could tell from a damaged one. A record that has no tag to be read, a BARE one,
//! never lies there. Behind the first slot nothing of the former stream can come alive: each publish zeroes the next slot before.
//!
//! # Invariants
//!
//! - `base ≤ acked ≤ tail`; base and tail are where DATA, BLOB or BARE records end, or the start.
//! - What is below the tail and not below the base never changes, in the ring or in the slab.

mod appending;
mod blobs;
mod boundary;
mod found;
mod unsent;

use appending::Gathered;
pub use appending::{Reservation, join, len_of};
use blobs::Blobs;
use boundary::Boundaries;
pub use boundary::Boundary;
pub use found::{Damage, Flaw};
use partywall_layout::RecordHeader;
use partywall_layout::link::LinkPrefix;
use partywall_layout::link::record::{self, PREFIX_BYTES};
use partywall_layout::record_ring::{self, HEADER_BYTES, Kind, RingSize};
use partywall_layout::seeded_fault;
use partywall_reconcile::recovery::Prepared;
use partywall_reconcile::watermarks::AckUnfit;
use partywall_reconcile::{AckedOffset, Position, RecordDigest, StreamId};
use partywall_ring::{OwnMem, Producer};
use std::fmt;
pub use unsent::{Stuck, Unsent};
use zerocopy::FromBytes;

/// The messages of one direction that the other side may still need, and those it has not yet been sent.
#[derive(Debug)]
pub struct Retained {
    stream: StreamId,
    tag: u32,
    producer: Producer,
    slab: OwnMem,
    blobs: Blobs,
    boundaries: Boundaries,
    acked: Position,
    inline_max: usize,
    /// Where short messages are put together.
    gathered: Gathered,
}

/// Why a message was not appended. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room until more was acknowledged and trimmed; an open batch has to be published before that.
    Full,
    /// The open batch would be more than half the ring: publish it first.
    BatchFull,
    /// It fits neither ring nor slab, ever.
    TooLarge {
        /// How long it is.
        len: usize,
        /// How long a message may be.
        max: usize,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("there is no room until the receiver has consumed more"),
            Self::BatchFull => f.write_str("the batch takes half the ring: publish it first"),
            Self::TooLarge { len, max } => {
                write!(f, "a message of {len} bytes is too large for this link, which takes {max}")
            }
        }
    }
}

impl std::error::Error for Refused {}

impl Retained {
    /// A new stream in memory that holds none; one that follows another is begun by [`end`](Self::end).
    ///
    /// # Panics
    ///
    /// If `ring` is not as long as `size` says.
    #[must_use]
    pub fn empty(ring: OwnMem, size: RingSize, slab: OwnMem, stream: StreamId) -> Self {
        Self {
            stream,
            tag: record::tag(stream.0.get()),
            producer: Producer::resume(ring, size, at(Position::START), at(Position::START)),
            blobs: Blobs::new(slab.len() as u64),
            slab,
            boundaries: Boundaries::new(Boundary::START, size),
            acked: Position::START,
            inline_max: inline_limit(size),
            gathered: Gathered::default(),
        }
    }

    /// Messages up to `bytes` go into the ring, larger ones into the slab; never more than a quarter of the ring.
    #[must_use]
    pub fn with_inline_max(mut self, bytes: usize) -> Self {
        self.inline_max = bytes.min(inline_limit(self.producer.size()));
        self
    }

    /// The stream.
    #[must_use]
    #[inline]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// The first position that is kept.
    #[must_use]
    #[inline]
    pub const fn base(&self) -> Position {
        self.boundaries.base().position
    }

    /// Up to where the receiver has consumed, as far as is known here.
    #[must_use]
    #[inline]
    pub const fn acked(&self) -> Position {
        self.acked
    }

    /// Where the last record ends that was published.
    #[must_use]
    #[inline]
    pub const fn tail(&self) -> Position {
        self.boundaries.tail().position
    }

    /// The size of the ring: what a receiver needs to know to judge the records.
    #[must_use]
    pub const fn ring_size(&self) -> RingSize {
        self.producer.size()
    }

    /// How many bytes of ring the published records take that are kept.
    #[must_use]
    pub const fn live_bytes(&self) -> u64 {
        self.tail().since(self.base())
    }

    /// How long a message may be.
    #[must_use]
    pub fn message_max(&self) -> usize {
        self.inline_max.max(as_usize(self.blobs.length_max()))
    }

    /// Whether a message of `len` bytes could be appended now, with a prefix.
    #[must_use]
    pub fn has_room(&mut self, len: usize) -> bool {
        self.place(len, false).is_ok()
    }

    /// Makes the messages of the open batch exist, all at once.
    #[inline]
    pub fn publish(&mut self) {
        self.producer.publish();
        self.boundaries.publish();
    }

    /// Prepares the room that the next messages will take, once the neighbour was told of the last.
    #[inline]
    pub fn prepare_ahead(&mut self) {
        self.producer.prepare_ahead();
    }

    /// Forgets the open batch.
    pub fn abort(&mut self) {
        self.producer.abort();
        self.boundaries.abort();
        self.blobs.cut(self.tail());
    }

    /// Hears that the receiver has consumed up to `position`. What was heard before is no news.
    ///
    /// # Errors
    ///
    /// [`AckUnfit::BeyondTail`]: a violation, or, of a state, that it is damaged; nothing changed.
    pub fn acknowledged(&mut self, position: Position) -> Result<(), AckUnfit> {
        if position > self.tail() {
            return Err(AckUnfit::BeyondTail);
        }
        self.acked = self.acked.max(position);
        Ok(())
    }

    /// Up to where the base may rise now, if that is news. To be committed in the state, together with the mark
    /// (SPEC 12.5); only then [`trimmed`](Self::trimmed).
    #[must_use]
    pub fn trim_to(&mut self) -> Option<Boundary> {
        self.boundaries.trim_to(self.acked)
    }

    /// The base has risen: the state that says so was committed. The room below is used again.
    ///
    /// # Panics
    ///
    /// If it is nothing that [`trim_to`](Self::trim_to) can have offered.
    pub fn trimmed(&mut self, base: Boundary) {
        let is_boundary = self.digest_at(base.position) == Some(base.digest);
        assert!(is_boundary && base.position <= self.acked, "only what was offered is trimmed");
        let is_accepted = self.producer.set_consumed(at(base.position));
        assert!(is_accepted.is_ok(), "a boundary lies between base and tail");
        self.boundaries.trim(base);
        self.blobs.trim(base.position);
    }

    /// What proves `position`; `None` if no record ends there that is kept, and it is not the base.
    #[must_use]
    pub fn digest_at(&self, position: Position) -> Option<RecordDigest> {
        let known = self.boundaries.before(position)?;
        if known.position == position {
            return Some(known.digest);
        }
        let (mut next, mut digest) = (known.position, None);
        while next < position {
            let (header, bytes) = self.producer.retained(at(next))?;
            digest = digest_of(&header, bytes);
            next = Position(next.0 + header.footprint());
        }
        digest.filter(|_| next == position)
    }

    /// What the last record committed that says how far `stream`, of the other direction, was consumed: for
    /// [`recover`](partywall_reconcile::recovery::recover). BARE records say nothing, and commit nothing.
    #[must_use]
    pub fn prepared(&self, stream: StreamId) -> Option<Prepared> {
        let tag = record::tag(stream.0.get());
        let (mut next, mut last) = (self.base(), None);
        while next < self.tail() {
            let (header, bytes) = self.producer.retained(at(next))?;
            let ack = prefix_of(header.kind, bytes).map(|prefix| prefix.ack());
            if let Some(ack) = ack.filter(|ack| ack.tag == tag) {
                let (position, digest) = (Position(ack.position), RecordDigest(ack.digest));
                last = Some(Prepared {
                    acked_offset: AckedOffset { stream, position, digest },
                    reply_at: next,
                });
            }
            next = Position(next.0 + header.footprint());
        }
        last
    }

    /// Whether records of this stream and of `next` can be told apart. If not, by a chance of 1 in 2³², another id
    /// has to be drawn.
    #[must_use]
    pub const fn is_told_from(&self, next: StreamId) -> bool {
        self.tag != record::tag(next.0.get())
    }

    /// Ends this stream, so that another may begin in its memory; the open batch is forgotten. Until the state that names
    /// the other is committed, the memory is still found to hold this stream.
    ///
    /// # Panics
    ///
    /// If records of the two could not [be told apart](Self::is_told_from).
    pub fn end(&mut self, next: StreamId) {
        assert!(self.is_told_from(next), "a stream id with another tag has to be drawn");
        self.abort();
        let size = self.producer.size();
        let (base, tail) = (at(self.base()), at(self.tail()));
        let to_first = size.until_end(base) % size.bytes();
        let is_kept = base.plus(to_first) < tail;
        if !is_kept && !seeded_fault("link_half_record_first") {
            self.producer.clear_first_slot();
        }
    }

    /// Begins the next stream, after [`end`](Self::end): its name was committed.
    pub fn begin(&mut self, next: StreamId) {
        self.producer.restart();
        self.stream = next;
        self.tag = record::tag(next.0.get());
        self.blobs = Blobs::new(self.slab.len() as u64);
        self.boundaries = Boundaries::new(Boundary::START, self.producer.size());
        self.acked = Position::START;
    }

    /// The base, and what proves it.
    #[must_use]
    pub const fn base_boundary(&self) -> Boundary {
        self.boundaries.base()
    }

    /// Bytes of the ring.
    #[must_use]
    pub const fn ring_bytes(&self) -> u64 {
        self.producer.size().bytes()
    }

    /// Bytes of the slab.
    #[must_use]
    pub const fn slab_bytes(&self) -> u64 {
        self.slab.len() as u64
    }
}

/// What a record that was judged proves at its end; `None` of a PAD.
fn digest_of(header: &RecordHeader, record: &[u8]) -> Option<RecordDigest> {
    match header.kind {
        Kind::CompactRecord => Some(RecordDigest(header.stream)),
        kind => prefix_of(kind, record).map(|prefix| RecordDigest(prefix.crc.get())),
    }
}

/// The prefix of a record that was judged; `None` of a PAD, and of a BARE one.
fn prefix_of(kind: Kind, record: &[u8]) -> Option<LinkPrefix> {
    if matches!(kind, Kind::Pad | Kind::CompactRecord) {
        return None;
    }
    let payload = record.get(as_usize(HEADER_BYTES)..)?;
    LinkPrefix::read_from_prefix(payload).ok().map(|(prefix, _)| prefix)
}

/// The longest message that a ring takes.
fn inline_limit(size: RingSize) -> usize {
    as_usize(size.payload_max().saturating_sub(PREFIX_BYTES))
}

const fn at(position: Position) -> record_ring::Position {
    record_ring::Position(position.0)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the crate is for 64 bits, and it is within memory"
)]
const fn as_usize(value: u64) -> usize {
    value as usize
}
