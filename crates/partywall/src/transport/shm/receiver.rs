// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end of shared memory: takes records in order, and checks each before it is used.
//!
//! ```text
//!   DATA ──────────────▶ message, copied out of the ring (or borrowed in place)
//!   BLOB ──────────────▶ message, a view of the peer's memory (or a copy, if it is untrusted)
//!   FRAGMENT… LAST ────▶ message, assembled in private memory
//!   SEGMENT, …RETIRE ──▶ the peer's memory grows and shrinks; go on with the next record
//!   CLOSE_WRITE ───────▶ the end
//! ```
//!
//! After a hang-up the receiver polls once more, because everything that was committed is
//! delivered; then it is the end. It reports its position to the peer now and then, and before it
//! sleeps.

mod slow_path;

use super::segments::{Held, Segments};
use super::{SharedMemory, word};
use crate::error::{Closed, Fault};
use crate::message::Message;
use crate::transport::{Assembly, Found, SpaceWaiter, is_of_sessions};
use partywall_layout::record_ring::Kind;
use partywall_layout::segment::receiving;
use partywall_layout::{RecordHeader, RingSize, Violation};
use partywall_ring::{Consumer, OwnMem, PeerMem, Sleeper};
use partywall_wait::Pacer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The receiving end of a connection.
#[derive(Debug)]
pub(crate) struct ShmReceiver {
    shm: Arc<SharedMemory>,
    /// The word that the kernel clears in a forked child.
    fork_word: &'static AtomicU64,
    is_untrusted: bool,
    /// There are streams: this is the receiving end of a session.
    has_streams: bool,
    consumer: Consumer,
    /// The inline message that `find` found and `done` has not consumed yet.
    current: Option<RecordHeader>,
    /// A message that does not lie inline, found and not yet taken.
    held: Option<Held>,
    /// The stream of the current message.
    stream: u32,
    /// Messages received since the last wait.
    records_since_wait: u32,
    counters: OwnMem,
    messages: u64,
    bytes: u64,
    /// The credit that came with the current message.
    credit: Option<u64>,
    assembly: Option<Assembly>,
    /// A copy of the current message, if the peer is untrusted.
    copy: Vec<u8>,
    declared: Declared,
    /// The peer hung up or died: one more poll, then the end.
    hung_up: bool,
    end: Option<Closed>,
    segments: Segments,
    sleeper: Sleeper,
    pacer: Pacer,
    /// How often `try_recv` found nothing.
    empty_polls: u32,
}

/// State that this end declares in its word `asleep_records`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declared {
    /// The word is 0.
    Awake,
    /// The word is an epoch.
    Asleep,
    /// The word still is that epoch, but the first message after the sleep was found.
    Woken,
}

/// The memory of a receiving end.
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
            current: None,
            held: None,
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
            pacer: Pacer::default(),
            empty_polls: 0,
            shm,
        }
    }

    /// Finds the next message and makes it the current one.
    #[inline]
    pub(crate) fn find(&mut self, _may_wait: bool) -> Result<Found, Fault> {
        self.check()?;
        if let Some(closed) = self.end {
            return Ok(Found::End(closed));
        }
        if self.held.is_some() {
            return Ok(Found::Message);
        }
        if self.declared == Declared::Woken {
            self.declare_awake();
        }
        // Noted before the poll, which then sees everything that was committed before the hang-up.
        let hung_up = self.hung_up;
        for _ in 0..RECORDS_MAX {
            let found = self.consumer.peek().map_err(|violation| self.violated_by(violation))?;
            let Some(record) = found else {
                return Ok(if hung_up { self.find_no_more() } else { Found::Nothing });
            };
            if self.declared == Declared::Asleep {
                self.declared = Declared::Woken;
            }
            if record.kind == Kind::Data && self.assembly.is_none() {
                self.check_length(&record)?;
                self.show(record);
                return Ok(Found::Message);
            }
            if record.kind == Kind::Blob && self.assembly.is_none() {
                return self.hold(&record).map(|()| Found::Message);
            }
            if self.has_streams && is_of_sessions(&record) {
                self.current = None;
                return Ok(Found::Control(record));
            }
            if let Some(found) = self.act_on(record)? {
                return Ok(found);
            }
        }
        // There may be more records: a caller that waits finds the ring ready.
        Ok(Found::Nothing)
    }

    /// The bytes of the current message.
    #[inline]
    pub(crate) fn current(&self) -> &[u8] {
        match (&self.current, &self.held) {
            (Some(_), _) if self.is_untrusted => &self.copy,
            (Some(record), _) => self.consumer.payload(record),
            (None, Some(held)) => held.as_slice(),
            (None, None) => &[],
        }
    }

    /// Takes the current message; an inline one is copied.
    #[inline]
    pub(crate) fn take(&mut self) -> Message {
        if let Some(held) = self.held.take() {
            return held.into_message();
        }
        let message = Message::copied(self.current());
        self.done();
        message
    }

    /// Consumes the current message, unless it was taken.
    #[inline]
    pub(crate) fn done(&mut self) {
        if self.held.is_some() {
            self.held = None;
        }
        // ORDER: Relaxed: see `check`. In a forked child, memory of the parent is not written.
        if self.fork_word.load(Ordering::Relaxed) != self.shm.owner.load(Ordering::Relaxed)
            && self.shm.is_inherited()
        {
            return;
        }
        if let Some(record) = self.current.take() {
            self.records_since_wait = self.records_since_wait.saturating_add(1);
            self.count(u64::from(record.len));
            self.advance(&record);
        }
    }

    /// Fails in a forked child, and after the peer broke a rule.
    #[inline]
    fn check(&self) -> Result<(), Fault> {
        #[cfg(shuttle)]
        super::switch_point();
        // ORDER: Relaxed, both: the words guard no other memory (see `SharedMemory::owner`).
        let is_owner =
            self.fork_word.load(Ordering::Relaxed) == self.shm.owner.load(Ordering::Relaxed);
        if is_owner { Ok(()) } else { self.shm.check() }
    }

    /// Makes an inline record the current message.
    #[inline]
    fn show(&mut self, record: RecordHeader) {
        if self.is_untrusted && self.current != Some(record) {
            // Copied once, before anything reads it.
            self.copy.resize(record.len as usize, 0);
            self.consumer.copy(&record, 0, &mut self.copy);
        }
        self.stream = record.stream;
        self.credit = None;
        self.current = Some(record);
    }

    /// No message is longer than was agreed, whatever carries it (SPEC 2.3).
    #[inline]
    fn check_length(&self, record: &RecordHeader) -> Result<(), Fault> {
        let (len, max) = (u64::from(record.len), self.shm.limits.message);
        if len <= max {
            return Ok(());
        }
        Err(self.violated_by(Violation::MessageLength { len, max }))
    }

    #[inline]
    fn count(&mut self, len: u64) {
        self.messages += 1;
        self.bytes += len;
        self.counters.store(MESSAGES, self.messages);
        self.counters.store(BYTES, self.bytes);
    }

    /// Consumes `record`, and reports that to the producer now and then.
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
/// Bytes of a record that are prefetched; the CPU fetches the rest of longer ones by itself.
const PREFETCH_BYTES_MAX: u64 = 256;
/// Records without a message that one `find` takes: it must end even if the peer never stops.
const RECORDS_MAX: usize = 256;
