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

mod blobs;
mod cursor;
mod found;

use self::blobs::Blobs;
pub use self::cursor::{SendCursor, Stuck};
pub use self::found::{Damage, Flaw};
use partywall_layout::RecordHeader;
use partywall_layout::link::record::{self, Ack, BLOB_PAYLOAD_BYTES, LinkBlob, PREFIX_BYTES};
use partywall_layout::link::{LinkPrefix, compact};
use partywall_layout::record_ring::{self, HEADER_BYTES, Kind, RingSize, footprint};
use partywall_layout::seeded_fault;
use partywall_reconcile::{AckUnfit, AckedOffset, Position, Prepared, RecordDigest, StreamId};
use partywall_ring::{OwnMem, Producer};
use std::collections::VecDeque;
use std::fmt;
use zerocopy::{FromBytes, IntoBytes};

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

    /// The stream that this memory holds from `base` on, as its state says.
    ///
    /// A state that says `acked` beyond the tail found here is damaged too: [`acknowledged`](Self::acknowledged) tells.
    ///
    /// # Errors
    ///
    /// [`Damage`]; nothing was changed.
    ///
    /// # Panics
    ///
    /// If `ring` is not as long as `size` says.
    pub fn found(
        ring: OwnMem,
        size: RingSize,
        slab: OwnMem,
        stream: StreamId,
        base: Position,
        digest_at_base: RecordDigest,
    ) -> Result<Self, Damage> {
        assert!(ring.len() as u64 == size.bytes(), "the ring's memory has the ring's size");
        let base = Boundary { position: base, digest: digest_at_base };
        let (boundaries, blobs, tail) = found::walk(&ring, size, &slab, stream, base)?;
        let tag = record::tag(stream.0.get());
        let producer = Producer::resume(ring, size, at(base.position), at(tail));
        let (acked, inline_max) = (base.position, inline_limit(size));
        let gathered = Gathered::default();
        Ok(Self { stream, tag, producer, slab, blobs, boundaries, acked, inline_max, gathered })
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

    /// Appends a message, given in parts, to the open batch; where its record ends. `ack` is how far this side has
    /// consumed the other direction as of this message.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn append(
        &mut self,
        parts: &[&[u8]],
        ack: Option<AckedOffset>,
    ) -> Result<Position, Refused> {
        let len = len_of(parts);
        let place = self.place(len, false)?;
        Ok(self.append_placed(place, len, |room| join(parts, room), ack))
    }

    /// As [`append`](Self::append), but without `ack` where that saves its room: for who says it in another place, before.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn append_compact(
        &mut self,
        parts: &[&[u8]],
        ack: Option<AckedOffset>,
    ) -> Result<Position, Refused> {
        let len = len_of(parts);
        let place = self.place(len, true)?;
        Ok(self.append_placed(place, len, |room| join(parts, room), ack))
    }

    /// Appends a short message at a place that [`place_short_compact`](Self::place_short_compact) gave. `fill` writes it, every byte: this is the
    /// way of nearly all messages where two processes are in step.
    #[inline(always)]
    pub fn append_short_compact(
        &mut self,
        begin: record_ring::Position,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Position {
        let gathered = &mut self.gathered.0[..HEADER + len];
        let (header, message) = gathered.split_at_mut(HEADER);
        #[expect(clippy::cast_possible_truncation, reason = "a short message")]
        header.copy_from_slice(&compact::sealed_header(begin, self.tag, len as u32));
        fill(message);
        let crc = compact::crc_of(gathered);
        let message = &gathered[HEADER..];
        self.producer.append_placed(begin, Kind::CompactRecord, crc, message);
        self.appended(begin, len, crc, false)
    }

    /// Appends a message at a place that [`place`](Self::place) gave; `fill` writes it, every byte.
    pub fn append_placed(
        &mut self,
        place: Place,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        ack: Option<AckedOffset>,
    ) -> Position {
        // Whoever waits for a short message looks at its line all the time, and would take it away between two stores.
        match place {
            Place::Ring if len <= SHORT_MAX => self.append_short(len, fill, ack),
            Place::CompactRecord if len <= SHORT_MAX => {
                self.append_short_compact(self.producer.next_position(len), len, fill)
            }
            _ => {
                let mut reservation = Reservation { retained: self, len, place };
                fill(reservation.bytes());
                reservation.commit(ack)
            }
        }
    }

    fn append_short(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        ack: Option<AckedOffset>,
    ) -> Position {
        let payload = PREFIX + len;
        let begin = self.producer.next_position(payload);
        let gathered = &mut self.gathered.0[..payload];
        let (prefix, body) = gathered.split_at_mut(PREFIX);
        fill(body);
        let ack = ack.map_or(Ack::default(), ack_of);
        let sealed = LinkPrefix::sealed(begin, Kind::Data, self.tag, ack, 0, &[body]);
        prefix.copy_from_slice(sealed.as_bytes());
        let appended = self.producer.append(Kind::Data, self.tag, gathered);
        assert!(appended.is_ok(), "there was room when it was reserved");
        self.appended(begin, payload, sealed.crc.get(), false)
    }

    /// The record is in the open batch; where it ends.
    #[inline(always)]
    fn appended(
        &mut self,
        begin: record_ring::Position,
        payload: usize,
        crc: u32,
        is_blob: bool,
    ) -> Position {
        let position = Position(begin.0 + footprint(payload as u64));
        self.boundaries.append(Boundary { position, digest: RecordDigest(crc) }, is_blob);
        position
    }

    /// Room for a message of `len` bytes, to be written in place and then committed to the open batch. If it is
    /// dropped instead, nothing changes.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, Refused> {
        let place = self.place(len, false)?;
        Ok(Reservation { retained: self, len, place })
    }

    /// Where a message goes now, until anything else is done here. `is_said`: how far was consumed is said elsewhere.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn place(&mut self, len: usize, is_said: bool) -> Result<Place, Refused> {
        let is_inline = len <= self.inline_max;
        if !is_inline && len as u64 > self.blobs.length_max() {
            return Err(Refused::TooLarge { len, max: self.message_max() });
        }
        let place = match (is_inline, is_said) {
            (false, _) => Place::Slab { offset: 0 },
            (true, true) if self.may_be_compact(self.producer.next_position(len)) => {
                Place::CompactRecord
            }
            (true, _) => Place::Ring,
        };
        let payload = place.payload(len);
        let batch = self.producer.open_bytes() + footprint(payload as u64);
        if batch > self.producer.size().batch_max() {
            return Err(Refused::BatchFull);
        }
        if !self.producer.has_room(payload).unwrap_or(false) {
            return Err(Refused::Full);
        }
        if is_inline {
            return Ok(place);
        }
        let offset = self.blobs.place(len as u64).ok_or(Refused::Full)?;
        Ok(Place::Slab { offset })
    }

    /// Where a BARE record of a short message begins now, until anything else is done here. `None`: it is not short, or may not be BARE.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    #[inline(always)]
    pub fn place_short_compact(
        &mut self,
        len: usize,
    ) -> Result<Option<record_ring::Position>, Refused> {
        if len > SHORT_MAX || len > self.inline_max {
            return Ok(None);
        }
        let (begin, has_room) = self.producer.place(len).map_err(|_| Refused::Full)?;
        if !self.may_be_compact(begin) {
            return Ok(None);
        }
        let batch = self.producer.open_bytes() + footprint(len as u64);
        if batch > self.producer.size().batch_max() {
            return Err(Refused::BatchFull);
        }
        if has_room { Ok(Some(begin)) } else { Err(Refused::Full) }
    }

    /// Whether a record that begins there, perhaps behind a PAD, may be BARE. If not, one with a prefix lies there too: it
    /// is longer.
    #[inline(always)]
    fn may_be_compact(&self, begin: record_ring::Position) -> bool {
        record::may_be_compact(begin, self.producer.size()) || seeded_fault("link_compact_first")
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

    /// A cursor at `from`; `None` unless that is the base, the tail, or the end of a record between them.
    #[must_use]
    pub fn cursor(&self, from: Position) -> Option<SendCursor> {
        self.digest_at(from).map(|_| SendCursor::new(from))
    }

    /// What the last record committed that says how far `stream`, of the other direction, was consumed: for
    /// [`recover`](partywall_reconcile::recover). BARE records say nothing, and commit nothing.
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
    pub const fn is_distinct_from(&self, next: StreamId) -> bool {
        self.tag != record::tag(next.0.get())
    }

    /// Ends this stream, so that another may begin in its memory; the open batch is forgotten. Until the state that names
    /// the other is committed, the memory is still found to hold this stream.
    ///
    /// # Panics
    ///
    /// If records of the two could not [be told apart](Self::is_distinct_from).
    pub fn end(&mut self, next: StreamId) {
        assert!(self.is_distinct_from(next), "a stream id with another tag has to be drawn");
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

/// Room for a message.
#[derive(Debug)]
pub struct Reservation<'a> {
    retained: &'a mut Retained,
    len: usize,
    place: Place,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// With a prefix.
    Ring,
    /// Without.
    CompactRecord,
    /// With a record that says where it lies.
    Slab {
        /// There.
        offset: u64,
    },
}

impl Place {
    /// How long the payload of the record is for a message of `len` bytes.
    #[inline]
    const fn payload(self, len: usize) -> usize {
        match self {
            Self::Ring => as_usize(PREFIX_BYTES) + len,
            Self::CompactRecord => len,
            Self::Slab { .. } => as_usize(BLOB_PAYLOAD_BYTES),
        }
    }
}

impl Reservation<'_> {
    /// Where the message is to be written; holds anything before.
    #[must_use]
    pub fn bytes(&mut self) -> &mut [u8] {
        let payload = self.place.payload(self.len);
        if let Place::Slab { offset } = self.place {
            return self.retained.slab.slice_mut(as_usize(offset), self.len);
        }
        match self.retained.producer.payload_ahead(payload) {
            Ok(bytes) => &mut bytes[payload - self.len..],
            Err(_) => &mut [], // not reached: there was room when it was reserved
        }
    }

    /// Appends the message to the open batch; where its record ends.
    pub fn commit(mut self, ack: Option<AckedOffset>) -> Position {
        if matches!(self.place, Place::CompactRecord) {
            return self.commit_compact();
        }
        let Self { retained, len, place } = self;
        let ack = ack.map_or(Ack::default(), ack_of);
        let (kind, crc, blob) = match place {
            Place::Slab { offset } => {
                let crc = record::blob_crc(retained.slab.slice(as_usize(offset), len));
                let blob = LinkBlob { offset: offset.into(), length: (len as u64).into() };
                (Kind::Blob, crc, Some((offset, blob)))
            }
            _ => (Kind::Data, 0, None),
        };
        let (payload, tag) = (place.payload(len), retained.tag);
        let begin = retained.producer.next_position(payload);
        let mut digest = 0;
        let appended = retained.producer.append_with(kind, tag, payload, |payload| {
            let (prefix, body) = payload.split_at_mut(PREFIX);
            if let Some((_, blob)) = blob {
                body.copy_from_slice(blob.as_bytes());
            }
            let sealed = LinkPrefix::sealed(begin, kind, tag, ack, crc, &[body]);
            prefix.copy_from_slice(sealed.as_bytes());
            digest = sealed.crc.get();
        });
        assert!(appended.is_ok(), "there was room when it was reserved");
        let position = retained.appended(begin, payload, digest, blob.is_some());
        if let Some((offset, _)) = blob {
            let is_put = retained.blobs.put(position, offset, len as u64);
            assert!(is_put, "there was room when it was reserved");
        }
        position
    }

    /// The message lies where it is to be: the header needs its crc.
    fn commit_compact(&mut self) -> Position {
        let begin = self.retained.producer.next_position(self.len);
        let (tag, bytes) = (self.retained.tag, self.bytes());
        let crc = compact::crc(begin, tag, &[bytes]);
        let appended =
            self.retained.producer.append_with(Kind::CompactRecord, crc, self.len, |_| {});
        assert!(appended.is_ok(), "there was room when it was reserved");
        self.retained.appended(begin, self.len, crc, false)
    }
}

