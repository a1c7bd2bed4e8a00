// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link send`: messages of a file or of stdin into a link, until the peer has consumed them all.
//!
//! ```text
//!   input ─ read ─▶ Splitter ─ up to 64 messages, 64 KiB ─▶ [ledger: before, after] ─▶ batch ─▶ link
//!      ▲                                                                                        │
//!      └── waits only when nothing whole is there to send                 all consumed ─▶ LEAVE ─▶ exit 0
//! ```
//!
//! Whoever fails leaves without a word, as whoever is killed does: a good-bye means that the input is at its end and
//! consumed, and `recv --once` relies on it. So signals are not caught here: they end the process at once.
//!
//! That `--exactly-once` is true is argued in ledger.rs.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use partywall::Address;
use partywall_link::{Client, Config, Group, Link, OpenError, SendError, TrySendError};
use partywall_sys::poll::{PollFd, PollFlags};

use super::checkpoint::{self, Entry, Identity, Kind, Ledger};
use super::framing::Splitter;
use super::monitor::{Ended, Watch};
use super::options::EndOptions;
use super::totals;
use crate::command::exit::{EXIT_CODES, Exit};
use partywall_bench::figure::quantity::parse_size;

/// Send the lines of a file or of stdin, and wait until they are consumed
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Arguments {
    /// Where the receiver is: unix:/path, unix:@name, or tcp:host:port
    #[arg(value_name = "ADDRESS")]
    address: Address,
    #[command(flatten)]
    end: EndOptions,
    /// What the receiver is called
    #[arg(long, value_name = "B")]
    peer: String,
    /// Read from this file [default: stdin]
    #[arg(long = "in", value_name = "FILE")]
    input: Option<PathBuf>,
    /// Begin this epoch: what the one before left undelivered is dropped, and reported
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
    /// Size of the ring that keeps small messages until they are consumed; of a new link
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = parse_size)]
    ring: u64,
    /// Size of the memory for large messages, and so the longest message; of a new link
    #[arg(long, value_name = "SIZE", default_value = "4m", value_parser = parse_size)]
    slab: u64,
}

/// Sends everything.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let place = arguments.end.place(("--in", arguments.input.is_some()))?;
    let secret = arguments.end.secret()?;
    let input = opened(arguments.input.as_ref())?;
    let group = Group::new().context("no descriptor is left")?;
    let config = Config::default()
        .ring_bytes(arguments.ring)
        .slab_bytes(arguments.slab)
        .login(secret.unwrap_or_default())
        .group(&group);
    let client = Client::new(place, &arguments.end.name, config).map_err(in_flags)?;
    let opened = client.connect(&arguments.address, &arguments.peer, &arguments.end.link);
    let link = opened.map_err(in_flags)?;
    let started = Instant::now();
    let watch = Watch::new(group, arguments.end.quiet, arguments.end.timeout);
    let ended = Sending::begin(arguments, &link, input, watch).and_then(Sending::run);
    if arguments.end.stats {
        eprint!("{}", totals::text("sent", &link.stats(), started.elapsed()));
    }
    match ended {
        Ok(()) => {
            // All of it is consumed: what is not said in time is not missed.
            let _ = link.close(Instant::now() + GOOD_BYE_MAX);
            Ok(Exit::Done.into())
        }
        Err(Ended { exit, reason }) => {
            eprintln!("partywall: {reason}");
            // Closed in good order, it would pass for the end.
            mem::forget(link);
            Ok(exit.into())
        }
    }
}

/// What is under way.
struct Sending<'a> {
    link: &'a Link,
    input: File,
    splitter: Splitter,
    ledger: Option<Ledger>,
    watch: Watch,
    epoch: u64,
    /// The most bytes of a batch: less than it might be, once one did not fit the ring.
    batch_max: usize,
}

