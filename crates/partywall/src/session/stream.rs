// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream, shared between its users and the driver of the session.
//!
//! ```text
//!   driver ─ a message arrives ─▶ queue ─ recv ─▶ user      the stream notes pending records,
//!   user ─ charges the credit ─▶ outbox ─▶ ring             and the outbox writes them
//! ```
//!
//! # Invariants
//!
//! - The stream's lock is private to this process and held briefly. No thread blocks while it holds
//!   it, nor locks the outbox: a thread that needs both locks the outbox first.
//! - A stream with a pending record is listed in the outbox exactly once.

use super::credit::{RecvCredit, SendCredit};
use super::error::SessionError;
use super::lifecycle::{Lifecycle, PendingControl, Receiving};
use super::sync::{AsymmetricMutex, AsymmetricMutexGuard, AtomicBool, Ordering};
use crate::message::Message;
use crate::transport::Assembly;
use partywall_layout::seeded_fault;
use std::collections::VecDeque;
use std::task::{Context, Waker};

/// The shared state of one stream.
///
/// The fields that every message uses come first, in as few cache lines as possible. Driver and
/// user often run on different processors, and each cache line that both write is transferred
/// between them with every message.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct StreamShared {
    /// Whether a user waits for a message. Then the stream's queue is empty, and the next message
    /// or the end of the receiving direction calls the user's waker. Written under the stream's
    /// lock.
    is_awaited: AtomicBool,
    state: AsymmetricMutex<StreamState>,
    /// The number that identifies the stream in the records of its session.
    pub(crate) number: u32,
    /// Whether this side can send no more on the stream. The flag is only a hint, for readers that
    /// do not hold the stream's lock.
    is_sending_over: AtomicBool,
    /// The metadata in the peer's OPEN; empty if this side opened the stream.
    pub(crate) metadata: Box<[u8]>,
}

/// The limits that both sides agreed on, for all streams of the session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Most unread bytes of one stream: `send_window` at the peer, `recv_window` at this side.
    pub(super) send_window: u64,
    pub(super) recv_window: u64,
    /// Most streams that the peer may have open at a time.
    pub(super) accepts_max: u32,
}

/// The mutable part of a stream. The fields have the order in which the code that handles a message
/// accesses them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct StreamState {
    /// Received messages that the application has not taken; credit bounds their number.
    pub(crate) queue: VecDeque<Message>,
    /// The waker of the user that waits for a message, or has waited for one.
    pub(crate) receiver: ReceiverWaker,
    /// A message of which only some fragments have arrived.
    pub(crate) assembly: Option<Box<Assembly>>,
    pub(crate) recv_credit: RecvCredit,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) credit_pending: bool,
    /// Whether the peer opened the stream, and it was neither accepted nor refused yet.
    pub(crate) is_waiting: bool,
    /// Whether the stream is in the outbox's list of pending records.
    pub(crate) is_listed: bool,
    /// Whether this side has sent a message since the application last took one, and no later
    /// attempt to send has failed.
    pub(crate) has_answered: bool,
    /// Whether the stream is in the session's list of streams with deferred credit.
    pub(crate) is_deferred: bool,
    pub(crate) send_credit: SendCredit,
    /// Waker of the user that waits for credit.
    pub(crate) sender: Option<Waker>,
    /// The reason why the session is over; `None` while the session lives.
    pub(crate) end: Option<SessionError>,
}

/// A record of the stream that is not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingRecord {
    Lifecycle(PendingControl),
    Credit(u64),
}

impl StreamShared {
    pub(crate) fn new(
        number: u32,
        is_opener: bool,
        metadata: Box<[u8]>,
        send_window: u64,
        recv_window: u64,
    ) -> Self {
        let state = StreamState {
            lifecycle: Lifecycle::new(is_opener),
            send_credit: SendCredit::new(send_window),
            recv_credit: RecvCredit::new(recv_window),
            queue: VecDeque::new(),
            assembly: None,
            credit_pending: false,
            is_waiting: !is_opener,
            is_listed: false,
            has_answered: false,
            is_deferred: false,
            receiver: ReceiverWaker::default(),
            sender: None,
            end: None,
        };
        let (is_awaited, is_sending_over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { is_awaited, state: AsymmetricMutex::new(state), number, is_sending_over, metadata }
    }

    #[inline]
    pub(crate) fn lock(&self) -> AsymmetricMutexGuard<'_, StreamState> {
        self.state.lock()
    }

