// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels: connecting, sending and receiving. One thread may send while another receives.
//!
//! ```text
//!   handle ─┬─ first: Sending ──── Plain ─ add to a loop ─▶ InLoop ─ close_write ─▶ Closed
//!           └─ second: Receiving ─ Plain ─ add to a loop ─▶ InLoop
//! ```

use crate::argument::{Buffer, Bytes, Out, Text};
use crate::config::{self, ConfigObject};
use crate::error::Errors;
use crate::export::export;
use crate::failure::{BUFFER_TOO_SHORT, FINISHED, FINISHED_HERE, Failure, STOPPED_HERE, TIMED_OUT};
use crate::message::MessageObject;
use crate::peer::{self, CPeer, CReceiverStats, CSenderStats};
use crate::reservation::{self, ReservationObject};
use crate::table::{Handle, Object, Table};
use crate::timeout::Timeout;
use partywall::event::{self, Loop};
use partywall::{BackPressure, Channel, ChannelInfo, Message, OwnedReservation, Readiness};
use partywall::{ReceiverParker, ReceiverStats, SenderStats};
use partywall::{SendError, TrySendError};
use std::ffi::c_void;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

pub(crate) struct ChannelObject;

static CHANNELS: Table<ChannelObject> = Table::new();

impl Object for ChannelObject {
    type First = Sending;
    type Second = Receiving;
    type Shared = Shared;
    const KIND: u8 = 5;
    const NAME: &'static str = "partywall_channel";

    fn table() -> &'static Table<Self> {
        &CHANNELS
    }
}

/// The part of a channel's handle that any thread may use while other threads send and receive.
#[derive(Clone)]
pub(crate) struct Shared {
    info: ChannelInfo,
    /// The object with which a thread waits for messages and another thread ends that wait; `None`
    /// if the channel began on a socket.
    parker: Option<ReceiverParker>,
}

pub(crate) fn insert(channel: Channel) -> Result<Handle<ChannelObject>, Failure> {
    let info = channel.info();
    let (sender, receiver) = channel.split();
    let shared = Shared { info, parker: receiver.parker() };
    let incoming = Incoming::Plain(receiver);
    let receiving = Receiving { incoming, held: Held::Nothing };
    Handle::insert_with(Sending::Plain(sender), receiving, shared)
}

/// Adds both directions of a channel to an event loop. Events of either carry the number `tag`.
pub(crate) fn watch(
    channel: Handle<ChannelObject>,
    events: &Loop,
    tag: u64,
) -> Result<(), Failure> {
    let (mut sending, mut receiving) = (channel.first()?, channel.second()?);
    if matches!(*sending, Sending::InLoop(_))
        || matches!(receiving.incoming, Incoming::InLoop(_) | Incoming::Closed)
    {
        return Err(Failure::argument("the channel is in a loop already, or was closed"));
    }
    // The receiver is added to the loop first, because that can fail: a receiver has a descriptor
    // from the beginning. Adding the sender cannot fail, so a failed call adds neither.
    if let Incoming::Plain(receiver) = mem::replace(&mut receiving.incoming, Incoming::Closed) {
        let added = events.add_receiver(receiver, tag);
        let added = added.map_err(|error| Failure::system("the loop cannot watch", &error))?;
        receiving.incoming = Incoming::InLoop(added);
    }
    *sending = match mem::replace(&mut *sending, Sending::Closed) {
        Sending::Plain(sender) => Sending::InLoop(events.add_sender(sender, tag)),
        other => other,
    };
    Ok(())
}

/// Takes the sending direction out of a channel. A later call that sends through the channel's
/// handle fails as if the direction had ended.
pub(crate) fn take_sender(channel: Handle<ChannelObject>) -> Result<partywall::Sender, Failure> {
    let mut sending = channel.first()?;
    match mem::replace(&mut *sending, Sending::Closed) {
        Sending::Plain(sender) => Ok(sender),
        other => {
            *sending = other;
            Err(Failure::argument("the sending direction is in a loop, or was taken or ended"))
        }
    }
}

