// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of a session: one at a time writes to the wire, and what is owed goes first.
//!
//! ```text
//!   streams that owe ─▶ owed ─▶ ┐
//!   PING, GO_AWAY    ─────────▶ ├─▶ flush ─▶ wire          before every message
//!   whoever found no room ─▶ waiters ◀─ woken by the driver when there is some
//! ```
//!
//! Nobody waits in here: an attempt either succeeds or says `Full`.

use super::stream::{PendingRecord, StreamShared};
use crate::channel::AnySender;
use crate::error::{Closed, Fault};
use crate::transport::{ProgressSnapshot, SpaceWaiter, Unsent};
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
    /// Streams that owe a record, each once.
    pending: VecDeque<Arc<StreamShared>>,
    /// Records of the session itself that are owed: only the newest of each kind counts.
    pub(super) pong: Option<u64>,
    ping: Option<u64>,
    /// The newest question.
    asked: u64,
    pub(super) go_away: Option<u32>,
    waiters: Vec<(u64, Waker)>,
    last_ticket: u64,
    /// The glance before the last attempt that found no room.
    seen: ProgressSnapshot,
    /// How many streams have ended here: END was written for them.
    pub(super) ended: usize,
    /// The driver was told that the wire keeps something.
    was_keeping: bool,
    is_closed: bool,
    /// Nothing that is sent will be received: no room is worth waiting for.
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

    /// Lists a stream if it owes something and is not listed yet.
    pub(crate) fn list(&mut self, stream: &Arc<StreamShared>) {
        let mut state = stream.lock();
        if !state.is_listed && state.has_pending() {
            state.is_listed = true;
            self.pending.push_back(Arc::clone(stream));
        }
    }

    /// Asks with this token, unless a newer one was asked with: its answer will do for both.
    pub(crate) fn ask(&mut self, token: u64) {
        if token > self.asked {
            self.asked = token;
            self.ping = Some(token);
        }
    }

    /// Writes what is owed; `Full` if some is left.
    pub(crate) fn flush(&mut self) -> Result<(), Unsent> {
        if self.is_closed || !self.has_pending() {
            return Ok(());
        }
        if self.room.is_inherited() {
            // Not even the counters are mapped in a forked child.
            return Err(Unsent::Fault(Fault::Forked));
        }
        let flushed = self.attempt(|outbox| {
            let written = outbox.write_pending();
            let published = outbox.wire.publish();
            written.and(published)
        });
        self.note(flushed)
    }

    /// One attempt to send something for `stream`, behind what is owed and, if there is any, along with
    /// credit of the other direction.
    #[inline]
    pub(crate) fn send(
        &mut self,
        stream: u32,
        credit: Option<u64>,
        mut attempt: impl FnMut(&mut AnySender) -> Result<(), Unsent>,
    ) -> Result<(), Unsent> {
        if self.is_closed {
            // The end of the direction was written: what came behind it would count as sent.
            return Err(Unsent::Closed(Closed::Disconnected));
        }
        self.flush()?;
        let mut attempt = |wire: &mut AnySender| {
            wire.set_stream(stream, credit)?;
            attempt(wire)
        };
        match attempt(&mut self.wire) {
            Err(Unsent::Full) => {
                let attempted = self.attempt(|outbox| attempt(&mut outbox.wire));
                self.note(attempted)
            }
            other => self.note(other),
        }
    }

    /// Writes a record that is not a message, behind what is owed.
    pub(crate) fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), Unsent> {
        self.send(stream, None, |wire| {
            let written = wire.control(kind, stream, body);
            if matches!(written, Err(Unsent::Fault(_))) {
                return written;
            }
            // Also when there is no room: what the wire had to tell before must not lie in an open batch.
            let published = wire.publish();
            written.and(published)
        })
    }

    /// Takes reserved memory back.
    pub(crate) fn release(&mut self, memory: crate::transport::Memory) -> Vec<Waker> {
        self.wire.release(memory);
        self.take_waiters()
    }

    /// Notes who waits for room; the ticket stays the same while it waits.
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

    /// Somebody waits no longer.
    pub(crate) fn leave(&mut self, ticket: u64) {
        self.waiters.retain(|(waiting, _)| *waiting != ticket);
    }

    /// Those who waited for room; they try again.
    pub(crate) fn take_waiters(&mut self) -> Vec<Waker> {
        self.waiters.drain(..).map(|(_, waker)| waker).collect()
    }

    /// Gives all memory back that is not in use.
    pub(crate) fn trim(&mut self) -> Result<(), Unsent> {
        self.flush()?;
        self.wire.trim(true)
    }

    /// Whether anybody, or anything owed, waits for room.
    pub(crate) fn wants_room(&self) -> bool {
        !(self.is_closed || self.is_cut_off)
            && (self.has_pending() || !self.waiters.is_empty() || self.wire.has_unsent())
    }

    /// Whether the wire keeps something, and did not when this was asked last.
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

    /// Declares that the driver sleeps until room comes; `true` if there may be some already.
    pub(crate) fn arm(&mut self) -> Result<bool, Fault> {
        self.wire.drain()?;
        self.wire.arm(false)?;
        Ok(self.may_have_room())
    }

    /// The driver is awake.
    pub(crate) fn disarm(&mut self) {
        self.wire.disarm();
    }

    /// Writes what the wire itself kept, on a socket; `Full` if some is left.
    pub(crate) fn drain(&mut self) -> Result<(), Unsent> {
        self.flush()?;
        let flushed = self.wire.flush();
        self.note(flushed)
    }

    /// Only what was sent, and is owed, has to be taken before the end.
    pub(crate) fn leave_session(&mut self) {
        self.wire.leave();
    }

    /// What is left will not be taken: it is not waited for any longer.
    pub(crate) fn give_up(&mut self) {
        self.wire.note_hang_up();
        self.is_cut_off = true;
    }

    /// The end of the session's direction.
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

    /// Remembers if nothing can ever be sent.
    #[inline]
    fn note<T>(&mut self, sent: Result<T, Unsent>) -> Result<T, Unsent> {
        if matches!(sent, Err(Unsent::Closed(_) | Unsent::Fault(_))) {
            self.is_cut_off = true;
        }
        sent
    }

    /// The attempt after which somebody waits: a glance goes before it.
    #[cold]
    fn attempt<T>(
        &mut self,
        attempt: impl FnOnce(&mut Self) -> Result<T, Unsent>,
    ) -> Result<T, Unsent> {
        let seen = self.room.snapshot();
        let attempted = attempt(self);
        let seen = if seeded_fault("late_snapshot") { self.room.snapshot() } else { seen };
        // Others who wait already may want something else, which came since they looked.
        if matches!(attempted, Err(Unsent::Full)) && self.waiters.is_empty() {
            self.seen = seen;
        }
        attempted
    }

    fn write_pending(&mut self) -> Result<(), Unsent> {
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

    fn write_ping(&mut self, answer: u64, token: u64) -> Result<(), Unsent> {
        let body = PingBody { answer: U64::new(answer), token: U64::new(token) };
        self.wire.control(Kind::Ping, SESSION, body.as_bytes())
    }
}

fn write_record(wire: &mut AnySender, number: u32, record: PendingRecord) -> Result<(), Unsent> {
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
