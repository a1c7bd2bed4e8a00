// SPDX-License-Identifier: MIT OR Apache-2.0
//! The door every wire goes through: what a transport must offer to a channel.
//!
//! ```text
//!   Sender ──▶ SendWire ──┬─ wall::WallSender        Receiver ──▶ RecvWire ──┬─ wall::WallReceiver
//!                         └─ socket::SocketSender                            └─ socket::SocketReceiver
//! ```
//!
//! The transports are siblings with one method set. Attempts never wait: an attempt that fails with
//! [`Unsent::Full`] changed nothing that the receiver can see, or recorded in [`Progress`] how far it
//! came. Waiting is the same for all: glance, attempt, and wait until the glance would differ.

pub(crate) mod assembly;
mod kinds;
mod memory;
pub(crate) mod socket;
mod standing;
pub(crate) mod wall;

use crate::error::{Closed, Fault, SendError, TooLarge, TrySendError};
use crate::message::Message;
use crate::wait::{Spinner, Spun, Wait};
pub(crate) use memory::Memory;
use partywall_layout::{Kind, NoWall, RecordHeader, Violation};
use socket::{Line, SocketReceiver, SocketSender};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use wall::{Wall, WallReceiver, WallSender};

/// Which transport a channel uses, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory.
    Wall,
    /// Records on the socket, and the reason for having no wall.
    Socket(NoWall),
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wall => f.write_str("wall: shared memory"),
            Self::Socket(why) => write!(f, "socket: {why}"),
        }
    }
}

/// Messages of streams up to this many bytes go inline at most; measured, see docs/decisions/0014.
pub(crate) const STREAM_INLINE_MAX: usize = 512;

/// Why an attempt to send did nothing, or not all.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// No room now.
    Full,
    /// Nobody will receive it.
    Closed(Closed),
    /// It never fits.
    TooLarge(TooLarge),
    /// The channel is broken.
    Fault(Fault),
}

impl From<Unsent> for TrySendError {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::Full => Self::Full,
            Unsent::Closed(closed) => Self::Closed(closed),
            Unsent::TooLarge(limit) => Self::TooLarge(limit),
            Unsent::Fault(fault) => Self::Fault(fault),
        }
    }
}

impl From<Unsent> for SendError {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::Full => Self::Full,
            Unsent::Closed(closed) => Self::Closed(closed),
            Unsent::TooLarge(limit) => Self::TooLarge(limit),
            Unsent::Fault(fault) => Self::Fault(fault),
        }
    }
}

/// How far a message came that goes in more than one piece.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Whether any piece went: no other message may come between.
    pub started: bool,
    /// How many bytes of the message, or of its framing and it, went.
    pub sent: usize,
}

/// What a waiter for room compares: it waits until this differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glance(pub [u64; 3]);

/// The sending end of a transport.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per channel; a box would cost every send")]
pub(crate) enum SendWire {
    Wall(WallSender),
    Socket(SocketSender),
}

/// Calls the same method on whichever transport it is.
macro_rules! on {
    ($wire:expr, $end:ident => $call:expr) => {
        match $wire {
            Self::Wall($end) => $call,
            Self::Socket($end) => $call,
        }
    };
}

impl SendWire {
    /// Sends a whole message at once or not at all.
    #[inline]
    pub(crate) fn try_send(&mut self, payload: &[u8]) -> Result<(), Unsent> {
        on!(self, end => end.try_send(payload))
    }

    /// Sends a message, in pieces if need be; to be called again with the same `progress` after
    /// [`Unsent::Full`].
    pub(crate) fn send_on(
        &mut self,
        payload: &[u8],
        progress: &mut Progress,
    ) -> Result<(), Unsent> {
        on!(self, end => end.send_on(payload, progress))
    }

    /// Gives up on a message of which pieces went; `Ok` if it counts as sent all the same.
    pub(crate) fn give_up(&mut self, payload: &[u8], progress: &Progress) -> Result<(), SendError> {
        on!(self, end => end.give_up(payload, progress))
    }

    /// Whether a message of `len` bytes can now be sent with [`send_inline`](Self::send_inline), or
    /// goes another way.
    #[inline]
    pub(crate) fn prepare_inline(&mut self, len: usize) -> Result<bool, Unsent> {
        match self {
            Self::Wall(end) => end.prepare_inline(len),
            Self::Socket(_) => Ok(false),
        }
    }

