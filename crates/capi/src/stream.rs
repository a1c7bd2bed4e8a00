// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of sessions. One thread may send on a stream while another receives from it.
//!
//! ```text
//!   handle ─┬─ first: Sending ──── Threaded or InLoop, as the session is
//!           └─ second: Receiving ─ with the metadata, and the message of the current view
//! ```

use crate::argument::{Buffer, Bytes, Out};
use crate::error::{self, Errors};
use crate::export::export;
use crate::failure::{BUFFER_TOO_SHORT, FINISHED, FULL, Failure};
use crate::message::MessageObject;
use crate::reservation::{self, ReservationObject};
use crate::table::{Handle, Object, Table};
use crate::timeout::Timeout;
use partywall::{Message, OwnedReservation, StreamSendError};
use partywall::{blocking, event};
use std::ffi::c_void;

pub(crate) struct StreamObject;

static STREAMS: Table<StreamObject> = Table::new();

impl Object for StreamObject {
    type First = Sending;
    type Second = Receiving;
    type Shared = ();
    const KIND: u8 = 10;
    const NAME: &'static str = "partywall_stream";

    fn table() -> &'static Table<Self> {
        &STREAMS
    }
}

pub(crate) fn insert_threaded(stream: blocking::Stream) -> Result<Handle<StreamObject>, Failure> {
    let metadata = stream.metadata().into();
    let (sender, receiver) = stream.into_split();
    let receiving = Receiving::new(Incoming::Threaded(receiver), metadata);
    Handle::insert(Sending::Threaded(sender), receiving)
}

pub(crate) fn insert_in_loop(stream: event::Stream) -> Result<Handle<StreamObject>, Failure> {
    let metadata = stream.metadata().into();
    let (sender, receiver) = stream.into_split();
    let receiving = Receiving::new(Incoming::InLoop(receiver), metadata);
    Handle::insert(Sending::InLoop(sender), receiving)
}

/// Takes both directions out of a stream whose session has a thread, and frees the stream's handle.
pub(crate) fn take_threaded(
    stream: Handle<StreamObject>,
) -> Result<(blocking::SendStream, blocking::RecvStream), Failure> {
    if !matches!(*stream.first()?, Sending::Threaded(_)) {
        return Err(Failure::argument("calls need a stream of a session that is in no loop"));
    }
    match stream.remove()? {
        (Some(Sending::Threaded(send)), Some(Receiving { incoming, .. })) => match incoming {
            Incoming::Threaded(recv) => Ok((send, recv)),
            Incoming::InLoop(_) => unreachable!("both directions are of one session"),
        },
        _ => Err(Failure::handle(StreamObject::NAME)),
    }
}

/// Checks that a code with which the application ends a stream or session is not reserved for the
/// protocol. The peer receives the code.
pub(crate) fn application_code(code: u32) -> Result<u32, Failure> {
    if code < RESERVED_CODES {
        return Ok(code);
    }
    Err(Failure::argument(&format!(
        "the code {code:#x} is reserved: use one below {RESERVED_CODES:#x}"
    )))
}

pub(crate) enum Sending {
    Threaded(blocking::SendStream),
    InLoop(event::SendStream),
}

impl Sending {
    fn send(&mut self, payload: &[u8], timeout: Timeout) -> Result<(), Failure> {
        match self {
            Self::Threaded(sender) => {
                match (timeout, timeout.deadline()) {
                    (Timeout::Zero, _) => sender.try_send(payload)?,
                    (_, Some(deadline)) => sender.send_deadline(payload, deadline)?,
                    (_, None) => sender.send(payload)?,
                }
                Ok(())
            }
            Self::InLoop(sender) => {
                timeout.require_zero()?;
                Ok(sender.try_send(payload)?)
            }
        }
    }

    fn reserve(&mut self, len: usize, timeout: Timeout) -> Result<OwnedReservation, Failure> {
        match self {
            Self::Threaded(sender) => match sender.reserve_owned(len, timeout.deadline()) {
                Err(StreamSendError::TimedOut) if timeout == Timeout::Zero => {
                    Err(Failure::state(FULL))
                }
                reserved => Ok(reserved?),
            },
            Self::InLoop(sender) => {
                timeout.require_zero()?;
                Ok(sender.try_reserve_owned(len)?)
            }
        }
    }

