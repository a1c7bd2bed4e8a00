// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall connect`: reaches a listener and joins the connection to stdin and stdout.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use partywall::{Address, Channel, Config, ConnectError};

use super::pipe::{self, PipeOptions};
use crate::command::advice::InFlags;
use crate::command::channel_options::ChannelOptions;
use crate::command::exit::{EXIT_CODES, Exit};
use partywall_bench::figure::quantity::parse_time;

/// Connect to a listener, and join the connection to stdin and stdout
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Arguments {
    /// Whom to reach: unix:/path, unix:@name, or tcp:host:port
    #[arg(value_name = "ADDRESS")]
    address: Address,
    #[command(flatten)]
    channel: ChannelOptions,
    #[command(flatten)]
    pipe: PipeOptions,
    /// Keep trying for so long while nobody listens there
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    retry: Option<Duration>,
}

/// Connects, and passes bytes until both directions have ended.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.pipe.check(&arguments.channel)?;
    match connect_patiently(&arguments.address, &arguments.channel.config(), arguments.retry) {
        Ok(channel) => pipe::run(channel, &arguments.pipe),
        Err(error) => {
            eprintln!("partywall: {}{}", error.in_flags(), hint(&error, arguments.retry));
            Ok(Exit::from(&error).into())
        }
    }
}

/// Connects; for as long as `retry` says, nobody being there is no reason to give up.
pub fn connect_patiently(
    address: &Address,
    config: &Config,
    retry: Option<Duration>,
) -> Result<Channel, ConnectError> {
    let until = retry.map(|retry| Instant::now() + retry);
    loop {
        match partywall::connect_with(address, config) {
            Err(ConnectError::System(error)) if may_come(&error) && lies_ahead(until) => {
                thread::sleep(RETRY_PERIOD);
            }
            other => return other,
        }
    }
}

/// What would help where nobody is there yet, behind the error.
pub fn hint(error: &ConnectError, retry: Option<Duration>) -> &'static str {
    match error {
        ConnectError::System(error) => hint_of(error, retry),
        _ => "",
    }
}

/// As [`hint`], for what the system said.
pub fn hint_of(error: &partywall_sys::ConnectError, retry: Option<Duration>) -> &'static str {
    if retry.is_none() && may_come(error) { "; --retry 5s waits until it is there" } else { "" }
}

/// Whether a listener may be there the next time.
pub fn may_come(error: &partywall_sys::ConnectError) -> bool {
    use partywall_sys::ConnectError::{NotFound, Refused, TimedOut};
    matches!(error, NotFound { .. } | Refused { .. } | TimedOut { .. })
}

/// Whether there is time left.
pub fn lies_ahead(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}

/// How long to wait between two attempts.
pub const RETRY_PERIOD: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  partywall connect unix:/tmp/wall.sock < file      send a file to `partywall listen`
  partywall connect unix:/tmp/wall.sock --retry 5s  the listener may start later
  tar c . | partywall connect unix:/tmp/wall.sock --stats
  partywall connect unix:/tmp/wall.sock --transport socket < file     to compare
  partywall connect tcp:127.0.0.1:4000              type, and press Ctrl-D at the end

Stdin goes to the other side, and what comes from there goes to stdout. The end of stdin closes
that direction only: what still comes is received, until the other side has closed, too.";
