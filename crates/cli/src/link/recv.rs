// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link recv`: messages of a link to stdout or into a file, consumed once they are written.
//!
//! ```text
//!   link ─ as many as are there, up to 64 messages, 64 KiB ─▶ [ledger: consumed, length] ─▶ written ─▶ committed
//!     ▲                                                                                                  │
//!     └── waits: the link │ SIGINT, SIGTERM │ --timeout      --once: the peer has left, all is written ─▶ exit 0
//! ```
//!
//! That `--exactly-once` is true is argued in ledger.rs. One thing more is needed there: between entry and commit no connection may
//! begin, for it could bring another stream, and does not, because nothing here drives the link in between. A batch of which the
//! beginning is no more what the link waits to have committed, because a connection came while it was gathered, is
//! cut off again; it comes anew.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use partywall::Address;
use partywall_link::{
    AcceptError, AckError, BindError, Config, Group, Link, Message, Server, TryRecvError,
};
use partywall_sys::poll;

use super::admission::Gate;
use super::checkpoint::{self, Entry, Identity, Kind, Ledger};
use super::framing::Framing;
use super::monitor::{Ended, Watch};
use super::options::EndOptions;
use super::output::Output;
use super::send::in_flags;
use super::totals;
use crate::command::channel_options::parse_mode;
use crate::command::exit::{EXIT_CODES, Exit};
use crate::command::signals::Caught;

/// Receive messages, and write them to stdout or to a file
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Arguments {
    /// Where to be found: unix:/path, unix:@name, or tcp:host:port (port 0: any)
    #[arg(value_name = "ADDRESS")]
    address: Address,
    #[command(flatten)]
    end: EndOptions,
    /// What the sender is called [default: the first that comes]
    #[arg(long, value_name = "B")]
    peer: Option<String>,
    /// Write to the end of this file [default: stdout]
    #[arg(long = "out", value_name = "FILE")]
    output: Option<PathBuf>,
    /// End when the sender has sent all and left
    #[arg(long)]
    once: bool,
    /// Over TCP, take anybody who says that it is the peer, without a --token-file
    #[arg(long)]
    allow_anonymous: bool,
    /// Let other hosts connect to a tcp: address; nothing is encrypted
    #[arg(long)]
    allow_remote: bool,
    /// Permissions of the socket file
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = parse_mode)]
    mode: u32,
}

/// Receives until the sender has left, or a signal comes.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let place = arguments.end.place(("--out", arguments.output.is_some()))?;
    let secret = arguments.end.secret()?;
    let (link, peer) = (&arguments.end.link, arguments.peer.as_ref());
    let gate = Gate::new(&arguments.address, link, peer, secret, arguments.allow_anonymous)?;
    let output = Output::open(arguments.output.as_ref())?;
    let caught = Caught::catch().context("signals cannot be caught")?;
    let group = Group::new().context("no descriptor is left")?;
    let config = Config::default()
        .ring_bytes(OWN_RING_BYTES)
        .slab_bytes(0)
        .links_max(1)
        .socket_mode(arguments.mode)
        .allow_remote(arguments.allow_remote)
        .group(&group);
    let bound = Server::bind(&arguments.address, place, &arguments.end.name, gate.guard(config));
    let server = match bound {
        Ok(server) => server,
        Err(error) => return not_bound(error),
    };
    if !arguments.end.quiet {
        eprintln!("listening on {}", server.local_address());
    }
    let watch = Watch::new(group, arguments.end.quiet, arguments.end.timeout);
    let mut waiting = Waiting { caught: &caught, watch };
    let ended = receive(arguments, &server, &gate, output, &mut waiting);
    drop(server);
    match ended {
        Ok(()) => Ok(caught.let_go().unwrap_or_else(|| Exit::Done.into())),
        Err(Ended { exit, reason }) => {
            eprintln!("partywall: {reason}");
            Ok(exit.into())
        }
    }
}

fn receive(
    arguments: &Arguments,
    server: &Server,
    gate: &Gate,
    output: Output,
    waiting: &mut Waiting<'_>,
) -> Result<(), Ended> {
    let Some(link) = waiting.first(arguments, server, gate)? else { return Ok(()) };
    let started = Instant::now();
    let receiving = Receiving::begin(arguments, &link, output);
    let ended = receiving.and_then(|receiving| receiving.run(waiting));
    if arguments.end.stats {
        eprint!("{}", totals::text("received", &link.stats(), started.elapsed()));
    }
    // The peer hears how far was consumed; if it is away, the next time.
    let _ = link.close(Instant::now() + GOOD_BYE_MAX);
    ended
}

