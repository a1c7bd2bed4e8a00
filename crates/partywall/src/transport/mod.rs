// SPDX-License-Identifier: MIT OR Apache-2.0
//! The door every wire goes through: what a transport must offer to a channel.
//!
//! ```text
//!   Sender ──▶ SendWire ──┬─ wall::WallSender        Receiver ──▶ RecvWire ──┬─ wall::WallReceiver
//!                         ├─ socket::SocketSender                            ├─ socket::SocketReceiver
//!                         └─ protocol::ProtocolSender                          └─ protocol::ProtocolReceiver
//! ```
//!
//! Under `--cfg shuttle` there is a third, `twin::`, in private memory: for models of sessions only.
//!
//! The transports are siblings with one method set. Attempts never wait: an attempt that fails with
//! [`Unsent::Full`] changed nothing that the receiver can see, or recorded in [`Progress`] how far it
//! came. Waiting is the same for all: glance, attempt, and wait until the glance would differ.

pub(crate) mod assembly;
mod connection_state;
mod kinds;
mod memory;
pub(crate) mod protocol;
mod room;
pub(crate) mod shm;
pub(crate) mod socket;
#[cfg(shuttle)]
pub(crate) mod twin;

pub(crate) use partywall_wait::has_passed;
pub(crate) use room::{SpaceWaiter, Waited, until, wait_for_room, waiting_failed};

