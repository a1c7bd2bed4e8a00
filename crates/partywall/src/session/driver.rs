// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end of a session: takes records in order and hands them to their streams.
//!
//! ```text
//!   turn ─▶ find ─┬─ a message ──────▶ its stream's queue, and whoever waits there is woken
//!                 ├─ of a stream ────▶ routing.rs: OPEN, ends, credit, fragments
//!                 ├─ of the session ─▶ PING, GO_AWAY
//!                 └─ the end ────────▶ everybody is told
//! ```
//!
//! It never waits for room, for a user, or for anything else (SPEC 11.7): a front calls `turn` as long
//! as it is busy, then `arm`, and sleeps. Who drives it is the front's affair: a task, or a thread.

use super::error::SessionError;
use super::routing::Slot;
use super::shared::SessionShared;
use crate::channel::AnyReceiver;
use crate::config::Config;
use crate::error::Fault;
use crate::handshake::Established;
use crate::transport::{Found, SpaceWaiter, Unsent};
use partywall_layout::seeded_fault;
use partywall_wait::deadline_after;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The one who receives for a session.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(super) shared: Arc<SessionShared>,
    pub(super) wire: AnyReceiver,
    room: Arc<dyn SpaceWaiter>,
    /// Streams by index: those we opened, those the other side did.
    pub(super) own: Vec<Slot>,
    pub(super) theirs: Vec<Slot>,
    pub(super) message_max: u64,
    /// The session is over here, but what is owed has found no room yet: until when it may wait for some.
    linger_until: Option<Instant>,
    linger: Duration,
    /// Somebody asked for something that is no record, or room is wanted: see to it in each turn.
    is_service_due: bool,
    is_over: bool,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something was there: there may be more.
    Busy,
    /// Nothing is there now.
    Idle,
    /// The session is over, and everybody was told.
    Over,
}

/// What `arm` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Something is there already.
    No,
    /// Sleep until records come.
    ForRecords,
    /// Sleep until records or room come.
    ForBoth,
}

/// So many records in one turn at most: others want the thread, too.
const TURN_RECORDS: usize = 256;

impl Driver {
    /// A session over a fresh connection.
    pub(crate) fn new(established: Established, config: &Config) -> (Arc<SessionShared>, Self) {
        let room = established.sender.space();
        let (shared, wire) = SessionShared::new(established, config);
        let driver = Self {
            message_max: wire.message_max(),
            shared: Arc::clone(&shared),
            wire,
            room,
            own: Vec::new(),
            theirs: Vec::new(),
            linger_until: None,
            linger: config.linger,
            is_service_due: true,
            is_over: false,
        };
        (shared, driver)
    }

    /// By whom to be called for when something is to be done that is no record.
    pub(crate) fn register(&mut self, waker: &Waker) {
        self.is_service_due |= self.shared.register_driver(waker);
    }

    /// Hands on what is there.
    pub(crate) fn turn(&mut self) -> Turn {
        if self.is_over {
            return Turn::Over;
        }
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
        if self.is_service_due {
            self.service();
            if self.shared.check().is_err() || self.shared.is_abandoned() {
                let left = self.leave();
                // One who writes without pause, and never reads, does not keep the thread from others.
                return if left == Turn::Idle && count > 0 { Turn::Busy } else { left };
            }
        }
        if count > 0 {
            return Turn::Busy;
        }
        // One who never sleeps is told of a death by nobody else.
        match self.wire.notice_end() {
            Ok(false) => Turn::Idle,
            Ok(true) => Turn::Busy,
            Err(fault) => self.fail(fault),
        }
    }

    /// Acts on the next record; `false` if there is none.
    #[inline]
    fn step(&mut self) -> Result<bool, SessionError> {
        match self.wire.find(false)? {
            Found::Message => {
                let (number, credit) = (self.wire.stream(), self.wire.take_credit());
                let message = self.wire.take();
                self.deliver(number, message, credit)?;
                Ok(true)
            }
            Found::Control(record) => {
                self.route(&record)?;
                self.wire.pass(&record);
                Ok(true)
            }
            Found::Nothing => Ok(false),
            Found::End(closed) => Err(SessionError::Closed(closed)),
        }
    }

    /// Takes the next record for nobody: the other side must find room for its own last ones.
    fn discard_next(&mut self) -> Result<bool, SessionError> {
        match self.wire.find(false)? {
            Found::Message => drop(self.wire.take()),
            Found::Control(record) => self.wire.pass(&record),
            Found::Nothing => return Ok(false),
            Found::End(closed) => return Err(SessionError::Closed(closed)),
        }
        Ok(true)
    }

    /// Declares that the driver is about to sleep; a `quiet` one looks again by itself.
    pub(crate) fn arm(&mut self, quiet: bool) -> Result<Sleep, Fault> {
        if self.wire.arm(quiet)? {
            return Ok(Sleep::No);
        }
        let mut outbox = self.shared.outbox();
        if !outbox.wants_room() {
            return Ok(Sleep::ForRecords);
        }
        // Whoever wants room may not have called yet: the next turn must look all the same. Else a front
        // that turns and arms would find room here, and nobody would ever be told of it.
        self.is_service_due |= !seeded_fault("no_look_for_uncalled");
        Ok(if outbox.arm()? { Sleep::No } else { Sleep::ForBoth })
    }

