// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all users of a session and its driver share.
//!
//! ```text
//!   Handle, SendHalf, RecvHalf ──▶ Core ◀── Driver
//!                                   ├─ outbox    one at a time writes
//!                                   ├─ streams   numbers in use, new ones, those not accepted yet
//!                                   └─ driver    its waker: called for when room is wanted
//! ```
//!
//! Nothing in here waits: what cannot be done now registers a waker. Fronts turn that into futures or
//! into blocking calls.

use super::error::{OpenError, SessionError};
use super::outbox::Outbox;
use super::state::{SessionState, wake};
use super::stream::{StreamShared, Terms};
use super::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use crate::channel::AnyReceiver;
use crate::config::{BackPressure, Config};
use crate::error::{Closed, Fault};
use crate::handshake::Established;
use crate::peer::Peer;
use crate::transport::protocol::WINDOW;
use crate::transport::{STREAM_INLINE_MAX, Transport, Unsent};
use partywall_layout::Kind;
use partywall_layout::seeded_fault;
use partywall_layout::stream::{REFUSED, number};
use partywall_sys::ForkGuard;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What a session is made of, besides its driver.
pub(crate) struct SessionShared {
    outbox: CachePadded<Mutex<Outbox>>,
    state: CachePadded<Mutex<SessionState>>,
    /// The driver, and whether it is called for: somebody wants room, or nobody anything any more.
    driver: CachePadded<Mutex<DriverWakeup>>,
    end: OnceLock<SessionError>,
    /// Of the process whose driver this is: in a child of it nobody would ever be woken.
    guard: ForkGuard,
    pub(crate) peer: Peer,
    pub(crate) transport: Transport,
    pub(super) policy: BackPressure,
    /// Messages up to this many bytes are copied into the ring.
    pub(super) inline_max: usize,
    /// How many streams may be open before those that the other side opens are refused: for protocols, whose
    /// other side is told of no limit.
    streams_max: usize,
    pub(super) is_foreign: bool,
    /// The other side may open streams.
    peer_opens: bool,
    pub(super) is_acceptor: bool,
    pub(super) terms: Terms,
}

/// In cache lines of its own: what one thread writes all the time, another only reads beside it.
#[derive(Debug)]
#[repr(align(128))]
struct CachePadded<T>(T);

/// How the driver is called.
#[derive(Debug, Default)]
struct DriverWakeup {
    waker: Option<Waker>,
    is_woken: bool,
}

/// Whom it connects, and no more: the rings alone would fill pages.
impl fmt::Debug for SessionShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("peer", &self.peer)
            .field("transport", &self.transport)
            .field("end", &self.end.get())
            .finish_non_exhaustive()
    }
}

