// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outgoing stream of one link, in its sender's own memory until the receiver has consumed it (SPEC 14).
//!
//! ```text
//!            base           acked                        tail     open batch
//!  ──────────┼──────────────┼────────────────────────────┼────────┼──────▶ position
//!   free     │ consumed     │ kept for the receiver      │ being  │ free
//!            └ trim_to ─────▶                              written  └ the slot at the tail begins with 0
//!
//!  mod.rs       append, publish, acknowledge, trim; a stream begins and ends
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
//! be a half of a record there, which nobody could tell from a damaged one. Behind the first slot nothing of the
//! former stream can come alive: each publish zeroes the next slot before.
//!
//! # Invariants
//!
//! - `base ≤ acked ≤ tail`; base and tail are where DATA or BLOB records end, or the start.
//! - What is below the tail and not below the base never changes, in the ring or in the slab.

mod blobs;
mod boundary;
mod found;
mod unsent;

use blobs::Blobs;
use boundary::Boundaries;
pub use boundary::Boundary;
pub use found::{Damage, Flaw};
use partywall_layout::link::LinkPrefix;
use partywall_layout::link::record::{self, Ack, BLOB_PAYLOAD_BYTES, LinkBlob, PREFIX_BYTES};
use partywall_layout::record::{HEADER_BYTES, Kind};
use partywall_layout::ring::{self, RingSize, footprint};
use partywall_layout::seeded_fault;
use partywall_reconcile::recovery::Prepared;
use partywall_reconcile::watermarks::AckUnfit;
use partywall_reconcile::{Mark, Position, Proof, StreamId};
use partywall_ring::{OwnMem, Producer};
use std::fmt;
pub use unsent::{Stuck, Unsent};
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
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// The first position that is kept.
    #[must_use]
    pub const fn base(&self) -> Position {
        self.boundaries.base().position
    }

    /// Up to where the receiver has consumed, as far as is known here.
    #[must_use]
    pub const fn acked(&self) -> Position {
        self.acked
    }

    /// Where the last record ends that was published.
    #[must_use]
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

    /// Whether a message of `len` bytes could be appended now.
    #[must_use]
    pub fn has_room(&mut self, len: usize) -> bool {
        self.place(len).is_ok()
    }

    /// Appends a message, given in parts, to the open batch; where its record ends. `ack` is how far this side has
    /// consumed the other direction as of this message.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn append(&mut self, parts: &[&[u8]], ack: Option<Mark>) -> Result<Position, Refused> {
        let len = parts.iter().map(|part| part.len()).sum();
        if len <= SHORT_MAX && len <= self.inline_max {
            return self.append_short(parts, len, ack);
        }
        let mut reservation = self.reserve(len)?;
        join(parts, reservation.bytes());
        Ok(reservation.commit(ack))
    }

    /// A short message is put together elsewhere and written at once: whoever waits for it looks at this line all the time, and would
    /// take it away between two stores.
    fn append_short(
        &mut self,
        parts: &[&[u8]],
        len: usize,
        ack: Option<Mark>,
    ) -> Result<Position, Refused> {
        let Place::Ring { payload } = self.place(len)? else { return Err(Refused::Full) };
        let begin = self.producer.next_position(payload);
        let mut gathered = [0; SHORT_MAX + as_usize(PREFIX_BYTES)];
        let (prefix, body) = gathered[..payload].split_at_mut(as_usize(PREFIX_BYTES));
        join(parts, body);
        let ack = ack.map_or(Ack::default(), ack_of);
        let sealed = LinkPrefix::sealed(begin, Kind::Data, self.tag, ack, 0, &[body]);
        prefix.copy_from_slice(sealed.as_bytes());
        let appended = self.producer.append(Kind::Data, self.tag, &gathered[..payload]);
        assert!(appended.is_ok(), "there was room when it was reserved");
        let position = Position(begin.0 + footprint(payload as u64));
        self.boundaries.append(Boundary { position, proof: Proof(sealed.crc.get()) }, false);
        Ok(position)
    }

    /// Room for a message of `len` bytes, to be written in place and then committed to the open batch. If it is
    /// dropped instead, nothing changes.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, Refused> {
        let place = self.place(len)?;
        Ok(Reservation { retained: self, len, place })
    }

    /// Makes the messages of the open batch exist, all at once.
    pub fn publish(&mut self) {
        self.producer.publish();
        self.boundaries.publish();
    }

    /// Prepares the room that the next messages will take, once the neighbour was told of the last. It saves the time of who waits
    /// for them, and costs some: nothing is done for a neighbour that is far behind.
    pub fn prepare_ahead(&mut self) {
        if self.tail().since(self.acked) <= IN_STEP_BYTES {
            self.producer.prepare_ahead();
        }
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
        let is_boundary = self.proof_at(base.position) == Some(base.proof);
        assert!(is_boundary && base.position <= self.acked, "only what was offered is trimmed");
        let is_accepted = self.producer.set_consumed(at(base.position));
        assert!(is_accepted.is_ok(), "a boundary lies between base and tail");
        self.boundaries.trim(base);
        self.blobs.trim(base.position);
    }

    /// What proves `position`; `None` if no record ends there that is kept, and it is not the base.
    #[must_use]
    pub fn proof_at(&self, position: Position) -> Option<Proof> {
        let known = self.boundaries.before(position)?;
        if known.position == position {
            return Some(known.proof);
        }
        let (mut next, mut proof) = (known.position, None);
        while next < position {
            let (header, bytes) = self.producer.kept(at(next))?;
            proof = prefix_of(header.kind, bytes).map(|prefix| Proof(prefix.crc.get()));
            next = Position(next.0 + header.footprint());
        }
        proof.filter(|_| next == position)
    }

    /// What the last record committed that says how far `stream`, of the other direction, was consumed: for
    /// [`recover`](partywall_reconcile::recovery::recover).
    #[must_use]
    pub fn prepared(&self, stream: StreamId) -> Option<Prepared> {
        let tag = record::tag(stream.0.get());
        let (mut next, mut last) = (self.base(), None);
        while next < self.tail() {
            let (header, bytes) = self.producer.kept(at(next))?;
            let ack = prefix_of(header.kind, bytes).map(|prefix| prefix.ack());
            if let Some(ack) = ack.filter(|ack| ack.tag == tag) {
                let (position, proof) = (Position(ack.position), Proof(ack.proof));
                last = Some(Prepared { mark: Mark { stream, position, proof }, reply_at: next });
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
            self.producer.clear_first();
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

    fn place(&mut self, len: usize) -> Result<Place, Refused> {
        let is_inline = len <= self.inline_max;
        if !is_inline && len as u64 > self.blobs.length_max() {
            return Err(Refused::TooLarge { len, max: self.message_max() });
        }
        let payload =
            as_usize(if is_inline { PREFIX_BYTES + len as u64 } else { BLOB_PAYLOAD_BYTES });
        let batch = self.producer.open_bytes() + footprint(payload as u64);
        if batch > self.producer.size().batch_max() {
            return Err(Refused::BatchFull);
        }
        if !self.producer.has_room(payload).unwrap_or(false) {
            return Err(Refused::Full);
        }
        if is_inline {
            return Ok(Place::Ring { payload });
        }
        let offset = self.blobs.place(len as u64).ok_or(Refused::Full)?;
        Ok(Place::Slab { offset })
    }
}

/// Room for a message.
#[derive(Debug)]
pub struct Reservation<'a> {
    retained: &'a mut Retained,
    len: usize,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Ring { payload: usize },
    Slab { offset: u64 },
}

impl Reservation<'_> {
    /// Where the message is to be written; holds anything before.
    #[must_use]
    pub fn bytes(&mut self) -> &mut [u8] {
        match self.place {
            Place::Slab { offset } => self.retained.slab.slice_mut(as_usize(offset), self.len),
            Place::Ring { payload } => match self.retained.producer.payload_ahead(payload) {
                Ok(payload) => &mut payload[as_usize(PREFIX_BYTES)..],
                Err(_) => &mut [], // not reached: there was room when it was reserved
            },
        }
    }

    /// Appends the message to the open batch; where its record ends.
    pub fn commit(self, ack: Option<Mark>) -> Position {
        let Self { retained, len, place } = self;
        let ack = ack.map_or(Ack::default(), ack_of);
        let (kind, payload, crc, blob) = match place {
            Place::Ring { payload } => (Kind::Data, payload, 0, None),
            Place::Slab { offset } => {
                let crc = record::blob_crc(retained.slab.slice(as_usize(offset), len));
                let blob = LinkBlob { offset: offset.into(), length: (len as u64).into() };
                (Kind::Blob, as_usize(BLOB_PAYLOAD_BYTES), crc, Some((offset, blob)))
            }
        };
        let (begin, tag) = (retained.producer.next_position(payload), retained.tag);
        let mut proof = Proof::START;
        let appended = retained.producer.append_with(kind, tag, payload, |payload| {
            let (prefix, body) = payload.split_at_mut(as_usize(PREFIX_BYTES));
            if let Some((_, blob)) = blob {
                body.copy_from_slice(blob.as_bytes());
            }
            let sealed = LinkPrefix::sealed(begin, kind, tag, ack, crc, &[body]);
            prefix.copy_from_slice(sealed.as_bytes());
            proof = Proof(sealed.crc.get());
        });
        assert!(appended.is_ok(), "there was room when it was reserved");
        let position = Position(begin.0 + footprint(payload as u64));
        if let Some((offset, _)) = blob {
            let is_put = retained.blobs.put(position, offset, len as u64);
            assert!(is_put, "there was room when it was reserved");
        }
        retained.boundaries.append(Boundary { position, proof }, blob.is_some());
        position
    }
}

