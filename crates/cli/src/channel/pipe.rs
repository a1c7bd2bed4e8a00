// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel joined to stdin and stdout, for `listen` and `connect` after the handshake.
//!
//! ```text
//!   stdin  ──▶ read into reserved memory   ──▶ Sender      thread `stdin`
//!   stdout ◀── written from the message    ◀── Receiver    thread `stdout`
//!                                     │
//!                     events ──▶ the main thread waits until both have ended, or one has failed
//! ```
//! The end of stdin closes the sending direction only; the end of the received stream leaves stdin
//! open. A broken direction ends the program at once, without closing the other direction in good
//! order, so that the peer does not take a part for the whole. The death of the peer also ends the
//! program at once, whether the program waits for stdin, for room or for messages (`input.rs`).

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use partywall::{Channel, Receiver, ReceiverStats, SendError, Sender, SenderStats};
use partywall_sys::poll::{self, PollFd, PollFlags};

use super::input::{Input, Next};
use super::summary::Summary;
use crate::command::advice::InFlags;
use crate::command::channel_options::ChannelOptions;
use crate::command::exit::{Exit, usage};
use partywall_bench::figure::quantity::parse_size;

/// The flags that `listen` and `connect` have in common for carrying bytes.
#[derive(Clone, Debug, clap::Args)]
pub struct PipeOptions {
    /// Largest number of bytes of stdin that are sent as one message
    #[arg(long, value_name = "SIZE", default_value = "64k", value_parser = parse_size)]
    block: u64,
    /// At the end, print bytes and rate of each direction and the transport on stderr
    #[arg(long)]
    stats: bool,
}

impl PipeOptions {
    /// Returns an error if `--block` is larger than the longest message that `--memory` allows.
    pub fn check(&self, channel: &ChannelOptions) -> Result<()> {
        let (block, memory) = (self.block, channel.memory);
        if block <= memory {
            return Ok(());
        }
        Err(usage(format!(
            "--block {block} exceeds --memory {memory}: choose a smaller block, or allow more memory"
        )))
    }

    fn block_bytes(&self) -> usize {
        usize::try_from(self.block).unwrap_or(usize::MAX)
    }
}

/// Carries bytes between the channel and stdin and stdout until both directions have ended, or one
/// of them is broken.
pub fn run(channel: Channel, options: &PipeOptions) -> Result<ExitCode> {
    let mut summary = Summary::new(&channel);
    let started = Instant::now();
    let joined = Joined::start(channel, options.block_bytes())?;
    let exit = joined.wait();
    if options.stats {
        summary.sent = *lock(&joined.counters.sent);
        summary.received = *lock(&joined.counters.received);
        eprint!("{}", summary.text(started.elapsed()));
    }
    Ok(exit.into())
}

/// The two running threads of `listen` or `connect`. One sends stdin to the peer, and the other
/// writes received messages to stdout.
struct Joined {
    events: mpsc::Receiver<Ended>,
    counters: Arc<Counters>,
}

/// The counters of the channel's two directions. The threads update the counters while they run,
/// because a thread may never end, and then would return no counters.
#[derive(Default)]
struct Counters {
    sent: Mutex<SenderStats>,
    received: Mutex<ReceiverStats>,
}

/// The event that a thread of the command reports when its direction has ended: which direction,
/// and how it ended.
struct Ended {
    is_input: bool,
    how: Result<(), Broken>,
}

/// The reason why one direction, from stdin or to stdout, did not end in good order.
struct Broken {
    exit: Exit,
    reason: String,
}

impl Joined {
    fn start(channel: Channel, block: usize) -> Result<Self> {
        let input = unbuffered(io::stdin()).context("duplicating stdin failed")?;
        let input = Input::new(input, channel.peer());
        let output = unbuffered(io::stdout()).context("duplicating stdout failed")?;
        let (sender, receiver) = channel.split();
        let counters = Arc::new(Counters::default());
        let (ended, events) = mpsc::channel();
        let (input_ended, counted) = (ended.clone(), Arc::clone(&counters));
        spawn("stdin", move || {
            let how = send_all(sender, input, block, &counted.sent);
            let _ = input_ended.send(Ended { is_input: true, how });
        })?;
        let counted = Arc::clone(&counters);
        spawn("stdout", move || {
            let how = receive_all(receiver, output, &counted.received);
            let _ = ended.send(Ended { is_input: false, how });
        })?;
        Ok(Self { events, counters })
    }

