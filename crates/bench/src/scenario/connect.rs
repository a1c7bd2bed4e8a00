// SPDX-License-Identifier: MIT OR Apache-2.0
//! `connect`: connections are opened, used and closed, one after the other; then the cost of an
//! open session is measured.
//!
//! ```text
//! client   connect ─ message 1 … message n ──►            receives the answer │ close
//! server                        accept ─ receives n messages ─ answers ──┘
//! clock    ├────────────────────────────────────────────────────────────┤       a fresh client
//!          ├────────────────────────────────────────────────────────────────────┤  the same client
//! ```
//! Without the answer, a socket would count as connected before the other process has accepted it.
//! The answer goes out once the last message has been received and verified.
//!
//! A fresh client is a new process for each connection. It reads the clock itself and reports the
//! time over its control pipe, so its start is not part of the time. Otherwise all connections
//! come from the parent, and the time includes the close.
//!
//! The cost of a session is the growth of resident memory, of shared memory that only this process
//! writes, and of descriptors, divided by the number of sessions. To measure this cost, 32 sessions
//! are open, each used once. The larger value of the two processes is reported.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::harness::cell::Cell;
use crate::harness::clock::{nanoseconds, process_cpu_ns};
use crate::harness::control::{Child, Connected, Control, Done, Request};
use crate::harness::footprint::Footprint;
use crate::harness::pair::Pair;
use crate::harness::pattern::REPLY;
use crate::harness::round::{Carrier, Round, histogram};
use crate::harness::workspace::Setup;
use crate::transport::{Acceptor, Endpoint};

