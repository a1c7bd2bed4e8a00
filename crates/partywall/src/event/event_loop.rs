// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop: one epoll set for all sources, and the tasks that its thread runs.
//!
//! A task is the work of the loop for one source, such as the driver of a session. An armed task
//! waits for an event: its peer notifies the loop of records and of room. Of a task that is not
//! armed, the peer sends no notification, so the loop gives the task a turn in each pass over its
//! sources.
//!
//! ```text
//!   wait, poll ─▶ pass: epoll set ──▶ marks, turns of tasks ─▶ collect ─┬─ events ─▶ application
//!                   ▲                                                  └─ none ─▶ spin, or arm
//!                   └─────────── an event, the doorbell, or a timer ◀─ epoll_wait ◀───────┘
//! ```
//!
//! # Invariants
//!
//! - Each call polls the epoll set at least once if sources have events, and runs each task that
//!   needs a turn once. So no source keeps others from being served.
//! - The time of one pass depends on the number of sources with events, not on that of all sources.
//! - Before the thread waits, every task without work is armed.

use super::channel::{Channel, Receiver, Sender};
use super::event::{Event, Kinds};
use super::forked::Forked;
use super::listener::{ChannelListener, Listener};
use super::ready_list::{EVENTS_MAX, Key};
use super::registration::{Arrival, DOORBELL, Purpose, Shared, TIMER, parse};
use super::session::Session;
use super::source::{Attached, Source};
use super::task::{SourceTask, Step, Task};
use crate::address::{Address, AddressError};
use crate::config::Config;
use crate::error::{BindError, ConnectError};
use crate::protocol::Protocol;
use crate::transport::has_passed;
use partywall_sys::Ready;
use partywall_sys::epoll::READY_MAX;
use partywall_wait::{IdlePolicy, IdleStep, Wait};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An event loop for channels, listeners, sessions with all their streams, and groups of links.
///
/// Each source has a tag of the application. [`wait`](Self::wait) and [`poll`](Self::poll) report
/// the tags of sources for which something may be possible. An attempt that returns `Empty` or
/// `Full` asks the loop to report the source once there is something to receive or room to send; no
/// other call is needed.
///
/// Sources belong to the application. Adding one needs no access to the thread that waits, and
/// dropping one removes it. Several threads may share a loop; one of them at a time runs it.
///
/// The loop starts no thread. Handshakes, and the drivers of sessions, advance only while some
/// thread calls `wait` or `poll`. See the [module](crate::event) for an example.
pub struct Loop {
    shared: Arc<Shared>,
    round: Mutex<Round>,
}

/// The state of the thread that runs an event loop. The loop keeps this state between two calls, so
/// that the allocated lists are used again.
#[derive(Debug)]
struct Round {
    tasks: Tasks,
    /// Tasks that are neither armed nor ready to run. The loop arms them before its thread waits.
    unarmed: VecDeque<Key>,
    /// Tasks that have a timer, and so may need a turn at a certain time.
    timed: Vec<Key>,
    ready: Vec<Ready>,
    arrivals: Vec<Arrival>,
    idle: IdlePolicy,
    /// Whether the loop's thread polls instead of sleeping. Then tasks stay unarmed, so that their
    /// peers need not notify the loop.
    is_spinning: bool,
    /// What the last poll of the loop has found, if the application polled by `poll_awake`.
    awake: Awake,
    /// The time for which the timer's descriptor is set; `None` if the timer is not set.
    timer_set: Option<Instant>,
}

/// What a call of `poll_awake` has found. The next poll of the loop reads it.
#[derive(Clone, Copy, Debug, Default)]
struct Awake {
    /// Whether the last call of `poll_awake` found neither an event nor a task with work. The next
    /// poll is then a part of a spin.
    was_idle: bool,
    /// Whether the last call of `poll_awake` has taken everything that was ready in the epoll set.
    has_polled_set: bool,
}

