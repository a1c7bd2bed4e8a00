// SPDX-License-Identifier: MIT OR Apache-2.0
//! The inbox of one end of a link: the messages that have arrived, and that the application has not
//! acknowledged.
//!
//! ```text
//!   consumed             delivered         received
//!   ├────────────────────┼─────────────────┤ position
//!   │ to be acknowledged │ to be delivered │
//!
//!   direct      one short message that was delivered while the queue was empty
//!                ├─ acknowledged next     ──▶ dropped
//!                └─ something else is next ─▶ moved to the queue, where all other messages are
//! ```
//!
//! The inbox holds at most as many bytes as the peer's window.
//!
//! The inbox also takes records from the bytes that were read from a socket. A record there:
//!
//! ```text
//!   word0 bit 0 clear   control frame    header, body
//!   word0 bit 0 set     record           header, payload (prefix, message)
//!                       BLOB             header, payload (prefix, place), then its bytes
//!                       compact          header, message
//!                       PAD              header
//! ```
//!
//! # Invariants
//!
//! - While there is a direct message (one that was delivered without the queue), the queue is
//!   empty.
//! - A record is taken only when it has arrived completely, and used only after it was checked.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use partywall_layout::link::record::{self, Ack, Body, LinkRecord, RecordFault};
use partywall_layout::record_ring::{self, HEADER_BYTES, Kind, RingSize};
use partywall_layout::seeded_fault;
use partywall_reconcile::{
    AckedOffset, Arrival, Incoming, OutOfOrder, Position, RecordDigest, StreamId,
};

use super::end::{End, Violation};
use crate::protocol::frame::Window;

/// A message that has arrived, as the caller passes it to [`Inbox::keep`], which adds it to the
/// queue.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) start: Position,
    pub(super) end: Position,
    pub(super) digest: RecordDigest,
    pub(super) bytes: Stored,
    /// Whether the bytes of the message lay in the peer's slab, so that they count against its
    /// window.
    pub(super) in_slab: bool,
}

#[derive(Debug)]
pub(super) enum Stored {
    /// The bytes are in the inbox's log.
    Logged(Entry),
    /// The bytes have a memory allocation of their own, because the message is long.
    Own(Bytes),
}

/// A message in the queue of the inbox. The fields are not nested, because they are written one by
/// one into their place in the queue.
#[derive(Debug)]
struct Queued {
    start: Position,
    end: Position,
    digest: RecordDigest,
    in_slab: bool,
    /// The place of the message's bytes in the inbox's log, unless `own` contains the bytes.
    entry: Entry,
    own: Option<Bytes>,
}

/// A delivered message whose bytes are in the inbox's log, while the queue is empty.
///
/// A receiver that acknowledges each message before it reads the next thus never uses the queue.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    start: Position,
    /// Position at which the message's record ends. Position 0 means that there is no such message:
    /// only the start of a stream is there, and never the end of a record.
    end: Position,
    digest: RecordDigest,
    entry: Entry,
}

impl InFlight {
    const NONE: Self = Self {
        start: Position::START,
        end: Position::START,
        digest: RecordDigest::START,
        entry: Entry::NONE,
    };

    #[inline]
    fn is_none(&self) -> bool {
        self.end == Position::START
    }
}

/// The bytes of a message that is delivered to the application.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    /// Bytes in memory that the link uses again, so they have to be copied.
    Short(&'a [u8]),
    /// Bytes in memory of their own, so they can be shared.
    Own(&'a Bytes),
}

#[derive(Debug)]
pub(super) struct Next<'a> {
    pub(super) start: Position,
    pub(super) end: Position,
    pub(super) payload: Payload<'a>,
}

/// The result of taking the record at the front of the bytes that were read from a socket.
#[derive(Debug)]
pub(super) enum Taken {
    /// The record is incomplete: it has this length in bytes once it has arrived.
    Incomplete(usize),
    /// The record has no message to keep: it is a PAD, or had arrived before.
    Dropped,
    /// The record's message is now in the inbox. The fields are the position at which the record
    /// begins, and the acknowledgement that it carries.
    Message(Position, Ack),
}

