// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of one end of a link that need to know its inner state, such as whether a thread blocks.

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

/// Rule: `wait_sent` ends when another thread writes the bytes for which it waits, even if bytes
/// that were sent later cannot be written.
#[test]
fn wait_sent_of_a_part_ends_when_another_thread_writes_that_part() {
    /// Size in bytes of the ring of each end: far more than the system buffers for a peer that does
    /// not read.
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
        // This thread polls the sockets of the client's group while it waits for a message. The
        // only message that it receives arrives at the end of the test.
        let leads = scope.spawn(|| link.recv_deadline(soon()).unwrap().unwrap().ack().unwrap());
        let awaited = fill(RING / 2);
        let waits = scope.spawn(|| link.wait_sent(soon() + Duration::from_secs(60)));
        until("it waits", || waiting() == 1);
        let behind = fill(RING);
        assert!(behind > awaited / 2, "{behind} behind {awaited}");
        // The peer reads more than the bytes for which `wait_sent` waits, and acknowledges nothing.
        // So only the writing of these bytes, and no acknowledgement, can wake the waiting thread.
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

/// Rule: if the application's code panics while its thread spins, the link gets back its spinner.
/// Threads that wait later can still spin, and notice acknowledgements.
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
                // The test waits until the thread spins, but only under `Wait::Spin`: under the
                // other wait strategies a thread spins for too short a time to be observed.
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

/// Returns a server and the two attached ends of a link over shared memory: the client's and the
/// server's. Only the calling thread handles the events of their groups.
fn shared_pair(name: &str) -> (Server, crate::Link, crate::Link) {
    let config = || Config::default().transport(TransportPolicy::SharedMemory);
    let address = format!("unix:@partywall-{name}-{}", std::process::id());
    let server = Server::bind(&*address, Storage::Memory, "bob", config()).unwrap();
    let client = Client::new(Storage::Memory, "alice", config()).unwrap();
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| link.wait_attached(soon()).unwrap());
        served.wait_attached(soon()).unwrap();
    });
    (server, link, served)
}

/// Whether the fast path of the end `link` is open. The check does not close it.
fn is_fast(link: &crate::Link) -> bool {
    let locked = link.end().monitor.biased().lock();
    locked.value.is_fast_path_open()
}

/// Sends and receives messages until the fast path is open at both ends. Returns the number of
/// these messages.
fn until_fast(link: &crate::Link, served: &crate::Link) -> u64 {
    let (deadline, mut messages) = (soon(), 0);
    while !(is_fast(link) && is_fast(served)) {
        assert!(Instant::now() < deadline, "the fast path does not open");
        link.send(b"a message").unwrap();
        served.recv_with_deadline(|message| assert_eq!(message, b"a message"), soon()).unwrap();
        messages += 1;
    }
    messages
}

#[test]
fn fast_path_is_closed_and_settled_by_any_other_lock() {
    let (_server, link, served) = shared_pair("settles");
    let mut messages = 0;
    for _ in 0..3 {
        messages += until_fast(&link, &served);
        // The fast path is open at both ends. So at least the message sent here takes it.
        link.send(b"fast").unwrap();
        served.recv_with_deadline(|message| assert_eq!(message, b"fast"), soon()).unwrap();
        messages += 1;
        let (sent, received) = (link.stats(), served.stats());
        assert_eq!((sent.messages_sent, received.messages_received), (messages, messages));
        assert_eq!(sent.bytes_sent, received.bytes_received);
        assert!(!is_fast(&link) && !is_fast(&served), "the statistics locked them");
        assert_eq!(served.acked_position().unwrap(), Some(link.sent_position().unwrap()));
        assert_eq!(link.unacked_bytes().unwrap(), 0);
        served.rewind().unwrap();
        served.try_recv_with(|_| panic!("there is none")).unwrap_err();
    }
}

#[test]
fn reader_that_panics_on_the_fast_path_gets_its_message_again() {
    let (_server, link, served) = shared_pair("reads");
    let messages = until_fast(&link, &served);
    link.send(b"twice").unwrap();
    let panics = || served.recv_with_deadline(|_| panic!("while it reads"), soon());
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert_eq!(served.stats().messages_received, messages + 1, "it was delivered");
    let unacked = link.unacked_bytes().unwrap();
    assert!(unacked > 0, "it is not acknowledged");
    served.recv_with_deadline(|message| assert_eq!(message, b"twice"), soon()).unwrap();
    assert_eq!(served.stats().messages_received, messages + 2);
    assert_eq!(link.unacked_bytes().unwrap(), 0);
}

#[test]
fn fill_that_panics_on_the_fast_path_sends_nothing() {
    let (_server, link, served) = shared_pair("fills");
    let messages = until_fast(&link, &served);
    let panics = || link.send_with(10, |_| panic!("while it fills"));
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    link.send(b"next").unwrap();
    served.recv_with_deadline(|message| assert_eq!(message, b"next"), soon()).unwrap();
    assert_eq!(link.stats().messages_sent, messages + 1);
}

#[test]
fn message_kept_before_the_fast_path_is_acked_with_its_successors() {
    let (_server, link, served) = shared_pair("once");
    until_fast(&link, &served);
    // The application receives the message `kept` and does not acknowledge it. The acknowledgement
    // of any later message, on the fast path, includes it. So its own `ack` at the end of the test
    // fails.
    link.send(b"kept").unwrap();
    let kept = served.recv().unwrap().unwrap();
    for _ in 0..40 {
        link.send(b"later").unwrap();
        served.recv_with_deadline(|message| assert_eq!(message, b"later"), soon()).unwrap();
    }
    kept.ack().unwrap_err();
}
