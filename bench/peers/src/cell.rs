// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be measured: a *cell* is one scenario on one transport with one size.
//!
//! ```text
//! cell = scenario × transport × size × streams × touch × processes      measured once per round
//! ```
//! Adding a transport: a variant and its name here, an arm in the `dispatch` of its scenario.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::pattern::Touch;

/// What is done with the messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum)]
pub enum Scenario {
    /// Many streams at once on tokio, each with one message in flight: cost per operation
    Parallel,
    /// One message there and back between two spinning processes: latency
    Ping,
}

/// What carries the messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum)]
pub enum TransportName {
    /// Partywall: a session's streams on tokio (parallel), a channel with `Wait::Spin` (ping)
    SharedMemory,
    /// Crate `shmipc`, its default protocol for memfd
    #[value(name = "shmipc-0.2.1-v3", alias = "shmipc-v3", alias = "shmipc")]
    ShmipcV3,
    /// Crate `shmipc`, protocol v4 with wake-ups by eventfd
    #[value(name = "shmipc-0.2.1-v4-eventfd", alias = "shmipc-v4")]
    ShmipcV4Eventfd,
    /// Partywall in the protocol of `shmipc`, with itself
    #[value(name = "shmipc-ours", alias = "ours")]
    ShmipcOurs,
    /// Partywall in the protocol of `shmipc` as client, the crate `shmipc` as server
    #[value(name = "shmipc-ours-theirs", alias = "ours-theirs")]
    ShmipcOursTheirs,
    /// Crate `iceoryx2`, a publisher and a subscriber in each direction
    #[value(name = "iceoryx2-0.10-pubsub", alias = "iceoryx2-pubsub", alias = "iceoryx2")]
    Iceoryx2Pubsub,
    /// Crate `iceoryx2`, a request and its response
    #[value(name = "iceoryx2-0.10-reqres", alias = "iceoryx2-reqres")]
    Iceoryx2Reqres,
    /// A Unix stream socket
    Uds,
    /// TCP over loopback with `TCP_NODELAY`
    Tcp,
}

/// Where the two ends live.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Processes {
    /// Both in this one, as `shmipc` measures itself.
    One,
    /// One each.
    Two,
}

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// What is done.
    pub scenario: Scenario,
    /// What carries it.
    pub transport: TransportName,
    /// Bytes per message, a multiple of 8.
    pub size: usize,
    /// Streams at work at once (1 in `ping`).
    pub streams: usize,
    /// Whether payloads are written and verified (always in `ping`).
    pub touch: Touch,
    /// Where the two ends live (always two processes in `ping`).
    pub processes: Processes,
}

impl Scenario {
    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parallel => "parallel",
            Self::Ping => "ping",
        }
    }

    /// What it can be measured on, in the order of the table.
    pub const fn transports(self) -> &'static [TransportName] {
        match self {
            Self::Parallel => &[
                TransportName::SharedMemory,
                TransportName::ShmipcV3,
                TransportName::ShmipcV4Eventfd,
                TransportName::ShmipcOurs,
                TransportName::ShmipcOursTheirs,
                TransportName::Uds,
                TransportName::Tcp,
            ],
            Self::Ping => &[
                TransportName::SharedMemory,
                TransportName::Iceoryx2Pubsub,
                TransportName::Iceoryx2Reqres,
                TransportName::Uds,
            ],
        }
    }

    /// The rival that all others are compared with.
    pub const fn rival(self) -> TransportName {
        match self {
            Self::Parallel => TransportName::ShmipcV3,
            Self::Ping => TransportName::Iceoryx2Pubsub,
        }
    }
}

impl TransportName {
    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shm",
            Self::ShmipcV3 => "shmipc-0.2.1-v3",
            Self::ShmipcV4Eventfd => "shmipc-0.2.1-v4-eventfd",
            Self::ShmipcOurs => "shmipc-ours",
            Self::ShmipcOursTheirs => "shmipc-ours-theirs",
            Self::Iceoryx2Pubsub => "iceoryx2-0.10-pubsub",
            Self::Iceoryx2Reqres => "iceoryx2-0.10-reqres",
            Self::Uds => "uds",
            Self::Tcp => "tcp",
        }
    }
}

impl Processes {
    /// How many.
    pub const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

impl Cell {
    /// How an end waits for a message, in the words of `partywall bench`; `-` where the transport decides.
    pub const fn wait(self) -> &'static str {
        match (self.scenario, self.transport) {
            (Scenario::Ping, TransportName::Uds) | (Scenario::Parallel, _) => "-",
            (Scenario::Ping, _) => "spin",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, transport, size, .. } = self;
        write!(f, "{} {} {}", scenario.name(), transport.name(), size_name(*size))
    }
}

/// A size as people write it: `48 B`, `4 KiB`, `1 MiB` (binary multiples).
pub fn size_name(size: usize) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if size >= unit && size.is_multiple_of(unit) {
            return format!("{} {name}", size / unit);
        }
    }
    format!("{size} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_command_line_are_those_in_json() {
        for transport in TransportName::value_variants() {
            let value = transport.to_possible_value().unwrap();
            assert_eq!(value.get_name(), transport.name());
        }
    }

    #[test]
    fn every_scenario_measures_its_rival_and_the_socket() {
        for scenario in Scenario::value_variants() {
            assert!(scenario.transports().contains(&scenario.rival()));
            assert!(scenario.transports().contains(&TransportName::Uds));
        }
    }
}
