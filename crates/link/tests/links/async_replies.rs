// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reply of an async link waits for room in the ring only while its request is unacknowledged.
//! When another task acknowledges the request, the waiting reply fails.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support_ends;
use crate::support_link_async;

use partywall_link::{AckError, ReplyError};
use support_ends::{Ground, Via};
use support_link_async::{Ends, config, ends, on_runtimes, turns, within};

#[test]
fn reply_that_waits_for_room_ends_when_its_message_is_acked() {
    on_runtimes(|| async {
        for via in [Via::SharedMemory, Via::Unix, Via::Tcp] {
            let ground = Ground::new(via, false);
            let Ends { server: _server, client: _client, served, link } =
                ends(&ground, &config().ring_bytes(4096));
            for round in 0..3 {
                link.send(b"question").await.unwrap();
                link.send(b"another").await.unwrap();
                link.send(b"a third").await.unwrap();
                let first = served.recv().await.unwrap().unwrap();
                let second = served.recv().await.unwrap().unwrap();
                let third = served.recv().await.unwrap().unwrap();
                while served.try_send(&[7; 500]).is_ok() {}
                let reply = tokio::spawn(async move { first.reply(&[8; 500]).await });
                // The test's task yields 50 times, so that the replying task begins to wait for
                // room: certainly on a runtime of one thread, probably on one of several.
                turns(50).await;
                match round {
                    0 => {
                        second.ack().unwrap();
                        third.ack().unwrap();
                    }
                    1 => served.ack_to(third.token()).unwrap(),
                    _ => served.rewind().unwrap(),
                }
                let ended = within(reply).await.unwrap();
                let is_notified = match &ended {
                    Err(ReplyError::Ack(AckError::Consumed)) => round < 2,
                    Err(ReplyError::Ack(AckError::Stale)) => round == 2,
                    _ => false,
                };
                assert!(is_notified, "{via:?}, {round}: {ended:?}");
            }
        }
    });
}
