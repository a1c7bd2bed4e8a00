// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of transports: one row each, with the scenarios that run on it.
//!
//! ```text
//! row = name · help · scenarios · Runner of channels · of streams · of frameworks
//! ```
//! A `Runner` holds the functions that measure on the transport. A program may have its own table:
//! `bench/peers` adds rows for other libraries.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::harness::cell::{Cell, Processes, Scenario, TransportName};
use crate::scenario::Runner;
use crate::scenario::duplex::WINDOW_BYTES;
use crate::transport::baseline_eventfd::BaselineEventfd;
use crate::transport::baseline_spin::BaselineSpin;
use crate::transport::link::{LinkShm, LinkTcp, LinkUds};
use crate::transport::pipe::Pipe;
use crate::transport::shm::{Shm, ShmMove};
use crate::transport::tcp::Tcp;
use crate::transport::uds::Uds;

/// A row of the table of transports: one transport with the scenarios that run on it.
pub struct Row {
    /// The name of the transport on the command line and in JSON.
    pub name: TransportName,
    /// Further names of the transport that the command line accepts.
    pub aliases: &'static [&'static str],
    /// The line about the transport in the help of the command line.
    pub help: &'static str,
    /// The scenarios that run on the transport's channels and streams.
    pub scenarios: &'static [Scenario],
    /// The functions that measure on the transport's blocking channels; `None` if the transport has
    /// no channels.
    pub channels: Option<Runner>,
    /// The functions that measure `parallel` on the transport's asynchronous streams; `None` if the
    /// transport has no streams.
    pub streams: Option<Runner>,
    /// The functions that measure `grpc` and `http` on the transport's byte streams; `None` if the
    /// transport has no byte streams, or if this build has no frameworks.
    pub frameworks: Option<Runner>,
    /// Maximum message size of `duplex` in bytes. The kernel buffers do not hold a longer message,
    /// so both ends would block on sending.
    pub duplex_size_max: u64,
}

/// A table of transports, in which a program finds the functions that measure one cell.
#[derive(Clone, Copy)]
pub struct Transports(pub &'static [Row]);

impl Row {
    /// Makes the row of a transport of channels on which only `ping` runs.
    pub const fn new(name: TransportName, help: &'static str, runner: Runner) -> Self {
        Self {
            name,
            aliases: &[],
            help,
            scenarios: &[Scenario::Ping],
            channels: Some(runner),
            streams: None,
            frameworks: None,
            duplex_size_max: u64::MAX,
        }
    }
}

impl Transports {
    /// The row of the transport with this name, if the table has it.
    pub fn find(self, name: &str) -> Option<&'static Row> {
        let is_it = |row: &&Row| row.name.name() == name || row.aliases.contains(&name);
        self.0.iter().find(is_it)
    }

    /// The functions (`Runner`) that measure `cell`; `None` if the transport does not offer its
    /// scenario, size or placement of processes.
    pub fn runner(self, cell: Cell) -> Option<Runner> {
        let row = self.find(cell.transport.name())?;
        let is_of_frameworks = cell.scenario.is_of_frameworks();
        let fits = (is_of_frameworks || row.scenarios.contains(&cell.scenario))
            && (cell.processes != Processes::TwoOnOneCpu || cell.scenario == Scenario::Ping)
            && (cell.scenario != Scenario::Duplex || cell.size as u64 <= row.duplex_size_max);
        let runner = match cell.scenario {
            _ if is_of_frameworks => row.frameworks,
            Scenario::Parallel => row.streams,
            _ => row.channels,
        };
        runner.filter(|_| fits)
    }

    /// The parser for a transport's name on the command line.
    pub fn parser(self) -> impl TypedValueParser<Value = TransportName> {
        let value = |row: &Row| {
            PossibleValue::new(row.name.name()).help(row.help).aliases(row.aliases.iter().copied())
        };
        PossibleValuesParser::new(self.0.iter().map(value))
            .map(move |name| self.find(&name).map_or(TransportName::default(), |row| row.name))
    }
}