/// Copies the parts one behind the other; the room is as long as all of them.
fn join(parts: &[&[u8]], mut room: &mut [u8]) {
    for part in parts {
        let (here, behind) = room.split_at_mut(part.len());
        here.copy_from_slice(part);
        room = behind;
    }
}

fn ack_of(mark: Mark) -> Ack {
    Ack { position: mark.position.0, proof: mark.proof.0, tag: record::tag(mark.stream.0.get()) }
}

/// The prefix of a record that was judged; `None` of a PAD.
fn prefix_of(kind: Kind, record: &[u8]) -> Option<LinkPrefix> {
    if kind == Kind::Pad {
        return None;
    }
    let payload = record.get(as_usize(HEADER_BYTES)..)?;
    LinkPrefix::read_from_prefix(payload).ok().map(|(prefix, _)| prefix)
}

/// The longest message that a ring takes.
fn inline_limit(size: RingSize) -> usize {
    as_usize(size.payload_max().saturating_sub(PREFIX_BYTES))
}

/// A neighbour that has consumed all but so much waits for the next message, or soon will.
const IN_STEP_BYTES: u64 = 1024;
/// Messages up to so many bytes are put together elsewhere.
const SHORT_MAX: usize = 104;

const fn at(position: Position) -> ring::Position {
    ring::Position(position.0)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the crate is for 64 bits, and it is within memory"
)]
const fn as_usize(value: u64) -> usize {
    value as usize
}
