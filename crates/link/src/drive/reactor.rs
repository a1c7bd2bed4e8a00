// SPDX-License-Identifier: MIT OR Apache-2.0
//! The epoll set of a group with its sources and timers, and the choice of the thread that leads.
//!
//! ```text
//!   registry     token ▶ source      timers (instant, token), earliest first
//!                unsettled: sources with an acknowledgement to send
//!                unarmed:   sources that the peer does not notify yet
//!   leadership   is there a leader?  monitors with waiting threads, oldest first
//! ```
//!
//! The reactor keeps no source alive. No token is used twice, so an event that the kernel still
//! reports for a removed descriptor matches no source.
//!
//! # Invariants
//!
//! - At most one thread makes a turn at a time.
//! - The cost of a turn depends on the number of sources that are ready, due or unsettled, not on
//!   the number of all sources.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, EpollSet, ForkGuard, Ready};

/// An object with descriptors and timers.
pub(crate) trait Source: Send + Sync {
    /// Called when the descriptor registered under `token` is ready.
    fn ready(self: Arc<Self>, token: u64, flags: EventFlags);
    /// Called when the timer set for `token` is due.
    fn due(self: Arc<Self>, token: u64);
    /// Does the work that was postponed until a thread is about to block.
    fn settle(self: Arc<Self>);
    /// Arms this source, so that the peer notifies it, because a thread is about to sleep.
    fn arm(self: Arc<Self>);
}

/// The next action of a thread after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// The thread checks by itself, so no source needs to be armed.
    Polling,
    /// The thread sleeps during this turn.
    Sleeping,
    /// The thread checks which links have events, and then sleeps in the application's event loop
    /// until the descriptor is ready.
    SleepingExternally,
}

/// A monitor, as the reactor uses it: threads wait there.
pub(super) trait Wake: Send + Sync {
    /// Makes all followers at this monitor check again.
    fn wake(&self);
}

/// The epoll set of a group, with everything that its leader needs.
pub(crate) struct Reactor {
    set: EpollSet,
    doorbell: Doorbell,
    /// The descriptor for an external event loop, made when the loop first requests it, before its
    /// first check for events. If the process has no descriptors left, the loop watches `set`
    /// itself.
    external: OnceLock<Option<External>>,
    registry: Mutex<Registry>,
    lead: Mutex<Leadership>,
    guard: ForkGuard,
}

/// A second epoll set, which contains the first one and a doorbell that only turns of an external
/// event loop drain. If a leader drained that doorbell, the loop would miss notifications.
struct External {
    set: EpollSet,
    doorbell: Doorbell,
}

#[derive(Default)]
struct Registry {
    next_token: u64,
    sources: HashMap<u64, Weak<dyn Source>, BuildHasherDefault<TokenHasher>>,
    timers: BTreeSet<(Instant, u64)>,
    unsettled: Vec<Weak<dyn Source>>,
    unarmed: Vec<Weak<dyn Source>>,
    /// Whether a leader handles events at the moment, and will check the timers before it sleeps.
    is_turning: bool,
    /// Whether a leader sleeps in `epoll_wait`.
    is_asleep: bool,
    turns: u64,
    /// Whether the present turn belongs to an external event loop, which checks for events after
    /// it.
    is_driven_externally: bool,
}

#[derive(Default)]
struct Leadership {
    is_taken: bool,
    next_ticket: u64,
    waiting: BTreeMap<u64, Arc<dyn Wake>>,
    /// The lists that a leader uses, kept here while there is no leader.
    lists: Lists,
}

/// Buffers that each leader passes on to the next one.
#[derive(Default)]
struct Lists {
    events: Vec<Ready>,
    unsettled: Vec<Weak<dyn Source>>,
    unarmed: Vec<Weak<dyn Source>>,
}

/// The role of a thread that must block.
pub(super) enum Role<'a> {
    Leader(Leader<'a>),
    /// The thread follows: it is entered in the list of waiting threads under this ticket.
    Follower(u64),
}