/// The messages of one received stream, between their arrival and their acknowledgement by the
/// application.
#[derive(Debug)]
pub(super) struct Inbox {
    stream: Option<StreamId>,
    incoming: Incoming,
    in_flight: InFlight,
    messages: Queue<Queued>,
    log: Log,
    /// Number of messages, from the front of the queue, that were already delivered to the
    /// application.
    delivered: usize,
    slab_bytes: u64,
    /// Number of bytes of the peer's slab that were consumed since this end last sent its acked
    /// offset.
    slab_unacked: u64,
}

impl Inbox {
    pub(super) fn new(acked_offset: Option<AckedOffset>) -> Self {
        let at = acked_offset.map_or(Position::START, |acked_offset| acked_offset.position);
        Self {
            stream: acked_offset.map(|acked_offset| acked_offset.stream),
            incoming: Incoming::at(at),
            in_flight: InFlight::NONE,
            messages: Queue::new(),
            log: Log::default(),
            delivered: 0,
            slab_bytes: 0,
            slab_unacked: 0,
        }
    }

    /// Begins to receive a stream after `acked_offset`. All messages in the inbox are dropped,
    /// because they may belong to another stream.
    pub(super) fn begin(&mut self, acked_offset: AckedOffset) {
        *self = Self::new(Some(acked_offset));
    }

    /// Drops all messages in the inbox, because no stream is received any more.
    pub(super) fn forget(&mut self) {
        *self = Self::new(None);
    }

    pub(super) fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    #[inline]
    pub(super) fn stream(&self) -> Option<StreamId> {
        self.stream
    }

    #[inline]
    pub(super) fn consumed(&self) -> Position {
        self.incoming.consumed()
    }

    #[inline]
    pub(super) fn received(&self) -> Position {
        self.incoming.received()
    }

    /// Number of bytes of the peer's slab that were consumed since the peer was last sent this
    /// end's acked offset. The peer cannot reuse these bytes yet.
    pub(super) const fn slab_unacked(&self) -> u64 {
        self.slab_unacked
    }

    /// Sets the number that [`slab_unacked`](Self::slab_unacked) returns to 0, because this end's
    /// acked offset was sent to the peer, or the peer can read that offset.
    pub(super) const fn slab_acked(&mut self) {
        self.slab_unacked = 0;
    }

