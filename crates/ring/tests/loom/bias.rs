// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of a biased lock: the favoured thread enters without the mutex, and other threads revoke
//! the bias. Rule: two threads never hold the lock at the same time. The protected value is a cell
//! of loom, which panics if two threads use it at the same time.
//!
//! | model | threads | acquisitions | preemptions | executions |
//! |---|---|---|---|---|
//! | favoured_thread_and_another_exclude_each_other | 2 | 3 and 2 | 6 | 3,817 |
//! | bias_moves_between_three_threads | 3 | 2, 2 and 1 | 4 | 104,269 |
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::model;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;
use model::explore;
use partywall_ring::Bias;
use partywall_ring::bias::Slots;

/// The biased lock of `partywall-sys`, made of loom's mutex and cell, so that loom explores it.
struct Lock {
    bias: Bias,
    mutex: Mutex<Slots>,
    value: UnsafeCell<()>,
}

impl Lock {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bias: Bias::new(),
            mutex: Mutex::new(Slots::default()),
            value: UnsafeCell::new(()),
        })
    }

    /// Acquires the lock, uses the protected value, and releases the lock. Thread `thread` skips
    /// the mutex if it is favoured. If `favours`, the thread becomes favoured.
    fn enter(&self, thread: u64, favours: bool) {
        if let Some(inside) = self.bias.enter(thread) {
            self.use_value();
            return self.bias.leave(inside);
        }
        let mut slots = self.mutex.lock().unwrap();
        self.bias.take_over(thread, || fence(Ordering::SeqCst), |_| thread::yield_now());
        self.use_value();
        if favours {
            self.bias.favour(thread, &mut slots);
        }
    }

    /// Uses the protected value, a cell of loom. The cell panics if another thread uses the value
    /// at the same time, or if no happens-before relation orders the two uses.
    fn use_value(&self) {
        self.value.with_mut(|_| ());
    }
}

#[test]
fn favoured_thread_and_another_exclude_each_other() {
    explore("favoured_thread_and_another_exclude_each_other", 6, || {
        let lock = Lock::new();
        let other = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                lock.enter(2, false);
                lock.enter(2, false);
            })
        };
        for _ in 0..3 {
            lock.enter(1, true);
        }
        other.join().unwrap();
    });
}

#[test]
fn bias_moves_between_three_threads() {
    explore("bias_moves_between_three_threads", 4, || {
        let lock = Lock::new();
        let others = [2, 3].map(|thread| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                lock.enter(thread, true);
                if thread == 2 {
                    lock.enter(thread, true);
                }
            })
        });
        lock.enter(1, true);
        lock.enter(1, true);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
