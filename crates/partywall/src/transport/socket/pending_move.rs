// SPDX-License-Identifier: MIT OR Apache-2.0
//! The move of a connection from its socket to shared memory, which the sender and the receiver of
//! one side share (SPEC 8.5).
//!
//! ```text
//!   connector  not begun ── pays: make a pair, send MOVE ─┐
//!   acceptor   not begun ── MOVE received ────────────────┴─▶ under way ── done ─▶ shared
//!                                                                  └─ failed ─▶ stays
//!
//!   shared: the sender writes SWITCH as its last record on the socket, and the receiver reads it;
//!           the sender and the receiver over shared memory then replace the two
//! ```
//!
//! No thread works for the move. The sender advances the move in each call, and the receiver with
//! each message; neither of them ever waits for it. If the move fails, the connection stays on the
//! socket for good, and nothing is lost.
//!
//! If the application has dropped the socket's sender or receiver before, the one over shared
//! memory is closed as soon as it is made.
//!
//! MOVE may only be sent between two records, and only the connector's sender knows where that is.
//! So between two records the sender stores its position in `State::boundary`, and takes it back
//! before it writes. A receiver that finds a position there may send MOVE itself, so that a side
//! that only receives moves as well.

use crate::transport::shm::{SharedMemory, ShmReceiver, ShmSender};
use crate::transport::{MovingTransport, Transport, TransportReceiver, TransportSender};
use partywall_layout::{FallbackReason, Kind, Position, RecordHeader, Violation};
use partywall_sys::Socket;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// The handshake over a socket pair by which both sides share memory. No method blocks.
pub(crate) trait MoveHandshake: fmt::Debug + Send {
    /// Begins the connector's handshake on a new pair. Returns the acceptor's end of the pair.
    fn begin(&mut self) -> Result<OwnedFd, MoveFailed>;

    /// Begins the acceptor's handshake. `descriptor` is the acceptor's end of the connector's
    /// socket pair.
    fn accept(&mut self, descriptor: OwnedFd) -> Result<(), MoveFailed>;

    /// Continues the handshake of the move. Returns the sender and the receiver over shared memory
    /// once the handshake is complete.
    fn progress(&mut self) -> Result<Option<(ShmSender, ShmReceiver)>, MoveFailed>;
}

/// The reason why a connection does not move to shared memory.
#[derive(Debug)]
pub(crate) enum MoveFailed {
    /// The connection stays on the socket, for the contained reason.
    Stays(FallbackReason),
    /// The peer broke a rule, so the connection ends.
    Violation(Violation),
}

/// The move of one connection to shared memory, which the connection's sender and receiver share.
#[derive(Debug)]
pub(crate) struct PendingMove {
    is_connector: bool,
    opened: Instant,
    state: Mutex<State>,
    /// The connection's shared memory, once the handshake of the move is complete.
    shm: OnceLock<Weak<SharedMemory>>,
    /// The transport of the connection, once the move has succeeded or failed. The value can be
    /// read without the lock, which another thread may hold while the process forks.
    settled: OnceLock<Transport>,
    /// Set once an acceptor has received the record MOVE. Before that, the acceptor's sender and
    /// receiver need not lock the state of the move.
    has_begun: OnceLock<()>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    handshake: Option<Box<dyn MoveHandshake>>,
    /// For a connector whose sender is between two records and has written every byte: the position
    /// of its next record.
    boundary: Option<Position>,
    /// The acceptor's end of the socket pair, until the connector has sent it with the record MOVE.
    unsent: Option<OwnedFd>,
    /// Number of messages that a connector has sent on the socket.
    sent: u32,
    /// Number of messages that a connector has received on the socket.
    received: u32,
    is_sender_open: bool,
    is_receiver_open: bool,
    /// The sender over shared memory, until it replaces the sender on the socket. The next field
    /// has the receiver over shared memory.
    sender: Option<Box<ShmSender>>,
    receiver: Option<Box<ShmReceiver>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    NotBegun,
    UnderWay,
    Shared,
    Stays,
}

