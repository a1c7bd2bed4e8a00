// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers that make both ends of async links, and run a test on each kind of tokio runtime.
#![allow(dead_code, reason = "each test file uses a part")]

use crate::support_ends::Ground;
use partywall_link::Config;
use partywall_link::tokio::{Client, Link, Server};
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

/// Time limit of each test and of each wait. A correct program needs seconds at most, so only a
/// faulty one exceeds the limit.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The two kinds of tokio runtime on which a test runs: one with a single thread, and one with
/// several threads.
pub fn runtimes() -> [Runtime; 2] {
    let alone = Builder::new_current_thread().enable_all().build().unwrap();
    let together = Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    [alone, together]
}

/// Runs a test on each kind of runtime; the test fails if it exceeds [`TIMEOUT`].
pub fn on_runtimes<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for runtime in runtimes() {
        runtime.block_on(async { within(test()).await });
    }
}

/// Waits for the output of `future`; fails if that takes longer than [`TIMEOUT`].
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("not in time")
}

/// Yields to the runtime `count` times, so that other tasks run.
pub async fn turns(count: usize) {
    for _ in 0..count {
        yield_now().await;
    }
}

/// Polls `future` until other tasks have run `count` times, and then drops it.
pub async fn for_turns<T>(count: usize, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = future => Some(done),
        () = turns(count) => None,
    }
}

pub fn config() -> Config {
    Config::default().ring_bytes(16 << 10).slab_bytes(0).allow_anonymous_tcp(true)
}

/// The two ends of an async link, and the client and the server that made them, which have to live
/// as long as the ends are used.
pub struct Ends {
    pub server: Server,
    pub client: Client,
    pub served: Link,
    pub link: Link,
}

pub fn server(ground: &Ground, config: Config) -> Server {
    Server::bind(ground.address(), ground.place("server"), "bob", ground.config(config)).unwrap()
}

pub fn client(ground: &Ground, config: Config) -> Client {
    Client::new(ground.place("client"), "alice", ground.config(config)).unwrap()
}

/// Makes a server and a client, each with a group of its own, and a link between them. Returns
/// server, client and both ends of the link.
pub fn ends(ground: &Ground, config: &Config) -> Ends {
    let (server, client) = (server(ground, config.clone()), client(ground, config.clone()));
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    Ends { server, client, served, link }
}

pub async fn echo(link: &Link, count: usize) {
    for _ in 0..count {
        let message = link.recv().await.unwrap().unwrap();
        let copy = message.to_vec();
        message.reply(&copy).await.unwrap();
    }
    link.wait_acked().await.unwrap();
}
