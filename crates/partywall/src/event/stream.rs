// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream of a session in an event loop: messages in two directions, by calls that never block.
//!
//! ```text
//!   try_recv: Empty ─▶ waker registered, clear, look again ─▶ Empty: the driver marks the stream
//!   try_send: Full ──▶ waker registered for credit or room ─▶ one event once there may be some
//! ```

use super::event::Kinds;
use super::ready_list::Key;
use super::registration::{Registration, Shared};
use crate::message::Message;
use crate::peer::Peer;
use crate::session::assert_application_code;
use crate::session::{RecvHalf, SendHalf, StreamEnds, StreamRecvError, StreamSendError};
use crate::transport::{OwnedReservation, Transport};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Both directions of a stream in an event loop. The loop reports both with the same tag.
///
/// Dropping a stream finishes its sending direction in good order and stops receiving. If a panic
/// drops the stream, the sending direction is reset instead.
#[derive(Debug)]
pub struct Stream {
    send: SendStream,
    recv: RecvStream,
}

impl Stream {
    pub(super) fn new(
        shared: &Arc<Shared>,
        (send, mut recv): (SendHalf, RecvHalf),
        tag: u64,
    ) -> Self {
        let registration = Registration::new(shared, tag);
        let waker = |kinds| stream_waker(&registration, &recv, kinds);
        let (readable, writable) = (waker(Kinds::READABLE), waker(Kinds::WRITABLE));
        // Messages may have arrived before the stream was added to the loop, so they are looked for
        // once. Later messages cause an event by the waker `readable`.
        if recv.poll_arrived(&Context::from_waker(&readable)).is_ready() {
            registration.mark(Kinds::READABLE);
        }
        let send =
            SendStream { half: send, waker: writable, _registration: Arc::clone(&registration) };
        Self { send, recv: RecvStream { half: recv, waker: readable, registration, received: 0 } }
    }

    /// Splits the stream into its two directions.
    #[must_use]
    pub fn into_split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }

    /// Returns the metadata with which the peer opened the stream; empty if this side opened it.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.recv.half.stream.metadata
    }

    /// Returns the number of the stream within the session. A later stream may get the same number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.recv.half.stream.number
    }

    /// Returns the identity of the peer process.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.recv.half.shared.peer.get()
    }

    /// Returns the transport of the session.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.recv.half.shared.transport.get()
    }

    /// Returns the sending direction of this stream.
    pub const fn sender(&mut self) -> &mut SendStream {
        &mut self.send
    }

    /// Returns the receiving direction of this stream.
    pub const fn receiver(&mut self) -> &mut RecvStream {
        &mut self.recv
    }

    /// Sends a copy of `payload`, as [`SendStream::try_send`] does.
    ///
    /// # Errors
    /// Fails as [`SendStream::try_send`] does, for example if credit or room is lacking, or the
    /// session is over.
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        self.send.try_send(payload)
    }

    /// Receives a message, as [`RecvStream::try_recv`] does.
    ///
    /// # Errors
    /// Fails as [`RecvStream::try_recv`] does, for example if no message has arrived or the session
    /// is over.
    pub fn try_recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        self.recv.try_recv()
    }

    /// Finishes the sending direction, as [`SendStream::finish`] does.
    pub fn finish(&mut self) {
        self.send.finish();
    }

    /// Resets both directions of the stream: the peer's sends and receives fail with `code`.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        self.send.reset(code);
        self.recv.stop(code);
    }
}

/// The sending direction of a stream in an event loop.
///
/// The loop reports the stream's tag as writable once there may be credit and room, after an
/// attempt that found none, and as ended once the peer receives no more.
#[derive(Debug)]
pub struct SendStream {
    half: SendHalf,
    waker: Waker,
    _registration: Arc<Registration>,
}

impl SendStream {
    /// Sends a copy of `payload` as a whole, if there is credit and room now.
    ///
    /// # Errors
    /// [`StreamSendError::Full`] if credit or room is lacking: the loop reports the tag once there
    /// may be some. Other errors as of
    /// [`blocking::SendStream::send`](crate::blocking::SendStream::send).
    pub fn try_send(&mut self, payload: &[u8]) -> Result<(), StreamSendError> {
        let polled = self.half.poll_send_whole(&Context::from_waker(&self.waker), payload);
        self.settle(polled).unwrap_or(Err(StreamSendError::Full))
    }

    /// Reserves memory for a message of `len` bytes, if memory is free now. Any stream of the
    /// session may commit it.
    ///
    /// # Errors
    /// Fails as [`try_send`](Self::try_send) does, for example if credit or room is lacking, or the
    /// session is over.
    pub fn try_reserve_owned(&mut self, len: usize) -> Result<OwnedReservation, StreamSendError> {
        let polled = self.half.poll_reserve_owned(&Context::from_waker(&self.waker), len);
        self.settle(polled).unwrap_or(Err(StreamSendError::Full))
    }