    pub(super) const fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Whether every message in the inbox was delivered to the application.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        self.delivered == self.messages.len()
    }

    /// Counts the record at position `at` as received. The record must begin where the received
    /// records end.
    ///
    /// # Errors
    /// Fails with a violation if the record does not begin there.
    #[inline]
    pub(super) fn arrive_next(&mut self, at: Position, footprint: u64) -> Result<(), End> {
        match self.arrive(at, footprint) {
            Ok(_) => Ok(()),
            Err(_) => Err(End::violation(Violation::OutOfOrder(at.0))),
        }
    }

    /// Counts the record at position `at` as received. The result is `Known` if the record had
    /// already arrived, as when a new connection repeats records.
    #[inline]
    pub(super) fn arrive(&mut self, at: Position, footprint: u64) -> Result<Arrival, OutOfOrder> {
        self.incoming.arrive(at, footprint)
    }

    /// Counts every record up to `position` as arrived and acknowledged, while the inbox holds no
    /// message. The fast path has received these records.
    pub(super) fn passed(&mut self, position: Position) {
        debug_assert!(self.is_empty(), "messages are consumed in order");
        let received = self.received();
        let arrived = self.incoming.arrive(received, position.since(received));
        let consumed = self.incoming.consume(position);
        debug_assert!(arrived.is_ok() && consumed.is_ok(), "positions only rise");
    }

    /// Takes the record at the front of `input`, the bytes read from a socket; `first` is the
    /// record's first word. `window` has the sizes of the peer's ring and slab.
    ///
    /// # Errors
    /// Fails if the peer broke a rule: the connection then has to be closed, and nothing of the
    /// record is kept.
    pub(super) fn take_record(
        &mut self,
        input: &mut BytesMut,
        window: &Window,
        first: u64,
    ) -> Result<Taken, End> {
        let at = record_ring::Position(first & !POSITION_LOW);
        let size = RingSize::new(window.ring_bytes);
        let (Some(size), Some(stream)) = (size, self.stream) else {
            return Err(End::violation(Violation::OutOfPlace("a record")));
        };
        let tag = record::tag(stream.0.get());
        let checked = match LinkRecord::check(at, tag, size, input) {
            Err(RecordFault::Cut) => return Ok(Taken::Incomplete(needed(input))),
            Err(fault) => return Err(End::violation(fault)),
            // The check of a record returns `None` only for a control frame: bit 0 of its first
            // word is clear. The caller has found the bit set, so this case never occurs.
            Ok(None) => return Err(End::violation(Violation::OutOfPlace("nothing"))),
            Ok(Some(checked)) => checked,
        };
        let record = as_usize(checked.wire_bytes());
        let (slab, crc) = match checked.body {
            Body::Blob { length, .. } if length > window.slab_bytes => {
                return Err(End::violation(Violation::Overfull));
            }
            Body::Blob { length, crc, .. } => (as_usize(length), Some(crc)),
            _ => (0, None),
        };
        if input.len() < record + slab {
            return Ok(Taken::Incomplete(record + slab));
        }
        if crc.is_some_and(|crc| crc != record::blob_crc(&input[record..record + slab])) {
            return Err(End::violation(Violation::BlobCrc(at.0)));
        }
        let (header, digest, ack) = (checked.header, checked.digest, checked.ack);
        let start = Position(at.0);
        let arrived = self.arrive(start, header.footprint());
        let arrived = arrived.map_err(|_| End::violation(Violation::OutOfOrder(at.0)))?;
        let is_known = arrived == Arrival::Known && !seeded_fault("link_known_taken_again");
        if header.kind == Kind::Pad || is_known {
            input.advance(record + slab);
            return Ok(Taken::Dropped);
        }
        let end = self.log.end();
        let message = Arrived {
            start,
            end: Position(at.0 + header.footprint()),
            digest: RecordDigest(digest),
            bytes: self.store(input, header.kind, record, slab),
            in_slab: slab > 0,
        };
        if let Err(end_of_connection) = self.keep(message, window) {
            self.log.cut(end);
            return Err(end_of_connection);
        }
        Ok(Taken::Message(start, ack))
    }

    /// Takes a record of `record` bytes, and the `slab` bytes of its message that follow it, out of
    /// `input`, and stores the bytes of its message.
    fn store(&mut self, input: &mut BytesMut, kind: Kind, record: usize, slab: usize) -> Stored {
        let whole = record + slab;
        let before = if slab > 0 { record } else { as_usize(record::body_offset(kind)) };
        // A message from the peer's slab gets a memory allocation of its own, however short: only
        // for these messages the inbox counts the bytes of the slab.
        if whole <= LOGGED_MAX as usize && slab == 0 {
            let entry = self.log.append(|room| {
                room.extend_from_slice(&input[before..whole]);
            });
            input.advance(whole);
            return Stored::Logged(entry);
        }
        let mut bytes = input.split_to(whole);
        bytes.advance(before);
        Stored::Own(bytes.freeze())
    }

    /// Whether the inbox holds no message, so that the next message may be
    /// [delivered](Self::deliver) without the queue when it arrives.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.in_flight.is_none()
    }

    /// Delivers a message whose bytes are in the inbox's log, without the queue; the inbox is
    /// empty. The caller has already counted the message's record as received.
    #[inline(always)]
    pub(super) fn deliver(
        &mut self,
        start: Position,
        end: Position,
        digest: RecordDigest,
        entry: Entry,
    ) -> &[u8] {
        debug_assert!(self.is_empty(), "a message in flight is alone");
        self.in_flight = InFlight { start, end, digest, entry };
        self.log.get(entry)
    }

    /// The position and digest by which the message that was delivered without the queue is
    /// acknowledged; `None` if there is no such message.
    #[inline(always)]
    pub(super) fn in_flight(&self) -> Option<AckedOffset> {
        let InFlight { end, digest, .. } = self.in_flight;
        let stream = self.stream.filter(|_| !self.in_flight.is_none())?;
        Some(AckedOffset { stream, position: end, digest })
    }

    /// Moves the message that was delivered without the queue, if there is one, into the inbox's
    /// queue.
    #[inline]
    fn queue_in_flight(&mut self) {
        if !self.in_flight.is_none() {
            self.queue_the_one_in_flight();
        }
    }

    #[inline(never)]
    fn queue_the_one_in_flight(&mut self) {
        let InFlight { start, end, digest, entry } =
            std::mem::replace(&mut self.in_flight, InFlight::NONE);
        self.push_logged(start, end, digest, entry);
        self.delivered = 1;
    }

    /// Adds a message that has arrived to the inbox's queue. The caller has already counted the
    /// message's record as received.
    ///
    /// # Errors
    /// Fails with a violation if the inbox would hold more than the peer's `window`.
    pub(super) fn keep(&mut self, message: Arrived, window: &Window) -> Result<(), End> {
        self.queue_in_flight();
        if message.in_slab {
            self.slab_bytes = self.slab_bytes.saturating_add(message.bytes.len() as u64);
        }
        self.check(window)?;
        let Arrived { start, end, digest, bytes, in_slab } = message;
        let (entry, own) = match bytes {
            Stored::Logged(entry) => (entry, None),
            Stored::Own(bytes) => (Entry::NONE, Some(bytes)),
        };
        let place = self.messages.push_back();
        *place = Queued { start, end, digest, in_slab, entry, own };
        Ok(())
    }

    /// Adds a message, whose bytes are in the inbox's log, to the queue. The caller has counted the
    /// message's record as received.
    ///
    /// # Errors
    /// [`End`] lists the reasons.
    #[inline(always)]
    pub(super) fn keep_logged(
        &mut self,
        start: Position,
        end: Position,
        digest: RecordDigest,
        entry: Entry,
        window: &Window,
    ) -> Result<(), End> {
        self.queue_in_flight();
        self.check(window)?;
        self.push_logged(start, end, digest, entry);
        Ok(())
    }

    #[inline(always)]
    fn push_logged(&mut self, start: Position, end: Position, digest: RecordDigest, entry: Entry) {
        // A new place of the inbox's queue is blank: its fields `in_slab` and `own` already have
        // the values of a message whose bytes are in the inbox's log.
        let place = self.messages.push_back();
        (place.start, place.end, place.digest, place.entry) = (start, end, digest, entry);
    }

    #[inline]
    fn check(&self, window: &Window) -> Result<(), End> {
        let unread = self.received().since(self.consumed());
        let is_within = unread <= window.ring_bytes && self.slab_bytes <= window.slab_bytes;
        if is_within { Ok(()) } else { Err(overfull()) }
    }

    /// Takes the next message that was not delivered; from now on this message counts as delivered.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Next<'_>> {
        let Queued { start, end, entry, own, .. } = self.messages.get(self.delivered)?;
        self.delivered += 1;
        let payload = match own {
            None => Payload::Short(self.log.get(*entry)),
            Some(bytes) => Payload::Own(bytes),
        };
        Some(Next { start: *start, end: *end, payload })
    }

    /// Makes the inbox deliver again every message that it still holds.
    pub(super) fn rewind(&mut self) {
        self.queue_in_flight();
        self.delivered = 0;
    }

    /// Makes the inbox deliver the last delivered message again, as the next one.
    pub(super) fn undeliver(&mut self) {
        self.queue_in_flight();
        self.delivered = self.delivered.saturating_sub(1);
    }

    /// The digest of the message whose record ends at `end`, if that message was delivered and is
    /// not acknowledged.
    #[inline(always)]
    pub(super) fn digest_at(&self, stream: StreamId, end: Position) -> Option<RecordDigest> {
        if self.stream != Some(stream) {
            return None;
        }
        if self.in_flight.end == end && !self.in_flight.is_none() {
            return Some(self.in_flight.digest);
        }
        self.digest_in_queue(end)
    }

    #[inline(never)]
    fn digest_in_queue(&self, end: Position) -> Option<RecordDigest> {
        // The caller usually looks for the message at the front of the queue, or for the message
        // that was delivered last. So these two places are tried first.
        let index = match self.messages.front() {
            Some(first) if first.end == end => (self.delivered > 0).then_some(0)?,
            _ => {
                let delivered = self.messages.first(self.delivered);
                delivered.iter().rposition(|message| message.end == end)?
            }
        };
        Some(self.messages.get(index)?.digest)
    }

    /// The position and digest by which the message delivered last is acknowledged; `None` if every
    /// delivered message is already acknowledged.
    pub(super) fn last_delivered(&mut self) -> Option<AckedOffset> {
        self.queue_in_flight();
        let last = self.messages.get(self.delivered.checked_sub(1)?)?;
        Some(AckedOffset { stream: self.stream?, position: last.end, digest: last.digest })
    }

    /// Drops all messages up to `acked_offset`, because they are acknowledged. The caller must have
    /// obtained the digest in `acked_offset` from the inbox, for example from
    /// [`digest_at`](Self::digest_at).
    #[inline(always)]
    pub(super) fn consume(&mut self, acked_offset: AckedOffset) {
        if self.incoming.consume(acked_offset.position).is_err() {
            return;
        }
        if self.in_flight.end == acked_offset.position && !self.in_flight.is_none() {
            self.in_flight = InFlight::NONE;
            return self.log.clear();
        }
        self.consume_in_queue(acked_offset.position);
    }

    #[inline(never)]
    fn consume_in_queue(&mut self, position: Position) {
        while let Some(first) = self.messages.front() {
            if first.end > position {
                break;
            }
            if first.in_slab {
                let bytes = first.own.as_ref().map_or(0, |bytes| bytes.len() as u64);
                self.slab_bytes = self.slab_bytes.saturating_sub(bytes);
                self.slab_unacked = self.slab_unacked.saturating_add(bytes);
            }
            let is_last = self.messages.len() == 1;
            if first.own.is_none() && !is_last {
                self.log.give_up(first.entry);
            }
            self.messages.pop_front();
            self.delivered = self.delivered.saturating_sub(1);
        }
        if self.messages.is_empty() {
            self.log.clear();
        }
    }
}

