// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of a transport: a sending end, a receiving end, and a place to wait for space.
//!
//! ```text
//!   TransportSender    ◀── shm::ShmSender     socket::SocketSender     protocol::ProtocolSender
//!   TransportReceiver  ◀── shm::ShmReceiver   socket::SocketReceiver   protocol::ProtocolReceiver
//!   SpaceWaiter        ◀── shm::SharedMemory  socket::SocketShared     protocol::ProtocolSpace
//! ```
//!
//! A new transport is a folder here that implements the three traits, and a variant of
//! [`AnySender`](crate::channel::AnySender) and [`AnyReceiver`](crate::channel::AnyReceiver), which
//! dispatch without a virtual call on the paths of messages.
//!
//! Attempts never block. An attempt that fails with [`NotSent::Full`] either changed nothing that
//! the receiver can see, or recorded in [`Progress`] how far it came. Blocking is the same for all
//! transports: take a snapshot, attempt, and block until the snapshot would differ
//! ([`wait_for_space`]).

mod connection_state;
mod memory;
pub(crate) mod protocol;
pub(crate) mod shm;
pub(crate) mod socket;
mod space;

pub(crate) use connection_state::ConnectionState;
pub(crate) use memory::{Assembly, Memory};
pub(crate) use partywall_wait::has_passed;
pub(crate) use space::{
    ProgressSnapshot, SpaceWaiter, Waited, until, wait_for_space, waiting_failed,
};

use crate::error::{Closed, Fault, SendError, TooLarge, TrySendError};
use crate::message::Message;
use crate::stats::{ReceiverStats, SenderStats};
use partywall_layout::stream::SESSION;
use partywall_layout::{FallbackReason, Kind, RecordHeader, Violation};
use partywall_wait::{Spinner, Wait};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

/// Which transport a channel uses, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory.
    SharedMemory,
    /// Records on the socket, and the reason why memory is not shared.
    Socket(FallbackReason),
    /// Another protocol than ours, and the kind of its connection: see
    /// [`protocol`](crate::protocol).
    Protocol(&'static str),
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedMemory => f.write_str("shm: shared memory"),
            Self::Socket(why) => write!(f, "socket: {why}"),
            Self::Protocol(description) => f.write_str(description),
        }
    }
}

/// The sending end of a transport. One thread at a time uses it, and none of its methods blocks.
pub(crate) trait TransportSender: fmt::Debug + Send {
    /// Sends a whole message at once or not at all.
    fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent>;

    /// Sends a message, in pieces if need be. After [`NotSent::Full`] the caller repeats the call
    /// with the same `progress`.
    fn send_on(&mut self, payload: &[u8], progress: &mut Progress) -> Result<(), NotSent>;

    /// Gives up a message of which pieces may have gone; `Ok` if it counts as sent all the same.
    fn give_up(&mut self, payload: &[u8], progress: &Progress) -> Result<(), SendError>;

    /// From now on this end carries the streams of a session.
    fn enable_streams(&mut self) {}

    /// Makes `stream` the one of the messages that follow. The first of them carries `credit` of
    /// the other direction, or has it written before it.
    fn set_stream(&mut self, stream: u32, credit: Option<u64>) -> Result<(), NotSent>;

    /// Writes a record that is not a message. The receiver sees it after
    /// [`publish`](Self::publish) at the latest.
    fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), NotSent>;

    /// Makes the records visible that [`control`](Self::control) wrote.
    fn publish(&mut self) -> Result<(), NotSent>;

    /// Allocates memory for a message of `len` bytes.
    fn reserve(&mut self, len: usize) -> Result<Memory, NotSent>;

    /// As [`reserve`](Self::reserve), writing the memory to `place`: cheaper in a loop.
    fn reserve_into(&mut self, place: &mut Option<Memory>, len: usize) -> Result<(), NotSent> {
        *place = Some(self.reserve(len)?);
        Ok(())
    }

    /// Sends reserved memory. It is taken on success, and when it is of no further use.
    fn commit(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), NotSent>;

    /// Frees reserved memory that was not sent.
    fn release(&mut self, memory: Memory);

    /// Adds a message to the open batch, invisible to the receiver until
    /// [`commit_batch`](Self::commit_batch).
    fn add_to_batch(&mut self, payload: &[u8]) -> Result<(), NotSent>;

    /// Sends the open batch; the receiver sees its messages all at once.
    fn commit_batch(&mut self) -> Result<(), NotSent>;

    /// Discards the open batch.
    fn abort_batch(&mut self);

    /// Gives memory back to the system that was idle for a while; all idle memory with `all`.
    fn trim(&mut self, all: bool) -> Result<(), NotSent>;

    /// Sends the bytes that earlier calls left unsent.
    fn flush(&mut self) -> Result<(), NotSent> {
        Ok(())
    }

    /// Ends the session; messages that were sent are still delivered.
    fn leave(&mut self) {}

    /// Whether bytes are left to be sent by [`flush`](Self::flush).
    fn has_unsent(&self) -> bool {
        false
    }

    /// Declares that the caller is about to block until there is space.
    fn arm(&mut self, quiet: bool) -> Result<(), Fault>;

    /// Consumes wake-ups for which no thread waited, before the descriptor is polled.
    fn drain(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Declares that the caller no longer blocks.
    fn disarm(&mut self);

    /// Records that the peer hung up.
    fn note_hang_up(&mut self);

    /// Announces to the receiver that no more will come.
    fn close(&mut self);

    /// Counters of this end.
    fn stats(&self) -> SenderStats;

    /// The place to wait for space, which does not need the sender itself.
    fn space(&self) -> Arc<dyn SpaceWaiter>;
}

