// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regression tests: each test is named after the symptom of a bug that sessions once had.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::{Closed, SessionError, StreamSendError, Wait};
use partywall_testkit::TIMEOUT;
use partywall_testkit::{Kind, give_up_after, run, session_pair, until_async};
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const KINDS: [Kind; 4] = [Kind::SharedMemory, Kind::Untrusted, Kind::Moving, Kind::Unix];

#[test]
fn one_who_never_sleeps_finds_room_and_a_dead_peer() {
    run("spin", TIMEOUT, async {
        for kind in KINDS {
            let (client, server) = session_pair(kind, |config| config.wait(Wait::Spin)).await;
            let mut stream = client.open(b"").await.unwrap();
            let reading = tokio::spawn(async move {
                let mut stream = server.accept().await.unwrap().unwrap();
                for _ in 0..20 {
                    assert_eq!(stream.recv().await.unwrap().unwrap(), [7; 600_000]);
                }
                (stream, server)
            });
            for _ in 0..20 {
                stream.send(&[7; 600_000]).await.unwrap();
            }
            let (theirs, server) = reading.await.unwrap();
            server.close(0, "");
            assert!(matches!(client.closed().await, SessionError::Closed(Closed::Finished)));
            drop(theirs);
        }
    });
}

#[test]
fn code_and_reason_of_closing_reach_the_peer() {
    run("closing says why", TIMEOUT, async {
        // The reason that a side gives for closing the session is cut at 255 bytes, before a
        // character that does not fit.
        let long = "é".repeat(200);
        let cases = [
            (42, "maintenance", "maintenance"),
            (0, "done", "done"),
            (7, "", ""),
            (9, &long, &long[..254]),
        ];
        for kind in KINDS {
            for (sent, reason, expected) in cases {
                let (client, server) = session_pair(kind, |config| config).await;
                let mut stream = client.open(b"").await.unwrap();
                stream.send(b"last").await.unwrap();
                let mut theirs = server.accept().await.unwrap().unwrap();
                client.close(sent, reason);
                assert_eq!(theirs.recv().await.unwrap().unwrap(), b"last");
                let end = server.closed().await;
                assert!(end.is_good_end());
                let SessionError::ClosedByPeer { code, reason } = end else {
                    panic!("{kind:?}: {end}")
                };
                assert_eq!((code, &*reason), (sent, expected), "{kind:?}");
                assert!(matches!(server.accept().await, Ok(None)), "{kind:?}");
            }
        }
    });
}

#[test]
fn call_that_has_sent_its_message_does_not_send_it_again() {
    run("completed", TIMEOUT, async {
        for (kind, len) in KINDS.iter().flat_map(|kind| [(*kind, 5), (*kind, 70_000)]) {
            let (client, server) = session_pair(kind, |config| config).await;
            let (mut stream, message) = (client.open(b"").await.unwrap(), vec![1; len]);
            assert!(completes_once(stream.send(&message)).await, "{kind:?}, {len}");
            let mut memory = stream.reserve(len).await.unwrap();
            memory.fill(2);
            assert!(completes_once(memory.commit()).await, "{kind:?}, {len}");
            assert!(completes_once(stream.reserve(len)).await, "{kind:?}, {len}");
            stream.finish();
            let mut theirs = server.accept().await.unwrap().unwrap();
            for byte in [1, 2] {
                assert_eq!(theirs.recv().await.unwrap().unwrap(), vec![byte; len]);
            }
            assert!(theirs.recv().await.unwrap().is_none(), "{kind:?}, {len}");
        }
    });
}

/// Waits until `future` has completed, and polls it once more. Returns whether that panics.
async fn completes_once<T: Debug, E: Debug>(future: impl Future<Output = Result<T, E>>) -> bool {
    let mut future = pin!(future);
    drop(future.as_mut().await.unwrap());
    poll_fn(|context| {
        let poll = AssertUnwindSafe(|| future.as_mut().poll(context).is_ready());
        Poll::Ready(catch_unwind(poll).is_err())
    })
    .await
}

#[test]
fn control_characters_of_a_reason_are_replaced() {
    run("reason", TIMEOUT, async {
        let (client, server) = session_pair(Kind::Unix, |config| config).await;
        client.close(1, "a\u{1b}[2Jb\n");
        let SessionError::ClosedByPeer { reason, .. } = server.closed().await else { panic!() };
        assert_eq!(&*reason, "a\u{fffd}[2Jb\u{fffd}");
    });
}

