// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outgoing stream of a link, in the ring and slab of its sender. They keep each message until
//! the receiver has acknowledged it (SPEC 14).
//!
//! ```text
//!             base           acked                        tail    open batch
//!   ──────────┼──────────────┼────────────────────────────┼───────┼──────▶ position
//!    free     │ acknowledged │ kept for the receiver      │ being │ free
//!             └ trim_to ─────▶                              written └ the next slot begins with 0
//!
//!   append, append_compact       DATA or COMPACT, or BLOB with the bytes in the slab
//!     each call is      place ─▶ append_placed: `fill` writes the message
//!     or, mostly,       place_short_compact ─▶ append_short_compact: for a short compact record
//!
//!   short messages   assembled and sealed in private memory, then copied at once
//!   long messages    written and sealed in the ring or the slab
//!
//!   found.rs     checks each record of a stream that an earlier owner left
//!   cursor.rs    the next bytes of the stream for a socket
//!   blobs.rs     the places of large messages in the slab
//! ```
//!
//! The memory is a ring and a slab. The code of this folder uses no link files, sockets or peers,
//! and stores only records: its caller writes base, `acked` and the stream id into the state (SPEC
//! 13.4). A DATA or BLOB record carries the acknowledgement of the opposite direction, a compact
//! record does not. The caller decides which kind is needed.
//!
//! # Killed between any two stores
//!
//! A batch is published by one store: that of the `word0` of its first record. Everything that this
//! store makes visible is written before, and a 0 is written into the slot after the batch. So
//! complete records follow the base, and then a slot that begins with 0, however much of the next
//! batch is written: its first word is held back. The `word0` of its other records are stored only
//! when it is published, too. So a batch that is dropped leaves no whole record, which could pass
//! for a published one after a power loss. A new base is stored in the state *before* the room
//! below it is used again, so the records from the base on are complete too.
//!
//! A new stream begins at position 0 in the same ring, over the records of the former stream:
//!
//! ```text
//!   end(next)     1. the slot at offset 0 := 0, unless a kept record begins there
//!   the caller    2. stores the state that names `next`, base 0    before: the former stream
//!   begin         3. the slot at offset 0 := 0                     after: `next`, empty
//! ```
//!
//! Step 1 changes nothing of the former stream, because it zeroes free room. If the process dies
//! between steps 2 and 3, offset 0 holds 0 or a *complete* record of the former stream: that record
//! was published, and a record always begins at offset 0. The record's tag is not that of `next`,
//! as [`end`](Retained::end) asserts. So for a stream with base 0, a first slot with a complete
//! record of another tag is the end of the stream, and any other invalid record is damage. Without
//! step 1 there could be an incomplete record, which could not be distinguished from a damaged one.
//! A compact record carries no tag; therefore it is never written at offset 0. After the first slot
//! no record of the former stream can become valid, because each publish zeroes the next slot
//! first.
//!
//! # Invariants
//!
//! - `base ≤ acked ≤ tail`. At base and tail a DATA, BLOB or COMPACT record ends, or the stream
//!   starts.
//! - Records from the base up to the tail never change, in the ring or in the slab.
//! - A compact record never begins at offset 0 of the ring, because the first slot is checked by
//!   the tag in its record.

mod blobs;
mod cursor;
mod found;

use self::blobs::Blobs;
pub use self::cursor::{SendCursor, Stuck};
pub use self::found::{Damage, Flaw};
pub(crate) use self::found::{Proven, proven};
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

/// The outgoing stream: the messages that the receiver may still need, and the open batch.
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
    /// Private memory in which the record of a short message is assembled, before it is copied into
    /// the ring.
    gathered: Gathered,
}