    /// Whether messages may be sent on the stream. The answer is only a hint, because the caller
    /// does not hold the stream's lock; senders check the state again under the lock.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        // ORDER: Relaxed: the flag `is_sending_over` is only a hint. Senders check the stream's
        // state again under its lock.
        !self.is_sending_over.load(Ordering::Relaxed)
    }

    pub(crate) fn note_sending_over(&self) {
        // ORDER: Relaxed: the flag `is_sending_over` is only a hint. Senders check the stream's
        // state again under its lock.
        self.is_sending_over.store(true, Ordering::Relaxed);
    }

    /// Ends the stream because its session is over, and wakes the waiters of the stream.
    pub(crate) fn end(&self, error: &SessionError) {
        self.note_sending_over();
        let mut state = self.lock();
        state.end.get_or_insert_with(|| error.clone());
        let wakers = [self.end_wait(&mut state), state.sender.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Whether a user waits for a message. The answer holds until a message or the end of the
    /// receiving direction arrives, and then the user is woken. So the user itself may ask without
    /// the stream's lock.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        // ORDER: Relaxed: `false` lets the caller take the stream's lock, which orders everything.
        // After an outdated `true`, the thread that stored `false` has yet to wake the user. A
        // runtime orders the wake-up before the poll that follows, also if it wakes a task once for
        // several calls of its waker. So that poll reads `false`. For a user that polls without
        // being woken, an outdated `true` is only a delay.
        self.is_awaited.load(Ordering::Relaxed)
    }

    #[inline]
    fn set_awaited(&self, is_awaited: bool) {
        // ORDER: Relaxed: see `is_awaited`. The stream's lock orders the stores.
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    /// Begins the wait of a user for a message: the stream's queue is empty, and its receiving
    /// direction open. Stores the user's identity in `waiter`. Returns a waker for the caller to
    /// drop without a lock.
    #[inline]
    #[must_use]
    pub(crate) fn begin_wait(
        &self,
        state: &mut StreamState,
        waiter: &mut WaiterIdentity,
        context: &Context<'_>,
    ) -> Option<Waker> {
        let replaced = state.receiver.replace(context);
        *waiter = state.receiver.identity();
        // The wait begins after the waker was cloned: if the clone panics, there is no wait.
        self.set_awaited(true);
        replaced
    }

    /// Begins the wait for a message of a task that sends one on the stream, if the task has waited
    /// here before: it probably waits for the answer next, and then needs no lock. If it does not,
    /// the next message wakes it needlessly. The session has not ended: the caller has checked that
    /// since it locked the stream.
    #[inline]
    pub(crate) fn await_answer(&self, state: &StreamState, context: &Context<'_>) {
        let is_open = matches!(state.lifecycle.receiving(), Receiving::Open);
        let may_wait = state.receiver.is(context)
            && (state.queue.is_empty() || seeded_fault("wait_despite_messages"))
            && (is_open || seeded_fault("wait_behind_the_end"))
            && (!state.credit_pending || seeded_fault("wait_with_due_credit"));
        if may_wait {
            self.set_awaited(true);
        }
    }

    /// Ends the wait of a user for a message, if there is one, and stores the user's waker in
    /// `known`, unless it is there already. Returns whether there was a wait: then the caller calls
    /// `known` without a lock. Also returns the waker that `known` was before, which the caller
    /// drops without a lock.
    #[inline]
    pub(crate) fn claim_wait(
        &self,
        state: &StreamState,
        known: &mut Option<Waker>,
    ) -> (bool, Option<Waker>) {
        if !self.is_awaited() {
            return (false, None);
        }
        let replaced = state.receiver.store_in(known);
        // The wait ends after the waker was cloned: if the clone panics, the end of the session
        // wakes the user.
        self.set_awaited(false);
        (true, replaced)
    }

    /// Ends the wait of a user for a message, if there is one. Returns the waker to call.
    pub(crate) fn end_wait(&self, state: &mut StreamState) -> Option<Waker> {
        let is_awaited = self.is_awaited();
        self.set_awaited(false);
        if is_awaited { state.receiver.take() } else { None }
    }

    /// Gives up the wait of a user for a message, and its waker, which the caller drops without a
    /// lock.
    pub(crate) fn give_up_wait(&self, state: &mut StreamState) -> Option<Waker> {
        self.set_awaited(false);
        state.receiver.take()
    }
}

impl StreamState {
    pub(crate) fn pending(&self) -> Option<PendingRecord> {
        match self.lifecycle.pending() {
            // The records CLOSE_WRITE and END, which end this side's direction or the stream, wait
            // until the pending record CREDIT was written.
            Some(PendingControl::CloseWrite | PendingControl::End) | None
                if self.reports_credit() =>
            {
                Some(PendingRecord::Credit(self.recv_credit.due()))
            }
            // END waits until the application has taken every message: otherwise the unread data of
            // ended streams would have no bound (SPEC 11.5).
            Some(PendingControl::End) if self.is_waiting || !self.queue.is_empty() => None,
            other => other.map(PendingRecord::Lifecycle),
        }
    }

    pub(crate) const fn wrote(&mut self, record: PendingRecord) {
        match record {
            PendingRecord::Lifecycle(pending) => self.lifecycle.wrote(pending),
            PendingRecord::Credit(credited) => {
                self.credit_pending = false;
                self.recv_credit.report(credited);
            }
        }
    }

    /// Takes the credit that the next message carries to the peer. The credit then counts as
    /// reported.
    #[inline]
    pub(crate) fn take_credit(&mut self) -> Option<u64> {
        if !self.recv_credit.is_worth_carrying() || !self.may_credit() {
            return None;
        }
        let credited = self.recv_credit.due();
        self.wrote(PendingRecord::Credit(credited));
        Some(credited)
    }

    /// Whether a pending record of the stream may be written now.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending().is_some()
    }

    const fn reports_credit(&self) -> bool {
        self.credit_pending && self.may_credit()
    }

    const fn may_credit(&self) -> bool {
        self.lifecycle.wants_credit() && !self.lifecycle.has_ended()
    }

    pub(crate) fn await_credit(&mut self, context: &Context<'_>) {
        register(&mut self.sender, context);
    }
}

