// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall proxy`: programs that only speak TCP or Unix sockets get across a wall.
//!
//! ```text
//!   program ── plain socket ──▶ entry ══ one session, a stream each ══▶ exit ── plain socket ──▶ program
//!                               way_in.rs                                way_out.rs
//!
//!   sides.rs   which side is plain          carry.rs      one connection: how its ends pass through
//!   link.rs    the session, made again      to_stream.rs  to_plain.rs  chunk.rs   the bytes
//!   plain.rs   TCP and Unix sockets         stage.rs      running, draining, ending
//!   shared.rs  counts.rs  codes.rs  log.rs  what all connections have in common
//! ```
//! It looks at no byte of what it carries, and keeps none but those under way.

mod chunk;
mod codes;
mod connection;
mod counters;
mod entry;
mod exit;
mod log;
mod plain;
mod route;
mod session;
mod shared;
mod stage;
mod to_plain;
mod to_stream;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use partywall::tokio::Listener;
use partywall::{Address, BackPressure, Config};
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

use crate::command::advice::InFlags;
use crate::command::channel_options::{ChannelOptions, ListenOptions};
use crate::command::exit::Exit;
use partywall_bench::figure::quantity::{parse_size, parse_time};

use log::Log;
use plain::PlainListener;
use route::{Side, Way};
use session::Link;
use shared::Shared;
use stage::{Signals, Stage, Stages};

/// Carry the TCP or Unix sockets of other programs across a wall
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXITS}"))]
pub struct Arguments {
    /// Where to accept: unix:/path, unix:@name, or tcp:host:port; with plain: before it, sockets of
    /// programs without Partywall
    #[arg(long, value_name = "ADDRESS")]
    listen: Side,
    /// Where what was accepted leads, written in the same way
    #[arg(long, value_name = "ADDRESS")]
    to: Side,
    /// The most connections at a time; further ones wait
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    connections: u32,
    /// How long a connection may take to come about, also where the other proxy is not there yet
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    connect_timeout: Duration,
    /// After SIGINT or SIGTERM: how long connections that are open may go on
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    drain: Duration,
    /// How much of one connection may lie unread on our side of the wall before its sender waits
    #[arg(long, value_name = "SIZE", default_value = "256k", value_parser = parse_size)]
    window: u64,
    /// How many threads carry bytes
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    #[command(flatten)]
    channel: ChannelOptions,
    #[command(flatten)]
    at: ListenOptions,
    /// At the end, print to stderr what was carried
    #[arg(long)]
    stats: bool,
    /// Print a line to stderr at such intervals
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    stats_every: Option<Duration>,
    /// Do not say on stderr where we listen and what happens
    #[arg(long, short)]
    quiet: bool,
}

/// Carries connections until a signal comes.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let way = match Way::decide(&arguments.listen, &arguments.to) {
        Ok(way) => way,
        Err(advice) => bail!("{advice}"),
    };
    ensure!(
        arguments.window <= arguments.channel.memory,
        "--window {} exceeds --memory {}: make the window smaller, or allow more memory",
        arguments.window,
        arguments.channel.memory
    );
    let runtime = match arguments.threads {
        1 => Builder::new_current_thread().enable_all().build(),
        count => Builder::new_multi_thread().worker_threads(count.into()).enable_all().build(),
    };
    let runtime = runtime.context("starting the threads failed")?;
    let exit = runtime.block_on(proxy(arguments, way));
    // What was sent is delivered all the same; names that are still looked up are not waited for.
    runtime.shutdown_timeout(SHUTDOWN_TIME);
    exit
}

async fn proxy(arguments: &Arguments, way: Way) -> Result<ExitCode> {
    let mut signals = Signals::new().context("taking over SIGINT and SIGTERM failed")?;
    let (stage, stages) = Stages::new();
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    let places = usize::try_from(arguments.connections).unwrap_or(usize::MAX);
    let timeout = arguments.connect_timeout;
    let log = Log::start(io::stderr()).context("starting a thread failed")?;
    let says = (log, arguments.quiet);
    let shared = Arc::new(Shared::new(stages, places, timeout, says, &alive));
    let serving = match start(arguments, way, &shared) {
        Ok(serving) => serving,
        Err(reason) => {
            eprintln!("partywall: {reason}");
            return Ok(Exit::NoConnection.into());
        }
    };
    let reporting =
        arguments.stats_every.map(|every| tokio::spawn(report(every, Arc::clone(&shared))));
    let _first = signals.next().await;
    shared.say(&format!("stopping: waiting up to {:?} for what is open", arguments.drain));
    stage.send_replace(Stage::Draining);
    // The socket file is gone once this is over.
    let _ = serving.await;
    drop(alive);
    let second = select! {
        () = finish(&stage, &mut all_gone, arguments.drain) => None,
        signal = signals.next() => Some(signal),
    };
    reporting.iter().for_each(JoinHandle::abort);
    let table = if arguments.stats { shared.counts.table() } else { String::new() };
    shared.log.finish(table.trim_end(), SHUTDOWN_TIME);
    Ok(second.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal)))
}

