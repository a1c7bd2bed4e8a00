// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which many threads share one sender: no message is lost, received twice, or received
//! out of the order in which its thread sent, and no thread waits for ever.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall::{
    BackPressure, Receiver, SendError, SharedSender, TryRecvError, TrySendError, Wait,
};
use partywall_testkit::{Kind, Random, TIMEOUT, fill, is_pattern, soon};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const THREADS: u64 = 8;
const MESSAGES: u64 = 1500;
/// Number of bytes at the beginning of each message that hold the number of the sending thread and
/// of the message.
const HEAD: usize = 16;

fn message(thread: u64, number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEAD + len];
    bytes[..8].copy_from_slice(&thread.to_le_bytes());
    bytes[8..HEAD].copy_from_slice(&number.to_le_bytes());
    fill(&mut bytes[HEAD..], thread << 32 | number);
    bytes
}

/// Checks the bytes of a message. Returns the number of its thread, and its number among the
/// messages of that thread.
fn check(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (thread, number) = (word(0), word(8));
    assert!(is_pattern(&bytes[HEAD..], thread << 32 | number), "thread {thread}: {number}");
    (thread, number)
}

/// Receives until all senders are dropped. Returns the number of messages received from each
/// sending thread.
fn receive(receiver: &mut Receiver, name: &str) -> Vec<u64> {
    let mut counts = vec![0; THREADS as usize];
    loop {
        match receiver.recv_deadline(soon()) {
            Ok(Some(message)) => {
                let (thread, number) = check(&message);
                let next = &mut counts[thread as usize];
                assert!(number >= *next, "{name}: thread {thread} sent {number} again");
                assert_eq!(number, *next, "{name}: thread {thread} lost a message");
                *next += 1;
            }
            Ok(None) => return counts,
            Err(other) => panic!("{name}: {other}"),
        }
    }
}

/// Attempts to send a message by a randomly chosen method; returns whether it was sent.
fn send(sender: &SharedSender, chance: &mut Random, bytes: &[u8]) -> bool {
    let short = Instant::now() + Duration::from_micros(chance.below(300));
    match chance.below(8) {
        0 => sender.try_send(bytes).is_ok(),
        1 => is_sent(sender.send_deadline(bytes, short)),
        2 => match sender.reserve_deadline(bytes.len(), short) {
            Ok(mut reserved) => {
                reserved.copy_from_slice(bytes);
                is_sent(reserved.commit())
            }
            Err(error) => is_sent(Err(error)),
        },
        3 => match sender.try_reserve(bytes.len()) {
            Ok(mut reserved) => {
                reserved.copy_from_slice(bytes);
                reserved.try_commit().is_ok()
            }
            Err(_) => false,
        },
        4 if bytes.len() < 2000 => is_sent(sender.send_batch(&[bytes])),
        5 => {
            drop(sender.try_reserve(bytes.len()));
            false
        }
        _ => is_sent(sender.send_deadline(bytes, soon())),
    }
}

fn is_sent(sent: Result<(), SendError>) -> bool {
    match sent {
        Ok(()) => true,
        Err(SendError::TimedOut | SendError::Full) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn eight_threads_lose_and_double_nothing() {
    for (kind, policy) in [
        (Kind::SharedMemory, BackPressure::Block),
        (Kind::SharedMemory, BackPressure::Overflow),
        (Kind::SharedMemory, BackPressure::Error),
        (Kind::Untrusted, BackPressure::Block),
        (Kind::Moving, BackPressure::Block),
        (Kind::Unix, BackPressure::Block),
        (Kind::Tcp, BackPressure::Block),
    ] {
        let (client, server) = kind.pair(|config| {
            config
                .ring_bytes(8192)
                .peer_blocks_max(16)
                .memory_max(512 << 10)
                .message_max(1 << 20)
                .back_pressure(policy)
        });
        let (sender, _back) = client.split();
        let (_reply, mut receiver) = server.split();
        let sender = sender.shared();
        let name = format!("{} {policy:?}", kind.name());
        println!("{name}");
        let counts = std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let sender = sender.clone();
                scope.spawn(move || {
                    let mut chance = Random::new(thread);
                    for number in 0..MESSAGES {
                        let bytes = message(thread, number, chance.size(40_000));
                        while !send(&sender, &mut chance, &bytes) {}
                        if number % 200 == 0 {
                            sender.set_wait(chance.wait());
                        }
                    }
                });
            }
            // Without the main thread's sender, one of the sending threads drops the last clone.
            drop(sender);
            receive(&mut receiver, &name)
        });
        assert_eq!(counts, [MESSAGES; THREADS as usize], "{name}");
    }
}

