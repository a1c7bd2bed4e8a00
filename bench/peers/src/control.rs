// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the two processes of a measurement agree on what comes next: small JSON lines, never while the clock runs.
//!
//! ```text
//! parent                                 child (its stdin and stdout)
//!   {"Open":{cell, setup, amount}} ──►
//!                                  ◄──   {"Bound":{address}}        the parent connects
//!   "Begin"                        ──►
//!                                  ◄──   "Ready"                    both read their CPU clocks
//!   ~~~ messages on the lanes, nothing on the control pipe ~~~
//!   "End"                          ──►
//!                                  ◄──   {"Done":{cpu_ns}}          next "Open", or end of file
//! ```
//! Invariants: the child ends when its stdin does, so it never outlives its parent; the parent waits for every reply
//! with a deadline and ends the child it started when it is dropped.

use std::sync::mpsc::Receiver;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::cell::Cell;
use super::leftovers;
use super::second::{FAILURE_TIMEOUT, REPLY_TIMEOUT, Second, hear, say};
use super::setup::Setup;

/// What the parent says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Bind an address for this cell.
    Open {
        /// What is going to be measured.
        cell: Cell,
        /// What both sides need to know to meet.
        setup: Setup,
        /// Round trips per stream.
        amount: u64,
    },
    /// The measurement begins.
    Begin,
    /// It is over.
    End,
}

/// What the child answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The address of the cell.
    Bound {
        /// In the transport's own notation.
        address: String,
    },
    /// The measurement may begin.
    Ready,
    /// The measurement is over.
    Done {
        /// CPU time the child took, in nanoseconds.
        cpu_ns: u64,
    },
    /// It did not work; the child ends.
    Failed {
        /// One line.
        why: String,
    },
}

/// The parent's handle of the child process.
pub struct Child {
    second: Second<Reply>,
}

impl Child {
    /// Starts this program again as the child, on CPU `cpu` if one is given.
    pub fn start(cpu: Option<usize>) -> Result<Self> {
        Ok(Self { second: Second::start("child", cpu)? })
    }

    /// Opens a cell in the child; returns the address to connect to.
    pub fn open(&mut self, cell: Cell, setup: &Setup, amount: u64) -> Result<String> {
        match self.ask(&Request::Open { cell, setup: setup.clone(), amount })? {
            Reply::Bound { address } => Ok(address),
            other => bail!("expected an address from the second process, got {other:?}"),
        }
    }

    /// Begins the measurement; returns once the child is ready.
    pub fn begin(&mut self) -> Result<()> {
        match self.ask(&Request::Begin)? {
            Reply::Ready => Ok(()),
            other => bail!("the second process should be ready, but says {other:?}"),
        }
    }

    /// Ends the measurement; returns the CPU time it took the child, in nanoseconds.
    pub fn end(&mut self) -> Result<u64> {
        match self.ask(&Request::End)? {
            Reply::Done { cpu_ns } => Ok(cpu_ns),
            other => bail!("the second process should be done, but says {other:?}"),
        }
    }

    /// The reason the child gave for failing, if it did: it explains the error seen on the lane.
    pub fn failure(&self) -> Option<String> {
        match self.second.next_reply(FAILURE_TIMEOUT) {
            Ok(Reply::Failed { why }) => Some(why),
            _ => None,
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        self.second.tell(request)?;
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
        let parent = std::os::unix::process::parent_id();
        // It was killed, or it would have ended us.
        Self { requests: hear(move || leftovers::remove_of(parent)) }
    }

    /// Waits for what the parent wants next.
    pub fn next_request(&self) -> Result<Request> {
        self.requests.recv().context("the first process has gone")
    }

    /// Waits for `Begin`.
    pub fn wait_begin(&self) -> Result<()> {
        match self.next_request()? {
            Request::Begin => self.reply(&Reply::Ready),
            other => bail!("expected to begin, was told {other:?}"),
        }
    }

    /// Waits for `End`.
    pub fn wait_end(&self) -> Result<()> {
        match self.next_request()? {
            Request::End => Ok(()),
            other => bail!("expected to end, was told {other:?}"),
        }
    }

    /// Answers.
    pub fn reply(&self, reply: &Reply) -> Result<()> {
        say(reply)
    }
}
