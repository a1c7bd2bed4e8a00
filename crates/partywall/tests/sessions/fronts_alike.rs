// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the two interfaces to sessions, `partywall::blocking` and `partywall::tokio`, have
//! the same names. A call that never waits in one of them never waits in the other.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use ::tokio::io::AsyncReadExt as _;
use partywall::{
    AcceptError, DROPPED, OpenError, REFUSED, ReplyError, SessionError, StreamRecvError,
    StreamSendError, WaitError, blocking, tokio,
};
use partywall_testkit::{Kind, run_alone, session_pair, until_async};
use partywall_testkit::{TIMEOUT, soon};
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

fn blocking_pair(kind: Kind) -> (blocking::Session, blocking::Session) {
    let config = kind.config().streams_max(1);
    let mut listener = blocking::Listener::bind_with(kind.address(), &config).unwrap();
    let address = listener.local_address().to_string();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| blocking::connect_with(&address, &config).unwrap());
        let accepted = listener.accept_deadline(soon()).unwrap();
        (connecting.join().unwrap(), accepted)
    })
}

#[test]
fn what_never_waits_says_so_on_tokio() {
    for kind in Kind::ALL {
        run_alone("try", TIMEOUT, async move {
            let (client, server) = session_pair(kind, |config| config.streams_max(1)).await;
            assert!(matches!(server.try_accept(), Err(WaitError::WouldBlock)));
            let mut stream = client.try_open(b"first").unwrap();
            // The peer allows one stream at a time, so no second one can be opened.
            let another = client.try_open(b"second");
            assert!(matches!(another, Err(OpenError::WouldBlock)));
            let mut accepted = None;
            until_async("the other front agrees", || {
                accepted = server.try_accept().ok().flatten();
                accepted.is_some()
            })
            .await;
            let mut there = accepted.unwrap();
            assert_eq!(there.metadata(), b"first");
            assert!(matches!(there.try_recv(), Err(StreamRecvError::Empty)));
            stream.sender().send(b"one").await.unwrap();
            assert_eq!(there.receiver().recv().await.unwrap().unwrap(), b"one");
            assert_eq!(there.receiver().received(), 1);
            // A failed attempt to open a stream keeps no stream number, so a third stream can be
            // opened.
            drop((stream, there));
            until_async("the other front agrees", || client.try_open(b"third").is_ok()).await;
            client.close(9, "the test is done");
            client.finished().await;
            let ended = client.try_open(b"");
            let Err(OpenError::Session(SessionError::ClosedHere { code, reason })) = ended else {
                panic!("{ended:?}")
            };
            assert_eq!((code, &*reason), (9, "the test is done"));
            assert!(matches!(client.try_accept(), Ok(None)));
        });
    }
}

#[test]
fn a_listener_on_tokio_may_be_asked_without_waiting() {
    run_alone("listener", TIMEOUT, async {
        let kind = Kind::SharedMemory;
        let listener = tokio::Listener::bind_with(kind.address(), &kind.config()).unwrap();
        assert!(matches!(listener.try_accept(), Err(AcceptError::TimedOut)));
        let address = listener.local_address().to_string();
        let config = kind.config();
        let connecting =
            ::tokio::spawn(async move { tokio::connect_with(address, &config).await.unwrap() });
        let mut accepted = None;
        until_async("the other front agrees", || {
            accepted = listener.try_accept().ok();
            accepted.is_some()
        })
        .await;
        connecting.await.unwrap().ping().await.unwrap();
    });
}