/// Reason why a message was not appended. The call changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The ring or slab has no room until more messages are acknowledged and freed. If a batch is
    /// open, it has to be published first.
    Full,
    /// The open batch would take more than half the ring: the caller has to publish it first.
    BatchFull,
    /// The message is too long for the ring and for the slab.
    TooLarge {
        /// The length of the message in bytes.
        len: usize,
        /// The length in bytes of the longest message that fits.
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
    /// Begins a stream in memory that holds no stream yet. To follow an existing stream, call
    /// [`end`](Self::end).
    ///
    /// # Panics
    ///
    /// If the length of `ring` is not the one that `size` names.
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

    /// Recovers the stream that this memory holds from `base` on, as the owner's state names it.
    ///
    /// This call does not check the acknowledged position in the owner's state. If that position
    /// lies beyond the recovered tail, the state is damaged, and
    /// [`acknowledged`](Self::acknowledged) returns an error for it.
    ///
    /// # Errors
    ///
    /// [`Damage`] if a record is invalid; the call changed nothing.
    ///
    /// # Panics
    ///
    /// If the length of `ring` is not the one that `size` names.
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

    /// Sets the maximum length in bytes of messages in the ring, at most a quarter of the ring;
    /// longer messages go into the slab.
    #[must_use]
    pub fn with_inline_max(mut self, bytes: usize) -> Self {
        self.inline_max = bytes.min(inline_limit(self.producer.size()));
        self
    }

    /// The id of the stream.
    #[must_use]
    #[inline]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// The base: the position of the first record that ring and slab keep.
    #[must_use]
    #[inline]
    pub const fn base(&self) -> Position {
        self.boundaries.base().position
    }

    /// The position up to which the receiver has acknowledged this stream, as far as this end
    /// knows.
    #[must_use]
    #[inline]
    pub const fn acked(&self) -> Position {
        self.acked
    }

    /// The position where the last published record ends.
    #[must_use]
    #[inline]
    pub const fn tail(&self) -> Position {
        self.boundaries.tail().position
    }

    /// The size of the ring, which a receiver needs to check the records.
    #[must_use]
    pub const fn ring_size(&self) -> RingSize {
        self.producer.size()
    }

    /// The number of ring bytes that the kept records take, from the base to the tail.
    #[must_use]
    pub const fn live_bytes(&self) -> u64 {
        self.tail().since(self.base())
    }

    /// The length in bytes of the longest message that the empty ring or slab can take.
    #[must_use]
    pub fn message_max(&self) -> usize {
        self.inline_max.max(as_usize(self.blobs.length_max()))
    }

    /// Whether a message of `len` bytes could be appended now, as a record with an acknowledgement.
    #[must_use]
    pub fn has_room(&mut self, len: usize) -> bool {
        self.place(len, false).is_ok()
    }

    /// Appends a message, given in parts, to the open batch; returns the position where its record
    /// ends. `ack` is the position, with its digest, up to which this end has acknowledged the
    /// peer's stream; the record carries it to the peer.
    ///
    /// # Errors
    ///
    /// [`Refused`]; the call changed nothing.
    pub fn append(
        &mut self,
        parts: &[&[u8]],
        ack: Option<AckedOffset>,
    ) -> Result<Position, Refused> {
        let len = len_of(parts);
        let place = self.place(len, false)?;
        Ok(self.append_placed(place, len, |room| join(parts, room), ack))
    }

    /// Appends a message, given in parts, to the open batch: where possible as a compact record,
    /// which carries no acknowledgement. The caller must have stored `ack` in the control page of
    /// this end's memory, where the peer reads it, before the call.
    ///
    /// # Errors
    ///
    /// [`Refused`]; the call changed nothing.
    pub fn append_compact(
        &mut self,
        parts: &[&[u8]],
        ack: Option<AckedOffset>,
    ) -> Result<Position, Refused> {
        let len = len_of(parts);
        let place = self.place(len, true)?;
        Ok(self.append_placed(place, len, |room| join(parts, room), ack))
    }

    /// Appends a short message as a compact record, at the place that
    /// [`place_short_compact`](Self::place_short_compact) has found for it. `fill` writes every
    /// byte of the message. While two processes exchange short messages in turn, nearly all
    /// messages take this path.
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

    /// Appends a message at the place that [`place`](Self::place) returned; `fill` writes every
    /// byte of the message.
    pub fn append_placed(
        &mut self,
        place: Place,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        ack: Option<AckedOffset>,
    ) -> Position {
        // A receiver that spins for a short message polls the record's cache line all the time, and
        // would take the line away from the sender between two stores. So the whole record is
        // copied in one step.
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

    /// Adds the end of the record that was just written to the boundaries (noted ends of records)
    /// of the open batch. Returns the position of this end.
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

    /// Reserves room for a message of `len` bytes. The caller writes the message in place and then
    /// commits it to the open batch. Dropping the reservation changes nothing.
    ///
    /// # Errors
    ///
    /// [`Refused`]; the call changed nothing.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, Refused> {
        let place = self.place(len, false)?;
        Ok(Reservation { retained: self, len, place })
    }

    /// Returns the place of the next message, valid until the next call that changes this stream.
    /// If `may_be_compact`, the record need not carry an acknowledgement.
    ///
    /// # Errors
    ///
    /// [`Refused`]; the call changed nothing.
    pub fn place(&mut self, len: usize, may_be_compact: bool) -> Result<Place, Refused> {
        let is_inline = len <= self.inline_max;
        if !is_inline && len as u64 > self.blobs.length_max() {
            return Err(Refused::TooLarge { len, max: self.message_max() });
        }
        let place = match (is_inline, may_be_compact) {
            (false, _) => Place::Slab { offset: 0 },
            (true, true) if self.is_compact_at(self.producer.next_position(len)) => {
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

    /// The position of the compact record for a short message, valid until the next call that
    /// changes this stream. `None` if the message is long, or its record needs a prefix.
    ///
    /// # Errors
    ///
    /// [`Refused`]; the call changed nothing.
    #[inline(always)]
    pub fn place_short_compact(
        &mut self,
        len: usize,
    ) -> Result<Option<record_ring::Position>, Refused> {
        if len > SHORT_MAX || len > self.inline_max {
            return Ok(None);
        }
        let (begin, has_room) = self.producer.place(len).map_err(|_| Refused::Full)?;
        if !self.is_compact_at(begin) {
            return Ok(None);
        }
        let batch = self.producer.open_bytes() + footprint(len as u64);
        if batch > self.producer.size().batch_max() {
            return Err(Refused::BatchFull);
        }
        if has_room { Ok(Some(begin)) } else { Err(Refused::Full) }
    }

    /// Whether a record at position `begin` may be compact; `begin` is where the compact record
    /// would lie, perhaps after a PAD. If the record may not be compact, a record with a prefix
    /// (which carries an acknowledgement) gets the same place: it is longer, so if the compact
    /// record needs the PAD, it needs the PAD, too.
    #[inline(always)]
    fn is_compact_at(&self, begin: record_ring::Position) -> bool {
        record::may_be_compact(begin, self.producer.size()) || seeded_fault("link_compact_first")
    }

    /// Publishes all messages of the open batch together, by one store.
    #[inline]
    pub fn publish(&mut self) {
        self.producer.publish();
        self.boundaries.publish();
    }

    /// Prefetches and zeroes ring memory after the tail for the next messages. This only saves
    /// time, so callers call it after they have notified the peer.
    #[inline]
    pub fn prepare_ahead(&mut self) {
        self.producer.prepare_ahead();
    }

    /// Prepares ring memory for the next messages, as [`prepare_ahead`](Self::prepare_ahead) does,
    /// but without prefetching while each side waits for each message of the other
    /// (`Producer::prepare`). `has_waited` says whether this end has waited for a record since the
    /// last call.
    #[inline]
    pub fn prepare(&mut self, has_waited: bool) {
        self.producer.prepare(has_waited);
    }

    /// Discards all messages of the open batch: they are not published yet, so neither the peer nor
    /// a later owner sees any of them.
    pub fn abort(&mut self) {
        self.producer.abort();
        self.boundaries.abort();
        self.blobs.cut(self.tail());
    }

    /// Applies the peer's acknowledgement up to `position`. A position below the present one
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// [`AckUnfit::BeyondTail`]: the peer violated the protocol, or the state that the position
    /// comes from is damaged. The call changed nothing.
    pub fn acknowledged(&mut self, position: Position) -> Result<(), AckUnfit> {
        if position > self.tail() {
            return Err(AckUnfit::BeyondTail);
        }
        self.acked = self.acked.max(position);
        Ok(())
    }

    /// The position and digest below which records can be freed, because they are acknowledged;
    /// `None` if they are those of the present base. The caller stores the new base in the state,
    /// together with the acked offset (SPEC 12.5), and then calls [`trimmed`](Self::trimmed).
    #[must_use]
    pub fn trim_to(&mut self) -> Option<Boundary> {
        self.boundaries.trim_to(self.acked)
    }

    /// Frees the records below `base`. The caller must have stored `base` in the state.
    ///
    /// # Panics
    ///
    /// If [`trim_to`](Self::trim_to) cannot have returned `base`.
    pub fn trimmed(&mut self, base: Boundary) {
        let is_boundary = self.digest_at(base.position) == Some(base.digest);
        assert!(is_boundary && base.position <= self.acked, "only what was offered is trimmed");
        let is_accepted = self.producer.set_consumed(at(base.position));
        assert!(is_accepted.is_ok(), "a boundary lies between base and tail");
        self.boundaries.trim(base);
        self.blobs.trim(base.position);
    }

    /// Returns the record digest at `position`. `position` has to be the base or the end of a kept
    /// record; `None` for any other.
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

    /// Returns a cursor that starts sending at `from`. `from` has to be the base or the end of a
    /// published record after it; `None` for any other.
    #[must_use]
    pub fn cursor(&self, from: Position) -> Option<SendCursor> {
        self.digest_at(from).map(|_| SendCursor::new(from))
    }

    /// Returns the acked offset of `stream`, the stream of the opposite direction, from the last
    /// published record that carries an acked offset. From it a new owner
    /// [recovers](partywall_reconcile::recover) its own acked offset. Compact records carry no
    /// acked offset.
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

    /// Whether the tags of this stream and of `next` differ. If they are equal (with a probability
    /// of 1 in 2³²), the caller must draw another id.
    #[must_use]
    pub const fn is_distinct_from(&self, next: StreamId) -> bool {
        self.tag != record::tag(next.0.get())
    }

    /// Ends this stream, so that `next` may begin in the same memory, and discards the open batch.
    /// The memory still holds this stream until the state that names `next` is stored.
    ///
    /// # Panics
    ///
    /// If the two streams are not [distinct](Self::is_distinct_from).
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

    /// Begins the stream `next`. The caller must have called [`end`](Self::end), and then have
    /// stored the state that names `next`.
    pub fn begin(&mut self, next: StreamId) {
        self.producer.restart();
        self.stream = next;
        self.tag = record::tag(next.0.get());
        self.blobs = Blobs::new(self.slab.len() as u64);
        self.boundaries = Boundaries::new(Boundary::START, self.producer.size());
        self.acked = Position::START;
    }

    /// The base of the stream, with the record digest at the base.
    #[must_use]
    pub const fn base_boundary(&self) -> Boundary {
        self.boundaries.base()
    }

    /// The size of the ring in bytes.
    #[must_use]
    pub const fn ring_bytes(&self) -> u64 {
        self.producer.size().bytes()
    }

    /// The size of the slab in bytes.
    #[must_use]
    pub const fn slab_bytes(&self) -> u64 {
        self.slab.len() as u64
    }
}

/// Reserved room for one message, which [`Retained::reserve`] returns. The caller writes the
/// message into the room, and then commits it.
#[derive(Debug)]
pub struct Reservation<'a> {
    retained: &'a mut Retained,
    len: usize,
    place: Place,
}

/// Place of a message's bytes, and the kind of its record.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// The message is in a DATA record of the ring, whose prefix carries an acknowledgement.
    Ring,
    /// The message is in a compact record of the ring, which has no prefix and so no
    /// acknowledgement.
    CompactRecord,
    /// The message is in the slab, and a BLOB record in the ring gives its offset.
    Slab {
        /// The offset of the message in the slab, in bytes.
        offset: u64,
    },
}

impl Place {
    /// The length in bytes of the payload of the ring record that carries or names a message of
    /// `len` bytes.
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
    /// The reserved memory for the message; its contents are unspecified.
    #[must_use]
    pub fn bytes(&mut self) -> &mut [u8] {
        let payload = self.place.payload(self.len);
        if let Place::Slab { offset } = self.place {
            return self.retained.slab.slice_mut(as_usize(offset), self.len);
        }
        match self.retained.producer.payload_ahead(payload) {
            Ok(bytes) => &mut bytes[payload - self.len..],
            Err(_) => &mut [], // unreachable: `reserve` found room
        }
    }

    /// Appends the message to the open batch; returns the position where its record ends.
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

    /// Completes a record whose message the caller wrote in place: writes the record header, with
    /// the crc of the message. Returns the position at which the record ends.
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

/// The total length in bytes of all parts of a message.
#[inline(always)]
pub fn len_of(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// Copies all parts of a message, one after the other, into `room`, whose length is their total
/// length.
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

/// The bytes of a short record during its assembly: its payload, or header and payload. The array
/// is reused, because zeroing it for each message takes longer than writing it.
#[derive(Debug)]
#[repr(align(64))]
struct Gathered([u8; GATHERED_BYTES]);

impl Default for Gathered {
    fn default() -> Self {
        Self([0; GATHERED_BYTES])
    }
}

/// A boundary: the position where a record ends or a stream starts, with the digest of that record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The position where the record ends or the stream starts.
    pub position: Position,
    /// The digest of the record that ends at the position.
    pub digest: RecordDigest,
}

impl Boundary {
    /// The position and digest at which every stream starts.
    pub const START: Self = Self { position: Position::START, digest: RecordDigest::START };
}

/// The ends of kept records, with their digests: only as many as are needed to free records.
///
/// ```text
///  base       inner           inner  inner (BLOB)       tail      open
///  ┼──────────┼───────────────┼──────┼──────────────────┼─────────┼──▶ position
///             └ at least ring/16 apart, and at each BLOB          └ end of the open batch
/// ```
///
/// An acknowledgement frees records up to the last boundary that it reaches: up to the tail if
/// everything is acknowledged, and up to the end of each BLOB. A message between two boundaries
/// costs a comparison and no store.
///
/// Invariant: `base ≤ inner, rising ≤ open`; at each boundary a DATA, BLOB or COMPACT record ends,
/// never a PAD.
#[derive(Debug)]
struct Boundaries {
    base: Boundary,
    tail: Boundary,
    open: Boundary,
    inner: VecDeque<Boundary>,
    /// The minimum distance in bytes between two of the noted ends of kept records, up to which
    /// records can be freed: a sixteenth of the ring.
    apart: u64,
}

impl Boundaries {
    const fn new(base: Boundary, size: RingSize) -> Self {
        let apart = size.bytes() / APART;
        Self { base, tail: base, open: base, inner: VecDeque::new(), apart }
    }

    #[inline]
    const fn base(&self) -> Boundary {
        self.base
    }

    #[inline]
    const fn tail(&self) -> Boundary {
        self.tail
    }

    /// Notes `end`, the end of a record that was appended to the open batch, as a boundary up to
    /// which records can later be freed.
    #[inline]
    fn append(&mut self, end: Boundary, is_blob: bool) {
        self.open = end;
        let last = self.inner.back().unwrap_or(&self.base).position;
        if is_blob || end.position.since(last) >= self.apart {
            self.inner.push_back(end);
        }
    }

    #[inline]
    const fn publish(&mut self) {
        self.tail = self.open;
    }

    /// Drops the boundaries (the noted ends of records) of the open batch, because the batch is
    /// discarded.
    fn abort(&mut self) {
        self.open = self.tail;
        while self.inner.back().is_some_and(|boundary| boundary.position > self.tail.position) {
            self.inner.pop_back();
        }
    }

    /// The highest boundary, the end of a kept record, up to which records can be freed when
    /// everything below `acked` is acknowledged; `None` if that is the present base.
    fn trim_to(&mut self, acked: Position) -> Option<Boundary> {
        if acked == self.tail.position {
            return (self.tail.position > self.base.position).then_some(self.tail);
        }
        while self.inner.get(1).is_some_and(|next| next.position <= acked) {
            self.inner.pop_front();
        }
        self.inner.front().copied().filter(|first| first.position <= acked)
    }

    fn trim(&mut self, base: Boundary) {
        self.base = base;
        while self.inner.front().is_some_and(|boundary| boundary.position <= base.position) {
            self.inner.pop_front();
        }
    }

    /// The last noted end of a record at or before `position`; `None` if `position` is below the
    /// base or beyond the tail.
    fn before(&self, position: Position) -> Option<Boundary> {
        if position < self.base.position || position > self.tail.position {
            return None;
        }
        if position == self.tail.position {
            return Some(self.tail);
        }
        let count = self.inner.partition_point(|boundary| boundary.position <= position);
        let boundary = count.checked_sub(1).and_then(|last| self.inner.get(last));
        Some(boundary.copied().unwrap_or(self.base))
    }
}

/// Returns the digest of a record, which the caller must have checked; `None` for a PAD.
fn digest_of(header: &RecordHeader, record: &[u8]) -> Option<RecordDigest> {
    match header.kind {
        Kind::CompactRecord => Some(RecordDigest(header.stream)),
        kind => prefix_of(kind, record).map(|prefix| RecordDigest(prefix.crc.get())),
    }
}

/// Returns the prefix of a record, which the caller must have checked; `None` for a compact record,
/// and for a PAD.
fn prefix_of(kind: Kind, record: &[u8]) -> Option<LinkPrefix> {
    if matches!(kind, Kind::Pad | Kind::CompactRecord) {
        return None;
    }
    let payload = record.get(as_usize(HEADER_BYTES)..)?;
    LinkPrefix::read_from_prefix(payload).ok().map(|(prefix, _)| prefix)
}

/// The length in bytes of the longest message that a ring of `size` takes, as a record with a
/// prefix.
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

/// Maximum length in bytes of a message that is assembled in private memory and then copied in one
/// step. Prefix and message of the longest such record together fill the 128 bytes of that memory.
const SHORT_MAX: usize = 104;
const GATHERED_BYTES: usize = PREFIX + SHORT_MAX;
const PREFIX: usize = as_usize(PREFIX_BYTES);
const HEADER: usize = as_usize(HEADER_BYTES);

const _: () = assert!(HEADER <= PREFIX, "one or the other stands before the message");

/// The number of boundaries (noted ends of records) in a full ring without BLOBs (messages in the
/// slab): acknowledged records are freed in steps of a sixteenth of the ring.
const APART: u64 = 16;
