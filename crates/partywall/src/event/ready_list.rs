// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ready list of a loop: which sources have events, which sessions need a turn, and whether the
//! loop's thread must be woken.
//!
//! ```text
//!   waker, descriptor ─▶ mark ─▶ entry: kinds ─┬─ listed ─▶ collect ─▶ events of the application
//!   attempt found nothing ─▶ clear ────────────┘     ▲          │
//!                                                    └──────────┘ READABLE and OPENED stay listed
//!   user of a session ─▶ request_turn ─▶ turns ─▶ the loop runs the session's driver
//! ```
//!
//! No file descriptor is polled here: the doorbell wakes a thread that waits, in the loop or in an
//! external event loop above it.
//!
//! # Invariants
//!
//! - An entry with kinds of events is listed, so the next `collect` reports it or leaves it listed.
//! - Between `begin_wait` and the next turn, the first `mark` or `request_turn` wakes the thread.
//! - In steady state no call allocates: an entry is listed at most once.

use super::event::{Event, Kinds};
use crate::session::sync::{AsymmetricMutex, AsymmetricMutexGuard};
use partywall_layout::seeded_fault;
use partywall_sys::Doorbell;
use std::collections::VecDeque;
use std::task::Poll;

pub(super) trait LoopWaker {
    /// Wakes the loop's thread, or makes the next wait of that thread return at once.
    fn wake(&self);
}

impl LoopWaker for Doorbell {
    fn wake(&self) {
        // Only this process holds the eventfd, so no other process can fill its counter, and a
        // notification never fails.
        let _ = self.notify();
    }
}

/// The sources of an event loop that have events, and the doorbell that wakes the loop's thread.
#[derive(Debug)]
pub(super) struct ReadyList<B = Doorbell> {
    state: AsymmetricMutex<State>,
    doorbell: B,
    /// Whether the loop reports every kind of event of a source only once, until an attempt on the
    /// source finds nothing.
    is_once: bool,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Keys of the sources with events, in the order in which the loop reports them. A source that
    /// was removed, or has no event any more, is skipped.
    listed: VecDeque<Key>,
    /// Keys of the sources whose tasks need a turn of the loop's thread, oldest request first.
    turns: VecDeque<Key>,
    /// Number of sources that have at least one kind of event.
    live: usize,
    /// Whether the loop's thread sleeps, in the loop itself or in an external event loop. Only then
    /// do new events notify the doorbell.
    is_waiting: bool,
    /// Whether the doorbell was notified since the last turn of the loop began.
    is_notified: bool,
    /// Whether an external event loop watches the descriptor of this loop.
    is_external: bool,
}

/// The entry of one source in the ready list of an event loop.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    tag: u64,
    kinds: Kinds,
    is_listed: bool,
    needs_turn: bool,
}

/// Identifies a source of an event loop, by the index and the generation of its entry in the ready
/// list. An entry that is used again has another generation, so events of a removed source match no
/// source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub index: u32,
    pub generation: u32,
}

impl<B: LoopWaker> ReadyList<B> {
    pub(super) fn new(doorbell: B) -> Self {
        Self { state: AsymmetricMutex::new(State::default()), doorbell, is_once: false }
    }

    /// Makes a list that reports each kind of event of a source once. It reports the kind again
    /// only after a call on the source has found nothing, for example no message.
    pub(super) fn reporting_once(doorbell: B) -> Self {
        Self { is_once: true, ..Self::new(doorbell) }
    }

    pub(super) const fn is_once(&self) -> bool {
        self.is_once
    }

    pub(super) const fn doorbell(&self) -> &B {
        &self.doorbell
    }

    pub(super) fn add(&self, tag: u64) -> Key {
        let mut state = self.lock();
        let index = state.free.pop().unwrap_or_else(|| {
            state.slots.push(Slot::default());
            #[expect(clippy::cast_possible_truncation, reason = "fewer sources than descriptors")]
            let index = (state.slots.len() - 1) as u32;
            index
        });
        let slot = &mut state.slots[index as usize];
        slot.tag = tag;
        Key { index, generation: slot.generation }
    }

    pub(super) fn remove(&self, key: Key) {
        let mut state = self.lock();
        let Some(slot) = state.slot(key) else { return };
        let had_kinds = !slot.kinds.is_empty();
        let generation = (key.generation + 1) & GENERATION_MAX;
        *slot = Slot { generation, ..Slot::default() };
        state.live -= usize::from(had_kinds);
        state.free.push(key.index);
    }

