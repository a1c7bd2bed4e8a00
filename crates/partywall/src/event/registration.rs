// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registration of one source with an event loop: its place in the ready list, and its
//! descriptors in the epoll set.
//!
//! ```text
//!   Receiver, Stream, Session … ─ Registration ─ Arc<Shared> ─┬─ ReadyList   tags and kinds
//!                                                             ├─ EpollSet    descriptors
//!                                                             └─ arrivals    for the next turn
//! ```
//!
//! The loop owns no channel and no stream: any thread may use them while another runs the loop. So
//! the objects that channels and streams share with the loop are behind locks.

use super::event::Kinds;
use super::forked::Forked;
use super::ready_list::{GENERATION_MAX, Key, ReadyList};
use super::task::Task;
use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, EpollSet, ForkGuard, Timer};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::time::Instant;

/// The part of an event loop that the loop shares with its sources.
#[derive(Debug)]
pub(super) struct Shared {
    pub set: EpollSet,
    pub list: ReadyList,
    /// A timer whose descriptor is in the epoll set, so that the descriptor of the loop becomes
    /// readable when a task's timer is due.
    pub timer: Timer,
    pub guard: ForkGuard,
    arrivals: Mutex<Arrivals>,
    next_timer: Mutex<Option<Instant>>,
}

/// Tasks that other threads have added to an event loop, or want to have removed, since the loop's
/// last turn.
#[derive(Debug, Default)]
struct Arrivals {
    waiting: Vec<Arrival>,
    /// Whether the loop was dropped. No further turn then adds or removes tasks.
    is_closed: bool,
}

/// One change of an event loop's tasks: a task to add, or a task to remove.
#[derive(Debug)]
pub(super) enum Arrival {
    Add(Key, Task),
    Remove(Key),
}

impl Shared {
    /// Makes the part of an event loop that the loop shares with its sources. If `is_once`, every
    /// kind of event is reported once, until an attempt of the application finds nothing.
    pub(super) fn new(is_once: bool) -> io::Result<Self> {
        let (set, timer) = (EpollSet::new()?, Timer::new()?);
        let doorbell = Doorbell::new()?;
        let list =
            if is_once { ReadyList::reporting_once(doorbell) } else { ReadyList::new(doorbell) };
        set.add(list.doorbell(), EventFlags::IN, DOORBELL)?;
        set.add(&timer, EventFlags::IN, TIMER)?;
        let guard = ForkGuard::current();
        let (arrivals, next_timer) = (Mutex::default(), Mutex::default());
        Ok(Self { set, list, timer, guard, arrivals, next_timer })
    }

    /// Adds a task to the loop, and requests its first turn. If the loop was dropped, the task is
    /// dropped as well.
    pub(super) fn add_task(&self, key: Key, task: Task) {
        self.arrive(Arrival::Add(key, task));
        self.list.request_turn(key);
    }

    fn arrive(&self, arrival: Arrival) {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        if arrivals.is_closed {
            drop(arrivals);
            drop(arrival);
        } else {
            arrivals.waiting.push(arrival);
        }
    }

    /// Puts the changes of the loop's tasks since the last call into the empty list `into`. The
    /// memory of that list is used for later changes.
    pub(super) fn take_arrivals(&self, into: &mut Vec<Arrival>) {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut arrivals.waiting, into);
    }

    /// Notes that the loop was dropped, and returns the changes of its tasks that no turn has
    /// taken.
    pub(super) fn close(&self) -> Vec<Arrival> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.is_closed = true;
        std::mem::take(&mut arrivals.waiting)
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        *self.next_timer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_next_timer(&self, next: Option<Instant>) {
        *self.next_timer.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

/// A source in the ready list of an event loop. Dropping the registration removes the source from
/// the list.
#[derive(Debug)]
pub(super) struct Registration {
    shared: Arc<Shared>,
    key: Key,
}

impl Registration {
    pub(super) fn new(shared: &Arc<Shared>, tag: u64) -> Arc<Self> {
        Arc::new(Self { key: shared.list.add(tag), shared: Arc::clone(shared) })
    }

    pub(super) const fn key(&self) -> Key {
        self.key
    }

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn mark(&self, kinds: Kinds) {
        self.shared.list.mark(self.key, kinds);
    }

    pub(super) fn clear(&self, kinds: Kinds) {
        self.shared.list.clear(self.key, kinds);
    }

    /// Calls `poll`, an attempt to receive or accept on this source. If `poll` finds nothing, the
    /// source has no events of the kinds `kinds` any more.
    pub(super) fn attempt<T>(&self, kinds: Kinds, poll: impl FnMut() -> Poll<T>) -> Poll<T> {
        self.shared.list.attempt(self.key, kinds, poll)
    }

    /// Asks the loop to drop the task of this source in its next turn.
    pub(super) fn remove_task(&self) {
        self.shared.arrive(Arrival::Remove(self.key));
        self.shared.list.wake();
    }

    pub(super) fn waker(self: &Arc<Self>, kinds: Kinds) -> Waker {
        Waker::from(Arc::new(MarkWaker { shared: Arc::clone(&self.shared), key: self.key, kinds }))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.list.remove(self.key);
    }
}

/// A waker that gives a source events of some kinds. The waker does not keep the source alive.
struct MarkWaker {
    shared: Arc<Shared>,
    key: Key,
    kinds: Kinds,
}

impl Wake for MarkWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.shared.list.mark(self.key, self.kinds);
    }
}

