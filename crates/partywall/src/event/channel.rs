// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels in an event loop: they carry the same messages as `partywall::Channel`, by calls that
//! never block. Before it waits, an end of a channel is armed: it announces to the peer that it
//! waits, so that the peer notifies the loop.
//!
//! ```text
//!   try_recv: Empty ─▶ clear, arm, look again ─▶ Empty: the peer notifies the loop
//!   try_send: Full ──▶ arm, try again ─────────▶ Full: one event once there may be room
//! ```

use super::event::Kinds;
use super::registration::{Interest, Purpose, Registration, Shared};
use super::task::ClosingTask;
use crate::channel::{ChannelInfo, MessageRef, Readiness};
use crate::error::{SendError, TryRecvError, TrySendError};
use crate::message::Message;
use crate::peer::Peer;
use crate::stats::{ReceiverStats, SenderStats};
use crate::transport::{OwnedReservation, Transport};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A channel in an event loop. Dropping the channel removes it from the loop, and ends both
/// directions.
#[derive(Debug)]
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
    info: ChannelInfo,
}

impl Channel {
    pub(super) fn new(shared: &Arc<Shared>, channel: crate::Channel, tag: u64) -> io::Result<Self> {
        let info = channel.info();
        let registration = Registration::new(shared, tag);
        let (sender, receiver) = channel.split();
        let receiver = Receiver::over(receiver, Arc::clone(&registration))?;
        Ok(Self { sender: Sender::over(sender, registration), receiver, info })
    }

    /// Splits the channel into its two directions, whose events have the same tag.
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

    /// Returns the transport of this channel.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.info.transport()
    }

    /// Sends a copy of `payload`, as [`Sender::try_send`] does.
    ///
    /// # Errors
    /// Fails as [`Sender::try_send`] does, for example if there is no room now or the peer is gone.
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), TrySendError> {
        self.sender.try_send(payload)
    }

    /// Receives a message, as [`Receiver::try_recv`] does.
    ///
    /// # Errors
    /// Fails as [`Receiver::try_recv`] does, for example if no message has arrived or the peer
    /// died.
    pub fn try_recv(&mut self) -> Result<Option<Message>, TryRecvError> {
        self.receiver.try_recv()
    }
}

/// The receiving direction of a channel in an event loop.
///
/// The loop reports the receiver's tag as readable until an attempt to receive returns `Empty` or
/// the end.
#[derive(Debug)]
pub struct Receiver {
    inner: crate::Receiver,
    records: Interest,
    registration: Arc<Registration>,
    is_paused: bool,
}

impl Receiver {
    pub(super) fn new(
        shared: &Arc<Shared>,
        receiver: crate::Receiver,
        tag: u64,
    ) -> io::Result<Self> {
        Self::over(receiver, Registration::new(shared, tag))
    }

    fn over(inner: crate::Receiver, registration: Arc<Registration>) -> io::Result<Self> {
        let records = Interest::new(Arc::clone(&registration), Purpose::Records);
        let mut receiver = Self { inner, records, registration, is_paused: false };
        receiver.watch()?;
        // The new receiver is marked as readable, because messages may have arrived before. The
        // peer notifies only a receiver that has announced that it waits.
        receiver.registration.mark(Kinds::READABLE);
        Ok(receiver)
    }

    /// Returns the next message if one has arrived, or `None` once the sender has finished.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] if no message has arrived: the loop reports the tag once one has.
    /// Other errors as of [`Receiver::try_recv`](crate::Receiver::try_recv).
    pub fn try_recv(&mut self) -> Result<Option<Message>, TryRecvError> {
        Ok(self.find()?.then(|| self.inner.take_found()))
    }

