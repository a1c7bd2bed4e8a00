// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream that nobody reads, with a sender that never stops: the others go on, and what lies unread
//! stays within the window.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support_session;

use partywall::StreamSendError;
use std::time::Duration;
use support_session::{Kind, pair, run};

const WINDOW: u64 = 64 << 10;
/// What a message of 1 KiB costs: header and rest of a slot count.
const MESSAGE_COST: u64 = 1024 + 64;
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_stream_that_nobody_reads_holds_up_no_other() {
    for kind in Kind::ALL {
        run(kind.name(), LIMIT, async move {
            let (client, server) =
                pair(kind, |config| config.stream_window(WINDOW).ring_bytes(1 << 16)).await;
            let mut stuck = client.open(b"nobody reads").await.unwrap();
            let unread = server.accept().await.unwrap();
            let mut sent = 0u64;
            let mut used = client.open(b"used").await.unwrap();
            let mut other = server.accept().await.unwrap();
            for round in 0..500u32 {
                // As much as it can, in between.
                while sent <= 10 * WINDOW / 1024 {
                    match stuck.try_send(&[1; 1024]) {
                        Ok(()) => sent += 1,
                        Err(StreamSendError::Full) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                let payload = vec![round as u8; 20_000];
                used.send(&payload).await.unwrap();
                assert!(other.recv().await.unwrap() == payload);
                other.send(b"ok").await.unwrap();
                assert_eq!(used.recv().await.unwrap(), b"ok");
            }
            assert!(sent * 1024 <= WINDOW, "{sent} messages are unread");
            assert!((sent + 2) * MESSAGE_COST >= WINDOW, "only {sent} messages of its window");
            // Once it is read, all is there.
            let (mut unread, mut read) = (unread, 0);
            while read < sent {
                assert!(unread.recv().await.unwrap() == [1; 1024]);
                read += 1;
            }
            stuck.send(&[2; 1024]).await.unwrap();
            assert!(unread.recv().await.unwrap() == [2; 1024]);
        });
    }
}

/// What lies unread is bounded only if a number is not free before its stream was accepted.
#[test]
fn streams_ended_but_not_accepted_count_against_the_most_there_may_be() {
    run("not accepted", LIMIT, async {
        let (client, server) = pair(Kind::Wall, |config| config.streams_max(3)).await;
        for _ in 0..3 {
            let mut stream = client.open(b"").await.unwrap();
            stream.send(b"left behind").await.unwrap();
        }
        assert!(support_session::give_up_after(100, client.open(b"")).await.is_none());
        // The session ends, and what was sent before is accepted all the same.
        client.close();
        drop(client);
        server.closed().await;
        for _ in 0..3 {
            let mut stream = server.accept().await.unwrap();
            assert_eq!(stream.recv().await.unwrap(), b"left behind");
        }
        assert!(server.accept().await.is_err());
    });
}

/// What the kernel does not take at once is written by the driver, whoever else sends.
#[test]
fn the_tail_of_a_message_on_a_socket_is_not_forgotten() {
    for kind in [Kind::Unix, Kind::Tcp] {
        run(kind.name(), LIMIT, async move {
            let (client, server) = pair(kind, |config| config.stream_window(16 << 20)).await;
            let mut stream = client.open(b"").await.unwrap();
            for index in 0..8 {
                stream.try_send(&vec![index; 1 << 20]).unwrap_or(());
            }
            stream.close();
            let mut received = server.accept().await.unwrap();
            let mut count = 0;
            while let Ok(message) = received.recv().await {
                assert!(message.len() == 1 << 20 && message.iter().all(|byte| *byte == message[0]));
                count += 1;
            }
            assert!(count > 0);
        });
    }
}