    /// Sends a reserved message. On an error after which the memory is still reserved, returns the
    /// reservation with the error.
    fn commit(
        &mut self,
        reservation: OwnedReservation,
        timeout: Timeout,
    ) -> Result<(), (Option<OwnedReservation>, Failure)> {
        let given_back = |(back, error): (_, StreamSendError)| (Some(back), error.into());
        match self {
            Self::Threaded(sender) => match sender.try_commit_owned(reservation) {
                Err((reservation, StreamSendError::Full)) if timeout != Timeout::Zero => {
                    let sent = sender.commit_owned(reservation, timeout.deadline());
                    sent.map_err(|error| (None, error.into()))
                }
                sent => sent.map_err(given_back),
            },
            Self::InLoop(sender) => {
                if let Err(failure) = timeout.require_zero() {
                    return Err((Some(reservation), failure));
                }
                sender.try_commit_owned(reservation).map_err(given_back)
            }
        }
    }
}

/// The receiving direction of a stream, with the stream's metadata and the messages that the
/// direction owns.
pub(crate) struct Receiving {
    incoming: Incoming,
    metadata: Box<[u8]>,
    /// The message of the current view, which is valid until the next receiving call.
    current: Option<Message>,
    /// A message that did not fit into the caller's buffer. The next call receives it again.
    returned: Option<Message>,
}

enum Incoming {
    Threaded(blocking::RecvStream),
    InLoop(event::RecvStream),
}

impl Receiving {
    fn new(incoming: Incoming, metadata: Box<[u8]>) -> Self {
        Self { incoming, metadata, current: None, returned: None }
    }

    fn recv(&mut self, timeout: Timeout) -> Result<Message, Failure> {
        self.current = None;
        if let Some(message) = self.returned.take() {
            return Ok(message);
        }
        let received = match &mut self.incoming {
            Incoming::Threaded(receiver) => match (timeout, timeout.deadline()) {
                (Timeout::Zero, _) => receiver.try_recv()?,
                (_, Some(deadline)) => receiver.recv_deadline(deadline)?,
                (_, None) => receiver.recv()?,
            },
            Incoming::InLoop(receiver) => {
                timeout.require_zero()?;
                receiver.try_recv()?
            }
        };
        received.ok_or_else(|| Failure::state(FINISHED))
    }
}

