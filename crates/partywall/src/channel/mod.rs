// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel: one duplex pipe of messages between two processes. It has the lowest latency and does
//! not multiplex; sessions do.
//!
//! ```text
//!   Channel ─ split ─▶ Sender    one thread, no lock     ─ shared ─▶ SharedSender   any thread
//!                 └──▶ Receiver  one thread
//! ```
//!
//! The two directions are independent: dropping the sender finishes its direction, and messages of
//! the peer are still received. A channel starts no thread.

mod message_ref;
mod receiver;
mod receiver_parker;
mod reservation;
mod sender;
mod shared_sender;

pub use message_ref::MessageRef;
pub(crate) use receiver::AnyReceiver;
pub use receiver::{Readiness, Receiver};
pub use receiver_parker::ReceiverParker;
pub use reservation::{Batch, Reservation};
pub(crate) use sender::AnySender;
pub use sender::Sender;
pub use shared_sender::SharedSender;

use crate::config::Config;
use crate::error::{RecvError, SendError, TryRecvError, TrySendError};
use crate::message::Message;
use crate::peer::{Peer, PeerIdentity};
use crate::transport::{LiveTransport, Transport};
use partywall_wait::Wait;
use std::time::Instant;

/// A channel to another process, with a sender and a receiver.
///
/// Made by [`connect`](crate::connect) and [`Listener::accept`](crate::Listener::accept).
///
/// Dropping the channel ends both directions in good order: the peer receives every sent message,
/// then `None`. To end only one direction, [`split`](Self::split) the channel and drop the
/// [`Sender`] or the [`Receiver`]. If the process of the peer dies, [`recv`](Self::recv) returns
/// [`RecvError::Disconnected`] after the messages that arrived before.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/app.sock", directory.path().display());
/// # let mut listener = partywall::Listener::bind(&address)?;
/// let client = std::thread::spawn(move || {
///     let (mut sender, mut receiver) = partywall::connect(&address).unwrap().split();
///     sender.send(b"one").unwrap();
///     sender.send(b"two").unwrap();
///     drop(sender); // half-close: the answer is still received
///     receiver.recv().unwrap().unwrap().to_vec()
/// });
///
/// let mut channel = listener.accept()?;
/// let mut count = 0_u8;
/// while let Some(_message) = channel.recv()? {
///     count += 1;
/// }
/// channel.send(&[count])?;
/// assert_eq!(client.join().unwrap(), [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
    info: ChannelInfo,
}

/// The peer and the transport of a channel, for a program that has split the channel.
///
/// Made by [`Channel::info`]. Clones describe the same channel.
#[derive(Clone, Debug)]
pub struct ChannelInfo {
    peer: PeerIdentity,
    transport: LiveTransport,
}

impl ChannelInfo {
    /// Returns the identity of the process at the other end, as [`Channel::peer`] does.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.peer.get()
    }

    /// Returns the transport as it is now, as [`Channel::transport`] does.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport.get()
    }
}

impl Channel {
    pub(crate) fn new(
        ends: (AnySender, AnyReceiver),
        peer: PeerIdentity,
        transport: LiveTransport,
        config: &Config,
    ) -> Self {
        let (sender, receiver) = ends;
        Self {
            sender: Sender::new(sender, config),
            receiver: Receiver::new(receiver, config),
            info: ChannelInfo { peer, transport },
        }
    }

    /// Splits the channel into its two directions, each of which a thread of its own may use.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// Returns the sending direction of this channel.
    pub const fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// Returns the receiving direction of this channel.
    pub const fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// Returns the identity of the process at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.info.peer()
    }

    /// Returns the peer and the transport, for the time after a [`split`](Self::split).
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let mut listener = partywall::Listener::bind(&address)?;
    /// # let client = std::thread::spawn(move || partywall::connect(&address).unwrap());
    /// # let channel = listener.accept()?;
    /// let info = channel.info();
    /// let (sender, receiver) = channel.split();
    /// println!("{} over the {}", info.peer(), info.transport());
    /// # drop((sender, receiver, client.join().unwrap()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn info(&self) -> ChannelInfo {
        self.info.clone()
    }

    /// Returns the transport of this channel. [`Transport::Socket`] contains the reason why memory
    /// is not shared.
    ///
    /// The transport of a channel that began on the socket
    /// ([`Begin::Socket`](crate::Begin::Socket)) changes to [`Transport::SharedMemory`] once both
    /// sides have mapped memory. Each direction then moves with its next message.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.info.transport()
    }

    /// Sets how the sender and the receiver of this channel wait from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.sender.set_wait(wait);
        self.receiver.set_wait(wait);
    }

    /// Sends a copy of `payload`, as [`Sender::send`] does.
    ///
    /// # Errors
    /// Fails as [`Sender::send`] does, for example if the peer is gone or the message is too long.
    #[inline]
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.sender.send(payload)
    }

    /// Sends a copy of `payload` without blocking, as [`Sender::try_send`] does.
    ///
    /// # Errors
    /// Fails as [`Sender::try_send`] does, for example if there is no room now or the peer is gone.
    #[inline]
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), TrySendError> {
        self.sender.try_send(payload)
    }

    /// Sends a copy of `payload` before `deadline`, as [`Sender::send_deadline`] does.
    ///
    /// # Errors
    /// Fails as [`Sender::send_deadline`] does, for example if the deadline passes or the peer is
    /// gone.
    pub fn send_deadline(&mut self, payload: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.sender.send_deadline(payload, deadline)
    }

    /// Reserves memory for a message, as [`Sender::reserve`] does.
    ///
    /// # Errors
    /// Fails as [`Sender::reserve`] does, for example if the peer is gone or the message is too
    /// long.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, SendError> {
        self.sender.reserve(len)
    }

    /// Receives the next message, as [`Receiver::recv`] does.
    ///
    /// # Errors
    /// Fails as [`Receiver::recv`] does, for example if the peer died.
    #[inline]
    pub fn recv(&mut self) -> Result<Option<Message>, RecvError> {
        self.receiver.recv()
    }

    /// Receives a message without blocking, as [`Receiver::try_recv`] does.
    ///
    /// # Errors
    /// Fails as [`Receiver::try_recv`] does, for example if no message has arrived or the peer
    /// died.
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Message>, TryRecvError> {
        self.receiver.try_recv()
    }

    /// Receives a message before `deadline`, as [`Receiver::recv_deadline`] does.
    ///
    /// # Errors
    /// Fails as [`Receiver::recv_deadline`] does, for example if the deadline passes or the peer
    /// died.
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Option<Message>, RecvError> {
        self.receiver.recv_deadline(deadline)
    }

    /// Borrows the next message, as [`Receiver::recv_ref`] does.
    ///
    /// # Errors
    /// Fails as [`Receiver::recv_ref`] does, for example if the peer died.
    #[inline]
    pub fn recv_ref(&mut self) -> Result<Option<MessageRef<'_>>, RecvError> {
        self.receiver.recv_ref()
    }
}
