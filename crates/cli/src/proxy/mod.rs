// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall proxy`: shared memory for programs that only use TCP or Unix sockets.
//!
//! ```text
//!   program ── socket ──▶ entry ══ session, a stream each ══▶ exit ── socket ──▶ program
//!                        entry.rs                           exit.rs
//!
//!   route.rs    which side is plain         connection.rs  one connection and its ends
//!   session.rs  the session, reconnected    to_stream.rs  to_plain.rs  chunk.rs   the bytes
//!   plain.rs    TCP and Unix sockets        stage.rs       running, draining, ending
//!   shared.rs  counters.rs  log.rs                         shared by all connections
//! ```
//! The proxy does not interpret the bytes that it carries, and holds only those in flight.

mod chunk;
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
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use partywall::tokio::Listener;
use partywall::{Address, BackPressure, Config};
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

use crate::command::advice::InFlags;
use crate::command::channel_options::{ChannelOptions, ListenOptions};
use crate::command::exit::{Exit, usage};
use crate::command::refusals::Refusals;
use partywall_bench::figure::quantity::{counted, parse_size, parse_time};

use log::Log;
use plain::PlainListener;
use route::{Endpoint, Route};
use session::SharedSession;
use shared::Shared;
use stage::{Signals, Stage, Stages};

/// Carry the TCP or Unix sockets of other programs over shared memory
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXITS}"))]
pub struct Arguments {
    /// Address to accept on: unix:/path, unix:@name, or tcp:host:port; with plain: before it, for
    /// programs without Partywall
    #[arg(long, value_name = "ADDRESS")]
    listen: Endpoint,
    /// Address that accepted connections lead to, such as unix:/run/app.sock, or
    /// plain:tcp:127.0.0.1:80 for a program without Partywall
    #[arg(long, value_name = "ADDRESS")]
    to: Endpoint,
    /// Largest number of connections carried at once; further connections wait until another has
    /// ended
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    connections: u32,
    /// Longest time to establish a connection, even if the other proxy is not running; after it,
    /// the connection fails
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    connect_timeout: Duration,
    /// Time that open connections have to end after SIGINT or SIGTERM; after it, they are reset
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    drain: Duration,
    /// Number of unread bytes of one connection at which its sender has to wait
    #[arg(long, value_name = "SIZE", default_value = "256k", value_parser = parse_size)]
    window: u64,
    /// Number of threads that carry bytes
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    #[command(flatten)]
    channel: ChannelOptions,
    #[command(flatten)]
    at: ListenOptions,
    /// At the end, print the counters on stderr
    #[arg(long)]
    stats: bool,
    /// Interval at which to print a line of counters on stderr
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    stats_every: Option<Duration>,
    /// Do not print addresses and events on stderr
    #[arg(long, short)]
    quiet: bool,
}

/// Runs `partywall proxy`: carries connections until a signal ends the proxy.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let route = match Route::decide(&arguments.listen, &arguments.to) {
        Ok(route) => route,
        Err(advice) => return Err(usage(advice)),
    };
    if arguments.window > arguments.channel.memory {
        return Err(usage(format!(
            "--window {} exceeds --memory {}: choose a smaller window, or allow more memory",
            arguments.window, arguments.channel.memory
        )));
    }
    let runtime = match arguments.threads {
        1 => Builder::new_current_thread().enable_all().build(),
        count => Builder::new_multi_thread().worker_threads(count.into()).enable_all().build(),
    };
    let runtime = runtime.context("starting the threads failed")?;
    let exit = runtime.block_on(proxy(arguments, route));
    // A name lookup blocks a thread of the runtime; with the time limit, the end of the proxy does
    // not wait for it. Bytes that the proxy wrote to sockets still arrive, because the kernel
    // delivers them.
    runtime.shutdown_timeout(SHUTDOWN_TIME);
    exit
}

async fn proxy(arguments: &Arguments, route: Route) -> Result<ExitCode> {
    let mut signals = Signals::new().context("taking over SIGINT and SIGTERM failed")?;
    let (stage, stages) = Stages::new();
    let (alive, mut all_closed) = mpsc::channel::<()>(1);
    let places = usize::try_from(arguments.connections).unwrap_or(usize::MAX);
    let timeout = arguments.connect_timeout;
    let log = Log::start(io::stderr()).context("starting a thread failed")?;
    let output = (log, arguments.quiet);
    let shared = Arc::new(Shared::new(stages, places, timeout, output, &alive));
    let serving = match start(arguments, route, &shared) {
        Ok(serving) => serving,
        Err(reason) => {
            eprintln!("partywall: {reason}");
            return Ok(Exit::NoConnection.into());
        }
    };
    let reporting =
        arguments.stats_every.map(|every| tokio::spawn(report(every, Arc::clone(&shared))));
    let _first = signals.next().await;
    // The first sender of `alive` is this function's; each open connection has one more.
    match alive.strong_count() - 1 {
        0 => shared.print("stopping"),
        open => shared.print(&format!(
            "stopping: waiting up to {:?} for {}",
            arguments.drain,
            counted(open as u64, "open connection")
        )),
    }
    stage.send_replace(Stage::Draining);
    // Before the proxy goes on, the task that accepts connections has to end, because it removes
    // the socket file when it ends. The result of that task is ignored.
    let _ = serving.await;
    drop(alive);
    let second = select! {
        () = finish(&stage, &mut all_closed, arguments.drain) => None,
        signal = signals.next() => Some(signal),
    };
    reporting.iter().for_each(JoinHandle::abort);
    let table = if arguments.stats { shared.counters.table() } else { String::new() };
    shared.log.finish(table.trim_end(), SHUTDOWN_TIME);
    Ok(second.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal)))
}

