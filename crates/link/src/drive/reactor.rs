// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reactor of a group of links: its epoll set, sources and timers, and the choice of the
//! leader.
//!
//! ```text
//!   registry     which source has which token; timers (instant, token), earliest first
//!                unsettled: sources with an acknowledgement to send
//!                unarmed:   sources that the peer does not notify until they are armed
//!   leadership   whether there is a leader; monitors at which threads wait, oldest first
//! ```
//!
//! The reactor keeps no source alive. Each token is used once. So an event that the kernel still
//! reports for a removed descriptor reaches no other source.
//!
//! # Invariants
//!
//! - At most one thread makes a turn at a time: waits for events once, and handles them.
//! - The cost of a turn depends on the number of sources that are ready, due or unsettled, not on
//!   the number of all sources.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use partywall::event::Forked;
use partywall_layout::seeded_fault;
use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, EpollSet, ForkGuard, Ready};

/// An object that owns descriptors and timers of the reactor, and is called when one of them has an
/// event.
pub(crate) trait Source: Send + Sync {
    /// The reactor calls this function when the descriptor that this source registered under
    /// `token` is ready.
    fn ready(self: Arc<Self>, token: u64, flags: EventFlags);
    /// The reactor calls this function when the timer that this source set for its `token` is due.
    fn due(self: Arc<Self>, token: u64);
    fn settle(self: Arc<Self>);
    fn arm(self: Arc<Self>);
}

/// What a thread does around its turn of the reactor. It decides whether the sources have to be
/// armed before the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// The thread does not sleep: it polls all sources again. So no source needs to be armed.
    Polling,
    /// The thread sleeps in `epoll_wait`, in this turn of the reactor.
    Sleeping,
    /// The thread is in an external event loop of the application. After this poll of the reactor
    /// it checks which links have events, and then sleeps in its own loop until the reactor's
    /// descriptor is ready.
    SleepingExternally,
}

/// A monitor, as the reactor sees it: an object at which threads wait and can be woken.
pub(super) trait Wake: Send + Sync {
    fn wake(&self);
}

/// The epoll set of a group of links, with the sources and timers for which one thread of the group
/// polls.
pub(crate) struct Reactor {
    set: EpollSet,
    doorbell: Doorbell,
    /// The descriptor for an external event loop. It is made when the loop first requests it,
    /// before the loop first checks for events. If the process has no descriptors left, the loop
    /// watches the reactor's epoll set itself.
    external: OnceLock<Option<External>>,
    registry: Mutex<Registry>,
    lead: Mutex<Leadership>,
    guard: ForkGuard,
}

/// A second epoll set for an external event loop, which contains the reactor's epoll set and a
/// doorbell of its own. Only the external loop's polls of the reactor drain this doorbell. If a
/// leader drained it, the loop would miss notifications.
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
    /// Whether the leader handles events at the moment. If so, it will check the timers before it
    /// sleeps, and need not be notified of a new timer.
    is_turning: bool,
    is_asleep: bool,
    turns: u64,
    /// Whether an external event loop is making the reactor handle the events that are ready. That
    /// loop checks for events afterwards, so it needs no notification now.
    is_driven_externally: bool,
}

#[derive(Default)]
struct Leadership {
    is_taken: bool,
    /// Whether an external event loop wanted to poll while a thread led. That thread may have done
    /// its last work already, so it wakes the loop when it no longer leads.
    is_wanted_externally: bool,
    next_ticket: u64,
    waiting: BTreeMap<u64, Arc<dyn Wake>>,
    /// The buffers for the sources and timers that are ready in one poll of the reactor. While a
    /// thread leads, it has them, and this field is empty.
    lists: Lists,
}

/// Empty buffers for the sources and timers that are ready in one turn of the reactor. Each leader
/// passes them on to the next one, so that their memory is reused.
#[derive(Default)]
struct Lists {
    events: Vec<Ready>,
    unsettled: Vec<Weak<dyn Source>>,
    unarmed: Vec<Weak<dyn Source>>,
}

/// The role of a thread that must block: it leads, or it sleeps while another thread leads.
pub(super) enum Role<'a> {
    Leader(Leader<'a>),
    /// Another thread leads, and the calling thread waits: this number identifies it in the list of
    /// waiting threads.
    Follower(u64),
}

impl Leadership {
    /// Returns the monitor at which a thread has waited longest; its threads have to be woken so
    /// that one of them leads. Returns `None` if there is a leader, or if no thread waits.
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

    /// Registers `source` under a new token, and returns the token. The caller uses the token for
    /// one descriptor or timer.
    pub(crate) fn enter(&self, source: Weak<dyn Source>) -> u64 {
        let mut registry = self.registry();
        let token = registry.next_token;
        registry.next_token += 1;
        registry.sources.insert(token, source);
        token
    }

    /// Makes `source` the receiver of the events of `token`. The source that was registered under
    /// the token before gets no more events of it.
    pub(crate) fn reassign(&self, token: u64, source: Weak<dyn Source>) {
        self.registry().sources.insert(token, source);
    }

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

