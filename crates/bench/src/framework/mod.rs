// SPDX-License-Identifier: MIT OR Apache-2.0
//! `grpc` and `http`: calls of tonic and requests of hyper over byte streams (feature
//! `frameworks`).
//!
//! ```text
//! unary    requester ×N   (request n ──► reply n|REPLY) × amount     N calls in flight
//! stream   requester      messages n, n+1, … ──► one reply           one way
//!
//! grpc     one HTTP/2 connection carries all requesters              grpc.rs
//! http     a connection of HTTP/1.1 for each requester               http.rs
//! ```
//! The number of a reply is that of its request, with the bit `REPLY` set. A request's payload
//! begins with its number, from which the server computes the bytes that must follow, and the bytes
//! of its reply. So the server verifies each request, the client each reply.
//!
//! The child process counts the messages that it has verified. Its part of a batch of operations
//! ends when all messages of the batch have come. So the CPU time of that part is the cost of the
//! whole batch.

mod connection;
mod grpc;
mod http;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use self::connection::ByteServer;
pub use self::connection::ByteTransport;
use crate::harness::cell::{Cell, Scenario};
use crate::harness::clock::nanoseconds;
use crate::harness::control::{Control, Done, Reply, Request};
use crate::harness::pair::{Pair, calibrate};
use crate::harness::pattern::{HEAD_SIZE, REPLY, Touch};
use crate::harness::round::{Round, histogram};
use crate::harness::workspace::Setup;

/// A client of gRPC or HTTP under measurement, which has one request in flight at a time.
trait Requester: Sized + Send + 'static {
    fn call(&mut self, payload: Vec<u8>) -> impl Future<Output = Result<Vec<u8>>> + Send;

    /// Sends the messages `first..first + amount` in one request, and waits for its reply.
    fn stream(
        &mut self,
        cell: Cell,
        first: u64,
        amount: u64,
    ) -> impl Future<Output = Result<()>> + Send;
}

/// Measures a scenario of gRPC or HTTP in the parent process, which runs the clients. Returns the
/// measurements.
pub fn measure<T: ByteTransport>(
    cell: Cell,
    setup: &Setup,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let runtime = runtime()?;
    let address = pair.child.open(cell, setup)?;
    let client = runtime.block_on(T::connect(setup, &address))?;
    let round = match cell.scenario {
        Scenario::Grpc | Scenario::GrpcStream => {
            let requesters = runtime.block_on(grpc::requesters(cell, &client))?;
            Clients { cell, requesters, next: 0, runtime: &runtime }.measure(duration, pair)
        }
        Scenario::Http | Scenario::HttpStream => {
            let requesters = runtime.block_on(http::requesters(cell, &client))?;
            Clients { cell, requesters, next: 0, runtime: &runtime }.measure(duration, pair)
        }
        _ => bail!("not a scenario of frameworks"),
    }?;
    drop(client);
    pair.child.close()?;
    Ok(round)
}

/// Runs the server of a scenario of gRPC or HTTP, in the child process.
pub fn serve<T: ByteTransport>(cell: Cell, setup: &Setup, control: &Control) -> Result<()> {
    let runtime = runtime()?;
    let server = runtime.block_on(T::bind(setup))?;
    control.reply(&Reply::Bound { address: server.address() })?;
    let verifier = Verifier { cell, count: Arc::default() };
    match cell.scenario {
        Scenario::Grpc | Scenario::GrpcStream => {
            runtime.spawn(grpc::serve(server, verifier.clone()));
        }
        Scenario::Http | Scenario::HttpStream => {
            runtime.spawn(http::serve(server, verifier.clone()));
        }
        _ => bail!("not a scenario of frameworks"),
    }
    control.serve(|request| {
        let Request::Run { amount } = request else { bail!("calls only run") };
        runtime.block_on(verifier.count.wait(amount * cell.streams as u64));
        Ok(Done::default())
    })
}

/// The clients of a measurement, which all run on one runtime of tokio.
struct Clients<'a, C> {
    cell: Cell,
    requesters: Vec<C>,
    /// The number of the next request of each client. All clients have the same number, because
    /// each has sent equally many requests.
    next: u64,
    runtime: &'a Runtime,
}

