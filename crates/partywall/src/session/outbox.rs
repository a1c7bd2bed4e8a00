// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of a session: one thread at a time writes, and pending records go first.
//!
//! ```text
//!   streams ─▶ pending records ─▶ ┐
//!   PING, GO_AWAY ──────────────▶ ├─▶ flush ─▶ wire          before every message
//!   senders without room ─▶ waiters ◀─ the driver wakes them when there is room
//! ```
//!
//! Nothing here blocks: an attempt succeeds or returns `Full`.

use super::stream::{PendingRecord, StreamShared};
use crate::channel::AnySender;
use crate::error::{Closed, Fault};
use crate::transport::{NotSent, ProgressSnapshot, SpaceWaiter};
use partywall_layout::Kind;
use partywall_layout::seeded_fault;
use partywall_layout::stream::{ANSWER, ASK, CreditBody, GoAwayBody, PingBody, ResetBody, SESSION};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::lifecycle::PendingControl;

/// The sending end, behind a lock of the session.
#[derive(Debug)]
pub(crate) struct Outbox {
    wire: AnySender,
    room: Arc<dyn SpaceWaiter>,
    /// Streams with a pending record, each once.
    pending: VecDeque<Arc<StreamShared>>,
    /// Pending records of the session itself; the newest of each kind replaces older ones.
    pub(super) pong: Option<u64>,
    ping: Option<u64>,
    /// The token of the newest PING.
    asked: u64,
    pub(super) go_away: Option<u32>,
    waiters: Vec<(u64, Waker)>,
    last_ticket: u64,
    /// The snapshot before the last attempt that found no room.
    seen: ProgressSnapshot,
    /// Number of streams that ended here: END was written for them.
    pub(super) ended: usize,
    /// Whether the driver knows that the wire keeps data.
    was_keeping: bool,
    is_closed: bool,
    /// Whether nothing that is sent will be received, so that room is not worth waiting for.
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
            waiters: Vec::new(),
            last_ticket: 0,
            ended: 0,
            was_keeping: false,
            is_closed: false,
            is_cut_off: false,
        }
    }

    /// Lists a stream that has a pending record and is not listed yet.
    pub(crate) fn list(&mut self, stream: &Arc<StreamShared>) {
        let mut state = stream.lock();
        if !state.is_listed && state.has_pending() {
            state.is_listed = true;
            self.pending.push_back(Arc::clone(stream));
        }
    }

    /// Makes a PING with this token pending, unless one with a later token was: its answer serves
    /// both.
    pub(crate) fn ask(&mut self, token: u64) {
        if token > self.asked {
            self.asked = token;
            self.ping = Some(token);
        }
    }

    /// Writes pending records; `Full` if some are left.
    pub(crate) fn flush(&mut self) -> Result<(), NotSent> {
        if self.is_closed || !self.has_pending() {
            return Ok(());
        }
        if self.room.is_inherited() {
            // In a forked child, not even the counters are mapped.
            return Err(NotSent::Fault(Fault::Forked));
        }
        let flushed = self.attempt(|outbox| {
            let written = outbox.write_pending();
            let published = outbox.wire.publish();
            written.and(published)
        });
        self.note(flushed)
    }

    /// Attempts once to send something for `stream`, after the pending records and along with
    /// `credit` of the other direction, if there is any.
    #[inline]
    pub(crate) fn send(
        &mut self,
        stream: u32,
        credit: Option<u64>,
        mut attempt: impl FnMut(&mut AnySender) -> Result<(), NotSent>,
    ) -> Result<(), NotSent> {
        if self.is_closed {
            // The end of the direction was written: a later message would count as sent, and be
            // lost.
            return Err(NotSent::Closed(Closed::Disconnected));
        }
        self.flush()?;
        let mut attempt = |wire: &mut AnySender| {
            wire.set_stream(stream, credit)?;
            attempt(wire)
        };
        match attempt(&mut self.wire) {
            Err(NotSent::Full) => {
                let attempted = self.attempt(|outbox| attempt(&mut outbox.wire));
                self.note(attempted)
            }
            other => self.note(other),
        }
    }

    /// Writes a record that is not a message, after the pending ones.
    pub(crate) fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), NotSent> {
        self.send(stream, None, |wire| {
            let written = wire.control(kind, stream, body);
            if matches!(written, Err(NotSent::Fault(_))) {
                return written;
            }
            // Also without room: earlier records of the wire must not stay in an open batch.
            let published = wire.publish();
            written.and(published)
        })
    }

    /// Returns reserved memory.
    pub(crate) fn release(&mut self, memory: crate::transport::Memory) -> Vec<Waker> {
        self.wire.release(memory);
        self.take_waiters()
    }

    /// Registers a waiter for room. The ticket stays the same while it waits.
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

    /// Removes a waiter.
    pub(crate) fn leave(&mut self, ticket: u64) {
        self.waiters.retain(|(waiting, _)| *waiting != ticket);
    }

    /// Takes the waiters for room; they try again.
    pub(crate) fn take_waiters(&mut self) -> Vec<Waker> {
        self.waiters.drain(..).map(|(_, waker)| waker).collect()
    }

    /// Frees all memory that is not in use.
    pub(crate) fn trim(&mut self) -> Result<(), NotSent> {
        self.flush()?;
        self.wire.trim(true)
    }

    /// Whether a waiter or a pending record needs room.
    pub(crate) fn wants_room(&self) -> bool {
        !(self.is_closed || self.is_cut_off)
            && (self.has_pending() || !self.waiters.is_empty() || self.wire.has_unsent())
    }

    /// Whether the wire keeps data, and did not at the last call.
    #[inline]
    pub(crate) fn begins_to_keep(&mut self) -> bool {
        let keeps = self.wire.has_unsent();
        let was_keeping = std::mem::replace(&mut self.was_keeping, keeps);
        keeps && !was_keeping
    }

    /// Whether there may be room that the last attempt did not find.
    pub(crate) fn may_have_room(&self) -> bool {
        self.room.snapshot() != self.seen || self.room.is_writable()
    }

    /// Declares that the driver blocks until room comes; `true` if there may be some already.
    pub(crate) fn arm(&mut self) -> Result<bool, Fault> {
        self.wire.drain()?;
        self.wire.arm(false)?;
        Ok(self.may_have_room())
    }

    /// Declares that the driver is awake.
    pub(crate) fn disarm(&mut self) {
        self.wire.disarm();
    }

    /// Writes the data that the wire itself kept, on a socket; `Full` if some is left.
    pub(crate) fn drain(&mut self) -> Result<(), NotSent> {
        self.flush()?;
        let flushed = self.wire.flush();
        self.note(flushed)
    }

    /// From now on, only sent messages and pending records must be written before the end.
    pub(crate) fn leave_session(&mut self) {
        self.wire.leave();
    }

    /// Gives up what is left: it is not waited for any longer.
    pub(crate) fn give_up(&mut self) {
        self.wire.note_hang_up();
        self.is_cut_off = true;
    }

    /// Ends the session's direction.
    pub(crate) fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
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
    }

    /// Notes if nothing can be sent any more.
    #[inline]
    fn note<T>(&mut self, sent: Result<T, NotSent>) -> Result<T, NotSent> {
        if matches!(sent, Err(NotSent::Closed(_) | NotSent::Fault(_))) {
            self.is_cut_off = true;
        }
        sent
    }

    /// The attempt after which a user waits: the snapshot is taken before it.
    #[cold]
    fn attempt<T>(
        &mut self,
        attempt: impl FnOnce(&mut Self) -> Result<T, NotSent>,
    ) -> Result<T, NotSent> {
        let seen = self.room.snapshot();
        let attempted = attempt(self);
        let seen = if seeded_fault("late_snapshot") { self.room.snapshot() } else { seen };
        // Earlier waiters may wait for something else, which came since their attempt.
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
            let body = GoAwayBody { code: U32::new(code), zero: U32::new(0) };
            self.wire.control(Kind::GoAway, SESSION, body.as_bytes())?;
            self.go_away = None;
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