#[cold]
fn overfull() -> End {
    End::violation(Violation::Overfull)
}

impl Blank for Queued {
    fn blank() -> Self {
        let (start, digest, entry) = (Position::START, RecordDigest::START, Entry::NONE);
        Self { start, end: start, digest, in_slab: false, entry, own: None }
    }

    #[inline]
    fn clear(&mut self) {
        self.in_slab = false;
        if self.own.is_some() {
            self.own = None;
        }
    }
}

impl Stored {
    /// The bytes of the message without the first `count` bytes, which may be a record's header.
    #[inline]
    pub(super) fn behind(self, count: usize) -> Self {
        match self {
            Self::Logged(entry) => Self::Logged(entry.behind(count)),
            Self::Own(mut bytes) => {
                bytes.advance(count.min(bytes.len()));
                Self::Own(bytes)
            }
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Logged(entry) => entry.len(),
            Self::Own(bytes) => bytes.len(),
        }
    }
}

impl Payload<'_> {
    /// The bytes of the message in memory that outlives the link; a short message is copied.
    pub(crate) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Short(bytes) => Bytes::copy_from_slice(bytes),
            Self::Own(bytes) => Bytes::clone(bytes),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Short(bytes) => bytes.len(),
            Self::Own(bytes) => bytes.len(),
        }
    }
}

