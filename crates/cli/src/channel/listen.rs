// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall listen`: waits for one connection and joins it to stdin and stdout.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use partywall::{AcceptError, Address, Channel, Listener};
use partywall_sys::poll::{self, PollFd, PollFlags};

use super::pipe::{self, PipeOptions};
use crate::command::advice::InFlags;
use crate::command::channel_options::{ChannelOptions, ListenOptions};
use crate::command::exit::{EXIT_CODES, Exit};
use crate::command::signals::Caught;
use partywall_bench::figure::quantity::parse_time;

/// Wait for one connection, then join it to stdin and stdout
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Arguments {
    /// Where to listen: unix:/path, unix:@name, or tcp:host:port (port 0: any)
    #[arg(value_name = "ADDRESS")]
    address: Address,
    #[command(flatten)]
    channel: ChannelOptions,
    #[command(flatten)]
    listen: ListenOptions,
    #[command(flatten)]
    pipe: PipeOptions,
    /// Give up if nobody has connected by then [default: wait for ever]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    timeout: Option<Duration>,
    /// Do not say on stderr where we listen and who connected
    #[arg(long, short)]
    quiet: bool,
}

/// Listens, accepts one connection, and passes bytes until both directions have ended.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.pipe.check(&arguments.channel)?;
    let caught = Caught::catch().context("signals cannot be caught")?;
    let accepted = accept(arguments, &caught);
    // The listener is gone, and its socket file: from here on signals may end us at once.
    if let Some(code) = caught.let_go() {
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

/// The first connection. The address is free again as soon as it is there.
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
            return Err(format!("nobody connected to {} in time", arguments.address));
        }
        if events[1..].iter().any(|signal| !signal.revents().is_empty()) {
            return Err("interrupted".to_owned());
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  partywall listen unix:/tmp/wall.sock > copy       one side, in one terminal …
  partywall connect unix:/tmp/wall.sock < file      … the other side, in another
  partywall listen unix:/tmp/wall.sock --stats < /dev/null | sha256sum
  partywall listen tcp:127.0.0.1:4000               the same over TCP; then type, and press Ctrl-D
  partywall listen unix:@demo --transport wall      shared memory, or say why not

Stdin goes to the other side, and what comes from there goes to stdout. The end of stdin closes
that direction only: what still comes is received, until the other side has closed, too.";
