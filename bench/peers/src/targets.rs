// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench-peers targets`: the targets of Partywall that compare it with other libraries, each with
//! PASS or MISS. The table of targets and the verdicts are those of `partywall bench targets`.

use partywall_bench::figure::quantity::exact_size_name;
use partywall_bench::harness::cell::{Cell, Processes, Scenario, TransportName, WaitName};
use partywall_bench::harness::pattern::Touch;
use partywall_bench::outcome::Metric;
use partywall_bench::report::targets::{Measurement, Targets, quotient};

use crate::plan::PARALLEL_SIZES;
use crate::table::{ICEORYX2_PUBSUB, SHMIPC_V3};

/// The targets that `bench-peers targets` measures.
pub fn all() -> Targets {
    Targets::of(PROGRAM, measurements())
}

fn measurements() -> Vec<Measurement> {
    let mut all: Vec<_> = PARALLEL_SIZES.into_iter().map(parallel).collect();
    let spin = |transport| {
        let cell = Cell::new(Scenario::Ping, transport, 48).waiting(WaitName::Spin);
        (cell, Metric::P50)
    };
    let (own, theirs) = (spin(TransportName::SHM), spin(ICEORYX2_PUBSUB));
    all.push(quotient("ping 48 B, spin: p50 ÷ iceoryx2 publish-subscribe", own, theirs));
    all
}

/// The measurement that compares Partywall with the crate `shmipc` at one message size, with the
/// settings of the benchmark of `shmipc`.
fn parallel(size: usize) -> Measurement {
    let over = |transport| {
        let cell = Cell {
            touch: Touch::None,
            processes: Processes::One,
            ..Cell::new(Scenario::Parallel, transport, size).with_streams(STREAMS)
        };
        (cell, Metric::NsPerOp)
    };
    let size = exact_size_name(size);
    let name = format!("parallel {size}, one process, untouched: time per operation ÷ shmipc v3");
    quotient(&name, over(TransportName::SHM), over(SHMIPC_V3))
}

const PROGRAM: &str = "bench-peers";

/// Number of streams that the benchmark of the crate `shmipc` uses at once.
const STREAMS: usize = 199;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TRANSPORTS;
    use partywall_bench::report::targets::without_row;

    #[test]
    fn each_row_of_the_table_is_measured_or_says_why_not() {
        assert_eq!(all().inconsistent(), [""; 0]);
        assert_eq!(without_row(PROGRAM, &measurements()), [""; 0]);
    }

    #[test]
    fn every_measured_cell_is_offered_by_the_table_of_transports() {
        for cell in all().cells() {
            assert!(TRANSPORTS.runner(cell).is_some(), "{cell}");
        }
    }
}
