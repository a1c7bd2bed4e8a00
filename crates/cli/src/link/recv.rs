// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link recv`: writes the messages of a link to stdout or a file, and acknowledges them.
//!
//! ```text
//!   link ─ queued messages, up to 64 or 64 KiB ─▶ [checkpoint] ─▶ written ─▶ acknowledged
//!     ▲                                                                         │
//!     └── waits: link │ SIGINT, SIGTERM │ --timeout     --once: sender finished ─▶ exit 0
//! ```
//!
//! `checkpoint.rs` explains why `--exactly-once` is correct. In `recv` one more condition must
//! hold: between the checkpoint entry and the acknowledgement no connection begins, because a new
//! connection could bring another stream. The condition holds, because no code drives the link in
//! between. A connection that began while a batch was gathered makes the acknowledgement fail. Then
//! the batch is removed from the output, and the sender sends it again.
//!
//! `--once` ends when the sender has left in good order and all its messages are written. A
//! receiver that starts later finds the sender's last state in the record of `sender_record.rs`. If
//! the sender has finished, the receiver waits for a new sender for a limited time (`RETURN_MAX`),
//! and then ends.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use partywall::Address;
use partywall_link::{
    AcceptError, AckError, BindError, Config, Group, Link, Message, Server, TryRecvError,
};
use partywall_sys::poll;

use super::admission::Admission;
use super::checkpoint::{self, Checkpoint, Entry, Identity, Kind};
use super::framing::Framing;
use super::monitor::{Ended, Monitor};
use super::options::EndOptions;
use super::output::Output;
use super::sender_record::{SenderRecord, SenderState};
use super::totals;
use crate::command::channel_options::parse_mode;
use crate::command::exit::{Exit, LINK_EXIT_CODES};
use crate::command::signals::Caught;

/// Receive messages, and write them to stdout or to a file
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{LINK_EXIT_CODES}"))]
pub struct Arguments {
    /// Address to listen on: unix:/path, unix:@name, or tcp:host:port (port 0: any)
    #[arg(value_name = "ADDRESS")]
    address: Address,
    #[command(flatten)]
    end: EndOptions,
    /// Name of the sender [default: the first that attaches]
    #[arg(long, value_name = "B")]
    peer: Option<String>,
    /// File to append to [default: stdout]
    #[arg(long = "out", value_name = "FILE")]
    output: Option<PathBuf>,
    /// End when the sender has finished and all its messages are written
    #[arg(long)]
    once: bool,
    /// Over TCP, admit any process that claims to be the peer, without --token-file
    #[arg(long)]
    allow_anonymous: bool,
    /// Allow other hosts to connect to a tcp: address; nothing is encrypted
    #[arg(long)]
    allow_remote: bool,
    /// Permissions of the socket file
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = parse_mode)]
    mode: u32,
}

/// Receives until a signal ends the command or, with --once, until the sender has finished.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let place = arguments.end.place(("--out", arguments.output.is_some()))?;
    let secret = arguments.end.secret()?;
    let (link, peer) = (&arguments.end.link, arguments.peer.as_ref());
    let admission =
        Admission::new(&arguments.address, link, peer, secret, arguments.allow_anonymous)?;
    let output = Output::open(arguments.output.as_ref())?;
    let caught = Caught::catch().context("catching signals failed")?;
    let group = Group::new().context("making an epoll descriptor failed")?;
    let config = Config::default()
        .ring_bytes(OWN_RING_BYTES)
        .slab_bytes(0)
        .links_max(1)
        .socket_mode(arguments.mode)
        .allow_remote(arguments.allow_remote)
        .after_reboot(arguments.end.after_reboot.into())
        .group(&group);
    let bound =
        Server::bind(&arguments.address, place, &arguments.end.name, admission.apply(config));
    let server = match bound {
        Ok(server) => server,
        Err(error) => return not_bound(error),
    };
    if !arguments.end.quiet {
        eprintln!("listening on {}", server.local_address());
    }
    let monitor = Monitor::new(group, arguments.end.quiet, arguments.end.timeout);
    let mut waiting = Waiting { caught: &caught, monitor };
    let adopted = if output.is_regular() { Exit::LossPossible } else { Exit::RepeatPossible };
    let ended = receive(arguments, &server, &admission, output, &mut waiting);
    drop(server);
    let exit = waiting.monitor.exit(adopted);
    Ok(match ended {
        Ok(()) => caught.release().unwrap_or_else(|| exit.into()),
        Err(ended) => ended.print().into(),
    })
}

