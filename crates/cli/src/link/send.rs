// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link send`: sends a file or stdin into a link, and waits until all is acknowledged.
//!
//! ```text
//!   input ─ read ─▶ Splitter ─ up to 64 messages, 64 KiB ─▶ [checkpoint] ─▶ batch ─▶ link
//!      ▲                                                                              │
//!      └── waits while no whole message is buffered    all acknowledged ─▶ LEAVE ─▶ exit 0
//! ```
//!
//! A command that fails or is killed ends without sending the frame LEAVE. LEAVE means that the
//! input has ended and is acknowledged, and `recv --once` relies on that. A command that fails
//! still closes the link's file, so that the file is not refused after a reboot. The command
//! catches no signals, so a signal ends the process immediately.
//!
//! The module doc of `checkpoint.rs` explains why `--exactly-once` is correct.

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
use partywall_link::{Client, Config, Group, Link, SendError, TrySendError};
use partywall_sys::poll::{PollFd, PollFlags};

use super::checkpoint::{self, Checkpoint, Entry, Identity, Kind};
use super::framing::Splitter;
use super::monitor::{Ended, Monitor};
use super::options::EndOptions;
use super::totals;
use crate::command::exit::{Exit, LINK_EXIT_CODES};
use partywall_bench::figure::quantity::{counted, parse_size};

/// Send the lines of a file or of stdin, and wait until they are acknowledged
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{LINK_EXIT_CODES}"))]
pub struct Arguments {
    /// Address of the receiver: unix:/path, unix:@name, or tcp:host:port
    #[arg(value_name = "ADDRESS")]
    address: Address,
    #[command(flatten)]
    end: EndOptions,
    /// Name of the receiver
    #[arg(long, value_name = "B")]
    peer: String,
    /// File to read [default: stdin]
    #[arg(long = "in", value_name = "FILE")]
    input: Option<PathBuf>,
    /// Begin the epoch with this number; undelivered messages of the former epoch are dropped and
    /// reported
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
    /// Size of the ring for small messages, for a new link
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = parse_size)]
    ring: u64,
    /// Size of the memory for large messages, and of the longest message, for a new link
    #[arg(long, value_name = "SIZE", default_value = "4m", value_parser = parse_size)]
    slab: u64,
}

/// Runs `partywall link send`: sends the input until all of it is acknowledged.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let place = arguments.end.place(("--in", arguments.input.is_some()))?;
    let secret = arguments.end.secret()?;
    let input = open_input(arguments.input.as_ref())?;
    let group = Group::new().context("making an epoll descriptor failed")?;
    let config = Config::default()
        .ring_bytes(arguments.ring)
        .slab_bytes(arguments.slab)
        .login(secret.unwrap_or_default())
        .after_reboot(arguments.end.after_reboot.into())
        .group(&group);
    let monitor = Monitor::new(group, arguments.end.quiet, arguments.end.timeout);
    let sent = Client::new(place, &arguments.end.name, config)
        .and_then(|client| client.connect(&arguments.address, &arguments.peer, &arguments.end.link))
        .map_err(Ended::from)
        .and_then(|link| send_all(arguments, link, input, monitor));
    Ok(sent.unwrap_or_else(Ended::print).into())
}

