// SPDX-License-Identifier: MIT OR Apache-2.0
//! What only shows when it is known that a thread waits.

use std::thread;
use std::time::{Duration, Instant};

use crate::TransportPolicy;
use crate::link::{LinkClient, LinkConfig, LinkPlace, LinkServer};

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

/// Who waits while another drives is told when its part is out, though more lies behind it that does not go.
#[test]
fn one_who_waits_for_its_part_to_go_is_told_by_whoever_writes_it() {
    /// Far more than the system takes for a peer that does not read.
    const RING: u64 = 32 << 20;
    let config = || {
        let config = LinkConfig::default().ring_bytes(RING).slab_bytes(0).peer_max(RING, 0);
        config.transport(TransportPolicy::Socket)
    };
    let address = format!("unix:@partywall-waits-{}", std::process::id());
    let server = LinkServer::bind(&*address, LinkPlace::Volatile, "bob", config()).unwrap();
    let client = LinkClient::new(LinkPlace::Volatile, "alice", config()).unwrap();
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    let (link, waiting) = (&link, || link.shared_end().spot.lock().awaiting_writes);
    thread::scope(|scope| {
        scope.spawn(|| link.wait_attached(soon()).unwrap());
        served.wait_attached(soon()).unwrap();
    });
    let message = [7; 1000];
    let fill = |bytes: u64| {
        let mut count = 0;
        while link.unconsumed_bytes().unwrap() < bytes && link.try_send(&message).is_ok() {
            count += 1;
        }
        count
    };
    thread::scope(|scope| {
        // It leads, and nothing comes for it until the end.
        let leads = scope.spawn(|| link.recv_deadline(soon()).unwrap().commit().unwrap());
        let awaited = fill(RING / 2);
        let waits = scope.spawn(|| link.wait_sent(soon() + Duration::from_secs(60)));
        until("it waits", || waiting() == 1);
        let behind = fill(RING);
        assert!(behind > awaited / 2, "{behind} behind {awaited}");
        // Beyond its part, and nothing is consumed: no acknowledgement wakes anybody.
        for _ in 0..=awaited {
            assert_eq!(&*served.recv_deadline(soon()).unwrap(), message);
        }
        until("it is told", || waits.is_finished());
        waits.join().unwrap().unwrap();
        assert_eq!(waiting(), 0);
        served.send(b"good-bye").unwrap();
        leads.join().unwrap();
    });
}