    /// Waits until both directions of the channel have ended, or one of them is broken.
    fn wait(&self) -> Exit {
        let mut broken: Option<Broken> = None;
        for _ in 0..2 {
            let Ok(Ended { is_input, how }) = self.events.recv() else { break };
            let Err(reason) = how else { continue };
            // A peer that receives no more may still send. So, if sending failed because the peer
            // has died or left, the program waits for the end of the receiving direction, which may
            // explain the failure.
            let may_continue = is_input && reason.exit == Exit::PeerDied;
            if broken.is_none() || reason.exit == Exit::Protocol {
                broken = Some(reason);
            }
            if !may_continue {
                break;
            }
        }
        match broken {
            None => Exit::Done,
            Some(Broken { exit, reason }) => {
                eprintln!("partywall: {reason}");
                exit
            }
        }
    }
}

/// Sends all of `input`, one message per read of the input, and closes the sending direction.
fn send_all(
    mut sender: Sender,
    mut input: Input,
    block: usize,
    counted: &Mutex<SenderStats>,
) -> Result<(), Broken> {
    let ended = send_blocks(&mut sender, &mut input, block, counted);
    if ended.as_ref().is_err_and(|broken| broken.exit == Exit::Failure) {
        // If reading stdin failed, the sender is not dropped: dropping it would close the direction
        // in good order, and the peer would take the part that was sent for the whole input.
        mem::forget(sender);
    }
    ended
}

fn send_blocks(
    sender: &mut Sender,
    input: &mut Input,
    block: usize,
    counted: &Mutex<SenderStats>,
) -> Result<(), Broken> {
    loop {
        if input.wait().map_err(|error| not_read(&error))? == Next::Dead {
            let reason = "the peer died or left while stdin was still open".to_owned();
            return Err(Broken { exit: Exit::PeerDied, reason });
        }
        let mut message = sender.reserve(block).map_err(|error| not_sent(&error))?;
        let count = input.read(&mut message).map_err(|error| not_read(&error))?;
        if count == 0 {
            return Ok(());
        }
        if count <= SMALL_MAX {
            // A short message is copied, because its copy occupies only a few slots of the ring; a
            // reserved message would occupy a whole block of memory.
            let mut small = [0; SMALL_MAX];
            small[..count].copy_from_slice(&message[..count]);
            message.abort();
            sender.send(&small[..count]).map_err(|error| not_sent(&error))?;
        } else {
            message.truncate(count);
            message.commit().map_err(|error| not_sent(&error))?;
        }
        *lock(counted) = sender.stats();
    }
}

fn not_read(error: &io::Error) -> Broken {
    Broken { exit: Exit::Failure, reason: format!("reading stdin failed: {error}") }
}

fn not_sent(error: &SendError) -> Broken {
    let reason = match error {
        SendError::Closed(_) => "the peer receives no more: it died or left".to_owned(),
        other => format!("sending failed: {}", other.in_flags()),
    };
    Broken { exit: error.into(), reason }
}

fn receive_all(
    mut receiver: Receiver,
    mut output: File,
    counted: &Mutex<ReceiverStats>,
) -> Result<(), Broken> {
    loop {
        let continues = receive_one(&mut receiver, &mut output);
        *lock(counted) = receiver.stats();
        if !continues? {
            return Ok(());
        }
    }
}

/// Writes one message to `output`; returns whether more messages may follow.
fn receive_one(receiver: &mut Receiver, output: &mut File) -> Result<bool, Broken> {
    match receiver.recv_ref() {
        Ok(Some(message)) => write_all(output, &message).map(|()| true).map_err(|error| Broken {
            exit: Exit::OutputClosed,
            reason: format!("writing to stdout failed: {error}"),
        }),
        Ok(None) => Ok(false),
        Err(error) => Err(Broken { exit: Exit::from(&error), reason: error.to_string() }),
    }
}

/// Writes all bytes to `output`; the call blocks even on a non-blocking descriptor.
fn write_all(output: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll::wait(&mut [PollFd::new(output, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns a file with a duplicate of the descriptor of `stream`, which is stdin or stdout. The
/// standard library's own streams would copy the bytes and split them at lines.
fn unbuffered(stream: impl AsFd) -> io::Result<File> {
    let descriptor: OwnedFd = stream.as_fd().try_clone_to_owned()?;
    Ok(descriptor.into())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work).context("starting a thread failed")?;
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of bytes up to which the result of one read of stdin is copied and sent as a short
/// message. Longer reads go into reserved shared memory.
const SMALL_MAX: usize = 1024;