    /// Borrows the next message, as [`Receiver::try_recv_ref`](crate::Receiver::try_recv_ref) does.
    ///
    /// # Errors
    /// Fails as [`try_recv`](Self::try_recv) does, for example if no message has arrived or the
    /// peer died.
    pub fn try_recv_ref(&mut self) -> Result<Option<MessageRef<'_>>, TryRecvError> {
        Ok(self.find()?.then(|| MessageRef::new(&mut self.inner)))
    }

    /// Receives a view of the next message, which is valid until the next receive call, as
    /// [`Receiver::try_recv_view`](crate::Receiver::try_recv_view) does.
    ///
    /// # Errors
    /// Fails as [`try_recv`](Self::try_recv) does, for example if no message has arrived or the
    /// peer died.
    pub fn try_recv_view(&mut self) -> Result<Option<&[u8]>, TryRecvError> {
        let found = self.find()?;
        Ok(self.inner.view(found))
    }

    /// Makes the message of the last view an owned message, as
    /// [`Receiver::keep_view`](crate::Receiver::keep_view) does.
    pub fn keep_view(&mut self) -> Option<Message> {
        self.inner.keep_view()
    }

    /// Stops the loop from reporting the receiver as readable, until the next attempt to receive.
    ///
    /// An application that cannot take messages now calls `pause`, because the loop would report
    /// the receiver in every turn. Unread messages keep their memory, so the sender waits.
    pub fn pause(&mut self) {
        self.is_paused = true;
        self.records.unwatch();
        self.registration.clear(Kinds::READABLE);
    }

    /// Returns the counters of the receiving direction.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        self.inner.stats()
    }

    /// Removes the receiver from the loop, and returns it for calls that block.
    #[must_use]
    pub fn into_inner(self) -> crate::Receiver {
        self.registration.clear(Kinds::READABLE);
        self.inner
    }

    /// Finds the next message, and returns false at the end of the direction. If no message has
    /// arrived, arms the receiver, so that the peer notifies the loop of the next one.
    fn find(&mut self) -> Result<bool, TryRecvError> {
        if std::mem::take(&mut self.is_paused) {
            self.watch().map_err(crate::transport::waiting_failed)?;
            self.registration.mark(Kinds::READABLE);
        }
        match self.inner.try_find() {
            Err(TryRecvError::Empty) => {}
            found => return self.settle(found),
        }
        for _ in 0..ATTEMPTS_MAX {
            self.registration.clear(Kinds::READABLE);
            let armed = self.inner.arm()?;
            self.watch().map_err(crate::transport::waiting_failed)?;
            if armed == Readiness::WillNotify {
                return Err(TryRecvError::Empty);
            }
            match self.inner.try_find() {
                Err(TryRecvError::Empty) => {}
                found => {
                    self.registration.mark(Kinds::READABLE);
                    return self.settle(found);
                }
            }
        }
        // The peer keeps sending bytes that do not complete a message. The loop reports the
        // receiver again in its next turn, so that the application tries again.
        self.registration.mark(Kinds::READABLE);
        Err(TryRecvError::Empty)
    }

    /// Removes a receiver whose direction has ended from the loop, so that the loop reports the end
    /// only once.
    fn settle(&mut self, found: Result<bool, TryRecvError>) -> Result<bool, TryRecvError> {
        if !matches!(found, Ok(true)) {
            self.records.unwatch();
            self.registration.clear(Kinds::READABLE);
        }
        found
    }

    fn watch(&mut self) -> io::Result<()> {
        self.records.watch(&self.inner)
    }
}

/// The sending direction of a channel in an event loop.
///
/// The loop reports the sender's tag as writable once there may be room, after an attempt that
/// found none.
///
/// Dropping the sender finishes its direction, and does not wait while the loop exists. Bytes of
/// sent messages that a socket has not accepted are written by later turns of the loop, for at most
/// 1 s after the drop. If the loop is dropped within that time, its drop waits for them.
#[derive(Debug)]
pub struct Sender {
    inner: crate::Sender,
    room: Interest,
    registration: Arc<Registration>,
}

impl Sender {
    pub(super) fn new(shared: &Arc<Shared>, sender: crate::Sender, tag: u64) -> Self {
        Self::over(sender, Registration::new(shared, tag))
    }

    fn over(inner: crate::Sender, registration: Arc<Registration>) -> Self {
        let room = Interest::new(Arc::clone(&registration), Purpose::Room);
        Self { inner, room, registration }
    }