/// The bytes of received short messages that are not acknowledged, one after the other in one
/// allocation.
///
/// ```text
///   begin            head                                 end
///   ├────────────────┼──────────────┬──────────┬──────────┤ offset, rising for ever
///   │ unused         │ message      │ message  │ message  │
///   └ the unused part is given back when it is the larger one, or when no message is kept
/// ```
///
/// A message that is acknowledged before the next one arrives costs a copy, but no allocation and
/// no reference count.
#[derive(Debug, Default)]
pub(super) struct Log {
    bytes: Vec<u8>,
    begin: u64,
    head: u64,
}

/// The place of one message's bytes in the inbox's log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    at: u64,
    len: usize,
}

impl Entry {
    /// The entry of a message that is not in the inbox's log: its bytes have an allocation of their
    /// own.
    const NONE: Self = Self { at: 0, len: 0 };

    const fn len(self) -> usize {
        self.len
    }

    /// The place in the inbox's log of the rest of this message, after its first `bytes` bytes.
    pub(super) const fn behind(self, bytes: usize) -> Self {
        let bytes = if bytes > self.len { self.len } else { bytes };
        Self { at: self.at + bytes as u64, len: self.len - bytes }
    }
}

impl Log {
    /// Calls `write` to append bytes to the inbox's log, and returns the place of these bytes.
    /// `write` must only append.
    #[inline(always)]
    pub(super) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Entry {
        let start = self.bytes.len();
        write(&mut self.bytes);
        Entry { at: self.begin + start as u64, len: self.bytes.len() - start }
    }