fn receive(
    arguments: &Arguments,
    server: &Server,
    admission: &Admission,
    output: Output,
    waiting: &mut Waiting<'_>,
) -> Result<(), Ended> {
    let Some(link) = waiting.first(arguments, server, admission)? else { return Ok(()) };
    let started = Instant::now();
    let (ended, is_synced) = match Receiving::begin(arguments, &link, output) {
        Ok(mut receiving) => {
            let ended = receiving.run(waiting);
            let synced = receiving.sync();
            let is_synced = synced.is_ok();
            (ended.and(synced), is_synced)
        }
        Err(ended) => (Err(ended), false),
    };
    if arguments.end.stats {
        eprint!("{}", totals("received", &link.stats(), started.elapsed()));
    }
    // Errors of closing or detaching the link are ignored. The peer gets the last acknowledgement
    // now, or with the next connection. A link file that was not written to the disk is refused
    // after a reboot.
    match &ended {
        Ok(()) => drop(link.close(Instant::now() + CLOSE_TIMEOUT)),
        Err(_) if is_synced => drop(link.detach()),
        // The output could not be written to the disk. After a power loss it may lack messages that
        // this run, or a killed one before it, has acknowledged. So the link's file is not closed
        // either: after a reboot that file is refused.
        Err(_) => drop(link),
    }
    ended
}

/// What `recv` needs to wait for events of the link and for signals at the same time.
struct Waiting<'a> {
    caught: &'a Caught,
    monitor: Monitor,
}

impl Waiting<'_> {
    /// Opens the link to the peer that --peer names. Without --peer, waits for the first peer that
    /// attaches, and returns its link; `None` if a signal arrives first.
    fn first(
        &mut self,
        arguments: &Arguments,
        server: &Server,
        admission: &Admission,
    ) -> Result<Option<Link>, Ended> {
        if let Some(peer) = &arguments.peer {
            let link = server.open(peer, &arguments.end.link)?;
            return Ok(Some(link));
        }
        loop {
            match server.try_accept() {
                Ok(link) => {
                    admission.restrict_to(link.key().remote());
                    return Ok(Some(link));
                }
                Err(AcceptError::TimedOut) => {}
                Err(error) => return Err(Ended::failed(error.to_string())),
            }
            // If the file of a link is refused because of a reboot, only an operator can end the
            // refusal, so the command ends. Any other refusal may end while the command waits.
            let refused = server.take_open_error().map(Ended::from);
            if let Some(ended) = refused.filter(|ended| ended.exit == Exit::OtherBoot) {
                return Err(ended);
            }
            self.monitor.check_limits(true)?;
            if self.is_interrupted(true)? {
                return Ok(None);
            }
        }
    }

    /// Returns whether a signal has arrived. If `is_idle`, the call first waits for a signal or for
    /// an event of the link.
    fn is_interrupted(&self, is_idle: bool) -> Result<bool, Ended> {
        let mut signals = self.caught.descriptors();
        if is_idle {
            return self.monitor.wait(&signals);
        }
        Ok(poll::wait(&mut signals, Some(Instant::now()))? > 0)
    }
}

struct Receiving<'a> {
    link: &'a Link,
    framing: Framing,
    output: Output,
    checkpoint: Option<Checkpoint>,
    sender: SenderRecord,
    /// The time at which `--once` stops waiting for a sender that attached in an earlier run.
    return_deadline: Option<Instant>,
    is_once: bool,
    batch: Vec<Message>,
    bytes: Vec<u8>,
}

impl<'a> Receiving<'a> {
    fn begin(arguments: &Arguments, link: &'a Link, mut output: Output) -> Result<Self, Ended> {
        let framing = arguments.end.framing;
        let checkpoint = match &arguments.end.dir {
            Some(dir) if arguments.end.exactly_once => {
                let path = Checkpoint::path(&dir.join(link.key().file_name()), Kind::Out);
                Some(open_checkpoint(&path, link, &mut output)?)
            }
            _ => {
                output.end_partial_line(framing)?;
                None
            }
        };
        let file = arguments.end.dir.as_ref().map(|dir| dir.join(link.key().file_name()));
        let sender = SenderRecord::open(file.as_deref())?;
        let is_known = sender.state() != SenderState::Unknown;
        let return_deadline = (arguments.once && is_known).then(|| Instant::now() + RETURN_MAX);
        let (is_once, batch, bytes) = (arguments.once, Vec::new(), Vec::new());
        Ok(Self {
            link,
            framing,
            output,
            checkpoint,
            sender,
            return_deadline,
            is_once,
            batch,
            bytes,
        })
    }