/// The waker of a user that waits for a message, or has waited for one. It is kept after the wait:
/// the next wait is mostly one of the same task, which then neither clones nor drops a waker
/// (decision 0065).
#[derive(Debug, Default)]
pub(crate) struct ReceiverWaker(Option<Waker>);

impl ReceiverWaker {
    /// Stores the waker of `context`. Returns the waker of another task that has waited before. The
    /// caller drops that waker without a lock, because dropping it may run code of the application.
    #[inline]
    fn replace(&mut self, context: &Context<'_>) -> Option<Waker> {
        if self.is(context) { None } else { self.0.replace(context.waker().clone()) }
    }

    #[inline]
    fn is(&self, context: &Context<'_>) -> bool {
        self.0.as_ref().is_some_and(|waker| waker.will_wake(context.waker()))
    }

    /// Stores a clone of the waker in `known`, unless one is there already. Returns the waker that
    /// `known` was before.
    #[inline]
    fn store_in(&self, known: &mut Option<Waker>) -> Option<Waker> {
        match (&self.0, &*known) {
            (Some(waker), Some(known)) if known.will_wake(waker) => None,
            _ => std::mem::replace(known, self.0.clone()),
        }
    }

    const fn take(&mut self) -> Option<Waker> {
        self.0.take()
    }

    #[inline]
    fn identity(&self) -> WaiterIdentity {
        self.0.as_ref().map(WaiterIdentity::new).unwrap_or_default()
    }
}

/// The identity of the waker that a stream stored for a wait. It keeps no task alive, so it means
/// something only during the wait: then the stream has the waker.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WaiterIdentity {
    data: usize,
    vtable: usize,
}

impl WaiterIdentity {
    #[inline]
    fn new(waker: &Waker) -> Self {
        Self { data: waker.data().addr(), vtable: std::ptr::from_ref(waker.vtable()).addr() }
    }

    /// Whether the waker is that of `context`. The wakers of some runtimes change when they are
    /// cloned, so `false` does not mean that another task waits.
    #[inline]
    pub(crate) fn is(&self, context: &Context<'_>) -> bool {
        *self == Self::new(context.waker()) || seeded_fault("wait_of_another_task")
    }
}