/// Makes a channel whose ring is full and whose receiver reads nothing, so every further send
/// waits.
fn full(kind: Kind) -> (SharedSender, partywall::Sender, Receiver, Receiver) {
    let (client, server) = kind.pair(|config| config.ring_bytes(8192).wait(Wait::Park));
    let ((mut sender, back), (reply, receiver)) = (client.split(), server.split());
    while sender.try_send(&message(0, 0, 500)).is_ok() {}
    (sender.shared(), reply, receiver, back)
}

#[test]
fn who_times_out_strands_nobody() {
    for kind in [Kind::SharedMemory, Kind::Untrusted, Kind::Moving, Kind::Unix] {
        let (sender, _reply, mut receiver, _back) = full(kind);
        let timed_out = AtomicU64::new(0);
        std::thread::scope(|scope| {
            // Of the seven threads, only one at a time waits on the doorbell. When that thread
            // times out, another one must wait on the doorbell in its place.
            for thread in 0..7 {
                let (sender, timed_out) = (sender.clone(), &timed_out);
                scope.spawn(move || {
                    let until = Instant::now() + Duration::from_millis(10 + 5 * thread);
                    let sent = sender.send_deadline(&message(0, 0, 500), until);
                    assert!(matches!(sent, Err(SendError::TimedOut)), "{sent:?}");
                    // Each thread must return soon after its own deadline, and not wait for the
                    // eighth thread, which has none.
                    assert!(Instant::now() < until + TIMEOUT / 2, "far too late");
                    timed_out.fetch_add(1, Ordering::Relaxed);
                });
            }
            let (outcomes, sent) = mpsc::channel();
            let last = sender.clone();
            scope.spawn(move || outcomes.send(last.send(&message(7, 0, 500))));
            let until = soon();
            while timed_out.load(Ordering::Relaxed) < 7 {
                assert!(Instant::now() < until, "{}: nobody times out", kind.name());
                std::thread::yield_now();
            }
            // The receiver makes room only now, after seven of the eight threads have timed out.
            while check(&receiver.recv_deadline(soon()).unwrap().unwrap()).0 != 7 {}
            sent.recv_timeout(TIMEOUT).expect("stranded").unwrap();
        });
    }
}

#[test]
fn room_for_one_wakes_the_next() {
    let (sender, _reply, mut receiver, _back) = full(Kind::SharedMemory);
    let (outcomes, sent) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 1..THREADS {
            let (sender, outcomes) = (sender.clone(), outcomes.clone());
            scope.spawn(move || outcomes.send(sender.send(&message(thread, 0, 500))));
        }
        // Each message that the receiver takes lets one waiting thread send its message.
        let mut came = 1;
        while came < THREADS {
            came += u64::from(check(&receiver.recv_deadline(soon()).unwrap().unwrap()).0 != 0);
        }
        for _ in 1..THREADS {
            sent.recv_timeout(TIMEOUT).expect("stranded").unwrap();
        }
    });
}

