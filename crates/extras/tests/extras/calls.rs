// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of calls over one stream: they are answered in any order and cancelled in time, and each
//! has a result.
#![cfg(feature = "calls")]

use partywall::tokio::{Listener, Session, Stream, connect_with};
use partywall::{Begin, Config, StreamRecvError, TransportPolicy, TrustPolicy};
use partywall_extras::calls::{
    CallError, CallViolation, CallsConfig, Client, Failure, Lost, Request, ServeError, Server,
    VIOLATION,
};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

const TIMEOUT: Duration = Duration::from_secs(60);

struct Pair {
    client: Session,
    server: Session,
    here: Stream,
    there: Stream,
    _directory: tempfile::TempDir,
}

async fn pair_with(config: &Config) -> Pair {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/c.sock", directory.path().display());
    let listener = Listener::bind_with(&address, config).unwrap();
    let (client, server) = tokio::join!(connect_with(&address, config), listener.accept());
    let (client, server) = (client.unwrap(), server.unwrap());
    let here = client.open(b"calls").await.unwrap();
    let there = server.accept().await.unwrap().unwrap();
    Pair { client, server, here, there, _directory: directory }
}

async fn pair() -> Pair {
    pair_with(&Config::default().begin(Begin::SharedMemory)).await
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(TIMEOUT, future).await.expect("in time")
}

/// A guard that a handler holds: if the handler is dropped before it ends, the guard sends an
/// event, which the test awaits.
struct Dropped(Option<mpsc::UnboundedSender<&'static str>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(events) = self.0.take() {
            let _ = events.send("dropped");
        }
    }
}

/// Starts a server whose handlers never answer. Each handler sends an event when it begins and when
/// it is dropped, so that a test sees when calls are cancelled.
fn serve_for_ever(
    stream: Stream,
    config: CallsConfig,
) -> (JoinHandle<Result<(), ServeError>>, mpsc::UnboundedReceiver<&'static str>) {
    let (sender, events) = mpsc::unbounded_channel();
    let serving = Server::with(stream, config).serve(move |request: Request| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(if request.is_one_way() { "one way" } else { "began" });
            let _dropped = Dropped(Some(sender));
            pending::<Result<Vec<u8>, Failure>>().await
        }
    });
    (tokio::spawn(serving), events)
}

#[tokio::test]
async fn calls_of_every_size_are_answered() {
    for (name, config) in [
        ("shm", Config::default().transport(TransportPolicy::SharedMemory)),
        ("default", Config::default()),
        ("untrusted", Config::default().trust(TrustPolicy::Untrusted)),
        ("socket", Config::default().transport(TransportPolicy::Socket)),
    ] {
        let pair = pair_with(&config).await;
        let serving = tokio::spawn(Server::new(pair.there).serve(|request: Request| async move {
            Ok(request.iter().map(|byte| byte.wrapping_add(1)).collect::<Vec<u8>>())
        }));
        let client = Client::with(pair.here, CallsConfig::default().in_flight_max(20));
        let mut tasks = Vec::new();
        for index in 0..100_usize {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                let len = [0, 1, 100, 496, 497, 5000, 100_000][index % 7];
                let payload = vec![index as u8; len];
                let answer = client.call(&payload).await.unwrap();
                assert_eq!(answer, vec![index as u8 + 1; len]);
                (len, answer.is_zero_copy())
            }));
        }
        for task in tasks {
            let (len, is_view) = soon(task).await.unwrap();
            if len >= 5000 && name == "shm" {
                assert!(is_view, "an answer of {len} bytes was copied");
            }
        }
        drop(client);
        soon(serving).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn quick_answer_overtakes_slow_one() {
    let pair = pair().await;
    let barrier = Arc::new(Notify::new());
    let opens = Arc::clone(&barrier);
    tokio::spawn(Server::new(pair.there).serve(move |request: Request| {
        let barrier = Arc::clone(&barrier);
        async move {
            if *request == *b"slow" {
                barrier.notified().await;
            }
            Ok(request.to_vec())
        }
    }));
    let client = Client::new(pair.here);
    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.call(b"slow").await }
    });
    for _ in 0..10 {
        assert_eq!(soon(client.call(b"quick")).await.unwrap(), b"quick");
    }
    assert!(!slow.is_finished());
    opens.notify_one();
    assert_eq!(soon(slow).await.unwrap().unwrap(), b"slow");
}

#[tokio::test]
async fn dropped_call_drops_handler_and_frees_slot() {
    let pair = pair().await;
    let config = CallsConfig::default().in_flight_max(1).running_max(1);
    let (_serving, mut events) = serve_for_ever(pair.there, config);
    let client = Client::with(pair.here, config);
    for _ in 0..5 {
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.call(b"").await }
        });
        assert_eq!(soon(events.recv()).await, Some("began"));
        call.abort();
        assert_eq!(soon(events.recv()).await, Some("dropped"));
    }
}

