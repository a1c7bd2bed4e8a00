// SPDX-License-Identifier: MIT OR Apache-2.0
//! A monitor: a value under a lock, and the threads that wait for the value to change, such as
//! those that block on a link. `drive/mod.rs` says why no wake-up is lost.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar};
use std::time::Instant;

use partywall_sys::{Biased, BiasedGuard};

use super::reactor::{Before, Reactor, Role, Wake};
use partywall_wait::has_passed;

/// A value under a lock, with the condition variable and the reactor on which threads that wait for
/// the value block.
///
/// A caller that changes nothing for which a thread could wait may lock the value
/// [directly](Self::biased), without a [`MonitorGuard`].
pub(crate) struct Monitor<T> {
    reactor: Arc<Reactor>,
    inner: Biased<Monitored<T>>,
    changed: Condvar,
}

/// The value that a monitor protects, the number of followers (threads that sleep until it changes,
/// while another thread leads), and whether the leader waits for the value, too.
pub(crate) struct Monitored<T> {
    pub(crate) value: T,
    followers: u32,
    /// Whether the leader waits for this value and sleeps or is about to sleep.
    is_leader_asleep: bool,
}

/// A value that a monitor can protect. The monitor calls [`entered`](Self::entered) at each lock,
/// unless a thread locks it [directly](Monitor::biased). The state of a link then closes its fast
/// path.
pub(crate) trait Entered {
    #[inline]
    fn entered(&mut self) {}
}

pub(crate) struct MonitorGuard<'a, T> {
    monitor: &'a Monitor<T>,
    inner: BiasedGuard<'a, Monitored<T>>,
}

impl<T: Entered + Send + 'static> Monitor<T> {
    pub(crate) fn new(reactor: Arc<Reactor>, value: T) -> Arc<Self> {
        let inner = Monitored { value, followers: 0, is_leader_asleep: false };
        Arc::new(Self { reactor, inner: Biased::new(inner), changed: Condvar::new() })
    }

    #[inline]
    pub(crate) fn lock(&self) -> MonitorGuard<'_, T> {
        let mut guard = self.guard(self.inner.lock());
        guard.entered();
        guard
    }

    fn lock_to_wait(&self) -> MonitorGuard<'_, T> {
        let mut guard = self.guard(self.inner.lock_to_wait());
        guard.entered();
        guard
    }

    /// Returns the lock of the monitor's value. Unlike a [`MonitorGuard`], it leaves the fast path
    /// of a link open.
    #[inline(always)]
    pub(crate) const fn biased(&self) -> &Biased<Monitored<T>> {
        &self.inner
    }

    /// Turns `inner`, the guard of this monitor's [lock](Self::biased), which the caller holds,
    /// into a guard of the monitor. The caller has to call [`entered`](Entered::entered) itself.
    pub(crate) const fn guard<'a>(
        &'a self,
        inner: BiasedGuard<'a, Monitored<T>>,
    ) -> MonitorGuard<'a, T> {
        MonitorGuard { monitor: self, inner }
    }

    /// Blocks until `check` returns a value, and returns that value; `None` if the deadline passes
    /// first. Meanwhile the thread handles the events of its whole group, unless another thread
    /// already does.
    ///
    /// The caller must not hold the lock of any monitor.
    pub(crate) fn wait_for<R>(
        self: &Arc<Self>,
        deadline: Option<Instant>,
        mut check: impl FnMut(&mut MonitorGuard<'_, T>) -> Option<R>,
    ) -> io::Result<Option<R>> {
        let mut hand_over = HandOver(None);
        // Only the mutex itself lets a thread sleep, and taking the mutex ends the bias. So a
        // thread takes it only when it is about to sleep while another thread leads.
        let mut follows = false;
        let mut lead = None;
        loop {
            let mut guard = if follows { self.lock_to_wait() } else { self.lock() };
            if let Some(found) = check(&mut guard) {
                return Ok(Some(found));
            }
            if has_passed(deadline) {
                return Ok(None);
            }
            if lead.is_none() {
                match self.reactor.join(|| Arc::clone(self) as Arc<dyn Wake>) {
                    Role::Leader(taken) => lead = Some(taken),
                    Role::Follower(ticket) => {
                        // When the leader stops, it may choose this thread as the next leader,
                        // although this thread no longer needs to wait. Dropping the guard
                        // `hand_over` then chooses another leader.
                        hand_over.0 = Some(&self.reactor);
                        if follows {
                            self.follow(guard, deadline);
                        }
                        follows = true;
                        self.reactor.leave(ticket);
                        continue;
                    }
                }
            }
            guard.inner.is_leader_asleep = true;
            drop(guard);
            if let Some(lead) = &mut lead {
                let woken = || self.lock().inner.is_leader_asleep = false;
                lead.turn(deadline, Before::Sleeping, woken)?;
            }
        }
    }

    fn follow(&self, guard: MonitorGuard<'_, T>, deadline: Option<Instant>) {
        let mut inner = guard.inner;
        inner.followers += 1;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let mut inner = inner.wait(&self.changed, left);
        inner.followers -= 1;
    }
}