/// The receiving end of a transport. One thread at a time uses it; only `wait` blocks.
pub(crate) trait TransportReceiver: fmt::Debug + Send {
    /// Finds the next message and makes it the current one. `may_wait` says that the caller calls
    /// [`wait`](Self::wait) if there is none.
    fn find(&mut self, may_wait: bool) -> Result<Found, Fault>;

    /// From now on this end carries the streams of a session: their records are
    /// [`Found::Control`].
    fn enable_streams(&mut self) {}

    /// The stream of the current message.
    fn stream(&self) -> u32;

    /// Credit that came with the current message.
    fn take_credit(&mut self) -> Option<u64> {
        None
    }

    /// Copies bytes of the record found last, from byte `from` of its payload on.
    fn body(&self, record: &RecordHeader, from: usize, into: &mut [u8]);

    /// Consumes the record found last, which is not a message.
    fn pass(&mut self, record: &RecordHeader);

    /// Ends the connection because the peer broke a rule that only a session knows.
    fn violated(&self, violation: Violation) -> Fault;

    /// Length in bytes of the longest message that may come.
    fn message_max(&self) -> u64;

    /// The bytes of the current message.
    fn current(&self) -> &[u8];

    /// Takes the current message; an inline one is copied.
    fn take(&mut self) -> Message;

    /// Consumes the current message, unless it was taken.
    fn done(&mut self);

    /// Blocks until there may be something.
    fn wait(
        &mut self,
        wait: Wait,
        spinner: &mut Spinner,
        deadline: Option<Instant>,
    ) -> Result<Waited, Fault>;

    /// Declares that the caller polls the descriptor; `true` if there is something already. A
    /// `quiet` caller polls at intervals, and is notified only by a peer that is about to wait for
    /// it.
    fn arm(&mut self, quiet: bool) -> Result<bool, Fault>;

    /// The descriptor that becomes readable when there may be something.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// For a caller that only ever tries: checks now and then whether the sender has ended. `true`
    /// if there may be something after all.
    fn notice_end(&mut self) -> Result<bool, Fault>;

    /// Announces to the sender that nothing is received any more.
    fn close(&mut self);

    /// Counters of this end.
    fn stats(&self) -> ReceiverStats;
}

/// Why an attempt to send did nothing, or not all.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// There is no space now.
    Full,
    /// The peer receives no more.
    Closed(Closed),
    /// The message never fits.
    TooLarge(TooLarge),
    /// The channel is broken.
    Fault(Fault),
}

impl From<NotSent> for TrySendError {
    fn from(unsent: NotSent) -> Self {
        match unsent {
            NotSent::Full => Self::Full,
            NotSent::Closed(closed) => Self::Closed(closed),
            NotSent::TooLarge(limit) => Self::TooLarge(limit),
            NotSent::Fault(fault) => Self::Fault(fault),
        }
    }
}

impl From<NotSent> for SendError {
    fn from(unsent: NotSent) -> Self {
        match unsent {
            NotSent::Full => Self::Full,
            NotSent::Closed(closed) => Self::Closed(closed),
            NotSent::TooLarge(limit) => Self::TooLarge(limit),
            NotSent::Fault(fault) => Self::Fault(fault),
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

impl Progress {
    /// Nothing of the message has gone.
    pub const NONE: Self = Self { started: false, sent: 0 };
}

/// Result of an attempt to receive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A message, which is now the current one.
    Message,
    /// A record of a stream or of the session that is not a whole message; never on a channel. It
    /// is read with [`TransportReceiver::body`] and consumed with [`TransportReceiver::pass`].
    Control(RecordHeader),
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    End(Closed),
}

/// Whether a session acts on a record of this kind, instead of the transport (SPEC 8.2, 11).
const fn is_of_sessions(record: &RecordHeader) -> bool {
    match record.kind {
        Kind::CloseWrite => record.stream != SESSION,
        Kind::Data | Kind::Blob | Kind::Segment | Kind::SegmentRetire | Kind::Pad => false,
        _ => true,
    }
}

/// Messages of streams go inline up to this many bytes; measured, see docs/decisions/0014.
pub(crate) const STREAM_INLINE_MAX: usize = 512;
