// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock with a bias: the favoured thread enters without the mutex, the others revoke that, and
//! nobody is ever in there with another. Loom's cell reports it if two are.
//!
//! | model | threads | times inside | preemptions | executions |
//! |---|---|---|---|---|
//! | the_favoured_thread_and_another | 2 | 3 and 2 | 6 | 3,817 |
//! | a_bias_that_wanders | 3 | 2, 2 and 1 | 4 | 104,269 |
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

/// What the lock of `partywall-sys` is, on loom's parts.
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

    /// Uses the value, by the short way if this thread is favoured; `favours`: it wants to be.
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

    /// Loom's cell panics if another thread uses it at the same time, or if what it did there is
    /// not known to have happened before.
    fn use_value(&self) {
        self.value.with_mut(|_| ());
    }
}

#[test]
fn the_favoured_thread_and_another() {
    explore("the_favoured_thread_and_another", 6, || {
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
fn a_bias_that_wanders() {
    explore("a_bias_that_wanders", 4, || {
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
