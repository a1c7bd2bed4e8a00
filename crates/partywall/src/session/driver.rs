// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver, the receiving end of a session: it takes the peer's records in order and delivers
//! them to their streams.
//!
//! ```text
//!   turn ─▶ find ─┬─ a message ──────▶ its stream's queue; its waiter is woken
//!                 ├─ of a stream ────▶ routing.rs: OPEN, ends, credit, fragments
//!                 ├─ of the session ─▶ PING, GO_AWAY
//!                 └─ the end ────────▶ every waiter is woken
//! ```
//!
//! The driver never blocks (SPEC 11.7). The thread, async task or event loop that runs the driver
//! calls `turn` until it returns `Idle`, then `arm`, and then waits until a descriptor is readable.
//! The module `tokio` runs the driver in a task, `blocking` in a thread, and `event` in an event
//! loop.

use super::error::SessionError;
use super::routing::Slot;
use super::shared::SessionShared;
use crate::channel::AnyReceiver;
use crate::config::Config;
use crate::error::Fault;
use crate::handshake::Established;
use crate::transport::{Found, NotSent, SpaceWaiter};
use partywall_layout::seeded_fault;
use partywall_wait::{TurnPacer, deadline_after};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The receiving end of a session. A task, a thread or an event loop runs it.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(super) shared: Arc<SessionShared>,
    pub(super) wire: AnyReceiver,
    room: Arc<dyn SpaceWaiter>,
    /// The waker that users of the session call; `None` before the first was registered.
    waker: Option<Waker>,
    /// The driver's tables of streams, by stream index. `own` has the streams that this side
    /// opened, and `theirs` those that the peer opened.
    pub(super) own: Vec<Slot>,
    pub(super) theirs: Vec<Slot>,
    pub(super) message_max: u64,
    /// The time at which an ended session drops the records that it could not send; `None` while
    /// the session lives.
    linger_until: Option<Instant>,
    linger: Duration,
    /// Whether the driver's next turn wakes the users that wait for room. A user sets the flag when
    /// it wakes the driver for something other than a record, such as room.
    is_service_due: bool,
    is_over: bool,
    /// Whether users may leave due credit to the driver while it is awake.
    defers_credit: bool,
    /// Whether users of the session take the driver for awake.
    is_awake: bool,
    /// Turns without records, and records, since a turn last reported deferred credit.
    idle_turns: u32,
    records: usize,
    /// Number of streams with deferred credit in that turn, at least 1.
    deferred: usize,
    pub(super) pacer: TurnPacer,
    /// The time until which a driver that closes its connection may wait for the peer; `None`
    /// before the driver closes.
    closing_until: Option<Instant>,
    is_outbox_closed: bool,
}

/// Result of a turn of the driver, by which the code that runs the driver decides whether to turn
/// again, to block, or to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The turn handled records, and more may have arrived.
    Busy,
    /// The turn found no record.
    Idle,
    /// The session is over, and every waiter was woken.
    Over,
}

/// Result of `Driver::arm`: whether the driver may block, and on which descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// The driver must not block, because a record or room is there already.
    No,
    /// The driver may block until records arrive.
    ForRecords,
    /// The driver may block until records arrive or the ring or socket has room.
    ForBoth,
}

/// The event for which the driver waits while it closes its connection; the result of
/// `Driver::close_step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The connection is closed as far as possible: dropping the driver does not block.
    Done,
    /// The peer has sent more records than one step discards. The caller runs another step
    /// immediately.
    Again,
    /// The driver waits for room in the socket for the last record of the session.
    ForRoom,
    /// The driver waits for records: the peer has not ended its direction yet. If this side closed
    /// the connection before, the kernel would discard bytes that this side has sent.
    ForRecords,
}

/// Most records that one turn handles, so that other tasks of the runtime can run on the thread.
const TURN_RECORDS: usize = 256;

/// Turns without records after which a driver that does not sleep reports deferred credit.
const DEFERRED_TURNS: u32 = 64;

/// Records for each stream with deferred credit after which the driver reports that credit. Looking
/// at a stream may transfer a cache line, so it must be rare in comparison to the records.
const DEFERRED_RECORDS: usize = 8;

/// Upper bound of the time that an ended session waits for a socket to accept its last record.
const CLOSING_MAX: Duration = Duration::from_secs(1);

impl Driver {
    /// Makes a session over a new connection: the part that users share, and the driver.
    pub(crate) fn new(established: Established, config: &Config) -> (Arc<SessionShared>, Self) {
        let room = established.sender.space();
        let (shared, wire) = SessionShared::new(established, config);
        let driver = Self {
            message_max: wire.message_max(),
            shared: Arc::clone(&shared),
            wire,
            room,
            waker: None,
            own: Vec::new(),
            theirs: Vec::new(),
            linger_until: None,
            linger: config.linger,
            is_service_due: true,
            is_over: false,
            defers_credit: false,
            is_awake: false,
            idle_turns: 0,
            records: 0,
            deferred: 1,
            pacer: TurnPacer::default(),
            closing_until: None,
            is_outbox_closed: false,
        };
        (shared, driver)
    }

    /// Lets users of the session leave due credit to the driver while the driver is awake. The
    /// caller promises to run the driver until it sleeps, without a call of the application, as far
    /// as a runtime runs the caller.
    pub(crate) const fn defer_credit(&mut self) {
        self.defers_credit = true;
    }