    /// Sends a copy of `payload` if there is room now.
    ///
    /// On a socket, the kernel may accept only a part of the message. The loop then reports the tag
    /// as writable, and [`try_flush`](Self::try_flush) or the next message writes the remaining
    /// bytes.
    ///
    /// # Errors
    /// [`TrySendError::Full`] if there is no room now: the loop reports the tag once there may be.
    /// Other errors as of [`Sender::try_send`](crate::Sender::try_send).
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), TrySendError> {
        self.attempt(|sender| sender.try_send(payload))
    }

    /// Reserves memory for a message, as
    /// [`Sender::try_reserve_owned`](crate::Sender::try_reserve_owned) does.
    ///
    /// # Errors
    /// Fails as [`try_send`](Self::try_send) does, for example if there is no room now or the peer
    /// is gone.
    pub fn try_reserve_owned(&mut self, len: usize) -> Result<OwnedReservation, TrySendError> {
        self.attempt(|sender| sender.try_reserve_owned(len))
    }

    /// Sends the message in `reservation`, as
    /// [`Sender::try_commit_owned`](crate::Sender::try_commit_owned) does.
    ///
    /// # Errors
    /// Returns the reservation together with the reason, as [`try_send`](Self::try_send).
    #[expect(clippy::result_large_err, reason = "the reservation is given back")]
    pub fn try_commit_owned(
        &mut self,
        reservation: OwnedReservation,
    ) -> Result<(), (OwnedReservation, TrySendError)> {
        let mut left = Some(reservation);
        let sent = self.attempt(|sender| match left.take().map(|it| sender.try_commit_owned(it)) {
            Some(Err((back, error))) => {
                left = Some(back);
                Err(error)
            }
            _ => Ok(()),
        });
        match (sent, left) {
            (Err(error), Some(back)) => Err((back, error)),
            _ => Ok(()),
        }
    }

    /// Writes bytes of earlier messages that the kernel had not accepted. Returns whether some are
    /// left; the loop then reports the tag as writable again. Over shared memory there are none.
    ///
    /// # Errors
    /// Fails as [`try_send`](Self::try_send) does, but never with `Full`.
    pub fn try_flush(&mut self) -> Result<bool, SendError> {
        match self.inner.flush(Some(Instant::now())) {
            Ok(()) => Ok(false),
            Err(SendError::TimedOut | SendError::Full) => {
                self.watch().map_err(SendError::Fault)?;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the counters of the sending direction.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.inner.stats()
    }

    /// Removes the sender from the loop, and returns it for calls that block.
    #[must_use]
    pub fn into_inner(mut self) -> crate::Sender {
        self.registration.clear(Kinds::WRITABLE);
        self.inner.take()
    }

    /// Attempts to send a message. If there is no room, arms the sender, so that the peer notifies
    /// the loop of free room, and attempts once more.
    fn attempt<T>(
        &mut self,
        mut attempt: impl FnMut(&mut crate::Sender) -> Result<T, TrySendError>,
    ) -> Result<T, TrySendError> {
        for _ in 0..ATTEMPTS_MAX {
            match attempt(&mut self.inner) {
                Err(TrySendError::Full) => {}
                sent => {
                    if sent.is_ok() && self.inner.has_unsent() {
                        self.watch()?;
                    }
                    return sent;
                }
            }
            if self.inner.arm()? == Readiness::WillNotify {
                self.watch()?;
                return Err(TrySendError::Full);
            }
        }
        // The receiver frees room again and again, but never enough for the message. The loop
        // reports the sender again in its next turn, so that the application tries again.
        self.registration.mark(Kinds::WRITABLE);
        Err(TrySendError::Full)
    }

    /// Makes the loop's epoll set report the sender's descriptor once, when there may be room to
    /// send.
    fn watch(&mut self) -> Result<(), crate::Fault> {
        let added = self.room.watch(&self.inner);
        added.map_err(crate::transport::waiting_failed)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.inner.begin_close() {
            self.room.unwatch();
            ClosingTask::start(self.registration.shared(), self.inner.take());
        }
    }
}

/// Most attempts to receive or to send that one call makes. A further attempt is made only if some
/// bytes or some room came after the last one, but too little for the message.
const ATTEMPTS_MAX: u32 = 16;