impl Loop {
    /// Makes an event loop without sources, which waits by the strategy [`Wait::Adaptive`].
    ///
    /// # Errors
    /// Fails if the process has too few free descriptors; a loop takes three.
    pub fn new() -> io::Result<Self> {
        Self::with_wait(Wait::Adaptive, SPIN_BUDGET)
    }

    /// Makes an event loop without sources, which waits by the strategy `wait`. Under `Adaptive`
    /// its thread polls for at most `spin_budget` before it sleeps. Under `Poll` it waits as under
    /// `Park`, because every source notifies it.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn with_wait(wait: Wait, spin_budget: Duration) -> io::Result<Self> {
        Ok(Self::over(Shared::new(false)?, wait, spin_budget))
    }

    /// Makes an event loop that waits as a loop made by [`new`](Self::new), and reports each kind
    /// of event of a source once. The kind is reported again only after an attempt on the source
    /// found nothing. So a loop does not report in each turn what its application has no time to
    /// receive yet. Groups of links are reported as in any loop.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn reporting_once() -> io::Result<Self> {
        Ok(Self::over(Shared::new(true)?, Wait::Adaptive, SPIN_BUDGET))
    }

    fn over(shared: Shared, wait: Wait, spin_budget: Duration) -> Self {
        let round = Round {
            tasks: Tasks::default(),
            unarmed: VecDeque::new(),
            timed: Vec::new(),
            ready: Vec::new(),
            arrivals: Vec::new(),
            idle: IdlePolicy::new(wait, spin_budget),
            is_spinning: false,
            awake: Awake::default(),
            timer_set: None,
        };
        Self { shared: Arc::new(shared), round: Mutex::new(round) }
    }

    /// Blocks until a source has events, or until `deadline`. Replaces the content of `events` by
    /// the events, and returns their number, which is 0 at the deadline.
    ///
    /// Each call reports a source at most once, and at most 256 sources. The next call reports the
    /// sources that are left.
    ///
    /// # Errors
    /// Fails with [`Forked`] in a forked child, and with the error of epoll or of a [`Source`],
    /// which a sound system never reports.
    pub fn wait(&self, events: &mut Vec<Event>, deadline: Option<Instant>) -> io::Result<usize> {
        self.wait_up_to(events, EVENTS_MAX, deadline)
    }

    /// Waits as [`wait`](Self::wait) does, and returns at most `max` events. Further events stay in
    /// the loop for the next call. The events of a source that is dropped before that call are
    /// lost.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    pub fn wait_up_to(
        &self,
        events: &mut Vec<Event>,
        max: usize,
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        let (mut round, _) = self.begin(events)?;
        // If some sources have events that the application has not taken yet, the epoll set is
        // still polled first. Otherwise sources whose descriptors have become ready would be
        // reported late.
        let mut has_polled = !self.shared.list.is_idle();
        if has_polled {
            round.poll(&self.shared)?;
        }
        loop {
            self.shared.list.collect(events, max);
            if !events.is_empty() || (has_polled && has_passed(deadline)) {
                break;
            }
            has_polled |= round.next(&self.shared, deadline)?;
        }
        self.finish(&mut round, false)?;
        Ok(events.len())
    }

    /// Replaces the content of `events` by the events that sources have now, and returns their
    /// number. Never blocks.
    ///
    /// Call it when the descriptor of the loop is readable, or when
    /// [`next_timer`](Self::next_timer) is due. The descriptor stays readable as long as another
    /// call may find events. So it fits level-triggered and edge-triggered loops, whether or not
    /// the application repeats `poll` until it finds nothing.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    pub fn poll(&self, events: &mut Vec<Event>) -> io::Result<usize> {
        self.poll_up_to(events, EVENTS_MAX)
    }

    /// Polls as [`poll`](Self::poll) does, for at most `max` events; see
    /// [`wait_up_to`](Self::wait_up_to).
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    pub fn poll_up_to(&self, events: &mut Vec<Event>, max: usize) -> io::Result<usize> {
        let (mut round, before) = self.begin(events)?;
        if before.has_polled_set {
            // The last call, `poll_awake`, has taken everything that was ready in the epoll set.
            // What has become ready since that call keeps the descriptor of the loop readable.
            round.advance(&self.shared)?;
        } else {
            round.poll(&self.shared)?;
        }
        self.shared.list.collect(events, max);
        if events.is_empty() && self.shared.list.is_idle() {
            round.arm(&self.shared);
        }
        self.finish(&mut round, !events.is_empty())?;
        Ok(events.len())
    }

    /// Polls as [`poll`](Self::poll) does, but if there is no event it polls repeatedly, as long as
    /// [`wait`](Self::wait) would spin, before it asks peers to notify the loop. It never blocks.
    /// Replaces the content of `events` by the events, and returns their number.
    ///
    /// The call is for an external event loop that serves its other sources first, and would then
    /// wait. The answer of a fast peer is found without a notification or a wake-up. After a call
    /// that returned events the descriptor of the loop may stay quiet although there are more: call
    /// `poll_spinning` or `poll` again before the external event loop waits.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    pub fn poll_spinning(&self, events: &mut Vec<Event>) -> io::Result<usize> {
        let (mut round, _) = self.begin(events)?;
        for _ in 0..SPINNING_POLLS_MAX {
            let polled = round.poll(&self.shared);
            round.is_spinning = false;
            polled?;
            self.shared.list.collect(events, EVENTS_MAX);
            if !events.is_empty() {
                return Ok(events.len());
            }
            if self.shared.list.is_idle() {
                if round.idle.idle() != IdleStep::Poll {
                    break;
                }
                std::hint::spin_loop();
                round.is_spinning = true;
            }
        }
        round.arm(&self.shared);
        self.finish(&mut round, false)?;
        Ok(0)
    }

    /// Polls as [`poll_up_to`](Self::poll_up_to) does, for a thread that polls again before it
    /// waits. The call does not ask peers to notify the thread. It leaves the descriptor of the
    /// loop quiet although there may be more events or a timer.
    ///
    /// The call is for an external event loop that spins itself, and runs its other tasks in
    /// between. Before the external event loop waits, it calls [`poll`](Self::poll) until there is
    /// no event. It must watch the descriptor level-triggered: a `poll` after `poll_awake` does not
    /// look at descriptors that became ready in between, and the loop's descriptor stays readable
    /// because of them.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    pub fn poll_awake(&self, events: &mut Vec<Event>, max: usize) -> io::Result<usize> {
        let (mut round, before) = self.begin(events)?;
        round.is_spinning = before.was_idle;
        let polled = round.poll(&self.shared);
        round.is_spinning = false;
        polled?;
        self.shared.list.collect(events, max);
        round.awake = Awake {
            was_idle: events.is_empty() && self.shared.list.is_idle(),
            has_polled_set: round.ready.len() < READY_MAX,
        };
        Ok(events.len())
    }

    /// Adds both directions of a channel, whose events have the same tag.
    ///
    /// # Errors
    /// Fails if epoll cannot watch another descriptor, and with [`Forked`] in a forked child. The
    /// channel is then closed.
    pub fn add_channel(&self, channel: crate::Channel, tag: u64) -> io::Result<Channel> {
        Channel::new(&self.shared, channel, tag)
    }

    /// Adds the receiving direction of a channel.
    ///
    /// # Errors
    /// Fails as [`add_channel`](Self::add_channel) does, for example if epoll cannot watch another
    /// descriptor.
    pub fn add_receiver(&self, receiver: crate::Receiver, tag: u64) -> io::Result<Receiver> {
        Receiver::new(&self.shared, receiver, tag)
    }

    /// Adds the sending direction of a channel to the loop.
    #[must_use]
    pub fn add_sender(&self, sender: crate::Sender, tag: u64) -> Sender {
        Sender::new(&self.shared, sender, tag)
    }

    /// Adds a listener for channels.
    ///
    /// # Errors
    /// Fails as [`add_channel`](Self::add_channel) does, for example if epoll cannot watch another
    /// descriptor.
    pub fn add_listener(&self, listener: crate::Listener, tag: u64) -> io::Result<ChannelListener> {
        ChannelListener::new(&self.shared, listener, tag)
    }

    /// Adds a source of another crate, such as a group of links.
    ///
    /// # Errors
    /// Fails if epoll cannot watch another descriptor.
    pub fn add_source(&self, source: impl Source + 'static, tag: u64) -> io::Result<Attached> {
        let registration = SourceTask::start(&self.shared, Box::new(source), tag)?;
        Ok(Attached { registration })
    }

    /// Listens for sessions at `address`. `config` applies to every accepted session.
    ///
    /// # Errors
    /// Returns [`BindError`] if the address cannot be bound.
    pub fn bind<A>(&self, address: A, config: &Config, tag: u64) -> Result<Listener, BindError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        Listener::bind(&self.shared, address, config, tag)
    }

    /// Opens a session with the listener at `address`. The loop runs the session's driver.
    ///
    /// The call blocks until the handshake is done, at most for
    /// [`handshake_timeout`](Config::handshake_timeout).
    ///
    /// # Errors
    /// Returns [`ConnectError`] if connecting fails or takes longer than the handshake timeout.
    pub fn connect<A>(&self, address: A, config: &Config, tag: u64) -> Result<Session, ConnectError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        Session::connect(&self.shared, &address, config, None, tag)
    }

    /// Opens a session, as [`connect`](Self::connect) does, with the server at `address`, which
    /// speaks `protocol` instead of Partywall's own.
    ///
    /// # Errors
    /// Returns [`ConnectError`] if connecting fails or takes longer than the handshake timeout.
    pub fn connect_with_protocol<A>(
        &self,
        address: A,
        config: &Config,
        protocol: Arc<dyn Protocol>,
        tag: u64,
    ) -> Result<Session, ConnectError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        Session::connect(&self.shared, &address, config, Some(protocol), tag)
    }

    /// Returns the time at which the application should call [`poll`](Self::poll) although the
    /// descriptor is not readable; `None` if no timer is set. A loop whose descriptor is watched
    /// has a timer of its own, so that the descriptor is enough.
    #[must_use]
    pub fn next_timer(&self) -> Option<Instant> {
        self.shared.next_timer()
    }

    /// Begins a turn of the loop. Returns what the previous call has found, if that call was
    /// `poll_awake`.
    fn begin(&self, events: &mut Vec<Event>) -> io::Result<(MutexGuard<'_, Round>, Awake)> {
        events.clear();
        if self.shared.guard.is_child() {
            return Err(Forked.into());
        }
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.list.begin_turn();
        let before = std::mem::take(&mut round.awake);
        Ok((round, before))
    }

    fn finish(&self, round: &mut Round, is_due: bool) -> io::Result<()> {
        let next = round.next_timer();
        self.shared.set_next_timer(next);
        // The timer is only set again if the new time is earlier. A timer that fires too early
        // costs one wake-up; setting the timer in each turn would cost a system call.
        let is_external = self.shared.list.end_turn(is_due);
        let is_earlier = next.is_some_and(|next| round.timer_set.is_none_or(|set| next < set));
        if is_external && is_earlier {
            self.shared.timer.set(next)?;
            round.timer_set = next;
        }
        Ok(())
    }
}