impl PendingMove {
    /// Prepares a move that `handshake` performs. If `obstacle` is a reason not to move, the
    /// connection stays on the socket.
    pub(crate) fn new(
        handshake: Box<dyn MoveHandshake>,
        is_connector: bool,
        obstacle: Option<FallbackReason>,
    ) -> Self {
        let state = State {
            phase: if obstacle.is_some() { Phase::Stays } else { Phase::NotBegun },
            handshake: obstacle.is_none().then_some(handshake),
            boundary: None,
            unsent: None,
            sent: 0,
            received: 0,
            is_sender_open: true,
            is_receiver_open: true,
            sender: None,
            receiver: None,
        };
        let settled = OnceLock::new();
        if let Some(reason) = obstacle {
            let _ = settled.set(Transport::Socket(reason));
        }
        let (state, shm) = (Mutex::new(state), OnceLock::new());
        Self {
            is_connector,
            opened: Instant::now(),
            state,
            shm,
            settled,
            has_begun: OnceLock::new(),
        }
    }

    /// Whether this side is an acceptor that has not received the record MOVE yet.
    pub(super) fn awaits_move(&self) -> bool {
        !self.is_connector && self.lock().phase == Phase::NotBegun
    }

    /// Whether the move has failed, so that the connection's sender and receiver stay on the
    /// socket.
    pub(super) fn stays(&self) -> bool {
        matches!(self.settled.get(), Some(Transport::Socket(_)))
    }

    /// Stores the position where the sender's next record begins, so that the receiver may send the
    /// record MOVE there. Returns true if the sender must take the position back before it writes.
    pub(super) fn offer_boundary(&self, position: Position) -> bool {
        if !self.is_connector || self.settled.get().is_some() {
            return false;
        }
        let mut state = self.lock();
        let can_begin = state.phase == Phase::NotBegun;
        if can_begin {
            state.boundary = Some(position);
        }
        can_begin
    }

    /// Takes back the position that [`offer_boundary`](Self::offer_boundary) stored. If the
    /// receiver has sent the record MOVE meanwhile, returns the position after that record.
    pub(super) fn take_boundary(&self) -> Option<Position> {
        self.lock().boundary.take()
    }

    /// Counts a message that this side sent. Only a connector counts, because only a connector
    /// begins the move.
    pub(super) fn count_sent(&self) {
        if self.is_connector && self.settled.get().is_none() {
            let mut state = self.lock();
            state.sent = state.sent.saturating_add(1);
        }
    }

    /// Counts a message that this side received. Only a connector counts, because only a connector
    /// begins the move.
    pub(super) fn count_received(&self) {
        if self.is_connector && self.settled.get().is_none() {
            let mut state = self.lock();
            state.received = state.received.saturating_add(1);
        }
    }

    /// Advances the move from the sender, which is between two records, at `position`, and is about
    /// to send `len` bytes. Returns the position of the sender's next record, which is after the
    /// record MOVE if that was sent.
    pub(super) fn advance_sender(
        &self,
        socket: &Socket,
        position: Position,
        len: usize,
    ) -> Result<Position, Violation> {
        if self.is_at_rest() {
            return Ok(position);
        }
        let mut state = self.lock();
        if state.phase != Phase::NotBegun {
            return self.progress(&mut state).map(|()| position);
        }
        let is_due = state.has_paid()
            || len > super::DATA_BYTES_SHOULD
            || self.opened.elapsed() >= AGE_BEFORE;
        if is_due {
            return self.begin(&mut state, socket, position);
        }
        Ok(position)
    }

    /// Advances the move from the receiver, which has received a message.
    pub(super) fn advance_receiver(&self, socket: &Socket) -> Result<(), Violation> {
        if self.is_at_rest() {
            return Ok(());
        }
        let mut state = self.lock();
        if state.phase != Phase::NotBegun {
            return self.progress(&mut state);
        }
        if !state.has_paid() {
            return Ok(());
        }
        let Some(position) = state.boundary else { return Ok(()) };
        let next = self.begin(&mut state, socket, position)?;
        state.boundary = Some(next);
        Ok(())
    }

