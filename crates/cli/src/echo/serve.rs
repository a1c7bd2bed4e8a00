// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall echo serve`: echoes all messages, at several addresses, to many clients at once.
//!
//! ```text
//!   address ── thread `accept` ──┬── connection ── thread `echo`
//!   address ── thread `accept` ──┴── connection ── …        at most --clients of them
//!                      ▲ doorbell                 │ counters
//!   main ── waits for --for, --count, or a signal ┘
//! ```
//! A signal ends the server as the end of --for does, but without waiting for clients to leave. In
//! both cases the socket files are removed.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use partywall::{Channel, Closed, SendError};
use partywall_sys::Doorbell;
use partywall_sys::poll::{self, PollFd, PollFlags};

use super::endpoint::Endpoint;
use super::listener::{Client, EchoListener};
use crate::command::advice::InFlags;
use crate::command::channel_options::{ChannelOptions, ListenOptions};
use crate::command::exit::{EXIT_CODES, Exit};
use crate::command::signals::Caught;
use partywall_bench::figure::quantity::{
    bandwidth_name, counted, parse_count, parse_time, per_second, rate_name, time_name,
};

/// Echo all messages, at several addresses
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Arguments {
    /// Addresses: unix:/path, unix:@name, tcp:host:port; with plain: before it, lines over a plain
    /// socket
    #[arg(long, value_name = "ADDRESS", num_args = 1.., required = true)]
    listen: Vec<Endpoint>,
    /// Use lines over a plain socket at all addresses, as if each began with plain:
    #[arg(long)]
    plain: bool,
    /// Largest number of clients served at once; further clients wait until another has left
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    clients: u32,
    /// End the server after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,
    /// End the server after this many echoed messages, counted over all clients, such as 500, 10k
    /// or 1m
    #[arg(long, short = 'n', value_name = "N", value_parser = parse_count)]
    count: Option<u64>,
    #[command(flatten)]
    channel: ChannelOptions,
    #[command(flatten)]
    listen_options: ListenOptions,
}

/// Serves until the time of --for has passed, the messages of --count are echoed, or a signal
/// arrives.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let config = arguments.listen_options.apply(arguments.channel.config());
    let service = Arc::new(Service {
        counters: Mutex::default(),
        changed: Condvar::new(),
        clients_max: arguments.clients,
        count_max: arguments.count.unwrap_or(u64::MAX),
    });
    let caught = Arc::new(Caught::catch().context("catching signals failed")?);
    let started = Instant::now();
    let mut listeners = Vec::new();
    for endpoint in &arguments.listen {
        let endpoint = endpoint.plain_if(arguments.plain);
        match EchoListener::bind(&endpoint, &config, arguments.listen_options.mode) {
            Ok(listener) => {
                println!("listening on {}", listener.endpoint());
                listeners.push(listener);
            }
            Err(reason) => {
                eprintln!("partywall: {endpoint}: {reason}");
                return Ok(Exit::NoConnection.into());
            }
        }
    }
    let mut acceptors = Vec::new();
    for listener in listeners {
        acceptors.push(Acceptor::start(listener, &service)?);
    }
    end_on_signal(&caught, &service)?;
    service.wait_until_done(arguments.duration.map(|duration| started + duration));
    for acceptor in acceptors {
        acceptor.stop();
    }
    let interrupted = caught.release();
    if interrupted.is_none() {
        service.wait_until_empty(Instant::now() + GRACE);
    }
    println!("{}", service.text(started.elapsed()));
    Ok(interrupted.unwrap_or(Exit::Done.into()))
}