    /// Notes that a source has events of the kinds `kinds`. Wakes the loop's thread if that thread
    /// waits.
    pub(super) fn mark(&self, key: Key, kinds: Kinds) {
        let mut state = self.lock();
        let Some(slot) = state.slot(key) else { return };
        let had_none = slot.kinds.is_empty();
        slot.kinds |= kinds;
        let was_listed = std::mem::replace(&mut slot.is_listed, true);
        state.live += usize::from(had_none);
        if !was_listed {
            state.listed.push_back(key);
        }
        self.notify_if_waiting(state);
    }

    /// Notes that an attempt of the application found nothing, so the source has no events of the
    /// kinds `kinds`. The caller then attempts once more, and if it finds something, it notes the
    /// events again by `mark`.
    pub(super) fn clear(&self, key: Key, kinds: Kinds) {
        let mut state = self.lock();
        let Some(slot) = state.slot(key) else { return };
        let had_kinds = !slot.kinds.is_empty();
        slot.kinds = slot.kinds & !kinds;
        let lost_kinds = had_kinds && slot.kinds.is_empty();
        state.live -= usize::from(lost_kinds);
    }

    /// Calls `poll`, an attempt of the application to receive or accept. If `poll` finds nothing,
    /// it has registered a waker that later gives the source an event.
    ///
    /// In that case the source's events are cleared, and `poll` is called once more, because the
    /// waker may have given the event just before the events were cleared.
    pub(super) fn attempt<T>(
        &self,
        key: Key,
        kinds: Kinds,
        mut poll: impl FnMut() -> Poll<T>,
    ) -> Poll<T> {
        let polled = poll();
        if polled.is_ready() {
            return polled;
        }
        self.clear(key, kinds);
        if seeded_fault("no_second_look") {
            return polled;
        }
        let polled = poll();
        if polled.is_ready() {
            self.mark(key, kinds);
        }
        polled
    }

    /// Notes that the task of a source needs a turn of the loop's thread, and wakes that thread if
    /// it waits.
    pub(super) fn request_turn(&self, key: Key) {
        let mut state = self.lock();
        let Some(slot) = state.slot(key) else { return };
        if !std::mem::replace(&mut slot.needs_turn, true) {
            state.turns.push_back(key);
        }
        self.notify_if_waiting(state);
    }

    /// Wakes the loop's thread if it waits, for work that the ready list does not contain, such as
    /// the removal of a task.
    pub(super) fn wake(&self) {
        self.notify_if_waiting(self.lock());
    }

    pub(super) fn turns_due(&self) -> usize {
        self.lock().turns.len()
    }

    /// Takes the source whose task has needed a turn for the longest time.
    pub(super) fn next_turn(&self) -> Option<Key> {
        let mut state = self.lock();
        loop {
            let key = state.turns.pop_front()?;
            if let Some(slot) = state.slot(key) {
                slot.needs_turn = false;
                return Some(key);
            }
        }
    }

    /// Appends the events of sources to `events`, until it has `max` or [`EVENTS_MAX`] of them.
    /// Each source is reported at most once; a source whose events stay is listed behind all
    /// others.
    pub(super) fn collect(&self, events: &mut Vec<Event>, max: usize) {
        let kept = if self.is_once { Kinds::NONE } else { Kinds::LEVEL };
        let mut state = self.lock();
        for _ in 0..state.listed.len() {
            if events.len() >= max.min(EVENTS_MAX) {
                break;
            }
            let Some(key) = state.listed.pop_front() else { break };
            let Some(slot) = state.slot(key) else { continue };
            slot.is_listed = false;
            if slot.kinds.is_empty() {
                continue;
            }
            events.push(Event { tag: slot.tag, kinds: slot.kinds });
            slot.kinds = slot.kinds & kept;
            if slot.kinds.is_empty() {
                state.live -= 1;
            } else {
                slot.is_listed = true;
                state.listed.push_back(key);
            }
        }
    }