    /// Handles the record MOVE from the connector, and the descriptors that came with MOVE.
    pub(super) fn received(
        &self,
        record: &RecordHeader,
        descriptors: Vec<OwnedFd>,
        is_truncated: bool,
    ) -> Result<(), Violation> {
        let mut state = self.lock();
        if self.is_connector || state.phase != Phase::NotBegun {
            return Err(unexpected(record));
        }
        check_empty(record)?;
        let found = descriptors.len() as u64;
        let mut descriptors = descriptors.into_iter();
        match (descriptors.next(), descriptors.next()) {
            (Some(descriptor), None) => {
                let accepted = match &mut state.handshake {
                    Some(handshake) => handshake.accept(descriptor),
                    None => Ok(()),
                };
                state.phase = Phase::UnderWay;
                let _ = self.has_begun.set(());
                match accepted {
                    Ok(()) => self.progress(&mut state),
                    Err(failed) => self.fail(&mut state, failed),
                }
            }
            // The kernel dropped the descriptor that came with the record MOVE, which closed the
            // acceptor's end of the pair. So the connector notices a hang-up, and both sides stay
            // on the socket.
            (None, _) if is_truncated => {
                self.fail(&mut state, MoveFailed::Stays(FallbackReason::Descriptors))
            }
            _ => Err(Violation::Frame { what: "descriptors of MOVE", found }),
        }
    }

    /// Handles the record SWITCH from the peer: returns the receiver over shared memory, which
    /// continues the direction.
    pub(super) fn switch_receiver(
        &self,
        record: &RecordHeader,
    ) -> Result<Box<ShmReceiver>, Violation> {
        let mut state = self.lock();
        check_empty(record)?;
        // The peer sent READY, its last frame of the handshake, before the record SWITCH. So the
        // handshake is complete now.
        self.progress(&mut state)?;
        state.receiver.take().ok_or_else(|| unexpected(record))
    }

    /// Whether the sender over shared memory is ready. The socket's sender then writes the record
    /// SWITCH, and calls [`take_sender`](Self::take_sender).
    pub(super) fn is_sender_ready(&self) -> bool {
        self.settled.get() == Some(&Transport::SharedMemory) && self.lock().sender.is_some()
    }

    pub(super) fn take_sender(&self) -> Option<Box<ShmSender>> {
        self.lock().sender.take()
    }

    /// Closes the sender over shared memory, now or when it is made, because the application closed
    /// the socket's sender.
    pub(super) fn close_sender(&self) {
        let mut state = self.lock();
        state.is_sender_open = false;
        state.boundary = None;
        state.close_unused();
    }

    /// Closes the receiver over shared memory, now or when it is made, because the application
    /// closed the socket's receiver.
    pub(super) fn close_receiver(&self) {
        let mut state = self.lock();
        state.is_receiver_open = false;
        state.close_unused();
    }

    /// Ends the connection over shared memory, because the peer broke a rule on the socket.
    pub(super) fn violated(&self, violation: Violation) {
        if let Some(shm) = self.shm.get().and_then(Weak::upgrade) {
            shm.violated_elsewhere(violation);
        }
    }