    /// Sends an inline message that `fill` writes in place.
    #[inline]
    pub(crate) fn send_inline(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Unsent> {
        match self {
            Self::Wall(end) => end.send_inline(len, fill),
            // Not reached: nothing goes inline on a socket.
            Self::Socket(_) => Err(Unsent::Full),
        }
    }

    /// There will be streams: their messages lie in queues until they are read, and one that came inline
    /// must be copied for that. So only short ones do.
    pub(crate) fn multiplex(&mut self) {
        match self {
            Self::Wall(end) => end.limit_inline(STREAM_INLINE_MAX),
            Self::Socket(_) => {}
        }
    }

    /// From now on there are streams, and `stream` is the one of the messages that follow.
    #[inline]
    pub(crate) fn set_stream(&mut self, stream: u32) {
        on!(self, end => end.set_stream(stream));
    }

    /// Writes a record that is not a message. It is seen at the latest when
    /// [`publish`](Self::publish) was called.
    pub(crate) fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), Unsent> {
        on!(self, end => end.control(kind, stream, body))
    }

    /// Makes records seen that [`control`](Self::control) wrote.
    pub(crate) fn publish(&mut self) -> Result<(), Unsent> {
        on!(self, end => end.publish())
    }

    /// Memory for a message of `len` bytes.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<Memory, Unsent> {
        on!(self, end => end.reserve(len))
    }

    /// Sends what was written to reserved memory; takes the memory when it succeeds, or when the
    /// memory is of no further use.
    pub(crate) fn commit(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), Unsent> {
        on!(self, end => end.commit(memory, progress))
    }

    /// Takes reserved memory back.
    pub(crate) fn release(&mut self, memory: Memory) {
        on!(self, end => end.release(memory));
    }

    /// Adds a message to the open batch, invisible to the receiver until
    /// [`commit_batch`](Self::commit_batch).
    pub(crate) fn add_to_batch(&mut self, payload: &[u8]) -> Result<(), Unsent> {
        on!(self, end => end.add_to_batch(payload))
    }

    /// Sends the open batch, all at once.
    pub(crate) fn commit_batch(&mut self) -> Result<(), Unsent> {
        on!(self, end => end.commit_batch())
    }

    /// Forgets the open batch.
    pub(crate) fn abort_batch(&mut self) {
        on!(self, end => end.abort_batch());
    }

    /// Gives memory back that was not used for a while; all idle memory with `all`.
    pub(crate) fn trim(&mut self, all: bool) -> Result<(), Unsent> {
        on!(self, end => end.trim(all))
    }

    /// Sends what an earlier call left to be sent.
    pub(crate) fn flush(&mut self) -> Result<(), Unsent> {
        match self {
            Self::Wall(_) => Ok(()),
            Self::Socket(end) => end.flush(),
        }
    }

    /// Whether something is left to be sent.
    pub(crate) fn keeps(&self) -> bool {
        matches!(self, Self::Socket(end) if end.keeps())
    }

    /// Declares that we are about to sleep until room comes.
    pub(crate) fn arm(&mut self, quiet: bool) -> Result<(), Fault> {
        on!(self, end => end.arm(quiet))
    }

    /// Takes wake-ups that nobody waited for, before somebody polls the descriptor.
    pub(crate) fn drain(&mut self) -> Result<(), Fault> {
        match self {
            Self::Wall(end) => end.drain(),
            Self::Socket(_) => Ok(()),
        }
    }

    /// Declares that we are awake.
    pub(crate) fn disarm(&mut self) {
        on!(self, end => end.disarm());
    }

    /// Notes that the other side hung up.
    pub(crate) fn note_hang_up(&mut self) {
        on!(self, end => end.note_hang_up());
    }

    /// Something through which to wait for room without holding the sender.
    pub(crate) fn room(&self) -> Room {
        match self {
            Self::Wall(end) => Room::Wall(Arc::clone(end.wall())),
            Self::Socket(end) => Room::Socket(Arc::clone(end.line())),
        }
    }

    /// Tells the receiver that no more will come.
    pub(crate) fn close(&mut self) {
        on!(self, end => end.close());
    }

    /// Counters of this end.
    pub(crate) fn stats(&self) -> crate::stats::SenderStats {
        on!(self, end => end.stats())
    }
}

