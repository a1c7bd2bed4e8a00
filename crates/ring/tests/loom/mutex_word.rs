// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of a mutex that is unlocked by a plain store. Rules: two threads never hold the mutex at
//! the same time, and no thread sleeps for ever. The protected value is a cell of loom, which
//! panics if two threads use it at the same time. Loom reports a deadlock if every thread sleeps.
//! The light barrier is a full one, except in `known_waiter_is_woken`, so those models do not need
//! the heavy barrier. Unit tests of `mutex_word.rs` check when a waiter executes it. In
//! `known_waiter_is_woken`, all threads know that there is a waiter, and neither barrier does
//! anything, so the two fences decide alone.
//!
//! | model | threads | acquisitions | preemptions | executions |
//! |---|---|---|---|---|
//! | waiter_is_woken | 2 | 2 and 1 | 6 | 3,889 |
//! | known_waiter_is_woken | 2 | 2 and 1 | 6 | 10,895 |
//! | waiters_take_turns | 3 | 1 each | 4 | 22,068 |
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::model;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use model::explore;
use partywall_ring::MutexWord;
use partywall_ring::mutex_word::WaiterTurn;

/// The mutex of `partywall-sys`, made of loom's mutexes and cell, so that loom explores it.
struct Lock {
    word: MutexWord,
    has_known_waiter: bool,
    turn: Mutex<WaiterTurn>,
    /// The kernel's list of threads that sleep on the word.
    futex: (Mutex<()>, Condvar),
    value: UnsafeCell<()>,
}

impl Lock {
    fn new(has_known_waiter: bool) -> Arc<Self> {
        Arc::new(Self {
            word: if has_known_waiter { MutexWord::with_known_waiter() } else { MutexWord::new() },
            has_known_waiter,
            turn: Mutex::new(WaiterTurn::default()),
            futex: (Mutex::new(()), Condvar::new()),
            value: UnsafeCell::new(()),
        })
    }

    /// Locks the mutex, uses the protected value, and unlocks the mutex.
    fn enter(&self) {
        if !self.word.try_lock() {
            self.word.begin_wait();
            let mut turn = self.turn.lock().unwrap();
            let barrier = || {
                if !self.has_known_waiter {
                    fence(Ordering::SeqCst);
                }
                true
            };
            self.word.wait(&mut turn, barrier, |is_announced| {
                assert!(is_announced);
                self.sleep();
            });
        }
        // The cell panics if another thread uses the value at the same time, or if no
        // happens-before relation orders the two uses.
        self.value.with_mut(|_| ());
        if self.word.unlock() {
            let list = self.futex.0.lock().unwrap();
            self.futex.1.notify_one();
            drop(list);
        }
    }

    /// Sleeps as futex(2) does: the kernel compares the word under the lock of its list.
    fn sleep(&self) {
        let list = self.futex.0.lock().unwrap();
        if self.word.is_asleep() {
            drop(self.futex.1.wait(list).unwrap());
        }
    }
}

/// Two threads lock the mutex, one twice and the other once.
fn explore_two_threads(name: &str, has_known_waiter: bool) {
    explore(name, 6, move || {
        let lock = Lock::new(has_known_waiter);
        let other = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || lock.enter())
        };
        lock.enter();
        lock.enter();
        other.join().unwrap();
    });
}

#[test]
fn waiter_is_woken() {
    explore_two_threads("waiter_is_woken", false);
}

#[test]
fn known_waiter_is_woken() {
    explore_two_threads("known_waiter_is_woken", true);
}

#[test]
fn waiters_take_turns() {
    explore("waiters_take_turns", 4, || {
        let lock = Lock::new(false);
        let others = [0, 1].map(|_| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || lock.enter())
        });
        lock.enter();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
