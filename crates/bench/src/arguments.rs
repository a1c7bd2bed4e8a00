// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a person may ask of `partywall bench`, and how sizes, times and CPUs are written.

use std::path::PathBuf;
use std::time::Duration;

use super::cell::{TransportName, WaitName};
use super::pattern::{HEAD_SIZE, Touch};

/// The flags of `partywall bench`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// What to measure; without it, a selection of everything in under a minute
    #[arg(value_enum)]
    pub scenario: Option<Choice>,
    /// Check the project's own targets (the same as the scenario `targets`)
    #[arg(long)]
    pub targets: bool,
    /// Message sizes, such as 64,4k,1m
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    pub size: Vec<usize>,
    /// What to compare
    #[arg(long, value_delimiter = ',', value_enum)]
    pub transport: Vec<TransportName>,
    /// How Partywall waits
    #[arg(long, value_delimiter = ',', value_enum)]
    pub wait: Vec<WaitName>,
    /// Messages per second for `rate`, such as 100,10k
    #[arg(long, value_delimiter = ',', value_parser = parse_rate)]
    pub rate: Vec<u64>,
    /// Pairs for `crowd` [default: twice the cores and one]
    #[arg(long)]
    pub pairs: Option<usize>,
    /// Threads that only burn CPU, in each process, for `crowd`
    #[arg(long, default_value_t = 0)]
    pub busy: usize,
    /// Streams at once for `parallel` [default: 199]
    #[arg(long, value_parser = parse_streams)]
    pub streams: Option<usize>,
    /// Streams of these that are sent to without end and never read, for `parallel`: what do the others keep?
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub unread: usize,
    /// Both ends in one process, not pinned, for `parallel`: as some libraries measure themselves
    #[arg(long, conflicts_with = "pin")]
    pub one_process: bool,
    /// How long each combination is measured in each round, such as 2s or 300ms
    #[arg(long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Rounds; within each, all combinations take turns [default: 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// The CPUs of the two processes, such as 0,1, or `none` [default: the first two allowed]
    #[arg(long, value_parser = parse_pin)]
    pub pin: Option<Pin>,
    /// Whether payloads are written by the sender and verified by the receiver
    #[arg(long, value_enum, default_value_t = Touch::All)]
    pub touch: Touch,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    pub json: bool,
    /// Where to write results.json, report.html and the plots [default with no scenario: bench-report]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Exit with code 2 if a target is missed
    #[arg(long)]
    pub strict: bool,
}

/// The scenarios that can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Choice {
    /// One message there and back
    Ping,
    /// One way, as fast as possible
    Flood,
    /// One way at a fixed rate: latency and the CPU burnt by waiting
    Rate,
    /// More pairs than cores
    Crowd,
    /// Many streams of one session at once, on tokio: the cost per operation
    Parallel,
    /// Links, which keep what they send in files: ping, flood and both ways at once, beside channels and sockets
    Link,
    /// Sessions per second, and what an idle one costs
    Connect,
    /// The project's own targets, each with its verdict
    Targets,
}

/// Where the two processes run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// Wherever the scheduler likes: not comparable between transports.
    None,
    /// Both ends in one process, which may use all CPUs.
    OneProcess,
    /// The parent on the first CPU, the child on the second.
    To(usize, usize),
}

impl Arguments {
    /// Refuses what would silently be something else.
    pub fn check(&self) -> Result<(), String> {
        let is_parallel = self.scenario == Some(Choice::Parallel) && !self.targets;
        if !is_parallel && (self.streams.is_some() || self.unread > 0 || self.one_process) {
            return Err("--streams, --unread and --one-process belong to `bench parallel`".into());
        }
        if self.unread >= self.streams() {
            let (unread, streams) = (self.unread, self.streams());
            return Err(format!("--unread {unread} of {streams} streams leaves none to measure"));
        }
        Ok(())
    }

    /// Streams in all, read or not.
    pub fn streams(&self) -> usize {
        self.streams.unwrap_or(STREAMS)
    }
}

/// A size as people write it: 64, 4k, 1m, 1g (binary multiples).
pub fn size_name(size: usize) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if size >= unit && size.is_multiple_of(unit) {
            return format!("{} {name}", size / unit);
        }
    }
    format!("{size} B")
}

