// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `partywall bench`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::{EnumValueParser, TypedValueParser};

use crate::figure::quantity::{self, exact_size_name};
use crate::former_names::{FormerNames, Place};
use crate::harness::cell::{TransportName, WaitName};
use crate::harness::pattern::{HEAD_SIZE, Touch};
use crate::machine::{Pin, parse_pin};
use crate::table::TRANSPORTS;

/// The flags and the scenario that `partywall bench` takes.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The scenario to measure; if none is given, some combinations of each scenario, in under a
    /// minute
    #[arg(value_parser = scenario_parser())]
    pub scenario: Option<Choice>,
    /// Check the project's own targets (the same as the scenario `targets`)
    #[arg(long)]
    pub targets: bool,
    /// Message sizes, such as 64,4k,1m
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    pub size: Vec<usize>,
    /// Transports to compare [default: all on which the scenario runs]
    #[arg(long, value_delimiter = ',', value_parser = transport_parser())]
    pub transport: Vec<TransportName>,
    /// How Partywall waits for a message [default: all ways that suit the scenario]
    #[arg(long, value_delimiter = ',', value_parser = wait_parser())]
    pub wait: Vec<WaitName>,
    /// Messages per second for `rate`, such as 100,10k
    #[arg(long, value_delimiter = ',', value_parser = parse_rate)]
    pub rate: Vec<u64>,
    /// Number of pairs of threads for `oversubscribe` [default: twice the usable cores, plus one]
    #[arg(long)]
    pub pairs: Option<usize>,
    /// Number of threads in each process that only burn CPU and exchange no messages, for
    /// `oversubscribe`
    #[arg(long, default_value_t = 0)]
    pub busy: usize,
    /// Number of streams that carry messages at once, for `parallel` [default: 199]
    #[arg(long, value_parser = parse_streams)]
    pub streams: Option<usize>,
    /// Number of these streams that the sender fills and the receiver never reads, for `parallel`;
    /// the rate of the other streams is measured
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub unread: usize,
    /// Run both ends of `parallel` in one process that is not pinned, as some libraries measure
    /// themselves
    #[arg(long, conflicts_with = "pin")]
    pub one_process: bool,
    /// Calls in flight at once, for `grpc` and `http`, such as 1,64
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = parse_streams)]
    pub in_flight: Vec<usize>,
    /// Messages on each connection of `connect`, such as 1,100,10k: they go one way, from the
    /// client, and the server answers the last [default: 1]
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = parse_messages)]
    pub messages: Vec<u64>,
    /// A new client process for each connection of `connect`. The time runs in that process, from
    /// its call of connect until it has the answer to its last message; its start and the close are
    /// not counted
    #[arg(long)]
    pub fresh: bool,
    /// Time of each combination in each round, such as 2s or 300ms
    #[arg(long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Number of rounds; each round measures every combination of scenario, transport and size once
    /// [default: 5]
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
    /// Directory for results.json, report.html and the plots [default with no scenario:
    /// bench-report]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Exit with code 11 if a target is missed
    #[arg(long)]
    pub strict: bool,
}

/// The scenarios that the command line accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Choice {
    /// One message there and back: the latency of a round trip
    Ping,
    /// Messages one way, as fast as possible
    Throughput,
    /// Messages one way at a fixed rate: latency and the CPU time of waiting
    Rate,
    /// More pairs of communicating threads than cores
    Oversubscribe,
    /// Many streams of one session at once, on tokio: the cost per operation
    Parallel,
    /// Calls of gRPC with tonic, over streams and over a Unix socket: one and many in flight, and
    /// one way
    Grpc,
    /// Requests of HTTP/1.1 with hyper, over streams and over a Unix socket: one and many in
    /// flight, and one way
    Http,
    /// Links, which store messages in files: ping, throughput and both ways at once, compared with
    /// channels and sockets
    Link,
    /// Sessions opened per second, and the memory and CPU time that an idle session costs
    Connect,
    /// The project's own targets, each with PASS or MISS
    Targets,
}

