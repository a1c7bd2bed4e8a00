// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of unmodified hyper over the streams of a session, as client and as server: HTTP/1.1 and
//! HTTP/2, reused connections, and large bodies, over every transport.
#![cfg(feature = "hyper")]

use crate::support_adapters;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming as RequestBody};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use partywall::hyper::{Connector, serve};
use partywall::tokio::ConnectInfo;
use partywall_testkit::Watchdog;
use std::time::Duration;
use support_adapters::{Way, body, soon};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

type Client = legacy::Client<Connector, Full<Bytes>>;

/// The tests' server: answers each request with its body, and with the identity of the calling
/// process in a header.
async fn echo(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let caller = request.extensions().get::<ConnectInfo>().unwrap();
    let who = format!("{:?} {}", caller.pid(), String::from_utf8_lossy(&caller.metadata));
    let version = request.version();
    let bytes = request.into_body().collect().await?.to_bytes();
    let mut response = Response::new(Full::new(bytes));
    response.headers_mut().insert("who", who.parse().unwrap());
    *response.version_mut() = version;
    Ok(response)
}

struct Server {
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Server {
    fn start(way: &mut Way) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = serve(way.listen(), service_fn(echo), async {
            let _ = stopped.await;
        });
        Self { stop, serving: tokio::spawn(serving) }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        soon("the server's end", self.serving).await.unwrap();
    }
}

fn client(connector: Connector, version: Version) -> Client {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.http2_only(version == Version::HTTP_2).build(connector)
}

async fn post(client: &Client, bytes: Vec<u8>) -> Response<RequestBody> {
    let request = Request::post("http://service/echo").body(Full::new(Bytes::from(bytes)));
    client.request(request.unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_share_a_stream_and_large_bodies_arrive_whole() {
    let _watchdog = Watchdog::new("requests", Duration::from_secs(120));
    let directory = tempfile::tempdir().unwrap();
    for mut way in Way::all(&directory) {
        let server = Server::start(&mut way);
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let session = way.connect().await;
            let connector = Connector::from(session.clone()).metadata(b"test");
            let client = client(connector, version);
            for round in 0..50 {
                let response = post(&client, body(round * 10, 1)).await;
                assert_eq!(response.version(), version);
                let who = (!way.is_tcp()).then(std::process::id);
                assert_eq!(response.headers()["who"], format!("{who:?} test"));
                assert!(response.extensions().get::<ConnectInfo>().is_some(), "who answered?");
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                assert!(bytes == body(round * 10, 1), "{} {version:?}", way.name);
            }
            // `most` is the maximum expected number of connections for the 50 requests: the client
            // reuses connections, but an HTTP/1 client may open another one before the previous one
            // is back in its pool.
            let most = if version == Version::HTTP_2 { 1 } else { 49 };
            assert!((1..=most).contains(&session.streams()), "{} {version:?}", way.name);

            let len = if way.is_shared_memory() { 8 << 20 } else { 1 << 20 };
            for seed in 0..3 {
                let response = post(&client, body(len, seed)).await;
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                assert!(bytes == body(len, seed), "{} {version:?}: bodies differ", way.name);
            }
        }
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_answers_what_it_was_asked() {
    let _watchdog = Watchdog::new("a server that stops", Duration::from_secs(120));
    let directory = tempfile::tempdir().unwrap();
    let mut way = Way::shm(&directory);
    let (asked, mut is_asked) = tokio::sync::mpsc::channel::<()>(1);
    let (answer, may_answer) = tokio::sync::watch::channel(false);
    let slow = service_fn(move |_: Request<RequestBody>| {
        let (asked, mut may_answer) = (asked.clone(), may_answer.clone());
        async move {
            asked.send(()).await.unwrap();
            may_answer.wait_for(|may| *may).await.unwrap();
            Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from_static(b"at last"))))
        }
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = serve(way.listen(), slow, async {
        let _ = stopped.await;
    });
    let serving = tokio::spawn(serving);
    let session = way.connect().await;
    let client = client(Connector::from(session.clone()), Version::HTTP_11);
    let answering = tokio::spawn(async move { post(&client, Vec::new()).await });
    soon("the question", is_asked.recv()).await.unwrap();
    stop.send(()).unwrap();
    // Expected: the stopped server sends `go_away` on the session, and still answers the request
    // that it received before.
    soon("go_away", session.going_away()).await.unwrap();
    answer.send(true).unwrap();
    let response = soon("the answer", answering).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&bytes[..], b"at last");
    soon("the server's end", serving).await.unwrap();
}