fn end_on_signal(caught: &Arc<Caught>, service: &Arc<Service>) -> Result<()> {
    let (caught, service) = (Arc::clone(caught), Arc::clone(service));
    let watch = move || {
        if caught.wait().is_ok() {
            service.end();
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .context("starting a thread failed")?;
    Ok(())
}

/// A thread that accepts clients at one address, and the doorbell by which another thread makes it
/// end.
struct Acceptor {
    doorbell: Arc<Doorbell>,
    thread: JoinHandle<()>,
}

impl Acceptor {
    fn start(listener: EchoListener, service: &Arc<Service>) -> Result<Self> {
        let doorbell = Arc::new(Doorbell::new().context("making an eventfd failed")?);
        let (stop, service) = (Arc::clone(&doorbell), Arc::clone(service));
        let thread = thread::Builder::new().name("accept".to_owned());
        let thread = thread
            .spawn(move || accept_all(listener, &stop, &service))
            .context("starting a thread failed")?;
        Ok(Self { doorbell, thread })
    }

    /// Ends the acceptor's thread; the thread then drops its listener, which removes the socket
    /// file.
    fn stop(self) {
        if self.doorbell.notify().is_ok() {
            let _ = self.thread.join();
        }
    }
}

/// Accepts clients at one address until another thread notifies `doorbell`.
fn accept_all(mut listener: EchoListener, doorbell: &Doorbell, service: &Arc<Service>) {
    while service.wait_for_place() {
        // The thread accepts all pending clients before it waits, because the listener's descriptor
        // reports only new clients.
        let client = match listener.try_accept() {
            Ok(Some(client)) => client,
            Ok(None) => {
                let mut ready = [
                    PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(doorbell.as_fd(), PollFlags::IN),
                ];
                if poll::wait(&mut ready, None).is_err() || !ready[1].revents().is_empty() {
                    return;
                }
                continue;
            }
            Err(reason) => {
                eprintln!("partywall: {}: {reason}", listener.endpoint());
                thread::sleep(FAILURE_PAUSE);
                continue;
            }
        };
        let (served, label) = (Arc::clone(service), listener.endpoint().to_owned());
        served.enter();
        let serve_one = move || {
            if let Err(reason) = serve(client, &served) {
                eprintln!("partywall: {label}: {reason}");
            }
            served.leave();
        };
        if thread::Builder::new().name("echo".to_owned()).spawn(serve_one).is_err() {
            service.leave();
        }
    }
}

fn serve(client: Client, service: &Service) -> Result<(), String> {
    match client {
        Client::Channel(channel) => serve_channel(*channel, service),
        Client::Plain(stream) => stream.echo(|lines, bytes| service.count(lines, bytes)),
    }
}

fn serve_channel(channel: Channel, service: &Service) -> Result<(), String> {
    let peer = channel.peer().to_string();
    let (mut sender, mut receiver) = channel.split();
    loop {
        let message = match receiver.recv_ref() {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(()),
            Err(error) => return Err(format!("{peer}: {error}")),
        };
        match sender.send(&message) {
            Ok(()) => {}
            // The client has closed the channel in good order, so it needs no further echo.
            Err(SendError::Closed(Closed::Finished)) => return Ok(()),
            Err(error) => return Err(format!("{peer}: {}", error.in_flags())),
        }
        if service.count(1, message.len() as u64) {
            return Ok(());
        }
    }
}

/// The limits, the counters and the end of a running `echo serve`, which all its threads share.
struct Service {
    counters: Mutex<Counters>,
    changed: Condvar,
    clients_max: u32,
    count_max: u64,
}

#[derive(Default)]
struct Counters {
    messages: u64,
    bytes: u64,
    clients: u32,
    clients_seen: u64,
    is_done: bool,
}

impl Service {
    /// Adds `messages` and `bytes` to the counts of echoed messages and bytes; returns whether the
    /// service ends.
    fn count(&self, messages: u64, bytes: u64) -> bool {
        let mut counters = self.counters();
        counters.messages += messages;
        counters.bytes += bytes;
        if counters.messages >= self.count_max && !counters.is_done {
            counters.is_done = true;
            self.changed.notify_all();
        }
        counters.is_done
    }

    fn enter(&self) {
        let mut counters = self.counters();
        counters.clients += 1;
        counters.clients_seen += 1;
    }

    fn leave(&self) {
        self.counters().clients -= 1;
        self.changed.notify_all();
    }

    /// Waits until fewer clients than the limit are served; returns false if the service has ended.
    fn wait_for_place(&self) -> bool {
        let mut counters = self.counters();
        while counters.clients >= self.clients_max && !counters.is_done {
            counters = self.changed.wait(counters).unwrap_or_else(PoisonError::into_inner);
        }
        !counters.is_done
    }

    /// Waits until all messages of `--count` are counted, the service is ended, or `deadline` has
    /// passed; then ends the service.
    fn wait_until_done(&self, deadline: Option<Instant>) {
        self.wait_until(deadline, |counters| counters.is_done);
        self.end();
    }

    /// Ends the service: the accepting threads accept no further client, and the main thread stops
    /// waiting.
    fn end(&self) {
        self.counters().is_done = true;
        self.changed.notify_all();
    }

    /// Waits until all clients have left or `deadline` has passed, because clients may still read
    /// echoes.
    fn wait_until_empty(&self, deadline: Instant) {
        self.wait_until(Some(deadline), |counters| counters.clients == 0);
    }

    fn wait_until(&self, deadline: Option<Instant>, is_so: impl Fn(&Counters) -> bool) {
        let mut counters = self.counters();
        while !is_so(&counters) {
            let Some(deadline) = deadline else {
                counters = self.changed.wait(counters).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(counters, left);
            counters = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn text(&self, time: Duration) -> String {
        let counters = self.counters();
        format!(
            "echoed {} of {} in all, to {}, in {}: {}, {}",
            counted(counters.messages, "message"),
            counted(counters.bytes, "byte"),
            counted(counters.clients_seen, "client"),
            time_name(time),
            rate_name(per_second(counters.messages, time)),
            bandwidth_name(counters.bytes, time)
        )
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longest time that the ended server waits for its clients to read the last echoes and leave.
const GRACE: Duration = Duration::from_millis(200);

/// Pause after a failed accept, for example if no descriptor is left.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  partywall echo serve --listen unix:/tmp/e.sock
  partywall echo serve --listen unix:/tmp/e.sock tcp:127.0.0.1:4000 plain:unix:/tmp/p.sock
  partywall echo serve --listen tcp:127.0.0.1:0 --for 10s        port 0: the system chooses
  partywall echo serve --plain --listen unix:/tmp/p.sock --count 1
  printf 'hi\\n' | nc -UN /tmp/p.sock                             a client of the line above";