/// Input: several tasks await `accept` of one listener. Expected: each gets exactly one session.
#[test]
fn a_listener_on_tokio_is_accepted_from_by_several_tasks_at_once() {
    const TASKS: usize = 4;
    run_alone("tasks", TIMEOUT, async {
        let kind = Kind::Unix;
        let listener = tokio::Listener::bind_with(kind.address(), &kind.config()).unwrap();
        let (listener, config) = (Arc::new(listener), kind.config());
        let mut accepting = ::tokio::task::JoinSet::new();
        for _ in 0..TASKS {
            let listener = Arc::clone(&listener);
            accepting.spawn(async move { listener.accept().await.unwrap() });
        }
        // All tasks begin to wait before the first session is connected.
        ::tokio::task::yield_now().await;
        let mut connected = Vec::new();
        for _ in 0..TASKS {
            let address = listener.local_address().to_string();
            connected.push(tokio::connect_with(address, &config).await.unwrap());
        }
        let mut accepted = Vec::new();
        while let Some(session) = accepting.join_next().await {
            accepted.push(session.unwrap());
        }
        assert_eq!(accepted.len(), TASKS);
        for session in &connected {
            session.ping().await.unwrap();
        }
    });
}

#[test]
fn a_blocking_stream_has_the_deadlines_of_its_halves() {
    for kind in Kind::ALL {
        let (client, server) = blocking_pair(kind);
        let mut stream = client.open(b"meta").unwrap();
        let mut there = server.accept_deadline(soon()).unwrap().unwrap();
        assert_eq!(stream.transport(), client.transport());
        stream.send_deadline(b"one", soon()).unwrap();
        let mut reserved = stream.reserve_deadline(3, soon()).unwrap();
        reserved.copy_from_slice(b"two");
        reserved.commit_deadline(soon()).unwrap();
        assert_eq!(there.recv_deadline(soon()).unwrap().unwrap(), b"one");
        assert_eq!(there.recv_deadline(soon()).unwrap().unwrap(), b"two");
        assert!(matches!(there.try_recv(), Err(StreamRecvError::Empty)));
        assert_eq!(there.receiver().received(), 2);
        // The message is longer than the window and stays unread, so the second one waits for
        // credit.
        let long = vec![1; 300_000];
        stream.send_deadline(&long, soon()).unwrap();
        let late = stream.send_deadline(&long, Instant::now());
        let is_late = matches!(&late, Err(StreamSendError::TimedOut));
        assert!(is_late, "{kind:?}: {late:?}");
        assert_eq!(there.recv_deadline(soon()).unwrap().unwrap(), long[..]);
        let (mut ours, mut theirs) = (stream.into_io(), there.into_io());
        assert_eq!((theirs.metadata(), ours.metadata()), (&b"meta"[..], &b""[..]));
        assert_eq!(ours.transport(), client.transport());
        assert_eq!(ours.peer().label, client.peer().label);
        ours.write_all(b"three").unwrap();
        let mut three = [0; 5];
        theirs.read_exact(&mut three).unwrap();
        assert_eq!(&three, b"three");
        theirs.reset(7);
        assert!(ours.read(&mut three).is_err());
    }
}

/// The reason for the end of a stream is more specific than the end of the session, which comes
/// later.
#[test]
fn end_of_a_stream_is_reported_after_the_end_of_its_session() {
    for kind in [Kind::SharedMemory, Kind::Unix] {
        let (client, server) = blocking_pair(kind);
        let (mut send, recv) = client.open(b"").unwrap().into_split();
        let (mut back, mut there) = server.accept_deadline(soon()).unwrap().unwrap().into_split();
        there.stop(7);
        back.finish();
        let stopped = send.stopped(Some(soon())).unwrap();
        assert!(matches!(stopped, StreamSendError::Stopped { code: 7 }), "{stopped:?}");
        server.close(3, "over");
        client.closed(Some(soon())).unwrap();
        for payload in [&b"short"[..], &[0; 5000]] {
            let late = send.send(payload);
            assert!(matches!(late, Err(StreamSendError::Stopped { code: 7 })), "{late:?}");
            let finished = back.send(payload);
            assert!(matches!(finished, Err(StreamSendError::ClosedHere)), "{finished:?}");
        }
        drop(recv);
    }
}

