// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futures of async links that are dropped at any await: no message is lost, no effect happens
//! twice, and no operation is half done.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support_ends;
use crate::support_link_async;

use partywall_link::tokio::{Link, Message};
use partywall_link::{Config, Event, Status, TrySendError};
use std::collections::HashSet;
use std::sync::mpsc;
use support_ends::{Ground, Via, message, number};
use support_link_async::{
    Ends, TIMEOUT, client, config, echo, ends, for_turns, on_runtimes, runtimes, server, turns,
    within,
};
use tokio::task::JoinSet;

/// The number of scheduler turns after which the test drops a future. The number varies with
/// `round`, the number of the attempt, so that futures are dropped at different awaits.
fn timeout(round: u64) -> usize {
    usize::try_from(round * 7 % 5).unwrap()
}

/// Receives a message by futures of `recv` that are dropped after a few scheduler turns and made
/// anew, until one of them returns a message.
async fn recv(link: &Link) -> Message {
    let mut round = 0;
    loop {
        round += 1;
        if let Some(received) = for_turns(timeout(round), link.recv()).await {
            return received.unwrap().unwrap();
        }
    }
}

#[test]
fn recv_future_that_is_dropped_took_nothing() {
    on_runtimes(|| async {
        for via in [Via::SharedMemory, Via::Unix, Via::Tcp] {
            let ground = Ground::new(via, false);
            let Ends { server: _server, client: _client, served, link } = ends(&ground, &config());
            let sends = tokio::spawn(async move {
                for n in 0..1000 {
                    link.send(&message(n, 100)).await.unwrap();
                    turns(timeout(n)).await;
                }
                link.wait_acked().await.unwrap();
            });
            for n in 0..1000 {
                let message = recv(&served).await;
                assert_eq!(number(&message), n);
                message.ack().unwrap();
            }
            sends.await.unwrap();
        }
    });
}

#[test]
fn send_future_that_is_dropped_sent_nothing() {
    on_runtimes(|| async {
        for via in [Via::SharedMemory, Via::Unix, Via::Tcp] {
            let ground = Ground::new(via, false);
            let config = config().ring_bytes(4096);
            let Ends { server: _server, client: _client, served, link } = ends(&ground, &config);
            let sends = tokio::spawn(async move {
                let (mut n, mut dropped) = (0, 0_u64);
                while n < 2000 {
                    // The sender sends a batch of two messages, which become visible together, when
                    // `n` is divisible by 3; otherwise it sends one message.
                    let sent = if n % 3 == 0 {
                        let mut batch = link.batch();
                        batch.send(&message(n, 100)).send(&message(n + 1, 100));
                        let published = for_turns(timeout(dropped), batch.commit()).await;
                        published.map(|published| published.map(|()| 2))
                    } else {
                        let payload = message(n, 100);
                        let sent = for_turns(timeout(dropped), link.send(&payload)).await;
                        sent.map(|sent| sent.map(|()| 1))
                    };
                    match sent {
                        Some(count) => n += count.unwrap(),
                        None => dropped += 1,
                    }
                }
                while for_turns(2, link.wait_acked()).await.is_none() {}
                assert_eq!(link.unacked_bytes().unwrap(), 0);
                (n, dropped)
            });
            let mut next = 0;
            while next < 2000 {
                let message = served.recv().await.unwrap().unwrap();
                assert_eq!(number(&message), next);
                message.ack().unwrap();
                next += 1;
                turns(timeout(next)).await;
            }
            // The last send future of the client may have been dropped after its message was sent.
            // So the receiver may find one more message next, or the end of the client's stream.
            if let Some(Ok(Some(last))) = for_turns(50, served.recv()).await {
                last.ack().unwrap();
                next += 1;
            }
            let (sent, dropped) = sends.await.unwrap();
            assert!(sent == next && dropped > 0, "{sent} sent, {next} received, {dropped} dropped");
        }
    });
}

#[test]
fn reply_future_that_is_dropped_neither_sent_nor_acked() {
    on_runtimes(|| async {
        let ground = Ground::new(Via::SharedMemory, false);
        let config = config().ring_bytes(4096);
        let Ends { server: _server, client: _client, served, link } = ends(&ground, &config);
        let (sender, mut receiver) = link.split();
        let asks = tokio::spawn(async move {
            for n in 0..500 {
                sender.send(&message(n, 8)).await.unwrap();
            }
        });
        let replies = tokio::spawn(async move {
            let (mut n, mut dropped) = (0, 0);
            while n < 500 {
                let request = served.recv().await.unwrap().unwrap();
                assert_eq!(number(&request), n);
                match for_turns(timeout(dropped), request.reply(&message(n, 300))).await {
                    Some(done) => {
                        done.unwrap();
                        n += 1;
                    }
                    None => {
                        dropped += 1;
                        served.rewind().unwrap();
                    }
                }
            }
            served.wait_acked().await.unwrap();
            dropped
        });
        // The client sends requests, and the server's end replies to each. The client receives no
        // reply until the server's end has had time to fill its ring with replies.
        turns(2000).await;
        for n in 0..500 {
            let answer = receiver.recv().await.unwrap().unwrap();
            assert_eq!(number(&answer), n);
            answer.ack().unwrap();
            turns(timeout(n)).await;
        }
        asks.await.unwrap();
        assert!(replies.await.unwrap() > 0);
    });
}

