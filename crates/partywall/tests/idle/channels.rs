// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test that an idle channel wakes no thread: a thread that waits for a message or for room sleeps
//! until it is notified.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall::Wait;
use partywall_testkit::{Kind, TIMEOUT, soon};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time for which the idle channels are observed.
const SILENCE: Duration = Duration::from_secs(2);

/// The calling thread's id, the name of its directory in `/proc/self/task`.
fn thread_number() -> String {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Returns the state of a thread, and its numbers of voluntary and involuntary context switches.
fn switches(thread: &str, name: &str) -> (char, u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"));
    let text = text.unwrap_or_else(|_| panic!("{name}: it does not wait at all"));
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().to_owned()
    };
    (
        field("State").chars().next().unwrap(),
        field("voluntary_ctxt_switches").parse().unwrap(),
        field("nonvoluntary_ctxt_switches").parse().unwrap(),
    )
}

/// Waits until a thread sleeps: it is asleep, with the same number of context switches, at two
/// checks in a row.
fn until_asleep(thread: &str, name: &str) -> (char, u64, u64) {
    let until = Instant::now() + TIMEOUT;
    let mut last = switches(thread, name);
    loop {
        // Between two checks the core is left to the thread that is going to sleep.
        std::thread::park_timeout(Duration::from_millis(50));
        let now = switches(thread, name);
        if now == last && now.0 == 'S' {
            return now;
        }
        last = now;
        assert!(Instant::now() < until, "{name}: the thread never sleeps");
    }
}

#[test]
fn while_nothing_comes_nobody_wakes() {
    let (senders, threads) = mpsc::channel();
    let mut keep = Vec::new();
    let mut waiting = Vec::new();
    for kind in Kind::ALL {
        for wait in [Wait::Adaptive, Wait::Park] {
            let (client, server) = kind.pair(|config| config.ring_bytes(8192).wait(wait));
            let ((mut sender, back), (reply, mut receiver)) = (client.split(), server.split());
            // This thread waits for a message that never comes, and must sleep.
            let (threads_sender, mut other) = (senders.clone(), back);
            waiting.push(std::thread::spawn(move || {
                threads_sender
                    .send((format!("{} {wait:?} receiver", kind.name()), thread_number()))
                    .unwrap();
                assert_eq!(other.recv_deadline(soon()).unwrap().unwrap(), b"wake up");
            }));
            // A thread of the sender waits for room that never comes, and must sleep. TCP is left
            // out: at intervals the kernel accepts some bytes of a full connection, which wakes the
            // thread.
            if kind == Kind::Tcp {
                keep.push((reply, None));
                continue;
            }
            let other_sender = senders.clone();
            waiting.push(std::thread::spawn(move || {
                while sender.try_send(&[0; 1000]).is_ok() {}
                other_sender
                    .send((format!("{} {wait:?} sender", kind.name()), thread_number()))
                    .unwrap();
                sender.send_deadline(&[1; 1000], soon()).unwrap();
            }));
            let read =
                move || while receiver.recv_deadline(soon()).unwrap().unwrap() != [1; 1000] {};
            keep.push((reply, Some(read)));
        }
    }
    let threads: Vec<_> = threads.iter().take(waiting.len()).collect();
    let asleep: Vec<_> = threads.iter().map(|(name, thread)| until_asleep(thread, name)).collect();
    // The pause has a fixed time, because the test checks that nothing happens.
    std::thread::park_timeout(SILENCE);
    for ((name, thread), before) in threads.iter().zip(&asleep) {
        assert_eq!(switches(thread, name), *before, "{name} woke though nothing came");
    }
    for (mut reply, mut read) in keep {
        reply.send(b"wake up").unwrap();
        if let Some(read) = &mut read {
            read();
        }
    }
    for thread in waiting {
        thread.join().unwrap();
    }
}
