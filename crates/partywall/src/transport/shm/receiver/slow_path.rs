// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiver's code beyond the path of a short message: blocks, fragments, waiting, and the
//! interface of the transport.

use super::super::segments::{Held, SegmentError};
use super::super::{SharedMemory, Sleeping, word};
use super::{BYTES, Declared, MESSAGES, MessageUse, ShmReceiver};
use crate::error::{Closed, Fault};
use crate::message::Message;
use crate::stats::ReceiverStats;
use crate::transport::{
    Assembly, Found, SpaceWaiter, TransportReceiver, Waited, has_passed, is_of_sessions, until,
    waiting_failed,
};
use partywall_layout::record_ring::{BlobBody, BlobCredit, FRAGMENT_PREFIX_BYTES, Kind, Position};
use partywall_layout::segment::receiving;
use partywall_layout::{RecordHeader, Violation, seeded_fault};
use partywall_ring::Wake;
use partywall_sys::EpollSet;
use partywall_wait::{SpinOutcome, Spinner, Wait};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;
use zerocopy::FromBytes;

impl ShmReceiver {
    pub(crate) const fn shared(&self) -> &Arc<SharedMemory> {
        &self.shm
    }

    /// Prepares for a sleep of a thread that parks for this receiver
    /// ([`SharedMemory::park_receiver`]). Returns `true` if a record, or the end, may have come
    /// already. Unlike `arm`, the call does not consume a notification that came earlier. Such a
    /// notification ends the sleep early, once.
    pub(crate) fn arm_parker(&mut self) -> Result<bool, Fault> {
        self.check()?;
        self.pass_consumed();
        if self.shm.may_have_ended() {
            self.check_peer(Some(Instant::now()))?;
        }
        if self.end.is_some() || self.hung_up {
            return Ok(true);
        }
        self.report();
        self.parked_sleeps.begin();
        self.sleeper.arm(false);
        if self.consumer.is_ready() {
            self.declare_awake();
            return Ok(true);
        }
        self.declared = Declared::Asleep;
        self.add_to_counter(receiving::SLEEPS, 1);
        Ok(false)
    }

    /// Makes this receiver continue a direction that moved from a socket to shared memory. `stats`
    /// are the counters of the socket's receiver.
    pub(crate) fn continue_from(&mut self, stats: &ReceiverStats, has_streams: bool) {
        (self.messages, self.bytes) = (stats.messages, stats.bytes);
        self.counters.store(MESSAGES, self.messages);
        self.counters.store(BYTES, self.bytes);
        self.add_to_counter(receiving::SLEEPS, stats.sleeps);
        self.add_to_counter(receiving::SPINS_PAID, stats.spin_hits);
        self.has_streams = has_streams;
    }

    /// Makes `set`, an epoll set that an event loop polls already, report this receiver's events.
    /// `set` was made for the socket on which the connection began.
    pub(crate) fn adopt_records_set(&self, set: Option<Arc<EpollSet>>) {
        if let Some(set) = set {
            self.shm.records.adopt(set, self.shm.sources());
        }
    }

    #[cold]
    pub(super) fn violated_by(&self, violation: Violation) -> Fault {
        self.shm.violated(violation)
    }

    /// Consumes the message that the caller has as a view, or passes the record of the message that
    /// the caller has consumed.
    #[inline]
    pub(super) fn pass_used(&mut self) {
        self.message_use = MessageUse::Unconsumed;
        if !seeded_fault("view_is_not_consumed") {
            self.done();
        }
    }

    /// Passes the record of the message that the caller has consumed, if it was not passed yet.
    fn pass_consumed(&mut self) {
        if self.message_use == MessageUse::Consumed {
            self.pass_used();
        }
    }

    /// Makes the inline message of `record` the receiver's current message.
    ///
    /// Unlike [`show_inline`](Self::show_inline), this function keeps `record` in memory. Sessions
    /// find their messages so. With the record in registers, many streams took a fifth longer on
    /// distant processors, because each turn of the driver then found fewer records (decision
    /// 0060).
    #[inline(always)]
    fn show(&mut self, record: RecordHeader) {
        if self.is_untrusted {
            self.copy_untrusted(&record);
        }
        self.make_current(record);
    }