fn register(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(context.waker()),
        None => *place = Some(context.waker().clone()),
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    /// A task that counts its wake-ups.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn task() -> (Arc<Task>, Waker) {
        let task = Arc::new(Task::default());
        (Arc::clone(&task), Waker::from(task))
    }

    fn stream() -> StreamShared {
        StreamShared::new(1, true, Box::default(), 0, 0)
    }

    /// Looks for a message as a user does that is about to wait.
    fn begin(stream: &StreamShared, waker: &Waker) -> Option<Waker> {
        let mut waiter = WaiterIdentity::default();
        stream.begin_wait(&mut stream.lock(), &mut waiter, &Context::from_waker(waker))
    }

    /// Claims the wait as the driver does. Returns whether there was one.
    fn deliver(stream: &StreamShared, known: &mut Option<Waker>) -> bool {
        let (is_awaited, _replaced) = stream.claim_wait(&stream.lock(), known);
        if let Some(known) = known.as_ref().filter(|_| is_awaited) {
            known.wake_by_ref();
        }
        is_awaited
    }

    #[test]
    fn task_that_waits_again_clones_no_waker() {
        let (task, waker) = task();
        let (stream, mut known) = (stream(), None);
        for round in 1..=3 {
            assert!(begin(&stream, &waker).is_none());
            assert!(deliver(&stream, &mut known));
            assert_eq!(task.0.load(Ordering::Relaxed), round);
            // This test, `waker`, the stream and the driver.
            assert_eq!(Arc::strong_count(&task), 4);
        }
        assert!(!deliver(&stream, &mut known), "no wait is claimed twice");
        assert_eq!(task.0.load(Ordering::Relaxed), 3);
        drop((stream, known));
        assert_eq!(Arc::strong_count(&task), 2);
    }

    #[test]
    fn other_task_that_waits_is_woken_and_the_first_is_forgotten() {
        let ((first, first_waker), (second, second_waker)) = (task(), task());
        let (stream, mut known) = (stream(), None);
        assert!(begin(&stream, &first_waker).is_none());
        assert!(deliver(&stream, &mut known));
        assert!(begin(&stream, &second_waker).is_some());
        assert!(deliver(&stream, &mut known));
        assert_eq!(first.0.load(Ordering::Relaxed), 1);
        assert_eq!(second.0.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&first), 2);
    }

    #[test]
    fn look_without_waiting_does_not_keep_the_next_wait_from_its_waker() {
        let (task, waker) = task();
        let (stream, mut known) = (stream(), None);
        for _ in 0..2 {
            drop(begin(&stream, Waker::noop()));
            drop(begin(&stream, &waker));
            assert!(deliver(&stream, &mut known));
        }
        assert_eq!(task.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn wait_that_has_ended_is_not_ended_again() {
        let (task, waker) = task();
        let (stream, mut known) = (stream(), None);
        let end = || stream.end_wait(&mut stream.lock());
        assert!(end().is_none());
        drop(begin(&stream, &waker));
        assert!(deliver(&stream, &mut known));
        assert!(end().is_none());
        drop(begin(&stream, &waker));
        assert!(end().is_some());
        drop(begin(&stream, &waker));
        drop((stream.give_up_wait(&mut stream.lock()), known));
        assert!(end().is_none());
        assert_eq!(Arc::strong_count(&task), 2);
    }

    /// Input: a task has waited on a stream, and sends on it. Expected: its wait begins at once,
    /// unless another task has waited last, or the task has something else to do than to wait.
    #[test]
    fn wait_begins_when_the_task_that_waited_last_sends() {
        let ((_task, waker), (_other, other)) = (task(), task());
        let send = |stream: &StreamShared, waker: &Waker| {
            stream.await_answer(&stream.lock(), &Context::from_waker(waker));
            stream.is_awaited()
        };
        let stream = stream();
        assert!(!send(&stream, &waker), "it has never waited");
        drop(begin(&stream, &waker));
        assert!(deliver(&stream, &mut None));
        assert!(!send(&stream, &other), "another task waited");
        assert!(send(&stream, &waker));
        let mut known = None;
        assert!(deliver(&stream, &mut known) && known.is_some_and(|known| known.will_wake(&waker)));
        stream.lock().queue.push_back(Message::copied(&[1]));
        assert!(!send(&stream, &waker), "a message is there");
        stream.lock().queue.clear();
        stream.lock().credit_pending = true;
        assert!(!send(&stream, &waker), "credit must be reported first");
        stream.lock().credit_pending = false;
        stream.lock().lifecycle.received_close_write(1).unwrap();
        assert!(!send(&stream, &waker), "the direction has ended");
    }
}