impl<'a> Sending<'a> {
    fn begin(
        arguments: &Arguments,
        link: &'a Link,
        mut input: File,
        watch: Watch,
    ) -> Result<Self, Ended> {
        if let Some(epoch) = arguments.epoch {
            let present = link.epoch()?;
            if epoch < present {
                let reason = format!("the link is in epoch {present} already: --epoch only rises");
                return Err(Ended::failed(reason));
            }
            if epoch > present {
                link.begin_epoch(epoch).map_err(|error| Ended::failed(error.to_string()))?;
            }
        }
        let epoch = link.epoch()?;
        let ledger = match &arguments.end.dir {
            Some(dir) if arguments.end.exactly_once => {
                let path = Ledger::path(&dir.join(link.key().file_name()), Kind::In);
                Some(found_or_begun(&path, link, &input, epoch)?)
            }
            _ => None,
        };
        let offset = match &ledger {
            Some(ledger) => go_on_at(&ledger.entry(), link.sent_position()?.position)?,
            None => 0,
        };
        if offset > 0 {
            io::Seek::seek(&mut input, io::SeekFrom::Start(offset)).context("going on in --in")?;
        }
        let longest = usize::try_from(arguments.slab.max(arguments.ring / 4)).unwrap_or(usize::MAX);
        let splitter = Splitter::new(arguments.end.framing, offset, longest);
        Ok(Self { link, input, splitter, ledger, watch, epoch, batch_max: BATCH_BYTES })
    }

    fn run(mut self) -> Result<(), Ended> {
        let mut batch = Vec::new();
        loop {
            let before = self.splitter.offset();
            self.gather(&mut batch)?;
            if !batch.is_empty() {
                self.publish(&batch, before)?;
            } else if self.splitter.is_ended() {
                return self.flush();
            } else {
                self.read()?;
            }
        }
    }

    /// The messages that are whole, as many as go in one batch; never waits for another.
    fn gather(&mut self, batch: &mut Vec<(Range<usize>, u64)>) -> Result<(), Ended> {
        batch.clear();
        let mut bytes = 0;
        while batch.len() < BATCH_MESSAGES && bytes < self.batch_max {
            let message = match self.splitter.next() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                // What lies before it is sent first; then it is met again.
                Err(_) if !batch.is_empty() => break,
                Err(error) => return Err(Ended::failed(error.to_string())),
            };
            bytes += message.len();
            batch.push((message, self.splitter.offset()));
        }
        Ok(())
    }

    /// Sends them all, in one batch, or in halves if one is too much for the ring.
    fn publish(&mut self, mut batch: &[(Range<usize>, u64)], mut before: u64) -> Result<(), Ended> {
        let mut count = batch.len();
        while let Some((_, after)) = batch[..count].last() {
            if self.publish_whole(&batch[..count], before, *after)? {
                before = *after;
                batch = &batch[count..];
                count = count.min(batch.len());
            } else {
                count = count.div_ceil(2);
                self.batch_max = (self.batch_max / 2).max(1);
            }
        }
        Ok(())
    }

    /// Sends them at once; `false` if they are too many.
    fn publish_whole(
        &mut self,
        messages: &[(Range<usize>, u64)],
        before: u64,
        after: u64,
    ) -> Result<bool, Ended> {
        if let Some(ledger) = &mut self.ledger {
            let at = self.link.sent_position()?;
            let (first, second) = (before, after);
            ledger.write(Entry { stream: at.stream, position: at.position, first, second })?;
        }
        let mut batch = self.link.batch();
        for (message, _) in messages {
            batch.send(self.splitter.bytes(message));
        }
        loop {
            match batch.try_commit() {
                Ok(()) => break,
                Err(TrySendError::Full) => {
                    self.look(true)?;
                    self.watch.wait(&[])?;
                }
                Err(TrySendError::Never(SendError::BatchTooLarge { .. })) if messages.len() > 1 => {
                    return Ok(false);
                }
                Err(TrySendError::Never(error)) => return Err(not_sent(error)),
                Err(error) => return Err(Ended::failed(error.to_string())),
            }
        }
        self.watch.moved();
        self.look(true)?;
        self.same_epoch()?;
        Ok(true)
    }

    /// Waits for more of the input, while what was sent goes on its way; then reads once.
    fn read(&mut self) -> Result<(), Ended> {
        loop {
            let is_silence = self.link.unconsumed_bytes()? > 0;
            self.look(is_silence)?;
            if !self.watch.wait(&[PollFd::new(&self.input, PollFlags::IN)])? {
                continue;
            }
            match self.input.read(self.splitter.room()) {
                Ok(count) => {
                    self.splitter.filled(count);
                    return Ok(());
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => {
                    return Err(Ended::failed(format!("reading the input failed: {error}")));
                }
            }
        }
    }

    /// Tells what happened, and takes no notice of messages: they stay with the peer, for who takes them.
    fn look(&mut self, is_silence: bool) -> Result<(), Ended> {
        while let Ok(Some(_)) = self.link.try_recv() {}
        self.watch.look(self.link, is_silence)
    }

    /// Waits until everything is consumed, and somebody is there to hear that it was all.
    fn flush(mut self) -> Result<(), Ended> {
        let mut left = u64::MAX;
        loop {
            self.look(true)?;
            // Looked at behind the events, which tell of the connection, and before waiting for more.
            let now = self.link.unconsumed_bytes()?;
            if now == 0 && self.watch.was_attached() {
                return self.same_epoch();
            }
            if now < left {
                self.watch.moved();
            }
            left = now;
            self.watch.wait(&[])?;
        }
    }

    /// The peer may begin one, too; then nobody knows what it has consumed of the last.
    fn same_epoch(&self) -> Result<(), Ended> {
        let epoch = self.link.epoch()?;
        if epoch == self.epoch {
            return Ok(());
        }
        Err(Ended::failed(format!(
            "the peer has begun epoch {epoch}, and what it had not consumed is dropped, as reported: start again to send \
             the input in that epoch"
        )))
    }
}