/// Waits until all connections are closed; resets those that outlast `drain`.
async fn finish(
    stage: &watch::Sender<Stage>,
    all_closed: &mut mpsc::Receiver<()>,
    drain: Duration,
) {
    select! {
        _ = all_closed.recv() => {}
        () = sleep(drain) => {}
    }
    stage.send_replace(Stage::Ending);
    select! {
        _ = all_closed.recv() => {}
        () = sleep(SHUTDOWN_TIME) => {}
    }
}

/// Binds the listener, and starts the tasks of an entry or an exit proxy, which accept and connect.
fn start(
    arguments: &Arguments,
    route: Route,
    shared: &Arc<Shared>,
) -> Result<JoinHandle<()>, String> {
    let at = &arguments.at;
    let config = config(arguments);
    let announce = |listening: &dyn std::fmt::Display, is_plain: bool| {
        let plain = if is_plain { "plain:" } else { "" };
        shared.print(&format!("listening on {plain}{listening}"));
    };
    match route {
        Route::In { plain, shm } => {
            let listener = PlainListener::bind(&plain, at.mode, at.allow_remote)?;
            announce(&listener.local_address(&plain), arguments.listen.is_plain);
            let (supervisor, session) = SharedSession::new(shm, config);
            tokio::spawn(supervisor.run(Arc::clone(shared)));
            Ok(tokio::spawn(entry::serve(listener, session, Arc::clone(shared))))
        }
        Route::Out { shm, plain } => {
            let (log, refusals) = (shared.log.clone(), Refusals::default());
            let config = at.apply(config).on_refused(move |error| {
                if let Some(line) = refusals.line(error, Instant::now()) {
                    log.print(&line);
                }
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

/// The configuration of the session. A connection whose program does not read must not block other
/// connections. So, if the blocks of such a connection occupy all memory, further messages overflow
/// into the ring. The session lives as long as the proxies, so memory is shared from the start.
fn config(arguments: &Arguments) -> Config {
    arguments
        .channel
        .config()
        .back_pressure(BackPressure::Overflow)
        .inline_max(chunk::SHORT_BYTES)
        .stream_window(arguments.window)
        .streams_max(arguments.connections)
}

async fn report(every: Duration, shared: Arc<Shared>) {
    let mut ticks = interval(every);
    loop {
        ticks.tick().await;
        shared.log.report(&shared.counters.line());
    }
}

/// Longest time that the ending proxy waits for the last records of a session, and for the last
/// lines on stderr.
const SHUTDOWN_TIME: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  partywall proxy --listen unix:/run/redis.shm --to tcp:127.0.0.1:6379     next to the server …
  partywall proxy --listen tcp:127.0.0.1:7000 --to unix:/run/redis.shm     … next to the clients
  redis-cli -p 7000 ping                                                   … which need no change
  partywall proxy --listen unix:/run/pg.shm --to plain:unix:/run/postgresql/.s.PGSQL.5432
  partywall proxy --listen plain:unix:/tmp/.s.PGSQL.5432 --to unix:/run/pg.shm
  partywall proxy --listen tcp:127.0.0.1:7000 --to unix:/run/redis.shm --stats --stats-every 10s
  partywall proxy --listen tcp:127.0.0.1:7000 --to unix:@redis --connections 100 --drain 30s

Of a tcp: and a unix: address, the tcp: one is the plain side. If both are of one kind, write plain:
before the one for programs without Partywall.

Each direction of a connection ends by itself. A reset passes through as well, except that a Unix
socket cannot tell a reset from the end. A program that does not read makes its peer wait. If the
other proxy ends, its connections are reset, and new ones wait until it is back.

Output on stderr delays no connection: if it is not read, lines are left out and counted.";

const EXITS: &str = "\
Exit codes:
  0  SIGINT or SIGTERM ended it; connections that outlasted --drain were reset
  1  this machine failed
  2  wrong usage
  3  could not listen
  130, 143  a second signal ended it";

// The codes of the record RESET by which a proxy gives up a stream (SPEC 11.3).

/// Code of the record RESET: the plain socket was reset by its program, or failed.
const RESET: u32 = 1;
/// Code of the record RESET: the exit proxy could not connect a plain socket to its target.
const UNREACHABLE: u32 = 2;
/// Code of the record RESET: connecting to the target took longer than `--connect-timeout`, perhaps
/// because as many connections as `--connections` allows were open.
const LATE: u32 = 3;
/// Code of the record RESET: the proxy ends, and the time of `--drain` has passed.
const ENDING: u32 = 4;
/// Code with which a stream's receiving direction is stopped: the program at the plain socket reads
/// no more, but may still write.
const READS_NO_MORE: u32 = 5;

/// The text that tells the operator why a connection was never established. `code` is that of the
/// record RESET that ended the connection's stream.
const fn reset_reason(code: u32) -> &'static str {
    match code {
        UNREACHABLE => {
            "the other proxy could not connect to its --to: read its output, and check that the server runs"
        }
        LATE => {
            "the other proxy had no connection within its --connect-timeout: raise its --connections, or \
             check whether the server is busy"
        }
        _ => "the other proxy is ending and accepts no more connections",
    }
}
