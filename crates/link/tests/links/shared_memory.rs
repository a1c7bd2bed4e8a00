// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of links over shared memory: each end maps the memory of its peer, reads messages in that
//! memory, and notifies the sleeping peer by a doorbell. The links also switch to a socket and back
//! while messages flow.

use crate::support_ends;

use partywall::{TransportPolicy, Wait};
use partywall_link::{
    Config, Event, Group, Link, Server, Status, Storage, SwitchError, Transport, TrySendError,
};
use partywall_sys::poll::{self, PollFd, PollFlags};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support_ends::{Ground, Pair, Via, message, number, soon, until};

fn config() -> Config {
    Config::default().ring_bytes(16 << 10).slab_bytes(64 << 10)
}

fn transport(link: &Link) -> Option<Transport> {
    match link.status() {
        Status::Attached { transport, .. } => Some(transport),
        _ => None,
    }
}

/// Receives and acknowledges the next message of `link`, and checks that it is message number `n`.
fn take(link: &Link, n: u64) {
    let message = link.recv_deadline(soon()).unwrap().unwrap();
    assert_eq!(number(&message), n);
    message.ack().unwrap();
}

#[test]
fn memory_is_shared_where_possible_unless_the_config_forbids_it() {
    for is_kept in [false, true] {
        for (via, expected) in [
            (Via::SharedMemory, Transport::SharedMemory),
            (Via::Unix, Transport::Unix),
            (Via::Tcp, Transport::Tcp),
        ] {
            let group = Group::new().unwrap();
            let ground = Ground::new(via, is_kept);
            let Pair { server: _server, served, link } = ground.pair(&config().group(&group));
            link.wait_attached(soon()).unwrap();
            served.wait_attached(soon()).unwrap();
            assert_eq!(transport(&link), Some(expected));
            assert_eq!(transport(&served), Some(expected));
        }
    }
}

#[test]
fn socket_policy_of_one_end_is_enough() {
    for unwilling in 0..2 {
        let ground = Ground::new(Via::SharedMemory, true);
        let group = Group::new().unwrap();
        let config = config().group(&group);
        let policies = [TransportPolicy::Auto, TransportPolicy::Socket];
        let server = ground.server(config.clone().transport(policies[unwilling]));
        let client = ground.client(config.transport(policies[1 - unwilling]));
        let link = client.connect(server.local_address(), "bob", "orders").unwrap();
        let served = server.open("alice", "orders").unwrap();
        link.send(b"all the same").unwrap();
        assert_eq!(served.recv_deadline(soon()).unwrap().unwrap(), b"all the same");
        assert_eq!(transport(&link), Some(Transport::Unix));
    }
}

#[test]
fn shared_memory_policy_refuses_a_socket() {
    let ground = Ground::new(Via::Tcp, false);
    let group = Group::new().unwrap();
    let config = config().group(&group);
    let server = ground.server(config.clone());
    let client = ground.client(config.transport(TransportPolicy::SharedMemory));
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    link.send(b"kept").unwrap();
    let mut reasons = Vec::new();
    until("a refusal", || {
        group.poll(Some(Instant::now() + Duration::from_millis(20))).unwrap();
        while let Some(event) = link.try_event() {
            if let Event::Detached { reason } | Event::Refused { reason } = event {
                reasons.push(reason);
            }
        }
        reasons.iter().any(|reason| reason.contains("Config::transport"))
    });
    assert!(link.unacked_bytes().unwrap() > 0);
}

