// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall listen`: accepts one channel and joins it to stdin and stdout.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use partywall::{AcceptError, Address, Channel, Listener};
use partywall_sys::poll::{self, PollFd, PollFlags};

use super::pipe::{self, PipeOptions};
use crate::command::advice::InFlags;
use crate::command::channel_options::{ChannelOptions, ListenOptions, parse_channel_address};
use crate::command::exit::{EXIT_CODES, Exit};
use crate::command::signals::Caught;
use partywall_bench::figure::quantity::parse_time;

/// Wait for one connection, then join it to stdin and stdout
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Arguments {
    /// Address to listen on: unix:/path, unix:@name, or tcp:host:port (port 0: any)
    #[arg(value_name = "ADDRESS", value_parser = parse_channel_address)]
    address: Address,
    #[command(flatten)]
    channel: ChannelOptions,
    #[command(flatten)]
    listen: ListenOptions,
    #[command(flatten)]
    pipe: PipeOptions,
    /// Longest time to wait for a connection; after it, the command fails [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    timeout: Option<Duration>,
    /// Do not print the address and the peer on stderr
    #[arg(long, short)]
    quiet: bool,
}

/// Runs `partywall listen`: accepts one connection, and carries bytes until both directions have
/// ended.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.pipe.check(&arguments.channel)?;
    let caught = Caught::catch().context("catching signals failed")?;
    let accepted = accept(arguments, &caught);
    // The listener was closed after it had accepted, and its socket file is removed. So from here
    // on a signal may end the process at once.
    if let Some(code) = caught.release() {
        return Ok(code);
    }
    let channel = match accepted {
        Ok(channel) => channel,
        Err(reason) => {
            eprintln!("partywall: {reason}");
            return Ok(Exit::NoConnection.into());
        }
    };
    if !arguments.quiet {
        eprintln!("connected: {} over {}", channel.peer(), channel.transport());
    }
    pipe::run(channel, &arguments.pipe)
}

/// Accepts the first connection, and closes the listener. When the call returns, another process
/// can listen at the address.
fn accept(arguments: &Arguments, caught: &Caught) -> Result<Channel, String> {
    let config = arguments.listen.apply(arguments.channel.config());
    let mut listener =
        Listener::bind_with(&arguments.address, &config).map_err(|error| error.in_flags())?;
    if !arguments.quiet {
        eprintln!("listening on {}", listener.local_address());
    }
    let deadline = arguments.timeout.map(|timeout| Instant::now() + timeout);
    loop {
        match listener.try_accept() {
            Err(AcceptError::TimedOut) => {}
            other => return other.map_err(|error| error.to_string()),
        }
        let [interrupt, terminate] = caught.descriptors();
        let mut events = [PollFd::new(&listener, PollFlags::IN), interrupt, terminate];
        let ready = poll::wait(&mut events, deadline).map_err(|error| error.to_string())?;
        if ready == 0 {
            return Err(format!("no connection to {} within --timeout", arguments.address));
        }
        if events[1..].iter().any(|signal| !signal.revents().is_empty()) {
            return Err("interrupted".to_owned());
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  partywall listen unix:/tmp/demo.sock > copy       one side, in one terminal …
  partywall connect unix:/tmp/demo.sock < file      … the peer, in another
  partywall listen unix:/tmp/demo.sock --stats < /dev/null | sha256sum
  partywall listen tcp:127.0.0.1:4000               the same over TCP; then type, and press Ctrl-D
  partywall listen unix:@demo --transport shm       shared memory, or an error with the reason

Stdin goes to the peer, and the bytes of the peer go to stdout. The end of stdin closes that
direction only: the bytes of the peer are received until it has closed its direction too.";
