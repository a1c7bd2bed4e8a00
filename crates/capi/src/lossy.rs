// SPDX-License-Identifier: MIT OR Apache-2.0
//! Senders and receivers of records that may be lost. Any thread may call a sender.
//!
//! ```text
//!   channel ─┬─ sending direction ───▶ partywall_lossy_sender      the channel keeps the other
//!            └─ receiving direction ─▶ partywall_lossy_receiver    direction
//! ```

use crate::argument::{Bytes, Out};
use crate::channel::{self, ChannelObject};
use crate::config::{self, ConfigObject};
use crate::error::Errors;
use crate::export::export;
use crate::failure::{FINISHED, FULL, Failure, TIMED_OUT};
use crate::message::MessageObject;
use crate::table::{Handle, Object, Table};
use crate::timeout::Timeout;
use partywall_extras::lossy::{
    DropReason, LossyReceiver, LossySender, LossyStats, Record, SendOutcome,
};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct LossySenderObject;

static SENDERS: Table<LossySenderObject> = Table::new();

impl Object for LossySenderObject {
    type First = ();
    /// The sender of records. A call locks this part of the handle only while it copies the
    /// reference to the sender, so any number of threads may log.
    type Second = Arc<LossySender>;
    type Shared = ();
    const KIND: u8 = 17;
    const NAME: &'static str = "partywall_lossy_sender";

    fn table() -> &'static Table<Self> {
        &SENDERS
    }
}

pub(crate) struct LossyReceiverObject;

static RECEIVERS: Table<LossyReceiverObject> = Table::new();

impl Object for LossyReceiverObject {
    type First = Receiving;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 18;
    const NAME: &'static str = "partywall_lossy_receiver";

    fn table() -> &'static Table<Self> {
        &RECEIVERS
    }
}

/// A receiver of records, and the record that its last call has returned as a view.
pub(crate) struct Receiving {
    receiver: LossyReceiver,
    current: Option<Record>,
}

impl Receiving {
    fn recv(&mut self, timeout: Timeout) -> Result<Record, Failure> {
        self.current = None;
        let received = match (timeout, timeout.deadline()) {
            (Timeout::Zero, _) => self.receiver.try_recv()?,
            (_, Some(deadline)) => self.receiver.recv_deadline(deadline)?,
            (_, None) => self.receiver.recv()?,
        };
        received.ok_or_else(|| Failure::state(FINISHED))
    }
}

/// The counters of a sender of records that may be lost, in the layout of the header's structure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CLossyStats {
    sent: u64,
    queued: u64,
    dropped_full: u64,
    dropped_too_long: u64,
    dropped_closed: u64,
}

impl From<LossyStats> for CLossyStats {
    fn from(stats: LossyStats) -> Self {
        Self {
            sent: stats.sent,
            queued: stats.queued,
            dropped_full: stats.drops.full,
            dropped_too_long: stats.drops.too_large,
            dropped_closed: stats.drops.closed,
        }
    }
}

/// Returns the number of the constant in `partywall.h` for what became of a record.
const fn number(outcome: SendOutcome) -> i32 {
    match outcome {
        SendOutcome::Sent => 0,
        SendOutcome::Queued => 1,
        SendOutcome::Dropped(DropReason::Full) => 2,
        SendOutcome::Dropped(DropReason::TooLarge) => 3,
        // The number for a record that was dropped because the receiver is gone. Reasons of a newer
        // `partywall-extras` get the same number.
        SendOutcome::Dropped(_) => 4,
    }
}

/// Returns the time at which a call gives up. A call without a limit gets a deadline far away,
/// because the sender's calls require one.
fn deadline(timeout: Timeout) -> Instant {
    timeout.deadline().unwrap_or_else(|| Instant::now() + WAIT_MAX)
}

/// How long a call without a limit waits: one year, because the sender's calls require a deadline.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