    /// Changes to `interest` the events for which the epoll set watches `descriptor`, which is
    /// registered under `token`.
    ///
    /// # Errors
    /// Fails only if the epoll set does not contain `descriptor`.
    pub(crate) fn rewatch(
        &self,
        descriptor: impl AsFd,
        interest: EventFlags,
        token: u64,
    ) -> io::Result<()> {
        self.set.modify(descriptor, interest, token)
    }

    pub(crate) fn unwatch(&self, descriptor: impl AsFd, token: u64) {
        // Removing a descriptor fails only if it was never added to the epoll set, so the result is
        // ignored.
        let _ = self.set.remove(descriptor);
        self.forget(token);
    }

    /// Moves the timer of `token` from the time `old` to the time `new`; `None` means that there is
    /// no timer.
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

    /// Adds `source`, if given, to the list of sources that have to be settled before the leader
    /// sleeps. Returns whether a leader sleeps already.
    pub(crate) fn settle_later(&self, source: Option<Weak<dyn Source>>) -> bool {
        let mut registry = self.registry();
        registry.unsettled.extend(source);
        if self.has_external_loop() {
            // If no thread blocks on the group, only the application's event loop can settle the
            // source, when it polls the group. So that loop is woken.
            self.notify_external_loop();
        }
        registry.is_asleep
    }

    /// Adds `source` to the list of sources that have to be armed before the leader sleeps. If a
    /// leader sleeps already, returns true and adds nothing: the caller has to arm the source
    /// itself.
    pub(crate) fn arm_later(&self, source: Weak<dyn Source>) -> bool {
        let mut registry = self.registry();
        if registry.is_asleep {
            return true;
        }
        registry.unarmed.push(source);
        if self.has_external_loop() {
            // If no thread blocks on the group, only the application's event loop can arm the
            // source, when it polls the group. So that loop is woken.
            self.notify_external_loop();
        }
        false
    }

    /// Wakes an external event loop of the application, because a source of this reactor, such as a
    /// link, has events.
    pub(crate) fn wake_external_loop(&self) {
        // The caller holds the lock of the value that it changed. If an external loop is just being
        // set up and is not visible to this thread yet, that loop will check for events later, and
        // then finds the change.
        if self.has_external_loop() && !self.registry().is_driven_externally {
            self.notify_external_loop();
        }
    }

    fn has_external_loop(&self) -> bool {
        self.external.get().is_some()
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.registry().timers.first().map(|(time, _)| *time)
    }

    /// Fails if this process is a forked child: the epoll set and the doorbell belong to its
    /// parent.
    pub(crate) fn check_owner(&self) -> io::Result<()> {
        if self.guard.is_child() { Err(Forked.into()) } else { Ok(()) }
    }

    pub(crate) fn turns(&self) -> u64 {
        self.registry().turns
    }

    /// Handles the events that are ready now, in a turn that does not block; does nothing if
    /// another thread leads. `before` says what the calling thread does after the turn.
    ///
    /// A forked child makes no turn, because the epoll set and the doorbell belong to its parent.
    pub(crate) fn try_turn(&self, before: Before) -> io::Result<()> {
        if self.guard.is_child() {
            return Ok(());
        }
        if let (Before::SleepingExternally, Some(Some(external))) = (before, self.external.get()) {
            // The doorbell that wakes the external event loop is drained before the turn, which
            // handles the events that are ready. So this turn, or the turn of the thread that leads
            // now, finds the event for which the doorbell was notified.
            external.doorbell.drain()?;
        }
        let Some(mut lead) = self.try_lead(before) else { return Ok(()) };
        lead.turn(Some(Instant::now()), before, || {})
    }

    fn notify_external_loop(&self) {
        match self.external.get() {
            // Notifying the reactor's own eventfd does not fail, so the result is ignored.
            Some(Some(external)) => drop(external.doorbell.notify()),
            _ => self.notify(),
        }
    }

    fn external() -> io::Result<External> {
        Ok(External { set: EpollSet::new()?, doorbell: Doorbell::new()? })
    }

    pub(super) fn notify(&self) {
        // Notifying the reactor's own eventfd does not fail, so the result is ignored.
        let _ = self.doorbell.notify();
    }

    /// Makes the calling thread the leader, if no thread is. Otherwise adds `monitor`, whose lock
    /// the caller holds, to the list of those that the leader wakes.
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

    /// Removes the follower (a waiting thread) with the number `ticket` from the list of waiting
    /// threads. That follower may already have been chosen to lead next, so it then has to call
    /// [`hand_over`](Self::hand_over).
    pub(super) fn leave(&self, ticket: u64) {
        self.leadership().waiting.remove(&ticket);
    }

    /// If no thread leads, wakes the threads at the monitor at which a thread has waited longest,
    /// so that one of them leads. The caller must not hold the lock of any monitor.
    pub(super) fn hand_over(&self) {
        let next = self.leadership().next();
        if let Some(monitor) = next {
            monitor.wake();
        }
    }