impl<C: Requester> Clients<'_, C> {
    fn measure(mut self, duration: Duration, pair: &mut Pair) -> Result<Round> {
        let amount =
            calibrate(1, duration, |amount| Ok(pair.run(amount, || self.run(amount))?.elapsed_ns))?;
        let batch = pair.run(amount, || self.run(amount))?;
        let mut latency = histogram()?;
        batch.value.iter().for_each(|&ns| latency.saturating_record(ns));
        let ops = amount * self.cell.streams as u64;
        let ways = if self.cell.scenario.is_one_way() { 1 } else { 2 };
        Ok(batch.round(ops, ways * ops * self.cell.size as u64, latency))
    }

    /// Performs `amount` operations with each client, all clients at once. Returns the latencies of
    /// calls in nanoseconds; a stream in one direction has none.
    fn run(&mut self, amount: u64) -> Result<Vec<u64>> {
        let (cell, first) = (self.cell, self.next);
        self.next += amount;
        let requesters = std::mem::take(&mut self.requesters);
        let finished = self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for (lane, requester) in (0_u64..).zip(requesters) {
                tasks.spawn(run_one(cell, requester, (lane << LANE_SHIFT) + first, amount));
            }
            let mut finished = Vec::new();
            while let Some(task) = tasks.join_next().await {
                finished.push(task.context("a requester panicked")??);
            }
            Ok::<_, anyhow::Error>(finished)
        })?;
        let mut latencies_ns = Vec::new();
        for (requester, of_one) in finished {
            self.requesters.push(requester);
            latencies_ns.extend(of_one);
        }
        Ok(latencies_ns)
    }
}

async fn run_one<C: Requester>(
    cell: Cell,
    mut requester: C,
    first: u64,
    amount: u64,
) -> Result<(C, Vec<u64>)> {
    let mut latencies_ns = Vec::new();
    if cell.scenario.is_one_way() {
        requester.stream(cell, first, amount).await?;
        return Ok((requester, latencies_ns));
    }
    for sequence in first..first + amount {
        let start = Instant::now();
        let reply = requester.call(payload(cell, sequence)).await?;
        verify(cell.touch, &reply, cell.size, sequence | REPLY)?;
        latencies_ns.push(nanoseconds(start.elapsed()));
    }
    Ok((requester, latencies_ns))
}

/// The part of the server that verifies the messages of a measurement and counts them.
#[derive(Clone, Debug)]
struct Verifier {
    cell: Cell,
    count: Arc<Count>,
}

/// The number of messages that the server has verified in a batch of operations. A thread waits for
/// the last message of the batch. Only that message wakes the thread, because a wake-up for each
/// message would be part of the measurement.
#[derive(Debug, Default)]
struct Count {
    numbers: Mutex<Numbers>,
    complete: Notify,
}

/// How many messages of the present batch of operations the server has verified, and how many the
/// batch has.
#[derive(Debug, Default)]
struct Numbers {
    verified: u64,
    /// Number of messages of the batch of operations; `None` while no thread waits for the batch's
    /// end.
    expected: Option<u64>,
}

impl Count {
    fn add(&self) {
        self.change(|numbers| numbers.verified += 1);
    }

    /// Waits until the server has verified `expected` messages since the end of the last batch of
    /// operations.
    async fn wait(&self, expected: u64) {
        self.change(|numbers| numbers.expected = Some(expected));
        self.complete.notified().await;
    }

    /// Changes the counts of verified and of expected messages with `change`, and notifies the
    /// waiting thread if the batch is then complete.
    fn change(&self, change: impl FnOnce(&mut Numbers)) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut numbers);
        if numbers.expected.is_some_and(|expected| numbers.verified >= expected) {
            *numbers = Numbers::default();
            drop(numbers);
            self.complete.notify_one();
        }
    }
}