/// Rule: an application's own event loop that sleeps on the group's descriptor misses no message,
/// and learns each time that its link's ring has room again. A client sends 20,000 messages, and
/// then receives as many.
#[test]
fn external_event_loop_learns_of_messages_and_room() {
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::new().unwrap();
    let server = ground.server(config().group(&group));
    let client = ground.client(config());
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    let count = 20_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            // The sending thread pauses after each 512 messages, so that the event loop falls
            // asleep.
            for n in 0..count {
                link.send_deadline(&message(n, 200), soon()).unwrap();
                if n % 512 == 0 {
                    link.wait_acked(soon()).unwrap();
                }
            }
            for n in 0..count {
                take(&link, n);
            }
            link.wait_acked(soon()).unwrap();
        });
        let (mut next, mut sent) = (0, 0);
        let deadline = soon();
        loop {
            group.try_poll().unwrap();
            let _ = group.ready();
            while let Ok(Some(message)) = served.try_recv() {
                assert_eq!(number(&message), next);
                message.ack().unwrap();
                next += 1;
            }
            while sent < next {
                match served.try_send(&message(sent, 200)) {
                    Ok(()) => sent += 1,
                    Err(TrySendError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            // The number of unacknowledged bytes is read after the poll: the poll itself may find
            // the last acknowledgements, and the peer then has nothing to notify this loop of.
            if sent == count && served.unacked_bytes().unwrap() == 0 {
                break;
            }
            // Only the group's descriptor wakes this event loop before its deadline. If a message
            // did not make the descriptor readable, the loop would sleep until the deadline, and
            // the test would fail.
            let mut fds = [PollFd::new(&group, PollFlags::IN)];
            let until = group.next_timer().map_or(deadline, |timer| timer.min(deadline));
            poll::wait(&mut fds, Some(until)).unwrap();
            assert!(Instant::now() < deadline, "{next} came, {sent} went");
        }
    });
}

/// Rule: if one thread sleeps for a link that receives nothing, a message for another link of the
/// group wakes it. The sleeping thread is the leader. Another thread polls the group and reads the
/// link with messages.
#[test]
fn leader_asleep_for_another_link_notifies_the_group() {
    let ground = Ground::new(Via::SharedMemory, false);
    let group = Group::with_wait(Wait::Park).unwrap();
    let near = config().wait(Wait::Park).group(&group);
    let server = ground.server(near.clone());
    let client = ground.client(config().wait(Wait::Park));
    let link = client.connect(server.local_address(), "bob", "busy").unwrap();
    let _idle = client.connect(server.local_address(), "bob", "idle").unwrap();
    let (busy, idle) =
        (server.open("alice", "busy").unwrap(), server.open("alice", "idle").unwrap());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let end = soon();
            while !is_over.load(Ordering::Relaxed) && Instant::now() < end {
                idle.recv_deadline(Instant::now() + Duration::from_millis(200)).unwrap_err();
            }
        });
        scope.spawn(|| {
            for n in 0..3_000 {
                link.send_deadline(&message(n, 48), soon()).unwrap();
                take(&link, n);
            }
            link.wait_acked(soon()).unwrap();
        });
        let mut next = 0;
        while next < 3_000 {
            // The polling thread either is the leader, or sleeps while another thread leads. In
            // either case only an event of a link wakes it.
            assert!(group.poll(Some(soon())).unwrap() > 0);
            let _ = group.ready();
            while let Ok(Some(found)) = busy.try_recv() {
                assert_eq!(number(&found), next);
                found.reply(&message(next, 48)).unwrap();
                next += 1;
            }
        }
        busy.wait_acked(soon()).unwrap();
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn threads_of_one_link_wait_in_every_way() {
    let ground = Ground::new(Via::SharedMemory, true);
    let Pair { server: _server, served, link } = ground.pair(&config().wait(Wait::Park));
    let count = 4_000;
    let (sender, mut receiver) = link.split();
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..count {
                take(&served, n);
                served.send_deadline(&message(n, 100), soon()).unwrap();
            }
            served.wait_acked(soon()).unwrap();
        });
        let flushing = sender.clone();
        scope.spawn(move || {
            for n in 0..count {
                sender.send_deadline(&message(n, 1_000), soon()).unwrap();
            }
        });
        scope.spawn(move || {
            for _ in 0..200 {
                flushing.wait_acked(soon()).unwrap();
            }
        });
        for n in 0..count {
            let found = receiver.recv_deadline(soon()).unwrap().unwrap();
            assert_eq!(number(&found), n);
            found.ack().unwrap();
        }
        // The sender may be waiting for the acknowledgement of the last message, which the receiver
        // sends when it makes another receive call.
        receiver.recv_deadline(Instant::now()).unwrap_err();
    });
}

