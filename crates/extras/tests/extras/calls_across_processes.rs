// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which the peer's process is killed during calls: each call of the client and each
//! handler of the server must end at once.
#![cfg(feature = "calls")]

use partywall::tokio::{Listener, connect};
use partywall_extras::calls::{CallError, Client, Failure, Request, Server};
use partywall_testkit::{Directory, Second, argument, role, second_process};
use std::future::pending;
use std::time::Duration;
use tokio::sync::mpsc;

const TIMEOUT: Duration = Duration::from_secs(60);

/// The second process of a test, which is killed: a server whose handlers never end, or a client
/// that waits for answers.
#[tokio::test]
async fn child() {
    match role().as_deref() {
        Some("server") => {
            let session = connect(&*argument("address")).await.unwrap();
            let stream = session.accept().await.unwrap().unwrap();
            let _ = Server::new(stream).serve(handler(None)).await;
        }
        Some("client") => {
            let session = connect(&*argument("address")).await.unwrap();
            let client = Client::new(session.open(b"").await.unwrap());
            let _ = tokio::join!(client.call(b"stay"), client.call(b"stay"));
        }
        _ => {}
    }
}

/// A guard that a handler holds: it sends an event when it is dropped together with the handler.
struct Guard(Option<mpsc::UnboundedSender<&'static str>>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(sender) = &self.0 {
            let _ = sender.send("dropped");
        }
    }
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Result<Vec<u8>, Failure>> + Send>>;

/// Makes a handler that answers the call "ready" immediately, and never answers another call.
fn handler(
    sender: Option<mpsc::UnboundedSender<&'static str>>,
) -> impl Fn(Request) -> Answer + Send + Sync + 'static {
    move |request: Request| {
        let sender = sender.clone();
        Box::pin(async move {
            if *request == *b"ready" {
                return Ok(Vec::new());
            }
            if let Some(sender) = &sender {
                let _ = sender.send("began");
            }
            let _guard = Guard(sender);
            pending().await
        })
    }
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(TIMEOUT, future).await.expect("in time")
}

#[tokio::test]
async fn killed_server_ends_every_call() {
    let place = Directory::new();
    let address = place.address("calls.sock");
    let listener = Listener::bind(&*address).unwrap();
    let mut server = Second::spawn(&mut second_process(
        "calls_across_processes::child",
        "server",
        &[("address", &address)],
    ));
    let session = soon(listener.accept()).await.unwrap();
    let client = Client::new(soon(session.open(b"")).await.unwrap());
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.call(&[7; 5000]).await })
        })
        .collect();
    soon(client.call(b"ready")).await.unwrap();
    server.kill();
    for call in calls {
        let called = soon(call).await.unwrap();
        assert!(matches!(called, Err(CallError::Lost(_))), "{called:?}");
    }
    assert!(matches!(soon(client.call(b"ready")).await, Err(CallError::Lost(_))));
}

#[tokio::test]
async fn killed_client_ends_every_handler() {
    let place = Directory::new();
    let address = place.address("calls.sock");
    let listener = Listener::bind(&*address).unwrap();
    let mut client = Second::spawn(&mut second_process(
        "calls_across_processes::child",
        "client",
        &[("address", &address)],
    ));
    let session = soon(listener.accept()).await.unwrap();
    let stream = soon(session.accept()).await.unwrap().unwrap();
    let (sender, mut events) = mpsc::unbounded_channel();
    let serving = tokio::spawn(Server::new(stream).serve(handler(Some(sender))));
    for _ in 0..2 {
        assert_eq!(soon(events.recv()).await, Some("began"));
    }
    client.kill();
    assert!(soon(serving).await.unwrap().is_err());
    for _ in 0..2 {
        assert_eq!(soon(events.recv()).await, Some("dropped"));
    }
    assert_eq!(soon(events.recv()).await, None);
}