/// Measures `connect` in the parent process, which opens all connections itself. Returns the
/// measurements.
pub fn measure<E: Endpoint>(
    cell: Cell,
    connect: impl Fn() -> Result<E>,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut latency = histogram()?;
    let mut carrier = None;
    let mut open_use_close = |ops: u64, latency: &mut hdrhistogram::Histogram<u64>| -> Result<()> {
        for sequence in 0..ops {
            let start = Instant::now();
            let mut endpoint = connect()?;
            ask(cell, &mut endpoint, sequence)?;
            carrier = Carrier::of_both(carrier, endpoint.carrier());
            drop(endpoint);
            latency.saturating_record(nanoseconds(start.elapsed()));
        }
        Ok(())
    };
    let ops = pair.calibrate(duration, |ops| open_use_close(ops, &mut latency))?.min(OPS_MAX);
    latency.reset();
    let batch = pair.run(ops, || open_use_close(ops, &mut latency))?;
    let held = pair.batch(&Request::Hold { sessions: SESSIONS }, || {
        let before = Footprint::now()?;
        let endpoints = (0..SESSIONS as u64)
            .map(|sequence| {
                let mut endpoint = connect()?;
                ask(cell, &mut endpoint, sequence)?;
                Ok(endpoint)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok((Footprint::now()?.since(before, SESSIONS), endpoints))
    })?;
    let (cost, _endpoints) = held.value;
    let session = Some(cost.worse(held.done.session.unwrap_or_default()));
    Ok(Round { session, carrier, ..batch.round(ops, bytes(cell, ops), latency) })
}

/// Measures `connect` with a new client process for each connection; the parent process starts
/// them. Returns the measurements of the new processes and of the child, which is the server.
pub fn measure_fresh(
    cell: Cell,
    setup: &Setup,
    address: &str,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let child_command = pair.child_command;
    let connect = |ops: u64| -> Result<Vec<Connected>> {
        // Without a CPU of its own (`None`), the new process inherits the CPU to which the calling
        // thread is pinned.
        let client = || Child::start(child_command, None)?.connect(cell, setup, address);
        (0..ops).map(|_| client().context("in the client process")).collect()
    };
    let ops = pair.calibrate(duration, |ops| connect(ops).map(drop))?.min(OPS_MAX);
    let batch = pair.run(ops, || connect(ops))?;
    let mut latency = histogram()?;
    let mut round = batch.round(ops, bytes(cell, ops), histogram()?);
    (round.elapsed_ns, round.cpu_parent_ns) = (0, 0);
    for connected in &batch.value {
        latency.saturating_record(connected.latency_ns);
        round.elapsed_ns += connected.latency_ns;
        round.cpu_parent_ns += connected.cpu_ns;
        round.carrier = Carrier::of_both(round.carrier, connected.carrier);
    }
    Ok(Round { latency, ..round })
}

/// Runs, in a process that was started for one connection, the client of `connect`: connects, sends
/// the messages, and waits for the answer. Returns its measurements.
pub fn connect_once<E: Endpoint>(
    cell: Cell,
    connect: impl FnOnce() -> Result<E>,
) -> Result<Connected> {
    let cpu_before_ns = process_cpu_ns();
    let start = Instant::now();
    let mut endpoint = connect()?;
    ask(cell, &mut endpoint, 0)?;
    let latency_ns = nanoseconds(start.elapsed());
    let cpu_ns = process_cpu_ns() - cpu_before_ns;
    Ok(Connected { latency_ns, cpu_ns, carrier: endpoint.carrier() })
}

/// Runs the server of the scenario `connect` in the child process: accepts connections, and answers
/// the last message of each.
pub fn serve<A: Acceptor>(cell: Cell, acceptor: &mut A, control: &Control) -> Result<()> {
    let mut held = Vec::new();
    control.serve(|request| match request {
        Request::Run { amount } => {
            for sequence in 0..amount {
                // With `--fresh`, each connection has a new client process, which counts its
                // connections from 0. So the payloads of all its messages are those of connection
                // 0.
                let sequence = if cell.is_fresh { 0 } else { sequence };
                let mut endpoint = acceptor.accept()?;
                answer(cell, &mut endpoint, sequence)?;
                endpoint.settle()?;
            }
            Ok(Done::default())
        }
        Request::Hold { sessions } => {
            let before = Footprint::now()?;
            for sequence in 0..sessions as u64 {
                let mut endpoint = acceptor.accept()?;
                answer(cell, &mut endpoint, sequence)?;
                endpoint.settle()?;
                held.push(endpoint);
            }
            let cost = Footprint::now()?.since(before, sessions);
            Ok(Done { session: Some(cost), ..Done::default() })
        }
        Request::Open { .. } | Request::Connect { .. } | Request::Gather | Request::Close => {
            bail!("connect has no other requests than run and hold")
        }
    })
}

/// Sends all messages of connection number `connection`, and waits for the answer to the last.
fn ask(cell: Cell, endpoint: &mut impl Endpoint, connection: u64) -> Result<()> {
    for sequence in sequences(cell, connection) {
        endpoint.send(cell.size, |message| cell.touch.fill(message, sequence))?;
    }
    endpoint.receive(cell.size, |message| cell.touch.verify(message, connection | REPLY))??;
    Ok(())
}

/// Receives all messages of connection number `connection`, and answers the last.
fn answer(cell: Cell, endpoint: &mut impl Endpoint, connection: u64) -> Result<()> {
    for sequence in sequences(cell, connection) {
        endpoint.receive(cell.size, |message| cell.touch.verify(message, sequence))??;
    }
    endpoint.send(cell.size, |message| cell.touch.fill(message, connection | REPLY))
}

/// The numbers from which the payloads of connection number `connection` are computed.
fn sequences(cell: Cell, connection: u64) -> std::ops::Range<u64> {
    connection * cell.messages..(connection + 1) * cell.messages
}

/// Payload bytes that `ops` connections carry, in both directions together.
const fn bytes(cell: Cell, ops: u64) -> u64 {
    ops * (cell.messages + 1) * cell.size as u64
}

/// Number of sessions that are open at once when the cost of one session is computed.
const SESSIONS: usize = 32;

/// Maximum number of sessions per round: each closed TCP connection occupies a port for a minute.
const OPS_MAX: u64 = 2_000;