impl<T: Entered + Send + 'static> Wake for Monitor<T> {
    fn wake(&self) {
        // A follower holds the lock from its false check until it sleeps. So while this thread
        // holds the lock, every follower sleeps and can be woken.
        let _guard = self.lock();
        self.changed.notify_all();
    }
}

impl<'a, T> MonitorGuard<'a, T> {
    pub(crate) fn into_biased(self) -> BiasedGuard<'a, Monitored<T>> {
        self.inner
    }

    /// Whether another thread may be waiting for the monitor's lock, which this guard holds.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.inner.is_wanted()
    }

    pub(crate) fn changed(&self) {
        if self.inner.followers > 0 {
            self.monitor.changed.notify_all();
        }
        if self.inner.is_leader_asleep {
            self.monitor.reactor.notify();
        }
    }
}

impl<T> Deref for MonitorGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner.value
    }
}

impl<T> DerefMut for MonitorGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner.value
    }
}

/// Guard of a follower, a thread that sleeps while another thread leads. The follower may have been
/// chosen as the next leader. When it stops waiting and drops the guard, another leader is chosen.
struct HandOver<'a>(Option<&'a Reactor>);

impl Drop for HandOver<'_> {
    fn drop(&mut self) {
        self.0.into_iter().for_each(Reactor::hand_over);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    impl Entered for i32 {}
    impl Entered for u32 {}
    impl Entered for () {}

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(30))
    }

    /// Rule: no wake-up is lost when a number is passed around among threads that each wait at
    /// their own monitor.
    #[test]
    fn wake_ups_between_leaders_and_followers_are_not_lost() {
        let (threads, rounds) = (6, 3_000);
        let reactor = Reactor::new().unwrap();
        let monitors: Vec<_> =
            (0..threads).map(|_| Monitor::new(Arc::clone(&reactor), 0)).collect();
        std::thread::scope(|scope| {
            for index in 0..threads {
                let (here, next) = (&monitors[index], &monitors[(index + 1) % threads]);
                scope.spawn(move || {
                    for round in 1..=rounds {
                        let found = here.wait_for(soon(), |value| (**value == round).then_some(()));
                        assert_eq!(found.unwrap(), Some(()), "thread {index}, round {round}");
                        let mut next = next.lock();
                        *next = if index + 1 == threads { round + 1 } else { round };
                        next.changed();
                    }
                });
            }
            let mut first = monitors[0].lock();
            *first = 1;
            first.changed();
        });
        assert_eq!(*monitors[0].lock(), rounds + 1);
    }

    /// Rule: a thread that waits for an event is still woken if other waiting threads time out
    /// while the leader chooses its successor.
    #[test]
    fn follower_that_gives_up_passes_its_turn_on() {
        let reactor = Reactor::new().unwrap();
        let monitors: Vec<_> = (0..4).map(|_| Monitor::new(Arc::clone(&reactor), 0_u32)).collect();
        std::thread::scope(|scope| {
            for monitor in &monitors[..3] {
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let until = Instant::now() + Duration::from_micros(50);
                        assert_eq!(monitor.wait_for(Some(until), |_| None::<()>).unwrap(), None);
                    }
                });
            }
            let waited_for = &monitors[3];
            let waits = scope.spawn(move || {
                for round in 1..=200 {
                    let found =
                        waited_for.wait_for(soon(), |value| (**value >= round).then_some(()));
                    assert_eq!(found.unwrap(), Some(()), "round {round}");
                }
            });
            for _ in 0..200 {
                let mut value = waited_for.lock();
                *value += 1;
                value.changed();
                drop(value);
                std::thread::yield_now();
            }
            waits.join().unwrap();
        });
    }

    #[test]
    fn wait_in_vain_ends_at_the_deadline() {
        let monitor = Monitor::new(Reactor::new().unwrap(), ());
        let started = Instant::now();
        let until = started + Duration::from_millis(20);
        assert_eq!(monitor.wait_for(Some(until), |_| None::<()>).unwrap(), None);
        assert!(Instant::now() >= until);
    }
}
