// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text that `--stats` prints at the end of `send` and `recv`.
//!
//! ```text
//! sent         1.20 MiB (1258291 bytes) in 20000 messages, 3.10 MiB/s, 51.7 k/s
//! link       3 connections, 12 separate acknowledgements
//! time        387 ms
//! ```

use std::time::Duration;

use partywall_link::Stats;

use partywall_bench::figure::quantity::{bandwidth_name, counted, rate_name, size_name, time_name};

/// The text; `direction` is `sent` or `received`.
pub fn text(direction: &str, stats: &Stats, time: Duration) -> String {
    let (bytes, messages) = match direction {
        "sent" => (stats.bytes_sent, stats.messages_sent),
        _ => (stats.bytes_received, stats.messages_received),
    };
    format!(
        "{direction:<10} {:>10} ({}) in {}, {}, {}\nlink       {}, separate {}\ntime       {:>10}\n",
        size_name(bytes),
        counted(bytes, "byte"),
        counted(messages, "message"),
        bandwidth_name(bytes, time),
        rate_name(partywall_bench::figure::quantity::per_second(messages, time)),
        counted(stats.connections, "connection"),
        counted(stats.acknowledgements, "acknowledgement"),
        time_name(time),
    )
}