    /// Copies the inline message of an untrusted peer, once, before anything reads it.
    #[inline(never)]
    fn copy_untrusted(&mut self, record: &RecordHeader) {
        if self.current != Some(*record) {
            self.copy.resize(record.len as usize, 0);
            self.consumer.copy(record, 0, &mut self.copy);
        }
    }

    /// Does what [`copy_untrusted`](Self::copy_untrusted) does, for a caller that keeps the record
    /// in registers.
    #[inline(never)]
    pub(super) fn copy_untrusted_at(&mut self, position: Position, len: u32, stream: u32) {
        self.copy_untrusted(&RecordHeader { position, kind: Kind::Data, len, stream });
    }

    /// Finds the next record, of whatever kind, and makes its message the current message.
    #[inline]
    pub(crate) fn find(&mut self, _may_wait: bool) -> Result<Found, Fault> {
        self.check()?;
        if let Some(closed) = self.end {
            return Ok(Found::End(closed));
        }
        if self.message_use != MessageUse::Unconsumed {
            self.pass_used();
        }
        if self.held.is_some() {
            return Ok(Found::Message);
        }
        if self.declared == Declared::Woken {
            self.declare_awake();
        }
        // The receiver reads `hung_up` before it polls, so the poll sees every record that the peer
        // committed before the hang-up.
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
        // The ring may contain more records than the `RECORDS_MAX` that this call handled. A caller
        // that waits then finds them in the ring without blocking.
        Ok(Found::Nothing)
    }

    /// Whether the receiver has declared itself asleep and has found no record since, so that the
    /// peer notifies it of the next record. Any record that `find` handles ends this state, also
    /// one of which it reports nothing.
    #[cfg(any(feature = "tokio", shuttle))]
    pub(crate) fn is_armed(&self) -> bool {
        self.declared == Declared::Asleep
    }

    /// Drops the current message, which lies outside the ring.
    #[inline(never)]
    pub(super) fn drop_held(&mut self) {
        self.held = None;
    }

    /// Checks that a message is not longer than both sides agreed, in whatever form it is sent
    /// (SPEC 2.3).
    #[inline]
    fn check_length(&self, record: &RecordHeader) -> Result<(), Fault> {
        let (len, max) = (u64::from(record.len), self.message_max);
        if len <= max {
            return Ok(());
        }
        Err(self.violated_by(Violation::MessageLength { len, max }))
    }

    /// Handles an empty ring after a hang-up: reports the end of the direction.
    #[cold]
    pub(super) fn find_no_more(&mut self) -> Found {
        self.shm.disconnected();
        self.end = Some(Closed::Disconnected);
        Found::End(Closed::Disconnected)
    }

    /// Makes the message of a BLOB record the current message: as a view of the peer's memory, or
    /// as a copy if the peer is untrusted (SPEC 5.2). In a session the record may carry credit.
    #[inline]
    pub(super) fn hold(&mut self, record: &RecordHeader) -> Result<(), Fault> {
        // A caller may have leaked a `MessageRef`, so that the record of an old message is still
        // the current one. The message of this BLOB replaces that message.
        self.current = None;
        let mut body = [0; BODY_MAX];
        let mut body = self.small_body(record, &mut body)?;
        self.stream = record.stream;
        self.credit = None;
        if self.has_streams {
            (body, self.credit) = split_credit(body);
        }
        // The message is stored in place, which saves a copy (decision 0058).
        let found = self.segments.hold_into(&mut self.held, &self.shm, record, body);
        let len = found.map_err(|violation| self.violated_by(*violation))?;
        self.add_to_counter(receiving::BLOBS, 1);
        self.count(len);
        self.advance(record);
        Ok(())
    }