#[test]
fn accept_future_that_is_dropped_took_no_link() {
    on_runtimes(|| async {
        let ground = Ground::new(Via::SharedMemory, false);
        let (server, client) = (server(&ground, config()), client(&ground, config()));
        let (mut links, mut names) = (Vec::new(), HashSet::new());
        let mut round = 0;
        while names.len() < 50 {
            if links.len() < 50 {
                let name = links.len().to_string();
                links.push(client.connect(server.local_address(), "bob", &name).unwrap());
            }
            round += 1;
            if let Some(link) = for_turns(timeout(round), server.accept()).await {
                assert!(names.insert(link.unwrap().key().link().to_owned()));
            }
        }
    });
}

#[test]
fn event_of_a_dropped_future_goes_to_the_next() {
    on_runtimes(|| async {
        let ground = Ground::new(Via::Tcp, false);
        let Ends { server: _server, client: _client, served, link } = ends(&ground, &config());
        let mut round = 0;
        for epoch in 1..20 {
            link.begin_epoch(epoch).unwrap();
            loop {
                round += 1;
                let event = for_turns(timeout(round), served.next_event()).await;
                match event.transpose().unwrap() {
                    Some(Event::Epoch { epoch: found }) if found == epoch => break,
                    _ => {}
                }
            }
            while for_turns(timeout(round), link.wait_attached()).await.is_none() {
                round += 1;
            }
        }
    });
}

#[test]
fn close_sends_everything() {
    on_runtimes(|| async {
        for ground in Ground::all() {
            let config = config().ring_bytes(64 << 10);
            let Ends { server, client: _client, served, link } = ends(&ground, &config);
            for n in 0..100 {
                link.send(&message(n, 100)).await.unwrap();
            }
            link.close().await.unwrap();
            for n in 0..100 {
                let message = served.recv().await.unwrap().unwrap();
                assert_eq!(number(&message), n);
                message.ack().unwrap();
            }
            while !served.next_event().await.unwrap().is_farewell() {}
            // `close` on a server's link gives up the link's handle, so the server can open the
            // same link again.
            served.close().await.unwrap();
            let again = server.open("alice", "orders").unwrap();
            assert!(!matches!(again.status(), Status::Closed));
        }
    });
}

#[test]
fn close_future_that_is_dropped_closes_at_once() {
    on_runtimes(|| async {
        let ground = Ground::new(Via::SharedMemory, true);
        let client = client(&ground, config());
        let link = client.connect(&*ground.address(), "bob", "orders").unwrap();
        let (sender, _receiver) = link.split();
        sender.send(b"kept").await.unwrap();
        // `close` cannot finish: it waits until the message is sent, and the client has no server
        // to attach to yet.
        assert!(for_turns(20, sender.link().close()).await.is_none());
        assert!(sender.send(b"too late").await.is_err());
        let server = server(&ground, config());
        let served = server.open("alice", "orders").unwrap();
        served.send(b"kept, too").await.unwrap();
        assert!(for_turns(20, served.close()).await.is_none());
        // After the dropped `close` futures, the server and the client can open the link again
        // immediately, with the messages that each keeps.
        let served = server.open("alice", "orders").unwrap();
        let link = client.connect(server.local_address(), "bob", "orders").unwrap();
        assert_eq!(served.recv().await.unwrap().unwrap(), b"kept");
        assert_eq!(link.recv().await.unwrap().unwrap(), b"kept, too");
    });
}

#[test]
fn slow_close_delays_no_other_link_and_leaves_no_thread() {
    let ([asleep, awake], large) = (runtimes(), Config::default());
    let (ground, elsewhere) =
        (Ground::new(Via::Unix, false), Ground::new(Via::SharedMemory, false));
    let stuck_server = {
        let _inside = asleep.enter();
        server(&ground, large.clone())
    };
    let (client, link) = {
        let _inside = awake.enter();
        let client = client(&ground, large);
        let link = client.connect(stuck_server.local_address(), "bob", "orders").unwrap();
        (client, link)
    };
    let _served = asleep.block_on(within(stuck_server.accept())).unwrap();
    // From this point on no thread receives for the server, because its runtime does not run. So
    // the socket from the client to the server fills up.
    awake.block_on(within(async {
        while !matches!(link.try_send(&[1; 8192]), Err(TrySendError::Full)) {}
        let closes = tokio::spawn(link.close());
        let server = server(&elsewhere, config());
        let mut tasks = JoinSet::new();
        for n in 0..4 {
            let link = client.connect(server.local_address(), "bob", &n.to_string()).unwrap();
            tasks.spawn(async move {
                for n in 0..100 {
                    link.send(&message(n, 8)).await.unwrap();
                    let answer = link.recv().await.unwrap().unwrap();
                    assert_eq!(number(&answer), n);
                    answer.ack().unwrap();
                }
            });
            let served = server.accept().await.unwrap();
            tasks.spawn(async move { echo(&served, 100).await });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert!(!closes.is_finished());
        closes.abort();
        assert!(closes.await.unwrap_err().is_cancelled());
    }));
    // A dropped `close` must leave no thread behind. If the blocking thread that it started were
    // still running, dropping the runtime would wait for that thread.
    let (ended, is_over) = mpsc::channel();
    std::thread::spawn(move || {
        drop((client, awake));
        ended.send(()).unwrap();
    });
    is_over.recv_timeout(TIMEOUT).unwrap();
}