impl Leadership {
    /// The monitor whose followers have to be woken because there is no leader; `None` if there is
    /// one.
    fn next(&self) -> Option<Arc<dyn Wake>> {
        let first = self.waiting.first_key_value().filter(|_| !self.is_taken);
        first.map(|(_, monitor)| Arc::clone(monitor))
    }
}

impl Reactor {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let (set, doorbell) = (EpollSet::new()?, Doorbell::new()?);
        set.add(&doorbell, EventFlags::IN, DOORBELL)?;
        let registry = Registry { next_token: DOORBELL + 1, ..Registry::default() };
        Ok(Arc::new(Self {
            set,
            doorbell,
            external: OnceLock::new(),
            registry: Mutex::new(registry),
            lead: Mutex::default(),
            guard: ForkGuard::current(),
        }))
    }

    /// Registers a descriptor or timer of `source`; returns its new token.
    pub(crate) fn enter(&self, source: Weak<dyn Source>) -> u64 {
        let mut registry = self.registry();
        let token = registry.next_token;
        registry.next_token += 1;
        registry.sources.insert(token, source);
        token
    }

    /// Assigns the token to another source.
    pub(crate) fn reassign(&self, token: u64, source: Weak<dyn Source>) {
        self.registry().sources.insert(token, source);
    }

    /// Unregisters the token.
    pub(crate) fn forget(&self, token: u64) {
        if self.guard.is_child() {
            return;
        }
        self.registry().sources.remove(&token);
    }

    pub(crate) fn watch(
        &self,
        descriptor: impl AsFd,
        interest: EventFlags,
        token: u64,
    ) -> io::Result<()> {
        self.set.add(descriptor, interest, token)
    }

    /// # Errors
    /// None for a descriptor that is registered.
    pub(crate) fn rewatch(
        &self,
        descriptor: impl AsFd,
        interest: EventFlags,
        token: u64,
    ) -> io::Result<()> {
        self.set.modify(descriptor, interest, token)
    }

    pub(crate) fn unwatch(&self, descriptor: impl AsFd, token: u64) {
        // Removal fails only for a descriptor that was never registered.
        let _ = self.set.remove(descriptor);
        self.forget(token);
    }

    /// Changes the timer of `token` from the time `old` to the time `new`.
    pub(crate) fn set_timer(&self, token: u64, old: Option<Instant>, new: Option<Instant>) {
        if old == new {
            return;
        }
        let mut registry = self.registry();
        if let Some(old) = old {
            registry.timers.remove(&(old, token));
        }
        let Some(new) = new else { return };
        let is_first = registry.timers.first().is_none_or(|(first, _)| new < *first);
        registry.timers.insert((new, token));
        if is_first && !registry.is_turning {
            self.notify();
        }
        if is_first && self.has_external_loop() && !registry.is_driven_externally {
            self.notify_external_loop();
        }
    }

    /// Enters `source`, if given, in the list of sources to settle before the next leader sleeps.
    /// Returns whether a leader sleeps already.
    pub(crate) fn settle_later(&self, source: Option<Weak<dyn Source>>) -> bool {
        let mut registry = self.registry();
        registry.unsettled.extend(source);
        if self.has_external_loop() {
            // An external event loop has to make a turn.
            self.notify_external_loop();
        }
        registry.is_asleep
    }

    /// Enters `source` in the list of sources to arm before the next leader sleeps. Returns true if
    /// a leader sleeps already, so that the caller has to arm the source.
    pub(crate) fn arm_later(&self, source: Weak<dyn Source>) -> bool {
        let mut registry = self.registry();
        if registry.is_asleep {
            return true;
        }
        registry.unarmed.push(source);
        if self.has_external_loop() {
            // An external event loop has to make a turn.
            self.notify_external_loop();
        }
        false
    }

    /// Wakes an external event loop, because a source has events.
    pub(crate) fn wake_external_loop(&self) {
        // The caller holds the lock of the changed value. If a loop is not visible yet, it checks
        // for events later, and finds the change.
        if self.has_external_loop() && !self.registry().is_driven_externally {
            self.notify_external_loop();
        }
    }

    /// Whether an external event loop has requested the descriptor.
    fn has_external_loop(&self) -> bool {
        self.external.get().is_some()
    }

    /// Time at which the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.registry().timers.first().map(|(time, _)| *time)
    }

    /// Number of times that a leader polled or blocked.
    pub(crate) fn turns(&self) -> u64 {
        self.registry().turns
    }

    /// Makes a turn without blocking, unless there is a leader. `before` says what the thread does
    /// afterwards.
    ///
    /// A forked child makes no turn, because the epoll set and the doorbell belong to its parent.
    pub(crate) fn try_turn(&self, before: Before) -> io::Result<()> {
        if self.guard.is_child() {
            return Ok(());
        }
        if let (Before::SleepingExternally, Some(Some(external))) = (before, self.external.get()) {
            // After the doorbell is drained, this turn or the leader finds the event for which it
            // was notified.
            external.doorbell.drain()?;
        }
        let Some(mut lead) = self.try_lead() else { return Ok(()) };
        lead.turn(Some(Instant::now()), before, || {})
    }

    /// Wakes an external event loop that sleeps on the descriptor.
    fn notify_external_loop(&self) {
        match self.external.get() {
            // Notifying an intact eventfd does not fail.
            Some(Some(external)) => drop(external.doorbell.notify()),
            _ => self.notify(),
        }
    }

    fn external() -> io::Result<External> {
        Ok(External { set: EpollSet::new()?, doorbell: Doorbell::new()? })
    }

    /// Wakes a leader that sleeps.
    pub(super) fn notify(&self) {
        // Notifying an intact eventfd does not fail.
        let _ = self.doorbell.notify();
    }

    /// Makes the caller the leader, or enters it as waiting at `monitor`. The caller holds the lock
    /// of `monitor`.
    pub(super) fn join(&self, monitor: impl FnOnce() -> Arc<dyn Wake>) -> Role<'_> {
        let mut lead = self.leadership();
        if !lead.is_taken {
            return Role::Leader(self.taken(&mut lead));
        }
        let ticket = lead.next_ticket;
        lead.next_ticket += 1;
        lead.waiting.insert(ticket, monitor());
        Role::Follower(ticket)
    }

    /// Removes a follower's ticket. The follower may already have been chosen as the next leader.
    pub(super) fn leave(&self, ticket: u64) {
        self.leadership().waiting.remove(&ticket);
    }

    /// Chooses the next leader if there is none. The caller must not hold the lock of any monitor.
    pub(super) fn hand_over(&self) {
        let next = self.leadership().next();
        if let Some(monitor) = next {
            monitor.wake();
        }
    }

    fn try_lead(&self) -> Option<Leader<'_>> {
        let mut lead = self.leadership();
        (!lead.is_taken).then(|| self.taken(&mut lead))
    }

    fn taken(&self, lead: &mut Leadership) -> Leader<'_> {
        lead.is_taken = true;
        Leader { reactor: self, lists: std::mem::take(&mut lead.lists) }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leadership(&self) -> MutexGuard<'_, Leadership> {
        self.lead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Reactor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let external = self.external.get_or_init(|| {
            let external = Self::external().ok()?;
            external.set.add(&self.set, EventFlags::IN, 0).ok()?;
            external.set.add(&external.doorbell, EventFlags::IN, DOORBELL).ok()?;
            Some(external)
        });
        match external {
            Some(external) => external.set.as_fd(),
            None => self.set.as_fd(),
        }
    }
}

