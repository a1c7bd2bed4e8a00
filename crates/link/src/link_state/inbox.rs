// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has arrived and is not yet consumed.
//!
//! ```text
//!   consumed          handed out          received
//!   ├─────────────────┼───────────────────┤ position
//!   │ until it is committed │ for the application
//!
//!   in hand   one short message that was handed out and is alone ─ committed ─▶ gone
//!                                                                └ anything else ─▶ in the queue, as all others
//! ```
//!
//! It holds no more than the neighbour may have under way: what its ring and slab hold.
//!
//! # Invariants
//!
//! - While a message is in hand the queue is empty.

use bytes::{Buf, Bytes};
use partywall_reconcile::watermarks::OutOfOrder;
use partywall_reconcile::{AckedOffset, Arrival, Incoming, Position, RecordDigest, StreamId};

use super::log::{Entry, Log};
use super::queue::{Blank, Queue};
use crate::protocol::frame::Window;

/// One message.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) start: Position,
    pub(super) end: Position,
    pub(super) digest: RecordDigest,
    pub(super) bytes: Stored,
    /// Whether the bytes lay in the neighbour's slab.
    pub(super) in_slab: bool,
}

/// Where its bytes are.
#[derive(Debug)]
pub(super) enum Stored {
    /// In the log of the inbox.
    Logged(Entry),
    /// In memory of their own.
    Own(Bytes),
}

/// A message as it is kept. Flat: it is put together in place.
#[derive(Debug)]
struct Kept {
    start: Position,
    end: Position,
    digest: RecordDigest,
    in_slab: bool,
    /// If its bytes are not its own.
    entry: Entry,
    own: Option<Bytes>,
}

/// One that was handed out, whose bytes are in the log, and beside which there is none. Whoever reads, commits and reads the next does
/// not pay for a queue.
#[derive(Clone, Copy, Debug)]
struct Hand {
    start: Position,
    /// Where no message ends: there is none.
    end: Position,
    digest: RecordDigest,
    entry: Entry,
}

impl Hand {
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

/// The bytes of a message, to be taken along.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    /// They have to be copied.
    Short(&'a [u8]),
    /// They can be shared.
    Own(&'a Bytes),
}

/// A message for the application.
#[derive(Debug)]
pub(super) struct Next<'a> {
    pub(super) start: Position,
    pub(super) end: Position,
    pub(super) payload: Payload<'a>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Inbox {
    stream: Option<StreamId>,
    incoming: Incoming,
    hand: Hand,
    messages: Queue<Kept>,
    log: Log,
    /// How many of them the application has had.
    handed_out: usize,
    slab_bytes: u64,
    /// Bytes of the neighbour's slab that were consumed since it was last told.
    slab_unreported: u64,
}

/// More lies here unread than the neighbour said it could have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overfull;

impl Inbox {
    pub(super) fn new(acked_offset: Option<AckedOffset>) -> Self {
        let at = acked_offset.map_or(Position::START, |acked_offset| acked_offset.position);
        Self {
            stream: acked_offset.map(|acked_offset| acked_offset.stream),
            incoming: Incoming::at(at),
            hand: Hand::NONE,
            messages: Queue::new(),
            log: Log::default(),
            handed_out: 0,
            slab_bytes: 0,
            slab_unreported: 0,
        }
    }

    /// A stream goes on at a mark, and what is here is not known to be of it.
    pub(super) fn begin(&mut self, acked_offset: AckedOffset) {
        *self = Self::new(Some(acked_offset));
    }

    /// No stream any more.
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

    /// Bytes of the neighbour's slab that were consumed since it was last told.
    pub(super) const fn slab_unreported(&self) -> u64 {
        self.slab_unreported
    }

    /// The neighbour is told.
    pub(super) const fn slab_told(&mut self) {
        self.slab_unreported = 0;
    }

    /// Where short messages are copied to.
    pub(super) const fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Whether the application has had all there is.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        self.handed_out == self.messages.len()
    }

    /// Takes the place of a record. `Known`: what it carries was here before.
    #[inline]
    pub(super) fn arrive(&mut self, at: Position, footprint: u64) -> Result<Arrival, OutOfOrder> {
        self.incoming.arrive(at, footprint)
    }

