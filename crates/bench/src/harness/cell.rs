// SPDX-License-Identifier: MIT OR Apache-2.0
//! A *cell*: one combination of scenario, transport, wait strategy and size, measured once per
//! round.
//!
//! ```text
//! cell = scenario × transport × wait × size × streams × rate × messages × processes
//! ```
//! This file does *not* say which combinations exist (`table.rs`) nor which of them a run measures
//! (`plan.rs`).

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::pattern::Touch;
use crate::figure::quantity::exact_size_name;

/// A scenario of the benchmark: the pattern of the messages between the two processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// Scenario `ping`: one message is in flight; it is sent there and back.
    Ping,
    /// Scenario `throughput`: messages go in one direction, as fast as back-pressure allows.
    Throughput,
    /// Scenario `duplex`: messages go in both directions at once, as fast as possible.
    Duplex,
    /// Scenario `rate`: messages go in one direction at a fixed rate; latencies count from the
    /// intended send time.
    Rate,
    /// Scenario `oversubscribe`: more pairs of threads exchange messages at once than the machine
    /// has cores.
    Oversubscribe,
    /// Scenario `parallel`: many streams of one session carry messages at once, on tokio.
    Parallel,
    /// Scenario `connect`: sessions are opened, used once and closed.
    Connect,
    /// Scenario `idle`: sessions carry no messages; the CPU time and wake-ups of blocked receivers
    /// are measured.
    Idle,
    /// Scenario `grpc`: unary calls of gRPC over byte streams, with tonic.
    Grpc,
    /// Scenario `grpc-stream`: one call of gRPC that sends a stream of messages, with tonic.
    GrpcStream,
    /// Scenario `http`: requests of HTTP/1.1 over byte streams, with hyper.
    Http,
    /// Scenario `http-stream`: one request of HTTP/1.1 whose body is a stream of messages, with
    /// hyper.
    HttpStream,
}

/// The name of a transport on the command line and in JSON; the table of transports defines it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TransportName(pub &'static str);

/// How Partywall waits for a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum WaitName {
    /// Poll in a loop until the message has arrived, without ever sleeping
    Spin,
    /// Spin for a while, then sleep (the library's default)
    Adaptive,
    /// Sleep at once, until the peer wakes the receiver
    Park,
    /// Sleep for a fixed period between two polls; the peer sends no wake-up
    Poll,
}

/// The processes in which the two ends of each connection run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Processes {
    /// Both ends of each connection run in the parent process, which is not pinned (`parallel`
    /// only).
    One,
    /// Parent and child process each run one end of every connection.
    Two,
    /// Each process runs one end, and both are pinned to the child's CPU (`ping` only): a wake-up
    /// of the other process then costs only system calls, and not the wake-up of a second CPU.
    TwoOnOneCpu,
}

/// One combination of parameters, which is measured once per round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The scenario, which is the pattern of messages.
    pub scenario: Scenario,
    /// The transport that carries the messages. The pipe between parent and child process carries
    /// the transport's name separately from the cell, because a `'static` text cannot be
    /// deserialised.
    #[serde(skip)]
    pub transport: TransportName,
    /// The way in which Partywall waits for a message; `None` for all other transports.
    pub wait: Option<WaitName>,
    /// The length of each message of the measurement in bytes.
    pub size: usize,
    /// Number of pairs or streams at once (1 except in `oversubscribe` and `parallel`); in `idle`,
    /// number of sessions; in `grpc` and `http`, number of calls in flight.
    pub streams: usize,
    /// Number of additional streams on which the sender never stops sending and the receiver never
    /// reads (`parallel` only).
    pub unread: usize,
    /// The processes in which the two ends run.
    pub processes: Processes,
    /// Number of additional threads in each process that exchange no messages and only burn CPU
    /// (`oversubscribe` only).
    pub busy: usize,
    /// Number of messages per second that the sender sends (`rate` only).
    pub rate: Option<u64>,
    /// Number of messages that the client sends on each connection (1 except in `connect`).
    pub messages: u64,
    /// Whether a new client process opens each connection (`connect` only).
    pub is_fresh: bool,
    /// Whether senders write the payloads and receivers verify them.
    pub touch: Touch,
}

impl Cell {
    /// Makes a cell with one stream, two processes, and payloads that
    /// are written and verified.
    pub const fn new(scenario: Scenario, transport: TransportName, size: usize) -> Self {
        Self {
            scenario,
            transport,
            wait: None,
            size,
            streams: 1,
            unread: 0,
            processes: Processes::Two,
            busy: 0,
            rate: None,
            messages: 1,
            is_fresh: false,
            touch: Touch::All,
        }
    }

    /// Makes a cell over Partywall's shared memory, with the wait
    /// strategy `wait`.
    pub const fn shm(scenario: Scenario, size: usize, wait: WaitName) -> Self {
        Self::new(scenario, TransportName::SHM, size).waiting(wait)
    }

