// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads in all rhythms at one lock that favours the one or the other: nobody is ever inside with another, nobody waits for ever,
//! and whoever sleeps inside is awaited. What loom cannot see: the barrier that one thread executes for all.
#![allow(clippy::unwrap_used, reason = "a test")]

use partywall_sys::Biased;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar};
use std::thread;
use std::time::{Duration, Instant};

/// Two words that are equal whenever nobody is inside.
#[derive(Default)]
struct Twins {
    one: u64,
    other: u64,
}

impl Twins {
    fn add(&mut self) {
        assert_eq!(self.one, self.other, "another is inside");
        self.one += 1;
        std::hint::black_box(&mut *self);
        self.other += 1;
    }
}

#[test]
fn bursts_of_several_threads_lose_nothing() {
    let lock = Biased::new(Twins::default());
    // More threads than can ever be favoured; each long enough alone to be.
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
    let twins = lock.lock();
    assert_eq!((twins.one, twins.other), (total, total));
}

#[test]
fn one_who_has_it_for_long_is_awaited() {
    let lock = Biased::new(Twins::default());
    (0..1000).for_each(|_| lock.lock().add());
    let (tell, told) = channel();
    let is_out = AtomicBool::new(false);
    thread::scope(|scope| {
        // The favoured thread is this one.
        let mut inside = lock.lock();
        inside.one += 1;
        scope.spawn(|| {
            tell.send(()).unwrap();
            lock.lock().add();
            assert!(is_out.load(Ordering::SeqCst));
        });
        told.recv().unwrap();
        thread::sleep(Duration::from_millis(30));
        inside.other += 1;
        is_out.store(true, Ordering::SeqCst);
        drop(inside);
    });
    assert_eq!(lock.lock().one, 1002);
}

/// Whoever looks for something within the lock, again and again, need not leave it for that.
#[test]
fn a_favoured_thread_is_told_that_another_waits() {
    let lock = Biased::new(Twins::default());
    for _ in 0..20 {
        (0..70_000).for_each(|_| lock.lock().add());
        let until = Instant::now() + Duration::from_secs(30);
        let inside = lock.lock();
        let is_favoured = !inside.is_wanted();
        assert_eq!(is_favoured, has_membarrier(), "nobody else is here");
        thread::scope(|scope| {
            scope.spawn(|| lock.lock().add());
            while !inside.is_wanted() {
                assert!(Instant::now() < until, "another waits, and nobody says so");
                std::hint::spin_loop();
            }
            drop(inside);
        });
    }
    assert_eq!(lock.lock().one, 20 * 70_001);
}

#[test]
fn who_waits_is_woken_by_a_favoured_thread() {
    let lock = Arc::new((Biased::new(0_u64), Condvar::new()));
    let waits = {
        let lock = Arc::clone(&lock);
        thread::spawn(move || {
            let mut guard = lock.0.lock_to_wait();
            let until = Instant::now() + Duration::from_secs(30);
            while *guard < 5000 {
                assert!(Instant::now() < until, "nobody woke it at {}", *guard);
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

/// A number is never given to two threads: the next is not taken for the one that is gone.
#[test]
fn a_thread_that_is_gone_favours_nobody_who_comes_later() {
    let lock = Arc::new(Biased::new(Twins::default()));
    for round in 0..10 {
        let theirs = Arc::clone(&lock);
        thread::spawn(move || (0..1000).for_each(|_| theirs.lock().add())).join().unwrap();
        assert_eq!(lock.lock().one, 1000 * (round + 1));
    }
}

#[test]
fn a_favoured_thread_that_locks_twice_is_told() {
    if !has_membarrier() {
        // Nobody is ever favoured, and it would wait for ever.
        return;
    }
    let lock = Biased::new(Twins::default());
    for _ in 0..1000 {
        lock.lock().add();
    }
    let mut first = lock.lock();
    for is_to_wait in [false, true] {
        let lock_again = || drop(if is_to_wait { lock.lock_to_wait() } else { lock.lock() });
        let told = catch_unwind(AssertUnwindSafe(lock_again)).unwrap_err();
        let words = told.downcast_ref::<&str>().unwrap();
        assert!(words.contains("locks what it has locked"), "{words}");
    }
    first.add();
    drop(first);
    // Others are not shut out by that, nor by one who waits with the wrong guard.
    let waits = catch_unwind(AssertUnwindSafe(|| drop(lock.lock().wait(&Condvar::new(), None))));
    assert!(waits.is_err());
    thread::scope(|scope| {
        scope.spawn(|| (0..1000).for_each(|_| lock.lock().add()));
    });
    assert_eq!(lock.lock().one, 2001);
}

#[test]
fn a_panic_inside_leaves_the_lock_usable() {
    let lock = Arc::new(Biased::new(0));
    (0..1000).for_each(|_| *lock.lock() += 1);
    let theirs = Arc::clone(&lock);
    let panicked = thread::spawn(move || {
        (0..1000).for_each(|_| *theirs.lock() += 1);
        let _guard = theirs.lock();
        panic!("as it is to");
    });
    assert!(panicked.join().is_err());
    assert_eq!(*lock.lock(), 2000);
}

fn has_membarrier() -> bool {
    let query = rustix::thread::membarrier_query();
    query.contains_command(rustix::thread::MembarrierCommand::PrivateExpedited)
}
