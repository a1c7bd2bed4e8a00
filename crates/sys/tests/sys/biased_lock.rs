// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which threads lock one `Biased` mutex at various intervals. Two threads never hold the
//! lock at once, no thread waits for ever, and the others wait while the holder sleeps. These tests
//! cover the barrier that one thread executes for all threads of the process, which loom cannot
//! model.
#![allow(clippy::unwrap_used, reason = "a test")]

use partywall_sys::Biased;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar};
use std::thread;
use std::time::{Duration, Instant};

/// Two words that the lock protects, and that differ only while a thread adds to them. A thread
/// that finds them different has got the lock while another thread held it.
#[derive(Default)]
struct EqualWords {
    one: u64,
    other: u64,
}

impl EqualWords {
    fn add(&mut self) {
        assert_eq!(self.one, self.other, "another is inside");
        self.one += 1;
        std::hint::black_box(&mut *self);
        self.other += 1;
    }
}

#[test]
fn bursts_of_several_threads_lose_no_update() {
    let lock = Biased::new(EqualWords::default());
    // The test has more threads than the lock can favour in its life. Each locks often enough in a
    // row to become favoured.
    let (threads, bursts) = (6, 40);
    let total: u64 = thread::scope(|scope| {
        let works = (0..threads).map(|index: u64| {
            let lock = &lock;
            scope.spawn(move || {
                let mut done = 0;
                for burst in 0..bursts {
                    for _ in 0..(200 + 700 * ((index + burst) % 5)) {
                        lock.lock().add();
                        done += 1;
                    }
                    if burst % 3 == index % 3 {
                        thread::yield_now();
                    }
                    if burst % 4 == 0 {
                        lock.lock_to_wait().add();
                        done += 1;
                    }
                }
                done
            })
        });
        works.collect::<Vec<_>>().into_iter().map(|work| work.join().unwrap()).sum()
    });
    let words = lock.lock();
    assert_eq!((words.one, words.other), (total, total));
}

#[test]
fn slow_favoured_holder_is_awaited() {
    let lock = Biased::new(EqualWords::default());
    (0..1000).for_each(|_| lock.lock().add());
    let (started, has_started) = channel();
    let is_out = AtomicBool::new(false);
    thread::scope(|scope| {
        // The lock favours the main thread by now, because only the main thread has locked it,
        // 1,000 times.
        let mut inside = lock.lock();
        inside.one += 1;
        scope.spawn(|| {
            started.send(()).unwrap();
            lock.lock().add();
            assert!(is_out.load(Ordering::SeqCst));
        });
        has_started.recv().unwrap();
        thread::sleep(Duration::from_millis(30));
        inside.other += 1;
        is_out.store(true, Ordering::SeqCst);
        drop(inside);
    });
    assert_eq!(lock.lock().one, 1002);
}

/// Rule: a favoured thread that holds the lock can poll whether another thread waits for it,
/// without leaving the lock.
#[test]
fn favoured_thread_sees_waiting_thread() {
    let lock = Biased::new(EqualWords::default());
    for _ in 0..20 {
        (0..70_000).for_each(|_| lock.lock().add());
        let until = Instant::now() + Duration::from_secs(30);
        let inside = lock.lock();
        let is_favoured = !inside.is_wanted();
        assert_eq!(is_favoured, has_membarrier(), "no other thread exists");
        thread::scope(|scope| {
            scope.spawn(|| lock.lock().add());
            while !inside.is_wanted() {
                assert!(Instant::now() < until, "a waiting thread is not seen");
                std::hint::spin_loop();
            }
            drop(inside);
        });
    }
    assert_eq!(lock.lock().one, 20 * 70_001);
}

#[test]
fn favoured_thread_wakes_waiting_thread() {
    let lock = Arc::new((Biased::new(0_u64), Condvar::new()));
    let waits = {
        let lock = Arc::clone(&lock);
        thread::spawn(move || {
            let mut guard = lock.0.lock_to_wait();
            let until = Instant::now() + Duration::from_secs(30);
            while *guard < 5000 {
                assert!(Instant::now() < until, "no wake-up at {}", *guard);
                guard = guard.wait(&lock.1, Some(Duration::from_secs(5)));
            }
            *guard
        })
    };
    for _ in 0..5000 {
        *lock.0.lock() += 1;
        lock.1.notify_all();
    }
    assert_eq!(waits.join().unwrap(), 5000);
}

/// Rule: a thread number is never reused, so the lock does not take a later thread for a favoured
/// thread that ended.
#[test]
fn ended_thread_favours_no_later_thread() {
    let lock = Arc::new(Biased::new(EqualWords::default()));
    for round in 0..10 {
        let theirs = Arc::clone(&lock);
        thread::spawn(move || (0..1000).for_each(|_| theirs.lock().add())).join().unwrap();
        assert_eq!(lock.lock().one, 1000 * (round + 1));
    }
}

#[test]
fn favoured_thread_that_locks_twice_panics() {
    if !has_membarrier() {
        // Without membarrier(2) no lock ever favours a thread. A thread that locks twice then waits
        // for ever instead of panicking, so this test cannot go on and returns.
        return;
    }
    let lock = Biased::new(EqualWords::default());
    for _ in 0..1000 {
        lock.lock().add();
    }
    let mut first = lock.lock();
    for is_to_wait in [false, true] {
        let lock_again = || drop(if is_to_wait { lock.lock_to_wait() } else { lock.lock() });
        let panic = catch_unwind(AssertUnwindSafe(lock_again)).unwrap_err();
        let words = panic.downcast_ref::<&str>().unwrap();
        assert!(words.contains("locks what it has locked"), "{words}");
    }
    first.add();
    drop(first);
    // Input: a thread waits for a condition with the guard that `lock` returned. Only the guards of
    // `lock_to_wait` may wait, so the wait panics. Expected: neither this panic nor the earlier
    // ones of the test keep other threads out of the lock.
    let waits = catch_unwind(AssertUnwindSafe(|| drop(lock.lock().wait(&Condvar::new(), None))));
    assert!(waits.is_err());
    thread::scope(|scope| {
        scope.spawn(|| (0..1000).for_each(|_| lock.lock().add()));
    });
    assert_eq!(lock.lock().one, 2001);
}

#[test]
fn panic_inside_leaves_lock_usable() {
    let lock = Arc::new(Biased::new(0));
    (0..1000).for_each(|_| *lock.lock() += 1);
    let theirs = Arc::clone(&lock);
    let panicked = thread::spawn(move || {
        (0..1000).for_each(|_| *theirs.lock() += 1);
        let _guard = theirs.lock();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_eq!(*lock.lock(), 2000);
}

fn has_membarrier() -> bool {
    let query = rustix::thread::membarrier_query();
    query.contains_command(rustix::thread::MembarrierCommand::PrivateExpedited)
}