export! {
    /// Makes a sender of records that may be lost from the sending direction of a channel.
    fn partywall_lossy_sender_new(
        channel: Handle<ChannelObject>, config: Handle<ConfigObject>,
        sender: Out<Handle<LossySenderObject>>, error: Errors,
    ) reports error {
        let (place, config) = (sender.require("sender")?, config::copy_lossy(config)?);
        let sender = LossySender::with(channel::take_sender(channel)?, config);
        place.write(Handle::insert((), Arc::new(sender))?);
        Ok(())
    }

    /// Frees a sender of records, after waiting for its queue to be sent, at most as long as the
    /// setting `flush_on_drop_ns` says. A null pointer is allowed.
    fn partywall_lossy_sender_free(sender: Handle<LossySenderObject>) {
        if !sender.is_null() {
            sender.remove()?;
        }
        Ok(())
    }

    /// Sends a record that may be lost, and writes whether it was sent, queued or dropped. The
    /// place for that outcome may be null.
    fn partywall_lossy_log(
        sender: Handle<LossySenderObject>, data: Bytes, len: usize, outcome: Out<i32>,
        error: Errors,
    ) reports error {
        let record = data.get(len, "data")?;
        outcome.write(number(sender.share_second()?.log(record)));
        Ok(())
    }

    /// Sends a record and waits for room for it, whatever the sender's policy for a full ring.
    fn partywall_lossy_log_wait(
        sender: Handle<LossySenderObject>, data: Bytes, len: usize, outcome: Out<i32>,
        timeout_ns: i64, error: Errors,
    ) reports error {
        let record = data.get(len, "data")?;
        let until = deadline(Timeout::new(timeout_ns));
        outcome.write(number(sender.share_second()?.log_deadline(record, until)));
        Ok(())
    }

    /// Sends the records in the sender's queue and the count of lost records.
    fn partywall_lossy_flush(
        sender: Handle<LossySenderObject>, timeout_ns: i64, error: Errors,
    ) reports error {
        let sender = sender.share_second()?;
        let timeout = Timeout::new(timeout_ns);
        if timeout != Timeout::Zero {
            return Ok(sender.flush(deadline(timeout))?);
        }
        sender.try_flush();
        if sender.is_closed() {
            // The receiver is gone and the count of lost records cannot be reported, so the call
            // fails with the reason. At worst another thread, which flushes at the same time, hides
            // the reason.
            let why = sender.flush(Instant::now()).err().map(Failure::from);
            let why = why.filter(|failure| failure.code() != TIMED_OUT);
            return Err(why.unwrap_or(Failure::state(FINISHED)));
        }
        if sender.stats().queued > 0 { Err(Failure::state(FULL)) } else { Ok(()) }
    }

    /// Writes the first `size` bytes of the structure with the counters of a sender of records.
    fn partywall_lossy_sender_stats(
        sender: Handle<LossySenderObject>, stats: Out<CLossyStats>, size: usize,
    ) {
        let place = stats.require("stats")?;
        place.write_prefix(&sender.share_second()?.stats().into(), size)
    }

    /// Writes 1 if the receiver is gone, so that the sender drops every record, else 0.
    fn partywall_lossy_sender_is_closed(
        sender: Handle<LossySenderObject>, is_closed: Out<i32>,
    ) {
        let place = is_closed.require("is_closed")?;
        place.write(i32::from(sender.share_second()?.is_closed()));
        Ok(())
    }

    /// Makes a receiver of records that may be lost from the receiving direction of a channel.
    fn partywall_lossy_receiver_new(
        channel: Handle<ChannelObject>, receiver: Out<Handle<LossyReceiverObject>>, error: Errors,
    ) reports error {
        let place = receiver.require("receiver")?;
        let receiver = LossyReceiver::new(channel::take_receiver(channel)?);
        place.write(Handle::insert(Receiving { receiver, current: None }, ())?);
        Ok(())
    }

    /// Ends the receiving direction of the channel, and frees the receiver of records. A null
    /// pointer is allowed.
    fn partywall_lossy_receiver_free(receiver: Handle<LossyReceiverObject>) {
        if !receiver.is_null() {
            receiver.remove()?;
        }
        Ok(())
    }

    /// Receives a view of the next record, which is valid until the next receiving call.
    fn partywall_lossy_recv_view(
        receiver: Handle<LossyReceiverObject>, data: Out<*const c_void>, len: Out<usize>,
        lost_before: Out<u64>, timeout_ns: i64, error: Errors,
    ) reports error {
        let (data, len) = (data.require("data")?, len.require("len")?);
        let mut receiving = receiver.first()?;
        let record = receiving.recv(Timeout::new(timeout_ns))?;
        let record = receiving.current.insert(record);
        data.write(record.message.as_slice().as_ptr().cast());
        len.write(record.message.as_slice().len());
        lost_before.write(record.lost_before);
        Ok(())
    }

    /// Receives the next record as an object that the caller owns.
    fn partywall_lossy_recv(
        receiver: Handle<LossyReceiverObject>, message: Out<Handle<MessageObject>>,
        lost_before: Out<u64>, timeout_ns: i64, error: Errors,
    ) reports error {
        let place = message.require("message")?;
        let record = receiver.first()?.recv(Timeout::new(timeout_ns))?;
        place.write(Handle::insert(record.message, ())?);
        lost_before.write(record.lost_before);
        Ok(())
    }

    /// Writes how many records the receiver has received so far, and how many the sender has
    /// reported as lost.
    fn partywall_lossy_receiver_counts(
        receiver: Handle<LossyReceiverObject>, received: Out<u64>, lost: Out<u64>,
    ) {
        let (received, lost) = (received.require("received")?, lost.require("lost")?);
        let receiving = receiver.first()?;
        received.write(receiving.receiver.received());
        lost.write(receiving.receiver.lost());
        Ok(())
    }
}
