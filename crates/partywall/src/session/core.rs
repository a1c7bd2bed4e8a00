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

use super::books::Streams;
use super::error::{OpenError, SessionError};
use super::outbox::Outbox;
use super::stream::{StreamCore, Terms};
use super::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use super::waiting::wake;
use crate::config::{BackPressure, Config};
use crate::error::{Closed, Fault};
use crate::handshake::Established;
use crate::peer::Peer;
use crate::transport::protocol::WINDOW;
use crate::transport::{RecvWire, STREAM_INLINE_MAX, Transport, Unsent};
use partywall_layout::Kind;
use partywall_layout::seeded_fault;
use partywall_layout::stream::{REFUSED, number};
use partywall_sys::ForkGuard;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What a session is made of, besides its driver.
pub(crate) struct Core {
    outbox: Apart<Mutex<Outbox>>,
    streams: Apart<Mutex<Streams>>,
    /// The driver, and whether it is called for: somebody wants room, or nobody anything any more.
    driver: Apart<Mutex<Call>>,
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
struct Apart<T>(T);

/// How the driver is called.
#[derive(Debug, Default)]
struct Call {
    waker: Option<Waker>,
    is_called: bool,
}

/// Whom it connects, and no more: the rings alone would fill pages.
impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("peer", &self.peer)
            .field("transport", &self.transport)
            .field("end", &self.end.get())
            .finish_non_exhaustive()
    }
}

impl Core {
    /// Takes a connection apart: the sending end goes behind a lock, the receiving end to the driver.
    pub(super) fn new(established: Established, config: &Config) -> (Arc<Self>, RecvWire) {
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
        let streams = Streams::new(peer_streams.streams_max);
        let core = Self {
            outbox: Apart(Mutex::new(Outbox::new(sender))),
            streams: Apart(Mutex::new(streams)),
            driver: Apart(Mutex::new(Call::default())),
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
        (Arc::new(core), receiver)
    }

    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut streams = self.streams();
        streams.is_over = true;
        // Left there: records of these may come before the driver hears of the end.
        let fresh = streams.fresh.clone();
        // What the other side had sent before it closed can still be accepted, and received.
        let is_kept = matches!(error, SessionError::Closed(_));
        let refused = if is_kept { VecDeque::new() } else { std::mem::take(&mut streams.waiting) };
        let waiting: Vec<_> = streams.waiting.iter().chain(&refused).map(Arc::clone).collect();
        let mut wakers = streams.openers.take();
        wakers.extend(streams.accepters.take());
        wakers.extend(streams.others.take());
        drop(streams);
        wakers.extend(self.outbox().take_waiters());
        for stream in fresh.iter().chain(&waiting) {
            stream.end(error);
        }
        wake(wakers);
        self.call_driver();
    }

    /// The driver has ended: what was sent and owed was written, or never will be.
    pub(super) fn finished(&self) {
        let mut streams = self.streams();
        streams.has_finished = true;
        let wakers = streams.others.take();
        drop(streams);
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
                self.call_driver();
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
        std::mem::take(&mut driver.is_called)
    }