#[test]
fn streams_as_bytes_are_finished_and_stopped_by_the_same_names() {
    let (client, server) = blocking_pair(Kind::SharedMemory);
    let (mut stream, there) =
        (client.open(b"").unwrap().into_io(), server.accept_deadline(soon()).unwrap().unwrap());
    stream.finish();
    let (mut read, mut write) = there.into_io().into_split();
    assert_eq!(read.read(&mut [0; 8]).unwrap(), 0);
    assert!(matches!(write.stopped(Some(Instant::now())), Err(WaitError::TimedOut)));
    stream.reset(7);
    let stopped = write.stopped(Some(soon())).unwrap();
    assert!(matches!(stopped, StreamSendError::Stopped { code: 7 }), "{stopped:?}");

    run_alone("bytes", TIMEOUT, async {
        let (client, server) = session_pair(Kind::SharedMemory, |config| config).await;
        let mut stream = client.open(b"").await.unwrap().into_io();
        stream.finish();
        let (mut read, mut write) = server.accept().await.unwrap().unwrap().into_io().into_split();
        assert_eq!(read.read(&mut [0; 8]).await.unwrap(), 0);
        stream.reset(7);
        let stopped = write.stopped().await;
        assert!(matches!(stopped, StreamSendError::Stopped { code: 7 }), "{stopped:?}");
    });
}

#[test]
fn empty_message_is_neither_a_byte_nor_the_end_of_bytes() {
    let (client, server) = blocking_pair(Kind::SharedMemory);
    let mut stream = client.open(b"").unwrap();
    for message in [&b""[..], b"on", b"", b"", b"e", b""] {
        stream.send(message).unwrap();
    }
    let mut there = server.accept_deadline(soon()).unwrap().unwrap().into_io();
    stream.finish();
    let mut bytes = Vec::new();
    there.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"one");

    run_alone("empty messages", TIMEOUT, async {
        let (client, server) = session_pair(Kind::SharedMemory, |config| config).await;
        let mut stream = client.open(b"").await.unwrap();
        for message in [&b""[..], b"on", b"", b"", b"e", b""] {
            stream.send(message).await.unwrap();
        }
        let mut there = server.accept().await.unwrap().unwrap().into_io();
        stream.finish();
        let mut bytes = Vec::new();
        there.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"one");
    });
}

#[test]
fn bytes_without_close_write_end_with_an_error_after_the_last_of_them() {
    for is_reset in [false, true] {
        let (client, server) = blocking_pair(Kind::SharedMemory);
        let mut stream = client.open(b"").unwrap();
        stream.send(b"half").unwrap();
        let mut there = server.accept_deadline(soon()).unwrap().unwrap().into_io();
        let mut bytes = [0; 4];
        there.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"half");
        if is_reset {
            stream.reset(7);
        } else {
            client.close(0, "");
        }
        let end = there.read(&mut bytes);
        assert!(end.is_err(), "reset: {is_reset}, {end:?}");
        drop(stream);
    }
}

/// The handler of the tests' server: writes the bytes of the request in reverse order as the
/// response.
fn reversed(request: &[u8], response: &mut [u8]) -> usize {
    for (byte, from) in response.iter_mut().zip(request.iter().rev()) {
        *byte = *from;
    }
    request.len()
}

const RESPONSE_BYTES_MAX: usize = 80_000;
const REQUESTS_BYTES: [usize; 5] = [0, 1, 500, 2_000, 70_000];

fn request_of(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

#[test]
fn reply_with_sends_the_response_and_reports_the_end_on_both_fronts() {
    for kind in Kind::ALL {
        let (client, server) = blocking_pair(kind);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = server.accept_deadline(soon()).unwrap().unwrap();
                let mut answered = 0;
                while stream.reply_with_deadline(RESPONSE_BYTES_MAX, reversed, soon()).unwrap() {
                    answered += 1;
                }
                assert_eq!(answered, REQUESTS_BYTES.len(), "{kind:?}");
            });
            let mut stream = client.open(b"").unwrap();
            for len in REQUESTS_BYTES {
                let mut expected = request_of(len);
                stream.send_deadline(&expected, soon()).unwrap();
                expected.reverse();
                assert_eq!(stream.recv_deadline(soon()).unwrap().unwrap(), expected[..]);
            }
            stream.finish();
        });

        run_alone("replies", TIMEOUT, async move {
            let (client, server) = session_pair(kind, |config| config).await;
            let serving = ::tokio::spawn(async move {
                let mut stream = server.accept().await.unwrap().unwrap();
                while stream.reply_with(RESPONSE_BYTES_MAX, reversed).await.unwrap() {}
            });
            let mut stream = client.open(b"").await.unwrap();
            for len in REQUESTS_BYTES {
                let mut expected = request_of(len);
                stream.send(&expected).await.unwrap();
                expected.reverse();
                assert_eq!(stream.recv().await.unwrap().unwrap(), expected[..]);
            }
            stream.finish();
            serving.await.unwrap();
        });
    }
}