    /// The memory of the inbox's log, to which the caller may append a message.
    /// [`since`](Self::since) then returns the place of that message in the log.
    #[inline(always)]
    pub(super) const fn room(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The place of the bytes that were appended to the inbox's log after it [ended](Self::end) at
    /// the offset `end`.
    #[inline(always)]
    pub(super) fn since(&self, end: u64) -> Entry {
        Entry { at: end, len: as_usize(self.end() - end) }
    }

    /// The bytes of the message whose place in the inbox's log is `entry`. The log must not have
    /// released them yet.
    #[inline]
    pub(super) fn get(&self, entry: Entry) -> &[u8] {
        self.range(entry).and_then(|range| self.bytes.get(range)).unwrap_or_default()
    }

    /// The offset at which the inbox's log ends, and the next message will lie.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// Drops the bytes that were appended to the inbox's log after it [ended](Self::end) at the
    /// offset `end`.
    pub(super) fn cut(&mut self, end: u64) {
        let kept = end.saturating_sub(self.begin);
        self.bytes.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
    }

    /// Releases, in the inbox's log, the bytes of the message at the place `entry` and of all
    /// earlier messages.
    #[inline]
    fn give_up(&mut self, entry: Entry) {
        self.head = entry.at + entry.len as u64;
        let unused = usize::try_from(self.head - self.begin).unwrap_or(usize::MAX);
        if unused >= UNUSED_MIN && unused >= self.bytes.len() / 2 {
            self.bytes.drain(..unused.min(self.bytes.len()));
            self.begin = self.head;
        }
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.begin += self.bytes.len() as u64;
        self.head = self.begin;
        self.bytes.clear();
        if self.bytes.capacity() > CAPACITY_KEPT {
            self.bytes = Vec::new();
        }
    }

    fn range(&self, entry: Entry) -> Option<Range<usize>> {
        let start = usize::try_from(entry.at.checked_sub(self.begin)?).ok()?;
        Some(start..start.checked_add(entry.len)?)
    }
}

/// The queue of the inbox. Its items are filled in place, and it is empty most of the time.
///
/// ```text
///   0        gone                    end        items.len()
///   ├────────┼───────────────────────┼──────────┤
///   │ blank  │ front …          back │ blank    │      emptied: gone and end are 0 again
/// ```
///
/// `VecDeque`, the usual choice, takes an item by value, through memory. A processor that reads at
/// once what it has just written in several pieces waits until all pieces are in the cache. That
/// took 10 % of the time of receiving a short message.
#[derive(Debug)]
struct Queue<T> {
    items: Vec<T>,
    gone: usize,
    end: usize,
}

/// An item of the inbox's queue that can be blank, so that it may stand in an unused place.
trait Blank {
    fn blank() -> Self;