#[test]
fn memory_that_comes_back_unsent_wakes_who_waits_for_it() {
    for wait in [Wait::Spin, Wait::Adaptive, Wait::Park] {
        let (client, server) = Kind::SharedMemory
            .pair(|config| config.memory_max(1 << 20).wait(wait).peer_blocks_max(8));
        let ((sender, _back), (_reply, mut receiver)) = (client.split(), server.split());
        let sender = sender.shared();
        for round in 0..200 {
            let reserved = sender.reserve(900_000).unwrap();
            let (outcomes, sent) = mpsc::channel();
            let waiting = sender.clone();
            let thread = std::thread::spawn(move || {
                outcomes.send(None).unwrap();
                outcomes.send(Some(waiting.send(&message(1, round, 800_000)))).unwrap();
            });
            assert!(sent.recv_timeout(TIMEOUT).unwrap().is_none());
            // Aborting the reservation frees its memory: in even rounds after the waiting thread
            // has had time to sleep, in odd rounds usually before.
            if round % 2 == 0 {
                std::thread::park_timeout(Duration::from_micros(20 * round));
            }
            reserved.abort();
            let sent = sent.recv_timeout(TIMEOUT).expect("it sleeps for ever");
            sent.unwrap().unwrap();
            thread.join().unwrap();
            assert_eq!(check(&receiver.recv_deadline(soon()).unwrap().unwrap()), (1, round));
        }
    }
}

#[test]
fn trying_waits_for_no_other_thread() {
    for kind in [Kind::SharedMemory, Kind::Unix] {
        let (client, server) = kind.pair(|config| {
            config.memory_max(64 << 10).message_max(64 << 20).back_pressure(BackPressure::Overflow)
        });
        let ((sender, _back), (_reply, mut receiver)) = (client.split(), server.split());
        let sender = sender.shared();
        let (busy, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // A long message is sent in pieces, and stays unfinished as long as the receiver does
            // not read.
            let sending = sender.clone();
            scope.spawn(|| {
                let sending = sending;
                sending.send_deadline(&message(1, 0, 32 << 20), soon()).unwrap();
                is_done.store(true, Ordering::Relaxed);
            });
            let until = soon();
            while busy.load(Ordering::Relaxed) < 100 {
                let start = Instant::now();
                match sender.try_reserve(10) {
                    // The thread with the long message has not begun to send it, so the reservation
                    // succeeds and is aborted.
                    Ok(reserved) => reserved.abort(),
                    Err(TrySendError::Busy) => {
                        busy.fetch_add(1, Ordering::Relaxed);
                        let tried = sender.try_send(b"between the pieces");
                        assert!(matches!(tried, Err(TrySendError::Busy)), "{tried:?}");
                    }
                    Err(other) => panic!("{other}"),
                }
                // The receiver reads no message, so a `try_` call that waited for the other thread
                // would return only at that thread's deadline.
                assert!(start.elapsed() < TIMEOUT / 2, "it waited");
                assert!(Instant::now() < until, "{}: never busy", kind.name());
            }
            assert!(!is_done.load(Ordering::Relaxed));
            assert_eq!(check(&receiver.recv_deadline(soon()).unwrap().unwrap()), (1, 0));
        });
        sender.send_deadline(b"and on", soon()).unwrap();
        drop(sender);
        assert_eq!(receiver.recv_deadline(soon()).unwrap().unwrap(), b"and on");
    }
}

#[test]
fn the_last_sender_to_go_finishes_the_direction() {
    for kind in Kind::ALL {
        let (client, server) = kind.pair(|config| config);
        let ((sender, _back), (_reply, mut receiver)) = (client.split(), server.split());
        let first = sender.shared();
        let last = first.clone();
        first.send(b"one").unwrap();
        drop(first);
        assert_eq!(receiver.recv_deadline(soon()).unwrap().unwrap(), b"one");
        assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)), "{}", kind.name());
        std::thread::spawn(move || last.send(b"two").unwrap()).join().unwrap();
        assert_eq!(receiver.recv_deadline(soon()).unwrap().unwrap(), b"two");
        let end = receiver.recv_deadline(soon());
        assert!(matches!(end, Ok(None)), "{}", kind.name());
    }
}