/// An error in the usage of a command: its flags contradict each other. Its exit code differs from
/// that of a failure.
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

impl Arguments {
    /// Rejects flags that the scenario would ignore.
    pub fn check(&self) -> Result<(), UsageError> {
        self.contradiction().map_or(Ok(()), |why| Err(UsageError(why)))
    }

    fn contradiction(&self) -> Option<String> {
        let is_parallel = self.scenario == Some(Choice::Parallel) && !self.targets;
        if !is_parallel && (self.streams.is_some() || self.unread > 0 || self.one_process) {
            return Some("--streams, --unread and --one-process belong to `bench parallel`".into());
        }
        let is_connect = self.scenario == Some(Choice::Connect) && !self.targets;
        if !is_connect && (self.fresh || !self.messages.is_empty()) {
            return Some("--fresh and --messages belong to `bench connect`".into());
        }
        let is_of_frameworks =
            matches!(self.scenario, Some(Choice::Grpc | Choice::Http)) && !self.targets;
        if !is_of_frameworks && !self.in_flight.is_empty() {
            return Some("--in-flight belongs to `bench grpc` and `bench http`".into());
        }
        if is_of_frameworks && !cfg!(feature = "frameworks") {
            return Some(
                "this program was built without tonic and hyper; build it with \
                        `cargo build --release --features frameworks`"
                    .into(),
            );
        }
        if self.unread >= self.streams() {
            let (unread, streams) = (self.unread, self.streams());
            return Some(format!(
                "--unread {unread} of {streams} streams leaves none to measure; choose fewer"
            ));
        }
        None
    }

    /// The number of all streams of `parallel`, including those that the receiver never reads.
    pub fn streams(&self) -> usize {
        self.streams.unwrap_or(STREAMS)
    }
}

fn scenario_parser() -> impl TypedValueParser<Value = Choice> {
    FormerNames::new(Place::BenchScenario, EnumValueParser::<Choice>::new())
}

fn transport_parser() -> impl TypedValueParser<Value = TransportName> {
    FormerNames::new(Place::BenchTransport, TRANSPORTS.parser())
}

fn wait_parser() -> impl TypedValueParser<Value = WaitName> {
    FormerNames::new(Place::BenchWait, EnumValueParser::<WaitName>::new())
}

fn parse_size(text: &str) -> Result<usize, String> {
    let size = quantity::parse_size(text)?;
    match usize::try_from(size) {
        Ok(size) if (HEAD_SIZE..=SIZE_MAX).contains(&size) => Ok(size),
        _ => Err(format!("sizes go from {HEAD_SIZE} to {}", exact_size_name(SIZE_MAX))),
    }
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match quantity::parse_count(text)? {
        rate @ 1..=RATE_MAX => Ok(rate),
        _ => Err(format!("rates go from 1 to {RATE_MAX} per second")),
    }
}

fn parse_messages(text: &str) -> Result<u64, String> {
    match quantity::parse_count(text)? {
        messages @ 1..=MESSAGES_MAX => Ok(messages),
        _ => Err(format!("connections carry 1 to {MESSAGES_MAX} messages")),
    }
}

fn parse_streams(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(streams @ 1..=STREAMS_MAX) => Ok(streams),
        _ => Err(format!("write a number from 1 to {STREAMS_MAX}")),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    match quantity::parse_time(text)? {
        duration if duration <= DURATION_MAX => Ok(duration),
        _ => Err(format!("durations go from 1 µs to {} s", DURATION_MAX.as_secs())),
    }
}

/// Maximum length of a message in bytes. It bounds the memory of a run, because both processes hold
/// a few copies of the message.
const SIZE_MAX: usize = 256 << 20;

/// The default number of streams of `parallel`. Other libraries use the same number in their
/// benchmarks, so results can be compared.
pub const STREAMS: usize = 199;