    fn run(&mut self, waiting: &mut Waiting<'_>) -> Result<(), Ended> {
        waiting.monitor.wake_at(self.return_deadline);
        loop {
            // The events are handled before the messages: if the sender has left, all its messages
            // are in the link by then.
            waiting.monitor.update(self.link, true)?;
            let has_left = waiting.monitor.has_left();
            if waiting.monitor.was_attached() && !has_left {
                self.sender.record_attached()?;
            }
            self.gather()?;
            let is_idle = self.batch.is_empty();
            if !is_idle {
                self.deliver()?;
                waiting.monitor.record_progress();
            } else if has_left {
                self.sender.record_finished()?;
                if self.is_once {
                    return Ok(());
                }
            } else if waiting.monitor.was_attached() {
                waiting.monitor.wake_at(None);
            } else if self.return_deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return self.without_sender();
            }
            if waiting.is_interrupted(is_idle)? {
                return Ok(());
            }
        }
    }

    /// Writes to the disk: the output, the checkpoint, and the sender record, which says whether
    /// the sender has finished. The link's file is closed later, so that file never counts a
    /// message as written that the output lacks.
    fn sync(&self) -> Result<(), Ended> {
        self.output.sync()?;
        self.checkpoint.as_ref().map_or(Ok(()), Checkpoint::sync)?;
        Ok(self.sender.sync()?)
    }

    /// The result of `--once` if no sender has attached in time in this run.
    fn without_sender(&self) -> Result<(), Ended> {
        if self.sender.state() == SenderState::Finished {
            return Ok(());
        }
        Err(Ended {
            exit: Exit::PeerDied,
            reason: format!(
                "no sender attached within {RETURN_MAX:?}, and the last one did not say that it had finished; all \
                 that it sent is written"
            ),
        })
    }

    /// Replaces the batch by the next queued messages of the link.
    fn gather(&mut self) -> Result<(), Ended> {
        self.batch.clear();
        let mut bytes = 0;
        while self.batch.len() < BATCH_MESSAGES && bytes < BATCH_BYTES {
            let message = match self.link.try_recv() {
                Ok(Some(message)) => message,
                // `None` says that the peer has finished its stream; an event of the link also
                // reports that end, and the function `update` handles the event.
                Ok(None) | Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Stopped(stopped)) => return Err(stopped.into()),
                Err(error) => return Err(Ended::failed(error.to_string())),
            };
            if self.batch.last().is_some_and(|last| !follows(&message, last)) {
                // `message` does not follow the messages of the batch: after a new connection, the
                // peer sends all unacknowledged messages again. So the batch starts anew with
                // `message`.
                self.batch.clear();
            }
            bytes += message.len();
            self.batch.push(message);
        }
        Ok(())
    }

    /// Writes the batch to the output, and then acknowledges its messages.
    fn deliver(&mut self) -> Result<(), Ended> {
        let Some(last) = self.batch.last().map(Message::token) else { return Ok(()) };
        let before = self.output.len();
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.write(entry_of(self.link, before)?)?;
        }
        self.bytes.clear();
        for message in &self.batch {
            self.framing.write(message, &mut self.bytes);
        }
        self.output.write(&self.bytes)?;
        match self.link.ack_to(last) {
            Ok(()) => Ok(()),
            Err(AckError::Stopped(stopped)) => Err(stopped.into()),
            // The acknowledgement of the batch failed. So the batch is removed from the output,
            // because the sender sends it again.
            Err(_) if self.checkpoint.is_some() => Ok(self.output.truncate_to(before)?),
            Err(_) => Ok(()),
        }
    }
}

/// Whether `message` may be appended to a batch that ends with `last`: both belong to the same
/// stream, and `message` comes later.
fn follows(message: &Message, last: &Message) -> bool {
    message.token().covers(&last.token()) && message.position() > last.position()
}

