// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end of a wall: takes records in order, believes nothing, tells how far it is.
//!
//! ```text
//!   DATA ──────────────▶ message, copied out of the ring (or shown in place)
//!   BLOB ──────────────▶ message, a view of the neighbour's memory (or a copy, if isolated)
//!   FRAGMENT… LAST ────▶ message, put together in private memory
//!   SEGMENT, …RETIRE ──▶ memory comes and goes; go on
//!   CLOSE_WRITE ───────▶ the end
//! ```
//!
//! After a hang-up it looks once more, because everything that was committed is delivered; then it is
//! the end.

use super::assembly::may_interrupt;
use super::blob::Held;
use super::counters::Counters;
use super::segments::{SegmentError, Segments};
use super::{SharedMemory, Sleeping};
use crate::error::{Closed, Fault};
use crate::message::Message;
use crate::stats::ReceiverStats;
use crate::transport::assembly::Assembly;
use crate::transport::{Found, Waited, has_passed, kinds, until, waiting_failed};
use partywall_layout::record_ring::{BlobBody, BlobCredit, Kind};
use partywall_layout::segment::receiving;
use partywall_layout::{RecordHeader, RingSize, Violation};
use partywall_ring::{Consumer, OwnMem, PeerMem, Sleeper, Wake};
use partywall_wait::Pacer;
use partywall_wait::{SpinOutcome, Spinner, Wait};
use std::sync::Arc;
use std::time::Instant;

/// The receiving end.
#[derive(Debug)]
pub(crate) struct ShmReceiver {
    pub(super) shm: Arc<SharedMemory>,
    pub(super) consumer: Consumer,
    pub(super) segments: Segments,
    sleeper: Sleeper,
    pub(super) counters: Counters,
    pub(super) assembly: Option<Assembly>,
    /// The inline message that `find` found and `done` has not yet left behind.
    pub(super) current: Option<RecordHeader>,
    /// A message that does not lie inline, found and not yet taken.
    pub(super) held: Option<Held>,
    /// There are streams (a session), and this is the one of the current message.
    pub(super) is_multiplexed: bool,
    pub(super) stream: u32,
    /// The credit that came with it.
    pub(super) credit: Option<u64>,
    /// A copy of the current one, if the neighbour is isolated.
    copy: Vec<u8>,
    /// The neighbour hung up or died: one more look, then the end.
    hung_up: bool,
    end: Option<Closed>,
    /// How often `try_recv` found nothing.
    looks_in_vain: u32,
    pacer: Pacer,
    declared: Declared,
}

/// What our word `asleep_records` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declared {
    /// 0.
    Awake,
    /// An epoch.
    Asleep,
    /// The same epoch still, but the first message after that sleep was found.
    Woken,
}

/// What a receiving end is made of.
pub(super) struct Parts {
    pub ring: PeerMem,
    pub ring_size: RingSize,
    pub consumed: OwnMem,
    pub asleep: OwnMem,
    pub counters: OwnMem,
    pub slab: PeerMem,
    pub region_bytes: u64,
}

/// Bodies of records that are not messages fit here.
pub(super) const BODY_MAX: usize = size_of::<BlobBody>() + size_of::<BlobCredit>();
/// Of long records the processor fetches the rest by itself.
const PREFETCH_BYTES_MAX: u64 = 256;
/// So many records without a message in one go at most: a look must end even if the neighbour never does.
const RECORDS_MAX: usize = 256;
/// One who only tries learns of the end after so many looks at the latest.
const LOOKS_IN_VAIN_MAX: u32 = 256;

impl ShmReceiver {
    pub(super) fn new(shm: Arc<SharedMemory>, parts: Parts) -> Self {
        let segments = Segments::new(&shm, parts.slab, parts.region_bytes);
        Self {
            shm,
            consumer: Consumer::new(parts.ring, parts.ring_size, parts.consumed),
            segments,
            sleeper: Sleeper::new(parts.asleep),
            counters: Counters::new(parts.counters),
            assembly: None,
            current: None,
            held: None,
            is_multiplexed: false,
            stream: 0,
            credit: None,
            copy: Vec::new(),
            hung_up: false,
            end: None,
            looks_in_vain: 0,
            pacer: Pacer::default(),
            declared: Declared::Awake,
        }
    }