/// Maximum number of streams at once: over plain sockets each stream needs a descriptor in each
/// process.
const STREAMS_MAX: usize = 4096;

/// Maximum of `--rate`, in messages per second. At a higher rate the time between two messages is
/// below a microsecond, a pace that the sender cannot keep.
const RATE_MAX: u64 = 1_000_000;

/// Maximum number of messages on one connection of `connect`: a few seconds over a socket.
const MESSAGES_MAX: u64 = 1_000_000;

/// Maximum of `--duration`, the time for which one cell is measured in one round.
const DURATION_MAX: Duration = Duration::from_secs(600);

const EXAMPLES: &str = "\
Examples:
  partywall bench                              some of each scenario, in under a minute
  partywall bench ping --size 64,4k,1m         round trips of three sizes
  partywall bench ping --wait park --transport shm,uds
  partywall bench rate --rate 100,10k --json   one JSON object per line
  partywall bench parallel --size 64,1m        199 streams of one session at once, on tokio
  partywall bench parallel --unread 1          the rate of 198 streams while one is never read
  partywall bench grpc --size 64,1m --in-flight 1,64
                                               calls of tonic, over streams and a Unix socket
  partywall bench connect --fresh --messages 1,100,10k
                                               the first connection of a process, and what it carries
  partywall bench targets                      the project's targets, each with PASS or MISS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rates_and_durations_are_parsed_with_their_units() {
        assert_eq!(parse_size("64"), Ok(64));
        assert_eq!(parse_size("4k"), Ok(4096));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_rate("100k"), Ok(100_000));
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_streams("4096"), Ok(STREAMS_MAX));
        assert_eq!(parse_messages("10k"), Ok(10_000));
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        for bad in ["", "x", "4", "7q", "99999999999999999999", "1g"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert!(parse_rate("0").is_err());
        assert!(parse_duration("0s").is_err());
        assert!(parse_duration("-1s").is_err());
        assert!(parse_streams("0").is_err() && parse_streams("4097").is_err());
        assert!(parse_messages("0").is_err() && parse_messages("1000001").is_err());
    }

    #[test]
    fn flags_of_one_scenario_are_rejected_elsewhere() {
        for good in [
            "parallel --streams 2 --unread 1",
            "parallel --one-process",
            "ping",
            "connect --fresh",
            "connect --messages 1,100,10k",
        ] {
            parse(good).unwrap().check().unwrap_or_else(|why| panic!("{good}: {why}"));
        }
        for bad in [
            "ping --streams 2",
            "--unread 1",
            "oversubscribe --one-process",
            "parallel --unread 199",
            "ping --fresh",
            "--messages 100",
            "connect --targets --fresh",
            "parallel --in-flight 64",
            "grpc --targets --in-flight 64",
        ] {
            assert!(parse(bad).unwrap().check().is_err(), "{bad}");
        }
        assert!(parse("parallel --one-process --pin 0,1").is_err());
    }

    #[test]
    fn scenarios_of_frameworks_are_rejected_by_a_build_without_them() {
        for line in ["grpc --in-flight 1,64", "http"] {
            assert_eq!(
                parse(line).unwrap().check().is_ok(),
                cfg!(feature = "frameworks"),
                "{line}"
            );
        }
        assert!(parse("grpc --in-flight 0").is_err());
    }

    #[test]
    fn connect_without_flags_has_one_message_and_no_fresh_client() {
        let plain = parse("connect").unwrap();
        assert!(plain.messages.is_empty() && !plain.fresh);
        let fresh = parse("connect --fresh --messages 1,100,10k").unwrap();
        assert_eq!((fresh.messages, fresh.fresh), (vec![1, 100, 10_000], true));
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        use clap::Parser;
        #[derive(Parser)]
        struct Program {
            #[command(flatten)]
            bench: Arguments,
        }
        let words = format!("bench {line}");
        Program::try_parse_from(words.split(' ')).map(|program| program.bench)
    }
}
