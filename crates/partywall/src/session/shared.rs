// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of a session that its users (handles of the session and of its streams) share with its
//! driver, which receives.
//!
//! ```text
//!   Handle, SendHalf, RecvHalf ──▶ SessionShared ◀── Driver
//!                                   ├─ outbox   one thread at a time writes
//!                                   ├─ state    numbers, new streams, streams to accept
//!                                   ├─ driver   its waker, for users that need room
//!                                   └─ deferred_credit   streams whose credit waits for an answer
//! ```
//!
//! No method blocks: an operation that cannot complete now registers a waker. The modules `tokio`,
//! `blocking` and `event` turn these operations into futures, blocking calls and events.

use super::deferred_credit::DeferredCredit;
use super::error::{OpenError, SessionError};
use super::outbox::Outbox;
use super::state::{SessionState, wake};
use super::stream::{StreamShared, Terms};
use super::sync::{AsymmetricMutex, AsymmetricMutexGuard, AtomicBool, OnceLock, Ordering};
use crate::cache_padded::CachePadded;
use crate::channel::AnyReceiver;
use crate::config::{BackPressure, Config};
use crate::error::{Closed, Fault};
use crate::handshake::Established;
use crate::peer::PeerIdentity;
use crate::transport::protocol::WINDOW;
use crate::transport::{LiveTransport, Memory, NotSent, STREAM_INLINE_MAX, SessionHome, Transport};
use partywall_layout::Kind;
use partywall_layout::seeded_fault;
use partywall_layout::stream::{OpenHead, REFUSED, number};
use partywall_sys::ForkGuard;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
#[cfg(any(feature = "tokio", shuttle))]
use std::sync::Weak;
use std::task::{Context, Poll, Waker};
use zerocopy::IntoBytes;

/// A session without its driver: the outbox, the state, and the limits that both sides agreed on.
pub(crate) struct SessionShared {
    outbox: CachePadded<AsymmetricMutex<Outbox>>,
    state: CachePadded<AsymmetricMutex<SessionState>>,
    driver: CachePadded<DriverWakeup>,
    pub(super) deferred_credit: CachePadded<DeferredCredit>,
    #[cfg(any(feature = "tokio", shuttle))]
    /// The seat of the driver, on tokio; empty where a thread or an event loop keeps the driver to
    /// itself.
    pub(super) seat: OnceLock<Weak<dyn TakeRecords>>,
    end: OnceLock<SessionError>,
    /// The fork guard of the process that runs the session's driver. In a forked child no driver
    /// runs that could wake a waiting user.
    guard: ForkGuard,
    pub(crate) peer: PeerIdentity,
    pub(crate) transport: LiveTransport,
    pub(super) policy: BackPressure,
    /// Length in bytes up to which messages are copied into the ring.
    pub(super) inline_max: usize,
    /// Maximum number of open streams, above which this side refuses a further stream of the peer.
    /// Used only for other protocols, whose peer does not know the limit of this side.
    streams_max: usize,
    pub(super) is_foreign: bool,
    peer_opens: bool,
    pub(super) is_acceptor: bool,
    pub(super) terms: Terms,
}

/// The driver's waker, and whether a user has called the waker since the driver last looked.
#[derive(Debug, Default)]
struct DriverWakeup {
    waker: AsymmetricMutex<Option<Waker>>,
    is_woken: AtomicBool,
}

/// A driver of which users of the session may take the records: the seat, in `seat.rs`.
#[cfg(any(feature = "tokio", shuttle))]
pub(super) trait TakeRecords: fmt::Debug + Send + Sync {
    /// Takes the records that have arrived, unless another thread does so.
    fn take_records(&self) -> Taken;
}

/// The result of an attempt of a user to take the records of its session.
#[cfg(any(feature = "tokio", shuttle))]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    /// Whether there were any records.
    pub(super) any: bool,
    /// Whether the user must wake the driver's task.
    pub(super) must_wake: bool,
}

/// Prints only the session's peer and transport, because its rings would fill pages.
impl fmt::Debug for SessionShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionShared")
            .field("peer", &self.peer)
            .field("transport", &self.transport)
            .field("end", &self.end.get())
            .finish_non_exhaustive()
    }
}