/// The ledger to go on with.
fn found_or_begun(path: &Path, link: &Link, input: &File, epoch: u64) -> Result<Ledger> {
    let at = link.sent_position()?;
    let found = match Ledger::open(path, Kind::In, input) {
        Ok(found) => found,
        // Of another input, of another epoch.
        Err(_) if Ledger::is_of_older_epoch(path, Kind::In, epoch) => None,
        Err(error) => return Err(error),
    };
    if let Some(ledger) = found.filter(|ledger| ledger.epoch() >= epoch) {
        ensure!(
            ledger.epoch() == epoch && ledger.entry().stream == at.stream,
            "{} goes with another stream than the link now has: the link was reset, or its file lost and made anew. \
             Nobody can tell what of the input arrived: find out, then {}",
            path.display(),
            checkpoint::advice(Kind::In)
        );
        return Ok(ledger);
    }
    let start = Entry { stream: at.stream, position: at.position, first: 0, second: 0 };
    Ledger::begin(path, Kind::In, &Identity::of(input, true)?, epoch, start)
}

/// Where in the input to go on, if the tail is there.
fn go_on_at(entry: &Entry, tail: u64) -> Result<u64> {
    match tail {
        tail if tail == entry.position => Ok(entry.first),
        tail if tail > entry.position => Ok(entry.second),
        _ => bail!(
            "the link's file is older than what was sent: it was put back from a copy. Look with `partywall link inspect`"
        ),
    }
}

fn opened(path: Option<&PathBuf>) -> Result<File> {
    match path {
        Some(path) => File::open(path).with_context(|| format!("--in {}", path.display())),
        None => {
            let descriptor: OwnedFd = io::stdin().as_fd().try_clone_to_owned().context("stdin")?;
            Ok(descriptor.into())
        }
    }
}

fn not_sent(error: SendError) -> Ended {
    match error {
        SendError::Stopped(stopped) => stopped.into(),
        SendError::TooLarge { len, max } => Ended::failed(format!(
            "a message of {len} bytes exceeds the {max} that this link can keep: --slab sets that when the link is new"
        )),
        other => Ended::failed(other.to_string()),
    }
}

/// An error of opening, with our flags.
pub fn in_flags(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Config(error) => {
            let flag = if error.setting == "slab_bytes" { "--slab" } else { "--ring" };
            anyhow::anyhow!("{flag} is {}, but must be {}", error.found, error.wanted)
        }
        other => other.into(),
    }
}

/// The most messages in a batch.
const BATCH_MESSAGES: usize = 64;
/// And the most bytes, but for one message that is longer.
const BATCH_BYTES: usize = 64 << 10;
/// How long to wait for the peer to hear that this was all.
const GOOD_BYE_MAX: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  partywall link recv --dir links --name bob --peer alice unix:/tmp/links.sock         one end …
  partywall link send --dir links --name alice --peer bob unix:/tmp/links.sock < lines    … and the other
  tail -f log | partywall link send --dir links --name alice --peer bob unix:/tmp/links.sock
  partywall link send --dir links --name alice --peer bob --in file --exactly-once tcp:127.0.0.1:7000 --token-file secret

Each line of the input is a message. It is kept in the link until the receiver has consumed it, so the receiver may start
later, die, and come back; and so may this command with --dir: what it had sent stays in the link. Exit code 0 says
that all of it is consumed.

With --exactly-once a restart goes on in the file where it was. That is written beside the link, in a file of the same
name that ends with .in; remove it to begin with the first message. Without, a restart sends all of its input again.
A new --epoch begins with the first message, too.";
