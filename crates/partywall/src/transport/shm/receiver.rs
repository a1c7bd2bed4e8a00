// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiver of the shared memory transport: takes records in order, and checks each before use.
//!
//! ```text
//!   DATA ──────────────▶ message, copied out of the ring (or borrowed in place)
//!   BLOB ──────────────▶ message, a view of the peer's memory (or a copy, if it is untrusted)
//!   FRAGMENT… LAST ────▶ message, assembled in private memory
//!   SEGMENT, …RETIRE ──▶ the peer's memory grows or shrinks; continue with the next record
//!   CLOSE_WRITE ───────▶ the direction has ended
//! ```
//!
//! After a hang-up of the peer, the receiver polls once more before it reports the end of the
//! direction, because every committed message is delivered. The receiver reports its position to
//! the peer every few records, and before it sleeps.

mod slow_path;

use super::segments::{Held, Segments};
use super::{SharedMemory, word};
use crate::error::{Closed, Fault};
use crate::message::Message;
use crate::transport::{Assembly, SpaceWaiter};
use partywall_layout::segment::receiving;
use partywall_layout::{RecordHeader, RingSize};
use partywall_ring::{Consumer, OwnMem, PeerMem, Sleeper};
use partywall_wait::{Pacer, ShortSleeps};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The receiving end of a connection over shared memory: reads records from the peer's ring.
#[derive(Debug)]
pub(crate) struct ShmReceiver {
    shm: Arc<SharedMemory>,
    /// The word of the fork guard, which the kernel clears in a forked child.
    fork_word: &'static AtomicU64,
    is_untrusted: bool,
    /// Whether this is the receiver of a session, whose records belong to streams.
    has_streams: bool,
    consumer: Consumer,
    /// Length of the longest message on which both sides agreed, in bytes.
    message_max: u64,
    /// The header of the current message, if that message is inline.
    current: Option<RecordHeader>,
    /// The current message, if it lies outside the ring.
    held: Option<Held>,
    message_use: MessageUse,
    /// The number of the stream to which the receiver's current message belongs.
    stream: u32,
    /// Number of records received since the receiver last waited. If the number is high, the
    /// receiver lags behind the sender, and prefetches the next records.
    records_since_wait: u32,
    counters: OwnMem,
    messages: u64,
    bytes: u64,
    /// The credit for messages of the other direction that the current message carried, in a
    /// session.
    credit: Option<u64>,
    assembly: Option<Assembly>,
    /// A private copy of the current inline message, if the peer is untrusted.
    copy: Vec<u8>,
    declared: Declared,
    /// Whether the peer hung up or died. After one more poll, which finds records committed before,
    /// the receiver reports the end of the direction.
    hung_up: bool,
    end: Option<Closed>,
    segments: Segments,
    sleeper: Sleeper,
    /// The sleeps of threads that park, which have no spinner.
    parked_sleeps: ShortSleeps,
    pacer: Pacer,
    /// Number of calls of `try_recv` that found no message. After every `EMPTY_POLLS_MAX` of them,
    /// the receiver checks whether the peer lives.
    empty_polls: u32,
    /// Whether a segment came or went, and the peer does not know yet that this side has read the
    /// record. The peer may wait for that before it sends another segment (SPEC 5.4).
    is_report_pending: bool,
}

/// Whether the caller still uses the receiver's current message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageUse {
    /// There is no current message, or the caller has not consumed it.
    Unconsumed,
    /// The message was returned as a view, so the next `find` consumes it.
    Viewed,
    /// The caller has consumed the message, which is inline. The next call that receives passes its
    /// record.
    Consumed,
}

/// The state that the receiver has declared to the peer in its word `asleep_records`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declared {
    /// The receiver has declared itself awake: its word `asleep_records` is 0.
    Awake,
    /// The receiver has declared itself asleep: its word `asleep_records` is a sleep epoch.
    Asleep,
    /// The receiver found the first message after its sleep, but its word `asleep_records` still
    /// declares it asleep.
    Woken,
}

pub(super) struct ShmReceiverParts {
    pub ring: PeerMem,
    pub ring_size: RingSize,
    pub consumed: OwnMem,
    pub asleep: OwnMem,
    pub counters: OwnMem,
    pub slab: PeerMem,
    pub region_bytes: u64,
}

impl ShmReceiver {
    pub(super) fn new(shm: Arc<SharedMemory>, parts: ShmReceiverParts) -> Self {
        let segments = Segments::new(&shm, parts.slab, parts.region_bytes);
        Self {
            fork_word: shm.connection_state.guard.word(),
            is_untrusted: shm.is_untrusted(),
            has_streams: false,
            consumer: Consumer::new(parts.ring, parts.ring_size, parts.consumed),
            message_max: shm.limits.message,
            current: None,
            held: None,
            message_use: MessageUse::Unconsumed,
            stream: 0,
            records_since_wait: 0,
            counters: parts.counters,
            messages: 0,
            bytes: 0,
            credit: None,
            assembly: None,
            copy: Vec::new(),
            declared: Declared::Awake,
            hung_up: false,
            end: None,
            segments,
            sleeper: Sleeper::new(parts.asleep),
            parked_sleeps: ShortSleeps::default(),
            pacer: Pacer::default(),
            empty_polls: 0,
            is_report_pending: false,
            shm,
        }
    }