    fn try_lead(&self, before: Before) -> Option<Leader<'_>> {
        let mut lead = self.leadership();
        if lead.is_taken {
            let is_external = before == Before::SleepingExternally;
            lead.is_wanted_externally |=
                is_external && !seeded_fault("link_external_loop_forgotten");
            return None;
        }
        Some(self.taken(&mut lead))
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

/// The right to lead: only the thread that has this value may make turns. When the value is
/// dropped, the next leader is chosen.
pub(super) struct Leader<'a> {
    reactor: &'a Reactor,
    lists: Lists,
}

impl Leader<'_> {
    /// Makes one turn of the reactor: blocks until a source is ready, a timer is due or the
    /// doorbell is notified, at most until `deadline`; then handles the events. Calls `woken` after
    /// blocking and before handling. The caller must not hold the lock of any monitor.
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
            // This turn has settled the sources on the list `unsettled` and armed those on
            // `unarmed`. Since then other sources were added, so the external event loop is woken,
            // to settle and arm them.
            reactor.notify_external_loop();
        }
        handled
    }

    /// Settles the sources on the list `unsettled`, and arms those on `unarmed`. Then the leader
    /// counts as asleep, so a thread that adds a source later knows that the leader will not handle
    /// it. Returns the time at which the turn must stop blocking.
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
        // If a source is on one of the two lists, another thread has added it after this thread
        // emptied the lists. So this poll of the epoll set must not block.
        let is_unsettled = !(registry.unsettled.is_empty() && registry.unarmed.is_empty());
        let at_once = is_unsettled.then(Instant::now);
        at_once.or_else(|| registry.timers.first().map(|(time, _)| *time))
    }

    fn handle(&self, event: Ready) {
        if event.token == DOORBELL {
            // Draining the reactor's own eventfd does not fail, so the result is ignored.
            let _ = self.reactor.doorbell.drain();
            return;
        }
        let source = self.reactor.registry().sources.get(&event.token).and_then(Weak::upgrade);
        if let Some(source) = source {
            source.ready(event.token, event.flags);
        }
    }

    /// Handles the timers that are due now. If a source sets a timer meanwhile, the next turn
    /// handles that timer. Returns the locked registry, so that the caller need not lock it again.
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
        let (next, is_wanted_externally) = {
            let mut lead = self.reactor.leadership();
            lead.is_taken = false;
            lead.lists = std::mem::take(&mut self.lists);
            (lead.next(), std::mem::take(&mut lead.is_wanted_externally))
        };
        if let Some(monitor) = next {
            monitor.wake();
        }
        if is_wanted_externally {
            self.reactor.notify_external_loop();
        }
    }
}

/// Hashes the tokens by which sources are registered. Tokens count up and no peer chooses them, so
/// a cheap hash is safe. A hash that resists attacks would cost more than all other work on a
/// token.
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
        // The factor is 2^64 divided by the golden ratio. The product of close tokens then differs
        // in the upper bits too, as the hash table requires.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Maximum number of times that a leader settles and arms sources before one poll of the epoll set.
/// If sources are left then, the poll does not block: the sockets get their turn, and the rest of
/// the sources after that.
const SETTLED_MAX: u32 = 16;
/// Token of the reactor's own doorbell in its epoll set.
const DOORBELL: u64 = 0;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use partywall_sys::poll::{self, PollFd, PollFlags};

    use super::*;

    /// A source that counts how often it is armed.
    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Source for Counted {
        fn ready(self: Arc<Self>, _: u64, _: EventFlags) {}
        fn due(self: Arc<Self>, _: u64) {}
        fn settle(self: Arc<Self>) {}
        fn arm(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_readable(reactor: &Reactor) -> bool {
        let mut descriptors = [PollFd::from_borrowed_fd(reactor.as_fd(), PollFlags::IN)];
        poll::wait(&mut descriptors, Some(Instant::now())).unwrap() > 0
    }

    /// Rule: an external event loop that polls while another thread leads is woken when that thread
    /// no longer leads. The other thread has ended its turn, and arms nothing more.
    #[test]
    fn external_loop_is_woken_when_the_leader_leaves() {
        let reactor = Reactor::new().unwrap();
        assert!(!is_readable(&reactor));
        let mut leader = reactor.try_lead(Before::Polling).unwrap();
        leader.turn(Some(Instant::now()), Before::Polling, || {}).unwrap();
        let source = Arc::new(Counted::default());
        let weak: Weak<dyn Source> = Arc::<Counted>::downgrade(&source);
        assert!(!reactor.arm_later(weak));
        assert!(is_readable(&reactor), "the source has to be armed");
        reactor.try_turn(Before::SleepingExternally).unwrap();
        assert_eq!(source.0.load(Ordering::Relaxed), 0, "the other thread leads");
        drop(leader);
        assert!(is_readable(&reactor), "the loop would sleep, and the source stay unarmed");
        reactor.try_turn(Before::SleepingExternally).unwrap();
        assert_eq!(source.0.load(Ordering::Relaxed), 1);
        assert!(!is_readable(&reactor), "nothing is left to do");
    }
}