impl Round {
    /// Advances an event loop that has no event for the application: runs tasks, spins, or waits.
    /// Returns whether the epoll set was polled.
    fn next(&mut self, shared: &Shared, deadline: Option<Instant>) -> io::Result<bool> {
        if shared.list.is_idle() && !has_passed(deadline) && self.idle.idle() == IdleStep::Poll {
            std::hint::spin_loop();
            self.is_spinning = true;
        } else if shared.list.is_idle() {
            self.arm(shared);
            if !shared.list.begin_wait() {
                return Ok(false);
            }
            let until = [deadline, self.next_timer()].into_iter().flatten().min();
            let waited = shared.set.wait(&mut self.ready, until);
            shared.list.begin_turn();
            waited?;
            return self.serve(shared).map(|()| true);
        }
        let polled = self.poll(shared);
        self.is_spinning = false;
        polled.map(|()| true)
    }

    /// Polls the epoll set without waiting, marks the sources that are ready, and runs each task
    /// that needs a turn once.
    fn poll(&mut self, shared: &Shared) -> io::Result<()> {
        // The epoll set does not report records for a task that is not armed, so each such task
        // gets a turn.
        self.run_unarmed(shared)?;
        shared.set.wait(&mut self.ready, Some(Instant::now()))?;
        self.serve(shared)
    }

