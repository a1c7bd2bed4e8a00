// SPDX-License-Identifier: MIT OR Apache-2.0
//! `connect`: sessions are opened, used once and closed, one after the other; then the cost of an
//! open session is measured.
//!
//! One operation is connect, one message there and back, close. Without the message, a socket would
//! count as connected before the other process has accepted it.
//!
//! The cost of a session is the growth of resident memory, of shared memory that only this process
//! writes, and of descriptors, divided by the number of sessions. To measure this cost, 32 sessions
//! are open, each used once. The larger value of the two processes is reported.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::ping::{echo_one, ping_one};
use crate::harness::cell::Cell;
use crate::harness::clock::nanoseconds;
use crate::harness::control::{Control, Done, Request};
use crate::harness::footprint::Footprint;
use crate::harness::pair::Pair;
use crate::harness::round::{Round, histogram};
use crate::transport::{Acceptor, Endpoint};

/// Runs the parent's part of `connect`, and returns its measurements.
pub fn measure<E: Endpoint>(
    cell: Cell,
    connect: impl Fn() -> Result<E>,
    duration: Duration,
    pair: &mut Pair,
) -> Result<Round> {
    let mut latency = histogram()?;
    let open_use_close = |ops: u64, latency: &mut hdrhistogram::Histogram<u64>| -> Result<()> {
        for sequence in 0..ops {
            let start = Instant::now();
            ping_one(cell, &mut connect()?, sequence)?;
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
                ping_one(cell, &mut endpoint, sequence)?;
                Ok(endpoint)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok((Footprint::now()?.since(before, SESSIONS), endpoints))
    })?;
    let (cost, _endpoints) = held.value;
    let session = Some(cost.worse(held.done.session.unwrap_or_default()));
    Ok(Round { session, ..batch.round(ops, 2 * ops * cell.size as u64, latency) })
}

/// Runs the child's part of `connect`.
pub fn serve<A: Acceptor>(cell: Cell, acceptor: &mut A, control: &Control) -> Result<()> {
    let mut held = Vec::new();
    control.serve(|request| match request {
        Request::Run { amount } => {
            for sequence in 0..amount {
                let mut endpoint = acceptor.accept()?;
                echo_one(cell, &mut endpoint, sequence)?;
                endpoint.settle()?;
            }
            Ok(Done::default())
        }
        Request::Hold { sessions } => {
            let before = Footprint::now()?;
            for sequence in 0..sessions as u64 {
                let mut endpoint = acceptor.accept()?;
                echo_one(cell, &mut endpoint, sequence)?;
                endpoint.settle()?;
                held.push(endpoint);
            }
            let cost = Footprint::now()?.since(before, sessions);
            Ok(Done { session: Some(cost), ..Done::default() })
        }
        Request::Open { .. } | Request::Gather | Request::Close => {
            bail!("connect has no other requests than run and hold")
        }
    })
}

/// Number of sessions that are open at once when the cost of one session is computed.
const SESSIONS: usize = 32;

/// Maximum number of sessions per round: each closed TCP connection occupies a port for a minute.
const OPS_MAX: u64 = 2_000;