impl SessionShared {
    /// Takes a connection apart: the sending end goes behind a lock, the receiving end to the driver.
    pub(super) fn new(established: Established, config: &Config) -> (Arc<Self>, AnyReceiver) {
        let Established { mut sender, mut receiver, peer, transport, is_acceptor, peer_streams } =
            established;
        receiver.enable_streams();
        sender.enable_streams();
        let is_foreign = matches!(transport, Transport::Protocol(_));
        let terms = Terms {
            send_window: peer_streams.window,
            // The other side of a protocol knows of neither limit. What it opens beyond is refused; only if it does not
            // listen to that, and opens more and more, it is given up.
            recv_window: if is_foreign { WINDOW } else { config.stream_window },
            accepts_max: match config.streams_max_effective() {
                streams_max if is_foreign => streams_max.saturating_add(REFUSED_MAX),
                streams_max => streams_max,
            },
        };
        let state = SessionState::new(peer_streams.streams_max);
        let shared = Self {
            outbox: CachePadded(Mutex::new(Outbox::new(sender))),
            state: CachePadded(Mutex::new(state)),
            driver: CachePadded(Mutex::new(DriverWakeup::default())),
            end: OnceLock::new(),
            guard: ForkGuard::current(),
            peer,
            transport,
            policy: config.back_pressure,
            // Where there is no ring for short messages, they lie where long ones do.
            inline_max: if is_foreign { 0 } else { config.inline_max.min(STREAM_INLINE_MAX) },
            streams_max: config.streams_max_effective() as usize,
            is_foreign,
            peer_opens: peer_streams.opens,
            is_acceptor,
            terms,
        };
        (Arc::new(shared), receiver)
    }

    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the session is over, if it is.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), SessionError> {
        match self.end.get() {
            None => self.check_process(),
            Some(end) => Err(end.clone()),
        }
    }

    /// That this is not a forked child: every use asks this first (SPEC 7.3).
    #[inline]
    pub(super) fn check_process(&self) -> Result<(), SessionError> {
        if self.guard.is_child() {
            return Err(Fault::Forked.into());
        }
        Ok(())
    }

    /// The session is over; the first reason counts. Everybody who waits is told.
    pub(super) fn end(&self, error: SessionError) {
        let error = self.end.get_or_init(|| error);
        let mut state = self.state();
        state.is_over = true;
        // Left there: records of these may come before the driver hears of the end.
        let fresh = state.fresh.clone();
        // What the other side had sent before it closed can still be accepted, and received.
        let is_kept = matches!(error, SessionError::Closed(_));
        let refused = if is_kept { VecDeque::new() } else { std::mem::take(&mut state.waiting) };
        let waiting: Vec<_> = state.waiting.iter().chain(&refused).map(Arc::clone).collect();
        let mut wakers = state.openers.take();
        wakers.extend(state.accepters.take());
        wakers.extend(state.others.take());
        drop(state);
        wakers.extend(self.outbox().take_waiters());
        for stream in fresh.iter().chain(&waiting) {
            stream.end(error);
        }
        wake(wakers);
        self.wake_driver();
    }

    /// The driver has ended: what was sent and owed was written, or never will be.
    pub(super) fn finished(&self) {
        let mut state = self.state();
        state.has_finished = true;
        let wakers = state.others.take();
        drop(state);
        wake(wakers);
    }

    /// What an attempt to send came to, where it failed for good: the session is over.
    pub(super) fn failed(&self, unsent: Unsent) -> SessionError {
        match unsent {
            Unsent::Fault(fault) => self.end(SessionError::Fault(Arc::new(fault))),
            // What was received before is still delivered: the driver tells when all is.
            Unsent::Closed(closed) => {
                let waiters = self.outbox().take_waiters();
                wake(waiters);
                self.wake_driver();
                return self.end.get().cloned().unwrap_or(SessionError::Closed(closed));
            }
            // Neither ends a session; not asked here.
            Unsent::Full | Unsent::TooLarge(_) => {}
        }
        self.end.get().cloned().unwrap_or(SessionError::Closed(Closed::Disconnected))
    }

    /// Notes the driver's waker; whether it was called for since the last time.
    pub(super) fn register_driver(&self, waker: &Waker) -> bool {
        let mut driver = self.driver.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut driver.waker {
            Some(known) => known.clone_from(waker),
            None => driver.waker = Some(waker.clone()),
        }
        std::mem::take(&mut driver.is_woken)
    }

    /// There is something for the driver to see to.
    pub(super) fn wake_driver(&self) {
        let mut driver = self.driver.0.lock().unwrap_or_else(PoisonError::into_inner);
        driver.is_woken = true;
        let waker = driver.waker.clone();
        drop(driver);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Writes what a stream owes, now or as soon as there is room.
    pub(super) fn send_pending(&self, stream: &Arc<StreamShared>) {
        let state = stream.lock();
        if state.is_listed || !state.has_pending() {
            return;
        }
        drop(state);
        let mut outbox = self.outbox();
        // Listed under the outbox's lock: else a message of this stream could still slip in before.
        outbox.list(stream);
        let flushed = outbox.flush();
        self.leave_outbox(outbox);
        self.settle(flushed);
    }

    /// What is owed goes as soon as there is room.
    pub(super) fn settle(&self, flushed: Result<(), Unsent>) {
        match flushed {
            Ok(()) => {}
            Err(Unsent::Full) => self.wake_driver(),
            Err(unsent) => {
                let _ = self.failed(unsent);
            }
        }
    }

    /// A number for a new stream. The driver does not know it before OPEN is written: a number that is
    /// given back leaves nothing behind.
    pub(super) fn poll_number(
        &self,
        context: &Context<'_>,
    ) -> Poll<Result<Arc<StreamShared>, OpenError>> {
        self.check_process()?;
        let mut state = self.state();
        if state.is_over {
            drop(state);
            self.check()?;
        } else if let Some(code) = state.going_away {
            return Poll::Ready(Err(OpenError::GoingAway { code }));
        } else if let Some(index) = state.numbers.take() {
            let number = number(index, self.is_acceptor);
            state.live += 1;
            return Poll::Ready(Ok(Arc::new(self.stream(number, true, Box::default()))));
        } else if state.numbers.is_nothing() {
            drop(state);
            if self.is_acceptor {
                self.check_supported(
                    "streams that the accepting side opens, only such of the connecting side",
                )?;
            }
            return Poll::Ready(Err(OpenError::NoStreams));
        } else {
            let woken = state.openers.register(context);
            drop(state);
            wake(woken);
        }
        Poll::Pending
    }

    /// Writes OPEN.
    pub(super) fn poll_open(
        &self,
        context: &Context<'_>,
        stream: &Arc<StreamShared>,
        metadata: &[u8],
        ticket: &mut Option<u64>,
    ) -> Poll<Result<(), SessionError>> {
        self.check()?;
        let mut outbox = self.outbox();
        match outbox.control(Kind::Open, stream.number, metadata) {
            Ok(()) => {
                // Before the outbox is let go: the driver takes it to meet who answers (`add_fresh`).
                let mut state = self.state();
                state.fresh.push(Arc::clone(stream));
                let is_over = state.is_over;
                drop(state);
                self.leave_outbox(outbox);
                if is_over && !seeded_fault("no_look_after_open") {
                    // Whoever ended the session may have looked before. It is open all the same: the
                    // other side has its number, and may end it.
                    if let Err(error) = self.check() {
                        stream.end(&error);
                    }
                }
                Poll::Ready(Ok(()))
            }
            Err(Unsent::Full) => {
                outbox.await_room(ticket, context);
                self.leave_outbox(outbox);
                self.wake_driver();
                self.check()?;
                Poll::Pending
            }
            Err(unsent) => {
                self.leave_outbox(outbox);
                Poll::Ready(Err(self.failed(unsent)))
            }
        }
    }

    /// Streams that we opened and the driver does not know yet.
    pub(super) fn take_fresh(&self) -> Vec<Arc<StreamShared>> {
        // Whoever wrote OPEN has noted the stream by the time the outbox is free.
        let _written = (!seeded_fault("no_wait_for_open")).then(|| self.outbox());
        std::mem::take(&mut self.state().fresh)
    }

    /// The next stream that the other side opened.
    pub(super) fn poll_accept(
        &self,
        context: &Context<'_>,
    ) -> Poll<Result<Arc<StreamShared>, SessionError>> {
        self.check_process()?;
        let mut state = self.state();
        if let Some(stream) = state.waiting.pop_front() {
            drop(state);
            stream.lock().is_waiting = false;
            self.send_pending(&stream);
            return Poll::Ready(Ok(stream));
        }
        if state.is_over {
            drop(state);
            self.check()?;
            return Poll::Pending;
        }
        if !self.peer_opens {
            drop(state);
            self.check_supported(
                "streams that the other side opens, only such of the connecting side",
            )?;
            return Poll::Pending;
        }
        let woken = state.accepters.register(context);
        drop(state);
        wake(woken);
        Poll::Pending
    }

    /// Waits until `is_done` says so of the streams.
    pub(super) fn poll_until(
        &self,
        context: &Context<'_>,
        is_done: impl Fn(&SessionState) -> bool,
    ) -> Poll<Result<(), SessionError>> {
        self.check_process()?;
        let mut state = self.state();
        if is_done(&state) {
            return Poll::Ready(Ok(()));
        }
        if state.is_over {
            drop(state);
            self.check()?;
            return Poll::Pending;
        }
        let woken = state.others.register(context);
        drop(state);
        wake(woken);
        Poll::Pending
    }

    /// A stream for our books.
    pub(super) fn stream(&self, number: u32, is_opener: bool, metadata: Box<[u8]>) -> StreamShared {
        let Terms { send_window, recv_window, .. } = self.terms;
        StreamShared::new(number, is_opener, metadata, send_window, recv_window)
    }

    /// The other side opened a stream. Without anybody to accept it, it is refused.
    pub(super) fn received_open(&self, stream: &Arc<StreamShared>) {
        let mut state = self.state();
        state.live += 1;
        if state.is_over {
            return;
        }
        let is_too_much = self.is_foreign && state.live > self.streams_max;
        if state.has_gone_away || state.sessions == 0 || is_too_much {
            drop(state);
            self.refuse(stream);
            return;
        }
        state.waiting.push_back(Arc::clone(stream));
        let wakers = state.accepters.take();
        drop(state);
        wake(wakers);
    }

    fn refuse(&self, stream: &Arc<StreamShared>) {
        let mut state = stream.lock();
        state.is_waiting = false;
        stream.note_sending_over();
        state.lifecycle.reset(REFUSED);
        state.lifecycle.stop(REFUSED);
        state.assembly = None;
        state.queue.clear();
        drop(state);
        self.send_pending(stream);
    }

    /// A stream that we opened has ended: its number is free.
    pub(super) fn forget_own(&self, number: u32) {
        let mut state = self.state();
        if let Some((index, _)) = partywall_layout::stream::index(number) {
            state.numbers.free(index);
        }
        let mut wakers = state.openers.take();
        wakers.extend(state.ended(1));
        drop(state);
        wake(wakers);
    }

    /// Streams of the other side's have ended: END was written for them.
    fn forget_theirs(&self, count: usize) {
        if count > 0 {
            let wakers = self.state().ended(count);
            wake(wakers);
        }
    }

    /// Lets go of the outbox, and sees to what was written meanwhile.
    #[inline]
    pub(super) fn leave_outbox(&self, mut outbox: MutexGuard<'_, Outbox>) {
        let ended = std::mem::take(&mut outbox.ended);
        let must_wake = outbox.begins_to_keep();
        drop(outbox);
        if must_wake {
            // Asleep, it does not wait for room that nobody wanted.
            self.wake_driver();
        }
        self.forget_theirs(ended);
    }

    /// Somebody more uses the session.
    pub(super) fn add_user(&self, is_session: bool) {
        let mut state = self.state();
        state.users += 1;
        state.sessions += usize::from(is_session);
    }

    /// Somebody uses it no longer.
    pub(super) fn remove_user(&self, is_session: bool) {
        let mut state = self.state();
        state.users -= 1;
        state.sessions -= usize::from(is_session);
        let is_abandoned = state.users == 0;
        let nobody_accepts = state.sessions == 0;
        let unaccepted = nobody_accepts.then(|| std::mem::take(&mut state.waiting));
        drop(state);
        unaccepted.iter().flatten().for_each(|stream| self.refuse(stream));
        if is_abandoned {
            self.wake_driver();
        }
    }

    /// Whether nobody uses it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.state().users == 0
    }

    /// That nothing is asked for which the protocol that is spoken has no words.
    pub(super) fn check_supported(&self, what: &'static str) -> Result<(), SessionError> {
        if self.is_foreign { Err(SessionError::Unsupported { what }) } else { Ok(()) }
    }

    /// Asks the other side; the token that the answer will bring, or a later one.
    pub(super) fn ask(&self) -> u64 {
        let mut state = self.state();
        state.pings.asked += 1;
        let token = state.pings.asked;
        drop(state);
        let mut outbox = self.outbox();
        outbox.ask(token);
        let flushed = outbox.flush();
        self.leave_outbox(outbox);
        self.settle(flushed);
        token
    }

    /// Asks the other side to open no more streams.
    pub(crate) fn go_away(&self, code: u32) {
        let mut state = self.state();
        if std::mem::replace(&mut state.has_gone_away, true) {
            return;
        }
        drop(state);
        let mut outbox = self.outbox();
        outbox.go_away = Some(code);
        let flushed = outbox.flush();
        self.leave_outbox(outbox);
        self.settle(flushed);
    }

    /// The other side asks for no more streams.
    pub(super) fn received_go_away(&self, code: u32) {
        let mut state = self.state();
        state.going_away.get_or_insert(code);
        let mut wakers = state.openers.take();
        wakers.extend(state.others.take());
        drop(state);
        wake(wakers);
    }

    /// The other side answered.
    pub(super) fn received_answer(&self, token: u64) {
        let mut state = self.state();
        if token <= state.pings.asked {
            state.pings.answered = state.pings.answered.max(token);
        }
        let wakers = state.others.take();
        drop(state);
        wake(wakers);
    }
}

/// So many streams of a protocol's peer may be refused at a time, until it has been told.
const REFUSED_MAX: u32 = 1 << 14;