/// The leader: the only thread that may make turns. When the value is dropped, the next leader is
/// chosen.
pub(super) struct Leader<'a> {
    reactor: &'a Reactor,
    lists: Lists,
}

impl Leader<'_> {
    /// Blocks until a source is ready or due or the doorbell is notified, at most until `deadline`,
    /// and handles those sources. `woken` is called after blocking and before handling. The caller
    /// must not hold the lock of any monitor.
    pub(super) fn turn(
        &mut self,
        deadline: Option<Instant>,
        before: Before,
        woken: impl FnOnce(),
    ) -> io::Result<()> {
        let reactor = self.reactor;
        let first_timer = self.prepare_sleep(before);
        let until = first_timer.into_iter().chain(deadline).min();
        let waited = reactor.set.wait(&mut self.lists.events, until);
        {
            let mut registry = reactor.registry();
            registry.is_turning = true;
            registry.is_asleep = false;
        }
        woken();
        let handled = waited.map(|_| {
            for index in 0..self.lists.events.len() {
                self.handle(self.lists.events[index]);
            }
        });
        let mut registry = match handled {
            Ok(()) => self.expire(),
            Err(_) => reactor.registry(),
        };
        (registry.is_turning, registry.is_driven_externally) = (false, false);
        if reactor.has_external_loop()
            && !(registry.unsettled.is_empty() && registry.unarmed.is_empty())
        {
            // Sources were added to the lists during this turn or before it, and the external loop
            // has to handle them.
            reactor.notify_external_loop();
        }
        handled
    }

    /// Settles and arms the listed sources. Then the leader counts as asleep, so that a thread that
    /// lists a source later knows that it must notify. Returns the time of the first timer.
    fn prepare_sleep(&mut self, before: Before) -> Option<Instant> {
        let mut registry = self.reactor.registry();
        registry.is_driven_externally = before == Before::SleepingExternally;
        for _ in 0..SETTLED_MAX {
            if registry.unsettled.is_empty()
                && (registry.unarmed.is_empty() || before == Before::Polling)
            {
                break;
            }
            self.lists.unsettled.append(&mut registry.unsettled);
            if before != Before::Polling {
                self.lists.unarmed.append(&mut registry.unarmed);
            }
            drop(registry);
            self.lists
                .unsettled
                .drain(..)
                .filter_map(|source| source.upgrade())
                .for_each(Source::settle);
            self.lists
                .unarmed
                .drain(..)
                .filter_map(|source| source.upgrade())
                .for_each(Source::arm);
            registry = self.reactor.registry();
        }
        registry.is_turning = false;
        registry.is_asleep = true;
        registry.turns += 1;
        // Other threads have added sources to the lists again, so the turn must not block.
        let is_unsettled = !(registry.unsettled.is_empty() && registry.unarmed.is_empty());
        let at_once = is_unsettled.then(Instant::now);
        at_once.or_else(|| registry.timers.first().map(|(time, _)| *time))
    }

    fn handle(&self, event: Ready) {
        if event.token == DOORBELL {
            // Draining an intact eventfd does not fail.
            let _ = self.reactor.doorbell.drain();
            return;
        }
        let source = self.reactor.registry().sources.get(&event.token).and_then(Weak::upgrade);
        if let Some(source) = source {
            source.ready(event.token, event.flags);
        }
    }

    /// Handles the timers that are due now. Timers that these set are left for the next turn.
    /// Returns the locked registry, so that the caller need not lock it again.
    fn expire(&self) -> MutexGuard<'_, Registry> {
        let mut registry = self.reactor.registry();
        if registry.timers.is_empty() {
            return registry;
        }
        let now = Instant::now();
        let count = registry.timers.range(..=(now, u64::MAX)).count();
        for _ in 0..count {
            let Some((time, token)) = registry.timers.first().copied() else { break };
            if time > now {
                break;
            }
            registry.timers.pop_first();
            let source = registry.sources.get(&token).and_then(Weak::upgrade);
            drop(registry);
            if let Some(source) = source {
                source.due(token);
            }
            registry = self.reactor.registry();
        }
        registry
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let next = {
            let mut lead = self.reactor.leadership();
            lead.is_taken = false;
            lead.lists = std::mem::take(&mut self.lists);
            lead.next()
        };
        if let Some(monitor) = next {
            monitor.wake();
        }
    }
}

/// Hashes tokens. Tokens count up and no peer chooses them, so a cheap hash is safe. A hash that
/// resists attacks would cost more than everything else that is done with a token.
#[derive(Default)]
struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // The factor is 2^64 divided by the golden ratio, so that the upper bits differ too, as the
        // table requires.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Maximum number of rounds in which sources are settled before the epoll set is polled.
const SETTLED_MAX: u32 = 16;
/// Token of the reactor's own doorbell.
const DOORBELL: u64 = 0;
