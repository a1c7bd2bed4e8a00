// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall echo run`: sends messages to echo servers, verifies each echo, and measures the time.
//!
//! ```text
//!   --pipeline 1    send, wait, send, wait …     one thread; measures the round trip
//!   --pipeline N    up to N messages in flight   two threads; measures throughput
//! ```
//! The endpoints are measured one after the other, with the same messages.

use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::connection::{Connection, EchoError, EchoReceiver, EchoSender};
use super::endpoint::Endpoint;
use super::outcome::{Outcome, table};
use super::payload::Payload;
use crate::command::channel_options::ChannelOptions;
use crate::command::exit::{EXIT_CODES, Exit};
use partywall_bench::figure::quantity::{parse_count, parse_size, parse_time};

/// Send messages to echo servers, verify each echo, and compare the times
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Arguments {
    /// Addresses: unix:/path, unix:@name, tcp:host:port; with plain: before it, lines over a plain
    /// socket
    #[arg(long, value_name = "ADDRESS", num_args = 1.., required = true)]
    connect: Vec<Endpoint>,
    /// Number of messages to send to each address, such as 500, 10k or 1m
    #[arg(long, short = 'n', value_name = "N", default_value = "10k", value_parser = parse_count)]
    count: u64,
    /// Send this text as the payload of each message
    #[arg(long, value_name = "TEXT", conflicts_with = "size")]
    message: Option<String>,
    /// Size in bytes of each message; without --message, messages are numbered letters of this size
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = parse_size)]
    size: u64,
    /// Largest number of messages in flight: sent, but not yet echoed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pipeline: u32,
    /// Use lines over a plain socket for all addresses, as if each began with plain:
    #[arg(long)]
    plain: bool,
    /// For how long to try again if no listener is at an address yet; without this flag, one
    /// attempt is made
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    retry: Option<Duration>,
    /// Longest time to wait for one echo; after it, the measurement of the address fails
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    timeout: Duration,
    #[command(flatten)]
    channel: ChannelOptions,
}

/// Measures each endpoint, and then prints a table that compares all endpoints.
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
            Err(EchoError { exit, reason }) => {
                // Several addresses are measured, so the error must name its address. The address
                // is added if the reason does not contain it.
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

fn measure(
    arguments: &Arguments,
    endpoint: &Endpoint,
    payload: &Payload,
) -> Result<Outcome, EchoError> {
    let config = arguments.channel.config();
    let timeout = arguments.timeout;
    let connection =
        Connection::connect(endpoint, &config, arguments.retry, timeout, payload.len())?;
    let Connection { sender, receiver, transport } = connection;
    let experiment = Experiment { count: arguments.count, payload: payload.clone(), timeout };
    let started = Instant::now();
    let (sent, round_trips) = if arguments.pipeline == 1 {
        experiment.ping(sender, receiver)?
    } else {
        experiment.stream(sender, receiver, arguments.pipeline as usize)?
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

/// The messages that `echo run` sends to every endpoint, and the limits of the measurement.
struct Experiment {
    count: u64,
    payload: Payload,
    timeout: Duration,
}

/// The result of a measurement: number of sent messages, and the time of each round trip.
type Measured = (u64, Histogram<u64>);

impl Experiment {
    /// Measures with one message in flight: sends each message, and waits for its echo.
    fn ping(
        &self,
        mut sender: EchoSender,
        mut receiver: EchoReceiver,
    ) -> Result<Measured, EchoError> {
        let mut round_trips = histogram()?;
        let mut message = self.payload.template();
        let mut sent = 0;
        for index in 0..self.count {
            self.payload.number(&mut message, index);
            let sent_at = Instant::now();
            sender.send(&message, sent_at + self.timeout)?;
            sent += 1;
            receiver.receive(&message, sent_at + self.timeout)?;
            record(&mut round_trips, sent_at.elapsed());
        }
        Ok((sent, round_trips))
    }

    /// Sends messages, of which up to `window` are in flight. The sending thread puts the send time
    /// of each message into a queue of `window` entries, and waits while the queue is full.
    fn stream(
        &self,
        mut sender: EchoSender,
        mut receiver: EchoReceiver,
        window: usize,
    ) -> Result<Measured, EchoError> {
        let (send_times, times) = mpsc::sync_channel(window);
        thread::scope(|scope| {
            let sending = scope.spawn(move || {
                let mut message = self.payload.template();
                for index in 0..self.count {
                    self.payload.number(&mut message, index);
                    let sent_at = Instant::now();
                    if send_times.send(sent_at).is_err() {
                        return Ok(index); // the receiver has failed, and reports the reason
                    }
                    // The send time of a message is taken after the wait for room among the
                    // messages in flight. So that wait counts for the total time, but not for the
                    // round trip.
                    sender.send(&message, Instant::now() + self.timeout)?;
                }
                Ok(self.count)
            });
            let received = self.receive_all(&mut receiver, times);
            let sent =
                sending.join().unwrap_or_else(|_| Err(EchoError::failure("a thread panicked")));
            match (sent, received) {
                (Ok(sent), Ok(round_trips)) => Ok((sent, round_trips)),
                (Err(error), _) | (_, Err(error)) => Err(error),
            }
        })
    }

    /// Receives one echo for each send time that the sending thread has put in the queue.
    fn receive_all(
        &self,
        receiver: &mut EchoReceiver,
        times: mpsc::Receiver<Instant>,
    ) -> Result<Histogram<u64>, EchoError> {
        let mut round_trips = histogram()?;
        let mut message = self.payload.template();
        for (index, sent_at) in (0..).zip(times) {
            self.payload.number(&mut message, index);
            receiver.receive(&message, Instant::now() + self.timeout)?;
            record(&mut round_trips, sent_at.elapsed());
        }
        Ok(round_trips)
    }
}

fn histogram() -> Result<Histogram<u64>, EchoError> {
    Histogram::new_with_max(ROUND_TRIP_MAX_NS, 3)
        .map_err(|error| EchoError::failure(&error.to_string()))
}

fn record(round_trips: &mut Histogram<u64>, time: Duration) {
    round_trips.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(ROUND_TRIP_MAX_NS));
}

/// Longest round trip that the histogram records, one hour in nanoseconds; longer ones are recorded
/// as one hour.
const ROUND_TRIP_MAX_NS: u64 = 3_600_000_000_000;

const EXAMPLES: &str = "\
Examples:
  partywall echo run --connect unix:/tmp/e.sock --count 10000 --message hello
  partywall echo run --connect unix:/tmp/e.sock plain:unix:/tmp/p.sock plain:tcp:127.0.0.1:4001
  partywall echo run --connect unix:/tmp/e.sock --size 1m --count 1000 --wait spin
  partywall echo run --connect unix:/tmp/e.sock --pipeline 64 --count 1m
  partywall echo run --plain --connect unix:/tmp/go.sock     any line-echo server works";