    /// Makes the next message the current message, if it is inline and nothing else is to be done
    /// before it. Otherwise [`find`](Self::find) says what comes next. The result stays in
    /// registers, unlike that of `find`, which takes longer to pass in memory than a short message
    /// takes to read.
    #[inline(always)]
    pub(crate) fn find_inline(&mut self) -> bool {
        if !self.is_plain() {
            return false;
        }
        if self.message_use != MessageUse::Unconsumed {
            self.pass_used();
        }
        self.held.is_none() && self.show_inline()
    }

    /// Whether nothing is to be done before the next record is looked at, but to pass the current
    /// message.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.is_owner()
            && self.end.is_none()
            && self.assembly.is_none()
            && self.declared == Declared::Awake
    }

    /// Makes the next message the current message, if it has come and is inline. The receiver must
    /// be [plain](Self::is_plain), no block its current message, and a message that the caller had
    /// as a view or consumed must have been passed.
    #[inline(always)]
    pub(super) fn show_inline(&mut self) -> bool {
        debug_assert!(self.held.is_none() && self.message_use == MessageUse::Unconsumed);
        let Some(record) = self.consumer.peek_data() else { return false };
        if u64::from(record.len) > self.message_max {
            return false;
        }
        if self.is_untrusted {
            self.copy_untrusted_at(record.position, record.len, record.stream);
        }
        self.make_current(record);
        true
    }

    #[inline]
    pub(crate) fn current(&self) -> &[u8] {
        match (&self.current, &self.held) {
            (Some(_), _) if self.is_untrusted => &self.copy,
            (Some(record), _) => self.consumer.payload(record),
            (None, Some(held)) => held.as_slice(),
            (None, None) => &[],
        }
    }

    /// Returns the length of the current message in bytes.
    #[inline]
    pub(crate) fn current_len(&self) -> usize {
        match (&self.current, &self.held) {
            (Some(record), _) => record.len as usize,
            (None, Some(held)) => held.len(),
            (None, None) => 0,
        }
    }

    /// Appends the current message to `queue`, for the caller to consume it by
    /// [`done`](Self::done). An inline message is copied to its place in the queue at once.
    #[inline]
    pub(crate) fn append_to(&mut self, queue: &mut VecDeque<Message>) {
        match self.held.take() {
            Some(held) => queue.push_back(held.into_message()),
            None => Message::push_copied(queue, self.current()),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Message {
        if let Some(held) = self.held.take() {
            return held.into_message();
        }
        let message = Message::copied(self.current());
        self.done();
        message
    }

    #[inline]
    pub(crate) fn done(&mut self) {
        if self.held.is_some() {
            self.drop_held();
        }
        // A forked child must not write the parent's memory.
        if !self.is_owner() && self.shm.is_inherited() {
            return;
        }
        if let Some(record) = self.current.take() {
            self.records_since_wait = self.records_since_wait.saturating_add(1);
            self.count(u64::from(record.len));
            self.advance(&record);
        }
    }

    /// Consumes the current message. The record of an inline message is passed by the next call
    /// that receives: the caller may be about to answer the message, and the next call probably
    /// has to wait anyway (decision 0059). A record after which a report is due is passed at once.
    #[inline(always)]
    pub(crate) fn done_for_now(&mut self) {
        match &self.current {
            Some(record) if !self.consumer.is_report_due_after(record) => {
                self.message_use = MessageUse::Consumed;
            }
            _ => self.done_at_once(),
        }
    }

    /// [`done`](Self::done), out of line: few references are consumed so.
    #[inline(never)]
    fn done_at_once(&mut self) {
        self.done();
    }

    /// Fails in a forked child, or if the peer has broken a rule of the protocol.
    #[inline]
    fn check(&self) -> Result<(), Fault> {
        if self.is_owner() { Ok(()) } else { self.shm.check() }
    }

    /// Whether this process made the connection and no peer has broken a rule. `false` may also
    /// mean that only [`SharedMemory::check`] can tell.
    #[inline(always)]
    fn is_owner(&self) -> bool {
        #[cfg(shuttle)]
        super::switch_point();
        // ORDER: Relaxed for both loads: neither the word of the fork guard nor
        // `SharedMemory::owner` guards other memory.
        self.fork_word.load(Ordering::Relaxed) == self.shm.owner.load(Ordering::Relaxed)
    }

    /// Makes the inline message of `record` the receiver's current message. The message of an
    /// untrusted peer was copied before.
    #[inline(always)]
    pub(super) fn make_current(&mut self, record: RecordHeader) {
        self.stream = record.stream;
        self.credit = None;
        self.current = Some(record);
    }

    #[inline]
    fn count(&mut self, len: u64) {
        self.messages += 1;
        self.bytes += len;
        self.counters.store(MESSAGES, self.messages);
        self.counters.store(BYTES, self.bytes);
    }

    /// Consumes `record`. Once per several records, reports the receiver's position to the peer's
    /// producer.
    #[inline]
    fn advance(&mut self, record: &RecordHeader) {
        self.consumer.advance(record);
        if self.records_since_wait >= Pacer::RECORDS_BEHIND {
            self.consumer.prefetch(record.footprint().min(PREFETCH_BYTES_MAX));
        }
        if self.consumer.is_report_due() {
            self.report();
        }
    }
}

const MESSAGES: usize = word(receiving::MESSAGES * 8);
const BYTES: usize = word(receiving::BYTES * 8);
/// Most bytes of a record that the receiver prefetches; for longer records, the processor
/// prefetches the other bytes without being asked.
const PREFETCH_BYTES_MAX: u64 = 256;
