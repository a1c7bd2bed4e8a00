// SPDX-License-Identifier: MIT OR Apache-2.0
//! One duplex pipe of messages between two processes: the lowest latency, no multiplexing.
//!
//! ```text
//!   Channel ─ split ─▶ Sender    one thread, no lock     ─ shared ─▶ SharedSender   any thread
//!                 └──▶ Receiver  one thread
//! ```
//!
//! The two directions are independent: dropping the sender finishes its direction, and messages of
//! the peer are still received. There is no hidden thread.

mod receiver;
mod reservation;
mod sender;
mod shared_sender;

pub(crate) use receiver::AnyReceiver;
pub use receiver::{MessageRef, Readiness, Receiver};
pub use reservation::{Batch, Reservation};
pub(crate) use sender::AnySender;
pub use sender::Sender;
pub use shared_sender::SharedSender;

use crate::config::Config;
use crate::error::{RecvError, SendError, TryRecvError, TrySendError};
use crate::message::Message;
use crate::peer::Peer;
use crate::transport::Transport;
use partywall_wait::Wait;
use std::time::Instant;

/// A connection: both directions.
///
/// Made by [`connect`](crate::connect) and [`Listener::accept`](crate::Listener::accept).
#[derive(Debug)]
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
    peer: Peer,
    transport: Transport,
}

impl Channel {
    pub(crate) fn new(
        ends: (AnySender, AnyReceiver),
        peer: Peer,
        transport: Transport,
        config: &Config,
    ) -> Self {
        let (sender, receiver) = ends;
        Self {
            sender: Sender::new(sender, config),
            receiver: Receiver::new(receiver, config),
            peer,
            transport,
        }
    }

    /// Splits the channel into its two directions, which a thread each may use.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// The sending direction.
    pub const fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// The receiving direction.
    pub const fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// The process at the other end.
    #[must_use]
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The transport of this channel; with the socket, the reason why memory is not shared.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Sets how both directions wait from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.sender.set_wait(wait);
        self.receiver.set_wait(wait);
    }

    /// See [`Sender::send`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.sender.send(payload)
    }

    /// See [`Sender::try_send`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), TrySendError> {
        self.sender.try_send(payload)
    }

    /// See [`Sender::send_deadline`].
    ///
    /// # Errors
    /// As there.
    pub fn send_deadline(&mut self, payload: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.sender.send_deadline(payload, deadline)
    }

    /// See [`Sender::reserve`].
    ///
    /// # Errors
    /// As there.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, SendError> {
        self.sender.reserve(len)
    }

    /// See [`Receiver::recv`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn recv(&mut self) -> Result<Option<Message>, RecvError> {
        self.receiver.recv()
    }

    /// See [`Receiver::try_recv`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Message>, TryRecvError> {
        self.receiver.try_recv()
    }

    /// See [`Receiver::recv_deadline`].
    ///
    /// # Errors
    /// As there.
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<Message>, RecvError> {
        self.receiver.recv_deadline(deadline)
    }

    /// See [`Receiver::recv_ref`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn recv_ref(&mut self) -> Result<Option<MessageRef<'_>>, RecvError> {
        self.receiver.recv_ref()
    }
}