    /// Handles a record that is not a whole message: a fragment, a record about a segment, or the
    /// end of the direction. Returns `None` if the caller should continue with the next record.
    #[cold]
    pub(super) fn act_on(&mut self, record: RecordHeader) -> Result<Option<Found>, Fault> {
        // A caller may have leaked a `MessageRef`, so that the record of an old message is still
        // the current one. That message is no longer valid, so no record is current.
        self.current = None;
        if self.assembly.is_some() && !may_interrupt(record.kind) {
            let (position, what) = (record.position.0, "is missing: another record came");
            return Err(self.violated_by(Violation::Fragment { position, what }));
        }
        let found = match record.kind {
            Kind::Segment => {
                self.is_report_pending = true;
                let mut body = [0; BODY_MAX];
                let body = self.small_body(&record, &mut body)?;
                self.segments.add(&self.shm, &record, body).map_err(|error| match error {
                    SegmentError::Violation(violation) => self.violated_by(violation),
                    SegmentError::System(source) => {
                        // The descriptor of the announced segment is lost, so messages in that
                        // segment can never be read: the direction ends.
                        self.end = Some(Closed::Disconnected);
                        Fault::system("mapping a segment", source)
                    }
                })?;
                None
            }
            Kind::SegmentRetire => {
                self.is_report_pending = true;
                let mut body = [0; BODY_MAX];
                let body = self.small_body(&record, &mut body)?;
                let retired = self.segments.retire(&record, body);
                retired.map_err(|violation| self.violated_by(violation))?;
                None
            }
            Kind::FragmentFirst | Kind::FragmentMid | Kind::FragmentLast | Kind::FragmentAbort => {
                if record.kind == Kind::FragmentAbort {
                    self.check_empty(&record)?;
                }
                let whole = self.assemble(&record);
                self.held = whole.map_err(|violation| self.violated_by(violation))?;
                self.held.is_some().then_some(Found::Message)
            }
            Kind::CloseWrite => {
                self.check_empty(&record)?;
                self.end = Some(Closed::Finished);
                Some(Found::End(Closed::Finished))
            }
            _ => {
                let (position, kind) = (record.position.0, record.kind as u8);
                return Err(self.violated_by(Violation::Unexpected { position, kind }));
            }
        };
        self.advance(&record);
        Ok(found)
    }

    /// Checks that a record of a kind without a body has none (SPEC 4.3).
    pub(super) fn check_empty(&self, record: &RecordHeader) -> Result<(), Fault> {
        if record.len == 0 {
            return Ok(());
        }
        let (position, found) = (record.position.0, record.len.into());
        let what = "body where none may be";
        Err(self.violated_by(Violation::Body { position, what, found }))
    }

    /// Copies the body of a control record, which is small, into private memory.
    #[inline]
    pub(super) fn small_body<'b>(
        &self,
        record: &RecordHeader,
        into: &'b mut [u8; BODY_MAX],
    ) -> Result<&'b [u8], Fault> {
        let Some(body) = into.get_mut(..record.len as usize) else {
            let (position, found) = (record.position.0, record.len.into());
            let what = "body length";
            return Err(self.violated_by(Violation::Body { position, what, found }));
        };
        self.consumer.copy(record, 0, body);
        Ok(body)
    }

    pub(super) fn add_to_counter(&mut self, counter: u64, amount: u64) {
        let value = self.counter(counter).wrapping_add(amount);
        self.counters.store(word(counter * 8), value);
    }

    pub(super) fn counter(&self, counter: u64) -> u64 {
        self.counters.load(word(counter * 8))
    }

    /// Reports the receiver's position to the peer's producer, and notifies the producer if it
    /// waits for room.
    pub(super) fn report(&mut self) {
        #[cfg(shuttle)]
        super::super::switch_point();
        if self.consumer.report() && self.shm.wake_for_space() {
            self.add_to_counter(receiving::DOORBELLS, 1);
        }
    }

    /// Sleeps until the wait point reports an event, or until `deadline`. Stores in `hung_up`
    /// whether the peer hung up or died.
    pub(super) fn check_peer(&mut self, deadline: Option<Instant>) -> Result<(), Fault> {
        if self.shm.sleep_for_records(deadline).map_err(waiting_failed)? {
            self.hung_up = true;
            self.check()?;
        }
        Ok(())
    }

    /// Declares that the receiver is awake. `find` does this only after the caller has handled the
    /// first message after a sleep. Until then, the word `asleep_records` shows the peer that it
    /// has already notified the receiver. Writing the word earlier would delay the caller's answer,
    /// because both sides access the word's cache line.
    pub(super) fn declare_awake(&mut self) {
        self.declared = Declared::Awake;
        self.sleeper.disarm();
    }

    /// Adds a fragment to a channel's message (SPEC 5.5). Returns the message if the fragment was
    /// the last one. A session assembles the messages of its streams itself.
    pub(super) fn assemble(&mut self, record: &RecordHeader) -> Result<Option<Held>, Violation> {
        let bad = |what| Violation::Fragment { position: record.position.0, what };
        let mut len = record.len as usize;
        let mut from = 0;
        if record.kind == Kind::FragmentAbort {
            return self.assembly.take().map(|_| None).ok_or_else(|| bad("ends no message"));
        }
        if record.kind == Kind::FragmentFirst {
            if self.assembly.is_some() {
                return Err(bad("begins a message within another"));
            }
            if record.len < 8 {
                let (position, found) = (record.position.0, record.len.into());
                return Err(Violation::Body { position, what: "length of a first part", found });
            }
            let mut total = [0; 8];
            self.consumer.copy(record, 0, &mut total);
            let total = u64::from_le_bytes(total);
            let max = self.shm.limits.message;
            if total > max {
                return Err(Violation::MessageLength { len: total, max });
            }
            self.assembly = Some(Assembly::begin(total));
            (from, len) = (8, len - 8);
        }
        const _: () = assert!(FRAGMENT_PREFIX_BYTES == 8);
        let assembly = self.assembly.as_mut().ok_or_else(|| bad("continues no message"))?;
        let place = assembly.extend(len).ok_or_else(|| bad("exceeds the announced length"))?;
        self.consumer.copy(record, from, place);
        if record.kind != Kind::FragmentLast {
            return Ok(None);
        }
        let whole = self.assembly.take().and_then(Assembly::finish);
        let bytes = whole.ok_or_else(|| bad("ends before the announced length"))?;
        self.count(bytes.len() as u64);
        Ok(Some(Held::Whole(bytes)))
    }
}

