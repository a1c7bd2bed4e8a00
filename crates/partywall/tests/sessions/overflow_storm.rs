// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test in which a load exhausts shared memory a thousand times. Under `BackPressure::Overflow`,
//! messages are then copied through the ring. Order is kept, every byte is right, and after each
//! recovery the next message is zero-copy again.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::BackPressure;
use partywall_testkit::{Kind, run, session_pair};
use partywall_testkit::{is_pattern, pattern};
use std::time::Duration;

const STORMS: u64 = 1000;
const LEN: usize = 40_000;

#[test]
fn after_each_storm_messages_are_zero_copy_again() {
    run("storms", Duration::from_secs(120), async {
        let (client, server) = session_pair(Kind::SharedMemory, |config| {
            let config = config.back_pressure(BackPressure::Overflow).ring_bytes(1 << 16);
            config.memory_max(256 << 10).message_max(8 << 20).stream_window(4 << 20)
        })
        .await;
        let mut noise = client.open(b"noise").await.unwrap();
        let mut incoming = server.accept().await.unwrap().unwrap();
        let mut stream = client.open(b"storm").await.unwrap();
        let mut received = server.accept().await.unwrap().unwrap();
        let chatter = tokio::spawn(async move {
            let mut count = 0u64;
            while let Ok(Some(_)) = incoming.recv().await {
                count += 1;
            }
            count
        });
        let mut number = 0u64;
        let mut copies = 0u64;
        for storm in 0..STORMS {
            let mut held = Vec::new();
            let mut copied = false;
            // The receiver holds all messages until one arrives that was copied through the ring,
            // because shared memory was exhausted.
            while !copied {
                stream.send(&pattern(LEN, number)).await.unwrap();
                noise.send(&storm.to_le_bytes()).await.unwrap();
                let message = received.recv().await.unwrap().unwrap();
                assert!(message.len() == LEN && is_pattern(&message, number), "message {number}");
                copied = !message.is_zero_copy();
                number += 1;
                held.push(message);
            }
            copies += 1;
            held.clear();
            stream.send(&pattern(LEN, number)).await.unwrap();
            let message = received.recv().await.unwrap().unwrap();
            assert!(message.is_zero_copy(), "storm {storm} is not over");
            assert!(is_pattern(&message, number));
            number += 1;
        }
        assert!(client.stats().overflows >= copies);
        noise.finish();
        assert_eq!(chatter.await.unwrap(), number - STORMS);
    });
}