    pub(crate) const fn shm(&self) -> &Arc<SharedMemory> {
        &self.shm
    }

    /// Finds the next message and makes it the current one; an inline one stays in place.
    #[inline]
    pub(crate) fn find(&mut self) -> Result<Found, Fault> {
        self.shm.check()?;
        if let Some(closed) = self.end {
            return Ok(Found::End(closed));
        }
        if self.held.is_some() {
            return Ok(Found::Message);
        }
        if self.declared == Declared::Woken {
            self.declare_awake();
        }
        // Noted before the look: what was committed before the hang-up is then seen by it.
        let hung_up = self.hung_up;
        for _ in 0..RECORDS_MAX {
            let found = self.consumer.peek().map_err(|violation| self.shm.violated(violation))?;
            let Some(record) = found else {
                if !hung_up {
                    return Ok(Found::Nothing);
                }
                self.end = Some(SharedMemory::disconnected());
                return Ok(Found::End(SharedMemory::disconnected()));
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
            if self.is_multiplexed && kinds::is_of_sessions(&record) {
                self.current = None;
                return Ok(Found::Control(record));
            }
            if let Some(found) = self.act_on(record)? {
                return Ok(found);
            }
        }
        // There may be more: whoever waits finds the ring ready.
        Ok(Found::Nothing)
    }

    pub(crate) const fn enable_streams(&mut self) {
        self.is_multiplexed = true;
    }

    #[inline]
    pub(crate) const fn stream(&self) -> u32 {
        self.stream
    }

    #[inline]
    pub(crate) const fn take_credit(&mut self) -> Option<u64> {
        self.credit.take()
    }

    /// Copies bytes of a record that `find` found.
    #[inline]
    pub(crate) fn body(&self, record: &RecordHeader, from: usize, into: &mut [u8]) {
        self.consumer.copy(record, from, into);
    }

    /// Goes on behind a record that `find` found.
    #[inline]
    pub(crate) fn pass(&mut self, record: &RecordHeader) {
        self.advance(record);
    }

    /// The bytes of the current message.
    #[inline]
    pub(crate) fn current(&self) -> &[u8] {
        match (&self.current, &self.held) {
            (Some(_), _) if self.shm.is_untrusted() => &self.copy,
            (Some(record), _) => self.consumer.payload(record),
            (None, Some(held)) => held.as_slice(),
            (None, None) => &[],
        }
    }

    /// Takes the current message.
    #[inline]
    pub(crate) fn take(&mut self) -> Message {
        if let Some(held) = self.held.take() {
            return held.into_message();
        }
        let message = Message::copied(self.current());
        self.done();
        message
    }

    /// Goes on behind the current message, if it was not taken.
    #[inline]
    pub(crate) fn done(&mut self) {
        if self.held.is_some() {
            self.held = None;
        }
        if self.shm.is_inherited() {
            return;
        }
        if let Some(record) = self.current.take() {
            self.pacer.count_record();
            self.count(u64::from(record.len));
            self.advance(&record);
        }
    }

    /// Waits until there may be something.
    pub(crate) fn wait(
        &mut self,
        wait: Wait,
        spinner: &mut Spinner,
        deadline: Option<Instant>,
    ) -> Result<Waited, Fault> {
        if has_passed(deadline) {
            // Also when there is always something, but never a message.
            return Ok(Waited::TimedOut);
        }
        self.pacer.before_wait(wait).pause();
        loop {
            let (consumer, pacer) = (&self.consumer, &mut self.pacer);
            match spinner.spin(wait, || pacer.count_poll(consumer.is_ready())) {
                SpinOutcome::Ready => {
                    self.counters.add(receiving::SPINS_PAID, 1);
                    return Ok(Waited::Again);
                }
                SpinOutcome::Exhausted => break,
                SpinOutcome::CheckDue => {
                    self.report();
                    self.check_peer(Some(Instant::now()))?;
                    if self.hung_up || self.consumer.is_ready() {
                        return Ok(Waited::Again);
                    }
                    if has_passed(deadline) {
                        return Ok(Waited::TimedOut);
                    }
                }
            }
        }
        if has_passed(deadline) {
            return Ok(Waited::TimedOut);
        }
        self.report();
        // An edge that came while we were awake is not drained: it wakes us once in vain, which is
        // rarer than a system call per wait is dear.
        self.sleeper.arm(matches!(wait, Wait::Poll(_)));
        if self.consumer.is_ready() {
            self.declare_awake();
            return Ok(Waited::Again);
        }
        self.declared = Declared::Asleep;
        self.counters.add(receiving::SLEEPS, 1);
        self.check_peer(until(wait, deadline))?;
        self.consumer.prefetch_next();
        Ok(Waited::Again)
    }

    /// Declares that we are awake, when the first message after a sleep has been dealt with: until
    /// then the neighbour knows that it has rung, and the answer to that message is not held up by a
    /// line that both sides look at.
    fn declare_awake(&mut self) {
        self.declared = Declared::Awake;
        self.sleeper.disarm();
    }

    /// Declares that somebody will poll the descriptor; `true` if there is something already.
    pub(crate) fn arm(&mut self, quiet: bool) -> Result<bool, Fault> {
        self.shm.check()?;
        if self.end.is_some() || self.hung_up {
            return Ok(true);
        }
        self.report();
        self.check_peer(Some(Instant::now()))?;
        self.sleeper.arm(quiet);
        if self.hung_up || self.consumer.is_ready() {
            self.declare_awake();
            return Ok(true);
        }
        self.declared = Declared::Asleep;
        Ok(false)
    }

    /// Now and then asks whether the neighbour lives, for one who never waits.
    pub(crate) fn notice_end(&mut self) -> Result<bool, Fault> {
        self.looks_in_vain = (self.looks_in_vain + 1) % LOOKS_IN_VAIN_MAX;
        if self.looks_in_vain == 0 {
            self.report();
            self.check_peer(Some(Instant::now()))?;
        }
        Ok(self.hung_up)
    }

    /// Tells the sender that nobody receives any more.
    pub(crate) fn close(&mut self) {
        if self.shm.connection_state.guard.is_child() {
            return;
        }
        self.sleeper.leave();
        if matches!(self.shm.room_waker.check_before_wait(), Wake::Notify) {
            self.shm.notify(Sleeping::ForRoom);
        }
        self.shm.depart();
    }

    pub(crate) fn stats(&self) -> ReceiverStats {
        if self.shm.is_inherited() {
            return ReceiverStats::default();
        }
        ReceiverStats {
            messages: self.counters.get(receiving::MESSAGES),
            bytes: self.counters.get(receiving::BYTES),
            zero_copy: self.counters.get(receiving::BLOBS),
            wakeups_sent: self.counters.get(receiving::DOORBELLS),
            sleeps: self.counters.get(receiving::SLEEPS),
            spin_hits: self.counters.get(receiving::SPINS_PAID),
        }
    }

    /// Makes an inline record the current message.
    #[inline]
    fn show(&mut self, record: RecordHeader) {
        if self.shm.is_untrusted() && self.current != Some(record) {
            // Copied once, before anybody looks at it.
            self.copy.resize(record.len as usize, 0);
            self.consumer.copy(&record, 0, &mut self.copy);
        }
        self.stream = record.stream;
        self.credit = None;
        self.current = Some(record);
    }

    /// Acts on a record that is no whole message; `None` to go on with the next.
    #[cold]
    fn act_on(&mut self, record: RecordHeader) -> Result<Option<Found>, Fault> {
        // A look that was forgotten, not dropped: what it showed has turned into this record.
        self.current = None;
        if self.assembly.is_some() && !may_interrupt(record.kind) {
            let (position, what) = (record.position.0, "is missing: another record came");
            return Err(self.shm.violated(Violation::Fragment { position, what }));
        }
        let found = match record.kind {
            Kind::Segment => {
                let mut body = [0; BODY_MAX];
                let body = self.small_body(&record, &mut body)?;
                self.segments.add(&self.shm, &record, body).map_err(|error| match error {
                    SegmentError::Violation(violation) => self.shm.violated(violation),
                    SegmentError::System(source) => {
                        // Its descriptor is gone, so what refers to it can never be read.
                        self.end = Some(SharedMemory::disconnected());
                        Fault::system("mapping a segment", source)
                    }
                })?;
                None
            }
            Kind::SegmentRetire => {
                let mut body = [0; BODY_MAX];
                let body = self.small_body(&record, &mut body)?;
                let retired = self.segments.retire(&record, body);
                retired.map_err(|violation| self.shm.violated(violation))?;
                None
            }
            Kind::FragmentFirst | Kind::FragmentMid | Kind::FragmentLast | Kind::FragmentAbort => {
                if record.kind == Kind::FragmentAbort {
                    self.check_empty(&record)?;
                }
                let whole = self.assemble(&record);
                self.held = whole.map_err(|violation| self.shm.violated(violation))?;
                self.held.is_some().then_some(Found::Message)
            }
            Kind::CloseWrite => {
                self.check_empty(&record)?;
                self.end = Some(Closed::Finished);
                Some(Found::End(Closed::Finished))
            }
            _ => {
                let (position, kind) = (record.position.0, record.kind as u8);
                return Err(self.shm.violated(Violation::Unexpected { position, kind }));
            }
        };
        self.advance(&record);
        Ok(found)
    }

    /// No message is longer than was agreed, whatever carries it (SPEC 2.3).
    #[inline]
    fn check_length(&self, record: &RecordHeader) -> Result<(), Fault> {
        let (len, max) = (u64::from(record.len), self.shm.limits.message);
        if len <= max {
            return Ok(());
        }
        Err(self.shm.violated(Violation::MessageLength { len, max }))
    }

    /// Some records have no body (SPEC 4.3).
    fn check_empty(&self, record: &RecordHeader) -> Result<(), Fault> {
        if record.len == 0 {
            return Ok(());
        }
        let (position, found) = (record.position.0, record.len.into());
        let what = "body where none may be";
        Err(self.shm.violated(Violation::Body { position, what, found }))
    }

    /// A private copy of a small body.
    #[inline]
    pub(super) fn small_body<'b>(
        &self,
        record: &RecordHeader,
        into: &'b mut [u8; BODY_MAX],
    ) -> Result<&'b [u8], Fault> {
        let Some(body) = into.get_mut(..record.len as usize) else {
            let (position, found) = (record.position.0, record.len.into());
            let what = "body length";
            return Err(self.shm.violated(Violation::Body { position, what, found }));
        };
        self.consumer.copy(record, 0, body);
        Ok(body)
    }

    #[inline]
    pub(super) fn count(&mut self, len: u64) {
        self.counters.add(receiving::MESSAGES, 1);
        self.counters.add(receiving::BYTES, len);
    }

    /// Goes on behind `record`, and tells the producer now and then.
    #[inline]
    pub(super) fn advance(&mut self, record: &RecordHeader) {
        self.consumer.advance(record);
        if self.pacer.is_behind() {
            self.consumer.prefetch(record.footprint().min(PREFETCH_BYTES_MAX));
        }
        if self.consumer.is_report_due() {
            self.report();
        }
    }

    /// Tells the producer how far we are, and wakes it if it waits for that.
    fn report(&mut self) {
        if self.consumer.report() && self.shm.wake_for_room() {
            self.counters.add(receiving::DOORBELLS, 1);
        }
    }

    /// Sleeps until something happens or `deadline`, and notes a hang-up.
    fn check_peer(&mut self, deadline: Option<Instant>) -> Result<(), Fault> {
        if self.shm.sleep_for_records(deadline).map_err(waiting_failed)? {
            self.hung_up = true;
            self.shm.check()?;
        }
        Ok(())
    }
}
