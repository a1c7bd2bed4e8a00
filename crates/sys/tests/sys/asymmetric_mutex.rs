// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which threads lock one `AsymmetricMutex`. Two threads never hold the mutex at once, and
//! no thread sleeps for ever. These tests cover the sleep in the kernel, which loom cannot model.
//! That a wake-up is lost without the heavy barrier is too rare for a test.
#![allow(clippy::unwrap_used, reason = "a test")]

use partywall_sys::AsymmetricMutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Two words that the mutex protects, and that differ only while a thread adds to them. A thread
/// that finds them different holds the mutex while another thread holds it.
#[derive(Default)]
struct EqualWords {
    one: u64,
    other: u64,
}

impl EqualWords {
    fn add(&mut self, between: impl FnOnce()) {
        assert_eq!(self.one, self.other, "another thread holds the mutex");
        self.one += 1;
        between();
        std::hint::black_box(&mut *self);
        self.other += 1;
    }
}

/// Adds from `threads` threads, `count` times each. Now and then a holder sleeps, so that the other
/// threads sleep, too.
fn add_from(threads: u64, count: u64, sleeps_every: u64) {
    let mutex = AsymmetricMutex::new(EqualWords::default());
    thread::scope(|scope| {
        for thread in 0..threads {
            let mutex = &mutex;
            scope.spawn(move || {
                for number in 0..count {
                    let sleeps = (number + 7 * thread) % sleeps_every == 0;
                    let sleep = || thread::sleep(Duration::from_micros(50));
                    mutex.lock().add(|| {
                        if sleeps {
                            sleep()
                        }
                    });
                }
            });
        }
    });
    let words = mutex.lock();
    assert_eq!((words.one, words.other), (threads * count, threads * count));
}

#[test]
fn several_threads_lose_no_update() {
    add_from(6, 50_000, u64::MAX);
}

/// Rule: the thread that sleeps is woken, and so are those behind it.
#[test]
fn threads_behind_sleeping_holders_are_woken() {
    add_from(2, 2_000, 3);
    add_from(5, 600, 5);
}

#[test]
fn holder_that_sleeps_long_is_awaited() {
    let mutex = AsymmetricMutex::new(EqualWords::default());
    let is_unlocked = AtomicBool::new(false);
    let (started, has_started) = channel();
    thread::scope(|scope| {
        let mut guard = mutex.lock();
        for _ in 0..3 {
            let started = started.clone();
            scope.spawn(|| {
                let started = started;
                started.send(()).unwrap();
                mutex.lock().add(|| ());
                assert!(is_unlocked.load(Ordering::SeqCst));
            });
        }
        (0..3).for_each(|_| has_started.recv().unwrap());
        guard.add(|| thread::sleep(Duration::from_millis(30)));
        is_unlocked.store(true, Ordering::SeqCst);
        drop(guard);
    });
    assert_eq!(mutex.lock().one, 4);
}

#[test]
fn panic_of_a_holder_unlocks() {
    let mutex = AsymmetricMutex::new(1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = mutex.lock();
        *guard = 2;
        panic!("this holder panics");
    }));
    assert!(panicked.is_err());
    assert_eq!(*mutex.lock(), 2);
}

#[test]
fn debug_output_shows_the_value_of_an_unlocked_mutex_only() {
    let mutex = AsymmetricMutex::new(7);
    assert_eq!(format!("{mutex:?}"), "AsymmetricMutex { value: 7 }");
    let guard = mutex.lock();
    assert_eq!(format!("{guard:?}"), "7");
    assert_eq!(format!("{mutex:?}"), "AsymmetricMutex { .. }");
}