    /// Whether no source has events, and no task needs a turn.
    pub(super) fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }

    /// Announces that the loop's thread is about to wait. Returns false if the thread must not
    /// wait, because a source has events or a task needs a turn.
    pub(super) fn begin_wait(&self) -> bool {
        let mut state = self.lock();
        if !state.is_idle() && !seeded_fault("no_look_before_the_loop_waits") {
            return false;
        }
        state.is_waiting = true;
        true
    }

    /// Announces that the loop's thread is awake. The thread handles all events that were marked so
    /// far, so no event needs to wake it.
    pub(super) fn begin_turn(&self) {
        let mut state = self.lock();
        (state.is_waiting, state.is_notified) = (false, false);
    }

    /// Ends a turn of the loop, after which an external event loop that watches the loop's
    /// descriptor may wait. `is_due` says that the loop needs another turn in any case. Returns
    /// whether such an external event loop exists.
    pub(super) fn end_turn(&self, is_due: bool) -> bool {
        let mut state = self.lock();
        if !state.is_external {
            return false;
        }
        state.is_waiting = true;
        let must_notify =
            is_due || (!state.is_idle() && !seeded_fault("no_notification_of_what_is_left"));
        state.is_notified |= must_notify;
        drop(state);
        if must_notify {
            self.doorbell.wake();
        }
        true
    }

    /// Notes that an external event loop watches the descriptor of this loop. The first call
    /// notifies the doorbell, because sources may have events already.
    pub(super) fn watch_externally(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_external, true) {
            return;
        }
        (state.is_waiting, state.is_notified) = (true, true);
        drop(state);
        self.doorbell.wake();
    }

    fn notify_if_waiting(&self, mut state: AsymmetricMutexGuard<'_, State>) {
        let must_notify = state.is_waiting && !state.is_notified;
        state.is_notified |= must_notify;
        drop(state);
        if must_notify {
            self.doorbell.wake();
        }
    }

    fn lock(&self) -> AsymmetricMutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)
    }

    fn is_idle(&self) -> bool {
        self.live == 0 && self.turns.is_empty()
    }
}

/// Most events that one turn reports.
pub(super) const EVENTS_MAX: usize = 256;
/// Greatest generation of an entry of the ready list. The token by which the epoll set names a
/// source has 28 bits for the generation.
pub(super) const GENERATION_MAX: u32 = (1 << 28) - 1;

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    struct Silent;

    impl LoopWaker for Silent {
        fn wake(&self) {}
    }

    fn tags(list: &ReadyList<Silent>) -> Vec<u64> {
        let mut events = Vec::new();
        list.collect(&mut events, EVENTS_MAX);
        events.iter().map(|event| event.tag).collect()
    }

    #[test]
    fn source_is_reported_until_it_is_cleared_behind_all_others() {
        let list = ReadyList::new(Silent);
        let keys: Vec<_> = (0..3).map(|tag| list.add(tag)).collect();
        list.mark(keys[2], Kinds::READABLE);
        list.mark(keys[0], Kinds::WRITABLE);
        assert_eq!(tags(&list), [2, 0]);
        list.mark(keys[1], Kinds::OPENED);
        assert_eq!(tags(&list), [2, 1], "room is reported once");
        list.clear(keys[2], Kinds::READABLE);
        assert!(!list.is_idle());
        list.clear(keys[1], Kinds::OPENED);
        assert!(list.is_idle() && tags(&list).is_empty());
        list.mark(keys[2], Kinds::READABLE);
        assert_eq!(tags(&list), [2]);
    }

    #[test]
    fn list_that_reports_once_is_silent_until_something_else_comes() {
        let list = ReadyList::reporting_once(Silent);
        let keys: Vec<_> = (0..2).map(|tag| list.add(tag)).collect();
        list.mark(keys[0], Kinds::READABLE);
        list.mark(keys[1], Kinds::OPENED);
        assert_eq!(tags(&list), [0, 1]);
        assert!(list.is_idle() && tags(&list).is_empty());
        list.mark(keys[0], Kinds::READABLE);
        assert_eq!(tags(&list), [0]);
        list.clear(keys[0], Kinds::READABLE);
        assert!(list.is_idle());
    }

    #[test]
    fn events_of_a_removed_source_are_not_those_of_its_successor() {
        let list = ReadyList::new(Silent);
        let old = list.add(1);
        list.mark(old, Kinds::READABLE);
        list.request_turn(old);
        list.remove(old);
        let new = list.add(2);
        assert!(new.index == old.index && new != old);
        list.mark(old, Kinds::READABLE);
        list.clear(old, Kinds::READABLE);
        list.remove(old);
        assert_eq!(list.next_turn(), None);
        assert!(list.is_idle() && tags(&list).is_empty());
        list.mark(new, Kinds::READABLE);
        assert_eq!(tags(&list), [2]);
    }

    #[test]
    fn no_source_is_starved_by_more_events_than_one_turn_reports() {
        let list = ReadyList::new(Silent);
        let count = 3 * EVENTS_MAX + 10;
        for tag in 0..count {
            list.mark(list.add(tag as u64), Kinds::READABLE);
        }
        let mut reported = vec![0; count];
        for _ in 0..8 {
            for tag in tags(&list) {
                reported[tag as usize] += 1;
            }
        }
        assert!(reported.iter().all(|count| (2..=3).contains(count)), "{reported:?}");
    }
}