    /// There may be room: writes what is owed, and wakes those who wait for it.
    pub(crate) fn found_room(&mut self) {
        let mut outbox = self.shared.outbox();
        outbox.disarm();
        // Taken first: what is still without room is then waited for from this look on.
        let wakers = outbox.take_waiters();
        let flushed = outbox.drain();
        self.shared.leave_outbox(outbox);
        super::state::wake(wakers);
        if let Err(unsent @ (Unsent::Closed(_) | Unsent::Fault(_))) = flushed {
            let _ = self.shared.failed(unsent);
        }
    }

    /// When to turn again at the latest, whatever comes or does not.
    pub(crate) const fn linger_until(&self) -> Option<Instant> {
        self.linger_until
    }

    /// The descriptor that becomes readable when records come.
    pub(crate) fn records_descriptor(&self) -> BorrowedFd<'_> {
        self.wire.descriptor()
    }

    /// The descriptor that becomes readable when room comes.
    pub(crate) fn room_descriptor(&self) -> BorrowedFd<'_> {
        self.room.descriptor()
    }

    /// Whether dropping it may take a while: on a socket, what was sent and not taken yet waits for room.
    #[cfg(feature = "tokio")]
    pub(crate) fn may_linger(&self) -> bool {
        matches!(self.shared.transport, crate::transport::Transport::Socket(_))
    }

    /// A system call failed that must not.
    pub(crate) fn fail(&mut self, fault: Fault) -> Turn {
        self.finish(SessionError::from(fault))
    }

    /// Somebody waits for room: tells them when there is some.
    fn service(&mut self) {
        let outbox = self.shared.outbox();
        self.is_service_due = outbox.wants_room();
        let must_wake = self.is_service_due && outbox.may_have_room();
        self.shared.leave_outbox(outbox);
        if must_wake {
            self.found_room();
        }
    }

    /// Closes in good order: what is owed goes first, as soon as there is room for it. One who lives and never
    /// reads is not waited for longer than `Config::linger`.
    fn leave(&mut self) -> Turn {
        if self.shared.check().is_ok() {
            self.shared.end(SessionError::closed_here());
        }
        let linger = self.linger;
        let linger_until = *self.linger_until.get_or_insert_with(|| deadline_after(linger));
        self.end_streams();
        self.is_service_due = true;
        let mut outbox = self.shared.outbox();
        outbox.leave_session();
        if matches!(outbox.drain(), Err(Unsent::Full)) {
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

    /// The session is over for all streams.
    fn end_streams(&mut self) {
        let Err(error) = self.shared.check() else { return };
        let slots =
            std::mem::take(&mut self.own).into_iter().chain(std::mem::take(&mut self.theirs));
        for slot in slots {
            if let Slot::Open(stream) = slot {
                stream.end(&error);
            }
        }
    }
}

impl Drop for Driver {
    /// Also when the front's task was aborted, or its thread panicked: nobody waits for ever.
    fn drop(&mut self) {
        if !self.is_over {
            // Once, and without waiting: nobody would turn it again.
            let mut outbox = self.shared.outbox();
            let _ = outbox.drain();
            self.shared.leave_outbox(outbox);
            self.finish(SessionError::closed_here());
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
    use crate::session::outbox::Outbox;
    use crate::session::{Handle, Opening};
    use partywall_layout::Kind;
    use partywall_layout::hello::SERVICE_SESSION;
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

    /// Cores and drivers of both sides.
    fn pair(policy: TransportPolicy) -> [(Arc<SessionShared>, Driver); 2] {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let config = Config::default().ring_bytes(4096).inline_max(512).transport(policy);
        let config = config.linger(Duration::ZERO);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("unix:@partywall-driver-{}-{next}", std::process::id());
        let address: crate::Address = name.parse().unwrap();
        let mut listener =
            Listener::bind_service(address.clone(), &config, SERVICE_SESSION).unwrap();
        let theirs = config.clone();
        let connecting = std::thread::spawn(move || {
            establish(&address, &theirs, SERVICE_SESSION, None).unwrap()
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        let accepted = listener.accept_until(Some(deadline)).unwrap();
        let connected = connecting.join().unwrap();
        [Driver::new(connected, &config), Driver::new(accepted, &config)]
    }

    /// Leaves no room at all.
    fn fill(outbox: &mut Outbox) {
        let body = GoAwayBody { code: U32::new(1), zero: U32::new(0) };
        let unsent = loop {
            if let Err(unsent) = outbox.control(Kind::GoAway, SESSION, body.as_bytes()) {
                break unsent;
            }
        };
        assert!(matches!(unsent, Unsent::Full), "{unsent:?}");
    }

    /// What it still has to say would keep the driver for ever.
    #[test]
    fn one_who_never_reads_is_not_waited_for_after_the_end() {
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

    /// A record of a stream that the driver has not met comes between the end and its next look.
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

    /// Who waits for room lets the outbox go before it calls the driver. A driver that finds the room in
    /// between must not turn for ever without telling.
    #[test]
    fn one_who_waits_for_room_is_woken_before_it_has_called() {
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

    /// A stream was opened, and its answer is there, when the session is closed: the driver, which has not learned
    /// of the end yet, must not take the answer for one to nothing and break off.
    #[test]
    fn an_answer_that_comes_as_the_session_closes_is_no_violation() {
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
