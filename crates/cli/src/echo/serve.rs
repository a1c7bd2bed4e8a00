// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall echo serve`: sends back whatever comes, at several addresses, to many clients at a time.
//!
//! ```text
//!   address ── a thread that accepts ──┬── connection ── a thread that echoes
//!   address ── a thread that accepts ──┴── connection ── …        at most --clients of them
//!                      ▲ bell                     │ counts
//!   main ── waits for --for, --count, or a signal ┘
//! ```
//! A signal ends it as its time does, but without waiting for clients: no socket file stays behind.

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
use super::listener::{Client, Door};
use crate::command::advice::InFlags;
use crate::command::channel_options::{ChannelOptions, ListenOptions};
use crate::command::exit::{EXIT_CODES, Exit};
use crate::command::signals::Caught;
use partywall_bench::figure::quantity::{
    bandwidth_name, counted, parse_count, parse_time, per_second, rate_name, time_name,
};

/// Send back whatever comes, at several addresses
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Arguments {
    /// Where: unix:/path, unix:@name, tcp:host:port; with plain: before it, lines on a bare socket
    #[arg(long, value_name = "ADDRESS", num_args = 1.., required = true)]
    listen: Vec<Endpoint>,
    /// Speak plain lines at all of them
    #[arg(long)]
    plain: bool,
    /// How many clients to serve at a time; further ones wait
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    clients: u32,
    /// End after so long
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,
    /// End after so many messages in all, such as 500, 10k or 1m
    #[arg(long, short = 'n', value_name = "N", value_parser = parse_count)]
    count: Option<u64>,
    #[command(flatten)]
    channel: ChannelOptions,
    #[command(flatten)]
    listen_options: ListenOptions,
}

/// Serves until it is time to end.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let config = arguments.listen_options.apply(arguments.channel.config());
    let desk = Arc::new(Desk {
        books: Mutex::default(),
        changed: Condvar::new(),
        clients_max: arguments.clients,
        count_max: arguments.count.unwrap_or(u64::MAX),
    });
    let caught = Arc::new(Caught::catch().context("signals cannot be caught")?);
    let started = Instant::now();
    let mut doors = Vec::new();
    for endpoint in &arguments.listen {
        let endpoint = endpoint.plain_if(arguments.plain);
        match Door::open(&endpoint, &config, arguments.listen_options.mode) {
            Ok(door) => {
                println!("listening on {}", door.endpoint());
                doors.push(door);
            }
            Err(reason) => {
                eprintln!("partywall: {endpoint}: {reason}");
                return Ok(Exit::NoConnection.into());
            }
        }
    }
    let mut attendants = Vec::new();
    for door in doors {
        attendants.push(Attendant::start(door, &desk)?);
    }
    watch_signals(&caught, &desk)?;
    desk.wait_until_done(arguments.duration.map(|duration| started + duration));
    for attendant in attendants {
        attendant.dismiss();
    }
    let interrupted = caught.let_go();
    if interrupted.is_none() {
        desk.wait_until_empty(Instant::now() + GRACE);
    }
    println!("{}", desk.text(started.elapsed()));
    Ok(interrupted.unwrap_or(Exit::Done.into()))
}