/// Model of an event loop under shuttle: the loop's thread, threads that mark sources, and a thread
/// that receives. If a wake-up is lost, a thread waits for ever, which shuttle reports.
#[cfg(all(test, shuttle))]
mod model {
    use super::*;
    use crate::session::interleavings::explore;
    use shuttle::rand::{Rng, thread_rng};
    use shuttle::sync::{Condvar, Mutex};
    use shuttle::thread;
    use std::sync::Arc;

    const SOURCES: usize = 2;
    const MESSAGES: u32 = 3;

    /// The modelled descriptor of the loop: how often it was notified, and whether it is readable.
    #[derive(Default)]
    struct Descriptor {
        state: Mutex<(u32, bool)>,
        changed: Condvar,
    }

    impl LoopWaker for Descriptor {
        fn wake(&self) {
            let mut state = self.state.lock().unwrap();
            *state = (state.0 + 1, true);
            drop(state);
            self.changed.notify_all();
        }
    }

    impl Descriptor {
        /// Waits, as a level-triggered event loop does, until the descriptor is readable.
        fn wait_level(&self) {
            let mut state = self.state.lock().unwrap();
            while !state.1 {
                state = self.changed.wait(state).unwrap();
            }
        }

        /// Waits, as an edge-triggered event loop does, until the descriptor was notified again.
        fn wait_edge(&self, seen: &mut u32) {
            let mut state = self.state.lock().unwrap();
            while state.0 == *seen {
                state = self.changed.wait(state).unwrap();
            }
            *seen = state.0;
        }

        fn drain(&self) {
            self.state.lock().unwrap().1 = false;
        }
    }

    /// A modelled stream: the numbers of its waiting messages, and whether a waker of its receiver
    /// is registered.
    #[derive(Default)]
    struct Source {
        state: Mutex<(VecDeque<u32>, bool)>,
    }

    /// The way in which the modelled thread of the loop waits.
    #[derive(Clone, Copy, PartialEq)]
    enum Drive {
        Inside,
        Level,
        Edge,
        /// The thread waits until the descriptor is notified (an edge), and only after two turns
        /// that found nothing. The first of these turns does not tell the ready list that the
        /// thread may wait.
        Awake,
    }

    const DRIVES: [Drive; 4] = [Drive::Inside, Drive::Level, Drive::Edge, Drive::Awake];

    struct Model {
        list: ReadyList<Descriptor>,
        keys: Vec<Key>,
        sources: Vec<Source>,
        /// Number of pieces of work that users of a session left for a turn of its driver.
        work: Mutex<u32>,
        drive: Drive,
    }

    impl Model {
        fn new(drive: Drive) -> Arc<Self> {
            let list = ReadyList::new(Descriptor::default());
            let keys = (0..SOURCES).map(|tag| list.add(tag as u64)).collect();
            let sources = (0..SOURCES).map(|_| Source::default()).collect();
            for key in &keys as &Vec<Key> {
                list.mark(*key, Kinds::READABLE);
            }
            if drive != Drive::Inside {
                list.watch_externally();
            }
            Arc::new(Self { list, keys, sources, work: Mutex::new(0), drive })
        }

        fn send(&self, source: usize) {
            for number in 0..MESSAGES {
                let mut state = self.sources[source].state.lock().unwrap();
                state.0.push_back(number);
                let is_registered = std::mem::take(&mut state.1);
                drop(state);
                if is_registered {
                    self.list.mark(self.keys[source], Kinds::READABLE);
                }
            }
        }

        /// Role of a user of a session: requests turns of the session's driver.
        fn leave_work(&self) {
            for _ in 0..MESSAGES {
                *self.work.lock().unwrap() += 1;
                self.list.request_turn(self.keys[0]);
            }
        }

        fn receive(&self, source: usize) -> Poll<u32> {
            self.list.attempt(self.keys[source], Kinds::READABLE, || {
                let mut state = self.sources[source].state.lock().unwrap();
                let found = state.0.pop_front();
                state.1 |= found.is_none();
                found.map_or(Poll::Pending, Poll::Ready)
            })
        }