/// How long the parts are together.
#[inline(always)]
pub fn len_of(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// Copies the parts one behind the other; the room is as long as all of them.
#[inline(always)]
pub fn join(parts: &[&[u8]], mut room: &mut [u8]) {
    for part in parts {
        let (here, behind) = room.split_at_mut(part.len());
        here.copy_from_slice(part);
        room = behind;
    }
}

fn ack_of(acked_offset: AckedOffset) -> Ack {
    Ack {
        position: acked_offset.position.0,
        digest: acked_offset.digest.0,
        tag: record::tag(acked_offset.stream.0.get()),
    }
}

/// The payload of a record that is put together, or header and payload. It is kept, because making its bytes zero each time takes longer
/// than writing them.
#[derive(Debug)]
#[repr(align(64))]
struct Gathered([u8; GATHERED_BYTES]);

impl Default for Gathered {
    fn default() -> Self {
        Self([0; GATHERED_BYTES])
    }
}

/// Where a record ends, or a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The place.
    pub position: Position,
    /// What proves it.
    pub digest: RecordDigest,
}

impl Boundary {
    /// Where each stream begins.
    pub const START: Self = Self { position: Position::START, digest: RecordDigest::START };
}

#[derive(Debug)]
struct Boundaries {
    base: Boundary,
    tail: Boundary,
    open: Boundary,
    marks: VecDeque<Boundary>,
    /// The next mark is at least so many bytes behind the last.
    apart: u64,
}

