// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of a lane: the favoured thread enters without an atomic exchange, and other threads
//! revoke the favour. Rules: two threads are never inside at the same time, and a lane that nobody
//! is inside can be claimed. The value that the lane protects is a cell of loom, which panics if
//! two threads use it at once.
//!
//! | model | threads | calls | preemptions |
//! |---|---|---|---|
//! | favoured_thread_and_another_exclude_each_other | 2 | 3 and 2 | 4 |
//! | poisoned_lane_stays_poisoned | 2 | 2 and 2 | 5 |
//! | favour_moves_between_three_threads | 3 | 2, 2 and 1 | 2 |
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::model;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use model::explore;
use partywall_ring::lane::{Lane, Presence, Process, Refusal, Thread};

/// A lane with the value that it protects, and the presences of three threads.
struct Shared {
    lane: Lane,
    value: UnsafeCell<()>,
    presences: [Presence; 3],
}

impl Process for Shared {
    fn presence(&self, number: u32) -> Option<&Presence> {
        self.presences.get(number as usize - 1)
    }

    fn heavy_barrier(&self) -> bool {
        fence(Ordering::SeqCst);
        true
    }

    fn has_ended(&self, _: u32) -> bool {
        false
    }

    fn pause(&self) {
        thread::yield_now();
    }
}

impl Shared {
    fn new() -> Arc<Self> {
        let presences = [Presence::new(), Presence::new(), Presence::new()];
        let shared = Self { lane: Lane::new(), value: UnsafeCell::new(()), presences };
        shared.lane.fill(1);
        Arc::new(shared)
    }

    fn thread(&self, number: u32) -> Thread<'_> {
        Thread::new(self.presence(number).unwrap(), number)
    }

    /// Uses the value of the lane once, as thread `number`, which the lane favours afterwards. If
    /// `breaks`, the call poisons the lane, as after a panic.
    fn call(&self, number: u32, breaks: bool) -> Result<(), Refusal> {
        let thread = self.thread(number);
        if self.lane.enter(1, thread) {
            self.use_value();
            if breaks {
                self.lane.break_inside(thread, self);
            } else {
                Lane::leave(thread);
            }
            return Ok(());
        }
        let claim = self.lane.claim(1, false, Some(thread), self)?;
        self.use_value();
        if breaks {
            self.lane.break_claimed(&claim);
        } else {
            self.lane.release_to(&claim, thread);
        }
        Ok(())
    }

    /// Uses the value that the lane protects, a cell of loom. The cell panics if another thread
    /// uses it at the same time, or if no happens-before relation orders the two uses.
    fn use_value(&self) {
        self.value.with_mut(|_| ());
    }
}

#[test]
fn favoured_thread_and_another_exclude_each_other() {
    explore("favoured_thread_and_another_exclude_each_other", 4, || {
        let shared = Shared::new();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..2 {
                    assert!(matches!(shared.call(2, false), Ok(()) | Err(Refusal::Busy)));
                }
            })
        };
        for _ in 0..3 {
            assert!(matches!(shared.call(1, false), Ok(()) | Err(Refusal::Busy)));
        }
        other.join().unwrap();
        assert_eq!(shared.call(3, false), Ok(()));
    });
}

#[test]
fn poisoned_lane_stays_poisoned() {
    explore("poisoned_lane_stays_poisoned", 5, || {
        let shared = Shared::new();
        assert_eq!(shared.call(1, false), Ok(()));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let _ = shared.call(2, false);
                let _ = shared.call(2, false);
            })
        };
        let broken = shared.call(1, true);
        other.join().unwrap();
        let expected = if broken.is_ok() { Err(Refusal::Poisoned) } else { Ok(()) };
        assert_eq!(shared.call(3, false), expected);
        assert!(shared.lane.claim(1, true, None, &*shared).is_ok());
    });
}

#[test]
fn favour_moves_between_three_threads() {
    explore("favour_moves_between_three_threads", 2, || {
        let shared = Shared::new();
        let others = [2, 3].map(|number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let _ = shared.call(number, false);
                if number == 2 {
                    let _ = shared.call(number, false);
                }
            })
        });
        assert!(matches!(shared.call(1, false), Ok(()) | Err(Refusal::Busy)));
        assert!(matches!(shared.call(1, false), Ok(()) | Err(Refusal::Busy)));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(shared.call(1, false), Ok(()));
    });
}
