// SPDX-License-Identifier: MIT OR Apache-2.0
//! `connect`: sessions opened, used once and closed, one after the other; then what a held one costs.
//!
//! One operation is connect, one message there and back, close: without the message, a socket would count as
//! connected before the other process has even looked at it.
//!
//! The cost of a session is the growth per session of resident memory, own shared memory and descriptors while
//! 32 are held open, each used once; the larger value of the two sides is reported.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::cell::Cell;
use super::control::{Control, Done, Request};
use super::footprint::Footprint;
use super::lane::{Door, Lane};
use super::measure::{Round, histogram};
use super::parent::{Pair, nanoseconds};
use super::ping::{echo_one, ping_one};

/// The parent's part.
pub fn measure<L: Lane>(
    cell: Cell,
    connect: impl Fn() -> Result<L>,
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
        let lanes = (0..SESSIONS as u64)
            .map(|sequence| {
                let mut lane = connect()?;
                ping_one(cell, &mut lane, sequence)?;
                Ok(lane)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok((Footprint::now()?.since(before, SESSIONS), lanes))
    })?;
    let (cost, _lanes) = held.value;
    let session = Some(cost.worse(held.done.session.unwrap_or_default()));
    Ok(Round { session, ..batch.round(ops, 2 * ops * cell.size as u64, latency) })
}

/// The child's part.
pub fn accept<D: Door>(cell: Cell, door: &mut D, control: &Control) -> Result<()> {
    let mut held = Vec::new();
    control.serve(|request| match request {
        Request::Run { amount } => {
            for sequence in 0..amount {
                let mut lane = door.accept()?;
                echo_one(cell, &mut lane, sequence)?;
                lane.settle()?;
            }
            Ok(Done::default())
        }
        Request::Hold { sessions } => {
            let before = Footprint::now()?;
            for sequence in 0..sessions as u64 {
                let mut lane = door.accept()?;
                echo_one(cell, &mut lane, sequence)?;
                lane.settle()?;
                held.push(lane);
            }
            let cost = Footprint::now()?.since(before, sessions);
            Ok(Done { session: Some(cost), ..Done::default() })
        }
        Request::Open { .. } | Request::Gather | Request::Close => {
            bail!("connect only runs and holds")
        }
    })
}

/// Sessions held open to see what one costs.
const SESSIONS: usize = 32;

/// Most sessions per round: each TCP connection keeps a port busy for a minute after it is closed.
const OPS_MAX: u64 = 2_000;
