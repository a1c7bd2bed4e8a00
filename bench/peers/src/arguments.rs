// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a person may ask of `bench-peers`, and how sizes and CPUs are written.

use std::time::Duration;

use clap::{Parser, Subcommand};

use super::cell::{Scenario, TransportName};
use super::child::ChildArguments;
use super::pattern::{Touch, WORD};
use super::quantity;

/// Measure Partywall's rivals from the package registry, beside the kernel's sockets and Partywall itself
///
/// All transports take turns in every round, in one program, with one way to write and verify payloads. What counts
/// is the ratio within a round; the table shows its median over the rounds, and its spread.
#[derive(Parser, Clone, Debug)]
#[command(version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// What the program does as the second process of a measurement
    #[command(subcommand)]
    pub role: Option<Role>,
    /// What to measure; without it, a selection of both in under two minutes
    #[arg(value_enum)]
    pub scenario: Option<Scenario>,
    /// Message sizes, such as 64,4k,1m [default: 64,1k,4k,64k,1m,4m for parallel, 48 for ping]
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    pub size: Vec<usize>,
    /// What to compare [default: all that take part in the scenario]
    #[arg(long, value_delimiter = ',', value_enum)]
    pub transport: Vec<TransportName>,
    /// Rounds; within each, all combinations take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How long each combination is measured in each round, such as 2s or 300ms
    #[arg(long, default_value = "300ms", value_parser = quantity::parse_time)]
    pub duration: Duration,
    /// Whether payloads are written and verified [default: none for parallel, as shmipc measures itself; always all
    /// for ping]
    #[arg(long, value_enum)]
    pub touch: Option<Touch>,
    /// The CPUs of two processes, such as 0,1, or `none` [default: the first two allowed]; one process is not pinned
    #[arg(long, value_parser = parse_pin)]
    pub pin: Option<Pin>,
    /// Streams at once in parallel
    #[arg(long, default_value_t = 199, value_parser = parse_streams)]
    pub streams: usize,
    /// Put the two ends of parallel into two processes, each with a runtime of its own
    #[arg(long)]
    pub two_processes: bool,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What this process is, if it was not started by a person.
#[derive(Subcommand, Clone, Debug)]
pub enum Role {
    /// The second process of a measurement
    #[command(hide = true)]
    Child(ChildArguments),
}

/// Where two processes run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// Wherever the scheduler likes: not comparable between transports.
    None,
    /// The parent on the first CPU, the child on the second.
    To(usize, usize),
}

impl Pin {
    /// The CPU of the parent.
    pub const fn parent(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::To(parent, _) => Some(parent),
        }
    }

    /// The CPU of the child.
    pub const fn child(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::To(_, child) => Some(child),
        }
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    let size = quantity::parse_size(text)?;
    let size = usize::try_from(size).map_err(|_| format!("{text} is too large"))?;
    if !(WORD..=SIZE_MAX).contains(&size) || !size.is_multiple_of(WORD) {
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

fn parse_pin(text: &str) -> Result<Pin, String> {
    if text == "none" {
        return Ok(Pin::None);
    }
    let cpus = text.split_once(',').map(|(a, b)| (a.trim().parse(), b.trim().parse()));
    let Some((Ok(parent), Ok(child))) = cpus else {
        return Err("write two CPUs, such as 0,1, or none".to_owned());
    };
    Ok(Pin::To(parent, child))
}

/// Largest message: every stream of both ends may hold one.
const SIZE_MAX: usize = 64 << 20;

/// The rival allows no more streams in a session.
const STREAMS_MAX: usize = 4096;

const EXAMPLES: &str = "\
Examples:
  bench-peers                                     a selection of both scenarios, in under two minutes
  bench-peers parallel                            199 streams on tokio, as shmipc measures itself
  bench-peers parallel --touch all --size 64,1m   the same, but every byte is written and verified
  bench-peers parallel --two-processes --transport shmipc,uds
  bench-peers ping                                48 bytes there and back: iceoryx2, Partywall, Unix socket
  bench-peers ping --size 48,4k --rounds 11 --duration 1s --pin 0,1
  bench-peers --json > peers.jsonl                one JSON object per line, the keys of `partywall bench --json`

From the root of the repository: cargo run --release --manifest-path bench/peers/Cargo.toml -- ping
What each number means, and what may be compared with what: bench/peers/README.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_cpus_are_read_as_people_write_them() {
        assert_eq!(parse_size("64"), Ok(64));
        assert_eq!(parse_size("4m"), Ok(4 << 20));
        assert_eq!(parse_pin("0, 1"), Ok(Pin::To(0, 1)));
        assert_eq!(parse_pin("none"), Ok(Pin::None));
        for bad in ["", "0", "4", "63", "1g"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert!(parse_pin("1").is_err() && parse_streams("0").is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