/// Takes the receiving direction out of a channel. A later call that receives through the channel's
/// handle fails as if the direction had ended.
pub(crate) fn take_receiver(
    channel: Handle<ChannelObject>,
) -> Result<partywall::Receiver, Failure> {
    let mut receiving = channel.second()?;
    match mem::replace(&mut receiving.incoming, Incoming::Closed) {
        Incoming::Plain(receiver) => {
            receiving.held = Held::Nothing;
            Ok(receiver)
        }
        other => {
            receiving.incoming = other;
            Err(Failure::argument("the receiving direction is in a loop, or was taken or ended"))
        }
    }
}

pub(crate) enum Sending {
    Plain(partywall::Sender),
    InLoop(event::Sender),
    Closed,
}

impl Sending {
    /// Sends a copy of `payload` if one attempt suffices, else returns `None`. Sending with a wait
    /// is in another function, because a short message takes hardly longer than the call of a
    /// function with many cases.
    #[inline(always)]
    fn send_soon(&mut self, payload: &[u8], timeout_ns: i64) -> Option<Result<(), Failure>> {
        let Self::Plain(sender) = self else { return None };
        match sender.try_send(payload) {
            Ok(()) => Some(Ok(())),
            Err(error) if timeout_ns == 0 => Some(Err(error.into())),
            Err(_) => None,
        }
    }

    /// Sends a copy.
    fn send(&mut self, payload: &[u8], timeout: Timeout) -> Result<(), Failure> {
        match self {
            Self::Plain(sender) => match sender.try_send(payload) {
                Ok(()) => Ok(()),
                Err(error) => send_later(sender, payload, timeout, error),
            },
            Self::InLoop(sender) => {
                timeout.require_zero()?;
                Ok(sender.try_send(payload)?)
            }
            Self::Closed => Err(Failure::state(FINISHED_HERE)),
        }
    }

    fn reserve(&mut self, len: usize, timeout: Timeout) -> Result<OwnedReservation, Failure> {
        match self {
            Self::Plain(sender) if timeout == Timeout::Zero => Ok(sender.try_reserve_owned(len)?),
            Self::Plain(sender) => Ok(sender.reserve_owned(len, timeout.deadline())?),
            Self::InLoop(sender) => {
                timeout.require_zero()?;
                Ok(sender.try_reserve_owned(len)?)
            }
            Self::Closed => Err(Failure::state(FINISHED_HERE)),
        }
    }