#[test]
fn more_pending_records_than_a_small_ring_holds_are_all_written() {
    run("pending records", TIMEOUT, async {
        for kind in KINDS {
            let small = |config: partywall::Config| config.ring_bytes(4096).inline_max(512);
            let (client, server) = session_pair(kind, small).await;
            let mut ours = Vec::new();
            for _ in 0..1000 {
                ours.push(client.open(b"").await.unwrap());
            }
            until_async("a thousand streams", || server.streams() == 1000).await;
            let mut theirs = Vec::new();
            for _ in 0..1000 {
                theirs.push(server.accept().await.unwrap().unwrap());
            }
            // Both ends of all streams are dropped without an `await`, so the drivers of the
            // sessions cannot write records between two drops.
            drop((ours, theirs));
            client.drained().await.unwrap();
            server.drained().await.unwrap();
        }
    });
}

#[test]
fn of_many_questions_at_once_each_is_answered() {
    run("pings", TIMEOUT, async {
        for kind in KINDS {
            let (client, server) = session_pair(kind, |config| config).await;
            let mut tasks = Vec::new();
            for _ in 0..64 {
                for session in [client.clone(), server.clone()] {
                    tasks.push(tokio::spawn(async move {
                        for _ in 0..20 {
                            session.ping().await.unwrap();
                        }
                    }));
                }
            }
            for task in tasks {
                task.await.unwrap();
            }
        }
    });
}

#[test]
fn those_who_gave_up_waiting_do_not_keep_others_from_being_woken() {
    run("abandoned", TIMEOUT, async {
        for kind in KINDS {
            let (client, server) = session_pair(kind, |config| config).await;
            let accepting = server.clone();
            let waiting = tokio::spawn(async move { accepting.accept().await.map(drop) });
            for _ in 0..1000 {
                let session = server.clone();
                let given_up =
                    tokio::spawn(async move { give_up_after(1, session.accept()).await });
                assert!(given_up.await.unwrap().is_none());
            }
            let _stream = client.open(b"").await.unwrap();
            waiting.await.unwrap().unwrap();
        }
    });
}

#[test]
fn bytes_are_written_where_messages_must_be_short() {
    run("short messages", TIMEOUT, async {
        for kind in KINDS {
            let (client, server) = session_pair(kind, |config| config.message_max(5000)).await;
            let mut writing = client.open(b"").await.unwrap().into_io();
            let reading = tokio::spawn(async move {
                let mut bytes = Vec::new();
                let mut stream = server.accept().await.unwrap().unwrap().into_io();
                stream.read_to_end(&mut bytes).await.unwrap();
                bytes
            });
            writing.write_all(&[3; 200_000]).await.unwrap();
            writing.shutdown().await.unwrap();
            assert!(reading.await.unwrap() == [3; 200_000]);
        }
    });
}

#[test]
fn stopped_ends_when_this_side_has_closed() {
    run("stopped", TIMEOUT, async {
        for kind in KINDS {
            let (client, _server) = session_pair(kind, |config| config).await;
            let (mut sending, _receiving) = client.open(b"").await.unwrap().into_split();
            sending.finish();
            assert!(matches!(sending.stopped().await, StreamSendError::ClosedHere));
        }
    });
}

#[test]
fn a_session_that_closes_with_a_full_ring_ends_in_good_order() {
    run("full ring", TIMEOUT, async {
        for kind in KINDS {
            let small = |config: partywall::Config| config.ring_bytes(4096).inline_max(512);
            let (client, server) = session_pair(kind, small).await;
            let mut tasks = Vec::new();
            for session in [client.clone(), server.clone()] {
                for _ in 0..20 {
                    let mut stream = session.open(b"").await.unwrap();
                    tasks.push(tokio::spawn(async move {
                        while stream.send(&[1; 500]).await.is_ok() {}
                    }));
                }
            }
            client.ping().await.unwrap();
            client.close(0, "");
            assert!(matches!(client.closed().await, SessionError::ClosedHere { .. }));
            let end = server.closed().await;
            assert!(matches!(end, SessionError::Closed(Closed::Finished)), "{kind:?}: {end}");
            for task in tasks {
                task.await.unwrap();
            }
        }
    });
}
