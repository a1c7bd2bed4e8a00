// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `bench-peers`, the program that measures other IPC libraries next to
//! Partywall: its flags, their defaults and their bounds.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Parser, Subcommand, ValueEnum};
use partywall_bench::figure::quantity;
use partywall_bench::former_names::{FormerNames, Place};
use partywall_bench::harness::cell::{Scenario, TransportName};
use partywall_bench::harness::pattern::Touch;
use partywall_bench::machine::{Pin, parse_pin};

use crate::table::TRANSPORTS;

/// Measure other libraries next to the kernel's sockets and Partywall
///
/// All transports take turns in each round, in one program, with one routine that writes and
/// verifies payloads. Compare ratios within a round: the table shows their median over the rounds
/// and the spread.
#[derive(Parser, Clone, Debug)]
#[command(version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// What to do instead of measuring a scenario
    #[command(subcommand)]
    pub role: Option<Role>,
    /// The scenario to measure; if none is given, some combinations of both scenarios, in under two
    /// minutes
    #[arg(value_enum)]
    pub scenario: Option<Choice>,
    /// Message sizes, such as 64,4k,1m [default: 64,1k,4k,64k,1m,4m for parallel, 48 for ping]
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    pub size: Vec<usize>,
    /// Transports to compare [default: all on which the scenario runs]
    #[arg(long, value_delimiter = ',', value_parser = transport_parser())]
    pub transport: Vec<TransportName>,
    /// Number of rounds; each round measures every combination of scenario, transport and size once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How long each combination of scenario, transport and size is measured in each round, such as
    /// 2s or 300ms
    #[arg(long, default_value = "300ms", value_parser = quantity::parse_time)]
    pub duration: Duration,
    /// Whether senders write the payload bytes and receivers verify them [default: none for
    /// parallel, as shmipc measures itself; always all for ping]
    #[arg(long, value_enum)]
    pub touch: Option<Touch>,
    /// The CPUs of two processes, such as 0,1, or `none` [default: the first two allowed]; one
    /// process is not pinned
    #[arg(long, value_parser = parse_pin)]
    pub pin: Option<Pin>,
    /// Number of streams that carry messages at once, for parallel
    #[arg(long, default_value_t = 199, value_parser = parse_streams)]
    pub streams: usize,
    /// Run the two ends of parallel in two processes, each with its own tokio runtime, instead of
    /// in one process
    #[arg(long)]
    pub two_processes: bool,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    pub json: bool,
}

/// The scenarios that the command line accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Choice {
    /// Many streams at once on tokio, one message in flight on each: the cost per operation
    Parallel,
    /// One message there and back between two spinning processes: the latency
    Ping,
    /// The targets of Partywall that compare it with other libraries, each with PASS or MISS
    Targets,
}

/// What a process does if it measures no scenario.
#[derive(Subcommand, Clone, Debug)]
pub enum Role {
    /// Run as the second process of a measurement, the peer of the process that starts it
    #[command(hide = true)]
    Child {
        /// Pin this process to the CPU with this number
        #[arg(long)]
        cpu: Option<usize>,
    },
    /// Compare the C library with Rust and iceoryx2, one thread holding both ends
    OneThread {
        /// The directory that `cargo xtask install --prefix` has installed into
        #[arg(long)]
        prefix: PathBuf,
        /// Number of rounds
        #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rounds: u32,
    },
}

impl Choice {
    /// The scenario of `partywall_bench` to which this choice of the command line corresponds;
    /// `None` for the targets, which need both scenarios.
    pub const fn scenario(self) -> Option<Scenario> {
        match self {
            Self::Parallel => Some(Scenario::Parallel),
            Self::Ping => Some(Scenario::Ping),
            Self::Targets => None,
        }
    }
}

fn transport_parser() -> impl TypedValueParser<Value = TransportName> {
    FormerNames::new(Place::BenchTransport, TRANSPORTS.parser())
}

fn parse_size(text: &str) -> Result<usize, String> {
    let size = quantity::parse_size(text)?;
    let size = usize::try_from(size).map_err(|_| format!("{text} is too large"))?;
    if !(WORD_BYTES..=SIZE_MAX).contains(&size) || !size.is_multiple_of(WORD_BYTES) {
        return Err("sizes are multiples of 8, from 8 to 64m".to_owned());
    }
    Ok(size)
}

fn parse_streams(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(streams @ 1..=STREAMS_MAX) => Ok(streams),
        _ => Err(format!("write a number from 1 to {STREAMS_MAX}")),
    }
}

/// Length of one word in bytes. `iceoryx2` carries whole words, so message sizes are multiples of
/// this length.
pub const WORD_BYTES: usize = 8;

/// Maximum length of a message in bytes. It bounds the memory of a run, because each end of each
/// stream may hold one message.
const SIZE_MAX: usize = 64 << 20;

/// Maximum number of streams at once: one session of the crate `shmipc` has no more.
const STREAMS_MAX: usize = 4096;

const EXAMPLES: &str = "\
Examples:
  bench-peers                                     a selection of both scenarios, in under two minutes
  bench-peers parallel                            199 streams on tokio, as shmipc measures itself
  bench-peers parallel --touch all --size 64,1m   the same, but each byte is written and verified
  bench-peers parallel --two-processes --transport shmipc,uds
  bench-peers ping                                48 bytes there and back: iceoryx2, Partywall, Unix socket
  bench-peers ping --size 48,4k --rounds 11 --duration 1s --pin 0,1
  bench-peers one-thread --prefix /usr/local      C, Rust and iceoryx2, each within one thread
  bench-peers targets                             the targets of Partywall against these libraries
  bench-peers --json > peers.jsonl                one JSON object per line, the keys of `partywall bench --json`

From the root of the repository: cargo run --release --manifest-path bench/peers/Cargo.toml -- ping
The meaning of each number, and which may be compared: bench/peers/README.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_parsed_is_whole_words_within_bounds() {
        assert_eq!(parse_size("64"), Ok(64));
        assert_eq!(parse_size("4m"), Ok(4 << 20));
        for bad in ["", "0", "4", "63", "1g"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert!(parse_streams("0").is_err());
    }

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