    /// Begins the move: sends the record MOVE at `position`. Returns the position after that
    /// record, or `position` if it was not sent.
    fn begin(
        &self,
        state: &mut State,
        socket: &Socket,
        position: Position,
    ) -> Result<Position, Violation> {
        let begun = match (state.unsent.take(), &mut state.handshake) {
            (Some(descriptor), _) => Ok(descriptor),
            (None, Some(handshake)) => handshake.begin(),
            (None, None) => return Ok(position),
        };
        let descriptor = match begun {
            Ok(descriptor) => descriptor,
            Err(failed) => return self.fail(state, failed).map(|()| position),
        };
        let record = RecordHeader { position, kind: Kind::Move, len: 0, stream: 0 };
        let wire = record.to_wire();
        match socket.send(&[IoSlice::new(wire.as_bytes())], &[descriptor.as_fd()], false, true) {
            // The kernel accepts the record MOVE as a whole or not at all, because it is so short.
            Ok(_) => {
                state.phase = Phase::UnderWay;
                Ok(position.plus(record.footprint()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                state.unsent = Some(descriptor);
                Ok(position)
            }
            // The record MOVE could not be sent: too many descriptors are in flight in the kernel,
            // or the peer is gone. The move is given up. If the peer is gone, the next write on the
            // socket reports it.
            Err(_) => {
                let failed = MoveFailed::Stays(FallbackReason::Descriptors);
                self.fail(state, failed).map(|()| position)
            }
        }
    }

    /// Continues the handshake of the move. When the handshake is complete, stores the sender and
    /// the receiver over shared memory.
    fn progress(&self, state: &mut State) -> Result<(), Violation> {
        let (Phase::UnderWay, Some(handshake)) = (state.phase, &mut state.handshake) else {
            return Ok(());
        };
        match handshake.progress() {
            Ok(None) => Ok(()),
            Ok(Some((sender, receiver))) => {
                let _ = self.shm.set(Arc::downgrade(sender.shared()));
                state.sender = Some(Box::new(sender));
                state.receiver = Some(Box::new(receiver));
                state.phase = Phase::Shared;
                let _ = self.settled.set(Transport::SharedMemory);
                state.handshake = None;
                state.close_unused();
                Ok(())
            }
            Err(failed) => self.fail(state, failed),
        }
    }

    /// Gives the move up: drops the handshake and its socket pair. The connection stays on the
    /// socket.
    fn fail(&self, state: &mut State, failed: MoveFailed) -> Result<(), Violation> {
        (state.handshake, state.unsent) = (None, None);
        let (reason, result) = match failed {
            MoveFailed::Stays(reason) => (reason, Ok(())),
            MoveFailed::Violation(violation) => (FallbackReason::Abandoned, Err(violation)),
        };
        state.phase = Phase::Stays;
        let _ = self.settled.set(Transport::Socket(reason));
        result
    }

    /// Whether this side is an acceptor that has received no record MOVE. If another thread
    /// receives that record just now, the move continues with the next message.
    fn is_at_rest(&self) -> bool {
        !self.is_connector && self.has_begun.get().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MovingTransport for PendingMove {
    fn transport(&self) -> Transport {
        self.settled.get().copied().unwrap_or(Transport::Socket(FallbackReason::NotMoved))
    }
}

impl State {
    /// Whether the connection has carried so many messages that a move to shared memory pays.
    fn has_paid(&self) -> bool {
        self.sent.min(self.received) >= EXCHANGES_BEFORE
            || self.sent.saturating_add(self.received) >= MESSAGES_BEFORE
    }

    /// Closes the sender or the receiver over shared memory if the application has closed that
    /// direction on the socket.
    fn close_unused(&mut self) {
        if !self.is_sender_open {
            if let Some(mut sender) = self.sender.take() {
                sender.close();
            }
        }
        if !self.is_receiver_open {
            if let Some(mut receiver) = self.receiver.take() {
                receiver.close();
            }
        }
    }
}

const fn unexpected(record: &RecordHeader) -> Violation {
    Violation::Unexpected { position: record.position.0, kind: record.kind as u8 }
}

fn check_empty(record: &RecordHeader) -> Result<(), Violation> {
    if record.len == 0 {
        return Ok(());
    }
    let (position, found) = (record.position.0, record.len.into());
    Err(Violation::Body { position, what: "body where none may be", found })
}

/// Number of messages in each direction after which a move to shared memory pays. So many messages
/// in both directions mean that the two sides answer each other. A move costs about the time that
/// shared memory saves in 8 round trips, compared with a socket.
const EXCHANGES_BEFORE: u32 = 8;

/// Number of messages, in both directions together, after which a move to shared memory pays. The
/// number is high because messages without an answer are cheap on a socket: 100 of them take half
/// the time of a move.
const MESSAGES_BEFORE: u32 = 128;

/// Age of a connection from which on its next message begins a move to shared memory, because a
/// connection that has lived so long usually carries more messages.
const AGE_BEFORE: Duration = Duration::from_millis(1);
