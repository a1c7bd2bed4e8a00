// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control pipe between the two processes of a measurement: JSON lines, none while the clock
//! runs.
//!
//! ```text
//! parent: Child                         child: Control (its stdin and stdout)
//!   {"open":{transport, cell, setup}} ──►
//!                                  ◄──   {"bound":{address}}       the parent connects
//!   {"run":{amount}}               ──►
//!                                  ◄──   "ready"                   both read their CPU clocks
//!   ~~~ messages on the measured transport, none on the control pipe ~~~
//!                                  ◄──   {"done":{cpu_ns, …}}
//!   {"run":…} again, or "close"    ──►                             next "open", or end of file
//! ```
//! A further process, the client of one connection, gets a single request:
//!
//! ```text
//!   {"connect":{address, …}}       ──►                             connects, sends, is answered
//!                                  ◄──   {"connected":{latency_ns, …}}
//! ```
//! Invariants: the child exits at the end of its stdin, so it never outlives the parent. The parent
//! waits for each reply with a deadline, and kills the child when `Child` is dropped.

use std::io::{BufRead, BufReader, Write};
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cell::Cell;
use super::clock::process_cpu_ns;
use super::round::{Carrier, SessionCost};
use super::workspace::{self, Setup};

/// A request that the parent process sends to the child process over the control pipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// The child process binds an address for the measurement of `cell`.
    Open {
        /// The name of the transport to measure; the serialised `cell` does not contain it.
        transport: String,
        /// The cell to measure.
        cell: Cell,
        /// The files and sizes that both processes need for the measurement.
        setup: Setup,
    },
    /// A new process is the client of one connection in the measurement of `cell` (`connect` only).
    Connect {
        /// The name of the transport to measure; the serialised `cell` does not contain it.
        transport: String,
        /// The cell to measure.
        cell: Cell,
        /// The files and sizes that both processes need for the measurement.
        setup: Setup,
        /// The address at which the child process accepts connections, in the notation of its
        /// transport.
        address: String,
    },
    /// The child takes part in one batch of `amount` operations, sessions or milliseconds.
    Run {
        /// The number of operations, sessions or milliseconds, as the scenario defines.
        amount: u64,
    },
    /// The child accepts `sessions` sessions and keeps them open (`connect` only).
    Hold {
        /// The number of sessions that the child accepts.
        sessions: usize,
    },
    /// The child performs one operation on each stream, and replies once the messages of all
    /// streams have arrived (`parallel` only).
    Gather,
    /// The child closes its end of the measurement that `Open` began, and waits for the next
    /// `Open`.
    Close,
}

/// A reply that the child process sends to the parent process over the control pipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The child has bound an address for the measurement that `Open` described.
    Bound {
        /// The address at which the child process accepts connections, in the notation of its
        /// transport.
        address: String,
    },
    /// The client of one connection has received the answer to its last message.
    Connected(Connected),
    /// The child is ready for the batch of operations, so the parent may begin the batch.
    Ready,
    /// The child has finished its part of the batch of operations, and reports these measurements.
    Done(Done),
    /// The child has failed to measure, and exits.
    Failed {
        /// The reason of the child's failure, on one line.
        why: String,
    },
}

/// The measurements that the child process made during one batch of operations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// CPU time of the child process in the batch of operations, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of the child's threads that only burn CPU, in nanoseconds (`oversubscribe` only).
    pub busy_cpu_ns: u64,
    /// Latencies that only the receiver can measure, as the pairs of value and count that
    /// `round::pack` makes.
    pub latency: Vec<(u64, u64)>,
    /// Cost of the sessions that the child holds (`connect` and `idle`); `None` in other scenarios.
    pub session: Option<SessionCost>,
}

/// The measurements that the client of one connection made in a process of its own.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Connected {
    /// Time from the call of connect until the answer to the last message came, in nanoseconds.
    pub latency_ns: u64,
    /// CPU time of the client's process in that time, in nanoseconds.
    pub cpu_ns: u64,
    /// The transport of the connection's last message, as the connection reports it.
    pub carrier: Option<Carrier>,
}

/// The parent's handle of the child process.
pub struct Child {
    process: process::Child,
    requests: ChildStdin,
    replies: Receiver<Reply>,
}