        fn turn(&self, seen: &mut u32, done: &mut u32) -> Vec<Event> {
            let before = *done;
            match self.drive {
                Drive::Inside => self.list.begin_turn(),
                Drive::Level => self.list.doorbell().wait_level(),
                Drive::Edge => self.list.doorbell().wait_edge(seen),
                Drive::Awake => return self.turn_awake(seen, done),
            }
            if self.drive != Drive::Inside {
                return self.poll(done);
            }
            loop {
                let events = self.collect(done);
                if !events.is_empty() || *done > before {
                    return events;
                }
                if self.list.begin_wait() {
                    self.list.doorbell().wait_level();
                    self.list.begin_turn();
                    self.list.doorbell().drain();
                }
            }
        }

        /// Polls the modelled event loop without telling the ready list that the loop's thread may
        /// wait. If this poll finds nothing, polls again. If the second poll finds nothing either,
        /// waits until the descriptor is notified (an edge).
        fn turn_awake(&self, seen: &mut u32, done: &mut u32) -> Vec<Event> {
            let before = *done;
            self.list.begin_turn();
            self.list.doorbell().drain();
            let mut events = self.collect(done);
            if events.is_empty() {
                events = self.poll(done);
                if events.is_empty() && *done == before {
                    self.list.doorbell().wait_edge(seen);
                }
            }
            events
        }

        /// Polls the modelled event loop as an external event loop does that may wait afterwards.
        fn poll(&self, done: &mut u32) -> Vec<Event> {
            self.list.begin_turn();
            self.list.doorbell().drain();
            let events = self.collect(done);
            self.list.end_turn(!events.is_empty());
            events
        }

        /// Runs the turns of drivers that are due, and returns the events that the ready list
        /// reports.
        fn collect(&self, done: &mut u32) -> Vec<Event> {
            let mut events = Vec::new();
            for _ in 0..self.list.turns_due() {
                if self.list.next_turn().is_some() {
                    *done += std::mem::take(&mut *self.work.lock().unwrap());
                }
            }
            self.list.collect(&mut events, EVENTS_MAX);
            events
        }
    }

    /// Model in which the loop's own thread receives. After an event the thread takes either all
    /// messages of the source or one message.
    fn one_thread() {
        let model = Model::new(DRIVES[thread_rng().gen_range(0..DRIVES.len())]);
        let takes_one = thread_rng().gen_range(0..2) == 0;
        let mut threads: Vec<_> = (0..SOURCES)
            .map(|source| {
                let model = Arc::clone(&model);
                thread::spawn(move || model.send(source))
            })
            .collect();
        let user = Arc::clone(&model);
        threads.push(thread::spawn(move || user.leave_work()));
        let (mut received, mut seen, mut done) = ([0; SOURCES], 0, 0);
        while received != [MESSAGES; SOURCES] || done < MESSAGES {
            for event in model.turn(&mut seen, &mut done) {
                let source = event.tag as usize;
                while let Poll::Ready(number) = model.receive(source) {
                    assert_eq!(number, received[source]);
                    received[source] += 1;
                    if takes_one {
                        break;
                    }
                }
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// Model in which another thread receives. The loop's thread only passes the events of the
    /// source on to that thread.
    fn two_threads() {
        let model = Model::new(DRIVES[thread_rng().gen_range(0..DRIVES.len())]);
        let sender = Arc::clone(&model);
        let sending = thread::spawn(move || sender.send(1));
        let passed = Arc::new(Descriptor::default());
        let (receiver, woken) = (Arc::clone(&model), Arc::clone(&passed));
        let receiving = thread::spawn(move || {
            let mut received = 0;
            while received < MESSAGES {
                match receiver.receive(1) {
                    Poll::Ready(number) => {
                        assert_eq!(number, received);
                        received += 1;
                    }
                    Poll::Pending => {
                        woken.wait_level();
                        woken.drain();
                    }
                }
            }
            // The receiver leaves work for the session's driver, which requests a turn of the loop:
            // the last turn that the loop's thread runs in this test.
            receiver.leave_work();
        });
        let (mut seen, mut done) = (0, 0);
        while done < MESSAGES {
            for event in model.turn(&mut seen, &mut done) {
                if event.tag == 1 {
                    passed.wake();
                } else {
                    model.list.clear(model.keys[0], Kinds::READABLE);
                }
            }
            thread::yield_now();
        }
        sending.join().unwrap();
        receiving.join().unwrap();
    }

    #[test]
    fn thread_of_the_loop_receives_everything() {
        explore(3000, one_thread);
    }

    #[test]
    fn another_thread_receives_everything() {
        explore(3000, two_threads);
    }
}
