// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outbox, the sending end of a session. One thread at a time writes records, and pending
//! control records are written before messages.
//!
//! ```text
//!   streams ─▶ pending records ─▶ ┐
//!   PING, GO_AWAY ──────────────▶ ├─▶ flush ─▶ transport     before every message
//!   senders without room ─▶ waiters ◀─ the driver wakes them when there is room
//! ```
//!
//! No method blocks: an attempt to send succeeds or returns `Full`.

use super::stream::{PendingRecord, StreamShared};
use crate::channel::AnySender;
use crate::error::Fault;
use crate::transport::{Memory, NotSent, ProgressSnapshot, SpaceWaiter};
use partywall_layout::Kind;
use partywall_layout::seeded_fault;
use partywall_layout::stream::{
    ANSWER, ASK, CLOSING, CreditBody, GoAwayBody, PingBody, REASON_BYTES_MAX, ResetBody, SESSION,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::lifecycle::PendingControl;

/// The sending end of a session; the session guards it by a lock.
#[derive(Debug)]
pub(crate) struct Outbox {
    wire: AnySender,
    room: Arc<dyn SpaceWaiter>,
    /// Streams that have a pending record. Each stream is listed at most once.
    pending: VecDeque<Arc<StreamShared>>,
    /// Pending records of the session itself: the newest answer to a PING of the peer, the newest
    /// PING of this side, and the newest GO_AWAY. Older ones are replaced.
    pub(super) pong: Option<u64>,
    ping: Option<u64>,
    /// The token of the newest PING that a user requested.
    asked: u64,
    pub(super) go_away: Option<u32>,
    /// Code and reason with which this side closes the session, until the record with both is
    /// written; `None` otherwise.
    pub(super) farewell: Option<(u32, Arc<str>)>,
    waiters: Vec<(u64, Waker)>,
    last_ticket: u64,
    /// A snapshot of the room that the peer has freed, taken before the last attempt to send that
    /// found no room. `may_have_room` compares it with a new snapshot.
    seen: ProgressSnapshot,
    /// Number of streams for which this side wrote END since the outbox was last unlocked.
    pub(super) ended: usize,
    /// Whether the transport held unsent bytes when the outbox was last unlocked.
    was_keeping: bool,
    /// Whether the record that ends the session's sending direction was written, or will be.
    is_closed: bool,
    is_wire_closed: bool,
    /// Whether the peer can receive nothing more, so that waiting for room is pointless.
    is_cut_off: bool,
}

impl Outbox {
    pub(crate) fn new(wire: AnySender) -> Self {
        let room = wire.space();
        Self {
            seen: room.snapshot(),
            room,
            wire,
            pending: VecDeque::new(),
            pong: None,
            ping: None,
            asked: 0,
            go_away: None,
            farewell: None,
            waiters: Vec::new(),
            last_ticket: 0,
            ended: 0,
            was_keeping: false,
            is_closed: false,
            is_wire_closed: false,
            is_cut_off: false,
        }
    }

    /// Adds a stream that has a pending record to the list of such streams, unless the list
    /// contains it already.
    pub(crate) fn list(&mut self, stream: &Arc<StreamShared>) {
        let mut state = stream.lock();
        if !state.is_listed && state.has_pending() {
            state.is_listed = true;
            self.pending.push_back(Arc::clone(stream));
        }
    }

    /// Makes a PING with `token` pending, unless a PING with a later token was asked for. The
    /// answer to the later token completes both PINGs.
    pub(crate) fn ask(&mut self, token: u64) {
        if token > self.asked {
            self.asked = token;
            self.ping = Some(token);
        }
    }

    /// Writes the pending records. Returns `Full` if some records could not be written.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), NotSent> {
        if self.has_pending() { self.flush_pending() } else { Ok(()) }
    }

    #[inline(never)]
    fn flush_pending(&mut self) -> Result<(), NotSent> {
        if self.is_closed {
            return Ok(());
        }
        if self.room.is_inherited() {
            // In a forked child the region is not mapped, so even its counters must not be touched.
            return Err(NotSent::from(Fault::Forked));
        }
        // The first attempt takes no snapshot of the peer's progress: reading the peer's words may
        // transfer their cache lines from the processor of the peer.
        let flushed = match self.write_and_publish() {
            Err(NotSent::Full) => self.attempt(Self::write_and_publish),
            other => other,
        };
        self.note(flushed)
    }

    /// Writes and publishes the pending records for which there is room.
    fn write_and_publish(&mut self) -> Result<(), NotSent> {
        let written = self.write_pending();
        let published = self.wire.publish();
        written.and(published)
    }

    /// Attempts once to send a message of `stream`, after the pending records. `credit` is reported
    /// along with the message.
    #[inline]
    pub(crate) fn send(
        &mut self,
        stream: u32,
        credit: Option<u64>,
        attempt: impl FnMut(&mut AnySender) -> Result<(), NotSent>,
    ) -> Result<(), NotSent> {
        self.flush()?;
        self.send_flushed(stream, credit, attempt)
    }

    /// Attempts once to send a message of `stream`, as [`send`](Self::send) does. The caller has
    /// called [`flush`](Self::flush) with success since it locked the outbox.
    #[inline]
    pub(crate) fn send_flushed(
        &mut self,
        stream: u32,
        credit: Option<u64>,
        mut attempt: impl FnMut(&mut AnySender) -> Result<(), NotSent>,
    ) -> Result<(), NotSent> {
        if self.is_closed {
            // After the record that ends this side's sending direction, a message would count as
            // sent although the peer never receives it.
            return Err(NotSent::Disconnected);
        }
        let mut attempt = |wire: &mut AnySender| {
            wire.set_stream(stream, credit)?;
            attempt(wire)
        };
        match attempt(&mut self.wire) {
            Ok(()) => Ok(()),
            Err(NotSent::Full) => {
                let attempted = self.attempt(|outbox| attempt(&mut outbox.wire));
                self.note(attempted)
            }
            other => self.note(other),
        }
    }

    /// Reserves memory for a message of `len` bytes of `stream` in `place`, if the session uses
    /// shared memory, no record is pending, and there is memory. Otherwise returns `false`, and
    /// [`send`](Self::send) says why. A reservation writes no record of a stream, so the caller may
    /// simply unlock the outbox.
    #[inline]
    pub(crate) fn reserve_plainly(
        &mut self,
        stream: u32,
        place: &mut Option<Memory>,
        len: usize,
    ) -> bool {
        !self.is_closed
            && !self.has_pending()
            && matches!(self.wire, AnySender::SharedMemory(_))
            && self.wire.set_stream(stream, None).is_ok()
            && self.wire.reserve_into(place, len).is_ok()
    }

    /// Writes a control record. The pending records are written before it.
    pub(crate) fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), NotSent> {
        self.send(stream, None, |wire| {
            let written = wire.control(kind, stream, body);
            if matches!(written, Err(NotSent::Fault(_))) {
                return written;
            }
            // Publishes the batch even if there was no room for this record: records that this call
            // wrote before must not stay unpublished.
            let published = wire.publish();
            written.and(published)
        })
    }

    /// Frees the reserved memory of a message. Returns the wakers of the users that wait for room,
    /// because these users may need the memory. The caller calls the wakers.
    pub(crate) fn release(&mut self, memory: Memory) -> Vec<Waker> {
        self.wire.release(memory);
        self.take_waiters()
    }

    /// Registers the waker of a user that waits for room to send. `ticket` identifies the user
    /// until it gives up or is woken.
    pub(crate) fn await_room(&mut self, ticket: &mut Option<u64>, context: &Context<'_>) {
        let waiting = ticket
            .and_then(|ticket| self.waiters.iter_mut().find(|(waiting, _)| *waiting == ticket));
        if let Some((_, waker)) = waiting {
            waker.clone_from(context.waker());
            return;
        }
        self.last_ticket += 1;
        *ticket = Some(self.last_ticket);
        self.waiters.push((self.last_ticket, context.waker().clone()));
    }

    /// Registers the waker of a user that waits for room, unless the same waker is registered
    /// already. The user gets no ticket, so it cannot remove the waker.
    pub(crate) fn await_any_room(&mut self, context: &Context<'_>) {
        if !self.waiters.iter().any(|(_, waker)| waker.will_wake(context.waker())) {
            self.await_room(&mut None, context);
        }
    }

    /// Removes the waker of a user that no longer waits for room. `ticket` identifies the user.
    pub(crate) fn leave(&mut self, ticket: u64) {
        self.waiters.retain(|(waiting, _)| *waiting != ticket);
    }

    /// Takes the wakers of all users that wait for room to send, for the caller to wake.
    pub(crate) fn take_waiters(&mut self) -> Vec<Waker> {
        self.waiters.drain(..).map(|(_, waker)| waker).collect()
    }

    /// Frees all unused memory for large messages. Does nothing if the session is closed: no record
    /// may follow the record that ends the session, and the session's memory is freed as a whole.
    pub(crate) fn trim(&mut self) -> Result<(), NotSent> {
        if self.is_closed {
            return Ok(());
        }
        self.flush()?;
        self.wire.trim(true)
    }

    /// Whether a waiter, a pending record or unsent bytes of the transport need room.
    pub(crate) fn wants_room(&self) -> bool {
        !(self.is_closed || self.is_cut_off)
            && (self.has_pending() || !self.waiters.is_empty() || self.wire.has_unsent())
    }

    /// Whether the transport holds unsent bytes now, and held none at the previous call.
    #[inline]
    pub(crate) fn begins_to_keep(&mut self) -> bool {
        let keeps = self.wire.has_unsent();
        let was_keeping = std::mem::replace(&mut self.was_keeping, keeps);
        keeps && !was_keeping
    }

    /// Whether room may have been freed since the last attempt to send that found none.
    pub(crate) fn may_have_room(&self) -> bool {
        self.room.snapshot() != self.seen || self.room.is_writable()
    }

    /// Prepares the driver to block until there is room. Returns `true` if there may be room
    /// already.
    pub(crate) fn arm(&mut self) -> Result<bool, Fault> {
        self.wire.drain()?;
        self.wire.arm(false)?;
        Ok(self.may_have_room())
    }

    /// Ends the sleep that `arm` prepared: the driver is awake, so the peer need not notify it of
    /// room.
    pub(crate) fn disarm(&mut self) {
        self.wire.disarm();
    }

    /// Writes pending records and the unsent bytes of the transport. Returns `Full` if some are
    /// left.
    pub(crate) fn drain(&mut self) -> Result<(), NotSent> {
        self.flush()?;
        let flushed = self.wire.flush();
        self.note(flushed)
    }

    /// Announces to the transport that the session has ended: only sent messages and pending
    /// records still have to be written.
    pub(crate) fn leave_session(&mut self) {
        self.wire.leave();
    }

    /// Gives up the records and bytes that were not sent, so that neither users nor the driver wait
    /// for room to send them.
    pub(crate) fn give_up(&mut self) {
        self.wire.note_hang_up();
        self.is_cut_off = true;
    }

    #[cfg(all(test, not(shuttle)))]
    pub(crate) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Writes the record that ends the session's sending direction, after which nothing can be
    /// sent. Returns whether a socket has not accepted all of it, so that the caller may wait for
    /// room, without this outbox locked, and call again.
    pub(crate) fn begin_close(&mut self) -> bool {
        self.is_closed = true;
        self.wire.begin_close()
    }

    /// Closes this side's sending direction of the session. Later calls have no effect.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        if !std::mem::replace(&mut self.is_wire_closed, true) {
            self.wire.close();
        }
    }

    pub(crate) fn stats(&self) -> crate::stats::SenderStats {
        self.wire.stats()
    }

    fn has_pending(&self) -> bool {
        !self.pending.is_empty()
            || self.pong.is_some()
            || self.ping.is_some()
            || self.go_away.is_some()
            || self.farewell.is_some()
    }

    /// Returns the result of an attempt to send. If it is an error after which nothing more can be
    /// sent, notes that waiting for room is pointless.
    #[inline]
    fn note<T>(&mut self, sent: Result<T, NotSent>) -> Result<T, NotSent> {
        if sent.as_ref().is_err_and(NotSent::is_final) {
            self.is_cut_off = true;
        }
        sent
    }

    /// Repeats an attempt to send that found no room. Keeps the progress snapshot from before the
    /// repeated attempt, with which the driver detects new room.
    #[cold]
    fn attempt<T>(
        &mut self,
        attempt: impl FnOnce(&mut Self) -> Result<T, NotSent>,
    ) -> Result<T, NotSent> {
        let seen = self.room.snapshot();
        let attempted = attempt(self);
        let seen = if seeded_fault("late_snapshot") { self.room.snapshot() } else { seen };
        // If other users wait already, the older snapshot of the peer's progress is kept. Their
        // attempts were earlier, so room that was freed after their attempts must count as new.
        if matches!(attempted, Err(NotSent::Full)) && self.waiters.is_empty() {
            self.seen = seen;
        }
        attempted
    }

    fn write_pending(&mut self) -> Result<(), NotSent> {
        if let Some(token) = self.pong {
            self.write_ping(ANSWER, token)?;
            self.pong = None;
        }
        if let Some(token) = self.ping {
            self.write_ping(ASK, token)?;
            self.ping = None;
        }
        if let Some(code) = self.go_away {
            let body = GoAwayBody { code: U32::new(code), flags: U32::new(0) };
            self.wire.control(Kind::GoAway, SESSION, body.as_bytes())?;
            self.go_away = None;
        }
        if let Some((code, reason)) = &self.farewell {
            let body = GoAwayBody { code: U32::new(*code), flags: U32::new(CLOSING) };
            let body = [body.as_bytes(), cut(reason).as_bytes()].concat();
            self.wire.control(Kind::GoAway, SESSION, &body)?;
            self.farewell = None;
        }
        while let Some(stream) = self.pending.front() {
            let mut state = stream.lock();
            let Some(record) = state.pending() else {
                state.is_listed = false;
                drop(state);
                self.pending.pop_front();
                continue;
            };
            write_record(&mut self.wire, stream.number, record)?;
            state.wrote(record);
            self.ended += usize::from(record == PendingRecord::Lifecycle(PendingControl::End));
        }
        Ok(())
    }

    fn write_ping(&mut self, answer: u64, token: u64) -> Result<(), NotSent> {
        let body = PingBody { answer: U64::new(answer), token: U64::new(token) };
        self.wire.control(Kind::Ping, SESSION, body.as_bytes())
    }
}

/// Cuts `reason` to the length for which a record has room, at a character boundary.
fn cut(reason: &str) -> &str {
    let fits = |end: &usize| reason.is_char_boundary(*end);
    let end = (0..=reason.len().min(REASON_BYTES_MAX)).rev().find(fits);
    &reason[..end.unwrap_or_default()]
}

fn write_record(wire: &mut AnySender, number: u32, record: PendingRecord) -> Result<(), NotSent> {
    match record {
        PendingRecord::Credit(credited) => {
            let body = CreditBody { credited: U64::new(credited) };
            wire.control(Kind::Credit, number, body.as_bytes())
        }
        PendingRecord::Lifecycle(PendingControl::Abort) => {
            wire.control(Kind::FragmentAbort, number, &[])
        }
        PendingRecord::Lifecycle(PendingControl::CloseWrite) => {
            wire.control(Kind::CloseWrite, number, &[])
        }
        PendingRecord::Lifecycle(PendingControl::End) => wire.control(Kind::End, number, &[]),
        PendingRecord::Lifecycle(PendingControl::Reset(code, directions)) => {
            let body = ResetBody { code: U32::new(code), directions: U32::new(directions) };
            wire.control(Kind::Reset, number, body.as_bytes())
        }
    }
}
