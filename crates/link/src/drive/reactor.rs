// SPDX-License-Identifier: MIT OR Apache-2.0
//! The epoll set of a group, what is in it, its timers, and who leads.
//!
//! ```text
//!   book   token ▶ source      timers (instant, token), earliest first
//!          owing: sources with an acknowledgement to send      resting: sources that are not rung yet if something comes
//!   lead   is there a leader?  spots that wait, oldest first
//! ```
//!
//! It keeps no source alive. Tokens are never used twice, so what the kernel still reports of a descriptor that is gone
//! is of no token.
//!
//! # Invariants
//!
//! - At most one thread turns at a time.
//! - A turn costs by what is ready, due or owed, not by what there is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, EpollSet, ForkGuard, Ready};

/// Something with descriptors and timers.
pub(crate) trait Source: Send + Sync {
    /// The descriptor under this token is ready.
    fn ready(self: Arc<Self>, token: u64, flags: EventFlags);
    /// The time that was set under this token has come.
    fn due(self: Arc<Self>, token: u64);
    /// What was put off until somebody waits is to be done.
    fn settle(self: Arc<Self>);
    /// Somebody is about to sleep, and is to be woken for this source, too.
    fn arm(self: Arc<Self>);
}

/// What whoever turns will do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Look by itself: nobody needs to ring.
    Polling,
    /// Sleep here.
    Sleeping,
    /// Look at what has news, and then sleep until the descriptor is ready.
    SleepingExternally,
}

/// Where threads wait.
pub(super) trait Wake: Send + Sync {
    /// Has all who follow there look again.
    fn wake(&self);
}

/// See the module.
pub(crate) struct Reactor {
    set: EpollSet,
    doorbell: Doorbell,
    /// What a foreign event loop watches, made when it first asks, and before it looks for the first time what has news; without
    /// descriptors left it watches the set itself.
    external: OnceLock<Option<External>>,
    registry: Mutex<Registry>,
    lead: Mutex<Leadership>,
    guard: ForkGuard,
}

/// The set, and a bell that only the turns of a foreign event loop silence: threads that lead would take away the rings meant for it.
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
    /// A leader handles events and will look at the timers before it sleeps.
    is_turning: bool,
    /// A leader waits.
    is_asleep: bool,
    turns: u64,
    /// It is that one's turn, after which it looks what has news.
    is_driven_externally: bool,
}

#[derive(Default)]
struct Leadership {
    is_taken: bool,
    next_ticket: u64,
    waiting: BTreeMap<u64, Arc<dyn Wake>>,
    /// The leader's, while nobody leads.
    lists: Lists,
}

/// Room for what a leader has in hand, kept for the next.
#[derive(Default)]
struct Lists {
    events: Vec<Ready>,
    unsettled: Vec<Weak<dyn Source>>,
    unarmed: Vec<Weak<dyn Source>>,
}

/// What a thread becomes that must wait.
pub(super) enum Role<'a> {
    Leader(Leader<'a>),
    /// Under this ticket.
    Follower(u64),
}

impl Leadership {
    /// Who is to be told to lead, if nobody does.
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

    /// A token for a descriptor or timer of `source`.
    pub(crate) fn enter(&self, source: Weak<dyn Source>) -> u64 {
        let mut registry = self.registry();
        let token = registry.next_token;
        registry.next_token += 1;
        registry.sources.insert(token, source);
        token
    }

    /// From now on the token is of another source.
    pub(crate) fn reassign(&self, token: u64, source: Weak<dyn Source>) {
        self.registry().sources.insert(token, source);
    }

    /// The token is of nothing any more.
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
    /// None for a descriptor that is watched.
    pub(crate) fn rewatch(
        &self,
        descriptor: impl AsFd,
        interest: EventFlags,
        token: u64,
    ) -> io::Result<()> {
        self.set.modify(descriptor, interest, token)
    }

    pub(crate) fn unwatch(&self, descriptor: impl AsFd, token: u64) {
        // It fails only for a descriptor that was never watched.
        let _ = self.set.remove(descriptor);
        self.forget(token);
    }

    /// Puts the time `new` in the place of `old`.
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

    /// Has `source`, if it is given, settled before the next leader sleeps. Whether one sleeps already.
    pub(crate) fn settle_later(&self, source: Option<Weak<dyn Source>>) -> bool {
        let mut registry = self.registry();
        registry.unsettled.extend(source);
        if self.has_external_loop() {
            // Whoever sleeps elsewhere is to call.
            self.notify_external_loop();
        }
        registry.is_asleep
    }