#[tokio::test]
async fn waiting_call_that_is_cancelled_never_runs() {
    let pair = pair().await;
    let (_serving, mut events) = serve_for_ever(pair.there, CallsConfig::default().running_max(1));
    let client = Client::new(pair.here);
    let call = |payload: &'static [u8]| {
        let client = client.clone();
        tokio::spawn(async move { client.call(payload).await })
    };
    let first = call(b"first");
    assert_eq!(soon(events.recv()).await, Some("began"));
    let second = client.call_deadline(b"second", Instant::now() + Duration::from_millis(1)).await;
    assert!(matches!(second, Err(CallError::DeadlineExceeded)), "{second:?}");
    // The third call is sent on the same stream after the message CANCEL of the second call. So the
    // event "one way" shows that the server has received that message.
    client.call_one_way(b"third").await.unwrap();
    first.abort();
    assert_eq!(soon(events.recv()).await, Some("dropped"));
    assert_eq!(soon(events.recv()).await, Some("one way"));
}

#[tokio::test]
async fn deadline_ends_call_on_both_sides() {
    let pair = pair().await;
    let (_serving, mut events) = serve_for_ever(pair.there, CallsConfig::default());
    let client = Client::new(pair.here);
    // The test repeats the call with longer and longer deadlines, because on a busy machine a
    // deadline may pass before the handler of the call begins.
    for time_ms in [200, 2000, 20_000] {
        let time = Duration::from_millis(time_ms);
        let called = client.call_deadline(b"", Instant::now() + time).await;
        assert!(matches!(called, Err(CallError::DeadlineExceeded)), "{called:?}");
        if tokio::time::timeout(2 * time, events.recv()).await == Ok(Some("began")) {
            assert_eq!(soon(events.recv()).await, Some("dropped"));
            return;
        }
    }
    panic!("the handler never begins");
}

#[tokio::test]
async fn handler_sees_time_left() {
    let pair = pair().await;
    tokio::spawn(Server::new(pair.there).serve(|request: Request| async move {
        let left = request.deadline().map(|deadline| deadline - Instant::now());
        Ok([u8::from(left.is_some_and(|left| left <= TIMEOUT))])
    }));
    let client = Client::new(pair.here);
    assert_eq!(client.call_deadline(b"", Instant::now() + TIMEOUT).await.unwrap(), [1]);
    assert_eq!(client.call(b"").await.unwrap(), [0]);
}

#[tokio::test]
async fn failure_panic_and_overload_return_own_errors() {
    let pair = pair().await;
    let (sender, mut events) = mpsc::unbounded_channel();
    let config = CallsConfig::default().running_max(1).waiting_max(0);
    tokio::spawn(Server::with(pair.there, config).serve(move |request: Request| {
        let sender = sender.clone();
        async move {
            match &request[..] {
                b"fail" => Err(Failure::new(7, vec![1, 2])),
                b"panic" => panic!("on purpose"),
                b"stay" => {
                    let _ = sender.send(());
                    pending().await
                }
                _ => Ok(b"fine"),
            }
        }
    }));
    let client = Client::new(pair.here);
    let Err(CallError::Failed { code, detail }) = client.call(b"fail").await else { panic!() };
    assert_eq!((code, &detail[..]), (7, &[1, 2][..]));
    assert!(matches!(soon(client.call(b"panic")).await, Err(CallError::Aborted)));
    assert_eq!(soon(client.call(b"")).await.unwrap(), b"fine");
    let stays = tokio::spawn({
        let client = client.clone();
        async move { client.call(b"stay").await }
    });
    soon(events.recv()).await.unwrap();
    assert!(matches!(soon(client.call(b"")).await, Err(CallError::Busy)));
    stays.abort();
}

#[tokio::test]
async fn closed_session_ends_every_call() {
    let pair = pair().await;
    let (serving, mut events) = serve_for_ever(pair.there, CallsConfig::default());
    let client = Client::with(pair.here, CallsConfig::default().in_flight_max(4));
    // The client allows four calls in flight, and the server answers none of the first four. So the
    // fifth call waits until fewer calls are in flight.
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.call(b"").await })
        })
        .collect();
    for _ in 0..4 {
        assert_eq!(soon(events.recv()).await, Some("began"));
    }
    pair.server.close(0, "");
    for call in calls {
        let called = soon(call).await.unwrap();
        assert!(matches!(called, Err(CallError::Lost(_))), "{called:?}");
    }
    assert!(soon(serving).await.unwrap().is_err());
    assert!(matches!(soon(client.call(b"")).await, Err(CallError::Lost(_))));
    assert!(client.lost().is_some());
}

