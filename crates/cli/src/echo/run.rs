// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall echo run`: sends messages to an echo server, verifies what comes back, and takes the time.
//!
//! ```text
//!   --pipeline 1    send, wait, send, wait …            one thread; measures the round trip
//!   --pipeline N    up to N on their way at a time      two threads; measures throughput
//! ```
//! The endpoints are measured one after the other, and all with the same messages.

use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::connection::{Answerer, Asker, Trouble, Wire};
use super::endpoint::Endpoint;
use super::outcome::{Outcome, table};
use super::payload::Payload;
use crate::command::channel_options::ChannelOptions;
use crate::command::exit::{EXIT_CODES, Exit};
use partywall_bench::figure::quantity::{parse_count, parse_size, parse_time};

/// Send messages to echo servers, verify every echo, and compare the times
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Arguments {
    /// With whom: unix:/path, unix:@name, tcp:host:port; with plain: before it, lines on a bare socket
    #[arg(long, value_name = "ADDRESS", num_args = 1.., required = true)]
    connect: Vec<Endpoint>,
    /// How many messages to send to each, such as 500, 10k or 1m
    #[arg(long, short = 'n', value_name = "N", default_value = "10k", value_parser = parse_count)]
    count: u64,
    /// What to send
    #[arg(long, value_name = "TEXT", conflicts_with = "size")]
    message: Option<String>,
    /// Send numbered messages of this size instead
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = parse_size)]
    size: u64,
    /// How many messages may be on their way at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pipeline: u32,
    /// Speak plain lines to all of them
    #[arg(long)]
    plain: bool,
    /// Keep trying for so long while nobody listens there
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    retry: Option<Duration>,
    /// Give up when no echo came for so long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    timeout: Duration,
    #[command(flatten)]
    channel: ChannelOptions,
}

/// Measures each endpoint, then compares them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let size = usize::try_from(arguments.size).context("--size is too large")?;
    let payload = Payload::new(arguments.message.as_deref(), size)?;
    let mut outcomes = Vec::new();
    for endpoint in &arguments.connect {
        let endpoint = endpoint.plain_if(arguments.plain);
        match measure(arguments, &endpoint, &payload) {
            Ok(outcome) => {
                println!("{}", outcome.text());
                outcomes.push(outcome);
            }
            Err(Trouble { exit, reason }) => {
                // What was tried with it is told of one that may be among many.
                if reason.contains(&endpoint.address.to_string()) {
                    eprintln!("partywall: {reason}");
                } else {
                    eprintln!("partywall: {endpoint}: {reason}");
                }
                return Ok(exit.into());
            }
        }
    }
    if outcomes.len() > 1 {
        print!("{}", table(&outcomes));
    }
    Ok(Exit::Done.into())
}

/// Sends all messages to one endpoint.
fn measure(
    arguments: &Arguments,
    endpoint: &Endpoint,
    payload: &Payload,
) -> Result<Outcome, Trouble> {
    let config = arguments.channel.config();
    let timeout = arguments.timeout;
    let wire = Wire::connect(endpoint, &config, arguments.retry, timeout, payload.len())?;
    let Wire { asker, answerer, transport } = wire;
    let experiment = Experiment { count: arguments.count, payload: payload.clone(), timeout };
    let started = Instant::now();
    let (sent, round_trips) = if arguments.pipeline == 1 {
        experiment.ping(asker, answerer)?
    } else {
        experiment.stream(asker, answerer, arguments.pipeline as usize)?
    };
    Ok(Outcome {
        endpoint: endpoint.clone(),
        transport,
        sent,
        received: round_trips.len(),
        size: payload.len(),
        time: started.elapsed(),
        round_trips,
    })
}

/// The same messages for every endpoint.
struct Experiment {
    count: u64,
    payload: Payload,
    timeout: Duration,
}

/// Messages sent, and the time of each round trip.
type Measured = (u64, Histogram<u64>);

impl Experiment {
    /// One message at a time.
    fn ping(&self, mut asker: Asker, mut answerer: Answerer) -> Result<Measured, Trouble> {
        let mut round_trips = histogram()?;
        let mut message = self.payload.template();
        let mut sent = 0;
        for index in 0..self.count {
            self.payload.number(&mut message, index);
            let sent_at = Instant::now();
            asker.send(&message, sent_at + self.timeout)?;
            sent += 1;
            answerer.receive(&message, sent_at + self.timeout)?;
            record(&mut round_trips, sent_at.elapsed());
        }
        Ok((sent, round_trips))
    }

    /// Up to `window` messages on their way: the queue of their times is the window.
    fn stream(
        &self,
        mut asker: Asker,
        mut answerer: Answerer,
        window: usize,
    ) -> Result<Measured, Trouble> {
        let (noted, times) = mpsc::sync_channel(window);
        thread::scope(|scope| {
            let asking = scope.spawn(move || {
                let mut message = self.payload.template();
                for index in 0..self.count {
                    self.payload.number(&mut message, index);
                    let sent_at = Instant::now();
                    if noted.send(sent_at).is_err() {
                        return Ok(index); // the answers broke off, which tells more
                    }
                    // Waiting for room in the window is no part of the round trip, but of the time.
                    asker.send(&message, Instant::now() + self.timeout)?;
                }
                Ok(self.count)
            });
            let answered = self.receive_all(&mut answerer, times);
            let sent = asking.join().unwrap_or_else(|_| Err(Trouble::ours("a thread panicked")));
            match (sent, answered) {
                (Ok(sent), Ok(round_trips)) => Ok((sent, round_trips)),
                (Err(trouble), _) | (_, Err(trouble)) => Err(trouble),
            }
        })
    }

    /// One answer for each time that was noted.
    fn receive_all(
        &self,
        answerer: &mut Answerer,
        times: mpsc::Receiver<Instant>,
    ) -> Result<Histogram<u64>, Trouble> {
        let mut round_trips = histogram()?;
        let mut message = self.payload.template();
        for (index, sent_at) in (0..).zip(times) {
            self.payload.number(&mut message, index);
            answerer.receive(&message, Instant::now() + self.timeout)?;
            record(&mut round_trips, sent_at.elapsed());
        }
        Ok(round_trips)
    }
}

/// Two digits more than are shown.
fn histogram() -> Result<Histogram<u64>, Trouble> {
    Histogram::new_with_max(ROUND_TRIP_MAX_NS, 3).map_err(|error| Trouble::ours(&error.to_string()))
}

fn record(round_trips: &mut Histogram<u64>, time: Duration) {
    round_trips.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(ROUND_TRIP_MAX_NS));
}

/// Longer round trips count as this long.
const ROUND_TRIP_MAX_NS: u64 = 3_600_000_000_000;

const EXAMPLES: &str = "\
Examples:
  partywall echo run --connect unix:/tmp/e.sock --count 10000 --message hello
  partywall echo run --connect unix:/tmp/e.sock plain:unix:/tmp/p.sock plain:tcp:127.0.0.1:4001
  partywall echo run --connect unix:/tmp/e.sock --size 1m --count 1000 --wait spin
  partywall echo run --connect unix:/tmp/e.sock --pipeline 64 --count 1m
  partywall echo run --plain --connect unix:/tmp/go.sock     any line-echo server will do";
