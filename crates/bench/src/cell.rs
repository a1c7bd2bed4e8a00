// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be measured: a *cell* is one scenario on one transport with one way to wait and one size.
//!
//! ```text
//! cell = scenario × transport × wait × size × streams × rate × processes        measured once per round
//! ```
//! It does *not* say which cells a run contains; that is `plan.rs`.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::duplex;
use super::pattern::Touch;

/// What is done with the messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// One message in flight, there and back.
    Ping,
    /// One way, as fast as back-pressure allows.
    Flood,
    /// Both ways at once, as fast as possible.
    Duplex,
    /// One way, at a fixed rate, measured from the intended send time.
    Rate,
    /// Many pairs at once on too few cores.
    Crowd,
    /// Many streams of one session at once, on tokio.
    Parallel,
    /// A session opened, used once and closed.
    Connect,
    /// A session that nobody uses.
    Idle,
}

/// What carries the messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TransportName {
    /// Partywall's shared memory.
    SharedMemory,
    /// A link, kept in files that each end reads of the other.
    LinkShm,
    /// A link, kept in files, over TCP on loopback.
    LinkTcp,
    /// A link, kept in files, over a Unix socket.
    LinkUds,
    /// A Unix stream socket.
    Uds,
    /// TCP over loopback, with `TCP_NODELAY`.
    Tcp,
    /// Two pipes.
    Pipe,
    /// The floor of shared memory: the bytes and one flag word, nothing else.
    FloorSpin,
    /// The floor of sleeping: an eventfd written and read, no payload.
    FloorEventfd,
}

/// How Partywall waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum WaitName {
    /// Look until it is there; never sleep.
    Spin,
    /// Spin for a while, then sleep (the default of the library).
    Adaptive,
    /// Sleep at once.
    Park,
    /// Sleep for a fixed period between looks.
    Timed,
}

/// Where the two ends live.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Processes {
    /// Both in the first (`parallel` only).
    One,
    /// One each.
    Two,
    /// One each, both on the CPU of the second (`ping` only): waking the other costs no more than the system's work.
    TwoOnOneCpu,
}

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// What is done.
    pub scenario: Scenario,
    /// What carries it.
    pub transport: TransportName,
    /// How Partywall waits; `None` for all others.
    pub wait: Option<WaitName>,
    /// Bytes per message.
    pub size: usize,
    /// Pairs or streams at work at once (1 except in `crowd` and `parallel`; in `idle` the sessions held open).
    pub streams: usize,
    /// Streams besides, which are sent to without end and never read (`parallel` only).
    pub unread: usize,
    /// Where the two ends live.
    pub processes: Processes,
    /// Threads that only burn CPU, in each process (`crowd` only).
    pub busy: usize,
    /// Messages per second (`rate` only).
    pub rate: Option<u64>,
    /// Whether payloads are written and verified.
    pub touch: Touch,
}

impl Cell {
    /// A cell with one stream, everything touched.
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
            touch: Touch::All,
        }
    }

    /// Whether this can be measured at all.
    pub fn is_possible(&self) -> bool {
        self.scenario.fits(self.transport)
            && (self.scenario == Scenario::Ping || !self.is_on_one_cpu())
            && (self.scenario != Scenario::Duplex || duplex::fits(self.transport, self.size))
    }

    /// The same, waiting as `wait` says.
    pub const fn waiting(self, wait: WaitName) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// The same, with both ends on one CPU.
    pub const fn on_one_cpu(self) -> Self {
        Self { processes: Processes::TwoOnOneCpu, ..self }
    }

    /// Whether both processes share one CPU.
    pub fn is_on_one_cpu(&self) -> bool {
        self.processes == Processes::TwoOnOneCpu
    }

    /// The same, with `rate` messages per second.
    pub const fn at_rate(self, rate: u64) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// The same, with `streams` pairs, streams or sessions.
    pub const fn with_streams(self, streams: usize) -> Self {
        Self { streams, ..self }
    }
}

impl Scenario {
    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Flood => "flood",
            Self::Duplex => "duplex",
            Self::Rate => "rate",
            Self::Crowd => "crowd",
            Self::Parallel => "parallel",
            Self::Connect => "connect",
            Self::Idle => "idle",
        }
    }

    /// Whether the scenario makes sense on `transport`: floors have neither back-pressure nor sessions, a pipe
    /// has one stream, and a link has a name that only one pair may have.
    pub const fn fits(self, transport: TransportName) -> bool {
        match transport {
            TransportName::FloorSpin | TransportName::FloorEventfd => matches!(self, Self::Ping),
            TransportName::Pipe => !matches!(self, Self::Parallel | Self::Connect | Self::Idle),
            TransportName::LinkShm | TransportName::LinkTcp | TransportName::LinkUds => {
                matches!(self, Self::Ping | Self::Flood | Self::Duplex | Self::Rate)
            }
            TransportName::SharedMemory | TransportName::Uds | TransportName::Tcp => true,
        }
    }
}

impl TransportName {
    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shm",
            Self::LinkShm => "link-wall",
            Self::LinkTcp => "link-tcp",
            Self::LinkUds => "link-uds",
            Self::Uds => "uds",
            Self::Tcp => "tcp",
            Self::Pipe => "pipe",
            Self::FloorSpin => "floor-spin",
            Self::FloorEventfd => "floor-eventfd",
        }
    }
}

impl Processes {
    /// How many.
    pub const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two | Self::TwoOnOneCpu => 2,
        }
    }
}

impl WaitName {
    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Adaptive => "adaptive",
            Self::Park => "park",
            Self::Timed => "timed",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.scenario.name(), self.transport.name())?;
        if let Some(wait) = self.wait {
            write!(f, " {}", wait.name())?;
        }
        write!(f, " {}", super::arguments::size_name(self.size))?;
        if self.is_on_one_cpu() {
            write!(f, " on one CPU")?;
        }
        if self.scenario == Scenario::Parallel {
            write!(f, " ×{}", self.streams)?;
        }
        if self.unread > 0 {
            write!(f, " + {} unread", self.unread)?;
        }
        if let Some(rate) = self.rate {
            write!(f, " at {rate}/s")?;
        }
        Ok(())
    }
}