#[tokio::test]
async fn dropped_server_ends_every_call() {
    let pair = pair().await;
    let (serving, mut events) = serve_for_ever(pair.there, CallsConfig::default());
    let client = Client::new(pair.here);
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call(b"").await }
    });
    assert_eq!(soon(events.recv()).await, Some("began"));
    serving.abort();
    assert!(matches!(soon(call).await.unwrap(), Err(CallError::Lost(_))));
    assert_eq!(soon(events.recv()).await, Some("dropped"));
    assert!(pair.client.close_reason().is_none(), "the session goes on");
}

#[tokio::test]
async fn violation_resets_stream_but_not_session() {
    // The first loop sends invalid messages to a `Server`, the second loop to a `Client` with a
    // call in flight. Server and client must each report a violation and keep the session.
    let call = [1_u8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    let answer = [4_u8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    for messages in [vec![&call[..], &call[..]], vec![&answer[..]], vec![&[1, 2, 3][..]]] {
        let mut pair = pair().await;
        let serving = tokio::spawn(
            Server::new(pair.there).serve(|_: Request| pending::<Result<Vec<u8>, Failure>>()),
        );
        for message in &messages {
            pair.here.send(message).await.unwrap();
        }
        let served = soon(serving).await.unwrap();
        assert!(matches!(served, Err(ServeError::Violation(_))), "{served:?}");
        let end = soon(pair.here.recv()).await;
        assert!(matches!(end, Err(StreamRecvError::Reset { code: VIOLATION })), "{end:?}");
        assert!(pair.client.close_reason().is_none());
    }
    for message in [&call[..], &answer[..], &[][..]] {
        let mut pair = pair().await;
        let client = Client::new(pair.here);
        let asking = tokio::spawn(async move { client.call(b"x").await });
        soon(pair.there.recv()).await.unwrap().unwrap();
        pair.there.send(message).await.unwrap();
        let asked = soon(asking).await.unwrap();
        assert!(matches!(asked, Err(CallError::Lost(Lost::Violation(_)))), "{asked:?}");
        assert!(pair.server.close_reason().is_none());
    }
}

#[tokio::test]
async fn answer_to_cancelled_call_is_ignored() {
    let mut pair = pair().await;
    let client = Client::new(pair.here);
    let answer = |id: u8| [4, 0, 0, 0, 0, 0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0, b'a'];
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call(b"1").await }
    });
    assert_eq!(soon(pair.there.recv()).await.unwrap().unwrap()[8], 1);
    call.abort();
    let cancel = soon(pair.there.recv()).await.unwrap().unwrap();
    assert_eq!(cancel, [3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    pair.there.send(&answer(1)).await.unwrap();
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call(b"2").await }
    });
    assert_eq!(soon(pair.there.recv()).await.unwrap().unwrap()[8], 2);
    pair.there.send(&answer(2)).await.unwrap();
    pair.there.send(&answer(2)).await.unwrap();
    assert_eq!(soon(call).await.unwrap().unwrap(), b"a");
    assert!(client.lost().is_none());
    let unknown = CallViolation::UnknownId { id: 3, last: 2 };
    assert!(unknown.to_string().contains("call 3"));
}

#[tokio::test]
async fn one_way_calls_are_handled_after_client_is_gone() {
    let pair = pair().await;
    let (sender, mut events) = mpsc::unbounded_channel();
    let serving = tokio::spawn(Server::new(pair.there).serve(move |request: Request| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(request.to_vec());
            Ok([])
        }
    }));
    let client = Client::new(pair.here);
    for number in 0..100_u8 {
        client.call_one_way(&[number]).await.unwrap();
    }
    drop(client);
    soon(serving).await.unwrap().unwrap();
    let mut all = Vec::new();
    while let Some(one) = events.recv().await {
        all.push(one[0]);
    }
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}

#[test]
fn failure_whose_detail_is_a_short_text_says_it() {
    let long = "x".repeat(201);
    for (detail, text) in [
        ("nothing asked", ": nothing asked"),
        ("", " (0 bytes of detail)"),
        ("\u{1b}[2J", " (4 bytes of detail)"),
        (&long, " (201 bytes of detail)"),
    ] {
        let failed = CallError::Failed { code: 7, detail: detail.as_bytes().to_vec().into() };
        assert_eq!(failed.to_string(), format!("the call failed with code 7{text}"));
    }
    let failed = CallError::Failed { code: 7, detail: vec![0xff].into() };
    assert_eq!(failed.to_string(), "the call failed with code 7 (1 bytes of detail)");
}
