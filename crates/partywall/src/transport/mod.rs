// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of a transport: a sending end, a receiving end, and an object to wait for room.
//!
//! ```text
//!   TransportSender    ◀── shm::ShmSender     socket::SocketSender     protocol::ProtocolSender
//!   TransportReceiver  ◀── shm::ShmReceiver   socket::SocketReceiver   protocol::ProtocolReceiver
//!   SpaceWaiter        ◀── shm::SharedMemory  socket::SocketShared     protocol::ProtocolSpace
//! ```
//!
//! A new transport is a folder within `transport/` that implements the three traits. It also needs
//! a variant of [`AnySender`](crate::channel::AnySender) and
//! [`AnyReceiver`](crate::channel::AnyReceiver), which dispatch without a virtual call on the paths
//! of messages.
//!
//! Attempts never block. A failed attempt that returns [`NotSent::Full`] either changed nothing
//! that the receiver can see, or noted in [`Progress`] how much was sent. Blocking is the same for
//! all transports: take a snapshot, attempt, and block until the snapshot would differ
//! ([`wait_for_space`]).

mod connection_state;
mod memory;
mod owned_reservation;
pub(crate) mod protocol;
pub(crate) mod shm;
pub(crate) mod socket;
mod space;

pub(crate) use connection_state::{ConnectionState, FormerTransport};
pub(crate) use memory::{Assembly, Memory};
pub use owned_reservation::OwnedReservation;
pub(crate) use owned_reservation::{Home, SessionHome};
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

/// The transport of a connection; for a socket, with the reason why memory is not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// The connection uses shared memory.
    SharedMemory,
    /// The connection sends records on a socket. The value is the reason why memory is not shared.
    Socket(FallbackReason),
    /// The connection uses a protocol other than Partywall's own. The text describes the protocol's
    /// variant on this connection; see [`protocol`](crate::protocol).
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

/// The transport of a connection, which changes if the connection moves from the socket to shared
/// memory.
#[derive(Clone, Debug)]
pub(crate) enum LiveTransport {
    Fixed(Transport),
    Moving(Arc<dyn MovingTransport>),
}

/// The state of a connection that may move from the socket to shared memory, for users of the
/// connection.
pub(crate) trait MovingTransport: fmt::Debug + Send + Sync {
    /// Returns the transport that the connection has now. Each direction uses that transport from
    /// its next message on.
    fn transport(&self) -> Transport;
}

impl LiveTransport {
    pub(crate) fn get(&self) -> Transport {
        match self {
            Self::Fixed(transport) => *transport,
            Self::Moving(pending) => pending.transport(),
        }
    }
}

/// The sending end of a transport. One thread at a time uses it; no method blocks.
pub(crate) trait TransportSender: fmt::Debug + Send {
    /// Sends a whole message now, or nothing of it.
    fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent>;

    /// Sends a message, in pieces if necessary. After [`NotSent::Full`], the caller repeats the
    /// call with the same `progress`.
    fn send_on(&mut self, payload: &[u8], progress: &mut Progress) -> Result<(), NotSent>;

    /// Gives up a message of which [`send_on`](Self::send_on) may have sent pieces. Returns `Ok` if
    /// the message still counts as sent, because the sender keeps its other bytes and sends them
    /// later.
    fn give_up(&mut self, payload: &[u8], progress: &Progress) -> Result<(), SendError>;

    /// Prepares this sender to carry the streams of a session. A session calls this method once,
    /// before the first message.
    fn enable_streams(&mut self) {}

    /// Sets the stream of the messages that follow. The first such message carries `credit` of the
    /// stream's other direction, or the transport writes that credit in a record before it.
    fn set_stream(&mut self, stream: u32, credit: Option<u64>) -> Result<(), NotSent>;