impl TransportReceiver for ShmReceiver {
    fn find(&mut self, may_wait: bool) -> Result<Found, Fault> {
        Self::find(self, may_wait)
    }

    fn enable_streams(&mut self) {
        self.has_streams = true;
    }

    #[inline]
    fn stream(&self) -> u32 {
        self.stream
    }

    #[inline]
    fn take_credit(&mut self) -> Option<u64> {
        self.credit.take()
    }

    #[inline]
    fn body(&self, record: &RecordHeader, from: usize, into: &mut [u8]) {
        self.consumer.copy(record, from, into);
    }

    #[inline]
    fn pass(&mut self, record: &RecordHeader) {
        self.advance(record);
    }

    fn violated(&self, violation: Violation) -> Fault {
        self.violated_by(violation)
    }

    fn message_max(&self) -> u64 {
        self.shm.limits.message
    }

    fn current(&self) -> &[u8] {
        Self::current(self)
    }

    fn current_len(&self) -> usize {
        Self::current_len(self)
    }

    fn take(&mut self) -> Message {
        Self::take(self)
    }

    fn done(&mut self) {
        Self::done(self);
    }

    #[inline]
    fn begin_view(&mut self) {
        self.message_use = MessageUse::Viewed;
    }

    fn end_view(&mut self) -> bool {
        let is_viewed = self.message_use == MessageUse::Viewed;
        if is_viewed {
            self.message_use = MessageUse::Unconsumed;
        }
        is_viewed
    }