/// Waits until nothing is open; cuts off what is open for too long.
async fn finish(stage: &watch::Sender<Stage>, all_gone: &mut mpsc::Receiver<()>, drain: Duration) {
    select! {
        _ = all_gone.recv() => {}
        () = sleep(drain) => {}
    }
    stage.send_replace(Stage::Ending);
    select! {
        _ = all_gone.recv() => {}
        () = sleep(SHUTDOWN_TIME) => {}
    }
}

/// Listens, and starts to accept.
fn start(arguments: &Arguments, way: Way, shared: &Arc<Shared>) -> Result<JoinHandle<()>, String> {
    let at = &arguments.at;
    let config = config(arguments);
    let announce = |listening: &dyn std::fmt::Display, says_plain: bool| {
        let plain = if says_plain { "plain:" } else { "" };
        shared.say(&format!("listening on {plain}{listening}"));
    };
    match way {
        Way::In { plain, shm } => {
            let listener = PlainListener::bind(&plain, at.mode, at.allow_remote)?;
            announce(&listener.local_address(&plain), arguments.listen.says_plain);
            let (keeper, link) = Link::new(shm, config);
            tokio::spawn(keeper.keep(Arc::clone(shared)));
            Ok(tokio::spawn(entry::serve(listener, link, Arc::clone(shared))))
        }
        Way::Out { shm, plain } => {
            let log = shared.log.clone();
            let config = at.apply(config).on_refused(move |error| {
                log.say(&format!("partywall: refused: {}", error.in_flags()));
            });
            let listener = bind(&shm, &config)?;
            announce(listener.local_address(), false);
            Ok(tokio::spawn(exit::serve(listener, plain, Arc::clone(shared))))
        }
    }
}

fn bind(shm: &Address, config: &Config) -> Result<Listener, String> {
    Listener::bind_with(shm, config).map_err(|error| error.in_flags())
}

/// One connection that nobody reads must not hold up others: where its blocks take all memory, the rest goes
/// through the ring.
fn config(arguments: &Arguments) -> Config {
    arguments
        .channel
        .config()
        .back_pressure(BackPressure::Overflow)
        .inline_max(chunk::SHORT_BYTES)
        .stream_window(arguments.window)
        .streams_max(arguments.connections)
}

/// Prints a line now and then.
async fn report(every: Duration, shared: Arc<Shared>) {
    let mut ticks = interval(every);
    loop {
        ticks.tick().await;
        shared.log.report(&shared.counts.line());
    }
}

/// How long the last words of a session may take, and ours on stderr.
const SHUTDOWN_TIME: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  partywall proxy --listen unix:/run/redis.wall --to tcp:127.0.0.1:6379     beside the server …
  partywall proxy --listen tcp:127.0.0.1:7000 --to unix:/run/redis.wall     … beside the clients
  redis-cli -p 7000 ping                                                   … who notice nothing
  partywall proxy --listen unix:/run/pg.wall --to plain:unix:/run/postgresql/.s.PGSQL.5432
  partywall proxy --listen plain:unix:/tmp/.s.PGSQL.5432 --to unix:/run/pg.wall
  partywall proxy --listen tcp:127.0.0.1:7000 --to unix:/run/redis.wall --stats --stats-every 10s
  partywall proxy --listen tcp:127.0.0.1:7000 --to unix:@redis --connections 100 --drain 30s

A tcp: address beside a unix: one is the plain side. Where both are of one kind, write plain: before
the one where programs without Partywall are.

The end of what one program sends passes through while the other direction goes on; so does a reset,
which a Unix socket cannot tell from the end. Who does not read makes the other side wait. When the
other proxy is gone, its connections are reset, and new ones wait until it is back.

What is said on stderr holds up no connection: while nobody reads it, lines are left out, and counted.";

const EXITS: &str = "\
Exit codes:
  0  SIGINT or SIGTERM came, and everything ended; what outlasted --drain was reset
  1  wrong usage, or this machine failed
  3  could not listen
  130, 143  a second signal came";