/// Where a sender waits for room.
#[derive(Clone, Debug)]
pub(crate) enum Room {
    Wall(Arc<Wall>),
    Socket(Arc<Line>),
}

impl Room {
    /// Whether this is a forked child, where the shared memory is not mapped.
    pub(crate) fn is_inherited(&self) -> bool {
        match self {
            Self::Wall(wall) => wall.is_inherited(),
            Self::Socket(_) => false,
        }
    }

    #[inline]
    pub(crate) fn glance(&self) -> Glance {
        match self {
            Self::Wall(wall) => wall.glance(),
            Self::Socket(_) => Glance([0; 3]),
        }
    }

    /// Whether the system says that there is room, which no glance shows: on a socket.
    pub(crate) fn is_writable(&self) -> bool {
        matches!(self, Self::Socket(line) if line.is_writable())
    }

    /// Spins until the glance differs from `seen`; `Pause` also where spinning makes no sense.
    fn spin(&self, spinner: &mut Spinner, wait: Wait, seen: Glance) -> Spun {
        match self {
            Self::Wall(wall) => spinner.spin(wait, || wall.glance() != seen),
            // Only a system call can tell whether a socket has room: then it may as well wait.
            Self::Socket(_) => Spun::Exhausted,
        }
    }

    /// Sleeps until rung, hung up, or the deadline; whether the other side hung up.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool> {
        match self {
            Self::Wall(wall) => wall.sleep_for_room(deadline),
            Self::Socket(line) => line.sleep_for_room(deadline),
        }
    }

    /// Wakes whoever sleeps here, because something became free on our own side. On a socket, room
    /// comes from the other side only.
    pub(crate) fn nudge(&self) {
        if let Self::Wall(wall) = self {
            wall.wake_own_room();
        }
    }

    /// The descriptor that becomes readable when there may be room.
    pub(crate) fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Wall(wall) => wall.room_descriptor(),
            Self::Socket(line) => line.room_descriptor(),
        }
    }
}

/// How waiting for room ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There may be room.
    Again,
    /// The deadline passed.
    TimedOut,
}

/// Waits until a glance would differ from `seen`. The closures reach the sender: directly, or through
/// the lock of a shared one, which is not held while waiting.
pub(crate) fn wait_for_room(
    room: &Room,
    seen: Glance,
    wait: Wait,
    spinner: &mut Spinner,
    deadline: Option<Instant>,
    mut with: impl FnMut(&mut dyn FnMut(&mut SendWire) -> Result<(), Fault>) -> Result<(), Fault>,
) -> Result<Waited, Fault> {
    if has_passed(deadline) {
        // Also when the glance differs every time, but there never is room.
        return Ok(Waited::TimedOut);
    }
    match room.spin(spinner, wait, seen) {
        Spun::Ready => return Ok(Waited::Again),
        Spun::Exhausted => {}
        Spun::Pause => {
            if room.sleep(Some(Instant::now())).map_err(waiting_failed)? {
                with(&mut |wire| {
                    wire.note_hang_up();
                    Ok(())
                })?;
            }
            // Something may have become free on our own side, which no glance shows.
            return Ok(Waited::Again);
        }
    }
    if has_passed(deadline) {
        return Ok(Waited::TimedOut);
    }
    let quiet = matches!(wait, Wait::Timed(_));
    with(&mut |wire| wire.arm(quiet))?;
    let slept = if room.glance() == seen {
        room.sleep(until(wait, deadline)).map_err(waiting_failed)
    } else {
        Ok(false)
    };
    with(&mut |wire| {
        wire.disarm();
        if matches!(slept, Ok(true)) {
            wire.note_hang_up();
        }
        Ok(())
    })?;
    slept.map(|_| Waited::Again)
}

pub(crate) fn waiting_failed(source: io::Error) -> Fault {
    Fault::system("waiting", source)
}