impl Boundaries {
    const fn new(base: Boundary, size: RingSize) -> Self {
        let apart = size.bytes() / APART;
        Self { base, tail: base, open: base, marks: VecDeque::new(), apart }
    }

    #[inline]
    const fn base(&self) -> Boundary {
        self.base
    }

    #[inline]
    const fn tail(&self) -> Boundary {
        self.tail
    }

    /// A record was appended that ends at `end`.
    #[inline]
    fn append(&mut self, end: Boundary, is_blob: bool) {
        self.open = end;
        let last = self.marks.back().unwrap_or(&self.base).position;
        if is_blob || end.position.since(last) >= self.apart {
            self.marks.push_back(end);
        }
    }

    #[inline]
    const fn publish(&mut self) {
        self.tail = self.open;
    }

    /// What was appended since the last publish never was.
    fn abort(&mut self) {
        self.open = self.tail;
        while self
            .marks
            .back()
            .is_some_and(|acked_offset| acked_offset.position > self.tail.position)
        {
            self.marks.pop_back();
        }
    }

    /// Up to where the base may rise when everything below `acked` was consumed.
    fn trim_to(&mut self, acked: Position) -> Option<Boundary> {
        if acked == self.tail.position {
            return (self.tail.position > self.base.position).then_some(self.tail);
        }
        while self.marks.get(1).is_some_and(|next| next.position <= acked) {
            self.marks.pop_front();
        }
        self.marks.front().copied().filter(|first| first.position <= acked)
    }

    fn trim(&mut self, base: Boundary) {
        self.base = base;
        while self.marks.front().is_some_and(|acked_offset| acked_offset.position <= base.position)
        {
            self.marks.pop_front();
        }
    }

    /// The last that is known at `position` or before it; `None` before the base and beyond the tail.
    fn before(&self, position: Position) -> Option<Boundary> {
        if position < self.base.position || position > self.tail.position {
            return None;
        }
        if position == self.tail.position {
            return Some(self.tail);
        }
        let count = self.marks.partition_point(|acked_offset| acked_offset.position <= position);
        let acked_offset = count.checked_sub(1).and_then(|last| self.marks.get(last));
        Some(acked_offset.copied().unwrap_or(self.base))
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

/// Messages up to so many bytes are put together elsewhere.
const SHORT_MAX: usize = 104;
const GATHERED_BYTES: usize = PREFIX + SHORT_MAX;
const PREFIX: usize = as_usize(PREFIX_BYTES);
const HEADER: usize = as_usize(HEADER_BYTES);

const _: () = assert!(HEADER <= PREFIX, "one or the other stands before the message");

/// So many marks in a ring of messages without BLOBs.
const APART: u64 = 16;
