// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that need to know whether a thread blocks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Client, Config, Server, Storage};
use partywall::{TransportPolicy, Wait};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = soon();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        thread::yield_now();
    }
}

/// `wait_sent` ends when another thread writes the bytes that it waits for, even if later bytes
/// cannot be written.
#[test]
fn wait_sent_of_a_part_ends_when_another_thread_writes_that_part() {
    /// Far more bytes than the system buffers for a peer that does not read.
    const RING: u64 = 32 << 20;
    let config = || {
        let config = Config::default().ring_bytes(RING).slab_bytes(0).peer_max(RING, 0);
        config.transport(TransportPolicy::Socket)
    };
    let address = format!("unix:@partywall-waits-{}", std::process::id());
    let server = Server::bind(&*address, Storage::Memory, "bob", config()).unwrap();
    let client = Client::new(Storage::Memory, "alice", config()).unwrap();
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    let (link, waiting) = (&link, || link.shared_end().monitor.lock().wakeups.awaiting_writes);
    thread::scope(|scope| {
        scope.spawn(|| link.wait_attached(soon()).unwrap());
        served.wait_attached(soon()).unwrap();
    });
    let message = [7; 1000];
    let fill = |bytes: u64| {
        let mut count = 0;
        while link.unacked_bytes().unwrap() < bytes && link.try_send(&message).is_ok() {
            count += 1;
        }
        count
    };
    thread::scope(|scope| {
        // This thread leads, and receives nothing until the end of the test.
        let leads = scope.spawn(|| link.recv_deadline(soon()).unwrap().unwrap().ack().unwrap());
        let awaited = fill(RING / 2);
        let waits = scope.spawn(|| link.wait_sent(soon() + Duration::from_secs(60)));
        until("it waits", || waiting() == 1);
        let behind = fill(RING);
        assert!(behind > awaited / 2, "{behind} behind {awaited}");
        // The peer reads beyond the awaited bytes and acknowledges nothing, so no acknowledgement
        // wakes a thread.
        for _ in 0..=awaited {
            assert_eq!(&*served.recv_deadline(soon()).unwrap().unwrap(), message);
        }
        until("it is notified", || waits.is_finished());
        waits.join().unwrap().unwrap();
        assert_eq!(waiting(), 0);
        served.send(b"good-bye").unwrap();
        leads.join().unwrap();
    });
}

/// The application's code panics while a thread spins. Later threads must still spin, and notice
/// acknowledgements.
#[test]
fn fill_that_panics_when_room_comes_leaves_the_spinner_and_the_lock() {
    for wait in [Wait::Spin, Wait::Adaptive, Wait::Park] {
        let config = || {
            let config = Config::default().ring_bytes(64 << 10).slab_bytes(0);
            config.peer_max(64 << 10, 0).wait(wait)
        };
        let address = format!("unix:@partywall-panics-{}", std::process::id());
        let server = Server::bind(&*address, Storage::Memory, "bob", config()).unwrap();
        let client = Client::new(Storage::Memory, "alice", config()).unwrap();
        let link = client.connect(server.local_address(), "bob", "orders").unwrap();
        let served = server.open("alice", "orders").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| link.wait_attached(soon()).unwrap());
            served.wait_attached(soon()).unwrap();
        });
        for len in [40, 4000] {
            let mut sent = 0;
            while link.try_send(&vec![7; len]).is_ok() {
                sent += 1;
            }
            thread::scope(|scope| {
                let panics = scope.spawn(|| {
                    let fails = || link.send_with(len, |_| panic!("room came"));
                    catch_unwind(AssertUnwindSafe(fails)).unwrap_err();
                });
                let spins = || link.end().monitor.lock().pacing.spinner.is_none();
                // Strategies other than `Wait::Spin` spin for too short a time to be observed.
                until("it spins", || wait != Wait::Spin || spins());
                for _ in 0..sent {
                    served.recv_deadline(soon()).unwrap().unwrap().ack().unwrap();
                }
                until("there is room", || served.try_recv().is_err() && panics.is_finished());
            });
            assert!(link.end().monitor.lock().pacing.spinner.is_some(), "{wait:?}, {len} bytes");
            link.wait_acked(soon()).unwrap();
        }
    }
}