impl Child {
    /// Starts this program again as the child process, with the argument `command`, on CPU `cpu` if
    /// one is given.
    pub fn start(command: &str, cpu: Option<usize>) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut start = Command::new(program);
        start.arg(command);
        if let Some(cpu) = cpu {
            start.arg("--cpu").arg(cpu.to_string());
        }
        let mut process = start
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the child process")?;
        let (Some(requests), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            bail!("the child process has no control pipe");
        };
        let (sender, replies) = mpsc::channel();
        thread::spawn(move || forward_lines(BufReader::new(stdout), &sender));
        Ok(Self { process, requests, replies })
    }

    /// Asks the child process to bind an address for the measurement of `cell`. Returns the
    /// address, to which the parent connects.
    pub fn open(&mut self, cell: Cell, setup: &Setup) -> Result<String> {
        let transport = cell.transport.name().to_owned();
        self.send(&Request::Open { transport, cell, setup: setup.clone() })?;
        match self.next_reply()? {
            Reply::Bound { address } => Ok(address),
            other => bail!("expected an address from the child process, got {other:?}"),
        }
    }

    /// Asks this process, which was started for one connection, to be its client in the measurement
    /// of `cell`. Returns the client's measurements.
    pub fn connect(&mut self, cell: Cell, setup: &Setup, address: &str) -> Result<Connected> {
        let transport = cell.transport.name().to_owned();
        let (setup, address) = (setup.clone(), address.to_owned());
        self.send(&Request::Connect { transport, cell, setup, address })?;
        match self.next_reply()? {
            Reply::Connected(connected) => Ok(connected),
            other => bail!("expected a connection from the client process, got {other:?}"),
        }
    }

    /// Begins a batch of operations by sending `request` to the child; returns once the child has
    /// replied that it is ready.
    pub fn begin(&mut self, request: &Request) -> Result<()> {
        self.send(request)?;
        match self.next_reply()? {
            Reply::Ready => Ok(()),
            other => bail!("expected the child process to be ready, got {other:?}"),
        }
    }

    /// Waits until the child has finished its part of the batch of operations; returns the child's
    /// measurements.
    pub fn finish(&mut self) -> Result<Done> {
        match self.next_reply()? {
            Reply::Done(done) => Ok(done),
            other => bail!("expected the end of the batch from the child process, got {other:?}"),
        }
    }

    /// Asks the child to end the measurement that [`open`](Self::open) began.
    pub fn close(&mut self) -> Result<()> {
        self.send(&Request::Close)
    }

    /// The reason that the child gave for its failure, which explains the error that the parent saw
    /// on the measured transport.
    pub fn failure(&self) -> Option<String> {
        match self.replies.recv_timeout(FAILURE_TIMEOUT) {
            Ok(Reply::Failed { why }) => Some(why),
            _ => None,
        }
    }

    fn send(&mut self, request: &Request) -> Result<()> {
        write_line(&mut self.requests, request).context("writing to the child process")
    }

    fn next_reply(&self) -> Result<Reply> {
        let reply = self.replies.recv_timeout(REPLY_TIMEOUT);
        match reply.context("no reply from the child process")? {
            Reply::Failed { why } => Err(anyhow!("in the child process: {why}")),
            reply => Ok(reply),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The child may be stuck in the operation that failed, so it is killed. The next run
        // removes the child's files by their names.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The child's end of the control pipe, over which the parent sends requests and the child replies.
pub struct Control {
    requests: Receiver<Request>,
}

impl Control {
    /// Makes the child's end of the control pipe: requests come on stdin. At the end of stdin the
    /// parent process has ended, so this process removes the socket files of the run and exits.
    pub fn from_stdin(program: &'static str) -> Self {
        let parent = std::os::unix::process::parent_id();
        let (sender, requests) = mpsc::channel();
        thread::spawn(move || {
            forward_lines(std::io::stdin().lock(), &sender);
            // The parent was killed: a parent that ends in order kills this child first. So the
            // child removes the parent's files.
            workspace::remove_of(program, parent);
            process::exit(0);
        });
        Self { requests }
    }

    /// Waits for the next request of the parent.
    pub fn next_request(&self) -> Result<Request> {
        self.requests.recv().context("the parent process has gone")
    }

    /// Sends a reply from the child process to the parent process.
    pub fn reply(&self, reply: &Reply) -> Result<()> {
        write_line(&mut std::io::stdout().lock(), reply).context("writing to the parent process")
    }

    /// Takes part, as the child process, in batches of operations until the parent sends
    /// [`Request::Close`], and measures the CPU time of each batch.
    pub fn serve(&self, mut batch: impl FnMut(Request) -> Result<Done>) -> Result<()> {
        loop {
            let request = self.next_request()?;
            if matches!(request, Request::Close) {
                return Ok(());
            }
            self.reply(&Reply::Ready)?;
            let cpu_before_ns = process_cpu_ns();
            let done = batch(request)?;
            let cpu_ns = process_cpu_ns() - cpu_before_ns;
            self.reply(&Reply::Done(Done {
                cpu_ns: cpu_ns.saturating_sub(done.busy_cpu_ns),
                ..done
            }))?;
        }
    }
}

fn write_line(to: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    Ok(to.flush()?)
}

/// Parses each line that arrives over the pipe from the other process, and passes the message in it
/// to the thread that receives from `to`. Ends when the pipe ends, when a line is not a message, or
/// when that thread receives no more.
fn forward_lines<T: DeserializeOwned>(from: impl BufRead, to: &Sender<T>) {
    for line in from.lines() {
        let Ok(line) = line else { return };
        let Ok(message) = serde_json::from_str(&line) else { return };
        if to.send(message).is_err() {
            return;
        }
    }
}

/// Maximum wait for a reply of the child. Mapping a gigabyte may take seconds. The time of a batch
/// of operations has another bound, which the watchdog checks.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time for which the parent, after a failure of its own, waits for the child to report the
/// reason of the failure.
const FAILURE_TIMEOUT: Duration = Duration::from_millis(500);