pub(crate) fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// When to wake at the latest: at the deadline, or after the period of `Wait::Timed`.
pub(crate) fn until(wait: Wait, deadline: Option<Instant>) -> Option<Instant> {
    let Wait::Timed(period) = wait else { return deadline };
    let Some(next) = Instant::now().checked_add(period) else { return deadline };
    Some(deadline.map_or(next, |deadline| deadline.min(next)))
}

/// What an attempt to receive found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A message, which is now the current one.
    Message,
    /// Never on a channel, only for a session: a record of a stream, or of the session, that is not a whole message. Read
    /// with [`RecvWire::body`], left behind with [`RecvWire::pass`].
    Control(RecordHeader),
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    End(Closed),
}

/// The receiving end of a transport.
#[derive(Debug)]
pub(crate) enum RecvWire {
    Wall(WallReceiver),
    Socket(SocketReceiver),
}

impl RecvWire {
    /// Finds the next message and makes it the current one. A `patient` caller waits if there is
    /// nothing.
    #[inline]
    pub(crate) fn find(&mut self, patient: bool) -> Result<Found, Fault> {
        match self {
            Self::Wall(end) => end.find(),
            Self::Socket(end) => end.find(patient),
        }
    }

    /// From now on there are streams: messages have one, and their other records are found too.
    pub(crate) fn multiplex(&mut self) {
        on!(self, end => end.multiplex());
    }

    /// The stream of the current message.
    #[inline]
    pub(crate) fn stream(&self) -> u32 {
        on!(self, end => end.stream())
    }

    /// Copies bytes of the record found last, from its payload's byte `from` on.
    pub(crate) fn body(&self, record: &RecordHeader, from: usize, into: &mut [u8]) {
        on!(self, end => end.body(record, from, into));
    }

    /// Goes on behind the record found last, which is not a message.
    pub(crate) fn pass(&mut self, record: &RecordHeader) {
        on!(self, end => end.pass(record));
    }

    /// Ends the connection because the other side broke a rule that only a session knows.
    pub(crate) fn violated(&self, violation: Violation) -> Fault {
        match self {
            Self::Wall(end) => end.wall().violated(violation),
            Self::Socket(end) => end.line().violated(violation),
        }
    }

    /// The longest message that may come.
    pub(crate) fn message_max(&self) -> u64 {
        match self {
            Self::Wall(end) => end.wall().message_max(),
            Self::Socket(end) => end.line().message_max(),
        }
    }

    /// The bytes of the current message.
    #[inline]
    pub(crate) fn current(&self) -> &[u8] {
        on!(self, end => end.current())
    }

    /// Takes the current message: one that lies inline is copied.
    #[inline]
    pub(crate) fn take(&mut self) -> Message {
        on!(self, end => end.take())
    }

    /// Goes on behind the current message, if it was not taken.
    #[inline]
    pub(crate) fn done(&mut self) {
        on!(self, end => end.done());
    }

    /// Waits until there may be something.
    pub(crate) fn wait(
        &mut self,
        wait: Wait,
        spinner: &mut Spinner,
        deadline: Option<Instant>,
    ) -> Result<Waited, Fault> {
        on!(self, end => end.wait(wait, spinner, deadline))
    }

    /// Declares that somebody will poll the descriptor; `true` if there is something already. A `quiet`
    /// one looks again by itself, and is rung only by those who are about to wait for it.
    pub(crate) fn arm(&mut self, quiet: bool) -> Result<bool, Fault> {
        match self {
            Self::Wall(end) => end.arm(quiet),
            Self::Socket(end) => end.arm(),
        }
    }

    /// The descriptor that becomes readable when there may be something.
    pub(crate) fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Wall(end) => end.wall().records_descriptor(),
            Self::Socket(end) => end.line().records_descriptor(),
        }
    }

    /// Tells the sender that nobody receives any more.
    pub(crate) fn close(&mut self) {
        on!(self, end => end.close());
    }

    /// For one who only ever tries: now and then, whether the sender has ended. `true` if there may
    /// be something after all.
    pub(crate) fn notice_end(&mut self) -> Result<bool, Fault> {
        on!(self, end => end.notice_end())
    }

    /// Counters of this end.
    pub(crate) fn stats(&self) -> crate::stats::ReceiverStats {
        on!(self, end => end.stats())
    }
}