/// The registration of one descriptor of a source in the epoll set of the loop. Dropping this value
/// removes the descriptor from the set.
///
/// The set contains a duplicate of the descriptor, because the source may close its own descriptor
/// or use another one at any time.
#[derive(Debug)]
pub(super) struct Interest {
    registration: Arc<Registration>,
    purpose: Purpose,
    /// The number of the source's descriptor, and the duplicate that the epoll set contains; `None`
    /// if nothing is watched.
    registered: Option<(RawFd, OwnedFd)>,
}

/// The meaning that an event of a descriptor has for its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// There may be a message to receive or a channel to accept. In an event loop that reports
    /// every kind of event once, the epoll set reports a descriptor of `Records` or `Opened` once,
    /// and then ignores it until `watch` is called again.
    Records = 0,
    /// There may be room to send. The epoll set reports the descriptor once, and then ignores it
    /// until `watch` is called again.
    Room = 1,
    /// Records may have arrived, so the driver of a session needs a turn. The event comes once for
    /// each notification by the peer. The peer sends no notification until the driver announces, by
    /// `arm`, that it waits again.
    TaskRecords = 2,
    /// There may be room to send, so the task of the source needs a turn.
    TaskRoom = 3,
    /// There may be a session to accept.
    Opened = 4,
    /// A source that another crate implements, such as a link, has work to do.
    Source = 5,
}

impl Interest {
    pub(super) const fn new(registration: Arc<Registration>, purpose: Purpose) -> Self {
        Self { registration, purpose, registered: None }
    }

    /// Adds `descriptor` to the epoll set, unless the set contains it already. A descriptor that
    /// shows room to send is reported once for each call.
    pub(super) fn watch(&mut self, descriptor: impl AsFd) -> io::Result<()> {
        let descriptor = descriptor.as_fd();
        let number = descriptor.as_raw_fd();
        let shared = &self.registration.shared;
        // A forked child shares the epoll set with its parent process. A descriptor that the child
        // added would wake the parent again and again.
        if shared.guard.is_child() {
            return Err(Forked.into());
        }
        let is_once = match self.purpose {
            Purpose::Room | Purpose::TaskRoom => true,
            Purpose::Records | Purpose::Opened => shared.list.is_once(),
            Purpose::TaskRecords | Purpose::Source => false,
        };
        let interest = EventFlags::IN
            | match self.purpose {
                _ if is_once => EventFlags::ONESHOT,
                Purpose::TaskRecords => EventFlags::ET,
                _ => EventFlags::empty(),
            };
        let token = token(self.registration.key, self.purpose);
        let set = &shared.set;
        match &self.registered {
            Some((known, duplicate)) if *known == number => {
                return if is_once { set.modify(duplicate, interest, token) } else { Ok(()) };
            }
            Some(_) => self.unwatch(),
            None => {}
        }
        let duplicate = descriptor.try_clone_to_owned()?;
        self.registration.shared.set.add(&duplicate, interest, token)?;
        self.registered = Some((number, duplicate));
        Ok(())
    }

    /// Removes the descriptor from the epoll set. A forked child shares the epoll set with its
    /// parent, so in a child the call changes nothing.
    pub(super) fn unwatch(&mut self) {
        let Some((_, duplicate)) = self.registered.take() else { return };
        if self.registration.shared.guard.is_owner() {
            // Removing a descriptor fails only if the descriptor is not in the epoll set.
            let _ = self.registration.shared.set.remove(duplicate);
        }
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.unwatch();
    }
}

/// Returns the token by which the epoll set names a descriptor: the source's key and the purpose of
/// the descriptor.
const fn token(key: Key, purpose: Purpose) -> u64 {
    (purpose as u64) << 60 | (key.generation as u64) << 32 | key.index as u64
}

/// Splits a token of the epoll set into the source's key and the purpose of the descriptor. Returns
/// `None` for the two tokens of the loop itself, [`DOORBELL`] and [`TIMER`].
#[expect(clippy::cast_possible_truncation, reason = "parts of a token")]
pub(super) const fn parse(token: u64) -> Option<(Key, Purpose)> {
    let purpose = match token >> 60 {
        0 => Purpose::Records,
        1 => Purpose::Room,
        2 => Purpose::TaskRecords,
        3 => Purpose::TaskRoom,
        4 => Purpose::Opened,
        5 => Purpose::Source,
        _ => return None,
    };
    let generation = (token >> 32) as u32 & GENERATION_MAX;
    Some((Key { index: token as u32, generation }, purpose))
}

pub(super) const DOORBELL: u64 = u64::MAX;
pub(super) const TIMER: u64 = u64::MAX - 1;
