// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall connect`: connects to a listener and joins the channel to stdin and stdout.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use partywall::{Address, Channel, Config, ConnectError};

use super::pipe::{self, PipeOptions};
use crate::command::advice::InFlags;
use crate::command::channel_options::{ChannelOptions, parse_channel_address};
use crate::command::exit::{EXIT_CODES, Exit};
use partywall_bench::figure::quantity::parse_time;

/// Connect to a listener, and join the channel to stdin and stdout
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Arguments {
    /// Address of the listener: unix:/path, unix:@name, or tcp:host:port
    #[arg(value_name = "ADDRESS", value_parser = parse_channel_address)]
    address: Address,
    #[command(flatten)]
    channel: ChannelOptions,
    #[command(flatten)]
    pipe: PipeOptions,
    /// For how long to try again if no listener is at ADDRESS yet; without this flag, one attempt
    /// is made
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    retry: Option<Duration>,
}

/// Runs `partywall connect`: connects to the listener, and carries bytes until both directions have
/// ended.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.pipe.check(&arguments.channel)?;
    match connect_with_retry(&arguments.address, &arguments.channel.config(), arguments.retry) {
        Ok(channel) => pipe::run(channel, &arguments.pipe),
        Err(error) => {
            eprintln!("partywall: {}{}", error.in_flags(), hint(&error, arguments.retry));
            Ok(Exit::from(&error).into())
        }
    }
}

/// Connects to `address`. If there is no listener, the function tries again until the time `retry`
/// has passed.
pub fn connect_with_retry(
    address: &Address,
    config: &Config,
    retry: Option<Duration>,
) -> Result<Channel, ConnectError> {
    let deadline = retry.map(|retry| Instant::now() + retry);
    loop {
        match partywall::connect_with(address, config) {
            Err(ConnectError::System(error)) if may_appear(&error) && is_ahead(deadline) => {
                thread::sleep(RETRY_PERIOD);
            }
            other => return other,
        }
    }
}

/// Returns the advice to use `--retry`, to append to the error of a connect. It is empty if waiting
/// cannot help, or if `retry` is set already.
pub fn hint(error: &ConnectError, retry: Option<Duration>) -> &'static str {
    match error {
        ConnectError::System(error) => hint_of(error, retry),
        _ => "",
    }
}

/// Returns the advice to use `--retry`, to append to a connect error of `partywall-sys`. It is
/// empty if waiting cannot help, or if `retry` is set already.
pub fn hint_of(error: &partywall_sys::ConnectError, retry: Option<Duration>) -> &'static str {
    if retry.is_none() && may_appear(error) { "; --retry 5s waits until it is there" } else { "" }
}

/// Whether `error`, of an attempt to connect, means that no listener is at the address yet, so that
/// a later attempt may succeed.
pub fn may_appear(error: &partywall_sys::ConnectError) -> bool {
    use partywall_sys::ConnectError::{NotFound, Refused, TimedOut};
    matches!(error, NotFound { .. } | Refused { .. } | TimedOut { .. })
}

/// Whether `deadline` is set and has not passed yet.
pub fn is_ahead(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() < deadline)
}

/// Pause between two attempts to connect to a listener that does not exist yet.
pub const RETRY_PERIOD: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  partywall connect unix:/tmp/demo.sock < file      send a file to `partywall listen`
  partywall connect unix:/tmp/demo.sock --retry 5s  the listener may start later
  tar c . | partywall connect unix:/tmp/demo.sock --stats
  partywall connect unix:/tmp/demo.sock --transport socket < file     to compare
  partywall connect tcp:127.0.0.1:4000              type, and press Ctrl-D at the end

Stdin goes to the peer, and the bytes of the peer go to stdout. The end of stdin closes that
direction only: the bytes of the peer are received until it has closed its direction too.";