    /// Makes an item of the inbox's queue blank, and frees the memory that the item owns.
    fn clear(&mut self);
}

impl<T: Blank> Queue<T> {
    const fn new() -> Self {
        Self { items: Vec::new(), gone: 0, end: 0 }
    }

    #[inline]
    const fn len(&self) -> usize {
        self.end - self.gone
    }

    #[inline]
    const fn is_empty(&self) -> bool {
        self.end == self.gone
    }

    #[inline(always)]
    fn push_back(&mut self) -> &mut T {
        if self.end == self.items.len() {
            self.grow();
        }
        self.end += 1;
        &mut self.items[self.end - 1]
    }

    #[cold]
    fn grow(&mut self) {
        self.items.push(T::blank());
    }

    #[inline]
    fn front(&self) -> Option<&T> {
        self.get(0)
    }

    #[inline]
    fn get(&self, index: usize) -> Option<&T> {
        self.items[..self.end].get(self.gone + index)
    }

    fn first(&self, count: usize) -> &[T] {
        &self.items[self.gone..self.end.min(self.gone + count)]
    }

    #[inline]
    fn pop_front(&mut self) {
        if self.is_empty() {
            return;
        }
        self.items[self.gone].clear();
        self.gone += 1;
        if self.is_empty() {
            (self.gone, self.end) = (0, 0);
            if self.items.len() > PLACES_KEPT {
                self.items = Vec::new();
            }
        } else if self.gone >= BLANK_MIN && self.gone >= self.end / 2 {
            self.items.drain(..self.gone);
            self.end -= self.gone;
            self.gone = 0;
        }
    }
}

/// The first two words of the frame or record at the front of `input`; `None` if `input` is
/// shorter.
pub(super) fn header_words(input: &[u8]) -> Option<(u64, u64)> {
    let (first, rest) = input.split_first_chunk::<8>()?;
    let (second, _) = rest.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*first), u64::from_le_bytes(*second)))
}

/// The length in bytes of the record at the front of `input`. While its header is incomplete, the
/// length of the header, because the record's length is not known yet.
fn needed(input: &[u8]) -> usize {
    let len = header_words(input).map_or(0, |(_, second)| second & 0xffff_ffff);
    HEADER + as_usize(len)
}