    /// Runs each task that needs a turn once, without a look at the epoll set.
    fn advance(&mut self, shared: &Shared) -> io::Result<()> {
        self.run_unarmed(shared)?;
        self.ready.clear();
        self.serve(shared)
    }

    fn serve(&mut self, shared: &Shared) -> io::Result<()> {
        // New tasks are added to the table of the loop's tasks first, because an event for a task
        // that is not in that table would be lost.
        self.admit(shared);
        if !self.ready.is_empty() {
            self.idle.busy();
        }
        for index in 0..self.ready.len() {
            self.handle(shared, self.ready[index].token)?;
        }
        self.expire(shared);
        for _ in 0..shared.list.turns_due() {
            let Some(key) = shared.list.next_turn() else { break };
            self.run(shared, key)?;
        }
        Ok(())
    }

    fn handle(&mut self, shared: &Shared, token: u64) -> io::Result<()> {
        match parse(token) {
            Some((key, Purpose::Records)) => shared.list.mark(key, Kinds::READABLE),
            Some((key, Purpose::Opened)) => shared.list.mark(key, Kinds::OPENED),
            Some((key, Purpose::Room)) => shared.list.mark(key, Kinds::WRITABLE),
            Some((key, purpose)) => {
                if purpose == Purpose::TaskRoom {
                    self.tasks.get(key).into_iter().for_each(|place| place.task.note_room());
                }
                shared.list.request_turn(key);
            }
            None if token == DOORBELL => drop(shared.list.doorbell().drain()?),
            None if token == TIMER => {
                shared.timer.drain()?;
                self.timer_set = None;
            }
            None => {}
        }
        Ok(())
    }