/// For the link, or a signal.
struct Waiting<'a> {
    caught: &'a Caught,
    watch: Watch,
}

impl Waiting<'_> {
    /// The link to the peer, or to the first that comes; `None` if a signal came first.
    fn first(
        &mut self,
        arguments: &Arguments,
        server: &Server,
        gate: &Gate,
    ) -> Result<Option<Link>, Ended> {
        if let Some(peer) = &arguments.peer {
            let link = server.open(peer, &arguments.end.link).map_err(in_flags)?;
            return Ok(Some(link));
        }
        loop {
            match server.try_accept() {
                Ok(link) => {
                    gate.close_behind(link.key().remote());
                    return Ok(Some(link));
                }
                Err(AcceptError::TimedOut) => {}
                Err(error) => return Err(Ended::failed(error.to_string())),
            }
            self.watch.judge(true)?;
            if self.is_interrupted(true)? {
                return Ok(None);
            }
        }
    }

    /// Whether a signal has come. `is_idle`: waits for one, or for the link.
    fn is_interrupted(&self, is_idle: bool) -> Result<bool, Ended> {
        let mut signals = self.caught.descriptors();
        if is_idle {
            return self.watch.wait(&signals);
        }
        Ok(poll::wait(&mut signals, Some(Instant::now()))? > 0)
    }
}

/// What is under way.
struct Receiving<'a> {
    link: &'a Link,
    framing: Framing,
    output: Output,
    ledger: Option<Ledger>,
    is_once: bool,
    batch: Vec<Message>,
    bytes: Vec<u8>,
}

impl<'a> Receiving<'a> {
    fn begin(arguments: &Arguments, link: &'a Link, mut output: Output) -> Result<Self, Ended> {
        let framing = arguments.end.framing;
        let ledger = match &arguments.end.dir {
            Some(dir) if arguments.end.exactly_once => {
                let path = Ledger::path(&dir.join(link.key().file_name()), Kind::Out);
                Some(found_or_begun(&path, link, &mut output)?)
            }
            _ => {
                output.mend(framing)?;
                None
            }
        };
        let (is_once, batch, bytes) = (arguments.once, Vec::new(), Vec::new());
        Ok(Self { link, framing, output, ledger, is_once, batch, bytes })
    }

    fn run(mut self, waiting: &mut Waiting<'_>) -> Result<(), Ended> {
        loop {
            // Looked at before: what the peer sent before it left is here, then.
            waiting.watch.look(self.link, true)?;
            let has_left = waiting.watch.has_left();
            self.gather()?;
            let is_idle = self.batch.is_empty();
            if !is_idle {
                self.deliver()?;
                waiting.watch.moved();
            } else if self.is_once && has_left {
                return Ok(());
            }
            if waiting.is_interrupted(is_idle)? {
                return Ok(());
            }
        }
    }

    /// The messages that are here, as many as go in one batch.
    fn gather(&mut self) -> Result<(), Ended> {
        self.batch.clear();
        let mut bytes = 0;
        while self.batch.len() < BATCH_MESSAGES && bytes < BATCH_BYTES {
            let message = match self.link.try_recv() {
                Ok(Some(message)) => message,
                // That the peer has finished is an event, too.
                Ok(None) | Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Stopped(stopped)) => return Err(stopped.into()),
                Err(error) => return Err(Ended::failed(error.to_string())),
            };
            if self.batch.last().is_some_and(|last| !follows(&message, last)) {
                // A connection began, and with it all that was not committed.
                self.batch.clear();
            }
            bytes += message.len();
            self.batch.push(message);
        }
        Ok(())
    }

    /// Writes the batch, then commits it.
    fn deliver(&mut self) -> Result<(), Ended> {
        let Some(last) = self.batch.last().map(Message::token) else { return Ok(()) };
        let before = self.output.len();
        if let Some(ledger) = &mut self.ledger {
            ledger.write(entry_of(self.link, before)?)?;
        }
        self.bytes.clear();
        for message in &self.batch {
            self.framing.write(message, &mut self.bytes);
        }
        self.output.write(&self.bytes)?;
        match self.link.ack_to(last) {
            Ok(()) => Ok(()),
            Err(AckError::Stopped(stopped)) => Err(stopped.into()),
            // It comes again.
            Err(_) if self.ledger.is_some() => Ok(self.output.cut(before)?),
            Err(_) => Ok(()),
        }
    }
}