pub(super) fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "16")]
pub(super) const HEADER: usize = HEADER_BYTES as usize;
/// The low six bits of a record's first word, which hold the record's kind and the bit that marks
/// it as published; the other bits are the record's position.
const POSITION_LOW: u64 = 63;
/// Maximum length in bytes of a record that is copied into the inbox's log. A longer one gets an
/// allocation of its own, which can be shared with the application without a copy.
pub(super) const LOGGED_MAX: u32 = 1 << 10;
/// The inbox's log moves the messages to the front of its memory only if at least this number of
/// bytes there is unused, so that it moves rarely.
const UNUSED_MIN: usize = 16 << 10;
/// Maximum number of bytes of memory that the inbox's log keeps for later messages while it is
/// empty; memory beyond that is freed, so that an idle link stays small.
const CAPACITY_KEPT: usize = 4 << 10;
/// The inbox's queue moves its items to the front of its memory only if at least this number of
/// places at the front is blank, so that it moves rarely.
const BLANK_MIN: usize = 64;
/// Maximum number of messages for which the inbox's queue keeps memory when it becomes empty;
/// memory beyond that is freed.
const PLACES_KEPT: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::rc::Rc;

    fn bytes(number: u32) -> Vec<u8> {
        vec![number.to_le_bytes()[0]; number as usize * 37 % 300]
    }

    #[test]
    fn log_keeps_messages_and_does_not_grow() {
        let mut log = Log::default();
        let mut kept = VecDeque::new();
        for number in 0..50_000_u32 {
            let end = log.end();
            let entry = log.append(|log| log.extend_from_slice(&bytes(number)));
            if number % 7 == 3 {
                log.cut(end);
            } else {
                kept.push_back((number, entry));
            }
            // The inbox's log keeps at least one message in this test, so it is never cleared. It
            // gives bytes back only when unused bytes are the larger part.
            while kept.len() > 1 + number as usize % 90 {
                let (number, entry) = kept.pop_front().unwrap();
                assert_eq!(log.get(entry), bytes(number), "message {number}");
                log.give_up(entry);
            }
            assert!(log.bytes.len() < 2 * (UNUSED_MIN + 90 * 300), "{} bytes", log.bytes.len());
        }
        assert!(kept.iter().all(|(number, entry)| log.get(*entry) == bytes(*number)));
        log.clear();
        assert!(log.bytes.is_empty() && kept.iter().all(|(_, entry)| log.get(*entry).is_empty()));
    }

    #[test]
    fn log_entry_without_its_head_is_the_rest() {
        let mut log = Log::default();
        let entry = log.append(|log| log.extend_from_slice(b"headmessage"));
        assert_eq!(log.get(entry.behind(4)), b"message");
        assert_eq!(log.get(entry.behind(40)), b"");
        assert_eq!(entry.behind(4).len(), 7);
    }

    impl Blank for Option<Rc<u64>> {
        fn blank() -> Self {
            None
        }

        fn clear(&mut self) {
            *self = None;
        }
    }

    #[test]
    fn queue_behaves_as_a_deque_and_keeps_nothing() {
        let (mut queue, mut model) = (Queue::<Option<Rc<u64>>>::new(), VecDeque::new());
        let mut random = 1_u64;
        for number in 0..100_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
            // The probability of an append changes during the test, so that the queue grows,
            // shrinks and becomes empty in turns.
            if (random >> 33) % 100 < 35 + number / 1000 % 30 {
                let item = Rc::new(number);
                let place = queue.push_back();
                assert_eq!(*place, None);
                *place = Some(Rc::clone(&item));
                model.push_back(item);
            } else {
                queue.pop_front();
                if let Some(gone) = model.pop_front() {
                    assert_eq!(Rc::strong_count(&gone), 1, "still kept");
                }
            }
            assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(queue.front().cloned().flatten(), model.front().cloned());
            assert_eq!(queue.get(3).cloned().flatten(), model.get(3).cloned());
            assert_eq!(queue.first(5).len(), model.len().min(5));
        }
        while !queue.is_empty() {
            queue.pop_front();
        }
        assert!(queue.items.len() <= PLACES_KEPT);
    }

    #[test]
    fn queue_that_is_never_empty_does_not_grow() {
        let mut queue = Queue::<Option<Rc<u64>>>::new();
        for number in 0..10_000 {
            *queue.push_back() = Some(Rc::new(number));
            if queue.len() > 3 {
                queue.pop_front();
            }
            assert!(queue.items.len() <= 2 * BLANK_MIN + 8, "{}", queue.items.len());
        }
    }
}