/// A thread that ends the service when a signal comes.
fn watch_signals(caught: &Arc<Caught>, desk: &Arc<Desk>) -> Result<()> {
    let (caught, desk) = (Arc::clone(caught), Arc::clone(desk));
    let watch = move || {
        if caught.wait().is_ok() {
            desk.end();
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watch).context("no thread")?;
    Ok(())
}

/// A thread that accepts at one address, and the bell that ends it.
struct Attendant {
    doorbell: Arc<Doorbell>,
    thread: JoinHandle<()>,
}

impl Attendant {
    fn start(door: Door, desk: &Arc<Desk>) -> Result<Self> {
        let doorbell = Arc::new(Doorbell::new().context("no bell to be had")?);
        let (notified, desk) = (Arc::clone(&doorbell), Arc::clone(desk));
        let thread = thread::Builder::new().name("accept".to_owned());
        let thread = thread.spawn(move || attend(door, &notified, &desk)).context("no thread")?;
        Ok(Self { doorbell, thread })
    }

    /// Ends the thread, which closes the door and removes its socket file.
    fn dismiss(self) {
        if self.doorbell.notify().is_ok() {
            let _ = self.thread.join();
        }
    }
}

/// Lets clients in until the bell rings.
fn attend(mut door: Door, doorbell: &Doorbell, desk: &Arc<Desk>) {
    while desk.wait_for_place() {
        // First take those who are set up already: the descriptor tells of new ones only.
        let client = match door.try_accept() {
            Ok(Some(client)) => client,
            Ok(None) => {
                let mut ready = [
                    PollFd::from_borrowed_fd(door.as_fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(doorbell.as_fd(), PollFlags::IN),
                ];
                if poll::wait(&mut ready, None).is_err() || !ready[1].revents().is_empty() {
                    return;
                }
                continue;
            }
            Err(reason) => {
                eprintln!("partywall: {}: {reason}", door.endpoint());
                thread::sleep(AFTER_FAILURE);
                continue;
            }
        };
        let (served, label) = (Arc::clone(desk), door.endpoint().to_owned());
        served.enter();
        let serve_one = move || {
            if let Err(reason) = serve(client, &served) {
                eprintln!("partywall: {label}: {reason}");
            }
            served.leave();
        };
        if thread::Builder::new().name("echo".to_owned()).spawn(serve_one).is_err() {
            desk.leave();
        }
    }
}

/// Echoes until the client has closed.
fn serve(client: Client, desk: &Desk) -> Result<(), String> {
    match client {
        Client::Channel(channel) => serve_channel(*channel, desk),
        Client::Plain(stream) => stream.echo(|lines, bytes| desk.count(lines, bytes)),
    }
}

fn serve_channel(channel: Channel, desk: &Desk) -> Result<(), String> {
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
            // It has what it wanted.
            Err(SendError::Closed(Closed::Finished)) => return Ok(()),
            Err(error) => return Err(format!("{peer}: {}", error.in_flags())),
        }
        if desk.count(1, message.len() as u64) {
            return Ok(());
        }
    }
}

/// What all threads share: the counts, and how many clients there are.
struct Desk {
    books: Mutex<Books>,
    changed: Condvar,
    clients_max: u32,
    count_max: u64,
}

#[derive(Default)]
struct Books {
    messages: u64,
    bytes: u64,
    clients: u32,
    clients_seen: u64,
    is_done: bool,
}

impl Desk {
    /// Counts what was sent back; whether that was the last of all.
    fn count(&self, messages: u64, bytes: u64) -> bool {
        let mut books = self.books();
        books.messages += messages;
        books.bytes += bytes;
        if books.messages >= self.count_max && !books.is_done {
            books.is_done = true;
            self.changed.notify_all();
        }
        books.is_done
    }

    fn enter(&self) {
        let mut books = self.books();
        books.clients += 1;
        books.clients_seen += 1;
    }

    fn leave(&self) {
        self.books().clients -= 1;
        self.changed.notify_all();
    }

    /// Waits until one more client may come in; `false` if none may any more.
    fn wait_for_place(&self) -> bool {
        let mut books = self.books();
        while books.clients >= self.clients_max && !books.is_done {
            books = self.changed.wait(books).unwrap_or_else(PoisonError::into_inner);
        }
        !books.is_done
    }

    /// Waits for the last message, or for the time to end.
    fn wait_until_done(&self, deadline: Option<Instant>) {
        self.wait_until(deadline, |books| books.is_done);
        self.end();
    }

    /// Nobody comes in any more.
    fn end(&self) {
        self.books().is_done = true;
        self.changed.notify_all();
    }

    /// Waits until the clients have left, who may still be reading.
    fn wait_until_empty(&self, deadline: Instant) {
        self.wait_until(Some(deadline), |books| books.clients == 0);
    }

    fn wait_until(&self, deadline: Option<Instant>, is_so: impl Fn(&Books) -> bool) {
        let mut books = self.books();
        while !is_so(&books) {
            let Some(deadline) = deadline else {
                books = self.changed.wait(books).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(books, left);
            books = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn text(&self, time: Duration) -> String {
        let books = self.books();
        format!(
            "echoed {} of {} in all, to {}, in {}: {}, {}",
            counted(books.messages, "message"),
            counted(books.bytes, "byte"),
            counted(books.clients_seen, "client"),
            time_name(time),
            rate_name(per_second(books.messages, time)),
            bandwidth_name(books.bytes, time)
        )
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long clients may take to leave at the end.
const GRACE: Duration = Duration::from_millis(200);

/// A pause when a client could not be let in, such as for lack of descriptors.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  partywall echo serve --listen unix:/tmp/e.sock
  partywall echo serve --listen unix:/tmp/e.sock tcp:127.0.0.1:4000 plain:unix:/tmp/p.sock
  partywall echo serve --listen tcp:127.0.0.1:0 --for 10s        port 0: the system chooses
  partywall echo serve --plain --listen unix:/tmp/p.sock --count 1
  printf 'hi\\n' | nc -UN /tmp/p.sock                             a client of the line above";