    /// Writes a control record. The receiver sees it after [`publish`](Self::publish) at the
    /// latest.
    fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), NotSent>;

    /// Publishes the records that [`control`](Self::control) wrote.
    fn publish(&mut self) -> Result<(), NotSent>;

    /// Allocates memory for a message of `len` bytes.
    fn reserve(&mut self, len: usize) -> Result<Memory, NotSent>;

    /// Allocates memory for a message of `len` bytes, and stores it in `place`, which is empty. For
    /// repeated calls, that is faster than to return the memory as [`reserve`](Self::reserve) does.
    fn reserve_into(&mut self, place: &mut Option<Memory>, len: usize) -> Result<(), NotSent> {
        *place = Some(self.reserve(len)?);
        Ok(())
    }

    /// Sends the message in reserved memory. Sets `memory` to `None` on success, or if the memory
    /// cannot be sent later.
    fn commit(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), NotSent>;

    /// Frees memory that [`reserve`](Self::reserve) returned and that was not sent.
    fn release(&mut self, memory: Memory);

    /// Frees reserved memory whose owner dropped it unsent. The owner had no access to the sender,
    /// so [`SpaceWaiter::give_back`] kept the memory until this call. Returns whether any was kept.
    fn take_back(&mut self) -> bool {
        false
    }

    /// Adds a message to the open batch. The receiver sees it after
    /// [`commit_batch`](Self::commit_batch).
    fn add_to_batch(&mut self, payload: &[u8]) -> Result<(), NotSent>;

    /// Publishes the messages of the open batch; the receiver sees all of them at once.
    fn commit_batch(&mut self) -> Result<(), NotSent>;

    /// Discards the open batch: the receiver sees none of its messages.
    fn abort_batch(&mut self);

    /// Returns shared memory to the operating system that was unused for the configured time. If
    /// `all` is true, returns all unused memory.
    fn trim(&mut self, all: bool) -> Result<(), NotSent>;

    /// Sends bytes of earlier messages that the kernel had not accepted.
    fn flush(&mut self) -> Result<(), NotSent> {
        Ok(())
    }

    /// Notes that the session has ended, so no further message follows. Messages that were sent
    /// before are still delivered.
    fn leave(&mut self) {}

    /// Whether there are bytes of earlier messages that [`flush`](Self::flush) must send.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Prepares for blocking until there is room to send. `quiet` says that the caller also polls
    /// at intervals while it blocks, so the peer need not notify it each time that room is freed.
    fn arm(&mut self, quiet: bool) -> Result<(), Fault>;

    /// Consumes notifications of room for which no thread waited. Otherwise they would end the next
    /// wait of a caller that polls the descriptor.
    fn drain(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Ends the preparation of [`arm`](Self::arm), because the caller does not block now.
    fn disarm(&mut self);

    /// Notes that the peer has hung up, so that later calls fail instead of waiting for room.
    fn note_hang_up(&mut self);

    /// Announces to the peer's receiver that no more messages follow.
    fn close(&mut self);

    fn stats(&self) -> SenderStats;

    /// Returns the object on which threads wait for room without using the sender.
    fn space(&self) -> Arc<dyn SpaceWaiter>;
}

/// The receiving end of a transport. One thread at a time uses it; only `wait` blocks.
pub(crate) trait TransportReceiver: fmt::Debug + Send {
    /// Finds the next record. If it is a message, it becomes the receiver's current message.
    /// If no record has arrived and `may_wait` is true, the caller calls [`wait`](Self::wait) next.
    fn find(&mut self, may_wait: bool) -> Result<Found, Fault>;

    /// Prepares the receiver to carry the streams of a session: `find` then returns the session's
    /// control records as [`Found::Control`].
    fn enable_streams(&mut self) {}

    /// Returns the number of the stream to which the receiver's current message belongs.
    fn stream(&self) -> u32;

    /// Takes the credit for the stream's other direction that the receiver's current message
    /// carried.
    fn take_credit(&mut self) -> Option<u64> {
        None
    }

    /// Copies the payload of the record that `find` returned last, beginning at byte `from`.
    fn body(&self, record: &RecordHeader, from: usize, into: &mut [u8]);

    /// Consumes the control record that [`find`](Self::find) returned last.
    fn pass(&mut self, record: &RecordHeader);

    /// Ends the connection because the peer broke a rule of sessions. Returns the error for the
    /// caller.
    fn violated(&self, violation: Violation) -> Fault;

    /// Returns the length of the longest message that may arrive, in bytes.
    fn message_max(&self) -> u64;

    /// Returns the bytes of the receiver's current message, the one that [`find`](Self::find)
    /// found.
    fn current(&self) -> &[u8];

    /// Returns the length of the receiver's current message in bytes.
    fn current_len(&self) -> usize;

    /// Takes the receiver's current message, for the caller to keep. An inline message is copied
    /// out of the ring.
    fn take(&mut self) -> Message;

    /// Consumes the receiver's current message, so that `find` can find the next one. Has no effect
    /// if the caller has taken the message.
    fn done(&mut self);

    /// Makes the receiver's current message a view: the message stays valid until the next call of
    /// `find`, which consumes it.
    fn begin_view(&mut self);

    /// Makes the message of the last view the receiver's current message again. Returns whether
    /// there was a view.
    fn end_view(&mut self) -> bool;

    /// Blocks until [`find`](Self::find) may find a record, or until `deadline`. The receiver of
    /// shared memory may already have made the message the current message (`Waited::Found`).
    fn wait(
        &mut self,
        wait: Wait,
        spinner: &mut Spinner,
        deadline: Option<Instant>,
    ) -> Result<Waited, Fault>;

    /// Prepares for polling the receiver's descriptor. Returns `true` if a record has arrived
    /// already. `quiet` says that the caller also polls at intervals. The peer notifies such a
    /// caller only before the peer itself waits for it.
    fn arm(&mut self, quiet: bool) -> Result<bool, Fault>;

    /// Returns the descriptor that becomes readable when there may be a record.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Checks whether the peer's sender has ended, for a caller that never blocks. The check may
    /// need a system call, so only one of many calls makes it. Returns `true` if there may be a
    /// record or the end of the direction.
    fn notice_end(&mut self) -> Result<bool, Fault>;