export! {
    /// Drops both directions of a stream, and frees its handle. A null pointer is allowed.
    fn partywall_stream_free(stream: Handle<StreamObject>) {
        if !stream.is_null() {
            stream.remove()?;
        }
        Ok(())
    }

    /// Writes the address of the metadata that the peer sent when it opened the stream.
    fn partywall_stream_metadata(
        stream: Handle<StreamObject>, data: Out<*const c_void>, len: Out<usize>,
    ) {
        let (data, len) = (data.require("data")?, len.require("len")?);
        let receiving = stream.second()?;
        data.write(receiving.metadata.as_ptr().cast());
        len.write(receiving.metadata.len());
        Ok(())
    }

    /// Sends a copy of `len` bytes.
    fn partywall_stream_send(
        stream: Handle<StreamObject>, data: Bytes, len: usize, timeout_ns: i64, error: Errors,
    ) reports error {
        let payload = data.get(len, "data")?;
        stream.first()?.send(payload, Timeout::new(timeout_ns))
    }

    /// Reserves memory for a message of `len` bytes.
    fn partywall_stream_reserve(
        stream: Handle<StreamObject>, len: usize, data: Out<*mut c_void>,
        reservation: Out<Handle<ReservationObject>>, timeout_ns: i64, error: Errors,
    ) reports error {
        let (data, place) = (data.require("data")?, reservation.require("reservation")?);
        let reserved = stream.first()?.reserve(len, Timeout::new(timeout_ns))?;
        reservation::give(reserved, data, place)
    }

    /// Sends the message that a C program has written into `reservation`.
    fn partywall_stream_commit(
        stream: Handle<StreamObject>, reservation: Handle<ReservationObject>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let mut sending = stream.first()?;
        reservation::commit(reservation, |it| sending.commit(it, Timeout::new(timeout_ns)))
    }

    /// Waits until the peer receives no more of the stream, and writes the reason.
    fn partywall_stream_wait_stopped(
        stream: Handle<StreamObject>, reason: Out<i32>, cause: Errors, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let place = reason.require("reason")?;
        let stopped = match &mut *stream.first()? {
            Sending::Threaded(sender) => sender.stopped(Timeout::new(timeout_ns).deadline())?,
            Sending::InLoop(_) => return Err(Failure::argument(IN_LOOP)),
        };
        place.write(error::report(stopped.into(), cause));
        Ok(())
    }

    /// Ends the stream's sending direction: the peer receives every sent message, then the end.
    fn partywall_stream_finish(stream: Handle<StreamObject>, error: Errors) reports error {
        match &mut *stream.first()? {
            Sending::Threaded(sender) => sender.finish(),
            Sending::InLoop(sender) => sender.finish(),
        }
        Ok(())
    }

    /// Ends the stream's sending direction at once: the peer's receiver fails with `code`.
    fn partywall_stream_reset(stream: Handle<StreamObject>, code: u32, error: Errors)
    reports error {
        let code = application_code(code)?;
        match &mut *stream.first()? {
            Sending::Threaded(sender) => sender.reset(code),
            Sending::InLoop(sender) => sender.reset(code),
        }
        Ok(())
    }

    /// Ends the stream's receiving direction: the peer's sender fails with `code`.
    fn partywall_stream_stop(stream: Handle<StreamObject>, code: u32, error: Errors)
    reports error {
        let code = application_code(code)?;
        match &mut stream.second()?.incoming {
            Incoming::Threaded(receiver) => receiver.stop(code),
            Incoming::InLoop(receiver) => receiver.stop(code),
        }
        Ok(())
    }

    /// Receives a view of the next message, which is valid until the next receiving call.
    fn partywall_stream_recv_view(
        stream: Handle<StreamObject>, data: Out<*const c_void>, len: Out<usize>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let (data, len) = (data.require("data")?, len.require("len")?);
        let mut receiving = stream.second()?;
        let message = receiving.recv(Timeout::new(timeout_ns))?;
        let message = receiving.current.insert(message);
        data.write(message.as_slice().as_ptr().cast());
        len.write(message.as_slice().len());
        Ok(())
    }

    /// Receives a copy of the next message in `buffer`.
    fn partywall_stream_recv_copy(
        stream: Handle<StreamObject>, buffer: Buffer, capacity: usize, len: Out<usize>,
        timeout_ns: i64, error: Errors,
    ) reports error {
        let len = len.require("len")?;
        buffer.check(capacity, "buffer")?;
        let mut receiving = stream.second()?;
        let message = receiving.recv(Timeout::new(timeout_ns))?;
        len.write(message.len());
        if message.len() > capacity {
            receiving.returned = Some(message);
            return Err(Failure::state(BUFFER_TOO_SHORT));
        }
        buffer.write(&message);
        Ok(())
    }

    /// Receives the next message as an object that the caller owns.
    fn partywall_stream_recv(
        stream: Handle<StreamObject>, message: Out<Handle<MessageObject>>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let place = message.require("message")?;
        let received = stream.second()?.recv(Timeout::new(timeout_ns))?;
        place.write(Handle::insert(received, ())?);
        Ok(())
    }

    /// Makes the message of the last view an object that the caller owns, so that it stays valid.
    fn partywall_stream_keep(
        stream: Handle<StreamObject>, message: Out<Handle<MessageObject>>, error: Errors,
    ) reports error {
        let place = message.require("message")?;
        let kept = stream.second()?.current.take();
        let kept = kept.ok_or_else(|| Failure::argument("no view is valid: receive one first"))?;
        place.write(Handle::insert(kept, ())?);
        Ok(())
    }

    /// Makes the event loop stop reporting the stream as readable until the next receiving call.
    fn partywall_stream_pause(stream: Handle<StreamObject>, error: Errors) reports error {
        if let Incoming::InLoop(receiver) = &mut stream.second()?.incoming {
            receiver.pause();
        }
        Ok(())
    }
}

/// The text of the error for a call that would wait for a stream in an event loop, which no call
/// may.
const IN_LOOP: &str = "the stream is in a loop, which reports that the peer receives no more";

/// The first code of an application's end of a stream that is reserved for the protocol (SPEC
/// 11.3).
const RESERVED_CODES: u32 = 0xffff_ff00;