    /// There is something for the driver to see to.
    pub(super) fn call_driver(&self) {
        let mut driver = self.driver.0.lock().unwrap_or_else(PoisonError::into_inner);
        driver.is_called = true;
        let waker = driver.waker.clone();
        drop(driver);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Writes what a stream owes, now or as soon as there is room.
    pub(super) fn owe(&self, stream: &Arc<StreamCore>) {
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
            Err(Unsent::Full) => self.call_driver(),
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
    ) -> Poll<Result<Arc<StreamCore>, OpenError>> {
        self.check_process()?;
        let mut streams = self.streams();
        if streams.is_over {
            drop(streams);
            self.check()?;
        } else if let Some(code) = streams.going_away {
            return Poll::Ready(Err(OpenError::GoingAway { code }));
        } else if let Some(index) = streams.numbers.take() {
            let number = number(index, self.is_acceptor);
            streams.live += 1;
            return Poll::Ready(Ok(Arc::new(self.stream(number, true, Box::default()))));
        } else if streams.numbers.is_nothing() {
            drop(streams);
            if self.is_acceptor {
                self.check_words(
                    "streams that the accepting side opens, only such of the connecting side",
                )?;
            }
            return Poll::Ready(Err(OpenError::NoStreams));
        } else {
            let woken = streams.openers.register(context);
            drop(streams);
            wake(woken);
        }
        Poll::Pending
    }

    /// Writes OPEN.
    pub(super) fn poll_open(
        &self,
        context: &Context<'_>,
        stream: &Arc<StreamCore>,
        metadata: &[u8],
        ticket: &mut Option<u64>,
    ) -> Poll<Result<(), SessionError>> {
        self.check()?;
        let mut outbox = self.outbox();
        match outbox.control(Kind::Open, stream.number, metadata) {
            Ok(()) => {
                // Before the outbox is let go: the driver takes it to meet who answers (`meet_fresh`).
                let mut streams = self.streams();
                streams.fresh.push(Arc::clone(stream));
                let is_over = streams.is_over;
                drop(streams);
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
                self.call_driver();
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
    pub(super) fn take_fresh(&self) -> Vec<Arc<StreamCore>> {
        // Whoever wrote OPEN has noted the stream by the time the outbox is free.
        let _written = (!seeded_fault("no_wait_for_open")).then(|| self.outbox());
        std::mem::take(&mut self.streams().fresh)
    }

    /// The next stream that the other side opened.
    pub(super) fn poll_accept(
        &self,
        context: &Context<'_>,
    ) -> Poll<Result<Arc<StreamCore>, SessionError>> {
        self.check_process()?;
        let mut streams = self.streams();
        if let Some(stream) = streams.waiting.pop_front() {
            drop(streams);
            stream.lock().is_waiting = false;
            self.owe(&stream);
            return Poll::Ready(Ok(stream));
        }
        if streams.is_over {
            drop(streams);
            self.check()?;
            return Poll::Pending;
        }
        if !self.peer_opens {
            drop(streams);
            self.check_words(
                "streams that the other side opens, only such of the connecting side",
            )?;
            return Poll::Pending;
        }
        let woken = streams.accepters.register(context);
        drop(streams);
        wake(woken);
        Poll::Pending
    }

    /// Waits until `is_done` says so of the streams.
    pub(super) fn poll_until(
        &self,
        context: &Context<'_>,
        is_done: impl Fn(&Streams) -> bool,
    ) -> Poll<Result<(), SessionError>> {
        self.check_process()?;
        let mut streams = self.streams();
        if is_done(&streams) {
            return Poll::Ready(Ok(()));
        }
        if streams.is_over {
            drop(streams);
            self.check()?;
            return Poll::Pending;
        }
        let woken = streams.others.register(context);
        drop(streams);
        wake(woken);
        Poll::Pending
    }

    /// A stream for our books.
    pub(super) fn stream(&self, number: u32, is_opener: bool, metadata: Box<[u8]>) -> StreamCore {
        let Terms { send_window, recv_window, .. } = self.terms;
        StreamCore::new(number, is_opener, metadata, send_window, recv_window)
    }

    /// The other side opened a stream. Without anybody to accept it, it is refused.
    pub(super) fn offer(&self, stream: &Arc<StreamCore>) {
        let mut streams = self.streams();
        streams.live += 1;
        if streams.is_over {
            return;
        }
        let is_too_much = self.is_foreign && streams.live > self.streams_max;
        if streams.has_gone_away || streams.sessions == 0 || is_too_much {
            drop(streams);
            self.refuse(stream);
            return;
        }
        streams.waiting.push_back(Arc::clone(stream));
        let wakers = streams.accepters.take();
        drop(streams);
        wake(wakers);
    }

    fn refuse(&self, stream: &Arc<StreamCore>) {
        let mut state = stream.lock();
        state.is_waiting = false;
        stream.note_sending_over();
        state.lifecycle.reset(REFUSED);
        state.lifecycle.stop(REFUSED);
        state.assembly = None;
        state.queue.clear();
        drop(state);
        self.owe(stream);
    }

    /// A stream that we opened has ended: its number is free.
    pub(super) fn forget_own(&self, number: u32) {
        let mut streams = self.streams();
        if let Some((index, _)) = partywall_layout::stream::index(number) {
            streams.numbers.free(index);
        }
        let mut wakers = streams.openers.take();
        wakers.extend(streams.ended(1));
        drop(streams);
        wake(wakers);
    }

    /// Streams of the other side's have ended: END was written for them.
    fn forget_theirs(&self, count: usize) {
        if count > 0 {
            let wakers = self.streams().ended(count);
            wake(wakers);
        }
    }

    /// Lets go of the outbox, and sees to what was written meanwhile.
    #[inline]
    pub(super) fn leave_outbox(&self, mut outbox: MutexGuard<'_, Outbox>) {
        let ended = std::mem::take(&mut outbox.ended);
        let has_news = outbox.begins_to_keep();
        drop(outbox);
        if has_news {
            // Asleep, it does not wait for room that nobody wanted.
            self.call_driver();
        }
        self.forget_theirs(ended);
    }

    /// Somebody more uses the session.
    pub(super) fn join(&self, is_session: bool) {
        let mut streams = self.streams();
        streams.users += 1;
        streams.sessions += usize::from(is_session);
    }

    /// Somebody uses it no longer.
    pub(super) fn depart(&self, is_session: bool) {
        let mut streams = self.streams();
        streams.users -= 1;
        streams.sessions -= usize::from(is_session);
        let is_abandoned = streams.users == 0;
        let nobody_accepts = streams.sessions == 0;
        let unaccepted = nobody_accepts.then(|| std::mem::take(&mut streams.waiting));
        drop(streams);
        unaccepted.iter().flatten().for_each(|stream| self.refuse(stream));
        if is_abandoned {
            self.call_driver();
        }
    }

    /// Whether nobody uses it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.streams().users == 0
    }
}

/// So many streams of a protocol's peer may be refused at a time, until it has been told.
const REFUSED_MAX: u32 = 1 << 14;