#[test]
fn sender_that_never_receives_notices_that_the_peer_is_gone() {
    let ground = Ground::new(Via::SharedMemory, true);
    let server = ground.server(config());
    let client = ground.client(config());
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| served.wait_attached(soon()).unwrap());
        link.wait_attached(soon()).unwrap();
    });
    drop((served, server));
    // This loop makes no blocking call, and the ring has room for its messages. Still `try_send`
    // must notice that the server has closed the connection, and the client must connect again.
    let mut sent = 0;
    until("the end of the connection", || {
        match link.try_send(&message(sent, 8)) {
            Ok(()) => sent += 1,
            Err(TrySendError::Full) => {}
            Err(error) => panic!("{error}"),
        }
        transport(&link).is_none()
    });
    let server = ground.server(config());
    let served = server.open("alice", "orders").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| (0..sent).for_each(|n| take(&served, n)));
        until("all consumed", || {
            let _ = link.try_recv();
            link.unacked_bytes().unwrap() == 0
        });
    });
}

/// Rule: a link that switches to another address loses no message. The test switches repeatedly
/// between two addresses, while messages flow in both directions. The environment variable
/// `PARTYWALL_SWITCHES` sets the number of switches.
#[test]
fn switch_to_another_transport_while_messages_flow_loses_nothing() {
    let switches = std::env::var("PARTYWALL_SWITCHES").map_or(300, |text| text.parse().unwrap());
    for is_kept in [false, true] {
        let ground = Ground::new(Via::SharedMemory, is_kept);
        let server = ground.server(config());
        let far = server.listen_also("tcp:127.0.0.1:0").unwrap();
        let near = server.local_address().clone();
        let client = ground.client(config());
        let link = client.connect(&near, "bob", "orders").unwrap();
        let served = server.open("alice", "orders").unwrap();
        let (is_over, mut over) = (AtomicBool::new(false), [0_u64; 2]);
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0.. {
                    let request = served.recv_deadline(soon()).unwrap().unwrap();
                    assert_eq!(number(&request), n);
                    let copy = request.to_vec();
                    request.reply_deadline(&copy, soon()).unwrap();
                    if copy.len() == LAST_BYTES {
                        break;
                    }
                }
                served.wait_acked(soon()).unwrap();
            });
            scope.spawn(|| {
                for n in 0.. {
                    let is_last = is_over.load(Ordering::Relaxed);
                    let len = if is_last { LAST_BYTES } else { 8 + (n % 700) as usize };
                    // Rule: a send never fails because the link is switching to another address
                    // meanwhile.
                    link.send_deadline(&message(n, len), soon()).unwrap();
                    if is_last {
                        break;
                    }
                }
            });
            let switching = scope.spawn(|| {
                for n in 0..switches {
                    let (address, expected) = match n % 2 {
                        0 => (&far, Transport::Tcp),
                        _ => (&near, Transport::SharedMemory),
                    };
                    link.switch_to(address.clone()).unwrap();
                    until("a switch", || transport(&link) == Some(expected));
                }
                is_over.store(true, Ordering::Relaxed);
            });
            for n in 0.. {
                let reply = link.recv_deadline(soon()).unwrap().unwrap();
                assert_eq!(number(&reply), n);
                over[usize::from(transport(&link) == Some(Transport::SharedMemory))] += 1;
                let len = reply.len();
                reply.ack().unwrap();
                if len == LAST_BYTES {
                    break;
                }
            }
            switching.join().unwrap();
            link.wait_acked(soon()).unwrap();
        });
        assert!(link.stats().connections > switches, "{:?}", link.stats());
        assert!(over.iter().all(|count| *count > 0), "{over:?}");
    }
}