    /// Makes users of the session call `waker` from now on, and notes whether one has called the
    /// waker since the last call of this method. The code that runs the driver calls it before each
    /// turn.
    #[inline]
    pub(crate) fn register(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.shared.register_driver(waker);
            self.waker = Some(waker.clone());
        }
        self.is_service_due |= self.shared.was_driver_woken();
    }

    /// Handles the records that have arrived, at most `TURN_RECORDS`.
    pub(crate) fn turn(&mut self) -> Turn {
        if self.is_over {
            return Turn::Over;
        }
        self.note_turn();
        let mut count = 0;
        let met = loop {
            if count == TURN_RECORDS {
                break Ok(());
            }
            match if self.linger_until.is_some() { self.discard_next() } else { self.step() } {
                Ok(true) => count += 1,
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = met {
            return self.finish(error);
        }
        if self.defers_credit {
            self.idle_turns += u32::from(count == 0);
            self.records += count;
        }
        if self.is_service_due {
            self.service();
            if self.shared.check().is_err() || self.shared.is_abandoned() {
                let left = self.leave();
                // After `Busy`, the runtime or event loop that runs the driver may run other tasks
                // first. A peer that sends without pause and never reads must not occupy the thread
                // until the linger time has passed.
                return if left == Turn::Idle && count > 0 { Turn::Busy } else { left };
            }
        }
        if count > 0 {
            return Turn::Busy;
        }
        // A driver that never blocks checks in each turn whether the peer lives, because it would
        // not learn of the peer's death otherwise.
        match self.wire.notice_end() {
            Ok(false) => Turn::Idle,
            Ok(true) => Turn::Busy,
            Err(fault) => self.fail(fault),
        }
    }

    /// Notes that the driver is awake, and now and then reports deferred credit.
    #[inline]
    fn note_turn(&mut self) {
        if !self.defers_credit {
            return;
        }
        if !std::mem::replace(&mut self.is_awake, true) {
            self.shared.deferred_credit.0.driver_wakes();
        }
        let is_due = self.records >= DEFERRED_RECORDS * self.deferred
            && !seeded_fault("no_report_while_busy");
        if is_due || self.idle_turns >= DEFERRED_TURNS {
            (self.idle_turns, self.records) = (0, 0);
            self.deferred = self.shared.report_deferred_credit().max(1);
        }
    }

    /// Returns the time until which the driver should leave records to collect in its ring, after a
    /// turn that found none; `None` if its next turn should be as soon as other tasks have run, or
    /// if it is about to sleep and so may not pause.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn pause_until(&mut self, may_pause: bool) -> Option<Instant> {
        let is_shared = matches!(self.wire, AnyReceiver::SharedMemory(_));
        if is_shared { self.pacer.pause_until(may_pause, Instant::now) } else { None }
    }

    /// Handles the records that have arrived, at most `TURN_RECORDS`, for a user of the session.
    /// Everything else that a turn does is left to the next turn. Returns whether there were any.
    /// Does nothing on a socket, where an attempt in vain is a system call.
    #[cfg(any(feature = "tokio", shuttle))]
    pub(super) fn receive(&mut self) -> bool {
        let is_shared = matches!(self.wire, AnyReceiver::SharedMemory(_));
        if !is_shared || self.is_over || self.linger_until.is_some() {
            return false;
        }
        for count in 0..TURN_RECORDS {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return count > 0,
                Err(error) => {
                    // The end of the session wakes the driver's task, whose next turn is its last.
                    let _ = self.finish(error);
                    return true;
                }
            }
        }
        true
    }

    /// Whether the peer notifies this side of its next record over shared memory.
    #[cfg(any(feature = "tokio", shuttle))]
    pub(super) fn is_armed(&self) -> bool {
        matches!(&self.wire, AnyReceiver::SharedMemory(end) if end.is_armed())
    }

    /// Handles the next record. Returns `false` if no record has arrived.
    #[inline]
    fn step(&mut self) -> Result<bool, SessionError> {
        match self.wire.find(false)? {
            Found::Message => {
                self.deliver()?;
                Ok(true)
            }
            Found::Control(record) => {
                self.route(&record)?;
                self.wire.pass(&record);
                Ok(true)
            }
            Found::Nothing => Ok(false),
            Found::End(closed) => Err(self.shared.ended_by_peer(closed)),
        }
    }

    /// Discards the next record of an ended session, so that the peer has room for its own last
    /// records.
    fn discard_next(&mut self) -> Result<bool, SessionError> {
        match self.wire.find(false)? {
            Found::Message => drop(self.wire.take()),
            Found::Control(record) => self.wire.pass(&record),
            Found::Nothing => return Ok(false),
            Found::End(closed) => return Err(SessionError::Closed(closed)),
        }
        Ok(true)
    }

    /// Prepares the driver for blocking. `quiet` says that the driver also polls at intervals while
    /// it blocks.
    pub(crate) fn arm(&mut self, quiet: bool) -> Result<Sleep, Fault> {
        if self.wire.arm(quiet)? {
            return Ok(Sleep::No);
        }
        if std::mem::take(&mut self.is_awake) {
            self.shared.deferred_credit.0.driver_sleeps();
            if !seeded_fault("no_look_for_deferred_credit") {
                self.shared.report_deferred_credit();
            }
        }
        let mut outbox = self.shared.outbox();
        if !outbox.wants_room() {
            return Ok(Sleep::ForRecords);
        }
        // A user that waits for room may not have woken the driver yet. Without this flag, the
        // driver would find the room, not block, and never wake that user.
        self.is_service_due |= !seeded_fault("no_look_for_uncalled");
        Ok(if outbox.arm()? { Sleep::No } else { Sleep::ForBoth })
    }

    /// Sends pending records after room was found, and wakes the users of the session that wait for
    /// room to send.
    pub(crate) fn found_room(&mut self) {
        let mut outbox = self.shared.outbox();
        outbox.disarm();
        // The wakers of the users that wait for room are taken before pending records are sent. A
        // user whose next attempt to send fails registers again, and is woken by room that is freed
        // later.
        let wakers = outbox.take_waiters();
        let flushed = outbox.drain();
        self.shared.leave_outbox(outbox);
        super::state::wake(wakers);
        match flushed {
            Err(unsent) if unsent.is_final() => drop(self.shared.failed(unsent)),
            _ => {}
        }
    }

    /// Returns the deadline for sending the last records of an ended session; the code that runs
    /// the driver must call `turn` by that time.
    pub(crate) const fn linger_until(&self) -> Option<Instant> {
        self.linger_until
    }

    pub(crate) fn records_descriptor(&self) -> BorrowedFd<'_> {
        self.wire.descriptor()
    }

    pub(crate) fn room_descriptor(&self) -> BorrowedFd<'_> {
        self.room.descriptor()
    }

    /// Closes the connection of a session that is over, as far as that is possible without waiting.
    /// The caller calls again after an event of the descriptor that the result names, or at
    /// [`closing_until`](Self::closing_until).
    pub(crate) fn close_step(&mut self) -> Closing {
        let deadline = *self.closing_until.get_or_insert_with(|| Instant::now() + CLOSING_MAX);
        if Instant::now() >= deadline {
            // Dropping the driver, in the thread of an event loop or of tokio, must not wait for
            // the peer once more.
            self.wire.give_up_end();
            return Closing::Done;
        }
        if !self.is_outbox_closed {
            if self.shared.outbox().begin_close() {
                return Closing::ForRoom;
            }
            self.shared.outbox().close();
            self.is_outbox_closed = true;
        }
        if !self.wire.awaits_end() {
            return Closing::Done;
        }
        match self.discard_all() {
            Ok(true) => Closing::ForRecords,
            Ok(false) => Closing::Again,
            Err(_) => Closing::Done,
        }
    }

    /// Returns the time until which [`close_step`](Self::close_step) may ask for another call.
    pub(crate) const fn closing_until(&self) -> Option<Instant> {
        self.closing_until
    }

    /// Discards the records that have arrived, at most `TURN_RECORDS`. Returns whether no record is
    /// left.
    fn discard_all(&mut self) -> Result<bool, SessionError> {
        for _ in 0..TURN_RECORDS {
            if !self.discard_next()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether dropping the driver may block. On a socket, dropping waits for the kernel to accept
    /// bytes. After a connection has moved to shared memory, one of its directions may still be on
    /// the socket.
    #[cfg(feature = "tokio")]
    pub(crate) fn may_linger(&self) -> bool {
        use crate::transport::{LiveTransport, Transport};
        let transport = &self.shared.transport;
        matches!(transport, LiveTransport::Moving(_) | LiveTransport::Fixed(Transport::Socket(_)))
    }

    pub(crate) fn fail(&mut self, fault: Fault) -> Turn {
        self.finish(SessionError::from(fault))
    }

    /// Wakes the users of the session that wait for room to send, if there may be room.
    fn service(&mut self) {
        let outbox = self.shared.outbox();
        self.is_service_due = outbox.wants_room();
        let must_wake = self.is_service_due && outbox.may_have_room();
        self.shared.leave_outbox(outbox);
        if must_wake {
            self.found_room();
        }
    }

    /// Ends the session in good order, after sending pending records as room allows. A living peer
    /// that never reads delays the end by at most `Config::linger`.
    fn leave(&mut self) -> Turn {
        if self.shared.check().is_ok() {
            self.shared.end(SessionError::closed_here());
        }
        let linger = self.linger;
        let farewell = if self.linger_until.is_none() { self.shared.farewell() } else { None };
        let linger_until = *self.linger_until.get_or_insert_with(|| deadline_after(linger));
        self.end_streams();
        self.is_service_due = true;
        let mut outbox = self.shared.outbox();
        if farewell.is_some() {
            outbox.farewell = farewell;
        }
        outbox.leave_session();
        if matches!(outbox.drain(), Err(NotSent::Full)) {
            if Instant::now() < linger_until || seeded_fault("no_bound_on_leaving") {
                return Turn::Idle;
            }
            outbox.give_up();
        }
        drop(outbox);
        self.finish(SessionError::closed_here())
    }

    fn finish(&mut self, error: SessionError) -> Turn {
        self.is_over = true;
        self.shared.end(error);
        self.end_streams();
        Turn::Over
    }

    fn end_streams(&mut self) {
        let Err(error) = self.shared.check() else { return };
        // No credit is reported any more, so users defer none, and the list keeps no stream alive.
        let deferred = &self.shared.deferred_credit.0;
        deferred.driver_sleeps();
        deferred.take().for_each(drop);
        let slots =
            std::mem::take(&mut self.own).into_iter().chain(std::mem::take(&mut self.theirs));
        for slot in slots {
            if let Slot::Open { stream, .. } = slot {
                stream.end(&error);
            }
        }
    }
}

impl Drop for Driver {
    /// Ends the session and wakes every waiter, also when the task that runs the driver is aborted,
    /// or the thread that runs it panics.
    fn drop(&mut self) {
        if !self.is_over {
            // Attempts once to send the pending records, because no turn follows that could repeat
            // the attempt.
            let mut outbox = self.shared.outbox();
            let _ = outbox.drain();
            self.shared.leave_outbox(outbox);
            self.finish(SessionError::closed_here());
        }
        // The outbox is not locked while this thread waits. Users of the session lock the outbox
        // when they drop a stream. The lock would block their threads, which a peer in the same
        // process may need.
        let deadline = self.closing_until.unwrap_or_else(|| Instant::now() + CLOSING_MAX);
        while !self.is_outbox_closed
            && self.shared.outbox().begin_close()
            && Instant::now() < deadline
        {
            if self.room.sleep(Some(deadline)).unwrap_or(true) {
                break;
            }
        }
        self.shared.outbox().close();
        self.wire.close();
        self.shared.finished();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::config::TransportPolicy;
    use crate::error::Closed;
    use crate::handshake::Listener;
    use crate::handshake::establish;
    #[cfg(feature = "tokio")]
    use crate::session::SeatHold;
    use crate::session::outbox::Outbox;
    use crate::session::stream::StreamShared;
    use crate::session::{Handle, Opening, RecvHalf, SendHalf, StreamSendError};
    use partywall_layout::Kind;
    use partywall_layout::hello::SERVICE_SESSION;
    use partywall_layout::record_ring::HEADER_BYTES;
    use partywall_layout::stream::{GoAwayBody, ResetBody, SESSION};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::task::{Context, Poll, Wake};
    use zerocopy::IntoBytes;
    use zerocopy::little_endian::U32;

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Makes two connected sessions for a test: the shared part and the driver of each side.
    fn pair(policy: TransportPolicy) -> [(Arc<SessionShared>, Driver); 2] {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        pair_at(&format!("unix:@partywall-driver-{}-{next}", std::process::id()), policy)
    }

    fn pair_at(address: &str, policy: TransportPolicy) -> [(Arc<SessionShared>, Driver); 2] {
        let config = Config::default().ring_bytes(4096).inline_max(512).transport(policy);
        let config = config.linger(Duration::ZERO);
        let address: crate::Address = address.parse().unwrap();
        let mut listener = Listener::bind_service(address, &config, SERVICE_SESSION).unwrap();
        let address = listener.local_address().clone();
        let theirs = config.clone();
        let connecting = std::thread::spawn(move || {
            establish(&address, &theirs, SERVICE_SESSION, None).unwrap()
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        let accepted = listener.accept_until(Some(deadline)).unwrap();
        let connected = connecting.join().unwrap();
        [Driver::new(connected, &config), Driver::new(accepted, &config)]
    }

    /// Sends records until the ring or socket has no room.
    fn fill(outbox: &mut Outbox) {
        let body = GoAwayBody { code: U32::new(1), flags: U32::new(0) };
        let unsent = loop {
            if let Err(unsent) = outbox.control(Kind::GoAway, SESSION, body.as_bytes()) {
                break unsent;
            }
        };
        assert!(matches!(unsent, NotSent::Full), "{unsent:?}");
    }

    /// Input: a peer that never reads, so the last records of the session find no room, and a
    /// linger time of 0. Expected: the driver ends in its next turn instead of waiting.
    #[test]
    fn peer_that_never_reads_is_not_waited_for_after_the_end() {
        for policy in [TransportPolicy::SharedMemory, TransportPolicy::Socket] {
            let [(shared, mut driver), _theirs] = pair(policy);
            driver.register(Waker::noop());
            assert_eq!(driver.turn(), Turn::Idle);
            fill(&mut shared.outbox());
            shared.ask();
            shared.end(SessionError::closed_here());
            driver.register(Waker::noop());
            assert_eq!(driver.turn(), Turn::Over, "{policy:?}");
        }
    }

    /// Input: a TCP peer that never closes its side of an ended session. Expected: once the driver
    /// has waited for the peer and given up, dropping the driver does not wait for the peer again.
    #[test]
    fn tcp_peer_that_never_closes_is_waited_for_once() {
        let [(shared, mut driver), _theirs] = pair_at("tcp:127.0.0.1:0", TransportPolicy::Socket);
        driver.register(Waker::noop());
        shared.end(SessionError::closed_here());
        driver.register(Waker::noop());
        while driver.turn() != Turn::Over {}
        assert!(matches!(driver.close_step(), Closing::ForRecords));
        assert!(driver.wire.awaits_end());
        driver.closing_until = Some(Instant::now());
        assert!(matches!(driver.close_step(), Closing::Done));
        assert!(!driver.wire.awaits_end());
    }

    /// Input: a driver is dropped while the socket has no room for the record that ends the
    /// session. Expected: users of the session can lock the outbox meanwhile, and once the peer
    /// reads, it receives the record.
    #[test]
    fn driver_that_waits_to_close_locks_nobody_out() {
        let [(shared, mut driver), (their_shared, mut theirs)] = pair(TransportPolicy::Socket);
        driver.register(Waker::noop());
        assert_eq!(driver.turn(), Turn::Idle);
        fill(&mut shared.outbox());
        let dropping = std::thread::spawn(move || drop(driver));
        while !shared.outbox().is_closed() {
            std::thread::yield_now();
        }
        while theirs.turn() != Turn::Over {}
        dropping.join().unwrap();
        let end = their_shared.check().unwrap_err();
        assert!(matches!(end, SessionError::Closed(Closed::Finished)), "{end:?}");
    }

    /// Input: the peer resets a stream that is not in the driver's table yet, and the session ends
    /// before the driver's next turn. Expected: no violation is reported.
    #[test]
    fn closing_right_after_opening_is_no_violation() {
        for policy in [TransportPolicy::SharedMemory, TransportPolicy::Socket] {
            let [(shared, mut driver), (their_shared, mut theirs)] = pair(policy);
            let context = Context::from_waker(Waker::noop());
            let Poll::Ready(Ok(stream)) = shared.poll_number(&context) else { panic!("no number") };
            assert!(shared.poll_open(&context, &stream, b"", &mut None).is_ready());
            assert_eq!(theirs.turn(), Turn::Busy);
            let body = ResetBody { code: U32::new(7), directions: U32::new(1) };
            let mut outbox = their_shared.outbox();
            outbox.control(Kind::Reset, stream.number, body.as_bytes()).unwrap();
            drop(outbox);
            shared.end(SessionError::closed_here());
            driver.register(Waker::noop());
            while driver.turn() != Turn::Over {}
            drop(driver);
            while theirs.turn() != Turn::Over {}
            let end = their_shared.check();
            let is_in_order = matches!(end, Err(SessionError::Closed(Closed::Finished)));
            assert!(is_in_order, "{policy:?}: {end:?}");
        }
    }

    /// Input: a session with an idle memory segment is closed, and then trimmed. Expected: no
    /// record that retires the segment follows the record that ends the session.
    #[test]
    fn trim_after_the_close_writes_nothing() {
        let [(shared, mut driver), (their_shared, mut theirs)] =
            pair(TransportPolicy::SharedMemory);
        let context = Context::from_waker(Waker::noop());
        let (ours, accepting) = (Handle::new(Arc::clone(&shared)), Handle::new(their_shared));
        let opened = ours.poll_open(&context, b"", &mut Opening::default());
        let Poll::Ready(Ok((mut send, _recv))) = opened else { panic!("{opened:?}") };
        assert!(send.poll_send(&context, &[1; 1 << 20]).is_ready());
        while theirs.turn() == Turn::Busy {}
        let Poll::Ready(Ok(Some((_send, mut recv)))) = accepting.poll_accept(&context) else {
            panic!("nothing was opened")
        };
        let received = recv.poll_recv(&context);
        assert!(matches!(&received, Poll::Ready(Ok(Some(_)))), "{received:?}");
        drop(received);
        ours.close(0, "");
        while driver.turn() != Turn::Over {}
        drop(driver);
        let stats = shared.outbox().stats();
        ours.trim();
        assert!(stats.memory_bytes > 1 << 20, "{stats:?}");
        assert_eq!(shared.outbox().stats(), stats);
    }

    /// Opens a stream, and returns it with the accepting side's receiving half. The sending
    /// direction of the accepting side is finished.
    fn opened(
        ours: &Arc<SessionShared>,
        their_shared: &Arc<SessionShared>,
        theirs: &mut Driver,
    ) -> (Arc<StreamShared>, RecvHalf) {
        let context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(stream)) = ours.poll_number(&context) else { panic!("no number") };
        assert!(ours.poll_open(&context, &stream, b"", &mut None).is_ready());
        while theirs.turn() == Turn::Busy {}
        let accepting = Handle::new(Arc::clone(their_shared));
        let Poll::Ready(Ok(Some((send, recv)))) = accepting.poll_accept(&context) else {
            panic!("nothing was opened")
        };
        send.finish();
        (stream, recv)
    }

    /// Input: a RESET with a body of a wrong length (SPEC 11.5). Expected: the record is a
    /// violation on an open stream; on a stream that has ended, the driver drops the record.
    #[test]
    fn record_of_an_ended_stream_is_dropped_without_a_look_at_its_body() {
        for has_ended in [false, true] {
            let [(shared, _driver), (their_shared, mut theirs)] =
                pair(TransportPolicy::SharedMemory);
            let (stream, _recv) = opened(&shared, &their_shared, &mut theirs);
            let mut outbox = shared.outbox();
            if has_ended {
                outbox.control(Kind::CloseWrite, stream.number, &[]).unwrap();
            }
            drop(outbox);
            while theirs.turn() == Turn::Busy {}
            shared.outbox().control(Kind::Reset, stream.number, &[0; 3]).unwrap();
            while theirs.turn() == Turn::Busy {}
            assert_eq!(their_shared.check().is_ok(), has_ended);
        }
    }

    /// Input: messages that exceed the stream's window (SPEC 11.4). Expected: they are a violation,
    /// unless the receiver has reset the direction and therefore drops them.
    #[test]
    fn message_that_is_dropped_after_a_reset_needs_no_credit() {
        for is_stopped in [false, true] {
            let [(shared, _driver), (their_shared, mut theirs)] =
                pair(TransportPolicy::SharedMemory);
            let (stream, recv) = opened(&shared, &their_shared, &mut theirs);
            if is_stopped {
                recv.stop(1);
            }
            let window = usize::try_from(Config::default().stream_window).unwrap();
            for _ in 0..2 {
                let message = vec![1; window / 4 * 3];
                let sent =
                    shared.outbox().send(stream.number, None, |wire| wire.try_send(&message));
                assert!(sent.is_ok(), "{sent:?}");
                while theirs.turn() == Turn::Busy {}
            }
            assert_eq!(their_shared.check().is_ok(), is_stopped);
        }
    }

    /// Input: a message of a stream whose receiver has stopped, or of one that has ended, and then
    /// a message of another stream. Expected: both are consumed once, and the second one arrives.
    #[test]
    fn message_that_is_dropped_is_consumed_once() {
        for policy in [TransportPolicy::SharedMemory, TransportPolicy::Socket] {
            let lens = [5, 3000];
            for (len, has_ended) in lens.iter().flat_map(|len| [(*len, false), (*len, true)]) {
                let [(shared, _driver), (their_shared, mut theirs)] = pair(policy);
                // Each call of `opened` drops a handle of the accepting session.
                their_shared.add_user(true);
                let (dropped, stopped) = opened(&shared, &their_shared, &mut theirs);
                let (kept, mut recv) = opened(&shared, &their_shared, &mut theirs);
                if has_ended {
                    shared.outbox().control(Kind::CloseWrite, dropped.number, &[]).unwrap();
                    while theirs.turn() == Turn::Busy {}
                } else {
                    stopped.stop(1);
                }
                let before = theirs.wire.stats();
                for stream in [&dropped, &kept] {
                    let mut outbox = shared.outbox();
                    outbox.send(stream.number, None, |wire| wire.try_send(&vec![7; len])).unwrap();
                }
                let busy = (0..100).filter(|_| theirs.turn() == Turn::Busy).count();
                assert!((1..100).contains(&busy), "{policy:?}, {len}: {busy}");
                let after = theirs.wire.stats();
                assert_eq!(after.messages - before.messages, 2, "{policy:?}, {len}");
                assert_eq!(after.bytes - before.bytes, 2 * len as u64, "{policy:?}, {len}");
                assert!(their_shared.check().is_ok());
                let context = Context::from_waker(Waker::noop());
                let received = recv.poll_recv(&context);
                assert!(
                    matches!(&received, Poll::Ready(Ok(Some(message))) if message.len() == len)
                );
                assert!(recv.poll_recv(&context).is_pending());
            }
        }
    }

    /// Input: a user answers a message, takes the next one, which uses up the credit, and does
    /// nothing more; the driver never sleeps. Expected: no credit is reported at once, a later turn
    /// of the driver reports it, and an answer before that carries it.
    #[test]
    fn driver_that_never_sleeps_reports_deferred_credit() {
        for answers_again in [false, true] {
            let mut stream = AnsweredStream::open(true);
            stream.take_next();
            assert!(!stream.has_credit(), "no credit is reported yet");
            if answers_again {
                stream.answer();
            } else {
                (0..=DEFERRED_TURNS).for_each(|_| assert_eq!(stream.drivers[1].turn(), Turn::Idle));
            }
            assert!(stream.has_credit(), "answers again: {answers_again}");
        }
    }

    /// Input: as before, but each turn of the driver finds a record of another stream. Expected:
    /// the driver reports the credit all the same.
    #[test]
    fn driver_that_is_always_busy_reports_deferred_credit() {
        let context = Context::from_waker(Waker::noop());
        let mut stream = AnsweredStream::open(true);
        let other = stream.sessions[0].poll_open(&context, b"", &mut Opening::default());
        let Poll::Ready(Ok((mut other, _recv))) = other else { panic!("{other:?}") };
        stream.take_next();
        for _ in 0..=DEFERRED_RECORDS {
            assert!(other.poll_send(&context, &[4]).is_ready());
            assert_eq!(stream.drivers[1].turn(), Turn::Busy);
        }
        assert!(stream.has_credit());
    }

    /// Input: as before, but an event loop runs the driver, or a further answer could not be sent.
    /// Expected: the credit is reported at once.
    #[test]
    fn credit_waits_only_for_an_answer_and_a_driver_that_runs_by_itself() {
        let mut stream = AnsweredStream::open(false);
        stream.take_next();
        assert!(stream.has_credit());
        let mut stream = AnsweredStream::open(true);
        let longest = usize::try_from(stream.drivers[1].message_max).unwrap();
        let context = Context::from_waker(Waker::noop());
        let sent = stream.answering.0.poll_send_whole(&context, &vec![3; longest + 1]);
        assert!(matches!(sent, Poll::Ready(Err(StreamSendError::TooLarge(_)))), "{sent:?}");
        stream.take_next();
        assert!(stream.has_credit());
    }

    /// Input: a task waits for a message, then another task looks for one with the same handle, and
    /// then the first again. Expected: each look that finds nothing begins a wait of its own task.
    #[test]
    fn task_that_looks_last_is_woken() {
        let [(shared, _driver), (their_shared, mut theirs)] = pair(TransportPolicy::SharedMemory);
        let (stream, mut recv) = opened(&shared, &their_shared, &mut theirs);
        let flags: [_; 2] = std::array::from_fn(|_| Arc::new(Flag::default()));
        let wakers = flags.each_ref().map(|flag| Waker::from(Arc::clone(flag)));
        for last in [0, 0, 1, 0] {
            let mut context = Context::from_waker(&wakers[last]);
            assert!(recv.poll_recv(&context).is_pending());
            shared.outbox().send(stream.number, None, |wire| wire.try_send(&[1])).unwrap();
            while theirs.turn() == Turn::Busy {}
            assert!(flags[last].0.swap(false, Ordering::SeqCst), "the task that looked is woken");
            assert!(!flags[1 - last].0.load(Ordering::SeqCst));
            assert!(matches!(recv.poll_recv(&context), Poll::Ready(Ok(Some(_)))));
            context = Context::from_waker(&wakers[1 - last]);
            assert!(recv.poll_recv(&context).is_pending());
        }
    }

    /// Input: a user takes messages for a quarter of the window, which makes no credit due, and
    /// sends a message. Expected: that message carries the credit, and one after less does not.
    #[test]
    fn message_carries_credit_from_a_quarter_of_the_window() {
        let mut stream = AnsweredStream::open(false);
        let context = Context::from_waker(Waker::noop());
        let eighth = Config::default().stream_window / 8;
        let message = vec![1; usize::try_from(eighth - HEADER_BYTES).unwrap()];
        let mut credited = Vec::new();
        for _ in 0..5 {
            while stream.drivers[0].turn() == Turn::Busy {}
            credited.push(stream.asking.0.stream.lock().send_credit.credited());
            assert!(stream.asking.0.poll_send(&context, &message).is_ready());
            while stream.drivers[1].turn() == Turn::Busy {}
            assert!(matches!(stream.answering.1.poll_recv(&context), Poll::Ready(Ok(Some(_)))));
            stream.answer();
        }
        let taken = [0, 0, 2, 2, 4].map(|count| credited[0] + count * eighth);
        assert_eq!(credited, taken);
    }

    /// A stream on which one side sends messages that use up the credit, and the other side has
    /// answered the first of them.
    struct AnsweredStream {
        drivers: [Driver; 2],
        asking: (SendHalf, RecvHalf),
        answering: (SendHalf, RecvHalf),
        sessions: [Handle; 2],
    }

    impl AnsweredStream {
        fn open(defers_credit: bool) -> Self {
            let [(shared, driver), (their_shared, mut theirs)] =
                pair(TransportPolicy::SharedMemory);
            if defers_credit {
                theirs.defer_credit();
            }
            let sessions = [Handle::new(shared), Handle::new(their_shared)];
            let context = Context::from_waker(Waker::noop());
            let opened = sessions[0].poll_open(&context, b"", &mut Opening::default());
            let Poll::Ready(Ok(asking)) = opened else { panic!("{opened:?}") };
            while theirs.turn() == Turn::Busy {}
            let Poll::Ready(Ok(Some(answering))) = sessions[1].poll_accept(&context) else {
                panic!("nothing was opened")
            };
            let mut stream = Self { drivers: [driver, theirs], asking, answering, sessions };
            stream.take_next();
            stream.answer();
            stream
        }

        /// Sends a long message, which needs credit, and takes it.
        fn take_next(&mut self) {
            let context = Context::from_waker(Waker::noop());
            assert!(self.has_credit());
            while self.drivers[1].turn() == Turn::Busy {}
            let taken = self.answering.1.poll_recv(&context);
            assert!(matches!(taken, Poll::Ready(Ok(Some(_)))), "{taken:?}");
        }

        fn answer(&mut self) {
            let context = Context::from_waker(Waker::noop());
            assert!(self.answering.0.poll_send(&context, &[2; 100]).is_ready());
        }

        /// Attempts to send a long message. Returns whether there was credit.
        fn has_credit(&mut self) -> bool {
            let context = Context::from_waker(Waker::noop());
            while self.drivers[0].turn() == Turn::Busy {}
            let sent = self.asking.0.poll_send(&context, &[1; LONG]);
            if sent.is_pending() {
                self.asking.0.give_back();
            }
            sent.is_ready()
        }
    }

    /// Length of a message that uses up the credit of a stream.
    const LONG: usize = 512 << 10;

    /// Input: a user that waits for room unlocks the outbox and has not yet woken the driver; the
    /// driver finds room in between. Expected: the driver wakes the user, instead of turning for
    /// ever.
    #[test]
    fn waiter_for_room_is_woken_before_it_wakes_the_driver() {
        for policy in [TransportPolicy::SharedMemory, TransportPolicy::Socket] {
            let [(shared, mut driver), (_their_shared, mut theirs)] = pair(policy);
            driver.register(Waker::noop());
            assert_eq!(driver.turn(), Turn::Idle);
            let mut outbox = shared.outbox();
            fill(&mut outbox);
            let flag = Arc::new(Flag::default());
            let waker = Waker::from(Arc::clone(&flag));
            outbox.await_room(&mut None, &Context::from_waker(&waker));
            shared.leave_outbox(outbox);
            while theirs.turn() == Turn::Busy {}
            theirs.arm(false).unwrap();
            assert_eq!(driver.turn(), Turn::Idle);
            assert_eq!(driver.arm(false).unwrap(), Sleep::No);
            assert_eq!(driver.turn(), Turn::Idle);
            assert!(flag.0.load(Ordering::SeqCst), "{policy:?}");
        }
    }

    /// Input: a user takes the record for which the task of its session armed the driver. Expected:
    /// the user wakes the task, because the peer takes this side for awake and does not notify it.
    #[cfg(feature = "tokio")]
    #[test]
    fn user_that_takes_records_wakes_the_sleeping_task() {
        let [(shared, driver), (their_shared, mut theirs)] = pair(TransportPolicy::SharedMemory);
        let (flag, seat) = (Arc::new(Flag::default()), SeatHold::new(driver));
        let waker = Waker::from(Arc::clone(&flag));
        let mut guard = seat.try_lock().unwrap();
        let seated = guard.get().unwrap();
        seated.driver.register(&waker);
        assert_eq!(seated.driver.turn(), Turn::Idle);
        assert_eq!(seated.driver.arm(false).unwrap(), Sleep::ForRecords);
        seated.is_asleep = true;
        assert!(!shared.receive(), "the task holds the seat");
        drop(guard);
        assert!(!shared.receive(), "nothing has come");
        assert!(!flag.0.load(Ordering::SeqCst));
        let (context, opener) = (Context::from_waker(Waker::noop()), Handle::new(their_shared));
        let opened = opener.poll_open(&context, b"", &mut Opening::default());
        assert!(matches!(opened, Poll::Ready(Ok(_))), "{opened:?}");
        assert!(shared.receive());
        assert!(flag.0.load(Ordering::SeqCst));
        assert!(!shared.receive(), "the record was taken");
        drop(seat);
        while theirs.turn() != Turn::Over {}
    }

    /// Input: the peer retires memory while the task sleeps, and a user takes that record.
    /// Expected: the user learns of no record, and wakes the task.
    #[cfg(feature = "tokio")]
    #[test]
    fn user_that_takes_a_record_about_memory_wakes_the_sleeping_task() {
        let [(shared, driver), (their_shared, _theirs)] = pair(TransportPolicy::SharedMemory);
        let (flag, seat) = (Arc::new(Flag::default()), SeatHold::new(driver));
        let context = Context::from_waker(Waker::noop());
        let (ours, theirs) = (Handle::new(Arc::clone(&shared)), Handle::new(their_shared));
        let opened = theirs.poll_open(&context, b"", &mut Opening::default());
        let Poll::Ready(Ok((mut send, _recv))) = opened else { panic!("{opened:?}") };
        assert!(send.poll_send(&context, &[1; 1 << 20]).is_ready());
        while shared.receive() {}
        let Poll::Ready(Ok(Some((_send, mut recv)))) = ours.poll_accept(&context) else {
            panic!("nothing was opened")
        };
        let received = recv.poll_recv(&context);
        assert!(matches!(&received, Poll::Ready(Ok(Some(_)))), "{received:?}");
        drop(received);
        let mut guard = seat.try_lock().unwrap();
        let seated = guard.get().unwrap();
        seated.driver.register(&Waker::from(Arc::clone(&flag)));
        while seated.driver.turn() == Turn::Busy {}
        assert_eq!(seated.driver.arm(false).unwrap(), Sleep::ForRecords);
        seated.is_asleep = true;
        drop(guard);
        flag.0.store(false, Ordering::SeqCst);
        theirs.trim();
        assert!(!shared.receive(), "no record of a stream");
        assert!(flag.0.load(Ordering::SeqCst));
    }

    /// Input: a user takes records, and a waker that it calls panics. Expected: the task is woken
    /// and learns that the driver is lost, and other users take no records.
    #[cfg(feature = "tokio")]
    #[test]
    fn user_that_panics_leaves_the_end_of_the_session_to_the_task() {
        struct Panicking;
        impl Wake for Panicking {
            fn wake(self: Arc<Self>) {
                panic!("this waker panics");
            }
        }
        let [(shared, driver), (their_shared, _theirs)] = pair(TransportPolicy::SharedMemory);
        let (flag, seat) = (Arc::new(Flag::default()), SeatHold::new(driver));
        let waker = Waker::from(Arc::clone(&flag));
        seat.try_lock().unwrap().get().unwrap().driver.register(&waker);
        let (accepting, opener) = (Handle::new(Arc::clone(&shared)), Handle::new(their_shared));
        let panicking = Waker::from(Arc::new(Panicking));
        assert!(accepting.poll_accept(&Context::from_waker(&panicking)).is_pending());
        let context = Context::from_waker(Waker::noop());
        let opened = opener.poll_open(&context, b"", &mut Opening::default());
        assert!(matches!(opened, Poll::Ready(Ok(_))), "{opened:?}");
        assert!(!seat.is_lost());
        let taking = std::panic::AssertUnwindSafe(|| shared.receive());
        assert!(std::panic::catch_unwind(taking).is_err());
        assert!(flag.0.load(Ordering::SeqCst) && seat.is_lost());
        assert!(seat.try_lock().is_none() && !shared.receive());
        drop(seat);
        assert!(shared.check().is_err());
    }

    /// Input: a user takes the record that ends the session. Expected: the task is woken, and its
    /// next turn is its last.
    #[cfg(feature = "tokio")]
    #[test]
    fn user_that_takes_the_end_of_the_session_wakes_the_task() {
        let [(shared, driver), (their_shared, mut theirs)] = pair(TransportPolicy::SharedMemory);
        let (flag, seat) = (Arc::new(Flag::default()), SeatHold::new(driver));
        let waker = Waker::from(Arc::clone(&flag));
        seat.try_lock().unwrap().get().unwrap().driver.register(&waker);
        their_shared.end(SessionError::closed_here());
        while theirs.turn() != Turn::Over {}
        drop(theirs);
        while shared.check().is_ok() {
            shared.receive();
        }
        assert!(flag.0.load(Ordering::SeqCst));
        assert!(!shared.receive(), "the session is over");
        let mut driver = seat.take().unwrap();
        assert_eq!(driver.turn(), Turn::Over);
    }

    /// Input: the session is closed while an answer of the peer waits to be received, and the
    /// driver has not noticed the close yet. Expected: the driver does not take the answer for a
    /// violation.
    #[test]
    fn answer_during_close_is_no_violation() {
        for policy in [TransportPolicy::SharedMemory, TransportPolicy::Socket] {
            let [(shared, mut driver), (their_shared, mut theirs)] = pair(policy);
            let context = Context::from_waker(Waker::noop());
            let (ours, accepting) = (Handle::new(shared), Handle::new(Arc::clone(&their_shared)));
            let opened = ours.poll_open(&context, b"", &mut Opening::default());
            assert!(matches!(opened, Poll::Ready(Ok(_))), "{opened:?}");
            while theirs.turn() == Turn::Busy {}
            let Poll::Ready(Ok(Some((mut send, _recv)))) = accepting.poll_accept(&context) else {
                panic!("nothing was opened")
            };
            let sent = send.poll_send(&context, b"answer");
            assert!(matches!(sent, Poll::Ready(Ok(()))), "{sent:?}");
            ours.close(0, "");
            while driver.turn() != Turn::Over {}
            drop(driver);
            while theirs.turn() != Turn::Over {}
            let end = their_shared.check();
            let is_in_order = matches!(end, Err(SessionError::Closed(Closed::Finished)));
            assert!(is_in_order, "{policy:?}: {end:?}");
        }
    }
}