/// Whether a message is of the same stream as another, and behind it.
fn follows(message: &Message, last: &Message) -> bool {
    message.token().covers(&last.token()) && message.position() > last.position()
}

/// What is written down before a batch.
fn entry_of(link: &Link, length: u64) -> Result<Entry> {
    let at = link.acked_position()?;
    let (stream, position) = at.map_or((0, 0), |at| (at.stream, at.position));
    Ok(Entry { stream, position, first: length, second: link.epoch()? })
}

/// The ledger to go on with; what was written and not committed is cut off.
fn found_or_begun(path: &Path, link: &Link, output: &mut Output) -> Result<Ledger> {
    let Some(ledger) = Ledger::open(path, Kind::Out, output.file())? else {
        let identity = Identity::of(output.file(), false)?;
        let epoch = link.epoch()?;
        return Ledger::begin(path, Kind::Out, &identity, epoch, entry_of(link, output.len())?);
    };
    let Entry { stream, position, first: length, second: epoch } = ledger.entry();
    ensure!(
        output.len() >= length,
        "--out holds {} bytes, of {length} that were written: somebody has cut it. If that was meant, {}",
        output.len(),
        checkpoint::advice(Kind::Out)
    );
    match link.acked_position()? {
        Some(at) if at.stream == stream && at.position == position => output.cut(length)?,
        Some(at) if at.stream == stream && at.position < position => bail!(
            "the link's file is older than the output: it was put back from a copy. Look with `partywall link inspect`"
        ),
        // Another stream came with a connection, and that never while a batch was half written.
        Some(_) => {}
        None if stream == 0 || epoch != link.epoch()? => {}
        None => bail!(
            "{} goes with a link that had consumed, and this one has not: its file was lost and made anew, or adopt or reset              made it forget. The sender sends again what it still has: to take that, {}",
            path.display(),
            checkpoint::advice(Kind::Out)
        ),
    }
    Ok(ledger)
}

fn not_bound(error: BindError) -> Result<ExitCode> {
    let text = match error {
        BindError::NotLoopback { address } => format!(
            "{address} can be reached from other hosts, and TCP is not encrypted: bind a loopback address, or say \
             --allow-remote"
        ),
        BindError::System(error) => error.to_string(),
        BindError::Address(error) => error.to_string(),
        other => return Err(other.into()),
    };
    eprintln!("partywall: {text}");
    Ok(Exit::NoConnection.into())
}

/// The most messages in a batch.
const BATCH_MESSAGES: usize = 64;
/// And the most bytes, but for one message that is longer.
const BATCH_BYTES: usize = 64 << 10;
/// Nothing is sent the other way.
const OWN_RING_BYTES: u64 = 4096;
/// How long to wait for the peer to hear how far was consumed.
const GOOD_BYE_MAX: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  partywall link recv --dir links --name bob --peer alice unix:/tmp/links.sock          one end …
  partywall link send --dir links --name alice --peer bob unix:/tmp/links.sock < lines  … and the other
  partywall link recv --dir links --name bob --peer alice --once unix:/tmp/links.sock > lines
  partywall link recv --dir links --name bob --peer alice --out file --exactly-once unix:/tmp/links.sock
  partywall link recv --dir links --name bob tcp:127.0.0.1:7000 --token-file secret     the same secret at the sender

Each message is written as a line, and consumed once it is written: the sender then forgets it. What was not written
when this command was killed comes again. Ctrl-C and SIGTERM end it in good order. With --once it ends by itself when the
sender has sent all of its input and left; killed in just that moment it waits for another sender: run `send` again, which
finds everything consumed.

With --exactly-once nothing is in the file twice, whoever is killed and when. How long it was is written beside the link,
in a file of the same name that ends with .out; remove it to go on with another file. It survives kill -9, as the link
does, and not the loss of power.";