    /// The caller has just found no record by [`find`](Self::find), which has passed the last
    /// message. The function is inlined into `Receiver::wait_for_message`, which alone calls it.
    #[inline(always)]
    fn wait(
        &mut self,
        wait: Wait,
        spinner: &mut Spinner,
        deadline: Option<Instant>,
    ) -> Result<Waited, Fault> {
        if has_passed(deadline) {
            // The deadline is checked before the ring, because a peer may keep the ring filled with
            // records that are no messages.
            return Ok(Waited::TimedOut);
        }
        self.pacer.count_records(std::mem::take(&mut self.records_since_wait));
        self.shm.note_wait();
        // Polling does not change whether the receiver is plain. If the sender's thread finds the
        // connection broken meanwhile, one more message may be received.
        let is_plain = self.is_plain();
        self.pacer.before_wait(wait).pause();
        loop {
            let (consumer, pacer) = (&self.consumer, &mut self.pacer);
            match spinner.spin(wait, || pacer.count_poll(consumer.is_ready())) {
                SpinOutcome::Ready => {
                    let is_found = is_plain && self.show_inline();
                    self.add_to_counter(receiving::SPINS_PAID, 1);
                    return Ok(if is_found { Waited::Found } else { Waited::Again });
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
        // A notification that arrived while the receiver was awake stays in the doorbell. It causes
        // one needless wake-up, which costs less than the system call that would consume it before
        // every wait.
        self.sleeper.arm(matches!(wait, Wait::Poll(_)));
        if self.consumer.is_ready() {
            self.declare_awake();
            return Ok(Waited::Again);
        }
        self.declared = Declared::Asleep;
        self.add_to_counter(receiving::SLEEPS, 1);
        self.check_peer(until(wait, deadline))?;
        self.consumer.prefetch_next();
        Ok(Waited::Again)
    }

    fn arm(&mut self, quiet: bool) -> Result<bool, Fault> {
        self.check()?;
        self.pass_consumed();
        if self.end.is_some() || self.hung_up {
            return Ok(true);
        }
        self.shm.records.check_descriptor().map_err(waiting_failed)?;
        self.report();
        self.check_peer(Some(Instant::now()))?;
        self.sleeper.arm(quiet);
        #[cfg(shuttle)]
        super::super::switch_point();
        if self.hung_up || self.consumer.is_ready() {
            self.declare_awake();
            return Ok(true);
        }
        self.declared = Declared::Asleep;
        Ok(false)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.shm.records_descriptor()
    }

    fn notice_end(&mut self) -> Result<bool, Fault> {
        self.empty_polls = (self.empty_polls + 1) % EMPTY_POLLS_MAX;
        if std::mem::take(&mut self.is_report_pending) {
            self.report();
        }
        if self.empty_polls == 0 {
            self.report();
            self.check_peer(Some(Instant::now()))?;
        }
        Ok(self.hung_up)
    }

    fn close(&mut self) {
        if self.shm.connection_state.guard.is_child() {
            return;
        }
        self.pass_consumed();
        self.sleeper.leave();
        if matches!(self.shm.space_waker.check_before_wait(), Wake::Notify) {
            self.shm.notify(Sleeping::ForSpace);
        }
        self.shm.depart();
    }

    fn stats(&self) -> ReceiverStats {
        if self.shm.is_inherited() {
            return ReceiverStats::default();
        }
        // A consumed message is counted when its record is passed.
        let consumed = self.current.filter(|_| self.message_use == MessageUse::Consumed);
        ReceiverStats {
            messages: self.messages + u64::from(consumed.is_some()),
            bytes: self.bytes + consumed.map_or(0, |record| u64::from(record.len)),
            zero_copy: self.counter(receiving::BLOBS),
            wakeups_sent: self.counter(receiving::DOORBELLS),
            sleeps: self.counter(receiving::SLEEPS),
            spin_hits: self.counter(receiving::SPINS_PAID),
        }
    }
}

/// Splits the body of a BLOB into the fields that every BLOB has, and the credit that some BLOBs
/// carry.
#[inline]
fn split_credit(body: &[u8]) -> (&[u8], Option<u64>) {
    match body.split_at_checked(size_of::<BlobBody>()) {
        Some((blob, credit)) if credit.len() == size_of::<BlobCredit>() => {
            let credit = BlobCredit::read_from_bytes(credit);
            (blob, credit.ok().map(BlobCredit::get))
        }
        // The body has no credit, or an invalid length. The caller, which reads the fields of the
        // body, refuses an invalid length.
        _ => (body, None),
    }
}

/// Whether a record of this kind may come between the fragments of a message (SPEC 5.5). Fragments
/// and records about memory may. CLOSE_WRITE may, too, and ends the unfinished message as
/// FRAGMENT_ABORT does, because a sender that gave up may have room for only one record.
const fn may_interrupt(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::FragmentFirst
            | Kind::FragmentMid
            | Kind::FragmentLast
            | Kind::FragmentAbort
            | Kind::Segment
            | Kind::SegmentRetire
            | Kind::CloseWrite
    )
}

/// Length in bytes of the longest body of a control record.
const BODY_MAX: usize = size_of::<BlobBody>() + size_of::<BlobCredit>();
/// Most control records that one call of `find` handles, so that `find` returns even if the peer
/// sends them without end.
const RECORDS_MAX: usize = 256;
/// A receiver that never blocks checks for the peer's death once per this many polls that find no
/// record. Each check is a system call.
const EMPTY_POLLS_MAX: u32 = 256;