    /// Adds the tasks that other threads have added to the loop since its last turn, and drops the
    /// tasks that they have removed.
    fn admit(&mut self, shared: &Shared) {
        shared.take_arrivals(&mut self.arrivals);
        for arrival in self.arrivals.drain(..) {
            match arrival {
                Arrival::Add(key, task) => {
                    self.tasks.put(key, task);
                    // A turn that was requested before the task was in the table of the loop's
                    // tasks had no effect, so it is requested again.
                    shared.list.request_turn(key);
                }
                Arrival::Remove(key) => self.tasks.remove(key),
            }
        }
    }

    fn run(&mut self, shared: &Shared, key: Key) -> io::Result<()> {
        let Some(place) = self.tasks.get(key) else { return Ok(()) };
        place.is_unarmed = false;
        let step = place.task.turn()?;
        self.note(shared, key, step);
        Ok(())
    }

    /// Gives each task that is not armed a turn, because no peer notifies the loop of records for
    /// such a task.
    fn run_unarmed(&mut self, shared: &Shared) -> io::Result<()> {
        for _ in 0..self.unarmed.len() {
            let Some(key) = self.unarmed.pop_front() else { break };
            self.run(shared, key)?;
        }
        Ok(())
    }

    /// Arms every task that had no work in its last turn. A task that finds work while it is armed
    /// gets another turn.
    fn arm(&mut self, shared: &Shared) {
        while !self.unarmed.is_empty() {
            self.arm_first(shared);
        }
    }

    fn arm_first(&mut self, shared: &Shared) {
        let Some(key) = self.unarmed.pop_front() else { return };
        let Some(place) = self.tasks.get(key).filter(|place| place.is_unarmed) else { return };
        (place.is_unarmed, place.idle_turns) = (false, 0);
        let step = place.task.arm();
        self.note(shared, key, step);
    }