#[test]
fn switch_to_an_address_without_a_server_keeps_the_connection() {
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::new().unwrap();
    let server = ground.server(config().group(&group));
    let client = ground.client(config().group(&group));
    let near = server.local_address().clone();
    let link = client.connect(&near, "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    link.wait_attached(soon()).unwrap();
    let nobody = format!("unix:{}/nobody.sock", ground.path("client").display());
    link.switch_to(nobody.as_str()).unwrap();
    for n in 0..100 {
        link.send(&message(n, 8)).unwrap();
        take(&served, n);
        assert_eq!(transport(&link), Some(Transport::SharedMemory));
    }
    until("what came of it", || {
        let _ = link.try_recv();
        group.try_poll().unwrap();
        matches!(link.try_event(), Some(Event::Refused { reason }) if reason.contains("nobody"))
    });
    // A server of another name binds the unused address, and is then dropped. After that the link
    // can still switch back to its server's address.
    let late = Server::bind(nobody.as_str(), Storage::Memory, "carol", config());
    drop(late.unwrap());
    link.switch_to(near).unwrap();
    until("the way back", || {
        let _ = link.try_recv();
        link.stats().connections >= 2
    });
    assert!(matches!(served.switch_to("tcp:127.0.0.1:1"), Err(SwitchError::Served)));
    assert!(matches!(link.switch_to("nowhere"), Err(SwitchError::Address(_))));
}

/// Length in bytes of the last message. All other messages are shorter, so the receiver recognizes
/// the last one by its length.
const LAST_BYTES: usize = 777;

/// Rule: a sender whose ring is full learns of free room by a record that carries an
/// acknowledgement, although the peer sends no notification for the room. The test fills the ring,
/// and the server replies to the first message.
#[test]
fn poller_that_waits_for_room_learns_of_it_by_a_record() {
    let ground = Ground::new(Via::SharedMemory, true);
    let group = Group::with_wait(Wait::Park).unwrap();
    let server = ground.server(config().wait(Wait::Park));
    let client = ground.client(config().wait(Wait::Park).group(&group));
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| served.wait_attached(soon()).unwrap());
        link.wait_attached(soon()).unwrap();
    });
    // The test takes the events of attaching first, until the group reports no further event.
    while group.poll(Some(Instant::now() + Duration::from_millis(50))).unwrap() > 0 {
        let _ = group.ready();
    }
    while link.try_send(&message(0, 1_000)).is_ok() {}
    let request = served.recv_deadline(soon()).unwrap().unwrap();
    request.reply(b"with an acknowledgement").unwrap();
    assert_eq!(link.try_recv().unwrap().unwrap(), b"with an acknowledgement");
    assert!(group.poll(Some(soon())).unwrap() > 0, "room was not reported");
    assert_eq!(group.ready(), [link.id()]);
}

/// Rule: if one end has the policy SharedMemory, the link does not switch to a TCP address, which
/// cannot have shared memory.
#[test]
fn shared_memory_policy_keeps_the_connection_on_switch() {
    for insists in 0..2 {
        let ground = Ground::new(Via::SharedMemory, true);
        let group = Group::new().unwrap();
        let config = config().group(&group);
        let policies = [TransportPolicy::SharedMemory, TransportPolicy::Auto];
        let server = ground.server(config.clone().transport(policies[insists]));
        let far = server.listen_also("tcp:127.0.0.1:0").unwrap();
        let client = ground.client(config.transport(policies[1 - insists]));
        let link = client.connect(server.local_address(), "bob", "orders").unwrap();
        let served = server.open("alice", "orders").unwrap();
        link.wait_attached(soon()).unwrap();
        link.switch_to(far).unwrap();
        let mut n = 0;
        until("a refusal", || {
            link.send(&message(n, 8)).unwrap();
            take(&served, n);
            n += 1;
            group.try_poll().unwrap();
            assert_eq!(transport(&link), Some(Transport::SharedMemory));
            matches!(link.try_event(), Some(Event::Refused { reason }) if reason.contains("Config::transport"))
        });
        assert_eq!(link.stats().connections, 1);
    }
}
