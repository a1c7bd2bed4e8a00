// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of unmodified tonic over the streams of a session, as client and as server: every kind of
//! call over every transport, and a server process that is killed during calls.
#![cfg(feature = "tonic")]

use crate::support_adapters;

use partywall::Closed;
use partywall::tokio::{Incoming, Listener, Pool, PoolConfig, Session};
use partywall::tonic::Connector;
use partywall_testkit::{Directory, Second, Watchdog, argument, role, second_process};
use std::error::Error;
use std::time::Duration;
use support_adapters::echo::{Client, Echo, HANG, Number};
use support_adapters::{Way, body, soon};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Status};

/// A running server of the echo service, and a client of it.
struct Pair {
    session: Session,
    client: Client,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

async fn pair(way: &mut Way) -> Pair {
    let incoming = way.listen();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder().add_service(Echo::default());
    let server = server.serve_with_incoming_shutdown(incoming, async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(server);
    let session = way.connect().await;
    let client = client(Connector::from(session.clone())).await;
    Pair { session, client, stop, server }
}

async fn client(connector: Connector) -> Client {
    let endpoint = Endpoint::from_static("http://service");
    Client::new(endpoint.connect_with_connector(connector).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_call_is_answered_over_every_transport() {
    let _watchdog = Watchdog::new("every kind of call", Duration::from_secs(120));
    let directory = tempfile::tempdir().unwrap();
    for mut way in Way::all(&directory) {
        let Pair { mut client, stop, server, .. } = pair(&mut way).await;
        let len = if way.is_shared_memory() { 8 << 20 } else { 1 << 20 };
        let large = Number { value: 1, payload: body(len, 3) };
        let answer = client.unary(large.clone()).await.unwrap();
        assert!(answer == Number { value: 2, ..large }, "{}: a large message differs", way.name);

        let mut counted = client.count(1000).await.unwrap();
        for value in 0..1000 {
            assert_eq!(counted.message().await.unwrap(), Some(Number::new(value)));
        }
        assert_eq!(counted.message().await.unwrap(), None);

        let numbers = tokio_stream::iter((0..=1000).map(Number::new));
        assert_eq!(client.sum(numbers).await.unwrap(), 500_500);

        let numbers = tokio_stream::iter((0..1000).map(Number::new));
        let answers = client.chat(numbers).await.unwrap();
        let answers: Vec<_> = answers.map(|number| number.unwrap().value).collect().await;
        assert!(answers.into_iter().eq(1..=1000), "{}", way.name);

        let code = client.call("/test.Echo/Nothing", Number::new(0)).await.unwrap_err().code();
        assert_eq!(code, Code::Unimplemented);
        drop(client);
        stop.send(()).unwrap();
        soon("the server's end", server).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_handler_sees_who_calls() {
    let directory = tempfile::tempdir().unwrap();
    for mut way in Way::all(&directory) {
        let mut pair = pair(&mut way).await;
        let answer = pair.client.call("/test.Echo/Peer", Number::new(0)).await.unwrap();
        let text = String::from_utf8(answer.payload).unwrap();
        let own = format!("Some({}) Some(", std::process::id());
        match way.name {
            "shm" => assert!(text.starts_with(&own) && text.contains("shm"), "{text}"),
            "unix" => assert!(text.starts_with(&own) && text.contains("socket"), "{text}"),
            _ => assert!(text.starts_with("None None None socket"), "{text}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_carries_a_million_messages() {
    const COUNT: u64 = 1_000_000;
    let _watchdog = Watchdog::new("a million messages", Duration::from_secs(300));
    let directory = tempfile::tempdir().unwrap();
    let mut pair = pair(&mut Way::shm(&directory)).await;
    let start = std::time::Instant::now();
    let mut answers =
        pair.client.chat(tokio_stream::iter((0..COUNT).map(Number::new))).await.unwrap();
    for value in 1..=COUNT {
        assert_eq!(answers.message().await.unwrap().unwrap().value, value);
    }
    assert_eq!(answers.message().await.unwrap(), None);
    let sent = pair.session.stats();
    eprintln!("{COUNT} messages both ways: {:.1?}; {sent:?}", start.elapsed());
    // Expected: the messages were sent through shared memory. Each message takes five bytes of gRPC
    // framing, the key of a protobuf field, and at least one byte of the number in that field.
    assert!(
        pair.session.transport() == partywall::Transport::SharedMemory && sent.bytes > 7 * COUNT
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_a_server_fails_every_call_under_way() {
    const CALLS: u64 = 20;
    let _watchdog = Watchdog::new("the death of a server", Duration::from_secs(120));
    let place = Directory::new();
    let address = place.address("grpc");
    let mut server =
        Second::spawn(&mut second_process("tonic::child", "grpc", &[("ADDRESS", &address)]));

    let pool = Pool::new(&*address, PoolConfig::default().open_timeout(support_adapters::TIMEOUT));
    let pool = pool.unwrap();
    let client = client(Connector::from(pool.clone())).await;
    let (mut unary, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..CALLS {
        let mut client = client.clone();
        unary.push(tokio::spawn(async move { client.unary(Number::new(HANG)).await }));
    }
    for _ in 0..CALLS {
        let mut stream = client.clone().count(HANG).await.unwrap();
        assert_eq!(stream.message().await.unwrap(), Some(Number::new(0)));
        streams.push(tokio::spawn(async move { stream.message().await }));
    }
    // The kill must come after all calls, with one response or with a stream of them, have reached
    // the server.
    let mut asking = client.clone();
    soon("calls under way", async {
        while asking.call("/test.Echo/Hanging", Number::new(0)).await.unwrap().value < 2 * CALLS {}
    })
    .await;

    server.kill();
    for call in unary {
        expect_death(&soon("a pending call", call).await.unwrap().unwrap_err());
    }
    for stream in streams {
        expect_death(&soon("a pending stream", stream).await.unwrap().unwrap_err());
    }

    // A second server process takes the place of the killed server process, and the same client
    // continues.
    let _server =
        Second::spawn(&mut second_process("tonic::child", "grpc", &[("ADDRESS", &address)]));
    let mut client = client;
    soon("the second server", async {
        while client.unary(Number::new(1)).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    pool.close().await;
}

/// Checks that the end of the session is a cause of the error. The library h2 replaces the
/// session's error by an error of the same kind and text, so the text is compared.
fn expect_death(status: &Status) {
    assert!(matches!(status.code(), Code::Unavailable | Code::Unknown), "{status:?}");
    let words = Closed::Disconnected.to_string();
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.to_string() == words {
            return;
        }
        cause = error.source();
    }
    panic!("{status:?}");
}

/// Code of the gRPC server process, which a test starts and kills. In the process of the tests the
/// function returns at once.
#[test]
fn child() {
    if role().as_deref() != Some("grpc") {
        return;
    }
    let _watchdog = Watchdog::new("the second process", Duration::from_secs(120));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let incoming = Incoming::new(Listener::bind(&*argument("ADDRESS")).unwrap());
        let server = Server::builder().add_service(Echo::default());
        server.serve_with_incoming(incoming).await.unwrap();
    });
}