fn parse_size(text: &str) -> Result<usize, String> {
    let size = parse_scaled(text, 1024)?;
    let size = usize::try_from(size).map_err(|_| format!("{text} is too large"))?;
    if !(HEAD_SIZE..=SIZE_MAX).contains(&size) {
        return Err(format!("sizes go from {HEAD_SIZE} to {}", size_name(SIZE_MAX)));
    }
    Ok(size)
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match parse_scaled(text, 1000)? {
        rate @ 1..=RATE_MAX => Ok(rate),
        _ => Err(format!("rates go from 1 to {RATE_MAX} per second")),
    }
}

fn parse_streams(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(streams @ 1..=STREAMS_MAX) => Ok(streams),
        _ => Err(format!("write a number from 1 to {STREAMS_MAX}")),
    }
}

/// A number with an optional k, m or g.
fn parse_scaled(text: &str, kilo: u64) -> Result<u64, String> {
    let text = text.trim().to_ascii_lowercase();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" | "b" => 1,
        "k" | "kib" => kilo,
        "m" | "mib" => kilo * kilo,
        "g" | "gib" => kilo * kilo * kilo,
        other => return Err(format!("unknown unit {other:?}; use k, m or g")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no number"))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text} is too large"))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let number: f64 = digits.parse().map_err(|_| format!("{text:?} is no duration"))?;
    let seconds = match unit.trim() {
        "s" | "" => number,
        "ms" => number / 1e3,
        "us" | "µs" => number / 1e6,
        "m" | "min" => number * 60.0,
        other => return Err(format!("unknown unit {other:?}; use ms, s or min")),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() && duration <= DURATION_MAX => Ok(duration),
        _ => Err(format!("durations go from 1 µs to {} s", DURATION_MAX.as_secs())),
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

/// Largest message; both processes hold a few copies of it.
const SIZE_MAX: usize = 256 << 20;

/// Streams at once, unless told otherwise: as many as others measure with.
pub const STREAMS: usize = 199;

/// Most streams at once: the baselines need a descriptor for each.
const STREAMS_MAX: usize = 4096;

/// Fastest open-loop rate; a period below a microsecond cannot be paced.
const RATE_MAX: u64 = 1_000_000;

/// Longest measurement of one combination in one round.
const DURATION_MAX: Duration = Duration::from_secs(600);

const EXAMPLES: &str = "\
Examples:
  partywall bench                              everything that matters, in under a minute
  partywall bench ping --size 64,4k,1m         round trips of three sizes
  partywall bench ping --wait park --transport wall,uds
  partywall bench rate --rate 100,10k --json   one JSON object per line
  partywall bench parallel --size 64,1m        199 streams of one session at once, on tokio
  partywall bench parallel --unread 1          what do 198 streams keep if nobody reads one?
  partywall bench targets                      does this build keep its promises here?";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rates_and_durations_are_read_as_people_write_them() {
        assert_eq!(parse_size("64"), Ok(64));
        assert_eq!(parse_size("4k"), Ok(4096));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_rate("100k"), Ok(100_000));
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_pin("0, 1"), Ok(Pin::To(0, 1)));
        assert_eq!(parse_pin("none"), Ok(Pin::None));
        assert_eq!(parse_streams("4096"), Ok(STREAMS_MAX));
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for bad in ["", "x", "4", "7q", "99999999999999999999", "1g"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert!(parse_rate("0").is_err());
        assert!(parse_duration("0s").is_err());
        assert!(parse_duration("-1s").is_err());
        assert!(parse_pin("1").is_err());
        assert!(parse_streams("0").is_err() && parse_streams("4097").is_err());
    }

    #[test]
    fn what_belongs_to_parallel_is_refused_elsewhere() {
        use clap::Parser;
        #[derive(Parser)]
        struct Program {
            #[command(flatten)]
            bench: Arguments,
        }
        let check = |line: &str| {
            let words = format!("bench {line}");
            Program::try_parse_from(words.split(' ')).map(|program| program.bench.check())
        };
        for good in ["parallel --streams 2 --unread 1", "parallel --one-process", "ping"] {
            assert_eq!(check(good).unwrap(), Ok(()), "{good}");
        }
        for bad in
            ["ping --streams 2", "--unread 1", "crowd --one-process", "parallel --unread 199"]
        {
            assert!(check(bad).unwrap().is_err(), "{bad}");
        }
        assert!(check("parallel --one-process --pin 0,1").is_err());
    }

    #[test]
    fn sizes_are_named_in_round_units() {
        assert_eq!(size_name(48), "48 B");
        assert_eq!(size_name(4096), "4 KiB");
        assert_eq!(size_name(1 << 20), "1 MiB");
        assert_eq!(size_name(1500), "1500 B");
    }
}