/// Sends the input into the link, waits until it is acknowledged, and closes the link. Returns the
/// exit code if all of the input is acknowledged.
fn send_all(
    arguments: &Arguments,
    link: Link,
    input: File,
    mut monitor: Monitor,
) -> Result<Exit, Ended> {
    let started = Instant::now();
    let (ended, is_synced) = match Sending::begin(arguments, &link, input, &mut monitor) {
        Ok(mut sending) => {
            let ended = sending.run().map_err(|ended| sending.with_kept_input(ended));
            let synced = sending.sync();
            let is_synced = synced.is_ok();
            (ended.and(synced), is_synced)
        }
        Err(ended) => (Err(ended), !arguments.end.exactly_once),
    };
    if arguments.end.stats {
        eprint!("{}", totals("sent", &link.stats(), started.elapsed()));
    }
    match ended {
        Ok(()) => {
            // All messages are acknowledged. An error of closing the link is ignored: a frame LEAVE
            // that is not sent in time only delays the end of `recv --once` at the peer, and a link
            // file that was not written to the disk is refused after a reboot.
            let _ = link.close(Instant::now() + CLOSE_TIMEOUT);
            Ok(monitor.exit(Exit::LossPossible))
        }
        Err(ended) => {
            // The link is detached and not closed, because closing sends the frame LEAVE, by which
            // the receiver would take the sent part for the whole input. An error of detaching is
            // ignored: a link file that is not on the disk is refused after a reboot. If the
            // checkpoint may not be on the disk, the link file must be refused, too, so the link
            // file stays as a killed process would leave it.
            if is_synced {
                let _ = link.detach();
            } else {
                mem::forget(link);
            }
            Err(ended)
        }
    }
}

struct Sending<'a> {
    link: &'a Link,
    input: File,
    splitter: Splitter,
    checkpoint: Option<Checkpoint>,
    monitor: &'a mut Monitor,
    epoch: u64,
    /// Maximum number of bytes in a batch; it is halved each time that a batch exceeds the ring.
    batch_max: usize,
    /// Offset in the input, in bytes, up to which its messages have been sent into the link.
    sent_to: u64,
    is_durable: bool,
}

impl<'a> Sending<'a> {
    fn begin(
        arguments: &Arguments,
        link: &'a Link,
        mut input: File,
        monitor: &'a mut Monitor,
    ) -> Result<Self, Ended> {
        if let Some(epoch) = arguments.epoch {
            let present = link.epoch()?;
            if epoch < present {
                let reason =
                    format!("the link is in epoch {present} already: --epoch cannot be lower");
                return Err(Ended::failed(reason));
            }
            if epoch > present {
                link.begin_epoch(epoch).map_err(|error| Ended::failed(error.to_string()))?;
            }
        }
        let epoch = link.epoch()?;
        let checkpoint = match &arguments.end.dir {
            Some(dir) if arguments.end.exactly_once => {
                let path = Checkpoint::path(&dir.join(link.key().file_name()), Kind::In);
                Some(open_checkpoint(&path, link, &input, epoch)?)
            }
            _ => None,
        };
        let offset = match &checkpoint {
            Some(checkpoint) => resume_at(&checkpoint.entry(), link.sent_position()?.position)?,
            None => 0,
        };
        if offset > 0 {
            io::Seek::seek(&mut input, io::SeekFrom::Start(offset)).context("seeking in --in")?;
        }
        let message_max =
            usize::try_from(arguments.slab.max(arguments.ring / 4)).unwrap_or(usize::MAX);
        let splitter = Splitter::new(arguments.end.framing, offset, message_max);
        Ok(Self {
            link,
            input,
            splitter,
            checkpoint,
            monitor,
            epoch,
            batch_max: BATCH_BYTES,
            sent_to: offset,
            is_durable: arguments.end.dir.is_some(),
        })
    }

    /// Adds to the reason for which the command fails how many bytes of the input the link keeps.
    fn with_kept_input(&self, Ended { exit, reason }: Ended) -> Ended {
        let is_acked = self.link.unacked_bytes().is_ok_and(|bytes| bytes == 0);
        let note = match (is_acked, self.is_durable) {
            (true, _) => String::new(),
            (false, false) => "; --volatile keeps none of the input".to_owned(),
            (false, true) => format!(
                "; the link keeps the unacknowledged part of the first {} of the input, and the next run sends it \
                 first, also with an empty input",
                counted(self.sent_to, "byte")
            ),
        };
        Ended { exit, reason: format!("{reason}{note}") }
    }

    /// Writes the checkpoint to the disk before the link's file, so that a power loss never leaves
    /// an older checkpoint beside a link file that was closed.
    fn sync(&self) -> Result<(), Ended> {
        Ok(self.checkpoint.as_ref().map_or(Ok(()), Checkpoint::sync)?)
    }