    /// Whether `close` of this receiver would wait until the peer closes the connection.
    fn awaits_end(&self) -> bool {
        false
    }

    /// Makes a later `close` of this receiver not wait for the peer.
    fn give_up_end(&self) {}

    /// Announces to the peer's sender that this side receives no more messages.
    fn close(&mut self);

    fn stats(&self) -> ReceiverStats;
}

/// The reason why an attempt to send sent nothing, or only a part of the message.
///
/// Most attempts return a `Result<(), NotSent>`. `TooLarge` and `Fault` are on the heap, and no
/// other variant has fields. So this result is a tag and a pointer, which stay in two registers
/// (decision 0064).
#[derive(Debug)]
pub(crate) enum NotSent {
    /// The ring, the shared memory or the socket has no room now.
    Full,
    /// The peer has stopped receiving, in good order.
    Finished,
    /// The peer died or hung up, or the connection was given up.
    Disconnected,
    /// The message is longer than a limit of either side, so it can never be sent.
    TooLarge(Box<TooLarge>),
    /// The channel is broken: the peer violated the protocol, or a system call failed.
    Fault(Box<Fault>),
}

const _: () = assert!(size_of::<Result<(), NotSent>>() == 16);

impl NotSent {
    /// Returns how the peer has ended, if that is the reason.
    pub(crate) const fn closed(&self) -> Option<Closed> {
        match self {
            Self::Finished => Some(Closed::Finished),
            Self::Disconnected => Some(Closed::Disconnected),
            Self::Full | Self::TooLarge(_) | Self::Fault(_) => None,
        }
    }

    /// Whether later attempts fail, too, whatever they send.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self, Self::Finished | Self::Disconnected | Self::Fault(_))
    }
}

impl From<Closed> for NotSent {
    #[cold]
    fn from(closed: Closed) -> Self {
        match closed {
            Closed::Finished => Self::Finished,
            Closed::Disconnected => Self::Disconnected,
        }
    }
}

impl From<TooLarge> for NotSent {
    #[cold]
    fn from(limit: TooLarge) -> Self {
        Self::TooLarge(Box::new(limit))
    }
}

impl From<Fault> for NotSent {
    #[cold]
    fn from(fault: Fault) -> Self {
        Self::Fault(Box::new(fault))
    }
}

impl From<NotSent> for TrySendError {
    fn from(unsent: NotSent) -> Self {
        match unsent {
            NotSent::Full => Self::Full,
            NotSent::Finished => Self::Closed(Closed::Finished),
            NotSent::Disconnected => Self::Closed(Closed::Disconnected),
            NotSent::TooLarge(limit) => Self::TooLarge(*limit),
            NotSent::Fault(fault) => Self::Fault(*fault),
        }
    }
}

impl From<NotSent> for SendError {
    fn from(unsent: NotSent) -> Self {
        match unsent {
            NotSent::Full => Self::Full,
            NotSent::Finished => Self::Closed(Closed::Finished),
            NotSent::Disconnected => Self::Closed(Closed::Disconnected),
            NotSent::TooLarge(limit) => Self::TooLarge(*limit),
            NotSent::Fault(fault) => Self::Fault(*fault),
        }
    }
}

/// How much was already sent of a message that takes several pieces.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Whether any piece was sent. Then no other message may be sent before the last piece.
    pub started: bool,
    /// Number of bytes of the message that were sent. For a channel over a socket, the bytes of the
    /// record header before the message are counted as well.
    pub sent: usize,
}

impl Progress {
    /// Progress of a message of which nothing was sent.
    pub const NONE: Self = Self { started: false, sent: 0 };
}

/// The result of [`TransportReceiver::find`]: a message, another record, nothing, or the end of the
/// direction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A message was found, and is now the receiver's current message.
    Message,
    /// A control record of a stream or of the session, or a fragment; never on a channel. The
    /// caller reads it with [`TransportReceiver::body`] and consumes it with
    /// [`TransportReceiver::pass`].
    Control(RecordHeader),
    /// No record has arrived.
    Nothing,
    /// The direction has ended, and no record will follow.
    End(Closed),
}

/// Whether the session, and not the transport, handles records of the kind of `record` (SPEC 8.2,
/// 11).
const fn is_of_sessions(record: &RecordHeader) -> bool {
    match record.kind {
        Kind::CloseWrite => record.stream != SESSION,
        Kind::Data | Kind::Blob | Kind::Segment | Kind::SegmentRetire | Kind::Pad => false,
        Kind::Move | Kind::Switch => false,
        _ => true,
    }
}

/// Longest message of a stream that is stored inline, in the ring itself, in bytes. A longer
/// message is stored in a block of shared memory. The value was measured; see docs/decisions/0014.
pub(crate) const STREAM_INLINE_MAX: usize = 512;
