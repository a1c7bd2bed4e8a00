// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of pending credit, which a side has not yet returned to its peer: the next message of the
//! side carries it, whatever method sends that message. A side that waits sends its pending credit
//! in a record of its own (SPEC 11.4).
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::tokio::{Session, Stream};
use partywall::{BackPressure, Config};
use partywall_testkit::TIMEOUT;
use partywall_testkit::{Kind, run, session_pair};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

const WINDOW: u64 = 64 << 10;
/// Length of a message in bytes: eleven messages use up about one window. After `DUE` messages the
/// receiving side must return their credit, but may wait for its own next message to carry it.
const LEN: usize = 6000;
const DUE: usize = 6;
/// Number of messages that the peer sends after this side has received the first `DUE` messages.
/// Without the credit for those first messages, the peer could send only four.
const MORE: usize = 10;
/// Number of messages that a side may send before its peer has received any.
const WITHIN: usize = 10;

/// The method by which a test sends the message that carries pending credit; the tests try each.
#[derive(Clone, Copy, Debug)]
enum Way {
    Inline,
    Large,
    Reserved,
    Whole,
}

impl Way {
    const ALL: [Self; 4] = [Self::Inline, Self::Large, Self::Reserved, Self::Whole];

    async fn send(self, stream: &mut Stream) {
        match self {
            Self::Inline => stream.send(&[1; 100]).await.unwrap(),
            Self::Large => stream.send(&[1; 5000]).await.unwrap(),
            Self::Whole => stream.try_send(&[1; 5000]).unwrap(),
            Self::Reserved => {
                let mut memory = stream.reserve(5000).await.unwrap();
                memory.fill(1);
                memory.commit().await.unwrap();
            }
        }
    }
}

/// Uses up the shared memory of `client` by messages that the peer does not read. Returns their
/// streams.
async fn exhaust(client: &Session, server: &Session) -> Vec<(Stream, Stream)> {
    let mut hogs = Vec::new();
    while client.stats().overflows == 0 {
        let mut ours = client.open(b"").await.unwrap();
        for _ in 0..MORE {
            ours.send(&[0; LEN]).await.unwrap();
        }
        hogs.push((ours, server.accept().await.unwrap().unwrap()));
    }
    hogs
}

/// Sends one message by the method `way`, which must carry the pending credit: without it, the peer
/// could not send its next `MORE` messages.
async fn carry(way: Way, client: &Session, server: &Session) {
    let mut ours = client.open(b"").await.unwrap();
    let mut theirs = server.accept().await.unwrap().unwrap();
    for _ in 0..DUE {
        theirs.send(&[2; LEN]).await.unwrap();
    }
    for _ in 0..DUE {
        ours.recv().await.unwrap().unwrap();
    }
    way.send(&mut ours).await;
    theirs.recv().await.unwrap().unwrap();
    for _ in 0..MORE {
        theirs.send(&[3; LEN]).await.unwrap();
    }
}

#[test]
fn credit_goes_along_with_messages_of_every_kind() {
    run("credit along with messages", TIMEOUT, async {
        for kind in [Kind::SharedMemory, Kind::Untrusted, Kind::Moving, Kind::Unix] {
            let adapt = |config: Config| config.stream_window(WINDOW);
            let (client, server) = session_pair(kind, adapt).await;
            for way in Way::ALL {
                carry(way, &client, &server).await;
            }
        }
    });
}

#[test]
fn credit_goes_along_with_messages_in_pieces() {
    run("credit along with pieces", TIMEOUT, async {
        // Received messages of a trusted peer stay in the peer's memory. Those of an untrusted peer
        // are copied, so its memory could not be exhausted.
        let (client, server) = session_pair(Kind::SharedMemory, |config| {
            let config = config.stream_window(WINDOW).memory_max(256 << 10);
            config.back_pressure(BackPressure::Overflow)
        })
        .await;
        let hogs = exhaust(&client, &server).await;
        for way in Way::ALL {
            let before = client.stats().overflows;
            carry(way, &client, &server).await;
            let in_pieces = client.stats().overflows - before;
            assert_eq!(in_pieces, u64::from(!matches!(way, Way::Inline)), "{way:?}");
        }
        drop(hogs);
    });
}

/// Input: both ends of a stream send, receive some messages, and send again. Then each waits for
/// credit that the other has pending. Expected: an end that waits sends its pending credit.
#[test]
fn two_who_wait_to_send_do_not_wait_for_each_other() {
    run("both wait to send", TIMEOUT, async {
        for kind in [Kind::SharedMemory, Kind::Untrusted, Kind::Moving, Kind::Unix] {
            let (client, server) =
                session_pair(kind, |config| config.stream_window(256 << 10)).await;
            let ours = client.open(b"").await.unwrap();
            let theirs = server.accept().await.unwrap().unwrap();
            let sides = [ours, theirs].map(|mut stream| {
                tokio::spawn(async move {
                    for _ in 0..3 {
                        stream.send(&[0; 70_000]).await.unwrap();
                    }
                    for _ in 0..10 {
                        for _ in 0..2 {
                            stream.recv().await.unwrap().unwrap();
                        }
                        for _ in 0..2 {
                            stream.send(&[0; 70_000]).await.unwrap();
                        }
                    }
                    stream
                })
            });
            let mut streams = Vec::new();
            for side in sides {
                streams.push(side.await.unwrap());
            }
        }
    });
}

/// Input: a split stream, whose sender waits for credit, and whose receiver takes just so many
/// messages that their credit must be returned. Expected: the credit is sent although no message
/// carries it. Otherwise the peer could not send its next messages, which the application behind
/// the waiting sender may need.
#[test]
fn credit_that_falls_due_while_the_sender_waits_is_sent() {
    run("credit while the sender waits", TIMEOUT, async {
        for kind in [Kind::SharedMemory, Kind::Untrusted, Kind::Moving, Kind::Unix] {
            let (client, server) = session_pair(kind, |config| config.stream_window(WINDOW)).await;
            let ours = client.open(b"").await.unwrap();
            let mut theirs = server.accept().await.unwrap().unwrap();
            let (mut sender, mut receiver) = ours.into_split();
            for _ in 0..DUE {
                theirs.send(&[2; LEN]).await.unwrap();
            }
            for _ in 0..WITHIN {
                sender.send(&[1; LEN]).await.unwrap();
            }
            let mut waiting = pin!(sender.send(&[1; LEN]));
            let is_pending =
                poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending()));
            assert!(is_pending.await, "{kind:?}: there is credit for a whole window alone");
            for _ in 0..DUE {
                receiver.recv().await.unwrap().unwrap();
            }
            for _ in 0..MORE {
                theirs.send(&[3; LEN]).await.unwrap();
            }
            theirs.recv().await.unwrap().unwrap();
        }
    });
}
