// SPDX-License-Identifier: MIT OR Apache-2.0
//! Async links: messages in both directions over each transport, many links of one group, and a
//! peer that dies and restarts.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support_ends;
use crate::support_link_async;

use partywall_link::tokio::{Client, Group, Link, Server};
use partywall_link::{
    Delivery, Event, RecvError, Status, Stopped, Storage, TryRecvError, TrySendError,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support_ends::{Ground, Via, message, number};
use support_link_async::{
    Ends, client, config, echo, ends, for_turns, on_runtimes, runtimes, server, turns, within,
};
use tokio::task::JoinSet;

#[test]
fn messages_go_both_ways_over_each_wire() {
    on_runtimes(|| async {
        for ground in Ground::all() {
            let Ends { server, client, served, link } = ends(&ground, &config());
            let task = tokio::spawn(async move {
                echo(&served, 500).await;
                // The server's end has sent the client's 500 messages back (`echo`). It then sends
                // messages that are no replies.
                for n in 0..500 {
                    served.send(&message(n, 100)).await.unwrap();
                }
                served.wait_acked().await.unwrap();
                drop(server);
            });
            for n in 0..500 {
                link.send(&message(n, 100)).await.unwrap();
                let answer = link.recv().await.unwrap().unwrap();
                assert_eq!(number(&answer), n);
                answer.ack().unwrap();
            }
            for n in 0..500 {
                let message = link.recv().await.unwrap().unwrap();
                assert_eq!((number(&message), message.attempt()), (n, 1));
                message.ack().unwrap();
            }
            task.await.unwrap();
            assert_eq!(link.stats().messages_received, 1000);
            drop(client);
        }
    });
}

#[test]
fn a_group_has_many_links_of_clients_and_servers() {
    const LINKS: usize = 60;
    on_runtimes(|| async {
        for via in [Via::SharedMemory, Via::Unix, Via::Tcp] {
            let (ground, group) = (Ground::new(via, false), Group::new().unwrap());
            let server =
                Server::bind_in(&group, ground.address(), Storage::Memory, "bob", config());
            let server = server.unwrap();
            let client = Client::new_in(&group, Storage::Memory, "alice", config());
            let client = client.unwrap();
            drop(group);
            let mut tasks = JoinSet::new();
            for n in 0..LINKS {
                let link = client.connect(server.local_address(), "bob", &n.to_string()).unwrap();
                tasks.spawn(async move {
                    for n in 0..20 {
                        link.send(&message(n, 8)).await.unwrap();
                        let back = link.recv().await.unwrap().unwrap();
                        assert_eq!(number(&back), n);
                        back.ack().unwrap();
                    }
                    link.close().await.unwrap();
                });
            }
            let mut names = HashSet::new();
            for _ in 0..LINKS {
                let link = server.accept().await.unwrap();
                assert!(names.insert(link.key().link().to_owned()));
                tasks.spawn(async move { echo(&link, 20).await });
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
            drop((client, server));
        }
    });
}

#[test]
fn links_beyond_one_turn_are_reported_at_once() {
    const LINKS: usize = 150;
    let ([asleep, awake], ground) = (runtimes(), Ground::new(Via::SharedMemory, false));
    let client = {
        let _inside = awake.enter();
        client(&ground, config())
    };
    let (server, links, mut tasks) = asleep.block_on(within(async {
        let server = server(&ground, config());
        let (mut links, mut tasks) = (Vec::new(), JoinSet::new());
        for n in 0..LINKS {
            links.push(client.connect(server.local_address(), "bob", &n.to_string()).unwrap());
            let end = server.accept().await.unwrap();
            // Each task on the server's runtime receives one message, and returns the handle of its
            // link. It does not acknowledge the message: an acknowledgement or a dropped handle
            // would wake the task that polls the server's group once more.
            tasks.spawn(async move { (end.recv().await.map(drop), end) });
        }
        for link in &links {
            link.wait_attached().await.unwrap();
        }
        // The test's task yields often enough that each task on the server's runtime begins to wait
        // for its message.
        turns(10).await;
        (server, links, tasks)
    }));
    // The server's runtime does not run while the client sends, so no task polls for the server's
    // links.
    for link in &links {
        link.try_send(b"hello").unwrap();
    }
    asleep.block_on(within(async {
        let mut kept = Vec::new();
        while let Some(done) = tasks.join_next().await {
            kept.push(done.unwrap());
        }
        assert!(kept.iter().all(|(received, _)| received.is_ok()));
    }));
    drop(server);
}

#[test]
fn link_resumes_with_a_peer_that_died_and_came_back() {
    on_runtimes(|| async {
        for via in [Via::SharedMemory, Via::Unix, Via::Tcp] {
            let ground = Ground::new(via, true);
            let Ends { server: first, client, served, link } = ends(&ground, &config());
            let (address, link) = (first.local_address().clone(), Arc::new(link));
            let (sending, flushing) = (Arc::clone(&link), Arc::clone(&link));
            let sends = tokio::spawn(async move {
                // The client sends more messages than the ring has room for, so that the sender
                // waits for room repeatedly.
                for n in 0..2_000 {
                    sending.send(&message(n, 100)).await.unwrap();
                }
                flushing.wait_acked().await.unwrap();
            });
            let receiving = Arc::clone(&link);
            let receives = tokio::spawn(async move {
                let back = loop {
                    // Each dropped server has ended its stream of messages, and `recv` returns
                    // `None` at each such end. The last server sends a message.
                    if let Some(back) = receiving.recv().await.unwrap() {
                        break back;
                    }
                };
                assert_eq!(back, b"over");
                back.ack().unwrap();
            });
            let (mut server, mut served) = (Some(first), Some(served));
            for n in 0..2_000 {
                let end = served.as_ref().unwrap();
                let message = end.recv().await.unwrap().unwrap();
                assert_eq!(number(&message), n);
                message.ack().unwrap();
                if n % 400 == 399 {
                    drop((served.take(), server.take()));
                    let place = ground.place("server");
                    let next = Server::bind(address.clone(), place, "bob", config()).unwrap();
                    served = Some(next.accept().await.unwrap());
                    server = Some(next);
                }
            }
            let end = served.unwrap();
            end.send(b"over").await.unwrap();
            end.wait_acked().await.unwrap();
            sends.await.unwrap();
            receives.await.unwrap();
            assert!(link.stats().connections >= 5);
            drop(client);
        }
    });
}

#[test]
fn wait_acked_ends_only_when_all_is_acked() {
    on_runtimes(|| async {
        for via in [Via::SharedMemory, Via::Unix, Via::Tcp] {
            let ground = Ground::new(via, false);
            let Ends { server: _server, client: _client, served, link } = ends(&ground, &config());
            for n in 0..3 {
                link.send(&message(n, 8)).await.unwrap();
            }
            let is_consumed = Arc::new(AtomicBool::new(false));
            let consumed = Arc::clone(&is_consumed);
            let consumes = tokio::spawn(async move {
                served.recv().await.unwrap().unwrap().ack().unwrap();
                served.recv().await.unwrap().unwrap().ack().unwrap();
                let last = served.recv().await.unwrap().unwrap();
                turns(100).await;
                consumed.store(true, Ordering::SeqCst);
                last.ack().unwrap();
                served
            });
            link.wait_acked().await.unwrap();
            assert!(is_consumed.load(Ordering::SeqCst));
            assert_eq!(link.unacked_bytes().unwrap(), 0);
            drop(consumes.await.unwrap());
        }
    });
}

#[test]
fn many_tasks_send_and_receive_over_one_link() {
    const TASKS: u64 = 8;
    on_runtimes(|| async {
        let ground = Ground::new(Via::SharedMemory, false);
        // The link delivers at most once, so each message is acknowledged as it is received.
        // Otherwise the acknowledgement by one task would cover messages that other tasks received.
        let config = config().delivery(Delivery::AtMostOnce);
        let Ends { server: _server, client: _client, served, link } = ends(&ground, &config);
        let (sender, _receiver) = link.split();
        let served = Arc::new(served);
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let sender = sender.clone();
            tasks.spawn(async move {
                for n in 0..300 {
                    sender.send(&message(task * 300 + n, 100)).await.unwrap();
                }
                sender.wait_acked().await.unwrap();
                HashSet::new()
            });
            let served = Arc::clone(&served);
            tasks.spawn(async move {
                let mut mine = HashSet::new();
                for _ in 0..300 {
                    mine.insert(number(&served.recv().await.unwrap().unwrap()));
                }
                mine
            });
        }
        let mut all = HashSet::new();
        while let Some(done) = tasks.join_next().await {
            all.extend(done.unwrap());
        }
        assert_eq!(all.len() as u64, TASKS * 300);
    });
}

#[test]
fn message_without_ack_is_received_again() {
    on_runtimes(|| async {
        let ground = Ground::new(Via::SharedMemory, true);
        let config = config().attempts_max(2);
        let Ends { server, client: _client, served, link } = ends(&ground, &config);
        let mut batch = link.batch();
        batch.send(b"one").send(b"two").send(b"three");
        batch.commit().await.unwrap();
        assert_eq!(served.recv().await.unwrap().unwrap(), b"one");
        served.rewind().unwrap();
        let one = served.recv().await.unwrap().unwrap();
        let two = served.recv().await.unwrap().unwrap();
        assert_eq!((&one[..], &two[..]), (&b"one"[..], &b"two"[..]));
        assert!(two.token().covers(&one.token()) && !two.is_poison());
        served.ack_to(one.token()).unwrap();
        assert!(one.ack().is_err(), "it is consumed already");
        let address = server.local_address().clone();
        drop((two, served, server));
        for attempt in 2..=3 {
            let place = ground.place("server");
            let server = Server::bind(address.clone(), place, "bob", config.clone()).unwrap();
            let served = server.accept().await.unwrap();
            let two = served.recv().await.unwrap().unwrap();
            assert_eq!((&two[..], two.attempt()), (&b"two"[..], attempt));
            assert_eq!(two.is_poison(), attempt > 2);
        }
    });
}

#[test]
fn events_report_connections() {
    on_runtimes(|| async {
        let ground = Ground::new(Via::SharedMemory, false);
        let client = client(&ground, config());
        let address = ground.address();
        let link = Arc::new(client.connect(&*address, "bob", "orders").unwrap());
        let waiting = Arc::clone(&link);
        let waits = tokio::spawn(async move { waiting.wait_attached().await });
        assert!(matches!(link.next_event().await.unwrap(), Event::Refused { .. }));
        for _ in 0..3 {
            let server = server(&ground, config());
            // The client's connection attempts before the server existed have failed, some for
            // another reason than a refusal; the test skips their events.
            while !matches!(link.next_event().await.unwrap(), Event::Attached { .. }) {}
            let served = server.accept().await.unwrap();
            served.wait_attached().await.unwrap();
            assert!(matches!(served.status(), Status::Attached { .. }));
            drop(server);
            let stopped = served.recv().await.unwrap_err();
            assert!(matches!(stopped, RecvError::Stopped(Stopped::Closed)), "{stopped}");
            while !matches!(link.next_event().await.unwrap(), Event::Detached { .. }) {}
            // The client's connection attempts are refused until a server is at the address again.
            assert!(matches!(link.next_event().await.unwrap(), Event::Refused { .. }));
        }
        waits.await.unwrap().unwrap();
    });
}

/// Rule: as in the blocking interface, `recv` returns `None` once, after all messages, when the
/// peer has closed its end of the link. The client sends one message and closes its end.
#[test]
fn recv_after_the_peer_closed_its_end_is_none_once() {
    on_runtimes(|| async {
        for ground in Ground::all() {
            let Ends { server: _server, client: _client, served, link } = ends(&ground, &config());
            link.send(b"the last").await.unwrap();
            let closes = tokio::spawn(link.close());
            let received = served.recv().await.unwrap().expect("more was sent");
            assert_eq!(received, b"the last");
            received.ack().unwrap();
            let end = served.recv_with(|_| panic!("nothing was sent")).await.unwrap();
            assert!(end.is_none(), "the peer has finished");
            closes.await.unwrap().unwrap();
            assert!(matches!(served.try_recv(), Err(TryRecvError::Empty)), "it is received once");
            assert!(for_turns(20, served.recv()).await.is_none());
        }
    });
}

#[test]
fn server_that_is_dropped_wakes_all_that_wait_for_its_links() {
    on_runtimes(|| async {
        let ground = Ground::new(Via::SharedMemory, false);
        let Ends { server, client: _client, served, link } = ends(&ground, &config());
        link.wait_attached().await.unwrap();
        served.send(b"nobody consumes it").await.unwrap();
        let served = Arc::new(served);
        let mut tasks = JoinSet::new();
        let end = Arc::clone(&served);
        tasks.spawn(async move { matches!(end.recv().await, Err(RecvError::Stopped(_))) });
        let end = Arc::clone(&served);
        tasks.spawn(async move { end.wait_acked().await.is_err() });
        let end = Arc::clone(&served);
        tasks.spawn(async move {
            while end.next_event().await.is_ok() {}
            true
        });
        turns(50).await;
        drop(server);
        while let Some(done) = tasks.join_next().await {
            assert!(done.unwrap());
        }
    });
}

#[test]
fn a_link_that_only_a_message_remembers_is_offered_again() {
    on_runtimes(|| async {
        let ground = Ground::new(Via::SharedMemory, false);
        let (server, client) = (server(&ground, config()), client(&ground, config()));
        let link = client.connect(server.local_address(), "bob", "orders").unwrap();
        let mut kept = Vec::new();
        for epoch in 1..20 {
            // Beginning an epoch ends the present connection, so that the client makes another
            // connection.
            link.begin_epoch(epoch).unwrap();
            link.send(b"hello").await.unwrap();
            let served = server.accept().await.unwrap();
            kept.push(served.recv().await.unwrap().unwrap());
        }
        for message in kept.drain(..18) {
            assert!(message.ack().is_err(), "its epoch is over");
        }
        kept.remove(0).ack().unwrap();
    });
}

#[test]
fn the_try_forms_never_wait() {
    on_runtimes(|| async {
        let ground = Ground::new(Via::Tcp, false);
        let Ends { server, client: _client, served, link } = ends(&ground, &config());
        assert!(matches!(served.try_recv(), Err(TryRecvError::Empty)));
        let mut sent = 0;
        let full = loop {
            match link.try_send(&message(sent, 100)) {
                Ok(()) => sent += 1,
                Err(full) => break full,
            }
        };
        assert!(matches!(full, TrySendError::Full) && sent > 50);
        let mut batch = link.batch();
        batch.send(&[7; 2000]);
        assert!(matches!(batch.try_commit(), Err(TrySendError::Full)) && batch.len() == 1);
        for n in 0..sent {
            let message = served.recv().await.unwrap().unwrap();
            assert_eq!(number(&message), n);
            message.ack().unwrap();
        }
        batch.commit().await.unwrap();
        assert_eq!(served.recv().await.unwrap().unwrap(), [7; 2000]);
        assert!(server.try_accept().is_err(), "it is in use");
    });
}

#[test]
fn runtime_that_ends_wakes_futures_of_other_runtimes() {
    let [elsewhere, runtime] = runtimes();
    let ground = Ground::new(Via::SharedMemory, false);
    let (link, waits) = {
        let _inside = runtime.enter();
        let link = Arc::new(ends(&ground, &config()).link);
        let waiting = Arc::clone(&link);
        (link, elsewhere.spawn(async move { waiting.recv().await.map(drop) }))
    };
    elsewhere.block_on(async { assert!(for_turns(20, link.recv()).await.is_none()) });
    drop(runtime);
    let fault = elsewhere.block_on(within(waits)).unwrap().unwrap_err();
    assert!(matches!(fault, RecvError::Stopped(Stopped::System(_))), "{fault}");
}

#[test]
fn the_task_of_a_group_ends_with_its_last_handle() {
    for runtime in runtimes() {
        let tasks = || runtime.metrics().num_alive_tasks();
        let ground = Ground::new(Via::SharedMemory, false);
        runtime.block_on(within(async {
            let Ends { server, client, served, link } = ends(&ground, &config());
            assert_eq!(tasks(), 2);
            link.wait_attached().await.unwrap();
            let (sender, receiver) = link.split();
            drop((client, receiver, server));
            turns(20).await;
            assert_eq!(tasks(), 2, "a link of each is there");
            drop((sender, served));
            while tasks() > 0 {
                tokio::task::yield_now().await;
            }
        }));
    }
}

fn _shared_by_tasks(link: Link) -> impl Send + Sync + 'static {
    link
}
