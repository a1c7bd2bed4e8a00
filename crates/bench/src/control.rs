// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the two processes of a measurement agree on what comes next: small JSON lines, never while the clock runs.
//!
//! ```text
//! parent                                child (its stdin and stdout)
//!   {"open":{cell, setup}}      ──►
//!                               ◄──     {"bound":{address}}       the parent connects its lanes
//!   {"run":{amount}}            ──►
//!                               ◄──     "ready"                   both read their CPU clocks
//!   ~~~ messages on the lane, nothing on the control pipe ~~~
//!                               ◄──     {"done":{cpu_ns, …}}
//!   {"run":…} again, or "close" ──►                               next "open", or end of file
//! ```
//! Invariants: the child ends when its stdin does, so it never outlives its parent; the parent waits for every
//! reply with a deadline and ends the child it started when it is dropped.

use std::sync::mpsc::Receiver;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::cell::Cell;
use super::lane::Setup;
use super::measure::SessionCost;
use super::second::{FAILURE_TIMEOUT, REPLY_TIMEOUT, Second, hear, say};
use super::system;

/// What the parent says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Bind an address for this cell.
    Open {
        /// What is going to be measured.
        cell: Cell,
        /// What both sides need to know to meet.
        setup: Setup,
    },
    /// Take part in one batch; the scenario says what `amount` counts.
    Run {
        /// Operations, sessions or milliseconds.
        amount: u64,
    },
    /// Accept that many sessions and keep them (`connect` only).
    Hold {
        /// How many.
        sessions: usize,
    },
    /// One operation on each stream, answered only once the messages of all are there (`parallel` only).
    Gather,
    /// Forget the cell.
    Close,
}

/// What the child answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The address of the cell.
    Bound {
        /// In the transport's own notation.
        address: String,
    },
    /// The batch may begin.
    Ready,
    /// The batch is over.
    Done(Done),
    /// It did not work; the child ends.
    Failed {
        /// One line.
        why: String,
    },
}

/// The child's part of a batch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// CPU time the child took, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of threads that were there only to disturb, in nanoseconds.
    pub busy_cpu_ns: u64,
    /// Latencies that only the receiver can know, packed.
    pub latency: Vec<(u64, u64)>,
    /// What the sessions held by the child cost.
    pub session: Option<SessionCost>,
}

/// The parent's handle of the child process.
pub struct Child {
    second: Second<Reply>,
}

impl Child {
    /// Starts this program again as the child, on CPU `cpu` if one is given.
    pub fn start(cpu: Option<usize>) -> Result<Self> {
        Ok(Self { second: Second::start("bench-child", cpu)? })
    }

    /// Opens `cell` in the child; returns the address to connect to.
    pub fn open(&mut self, cell: Cell, setup: &Setup) -> Result<String> {
        self.tell(&Request::Open { cell, setup: setup.clone() })?;
        match self.next_reply()? {
            Reply::Bound { address } => Ok(address),
            other => bail!("expected an address from the second process, got {other:?}"),
        }
    }

    /// Has the child begin a batch; returns once it is ready.
    pub fn begin(&mut self, request: &Request) -> Result<()> {
        self.tell(request)?;
        match self.next_reply()? {
            Reply::Ready => Ok(()),
            other => bail!("the second process should be ready, but says {other:?}"),
        }
    }

    /// Waits for the child's part of the batch.
    pub fn finish(&mut self) -> Result<Done> {
        match self.next_reply()? {
            Reply::Done(done) => Ok(done),
            other => bail!("the second process should be done, but says {other:?}"),
        }
    }

    /// Ends the cell.
    pub fn close(&mut self) -> Result<()> {
        self.tell(&Request::Close)
    }

    /// The reason the child gave for failing, if it did: it explains the error seen on the lane.
    pub fn failure(&self) -> Option<String> {
        match self.second.next_reply(FAILURE_TIMEOUT) {
            Ok(Reply::Failed { why }) => Some(why),
            _ => None,
        }
    }

    fn tell(&mut self, request: &Request) -> Result<()> {
        self.second.tell(request)
    }

    fn next_reply(&self) -> Result<Reply> {
        match self.second.next_reply(REPLY_TIMEOUT)? {
            Reply::Failed { why } => Err(anyhow!("in the second process: {why}")),
            reply => Ok(reply),
        }
    }
}

/// The child's end of the control pipe.
pub struct Control {
    requests: Receiver<Request>,
}

impl Control {
    /// Takes stdin; from now on its end is the end of this process.
    pub fn from_stdin() -> Self {
        Self { requests: hear(|| {}) }
    }

    /// Waits for what the parent wants next.
    pub fn next_request(&self) -> Result<Request> {
        self.requests.recv().context("the first process has gone")
    }

    /// Answers.
    pub fn reply(&self, reply: &Reply) -> Result<()> {
        say(reply)
    }

    /// Takes part in batches until the parent closes the cell; measures the CPU time of each.
    pub fn serve(&self, mut batch: impl FnMut(Request) -> Result<Done>) -> Result<()> {
        loop {
            let request = self.next_request()?;
            if matches!(request, Request::Close) {
                return Ok(());
            }
            self.reply(&Reply::Ready)?;
            let cpu_before_ns = system::process_cpu_ns();
            let done = batch(request)?;
            let cpu_ns = system::process_cpu_ns() - cpu_before_ns;
            self.reply(&Reply::Done(Done {
                cpu_ns: cpu_ns.saturating_sub(done.busy_cpu_ns),
                ..done
            }))?;
        }
    }
}
