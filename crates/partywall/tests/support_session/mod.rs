// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs of sessions over every transport, a runtime that does not hang for ever, and futures that are
//! given up half-way.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) use crate::support_two as two;
use partywall::Config;
use partywall::tokio::{Listener, Session, connect_with};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
pub use two::Kind;

/// A connected pair of sessions in this process: connecting side, accepting side.
pub async fn pair_with(kind: Kind, client: &Config, server: &Config) -> (Session, Session) {
    let listener = Listener::bind_with(kind.address(), server).unwrap();
    let address = listener.local_address().to_string();
    let (client, server) = tokio::join!(connect_with(address, client), listener.accept());
    (client.unwrap(), server.unwrap())
}

/// A pair where `adapt` changes what both sides choose.
pub async fn pair(kind: Kind, adapt: impl Fn(Config) -> Config) -> (Session, Session) {
    let config = adapt(kind.config());
    pair_with(kind, &config, &config).await
}

/// Runs a future on two threads; one that takes longer than `limit` has failed.
pub fn run<T>(what: &str, limit: Duration, future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ended = runtime.block_on(async { tokio::time::timeout(limit, future).await });
    let ended = ended.unwrap_or_else(|_| panic!("{what}: hung for {limit:?}"));
    runtime.shutdown_timeout(Duration::from_secs(10));
    ended
}

/// As [`run`], on the thread of the test alone.
pub fn run_alone<T>(what: &str, limit: Duration, future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async { tokio::time::timeout(limit, future).await });
    ended.unwrap_or_else(|_| panic!("{what}: hung for {limit:?}"))
}

/// Polls a future `polls` times and then gives it up.
pub async fn give_up_after<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}

/// Lets others run until `is_so`; the limit of [`run`] is the deadline.
pub async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