#[test]
fn reply_with_says_which_direction_failed() {
    let (client, server) = blocking_pair(Kind::SharedMemory);
    let mut stream = client.open(b"").unwrap();
    let mut there = server.accept_deadline(soon()).unwrap().unwrap();
    let late = there.reply_with_deadline(10, reversed, Instant::now());
    assert!(matches!(late, Err(ReplyError::Recv(StreamRecvError::TimedOut))), "{late:?}");
    stream.send(b"question").unwrap();
    stream.receiver().stop(7);
    assert!(matches!(
        there.sender().stopped(Some(soon())).unwrap(),
        StreamSendError::Stopped { .. }
    ));
    let stopped = there.reply_with_deadline(10, reversed, soon());
    let is_stopped = matches!(stopped, Err(ReplyError::Send(StreamSendError::Stopped { code: 7 })));
    assert!(is_stopped, "{stopped:?}");
    drop((stream, there));
    // A response longer than its buffer is a mistake of the application, so the call panics.
    let mut stream = client.open(b"").unwrap();
    let mut there = server.accept_deadline(soon()).unwrap().unwrap();
    stream.send(b"question").unwrap();
    assert!(panics(|| drop(there.reply_with_deadline(3, |_, _| 4, soon()))));
}

/// Whether `give` panics, as a call must to which an application passes a reserved code.
fn panics(give: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(give)).is_err()
}

#[test]
fn no_front_gives_up_a_stream_with_a_code_of_the_protocol() {
    const FIRST: u32 = 0xffff_ff00;
    let (client, server) = blocking_pair(Kind::SharedMemory);
    let mut stream = client.open(b"").unwrap();
    let mut there = server.accept_deadline(soon()).unwrap().unwrap();
    assert!(panics(|| stream.reset(FIRST)));
    assert!(panics(|| stream.sender().reset(REFUSED)));
    assert!(panics(|| stream.receiver().stop(DROPPED)));
    // The calls that have panicked have sent nothing. The largest code that an application may use,
    // `FIRST - 1`, is sent.
    stream.send(b"goes on").unwrap();
    assert_eq!(there.recv().unwrap().unwrap(), b"goes on");
    stream.reset(FIRST - 1);
    let reset = there.recv();
    assert!(matches!(reset, Err(StreamRecvError::Reset { code: 0xffff_feff })), "{reset:?}");
    let mut bytes = there.into_io();
    assert!(panics(|| bytes.reset(u32::MAX)));

    run_alone("codes", TIMEOUT, async {
        let (client, server) = session_pair(Kind::SharedMemory, |config| config).await;
        let mut stream = client.open(b"").await.unwrap();
        let mut there = server.accept().await.unwrap().unwrap();
        assert!(panics(|| stream.reset(FIRST)));
        assert!(panics(|| stream.sender().reset(REFUSED)));
        assert!(panics(|| stream.receiver().stop(DROPPED)));
        stream.send(b"goes on").await.unwrap();
        assert_eq!(there.recv().await.unwrap().unwrap(), b"goes on");
        let (mut read, mut write) = stream.into_io().into_split();
        assert!(panics(|| read.stop(u32::MAX)) && panics(|| write.reset(u32::MAX)));
        write.reset(FIRST - 1);
        let reset = there.recv().await;
        assert!(matches!(reset, Err(StreamRecvError::Reset { code: 0xffff_feff })), "{reset:?}");
    });
}