    /// Has `source` lie down before the next leader sleeps. `true`: one sleeps already, and whoever calls is to do it.
    pub(crate) fn arm_later(&self, source: Weak<dyn Source>) -> bool {
        let mut registry = self.registry();
        if registry.is_asleep {
            return true;
        }
        registry.unarmed.push(source);
        if self.has_external_loop() {
            // As above.
            self.notify_external_loop();
        }
        false
    }

    /// A source has news: whoever waits for the descriptor by other means is to look.
    pub(crate) fn wake_external_loop(&self) {
        // With the lock of what changed. Who is not seen here looks after this, and finds it.
        if self.has_external_loop() && !self.registry().is_driven_externally {
            self.notify_external_loop();
        }
    }

    /// Whether somebody waits for the descriptor by other means.
    fn has_external_loop(&self) -> bool {
        self.external.get().is_some()
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.registry().timers.first().map(|(time, _)| *time)
    }

    /// How often a leader waited.
    pub(crate) fn turns(&self) -> u64 {
        self.registry().turns
    }

    /// A turn without waiting, if nobody leads. `before` what is not to be missed.
    ///
    /// A forked child has no part in this: the set and the bell are its parent's.
    pub(crate) fn try_turn(&self, before: Before) -> io::Result<()> {
        if self.guard.is_child() {
            return Ok(());
        }
        if let (Before::SleepingExternally, Some(Some(external))) = (before, self.external.get()) {
            // What it was rung for is seen from here on, by whomever it is done.
            external.doorbell.drain()?;
        }
        let Some(mut lead) = self.try_lead() else { return Ok(()) };
        lead.turn(Some(Instant::now()), before, || {})
    }

    /// Wakes whoever sleeps elsewhere.
    fn notify_external_loop(&self) {
        match self.external.get() {
            // As below.
            Some(Some(external)) => drop(external.doorbell.notify()),
            _ => self.notify(),
        }
    }

    fn external() -> io::Result<External> {
        Ok(External { set: EpollSet::new()?, doorbell: Doorbell::new()? })
    }

    /// Wakes a leader that sleeps.
    pub(super) fn notify(&self) {
        // A sound eventfd does not fail.
        let _ = self.doorbell.notify();
    }

    /// Leads, or is entered as waiting at `monitor`, of which the caller has the lock.
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

    /// Whoever followed under this ticket does not any more; it may have been told to lead.
    pub(super) fn leave(&self, ticket: u64) {
        self.leadership().waiting.remove(&ticket);
    }

    /// If nobody leads, tells one of those who wait to. No spot may be locked by the caller.
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

/// The one thread that turns; dropped, another is told to.
pub(super) struct Leader<'a> {
    reactor: &'a Reactor,
    lists: Lists,
}

impl Leader<'_> {
    /// Waits until something is ready, due, or the bell rings, at most until `deadline`, and handles it. `woken` is called
    /// between the two. No spot may be locked by the caller.
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
            // Whoever came to the lists meanwhile, before this turn was the foreigner's or after.
            reactor.notify_external_loop();
        }
        handled
    }

    /// Settles what is owed, and from then on counts as asleep: whoever owes after that is told so. The first timer.
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
        // Others kept it from lying down: not for long, then.
        let is_unsettled = !(registry.unsettled.is_empty() && registry.unarmed.is_empty());
        let at_once = is_unsettled.then(Instant::now);
        at_once.or_else(|| registry.timers.first().map(|(time, _)| *time))
    }

    fn handle(&self, event: Ready) {
        if event.token == DOORBELL {
            // As in `ring`.
            let _ = self.reactor.doorbell.drain();
            return;
        }
        let source = self.reactor.registry().sources.get(&event.token).and_then(Weak::upgrade);
        if let Some(source) = source {
            source.ready(event.token, event.flags);
        }
    }

    /// Those that are due now; what they set anew is for the next turn. The book, for what is to be written when that is done.
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

/// Spreads tokens, which count up and which nobody else chooses: a hash that resists foes would cost more than all else that is
/// done with one.
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
        // 2^64 divided by the golden ratio: the upper bits differ, too, as the table needs.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Rounds of settling before it is looked whether anything is ready.
const SETTLED_MAX: u32 = 16;
/// The bell's token.
const DOORBELL: u64 = 0;