    /// Returns a copy of this cell with the wait strategy `wait`.
    pub const fn waiting(self, wait: WaitName) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Returns a copy of this cell with both processes pinned to one
    /// CPU.
    pub const fn on_one_cpu(self) -> Self {
        Self { processes: Processes::TwoOnOneCpu, ..self }
    }

    /// Whether parent and child process share one CPU.
    pub fn is_on_one_cpu(&self) -> bool {
        self.processes == Processes::TwoOnOneCpu
    }

    /// Returns a copy of this cell with `rate` messages per second.
    pub const fn at_rate(self, rate: u64) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// Returns a copy of this cell with `messages` messages on each
    /// connection.
    pub const fn with_messages(self, messages: u64) -> Self {
        Self { messages, ..self }
    }

    /// Returns a copy of this cell with a new client process for each
    /// connection.
    pub const fn fresh(self) -> Self {
        Self { is_fresh: true, ..self }
    }

    /// Returns a copy of this cell with `streams` pairs, streams or
    /// sessions, whichever its scenario has.
    pub const fn with_streams(self, streams: usize) -> Self {
        Self { streams, ..self }
    }
}

impl Scenario {
    /// The name of this scenario on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Throughput => "throughput",
            Self::Duplex => "duplex",
            Self::Rate => "rate",
            Self::Oversubscribe => "oversubscribe",
            Self::Parallel => "parallel",
            Self::Connect => "connect",
            Self::Idle => "idle",
            Self::Grpc => "grpc",
            Self::GrpcStream => "grpc-stream",
            Self::Http => "http",
            Self::HttpStream => "http-stream",
        }
    }

    /// Whether this scenario measures a framework, tonic for gRPC or hyper for HTTP, over byte
    /// streams.
    pub const fn is_of_frameworks(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcStream | Self::Http | Self::HttpStream)
    }

    /// Whether this build has the scenario: those of gRPC and HTTP need the feature `frameworks`.
    pub const fn is_built(self) -> bool {
        cfg!(feature = "frameworks") || !self.is_of_frameworks()
    }

    /// Whether only the client of this scenario sends messages, and gets a single reply to all of
    /// them.
    pub const fn is_one_way(self) -> bool {
        matches!(self, Self::GrpcStream | Self::HttpStream)
    }
}

impl TransportName {
    /// The transport `shm`: Partywall over shared memory.
    pub const SHM: Self = Self("shm");
    /// The transport `shm-move`: Partywall on connections that begin on a Unix socket and move to
    /// shared memory.
    pub const SHM_MOVE: Self = Self("shm-move");
    /// The transport `link-shm`: a link whose two ends are connected by shared memory.
    pub const LINK_SHM: Self = Self("link-shm");
    /// The transport `link-tcp`: a link whose two ends are connected by TCP on loopback.
    pub const LINK_TCP: Self = Self("link-tcp");
    /// The transport `link-uds`: a link whose two ends are connected by a Unix socket.
    pub const LINK_UDS: Self = Self("link-uds");
    /// The transport `uds`: a Unix stream socket.
    pub const UDS: Self = Self("uds");
    /// The transport `tcp`: TCP on loopback.
    pub const TCP: Self = Self("tcp");
    /// The transport `pipe`: two pipes, one for each direction.
    pub const PIPE: Self = Self("pipe");
    /// The transport `baseline-spin`: plain shared memory with one flag word, on which both ends
    /// spin: the lower bound for any shared-memory transport.
    pub const BASELINE_SPIN: Self = Self("baseline-spin");
    /// The transport `baseline-eventfd`: a bare eventfd without payload, the lower bound for any
    /// transport that wakes a sleeping process.
    pub const BASELINE_EVENTFD: Self = Self("baseline-eventfd");

    /// The name of this transport in tables and in flags.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl Processes {
    /// The number of processes in which the two ends run: 1 or 2.
    pub const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two | Self::TwoOnOneCpu => 2,
        }
    }
}

impl WaitName {
    /// The name of this wait strategy on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Adaptive => "adaptive",
            Self::Park => "park",
            Self::Poll => "poll",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.scenario.name(), self.transport.name())?;
        if let Some(wait) = self.wait {
            write!(f, " {}", wait.name())?;
        }
        write!(f, " {}", exact_size_name(self.size))?;
        if self.is_on_one_cpu() {
            write!(f, " on one CPU")?;
        }
        if matches!(self.scenario, Scenario::Parallel | Scenario::Grpc | Scenario::Http) {
            write!(f, " ×{}", self.streams)?;
        }
        if self.unread > 0 {
            write!(f, " + {} unread", self.unread)?;
        }
        if let Some(rate) = self.rate {
            write!(f, " at {rate}/s")?;
        }
        if self.messages > 1 {
            write!(f, ", {} messages", self.messages)?;
        }
        if self.is_fresh {
            write!(f, ", fresh")?;
        }
        Ok(())
    }
}