    /// Whether nothing is here, so that the next message may be [handed out](Self::hand_out) as it comes.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.hand.is_none()
    }

    /// Hands out a message that `arrive` took for the next, that is in the log, and alone.
    #[inline(always)]
    pub(super) fn hand_out(
        &mut self,
        start: Position,
        end: Position,
        digest: RecordDigest,
        entry: Entry,
    ) -> &[u8] {
        debug_assert!(self.is_empty(), "a message in hand is alone");
        self.hand = Hand { start, end, digest, entry };
        self.log.get(entry)
    }

    /// The mark behind the message in hand.
    #[inline(always)]
    pub(super) fn in_hand(&self) -> Option<AckedOffset> {
        let Hand { end, digest, .. } = self.hand;
        let stream = self.stream.filter(|_| !self.hand.is_none())?;
        Some(AckedOffset { stream, position: end, digest })
    }

    /// What is in hand is one of several from here on.
    #[inline]
    fn put_down(&mut self) {
        if !self.hand.is_none() {
            self.put_down_one();
        }
    }

    #[inline(never)]
    fn put_down_one(&mut self) {
        let Hand { start, end, digest, entry } = std::mem::replace(&mut self.hand, Hand::NONE);
        self.push_logged(start, end, digest, entry);
        self.handed_out = 1;
    }

    /// Keeps a message that `arrive` took for the next.
    pub(super) fn keep(&mut self, message: Arrived, window: &Window) -> Result<(), Overfull> {
        self.put_down();
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
        *place = Kept { start, end, digest, in_slab, entry, own };
        Ok(())
    }

    /// The same, of a message that is in the log.
    #[inline(always)]
    pub(super) fn keep_logged(
        &mut self,
        start: Position,
        end: Position,
        digest: RecordDigest,
        entry: Entry,
        window: &Window,
    ) -> Result<(), Overfull> {
        self.put_down();
        self.check(window)?;
        self.push_logged(start, end, digest, entry);
        Ok(())
    }

    #[inline(always)]
    fn push_logged(&mut self, start: Position, end: Position, digest: RecordDigest, entry: Entry) {
        // Blank, and so neither of a slab nor with bytes of its own.
        let place = self.messages.push_back();
        (place.start, place.end, place.digest, place.entry) = (start, end, digest, entry);
    }

    #[inline]
    fn check(&self, window: &Window) -> Result<(), Overfull> {
        let unread = self.received().since(self.consumed());
        let is_within = unread <= window.ring_bytes && self.slab_bytes <= window.slab_bytes;
        if is_within { Ok(()) } else { Err(Overfull) }
    }

    /// The next message that the application has not had.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Next<'_>> {
        let Kept { start, end, entry, own, .. } = self.messages.get(self.handed_out)?;
        self.handed_out += 1;
        let payload = match own {
            None => Payload::Short(self.log.get(*entry)),
            Some(bytes) => Payload::Own(bytes),
        };
        Some(Next { start: *start, end: *end, payload })
    }

    /// What was handed out is handed out again.
    pub(super) fn rewind(&mut self) {
        self.put_down();
        self.handed_out = 0;
    }

    /// What was handed out last is handed out again.
    pub(super) fn take_back(&mut self) {
        self.put_down();
        self.handed_out = self.handed_out.saturating_sub(1);
    }

    /// The proof of the message that ends at `end`, if the application has had it and it is not consumed.
    #[inline(always)]
    pub(super) fn digest_at(&self, stream: StreamId, end: Position) -> Option<RecordDigest> {
        if self.stream != Some(stream) {
            return None;
        }
        if self.hand.end == end && !self.hand.is_none() {
            return Some(self.hand.digest);
        }
        self.digest_of_several(end)
    }

    #[inline(never)]
    fn digest_of_several(&self, end: Position) -> Option<RecordDigest> {
        // Usually the first, or the last.
        let index = match self.messages.front() {
            Some(first) if first.end == end => (self.handed_out > 0).then_some(0)?,
            _ => {
                let handed = self.messages.first(self.handed_out);
                handed.iter().rposition(|message| message.end == end)?
            }
        };
        Some(self.messages.get(index)?.digest)
    }

    /// The mark behind the message that was handed out last.
    pub(super) fn last_handed_out(&mut self) -> Option<AckedOffset> {
        self.put_down();
        let last = self.messages.get(self.handed_out.checked_sub(1)?)?;
        Some(AckedOffset { stream: self.stream?, position: last.end, digest: last.digest })
    }

    /// Consumes up to a mark whose proof [`digest_at`](Self::digest_at) gave.
    #[inline(always)]
    pub(super) fn consume(&mut self, acked_offset: AckedOffset) {
        if self.incoming.consume(acked_offset.position).is_err() {
            return;
        }
        if self.hand.end == acked_offset.position && !self.hand.is_none() {
            self.hand = Hand::NONE;
            return self.log.clear();
        }
        self.consume_of_several(acked_offset.position);
    }

    #[inline(never)]
    fn consume_of_several(&mut self, position: Position) {
        while let Some(first) = self.messages.front() {
            if first.end > position {
                break;
            }
            if first.in_slab {
                let bytes = first.own.as_ref().map_or(0, |bytes| bytes.len() as u64);
                self.slab_bytes = self.slab_bytes.saturating_sub(bytes);
                self.slab_unreported = self.slab_unreported.saturating_add(bytes);
            }
            let is_last = self.messages.len() == 1;
            if first.own.is_none() && !is_last {
                self.log.give_up(first.entry);
            }
            self.messages.pop_front();
            self.handed_out = self.handed_out.saturating_sub(1);
        }
        if self.messages.is_empty() {
            self.log.clear();
        }
    }
}

impl Blank for Kept {
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
    /// What lies there behind the first `count` bytes.
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
    /// Bytes that stay, whatever becomes of the link.
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