/// The transports that `partywall bench` can measure.
pub const TRANSPORTS: Transports = Transports(&[
    Row {
        scenarios: &EVERY_SCENARIO,
        streams: Some(Runner::streams::<Shm>()),
        #[cfg(feature = "frameworks")]
        frameworks: Some(Runner::frameworks::<Shm>()),
        ..Row::new(TransportName::SHM, "Partywall over shared memory", Runner::channels::<Shm>())
    },
    Row {
        scenarios: &MOVING_SCENARIOS,
        ..Row::new(
            TransportName::SHM_MOVE,
            "Partywall, which begins on a Unix socket and moves to shared memory",
            Runner::channels::<ShmMove>(),
        )
    },
    Row {
        scenarios: &LINK_SCENARIOS,
        ..Row::new(
            TransportName::LINK_SHM,
            "A durable link over shared memory",
            Runner::channels::<LinkShm>(),
        )
    },
    Row {
        scenarios: &LINK_SCENARIOS,
        ..Row::new(
            TransportName::LINK_TCP,
            "A durable link over TCP on loopback",
            Runner::channels::<LinkTcp>(),
        )
    },
    Row {
        scenarios: &LINK_SCENARIOS,
        ..Row::new(
            TransportName::LINK_UDS,
            "A durable link over a Unix socket",
            Runner::channels::<LinkUds>(),
        )
    },
    Row {
        scenarios: &EVERY_SCENARIO,
        streams: Some(Runner::streams::<Uds>()),
        #[cfg(feature = "frameworks")]
        frameworks: Some(Runner::frameworks::<Uds>()),
        duplex_size_max: WINDOW_BYTES,
        ..Row::new(TransportName::UDS, "A Unix stream socket", Runner::channels::<Uds>())
    },
    Row {
        scenarios: &EVERY_SCENARIO,
        streams: Some(Runner::streams::<Tcp>()),
        duplex_size_max: WINDOW_BYTES,
        ..Row::new(
            TransportName::TCP,
            "TCP on loopback with TCP_NODELAY",
            Runner::channels::<Tcp>(),
        )
    },
    Row {
        scenarios: &PIPE_SCENARIOS,
        duplex_size_max: WINDOW_BYTES,
        ..Row::new(TransportName::PIPE, "Two pipes", Runner::channels::<Pipe>())
    },
    Row::new(
        TransportName::BASELINE_SPIN,
        "Baseline of spinning: the payload and one flag word in plain shared memory",
        Runner::channels::<BaselineSpin>(),
    ),
    Row::new(
        TransportName::BASELINE_EVENTFD,
        "Baseline of sleeping: an eventfd, written and read, without payload",
        Runner::channels::<BaselineEventfd>(),
    ),
]);

const EVERY_SCENARIO: [Scenario; 8] = [
    Scenario::Ping,
    Scenario::Throughput,
    Scenario::Duplex,
    Scenario::Rate,
    Scenario::Oversubscribe,
    Scenario::Parallel,
    Scenario::Connect,
    Scenario::Idle,
];

/// The scenarios that run on links. A link connects a single pair of ends, so scenarios with
/// several pairs do not run on links.
const LINK_SCENARIOS: [Scenario; 4] =
    [Scenario::Ping, Scenario::Throughput, Scenario::Duplex, Scenario::Rate];

/// The scenarios for connections that begin on the socket. In `connect` that beginning matters;
/// `ping` and `throughput` show that it does not matter once the connection has moved, and `idle`
/// what a connection costs before that.
const MOVING_SCENARIOS: [Scenario; 4] =
    [Scenario::Ping, Scenario::Throughput, Scenario::Connect, Scenario::Idle];

/// The scenarios that run on pipes. A pair of pipes is one connection that cannot be opened anew,
/// so scenarios that open several sessions do not run on pipes.
const PIPE_SCENARIOS: [Scenario; 5] = [
    Scenario::Ping,
    Scenario::Throughput,
    Scenario::Duplex,
    Scenario::Rate,
    Scenario::Oversubscribe,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplex_over_sockets_runs_up_to_one_window() {
        let cell = |transport, size| Cell::new(Scenario::Duplex, transport, size);
        let runs = |transport, size| TRANSPORTS.runner(cell(transport, size)).is_some();
        assert!(runs(TransportName::TCP, 32 << 10) && runs(TransportName::SHM, 1 << 20));
        assert!(!runs(TransportName::UDS, (32 << 10) + 1));
    }

    #[test]
    fn row_of_parallel_has_streams_and_no_other_has() {
        for row in TRANSPORTS.0 {
            assert_eq!(row.scenarios.contains(&Scenario::Parallel), row.streams.is_some());
        }
    }
}
