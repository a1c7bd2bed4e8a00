// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of the transports that `bench-peers` can measure: some of `partywall bench`, and those
//! of other libraries.

use partywall_bench::harness::cell::{Scenario, TransportName};
use partywall_bench::scenario::Runner;
use partywall_bench::table::{Row, Transports};
use partywall_bench::transport::shm::Shm;
use partywall_bench::transport::tcp::Tcp;
use partywall_bench::transport::uds::Uds;

use crate::transport::announced::Announced;
use crate::transport::iceoryx_pubsub::Pubsub;
use crate::transport::iceoryx_reqres::Reqres;
use crate::transport::own_shmipc::{Own, OwnAndPeer};
use crate::transport::shmipc::{ShmipcV3, ShmipcV4Eventfd};

/// The transports on which `scenario` runs, in the order of the table.
pub fn of_scenario(scenario: Scenario) -> impl Iterator<Item = TransportName> {
    let rows = TRANSPORTS.0.iter().filter(move |row| row.scenarios.contains(&scenario));
    rows.map(|row| row.name)
}

/// The reference transport of a scenario: the results of all other transports are divided by its
/// results.
pub const fn reference(scenario: Scenario) -> TransportName {
    match scenario {
        Scenario::Ping => ICEORYX2_PUBSUB,
        _ => SHMIPC_V3,
    }
}

/// Whether a transport counts the messages that it sent over its socket because shared memory had
/// no room.
pub fn counts_over_socket(transport: TransportName) -> bool {
    transport.name().starts_with("shmipc-")
}

/// The name of the transport that measures the crate `shmipc` with version 3 of its protocol, its
/// default for memory in memfds.
pub const SHMIPC_V3: TransportName = TransportName("shmipc-0.2.1-v3");
/// The name of the transport that measures publish-subscribe of the crate `iceoryx2`.
pub const ICEORYX2_PUBSUB: TransportName = TransportName("iceoryx2-0.10-pubsub");

const SHMIPC_V4_EVENTFD: TransportName = TransportName("shmipc-0.2.1-v4-eventfd");
const SHMIPC_OURS: TransportName = TransportName("shmipc-ours");
const SHMIPC_OURS_THEIRS: TransportName = TransportName("shmipc-ours-theirs");
const ICEORYX2_REQRES: TransportName = TransportName("iceoryx2-0.10-reqres");

/// All transports that `bench-peers` can measure.
pub const TRANSPORTS: Transports = Transports(&[
    Row {
        scenarios: &[Scenario::Parallel, Scenario::Ping],
        streams: Some(Runner::streams::<Shm>()),
        ..Row::new(
            TransportName::SHM,
            "Partywall: a session's streams on tokio (parallel), a channel that spins (ping)",
            Runner::channels::<Shm>(),
        )
    },
    Row {
        aliases: &["shmipc-v3", "shmipc"],
        ..streams(
            SHMIPC_V3,
            "Crate `shmipc`, its default protocol for memfds",
            Runner::streams::<Announced<ShmipcV3>>(),
        )
    },
    Row {
        aliases: &["shmipc-v4"],
        ..streams(
            SHMIPC_V4_EVENTFD,
            "Crate `shmipc`, protocol v4 with wake-ups by eventfd",
            Runner::streams::<Announced<ShmipcV4Eventfd>>(),
        )
    },
    Row {
        aliases: &["ours"],
        ..streams(
            SHMIPC_OURS,
            "Partywall in the protocol of `shmipc`, as client and as server",
            Runner::streams::<Announced<Own>>(),
        )
    },
    Row {
        aliases: &["ours-theirs"],
        ..streams(
            SHMIPC_OURS_THEIRS,
            "Partywall in the protocol of `shmipc` as client, the crate `shmipc` as server",
            Runner::streams::<Announced<OwnAndPeer>>(),
        )
    },
    Row {
        aliases: &["iceoryx2-pubsub", "iceoryx2"],
        ..Row::new(
            ICEORYX2_PUBSUB,
            "Crate `iceoryx2`, a publisher and a subscriber in each direction",
            Runner::ping::<Pubsub>(),
        )
    },
    Row {
        aliases: &["iceoryx2-reqres"],
        ..Row::new(
            ICEORYX2_REQRES,
            "Crate `iceoryx2`, a request and its response",
            Runner::ping::<Reqres>(),
        )
    },
    Row {
        scenarios: &[Scenario::Parallel, Scenario::Ping],
        streams: Some(Runner::streams::<Uds>()),
        ..Row::new(TransportName::UDS, "A Unix stream socket", Runner::channels::<Uds>())
    },
    streams(TransportName::TCP, "TCP on loopback with TCP_NODELAY", Runner::streams::<Tcp>()),
]);

/// Makes the row of one transport in the table of transports. The transport offers only streams, so
/// of the scenarios only `parallel` runs on it.
const fn streams(name: TransportName, help: &'static str, runner: Runner) -> Row {
    Row {
        name,
        aliases: &[],
        help,
        scenarios: &[Scenario::Parallel],
        channels: None,
        streams: Some(runner),
        frameworks: None,
        duplex_size_max: u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_has_its_reference_and_the_socket() {
        for scenario in [Scenario::Parallel, Scenario::Ping] {
            let names: Vec<_> = of_scenario(scenario).collect();
            assert!(names.contains(&reference(scenario)));
            assert!(names.contains(&TransportName::UDS));
        }
    }
}