    /// Sends a reserved message. On an error after which the memory is still reserved, returns the
    /// reservation with the error.
    fn commit(
        &mut self,
        reservation: OwnedReservation,
        timeout: Timeout,
    ) -> Result<(), (Option<OwnedReservation>, Failure)> {
        let given_back = |(back, error): (_, TrySendError)| (Some(back), error.into());
        match self {
            Self::Plain(sender) => match sender.try_commit_owned(reservation) {
                Err((reservation, TrySendError::Full))
                    if timeout != Timeout::Zero
                        && sender.back_pressure() != BackPressure::Error =>
                {
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
            Self::Closed => Err((Some(reservation), Failure::state(FINISHED_HERE))),
        }
    }

    /// Arms the sender: prepares it for waiting for room, and returns the descriptor to wait for.
    fn arm(&mut self) -> Result<i32, Failure> {
        match self {
            Self::Plain(sender) => Ok(descriptor(sender.arm()?, sender)),
            Self::InLoop(_) => Err(armed_by_loop()),
            Self::Closed => Err(Failure::state(FINISHED_HERE)),
        }
    }

    fn stats(&self) -> Result<SenderStats, Failure> {
        match self {
            Self::Plain(sender) => Ok(sender.stats()),
            Self::InLoop(sender) => Ok(sender.stats()),
            Self::Closed => Err(Failure::state(FINISHED_HERE)),
        }
    }

    fn flush(&mut self, timeout: Timeout) -> Result<(), Failure> {
        match self {
            Self::Plain(sender) => Ok(sender.flush(timeout.deadline())?),
            Self::InLoop(sender) => {
                timeout.require_zero()?;
                if sender.try_flush()? { Err(SendError::Full.into()) } else { Ok(()) }
            }
            Self::Closed => Err(Failure::state(FINISHED_HERE)),
        }
    }
}

/// The slow path of sending a copy of a message: the lock of the sending direction does not favour
/// the calling thread, or the message may have to wait for room.
#[cold]
#[inline(never)]
fn send_slowly(
    channel: Handle<ChannelObject>,
    payload: &[u8],
    timeout_ns: i64,
) -> Result<(), Failure> {
    channel.with_first(|sending| sending.send(payload, Timeout::new(timeout_ns)))
}

/// The address and the length of the bytes of a view.
type RawView = (*const c_void, usize);

const fn raw(view: &[u8]) -> RawView {
    (view.as_ptr().cast(), view.len())
}

/// The slow path of receiving a view: the lock of the receiving direction does not favour the
/// calling thread; the channel keeps a message that did not fit into a caller's buffer; or the call
/// has a deadline.
#[cold]
#[inline(never)]
fn view_slowly(channel: Handle<ChannelObject>, timeout_ns: i64) -> Result<RawView, Failure> {
    channel.with_second(|receiving| receiving.view_in_time(Timeout::new(timeout_ns)).map(raw))
}

/// Waits for room for a message, at most until the timeout, after an attempt to send has failed.
#[cold]
fn send_later(
    sender: &mut partywall::Sender,
    payload: &[u8],
    timeout: Timeout,
    error: TrySendError,
) -> Result<(), Failure> {
    if !matches!(error, TrySendError::Full) || timeout == Timeout::Zero {
        return Err(error.into());
    }
    match timeout.deadline() {
        Some(deadline) => Ok(sender.send_deadline(payload, deadline)?),
        None => Ok(sender.send(payload)?),
    }
}

/// The text of the error for a call that needs a view while no view is valid.
const NO_VIEW: &str = "no view is valid: receive one first";

/// The receiving direction of a channel, and the message that its last call has returned as a view.
pub(crate) struct Receiving {
    incoming: Incoming,
    held: Held,
}

/// The message that a receiving direction keeps between two calls.
enum Held {
    Nothing,
    /// The message of the current view, received as an object of the direction.
    Viewed(Message),
    /// A message that did not fit into the caller's buffer. The next call receives it again.
    Returned(Message),
}

enum Incoming {
    Plain(partywall::Receiver),
    InLoop(event::Receiver),
    Closed,
}

impl Receiving {
    /// The fast path of receiving a view: the channel is in no loop, keeps no message that did not
    /// fit into a caller's buffer, and the call has no deadline. Returns `None` in every other
    /// case; those are in another function, because a short message takes hardly longer than the
    /// call of a function with many cases. The view is valid until the next call of this direction.
    #[inline(always)]
    fn view_soon(&mut self, timeout_ns: i64) -> Option<Result<RawView, Failure>> {
        let (Incoming::Plain(receiver), Held::Nothing) = (&mut self.incoming, &self.held) else {
            return None;
        };
        let view = match timeout_ns {
            ..0 => receiver.recv_view().map_err(Failure::from),
            0 => receiver.try_recv_view().map_err(Failure::from),
            _ => return None,
        };
        Some(view.and_then(|view| view.map(raw).ok_or_else(|| Failure::state(FINISHED))))
    }

    /// Receives a view, which is valid until the next call of the receiving direction.
    fn view_in_time(&mut self, timeout: Timeout) -> Result<&[u8], Failure> {
        if !matches!(self.held, Held::Nothing) && self.show_returned() {
            return self.view_held();
        }
        let view = match &mut self.incoming {
            Incoming::Plain(receiver) => match timeout {
                Timeout::Zero => receiver.try_recv_view()?,
                _ => match timeout.deadline() {
                    Some(deadline) => receiver.recv_view_deadline(deadline)?,
                    None => receiver.recv_view()?,
                },
            },
            Incoming::InLoop(receiver) => {
                timeout.require_zero()?;
                receiver.try_recv_view()?
            }
            Incoming::Closed => return Err(Failure::state(STOPPED_HERE)),
        };
        view.ok_or_else(|| Failure::state(FINISHED))
    }

    /// If the channel keeps a message that did not fit into a caller's buffer, makes it the message
    /// of the current view and returns true. Otherwise drops the message of the current view and
    /// returns false.
    #[cold]
    fn show_returned(&mut self) -> bool {
        self.held = match mem::replace(&mut self.held, Held::Nothing) {
            Held::Returned(message) => Held::Viewed(message),
            Held::Nothing | Held::Viewed(_) => Held::Nothing,
        };
        matches!(self.held, Held::Viewed(_))
    }

    #[cold]
    fn view_held(&self) -> Result<&[u8], Failure> {
        match &self.held {
            Held::Viewed(message) => Ok(message.as_slice()),
            _ => Err(Failure::argument(NO_VIEW)),
        }
    }

    /// Arms the receiver: prepares it for waiting for a message, and returns the descriptor to wait
    /// for.
    fn arm(&mut self) -> Result<i32, Failure> {
        if matches!(self.held, Held::Returned(_)) {
            return Ok(NOTHING_TO_WAIT_FOR);
        }
        self.held = Held::Nothing;
        match &mut self.incoming {
            Incoming::Plain(receiver) => Ok(descriptor(receiver.arm()?, receiver)),
            Incoming::InLoop(_) => Err(armed_by_loop()),
            Incoming::Closed => Err(Failure::state(STOPPED_HERE)),
        }
    }

    /// Arms the receiver for a wait without a descriptor, of `partywall_channel_wait_recv`. Returns
    /// whether there may be a message already.
    fn arm_parker(&mut self) -> Result<Readiness, Failure> {
        if matches!(self.held, Held::Returned(_)) {
            return Ok(Readiness::Ready);
        }
        self.held = Held::Nothing;
        match &mut self.incoming {
            Incoming::Plain(receiver) => Ok(receiver.arm_parker()?),
            Incoming::InLoop(_) => Err(armed_by_loop()),
            Incoming::Closed => Err(Failure::state(STOPPED_HERE)),
        }
    }

    /// Makes the message of the current view an object that the caller owns.
    #[inline]
    fn keep(&mut self) -> Result<Message, Failure> {
        if matches!(self.held, Held::Viewed(_))
            && let Held::Viewed(message) = mem::replace(&mut self.held, Held::Nothing)
        {
            return Ok(message);
        }
        let kept = match &mut self.incoming {
            Incoming::Plain(receiver) => receiver.keep_view(),
            Incoming::InLoop(receiver) => receiver.keep_view(),
            Incoming::Closed => None,
        };
        kept.ok_or_else(|| Failure::argument(NO_VIEW))
    }

    fn stats(&self) -> Result<ReceiverStats, Failure> {
        match &self.incoming {
            Incoming::Plain(receiver) => Ok(receiver.stats()),
            Incoming::InLoop(receiver) => Ok(receiver.stats()),
            Incoming::Closed => Err(Failure::state(STOPPED_HERE)),
        }
    }

    fn recv(&mut self, timeout: Timeout) -> Result<Message, Failure> {
        if !matches!(self.held, Held::Nothing)
            && let Held::Returned(message) = mem::replace(&mut self.held, Held::Nothing)
        {
            return Ok(message);
        }
        let received = match &mut self.incoming {
            Incoming::Plain(receiver) => match timeout {
                Timeout::Zero => receiver.try_recv()?,
                _ => match timeout.deadline() {
                    Some(deadline) => receiver.recv_deadline(deadline)?,
                    None => receiver.recv()?,
                },
            },
            Incoming::InLoop(receiver) => {
                timeout.require_zero()?;
                receiver.try_recv()?
            }
            Incoming::Closed => return Err(Failure::state(STOPPED_HERE)),
        };
        received.ok_or_else(|| Failure::state(FINISHED))
    }
}

/// Returns the descriptor of a direction that was armed, or [`NOTHING_TO_WAIT_FOR`] if the
/// direction may already have a message or room.
fn descriptor(readiness: Readiness, direction: &impl AsFd) -> i32 {
    match readiness {
        Readiness::WillNotify => direction.as_fd().as_raw_fd(),
        Readiness::Ready => NOTHING_TO_WAIT_FOR,
    }
}

/// Returns the object with which a thread waits for messages without a descriptor. Only a channel
/// that has shared memory from the beginning has such an object.
fn parker(shared: &Shared) -> Result<&ReceiverParker, Failure> {
    shared.parker.as_ref().ok_or_else(|| {
        Failure::argument(
            "the channel began on a socket: wait for the descriptor of partywall_channel_arm_recv",
        )
    })
}

#[cold]
fn armed_by_loop() -> Failure {
    Failure::argument("the channel is in a loop, which waits for it")
}

export! {
    /// Opens a channel with the listener at `address`.
    fn partywall_connect(
        address: Text, config: Handle<ConfigObject>, channel: Out<Handle<ChannelObject>>,
        error: Errors,
    ) reports error {
        let channel = channel.require("channel")?;
        let (address, config) = (address.get("address")?, config::copy(config)?);
        channel.write(insert(partywall::connect_with(address, &config)?)?);
        Ok(())
    }

    /// Ends both directions of a channel, and frees it. A null pointer is allowed.
    fn partywall_channel_free(channel: Handle<ChannelObject>) {
        if !channel.is_null() {
            channel.remove()?;
        }
        Ok(())
    }

    /// Sends a copy of `len` bytes.
    fn partywall_channel_send(
        channel: Handle<ChannelObject>, data: Bytes, len: usize, timeout_ns: i64, error: Errors,
    ) reports error {
        let payload = data.get(len, "data")?;
        let sent = channel.if_favoured_first(|sending| sending.send_soon(payload, timeout_ns));
        sent.flatten().unwrap_or_else(|| send_slowly(channel, payload, timeout_ns))
    }

    /// Reserves memory for a message of `len` bytes.
    fn partywall_channel_reserve(
        channel: Handle<ChannelObject>, len: usize, data: Out<*mut c_void>,
        reservation: Out<Handle<ReservationObject>>, timeout_ns: i64, error: Errors,
    ) reports error {
        let (data, place) = (data.require("data")?, reservation.require("reservation")?);
        let reserved =
            channel.with_first(|sending| sending.reserve(len, Timeout::new(timeout_ns)))?;
        reservation::give(reserved, data, place)
    }

    /// Sends the message that a C program has written into `reservation`.
    fn partywall_channel_commit(
        channel: Handle<ChannelObject>, reservation: Handle<ReservationObject>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        channel.with_first(|sending| {
            reservation::commit(reservation, |it| sending.commit(it, Timeout::new(timeout_ns)))
        })
    }

    /// Waits until the kernel has accepted the bytes of all messages sent on the channel.
    fn partywall_channel_flush(
        channel: Handle<ChannelObject>, timeout_ns: i64, error: Errors,
    ) reports error {
        channel.first()?.flush(Timeout::new(timeout_ns))
    }

    /// Prepares a channel for waiting for room, and writes the descriptor that becomes readable
    /// when there may be room.
    fn partywall_channel_arm_send(channel: Handle<ChannelObject>, fd: Out<i32>, error: Errors)
    reports error {
        let fd = fd.require("fd")?;
        fd.write(channel.first()?.arm()?);
        Ok(())
    }

    /// Prepares a channel for waiting for a message, and writes the descriptor that becomes
    /// readable when there may be one.
    fn partywall_channel_arm_recv(channel: Handle<ChannelObject>, fd: Out<i32>, error: Errors)
    reports error {
        let fd = fd.require("fd")?;
        fd.write(channel.second()?.arm()?);
        Ok(())
    }

    /// Waits until there may be a message, or until another thread calls `partywall_channel_wake`.
    fn partywall_channel_wait_recv(
        channel: Handle<ChannelObject>, timeout_ns: i64, error: Errors,
    ) reports error {
        let shared = channel.shared()?;
        let parker = parker(&shared)?;
        // The receiving direction is locked only while it is armed, not during the wait: meanwhile
        // other calls may read its counters.
        if channel.second()?.arm_parker()? == Readiness::Ready {
            return Ok(());
        }
        let deadline = Timeout::new(timeout_ns).deadline();
        parker.park(deadline)?;
        // The wait succeeds if a message has come, even if this thread woke up after the deadline.
        let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_late && channel.second()?.arm_parker()? != Readiness::Ready {
            return Err(Failure::state(TIMED_OUT));
        }
        Ok(())
    }

    /// Ends the wait of another thread in `partywall_channel_wait_recv`; if no thread waits, the
    /// next such wait.
    fn partywall_channel_wake(channel: Handle<ChannelObject>, error: Errors) reports error {
        parker(&channel.shared()?)?.wake();
        Ok(())
    }

    /// Ends the channel's sending direction: the peer receives every sent message, then the end.
    fn partywall_channel_close_write(channel: Handle<ChannelObject>, error: Errors) reports error {
        *channel.first()? = Sending::Closed;
        Ok(())
    }

    /// Receives a view of the next message, which is valid until the next receiving call.
    fn partywall_channel_recv_view(
        channel: Handle<ChannelObject>, data: Out<*const c_void>, len: Out<usize>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let (data, len) = (data.require("data")?, len.require("len")?);
        let view = channel.if_favoured_second(|receiving| receiving.view_soon(timeout_ns));
        let (at, length) = view.flatten().unwrap_or_else(|| view_slowly(channel, timeout_ns))?;
        data.write(at);
        len.write(length);
        Ok(())
    }

    /// Receives a copy of the next message in `buffer`.
    fn partywall_channel_recv_copy(
        channel: Handle<ChannelObject>, buffer: Buffer, capacity: usize, len: Out<usize>,
        timeout_ns: i64, error: Errors,
    ) reports error {
        let len = len.require("len")?;
        buffer.check(capacity, "buffer")?;
        let mut receiving = channel.second()?;
        let view = receiving.view_in_time(Timeout::new(timeout_ns))?;
        len.write(view.len());
        if view.len() > capacity {
            receiving.held = Held::Returned(receiving.keep()?);
            return Err(Failure::state(BUFFER_TOO_SHORT));
        }
        buffer.write(view);
        Ok(())
    }

    /// Receives the next message as an object that the caller owns.
    fn partywall_channel_recv(
        channel: Handle<ChannelObject>, message: Out<Handle<MessageObject>>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let place = message.require("message")?;
        let received = channel.second()?.recv(Timeout::new(timeout_ns))?;
        place.write(Handle::insert(received, ())?);
        Ok(())
    }

    /// Makes the message of the last view an object that the caller owns, so that it stays valid.
    fn partywall_channel_keep(
        channel: Handle<ChannelObject>, message: Out<Handle<MessageObject>>, error: Errors,
    ) reports error {
        let place = message.require("message")?;
        let kept = channel.second()?.keep()?;
        place.write(Handle::insert(kept, ())?);
        Ok(())
    }

    /// Makes the event loop stop reporting the channel as readable until the next receiving call.
    fn partywall_channel_pause(channel: Handle<ChannelObject>, error: Errors) reports error {
        if let Incoming::InLoop(receiver) = &mut channel.second()?.incoming {
            receiver.pause();
        }
        Ok(())
    }

    /// Writes the first `size` bytes of the structure with what is known of the peer.
    fn partywall_channel_peer(channel: Handle<ChannelObject>, peer: Out<CPeer>, size: usize) {
        let place = peer.require("peer")?;
        place.write_prefix(&channel.shared()?.info.peer().into(), size)
    }

    /// Copies a description of the channel's peer into `buffer`, without a zero byte at its end.
    fn partywall_channel_peer_text(
        channel: Handle<ChannelObject>, buffer: Buffer, capacity: usize, len: Out<usize>,
        error: Errors,
    ) reports error {
        peer::write_peer(channel.shared()?.info.peer(), buffer, capacity, len)
    }

    /// Writes the transport of a channel, and the reason why memory is not shared.
    fn partywall_channel_transport(
        channel: Handle<ChannelObject>, transport: Out<i32>, reason: Out<u32>,
    ) {
        let (transport, reason) = (transport.require("transport")?, reason.require("reason")?);
        peer::write_transport(channel.shared()?.info.transport(), transport, reason);
        Ok(())
    }

    /// Copies a description of the channel's transport into `buffer`, without a zero byte at its
    /// end.
    fn partywall_channel_transport_text(
        channel: Handle<ChannelObject>, buffer: Buffer, capacity: usize, len: Out<usize>,
        error: Errors,
    ) reports error {
        buffer.write_text(&channel.shared()?.info.transport().to_string(), capacity, len)
    }

    /// Writes the first `size` bytes of the structure with the counters of the sending direction.
    fn partywall_channel_sender_stats(
        channel: Handle<ChannelObject>, stats: Out<CSenderStats>, size: usize,
    ) {
        let place = stats.require("stats")?;
        place.write_prefix(&channel.first()?.stats()?.into(), size)
    }

    /// Writes the first `size` bytes of the structure with the counters of the receiving direction.
    fn partywall_channel_receiver_stats(
        channel: Handle<ChannelObject>, stats: Out<CReceiverStats>, size: usize,
    ) {
        let place = stats.require("stats")?;
        place.write_prefix(&channel.second()?.stats()?.into(), size)
    }
}

/// The number that is written instead of a descriptor if a message or room is there already.
const NOTHING_TO_WAIT_FOR: i32 = -1;