    fn run(&mut self) -> Result<(), Ended> {
        let mut batch = Vec::new();
        loop {
            let before = self.splitter.offset();
            self.gather(&mut batch)?;
            if !batch.is_empty() {
                self.send(&batch, before)?;
            } else if self.splitter.is_ended() {
                return self.wait_acked();
            } else {
                self.read()?;
            }
        }
    }

    /// Takes the whole messages that are already buffered, at most one batch, without waiting for
    /// more input.
    fn gather(&mut self, batch: &mut Vec<(Range<usize>, u64)>) -> Result<(), Ended> {
        batch.clear();
        let mut bytes = 0;
        while batch.len() < BATCH_MESSAGES && bytes < self.batch_max {
            let message = match self.splitter.next() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                // The messages before the invalid input are sent first, so this call returns them.
                // The next call returns the error.
                Err(_) if !batch.is_empty() => break,
                Err(error) => return Err(Ended::failed(error.to_string())),
            };
            bytes += message.len();
            batch.push((message, self.splitter.offset()));
        }
        Ok(())
    }

    fn send(&mut self, mut batch: &[(Range<usize>, u64)], mut before: u64) -> Result<(), Ended> {
        let mut count = batch.len();
        while let Some((_, after)) = batch[..count].last() {
            if self.send_batch(&batch[..count], before, *after)? {
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

    /// Sends the messages in one batch; returns false if the batch exceeds the ring.
    fn send_batch(
        &mut self,
        messages: &[(Range<usize>, u64)],
        before: u64,
        after: u64,
    ) -> Result<bool, Ended> {
        if let Some(checkpoint) = &mut self.checkpoint {
            let at = self.link.sent_position()?;
            let (first, second) = (before, after);
            checkpoint.write(Entry { stream: at.stream, position: at.position, first, second })?;
        }
        let mut batch = self.link.batch();
        for (message, _) in messages {
            batch.send(self.splitter.bytes(message));
        }
        loop {
            match batch.try_commit() {
                Ok(()) => break,
                Err(TrySendError::Full) => {
                    self.update(true)?;
                    self.monitor.wait(&[])?;
                }
                Err(TrySendError::Never(SendError::BatchTooLarge { .. })) if messages.len() > 1 => {
                    return Ok(false);
                }
                Err(TrySendError::Never(error)) => return Err(not_sent(error)),
                Err(error) => return Err(Ended::failed(error.to_string())),
            }
        }
        self.sent_to = after;
        self.monitor.record_progress();
        self.update(true)?;
        self.check_epoch()?;
        Ok(true)
    }

    /// Drives the link until the input is readable, and then reads once.
    fn read(&mut self) -> Result<(), Ended> {
        loop {
            let waits_for_peer = self.link.unacked_bytes()? > 0;
            self.update(waits_for_peer)?;
            if !self.monitor.wait(&[PollFd::new(&self.input, PollFlags::IN)])? {
                continue;
            }
            match self.input.read(self.splitter.free_space()) {
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

    /// Handles the events of the link. Messages from the peer stay unacknowledged, so that another
    /// program can receive them.
    fn update(&mut self, waits_for_peer: bool) -> Result<(), Ended> {
        while let Ok(Some(_)) = self.link.try_recv() {}
        self.monitor.update(self.link, waits_for_peer)
    }

    /// Waits until all messages are acknowledged. Also waits until the peer has attached, because
    /// the frame LEAVE, which says that the input is complete, needs a connection.
    fn wait_acked(&mut self) -> Result<(), Ended> {
        let mut left = u64::MAX;
        loop {
            self.update(true)?;
            // The link's events, such as new connections, are handled first. Only then the number
            // of unacknowledged bytes is read, because an acknowledgement that arrives later ends
            // the wait of this loop.
            let now = self.link.unacked_bytes()?;
            if now == 0 && self.monitor.was_attached() {
                return self.check_epoch();
            }
            if now < left {
                self.monitor.record_progress();
            }
            left = now;
            self.monitor.wait(&[])?;
        }
    }

    /// Returns an error if the peer has begun a new epoch. After a change of the epoch nothing
    /// shows which messages of the former epoch arrived.
    fn check_epoch(&self) -> Result<(), Ended> {
        let epoch = self.link.epoch()?;
        if epoch == self.epoch {
            return Ok(());
        }
        Err(Ended::failed(format!(
            "the peer has begun epoch {epoch}, and unacknowledged messages were dropped, as reported: start again to \
             send the input in that epoch"
        )))
    }
}

/// Opens or creates the checkpoint of the input, in which `--exactly-once` records offsets.
fn open_checkpoint(path: &Path, link: &Link, input: &File, epoch: u64) -> Result<Checkpoint> {
    let at = link.sent_position()?;
    let found = match Checkpoint::open(path, Kind::In, input) {
        Ok(found) => found,
        // The checkpoint at `path` belongs to the input of an earlier epoch than the new one, so
        // the checkpoint is discarded.
        Err(_) if Checkpoint::is_of_older_epoch(path, Kind::In, epoch) => None,
        Err(error) => return Err(error),
    };
    if let Some(checkpoint) = found.filter(|checkpoint| checkpoint.epoch() >= epoch) {
        ensure!(
            checkpoint.epoch() == epoch && checkpoint.entry().stream == at.stream,
            "{} belongs to another stream than the link has now: the link was reset, or its file was lost and made anew. \
             Which part of the input arrived is unknown: find out, then {}",
            path.display(),
            checkpoint::advice(Kind::In)
        );
        return Ok(checkpoint);
    }
    let start = Entry { stream: at.stream, position: at.position, first: 0, second: 0 };
    Checkpoint::begin(path, Kind::In, &Identity::of(input, true)?, epoch, start)
}

/// Offset of the first byte of the input that must be sent. `tail` is the end of the link's sent
/// stream, which shows how much of the checkpoint's batch is in the link.
fn resume_at(entry: &Entry, tail: u64) -> Result<u64> {
    match tail {
        tail if tail == entry.position => Ok(entry.first),
        tail if tail > entry.position => Ok(entry.second),
        _ => bail!(
            "the file of the link is older than the sent messages: it was restored from a copy; see `partywall link inspect`"
        ),
    }
}

fn open_input(path: Option<&PathBuf>) -> Result<File> {
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
            "a message of {len} bytes exceeds the {max} bytes that this link can keep; --slab sets the limit of a new link"
        )),
        other => Ended::failed(other.to_string()),
    }
}

/// Maximum number of messages that are sent in one batch.
const BATCH_MESSAGES: usize = 64;
/// Maximum number of bytes in a batch, except for a single longer message.
const BATCH_BYTES: usize = 64 << 10;
/// Longest time that the command waits at its end until the peer has received the frame LEAVE.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  partywall link recv --dir links --name bob --peer alice unix:/tmp/links.sock           one end …
  partywall link send --dir links --name alice --peer bob unix:/tmp/links.sock < lines   … the other
  tail -f log | partywall link send --dir links --name alice --peer bob unix:/tmp/links.sock
  partywall link send --dir links --name a --peer b --in file --exactly-once unix:/tmp/links.sock
  partywall link send --dir links --name a --peer b --token-file secret tcp:127.0.0.1:7000 < lines

Each line of the input is a message. The link keeps it until the receiver has acknowledged it, so
the receiver may start later, die, and come back. With --dir the same holds for this command: sent
messages stay in the link. Exit code 0 means that all of the input is acknowledged. A command that
ends earlier prints how much of the input the link keeps; the next run sends that first, also with
an empty input.

With --exactly-once a restart continues in the file. Its place is stored next to the link, in a
file of the same name with the ending .in; remove it to begin with the first message. Without
--exactly-once a restart sends all of its input again. A new --epoch begins with the first message
as well.";