    fn note(&mut self, shared: &Shared, key: Key, step: Step) {
        let Some(place) = self.tasks.get(key) else { return };
        match step {
            Step::Again => {
                place.idle_turns = 0;
                self.idle.busy();
                shared.list.request_turn(key);
            }
            Step::Unarmed => {
                place.is_unarmed = true;
                place.idle_turns += 1;
                if place.idle_turns > IDLE_TURNS_MAX && !self.is_spinning {
                    self.unarmed.push_front(key);
                    return self.arm_first(shared);
                }
                self.unarmed.push_back(key);
            }
            Step::Waits => {}
            Step::Finished => return self.tasks.remove(key),
        }
        if place.task.next_timer().is_some() && !std::mem::replace(&mut place.is_timed, true) {
            self.timed.push(key);
        }
    }

    /// Requests a turn of each task whose timer is due.
    fn expire(&mut self, shared: &Shared) {
        if self.timed.is_empty() {
            return;
        }
        let now = Instant::now();
        for key in &self.timed {
            let time = self.tasks.get(*key).and_then(|place| place.task.next_timer());
            if time.is_some_and(|time| time <= now) {
                shared.list.request_turn(*key);
            }
        }
    }

    /// Returns the time of the earliest timer, and forgets tasks without a timer.
    fn next_timer(&mut self) -> Option<Instant> {
        let Self { tasks, timed, .. } = self;
        let mut next: Option<Instant> = None;
        timed.retain(|key| {
            let Some(place) = tasks.get(*key) else { return false };
            let time = place.task.next_timer();
            place.is_timed = time.is_some() || place.task.keeps_timer();
            next = [next, time].into_iter().flatten().min();
            place.is_timed
        });
        next
    }
}

/// The tasks of an event loop, in a table whose index is that of the source's entry in the ready
/// list.
#[derive(Debug, Default)]
struct Tasks {
    places: Vec<Option<Place>>,
}

/// A task in the table of an event loop. `is_unarmed` and `is_timed` say which lists of the loop
/// contain the task.
#[derive(Debug)]
struct Place {
    key: Key,
    task: Task,
    is_unarmed: bool,
    /// Number of turns in a row in which the task had nothing to do, while it was not armed.
    idle_turns: u32,
    is_timed: bool,
}

impl Tasks {
    fn put(&mut self, key: Key, task: Task) {
        let index = key.index as usize;
        if index >= self.places.len() {
            self.places.resize_with(index + 1, || None);
        }
        self.places[index] =
            Some(Place { key, task, is_unarmed: false, idle_turns: 0, is_timed: false });
    }

    fn get(&mut self, key: Key) -> Option<&mut Place> {
        self.places.get_mut(key.index as usize)?.as_mut().filter(|place| place.key == key)
    }

    fn remove(&mut self, key: Key) {
        if let Some(place) = self.places.get_mut(key.index as usize) {
            drop(place.take_if(|place| place.key == key));
        }
    }
}

impl AsFd for Loop {
    /// Returns a descriptor that is readable when [`poll`](Loop::poll) may find events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.list.watch_externally();
        self.shared.set.as_fd()
    }
}

impl Drop for Loop {
    /// Ends the sessions whose drivers the loop runs, because the loop is dropped.
    fn drop(&mut self) {
        let arrivals = self.shared.close();
        let round = self.round.get_mut().unwrap_or_else(PoisonError::into_inner);
        round.tasks = Tasks::default();
        drop(arrivals);
    }
}

impl fmt::Debug for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loop").field("next_timer", &self.next_timer()).finish_non_exhaustive()
    }
}

/// The longest time for which the thread of an event loop polls before it sleeps; it equals the
/// default of [`Config::spin_budget`].
const SPIN_BUDGET: Duration = Duration::from_micros(50);
/// Most times that one call of `poll_spinning` polls. The limit ends the call if a peer keeps a
/// task busy without causing an event.
const SPINNING_POLLS_MAX: u32 = 10_000;
/// A task that has nothing to do in this many turns in a row is armed, although the loop's thread
/// does not wait. Otherwise a busy loop would run the drivers of all its idle sessions in each
/// turn.
const IDLE_TURNS_MAX: u32 = 8;