impl SessionShared {
    /// Makes a session of a connection: returns the shared part, which has the sending end behind a
    /// lock, and the receiving end for the driver.
    pub(super) fn new(established: Established, config: &Config) -> (Arc<Self>, AnyReceiver) {
        let Established { mut sender, mut receiver, peer, transport, is_acceptor, peer_streams } =
            established;
        receiver.enable_streams();
        sender.enable_streams();
        let is_foreign = matches!(transport, LiveTransport::Fixed(Transport::Protocol(_)));
        let terms = Terms {
            send_window: peer_streams.window,
            // The peer of another protocol does not know the limits of this side. This side refuses
            // the streams above `streams_max`. If such a peer opens `REFUSED_MAX` further streams,
            // the session ends.
            recv_window: if is_foreign { WINDOW } else { config.stream_window },
            accepts_max: match config.streams_max_effective() {
                streams_max if is_foreign => streams_max.saturating_add(REFUSED_MAX),
                streams_max => streams_max,
            },
        };
        let state = SessionState::new(peer_streams.streams_max);
        let shared = Self {
            outbox: CachePadded(AsymmetricMutex::new(Outbox::new(sender))),
            state: CachePadded(AsymmetricMutex::new(state)),
            driver: CachePadded(DriverWakeup::default()),
            deferred_credit: CachePadded(DeferredCredit::default()),
            #[cfg(any(feature = "tokio", shuttle))]
            seat: OnceLock::new(),
            end: OnceLock::new(),
            guard: ForkGuard::current(),
            peer,
            transport,
            policy: config.back_pressure,
            // Another protocol has no ring for short messages, so short messages are placed in
            // blocks like long messages.
            inline_max: if is_foreign { 0 } else { config.inline_max.min(STREAM_INLINE_MAX) },
            streams_max: config.streams_max_effective() as usize,
            is_foreign,
            peer_opens: peer_streams.opens,
            is_acceptor,
            terms,
        };
        (Arc::new(shared), receiver)
    }