/// Makes the checkpoint entry that is written before a batch. It holds the acknowledged position
/// and the epoch of `link`, and `length`, the length of the output in bytes.
fn entry_of(link: &Link, length: u64) -> Result<Entry> {
    let at = link.acked_position()?;
    let (stream, position) = at.map_or((0, 0), |at| (at.stream, at.position));
    Ok(Entry { stream, position, first: length, second: link.epoch()? })
}

/// Opens or creates the checkpoint, and removes bytes from the output that were written but not
/// acknowledged.
fn open_checkpoint(path: &Path, link: &Link, output: &mut Output) -> Result<Checkpoint> {
    let Some(checkpoint) = Checkpoint::open(path, Kind::Out, output.file())? else {
        let identity = Identity::of(output.file(), false)?;
        let epoch = link.epoch()?;
        return Checkpoint::begin(path, Kind::Out, &identity, epoch, entry_of(link, output.len())?);
    };
    let Entry { stream, position, first: length, second: epoch } = checkpoint.entry();
    ensure!(
        output.len() >= length,
        "--out has {} of the {length} bytes that were written: it was truncated. If that was intended, {}",
        output.len(),
        checkpoint::advice(Kind::Out)
    );
    match link.acked_position()? {
        Some(at) if at.stream == stream && at.position == position => output.truncate_to(length)?,
        Some(at) if at.stream == stream && at.position < position => bail!(
            "the file of the link is older than the output: it was restored from a copy; see `partywall link inspect`"
        ),
        // The entry of the checkpoint is about another stream than the acknowledged position, so no
        // batch has to be removed. Another stream comes only with a connection, which never begins
        // while a batch is partly written.
        Some(_) => {}
        None if stream == 0 || epoch != link.epoch()? => {}
        None => bail!(
            "{} belongs to a link with acknowledgements, and this link has none: its file was lost and made anew, or adopt or \
             reset has forgotten them. The sender repeats what it still has: to receive that, {}",
            path.display(),
            checkpoint::advice(Kind::Out)
        ),
    }
    Ok(checkpoint)
}

fn not_bound(error: BindError) -> Result<ExitCode> {
    let text = match error {
        BindError::NotLoopback { address } => format!(
            "{address} can be reached from other hosts, and TCP is not encrypted: bind a loopback address, or give \
             --allow-remote"
        ),
        BindError::System(error) => error.to_string(),
        BindError::Address(error) => error.to_string(),
        other => return Err(other.into()),
    };
    eprintln!("partywall: {text}");
    Ok(Exit::NoConnection.into())
}

/// Maximum number of messages in a batch, which are written to the output and acknowledged
/// together.
const BATCH_MESSAGES: usize = 64;
/// Maximum number of bytes in a batch, except for a single longer message.
const BATCH_BYTES: usize = 64 << 10;
/// Size in bytes of the ring for messages from the receiver to the sender. It is small, because
/// `recv` sends no messages.
const OWN_RING_BYTES: u64 = 4096;
/// Longest time that the command waits at its end until the peer has received the last
/// acknowledgement.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that `--once` waits for a sender that attached in an earlier run.
const RETURN_MAX: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  partywall link recv --dir links --name bob --peer alice unix:/tmp/links.sock           one end …
  partywall link send --dir links --name alice --peer bob unix:/tmp/links.sock < lines   … the other
  partywall link recv --dir links --name bob --peer alice --once unix:/tmp/links.sock > lines
  partywall link recv --dir links --name b --peer a --out file --exactly-once unix:/tmp/links.sock
  partywall link recv --dir links --name bob tcp:127.0.0.1:7000 --token-file secret

Each message is written as a line, and then acknowledged: the sender drops it. After a kill,
unwritten messages come again. Ctrl-C and SIGTERM end the command in good order.

With --once the command ends when the sender has finished. If the sender had finished before the
command began, it waits 10 s for another sender and ends with 0. If the last sender left without
finishing, it ends with 4. A link without any sender so far is waited for without limit, or until
--timeout.

With --exactly-once no message is in the file twice, whichever end is killed. The length of the
output is stored next to the link, in a file of the same name with the ending .out; remove it to
write to another file. It survives kill -9, as the link does, but not a loss of power.";
