// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of unmodified axum, which serves the streams of sessions to hyper's client. Handlers get
//! the identity of the calling process, and 100,000 requests are answered. A server that is stopped
//! still answers the requests that it has received.
#![cfg(all(feature = "axum", feature = "hyper"))]

use crate::support_adapters;

use axum::Router;
use axum::extract::{ConnectInfo, Path};
use axum::routing::{get, post};
use http_body_util::{BodyExt, Full};
use hyper::Uri;
use hyper::body::Bytes;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use partywall::axum::Incoming;
use partywall::hyper::Connector;
use partywall::tokio::{Pool, PoolConfig};
use partywall_testkit::Watchdog;
use std::time::{Duration, Instant};
use support_adapters::{Way, body, soon};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

type Client = legacy::Client<Connector, Full<Bytes>>;

fn app() -> Router {
    let who = |ConnectInfo(caller): ConnectInfo<partywall::axum::ConnectInfo>| async move {
        format!("{:?} {:?} {}", caller.pid(), caller.uid(), caller.transport)
    };
    let double = |Path(number): Path<u64>| async move { (2 * number).to_string() };
    let echo = |bytes: Bytes| async move { bytes };
    Router::new()
        .route("/who", get(who))
        .route("/double/{number}", get(double))
        .route("/echo", post(echo))
        .layer(axum::extract::DefaultBodyLimit::disable())
}

/// Starts an axum server, which serves until the test sends on the returned sender or drops it.
fn start(incoming: Incoming) -> (oneshot::Sender<()>, JoinHandle<std::io::Result<()>>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let service = app().into_make_service_with_connect_info::<partywall::axum::ConnectInfo>();
    let serving = tokio::spawn(async {
        let server = axum::serve(incoming, service);
        server
            .with_graceful_shutdown(async {
                let _ = stopped.await;
            })
            .await
    });
    (stop, serving)
}

fn client(connector: Connector) -> Client {
    legacy::Client::builder(TokioExecutor::new()).build(connector)
}

async fn ask(client: &Client, path: &str) -> String {
    let uri: Uri = format!("http://service{path}").parse().unwrap();
    let response = client.get(uri).await.unwrap();
    assert_eq!(response.status(), 200);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_see_who_calls_over_every_transport() {
    let _watchdog = Watchdog::new("who calls", Duration::from_secs(120));
    let directory = tempfile::tempdir().unwrap();
    for mut way in Way::all(&directory) {
        let (stop, serving) = start(way.listen());
        let session = way.connect().await;
        let client = client(Connector::from(session.clone()));
        let who = ask(&client, "/who").await;
        let pid = (!way.is_tcp()).then(std::process::id);
        assert!(who.starts_with(&format!("{pid:?} ")), "{who}");
        assert_eq!(who.contains("shm: shared memory"), way.is_shared_memory(), "{who}");
        for number in 0..500 {
            let path = format!("/double/{number}");
            assert_eq!(ask(&client, &path).await, (2 * number).to_string());
        }
        let len = if way.is_shared_memory() { 8 << 20 } else { 1 << 20 };
        let request = hyper::Request::post("http://service/echo");
        let request = request.body(Full::new(Bytes::from(body(len, 9)))).unwrap();
        let echoed = client.request(request).await.unwrap().into_body().collect().await.unwrap();
        assert!(echoed.to_bytes() == body(len, 9), "{}: bodies differ", way.name);

        stop.send(()).unwrap();
        soon("go_away", session.going_away()).await.unwrap();
        soon("the server's end", serving).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_requests_are_answered_over_a_shm() {
    const REQUESTS: u64 = 100_000;
    const CLIENTS: u64 = 50;
    let _watchdog = Watchdog::new("100,000 requests", Duration::from_secs(300));
    let directory = tempfile::tempdir().unwrap();
    let mut way = Way::shm(&directory);
    let (stop, serving) = start(way.listen());
    let config = PoolConfig::default().session(way.config.clone()).sessions(2);
    let pool = Pool::new(&*way.address, config).unwrap();
    let client = client(Connector::from(pool.clone()));
    let start = Instant::now();
    let mut asking = tokio::task::JoinSet::new();
    for first in 0..CLIENTS {
        let client = client.clone();
        asking.spawn(async move {
            for number in (first..REQUESTS).step_by(CLIENTS as usize) {
                let path = format!("/double/{number}");
                assert_eq!(ask(&client, &path).await, (2 * number).to_string());
            }
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
    eprintln!("{REQUESTS} requests: {:.1?}", start.elapsed());
    stop.send(()).unwrap();
    soon("the server's end", serving).await.unwrap().unwrap();
    pool.close().await;
}