    pub(crate) fn outbox(&self) -> AsymmetricMutexGuard<'_, Outbox> {
        self.outbox.0.lock()
    }

    pub(crate) fn state(&self) -> AsymmetricMutexGuard<'_, SessionState> {
        self.state.0.lock()
    }

    /// Checks that the session lives; otherwise returns the reason for its end as the error.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), SessionError> {
        match self.end.get() {
            None => self.check_process(),
            Some(end) => Err(end.clone()),
        }
    }

    /// Whether the session is over. The error of [`check`](Self::check) is the reason.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.end.get().is_some()
    }

    /// Fails in a forked child. Every operation calls this check before it does anything (SPEC
    /// 7.3).
    #[inline]
    pub(super) fn check_process(&self) -> Result<(), SessionError> {
        if self.guard.is_child() {
            return Err(Fault::Forked.into());
        }
        Ok(())
    }

    /// Ends the session and wakes every waiter. Later calls do not replace the first reason.
    pub(super) fn end(&self, error: SessionError) {
        let error = self.end.get_or_init(|| error);
        let mut state = self.state();
        state.is_over = true;
        // The streams that this side opened last stay listed for the driver: their records may
        // arrive before the driver notices the end of the session.
        let fresh = state.fresh.clone();
        // If the peer closed the session, the streams that it opened before can still be accepted
        // and read.
        let is_kept = matches!(error, SessionError::Closed(_) | SessionError::ClosedByPeer { .. });
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

    /// Notes that the driver has ended. The driver has written the pending records, or has dropped
    /// those for which there was no room.
    pub(super) fn finished(&self) {
        let mut state = self.state();
        state.has_finished = true;
        let wakers = state.others.take();
        drop(state);
        wake(wakers);
    }

    /// Handles a permanent error of sending. Returns the reason for which the session is over.
    pub(super) fn failed(&self, unsent: NotSent) -> SessionError {
        // An attempt to send that fails because the peer has closed does not end the session here.
        // The driver ends the session after it has delivered the messages that arrived before the
        // close.
        if let Some(closed) = unsent.closed() {
            let waiters = self.outbox().take_waiters();
            wake(waiters);
            self.wake_driver();
            return self.end.get().cloned().unwrap_or_else(|| self.ended_by_peer(closed));
        }
        // The errors `Full` and `TooLarge` do not end the session. Every caller handles them
        // itself.
        if let NotSent::Fault(fault) = unsent {
            self.end(SessionError::Fault(Arc::from(fault)));
        }
        self.end.get().cloned().unwrap_or(SessionError::Closed(Closed::Disconnected))
    }

    /// Registers the driver's waker, which users call from then on.
    pub(super) fn register_driver(&self, waker: &Waker) {
        let mut known = self.driver.0.waker.lock();
        *known = Some(waker.clone());
    }

    /// Whether a user has called the driver's waker since the driver last asked.
    #[inline]
    pub(super) fn was_driver_woken(&self) -> bool {
        let is_woken = &self.driver.0.is_woken;
        // ORDER: Acquire for both: what a user did before it called the waker is visible to the
        // driver. A call that this load misses wakes the driver, which then asks again. The wakers
        // of all three fronts synchronise with the next turn, also if the driver was woken before.
        is_woken.load(Ordering::Acquire) && is_woken.swap(false, Ordering::Acquire)
    }

    /// Wakes the driver, and makes its next turn wake the users that wait for room.
    pub(super) fn wake_driver(&self) {
        // ORDER: Release: what this thread did before is visible to the driver that finds the flag.
        // The flag is set before the waker is read. So a driver that registers another waker
        // meanwhile either finds the flag afterwards, or this thread finds the other waker.
        self.driver.0.is_woken.store(true, Ordering::Release);
        let waker = self.driver.0.waker.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sends the pending records of a stream, now or once there is room.
    pub(super) fn send_pending(&self, stream: &Arc<StreamShared>) {
        let state = stream.lock();
        if state.is_listed || !state.has_pending() {
            return;
        }
        drop(state);
        let mut outbox = self.outbox();
        // The stream is added to the outbox's list of streams with pending records while the outbox
        // is locked. Otherwise a message of the stream could be sent before its pending record.
        outbox.list(stream);
        let flushed = outbox.flush();
        self.leave_outbox(outbox);
        self.settle(flushed);
    }

    /// Reports the deferred credit that no message has carried. Returns the number of streams that
    /// were listed.
    pub(super) fn report_deferred_credit(&self) -> usize {
        // The streams that are listed again after a panic are left to the driver, which may sleep.
        let _on_panic = WakeOnPanic(self);
        let listed = self.deferred_credit.0.take();
        let count = listed.len();
        listed.for_each(|stream| self.send_pending(&stream));
        count
    }

    /// Wakes the driver if pending records found no room, and ends the session on a permanent
    /// error.
    pub(super) fn settle(&self, flushed: Result<(), NotSent>) {
        match flushed {
            Ok(()) => {}
            Err(NotSent::Full) => self.wake_driver(),
            Err(unsent) => {
                let _ = self.failed(unsent);
            }
        }
    }

    /// Takes a free stream number and makes a stream with that number; pending while the peer
    /// allows no more streams. The driver learns of the stream only after OPEN was written. So if
    /// the number is freed before OPEN was written, the driver's table needs no change.
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

    /// Sends OPEN for a stream that has got its number.
    pub(super) fn poll_open(
        &self,
        context: &Context<'_>,
        stream: &Arc<StreamShared>,
        metadata: &[u8],
        ticket: &mut Option<u64>,
    ) -> Poll<Result<(), SessionError>> {
        self.check()?;
        let mut outbox = self.outbox();
        // Another protocol opens a stream without a record OPEN and without metadata. Its sender
        // only has to know that a stream is opened, so the body is empty.
        let head: &[u8] = if self.is_foreign { &[] } else { OpenHead::APPLICATION.as_bytes() };
        let payload = [head, metadata].concat();
        match outbox.control(Kind::Open, stream.number, &payload) {
            Ok(()) => {
                // The stream is listed for the driver before the outbox is unlocked. The driver
                // locks the outbox when it takes the list, so it knows the stream before it handles
                // an answer to the stream.
                let mut state = self.state();
                state.fresh.push(Arc::clone(stream));
                let is_over = state.is_over;
                drop(state);
                self.leave_outbox(outbox);
                if is_over && !seeded_fault("no_look_after_open") {
                    // The thread that ended the session may have read the list of streams before
                    // this stream was added. The stream still counts as open, because the peer has
                    // its number and may end it.
                    if let Err(error) = self.check() {
                        stream.end(&error);
                    }
                }
                Poll::Ready(Ok(()))
            }
            Err(NotSent::Full) => {
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

    /// Takes the streams that this side opened and that are not in the driver's table yet.
    pub(super) fn take_fresh(&self) -> Vec<Arc<StreamShared>> {
        // A thread that opens a stream holds the outbox's lock from writing OPEN until it has
        // listed the stream for the driver. So once the outbox is locked, the list contains every
        // stream whose OPEN was written.
        let _written = (!seeded_fault("no_wait_for_open")).then(|| self.outbox());
        std::mem::take(&mut self.state().fresh)
    }

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
            self.check_supported("streams that the peer opens, only such of the connecting side")?;
            return Poll::Pending;
        }
        let woken = state.accepters.register(context);
        drop(state);
        wake(woken);
        Poll::Pending
    }

    /// Completes once `is_done` returns true for the state of the session. Fails if the session is
    /// over before.
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

    pub(super) fn stream(&self, number: u32, is_opener: bool, metadata: Box<[u8]>) -> StreamShared {
        let Terms { send_window, recv_window, .. } = self.terms;
        StreamShared::new(number, is_opener, metadata, send_window, recv_window)
    }

    /// Queues a stream that the peer opened, for `accept`. Refuses the stream if no handle can
    /// accept it.
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

    /// Frees the number of an ended stream that this side opened, and wakes users that wait to open
    /// a stream.
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

    /// Subtracts ended streams that the peer opened, and for which this side wrote END, from the
    /// count of open streams.
    fn forget_theirs(&self, count: usize) {
        if count > 0 {
            let wakers = self.state().ended(count);
            wake(wakers);
        }
    }

    /// Unlocks the outbox, then handles the ends of streams and the unsent bytes that the outbox
    /// reports.
    #[inline]
    pub(super) fn leave_outbox(&self, mut outbox: AsymmetricMutexGuard<'_, Outbox>) {
        let ended = std::mem::take(&mut outbox.ended);
        let must_wake = outbox.begins_to_keep();
        drop(outbox);
        if must_wake {
            // The driver is woken, because a blocked driver polls the socket for room only if it
            // knows of unsent bytes.
            self.wake_driver();
        }
        self.forget_theirs(ended);
    }

    /// Counts one more user of the session; `is_session` is whether the user has a session handle
    /// and can accept streams.
    pub(super) fn add_user(&self, is_session: bool) {
        let mut state = self.state();
        state.users += 1;
        state.sessions += usize::from(is_session);
    }

    /// Counts one user less. Without a session handle, this side refuses the streams that wait to
    /// be accepted. Without any user, the driver closes the session.
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

    pub(super) fn is_abandoned(&self) -> bool {
        self.state().users == 0
    }

    /// Fails with `Unsupported` if the session uses another protocol, which has no equivalent of
    /// `what`.
    pub(super) fn check_supported(&self, what: &'static str) -> Result<(), SessionError> {
        if self.is_foreign { Err(SessionError::Unsupported { what }) } else { Ok(()) }
    }

    /// Sends PING to the peer, and returns the token of the PING. An answer with this token or a
    /// later one completes the PING.
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

    /// Sends GO_AWAY to the peer. From then on, refuses the streams that the peer opens.
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

    /// Handles GO_AWAY from the peer: wakes the users that wait to open a stream.
    pub(super) fn received_go_away(&self, code: u32) {
        let mut state = self.state();
        state.going_away.get_or_insert(code);
        let mut wakers = state.openers.take();
        wakers.extend(state.others.take());
        drop(state);
        wake(wakers);
    }

    /// Handles a GO_AWAY with which the peer closes the session. `code` and `reason` are the
    /// peer's, and are reported when the session ends.
    pub(super) fn received_farewell(&self, code: u32, reason: &[u8]) {
        let replaced = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        let reason: String = String::from_utf8_lossy(reason).chars().map(replaced).collect();
        self.state().farewell.get_or_insert((code, reason.into()));
        self.received_go_away(code);
    }

    /// Returns the error of a session whose peer has ended its direction, with the code that the
    /// peer gave.
    pub(super) fn ended_by_peer(&self, closed: Closed) -> SessionError {
        match (closed, self.state().farewell.clone()) {
            (Closed::Finished, Some((code, reason))) => SessionError::ClosedByPeer { code, reason },
            (closed, _) => SessionError::Closed(closed),
        }
    }

    /// Returns the code and reason with which this side closed the session, if the peer is to learn
    /// them.
    pub(super) fn farewell(&self) -> Option<(u32, Arc<str>)> {
        match self.end.get() {
            Some(SessionError::ClosedHere { code, reason }) => {
                let is_said = *code != 0 || !reason.is_empty();
                (is_said && !self.is_foreign).then(|| (*code, Arc::clone(reason)))
            }
            _ => None,
        }
    }

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

/// Wakes the driver if its user panics, as a waker that the user calls may.
pub(super) struct WakeOnPanic<'a>(pub(super) &'a SessionShared);

impl Drop for WakeOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.wake_driver();
        }
    }
}

impl SessionHome for SessionShared {
    fn is_inherited(&self) -> bool {
        self.guard.is_child()
    }

    fn give_back(&self, memory: Memory) {
        let mut outbox = self.outbox();
        let wakers = outbox.release(memory);
        self.leave_outbox(outbox);
        wake(wakers);
    }
}

/// Most refused streams that a peer of another protocol may have open at a time. One more ends the
/// session.
const REFUSED_MAX: u32 = 1 << 14;