impl Verifier {
    /// Verifies the payload of a request, and returns the payload of the reply.
    fn reply(&self, request: &[u8]) -> Result<Vec<u8>> {
        let sequence = head(request)?;
        verify(self.cell.touch, request, self.cell.size, sequence)?;
        let reply = payload(self.cell, sequence | REPLY);
        self.count.add();
        Ok(reply)
    }

    /// Verifies one message of a request that streams messages. Its number must follow `previous`,
    /// the number of the message before it.
    fn next(&self, message: &[u8], previous: &mut Option<u64>) -> Result<()> {
        let sequence = head(message)?;
        let expected = previous.map_or(sequence, |previous| previous + 1);
        ensure!(sequence == expected, "message {sequence} came instead of {expected}");
        verify(self.cell.touch, message, self.cell.size, sequence)?;
        *previous = Some(sequence);
        self.count.add();
        Ok(())
    }
}

/// Makes the payload of message `sequence`: the number `sequence`, and then bytes that are computed
/// from this number.
fn payload(cell: Cell, sequence: u64) -> Vec<u8> {
    let mut payload = vec![0; cell.size];
    cell.touch.fill_headed(&mut payload, sequence, sequence);
    payload
}

/// Returns the message number with which a payload begins.
fn head(payload: &[u8]) -> Result<u64> {
    let head = payload.first_chunk::<HEAD_SIZE>().context("a message without its number came")?;
    Ok(u64::from_le_bytes(*head))
}

fn verify(touch: Touch, message: &[u8], size: usize, sequence: u64) -> Result<()> {
    ensure!(message.len() == size, "received {} bytes instead of {size}", message.len());
    let head = touch.verify_headed(message, sequence)?;
    ensure!(head == sequence, "message {head:#x} came instead of {sequence:#x}");
    Ok(())
}

/// Makes a tokio runtime with one thread for each usable CPU, so one thread in a pinned process.
fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the tokio runtime")
}

/// Number of low bits of a message's number that count the requests of one client. The bits above
/// hold the index of the client.
const LANE_SHIFT: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::cell::TransportName;

    fn verifier() -> Verifier {
        let cell = Cell::new(Scenario::Grpc, TransportName::SHM, 64);
        Verifier { cell, count: Arc::default() }
    }

    fn counted(verifier: &Verifier) -> u64 {
        verifier.count.numbers.lock().unwrap().verified
    }

    #[test]
    fn wait_ends_with_the_last_message_whether_it_comes_before_or_after() {
        let (count, runtime) = (Arc::new(Count::default()), runtime().unwrap());
        for batch in 0..100 {
            let adding = Arc::clone(&count);
            let task = runtime.spawn(async move { (0..batch % 3 + 1).for_each(|_| adding.add()) });
            if batch % 2 == 0 {
                runtime.block_on(task).unwrap();
            }
            runtime.block_on(count.wait(batch % 3 + 1));
            assert_eq!(count.numbers.lock().unwrap().verified, 0, "the next batch begins at 0");
        }
    }

    #[test]
    fn request_verified_gets_the_reply_that_the_client_expects() {
        let verifier = verifier();
        let reply = verifier.reply(&payload(verifier.cell, 7)).unwrap();
        verify(Touch::All, &reply, 64, 7 | REPLY).unwrap();
        assert!(verify(Touch::All, &reply, 64, 8 | REPLY).is_err(), "the reply to another request");
        assert_eq!(counted(&verifier), 1);
    }

    #[test]
    fn corrupted_short_or_empty_request_is_rejected_and_not_counted() {
        let verifier = verifier();
        let mut request = payload(verifier.cell, 7);
        request[40] ^= 1;
        for wrong in [&request[..], &request[..32], &[]] {
            assert!(verifier.reply(wrong).is_err());
        }
        assert_eq!(counted(&verifier), 0);
    }

    #[test]
    fn stream_with_a_gap_is_rejected() {
        let verifier = verifier();
        let mut previous = None;
        verifier.next(&payload(verifier.cell, 3), &mut previous).unwrap();
        verifier.next(&payload(verifier.cell, 4), &mut previous).unwrap();
        assert!(verifier.next(&payload(verifier.cell, 6), &mut previous).is_err());
        assert_eq!(counted(&verifier), 2);
    }
}