    /// Sends the message in `reservation`, which a stream of the same session reserved, if there is
    /// credit and room now.
    ///
    /// # Errors
    /// Returns the reservation together with the reason:
    /// [`StreamSendError::ForeignReservation`], or as [`try_send`](Self::try_send).
    pub fn try_commit_owned(
        &mut self,
        reservation: OwnedReservation,
    ) -> Result<(), (OwnedReservation, StreamSendError)> {
        if let Err(foreign) = self.half.put_reserved(reservation) {
            return Err((foreign, StreamSendError::ForeignReservation));
        }
        let polled = self.half.poll_commit_whole(&Context::from_waker(&self.waker));
        let attempted = match polled {
            Poll::Ready(sent) => Some(sent),
            Poll::Pending => None,
        };
        let waits = attempted.is_none();
        let sent = self.half.settle_owned(attempted);
        if !waits {
            self.half.give_back();
        }
        sent
    }

    /// Ends the sending direction in good order: no more messages follow, and every sent message is
    /// still delivered. The other direction continues.
    pub fn finish(&mut self) {
        self.half.finish();
    }

    /// Resets the sending direction: the receiver gets `code` instead of an end in good order.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn reset(&mut self, code: u32) {
        assert_application_code(code);
        self.half.reset(code);
    }

    /// Returns the result of an attempt to send. If credit or room was lacking, the message stays
    /// registered as waiting, so that the loop later reports the stream as writable.
    fn settle<T>(&mut self, polled: Poll<T>) -> Option<T> {
        match polled {
            Poll::Ready(result) => {
                self.half.give_back();
                Some(result)
            }
            Poll::Pending => None,
        }
    }
}

/// The receiving direction of a stream in an event loop.
///
/// The loop reports the stream's tag as readable until an attempt to receive returns `Empty` or the
/// end.
#[derive(Debug)]
pub struct RecvStream {
    half: RecvHalf,
    waker: Waker,
    registration: Arc<Registration>,
    received: u64,
}

impl RecvStream {
    /// Returns the next message if one has arrived, or `None` once the peer has finished its
    /// direction and every message was received.
    ///
    /// # Errors
    /// [`StreamRecvError::Empty`] if no message has arrived: the loop reports the tag once one has.
    /// Other errors as of [`blocking::RecvStream::recv`](crate::blocking::RecvStream::recv).
    pub fn try_recv(&mut self) -> Result<Option<Message>, StreamRecvError> {
        let context = Context::from_waker(&self.waker);
        let half = &mut self.half;
        let polled = self.registration.attempt(Kinds::READABLE, || half.poll_recv(&context));
        let Poll::Ready(received) = polled else { return Err(StreamRecvError::Empty) };
        match &received {
            Ok(Some(_)) => self.received += 1,
            // The end of the direction is an event that is cleared at once, so the loop reports it
            // only once.
            _ => self.registration.clear(Kinds::READABLE),
        }
        received
    }

    /// Stops the loop from reporting the stream as readable, until the next attempt to receive. At
    /// most one event follows, if the last attempt found nothing.
    ///
    /// An application that cannot take messages now calls `pause`, because the loop would report
    /// the stream in every turn. Unread messages keep their credit, so the peer's sends wait.
    pub fn pause(&mut self) {
        self.registration.clear(Kinds::READABLE);
    }

    /// Stops receiving on this stream: the peer's sends fail with `code`, and unread messages are
    /// dropped.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: 0xffffff00 or greater.
    #[track_caller]
    pub fn stop(&mut self, code: u32) {
        assert_application_code(code);
        self.half.stop(code);
        self.registration.clear(Kinds::READABLE);
    }

    /// Returns the number of messages received on this stream.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }
}

/// Returns the waker that the driver calls when one direction of a stream has a message, credit or
/// room, or has ended.
fn stream_waker(registration: &Arc<Registration>, half: &RecvHalf, kinds: Kinds) -> Waker {
    let (shared, key) = (Arc::clone(registration.shared()), registration.key());
    Waker::from(Arc::new(StreamWaker { shared, key, kinds, ends: half.ends() }))
}

/// The waker of one direction of a stream in an event loop. When that direction has ended, the
/// waker also gives the stream the event `ENDED`.
struct StreamWaker {
    shared: Arc<Shared>,
    key: Key,
    kinds: Kinds,
    ends: StreamEnds,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let has_ended = match self.kinds {
            Kinds::READABLE => self.ends.has_receiving_ended(),
            _ => self.ends.has_sending_ended(),
        };
        let ended = if has_ended { Kinds::ENDED } else { Kinds::NONE };
        self.shared.list.mark(self.key, self.kinds | ended);
    }
}