use crate::error::{Closed, Fault, SendError, TooLarge, TrySendError};
use crate::message::Message;
pub(crate) use memory::Memory;
use partywall_layout::{FallbackReason, Kind, RecordHeader, Violation};
use partywall_wait::{Spinner, Wait};
use protocol::{ProtocolReceiver, ProtocolSender};
use shm::{ShmReceiver, ShmSender};
use socket::{SocketReceiver, SocketSender};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Which transport a channel uses, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory.
    SharedMemory,
    /// Records on the socket, and the reason for having no wall.
    Socket(FallbackReason),
    /// Another protocol than ours, and which line of it: see [`protocol`](crate::protocol).
    Protocol(&'static str),
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedMemory => f.write_str("wall: shared memory"),
            Self::Socket(why) => write!(f, "socket: {why}"),
            Self::Protocol(line) => f.write_str(line),
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
pub(crate) struct ProgressSnapshot(pub [u64; 3]);

/// The sending end of a transport.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per channel; a box would cost every send")]
pub(crate) enum SendWire {
    SharedMemory(ShmSender),
    Socket(SocketSender),
    Protocol(ProtocolSender),
    #[cfg(shuttle)]
    Twin(twin::TwinSender),
}

/// Calls the same method on whichever transport it is.
macro_rules! on {
    ($wire:expr, $end:ident => $call:expr) => {
        match $wire {
            Self::SharedMemory($end) => $call,
            Self::Socket($end) => $call,
            Self::Protocol($end) => $call,
            #[cfg(shuttle)]
            Self::Twin($end) => $call,
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
            Self::SharedMemory(end) => end.prepare_inline(len),
            Self::Socket(_) | Self::Protocol(_) => Ok(false),
            #[cfg(shuttle)]
            Self::Twin(_) => Ok(false),
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
            Self::SharedMemory(end) => end.send_inline(len, fill),
            // Not reached: nothing goes inline there.
            Self::Socket(_) | Self::Protocol(_) => Err(Unsent::Full),
            #[cfg(shuttle)]
            Self::Twin(_) => Err(Unsent::Full),
        }
    }

    /// There will be streams: their messages lie in queues until they are read, and one that came inline
    /// must be copied for that. So only short ones do.
    pub(crate) fn enable_streams(&mut self) {
        match self {
            Self::SharedMemory(end) => end.limit_inline(STREAM_INLINE_MAX),
            Self::Socket(_) | Self::Protocol(_) => {}
            #[cfg(shuttle)]
            Self::Twin(_) => {}
        }
    }

    /// From now on there are streams, and `stream` is the one of the messages that follow. The first of
    /// them carries `credit` of the other direction, or has it written before it.
    #[inline]
    pub(crate) fn set_stream(&mut self, stream: u32, credit: Option<u64>) -> Result<(), Unsent> {
        match self {
            Self::SharedMemory(end) => {
                end.set_stream(stream, credit);
                Ok(())
            }
            Self::Socket(end) => end.set_stream(stream, credit),
            Self::Protocol(end) => {
                end.set_stream(stream);
                Ok(())
            }
            #[cfg(shuttle)]
            Self::Twin(end) => {
                end.set_stream(stream, credit);
                Ok(())
            }
        }
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
    #[inline]
    pub(crate) fn reserve(&mut self, len: usize) -> Result<Memory, Unsent> {
        on!(self, end => end.reserve(len))
    }

    /// As [`reserve`](Self::reserve), to where the memory is to lie: for those who reserve all the time.
    #[inline]
    pub(crate) fn reserve_into(
        &mut self,
        place: &mut Option<Memory>,
        len: usize,
    ) -> Result<(), Unsent> {
        if let Self::SharedMemory(end) = self {
            if end.reserve_recent(place, len)? {
                return Ok(());
            }
        }
        *place = Some(self.reserve(len)?);
        Ok(())
    }

    /// Sends what was written to reserved memory; takes the memory when it succeeds, or when the
    /// memory is of no further use.
    #[inline]
    pub(crate) fn commit(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), Unsent> {
        on!(self, end => end.commit(memory, progress))
    }

    /// Takes reserved memory back.
    #[inline]
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
            Self::SharedMemory(_) => Ok(()),
            Self::Socket(end) => end.flush(),
            Self::Protocol(end) => end.flush(),
            #[cfg(shuttle)]
            Self::Twin(_) => Ok(()),
        }
    }

    /// The session ends. On a wall, and on a socket, what was sent is received all the same.
    pub(crate) const fn leave(&mut self) {
        if let Self::Protocol(end) = self {
            end.leave();
        }
    }

    /// Whether something is left to be sent.
    pub(crate) fn keeps(&self) -> bool {
        match self {
            Self::Socket(end) => end.keeps(),
            Self::Protocol(end) => end.keeps(),
            _ => false,
        }
    }

    /// Declares that we are about to sleep until room comes.
    pub(crate) fn arm(&mut self, quiet: bool) -> Result<(), Fault> {
        on!(self, end => end.arm(quiet))
    }

    /// Takes wake-ups that nobody waited for, before somebody polls the descriptor.
    pub(crate) fn drain(&mut self) -> Result<(), Fault> {
        match self {
            Self::SharedMemory(end) => end.drain(),
            Self::Socket(_) | Self::Protocol(_) => Ok(()),
            #[cfg(shuttle)]
            Self::Twin(end) => end.drain(),
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
    pub(crate) fn room(&self) -> SpaceWaiter {
        match self {
            Self::SharedMemory(end) => SpaceWaiter::SharedMemory(Arc::clone(end.shm())),
            Self::Socket(end) => SpaceWaiter::Socket(Arc::clone(end.line())),
            Self::Protocol(end) => SpaceWaiter::Protocol(Arc::clone(end.room())),
            #[cfg(shuttle)]
            Self::Twin(end) => SpaceWaiter::Twin(Arc::clone(end.lane())),
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
    SharedMemory(ShmReceiver),
    Socket(SocketReceiver),
    Protocol(ProtocolReceiver),
    #[cfg(shuttle)]
    Twin(twin::TwinReceiver),
}

impl RecvWire {
    /// Finds the next message and makes it the current one. A `patient` caller waits if there is
    /// nothing.
    #[inline]
    pub(crate) fn find(&mut self, patient: bool) -> Result<Found, Fault> {
        match self {
            Self::SharedMemory(end) => end.find(),
            Self::Socket(end) => end.find(patient),
            Self::Protocol(end) => end.find(),
            #[cfg(shuttle)]
            Self::Twin(end) => end.find(),
        }
    }

    /// From now on there are streams: messages have one, and their other records are found too.
    pub(crate) fn enable_streams(&mut self) {
        on!(self, end => end.enable_streams());
    }

    /// The stream of the current message.
    #[inline]
    pub(crate) fn stream(&self) -> u32 {
        on!(self, end => end.stream())
    }

    /// The credit that came with the current message, once.
    #[inline]
    pub(crate) const fn take_credit(&mut self) -> Option<u64> {
        match self {
            Self::SharedMemory(end) => end.take_credit(),
            Self::Socket(_) | Self::Protocol(_) => None,
            #[cfg(shuttle)]
            Self::Twin(end) => end.take_credit(),
        }
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
            Self::SharedMemory(end) => end.shm().violated(violation),
            Self::Socket(end) => end.line().violated(violation),
            Self::Protocol(end) => end.violated(violation),
            #[cfg(shuttle)]
            Self::Twin(end) => end.violated(violation),
        }
    }

    /// The longest message that may come.
    pub(crate) fn message_max(&self) -> u64 {
        match self {
            Self::SharedMemory(end) => end.shm().message_max(),
            Self::Socket(end) => end.line().message_max(),
            Self::Protocol(end) => end.message_max(),
            #[cfg(shuttle)]
            Self::Twin(end) => end.message_max(),
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
            Self::SharedMemory(end) => end.arm(quiet),
            Self::Socket(end) => end.arm(),
            Self::Protocol(end) => end.arm(quiet),
            #[cfg(shuttle)]
            Self::Twin(end) => Ok(end.arm()),
        }
    }

    /// The descriptor that becomes readable when there may be something.
    pub(crate) fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::SharedMemory(end) => end.shm().records_descriptor(),
            Self::Socket(end) => end.line().records_descriptor(),
            Self::Protocol(end) => end.descriptor(),
            #[cfg(shuttle)]
            Self::Twin(_) => unreachable!("a twin is waited for at its door"),
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
