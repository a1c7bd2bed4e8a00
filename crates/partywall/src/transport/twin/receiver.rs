// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end of a twin: takes records in order, and tells how far it is.
//!
//! ```text
//!   DATA ─▶ message, copied      BLOB ─▶ message, a view      of streams, of the session ─▶ record
//!   told of as consumed: every eighth of the queue, and before sleeping
//!   CLOSE_WRITE of the session ─▶ the end in order      hung up, and nothing left ─▶ the end
//! ```

use super::{Lane, Loan, Record, Side};
use crate::error::{Closed, Fault};
use crate::message::Message;
use crate::stats::ReceiverStats;
use crate::transport::{Found, Waited, kinds};
use partywall_layout::{Kind, RecordHeader, Violation};
use partywall_wait::{Spinner, Wait};
use std::sync::Arc;
use std::time::Instant;

/// The receiving end.
#[derive(Debug)]
pub(crate) struct TwinReceiver {
    lane: Arc<Lane>,
    side: Arc<Side>,
    /// Found and not left behind yet; it still takes its place of the queue.
    current: Option<Record>,
    /// A message that was left behind when it was found.
    held: Option<Message>,
    stream: u32,
    credit: Option<u64>,
    /// Left behind, and not told of.
    unreported: u64,
    hung_up: bool,
    end: Option<Closed>,
}

/// A message in memory that the sender lent; dropping it gives the memory back.
#[derive(Debug)]
pub(crate) struct View {
    lane: Arc<Lane>,
    loan: Loan,
}

impl View {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.loan.as_slice()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut flow = self.lane.flow();
        flow.lent -= self.loan.charged;
        flow.released += 1;
        self.lane.tell_of_room(flow);
    }
}

impl TwinReceiver {
    pub(super) const fn new(lane: Arc<Lane>, side: Arc<Side>) -> Self {
        Self {
            lane,
            side,
            current: None,
            held: None,
            stream: 0,
            credit: None,
            unreported: 0,
            hung_up: false,
            end: None,
        }
    }

    /// Finds the next message, or record of a session.
    pub(crate) fn find(&mut self) -> Result<Found, Fault> {
        if let Some(closed) = self.end {
            return Ok(Found::End(closed));
        }
        if self.held.is_some() {
            return Ok(Found::Message);
        }
        // Noted before the look: what was published before the hang-up is then seen by it.
        let hung_up = self.hung_up;
        if self.current.is_none() {
            self.current = self.lane.flow().records.pop_front();
        }
        let Some(record) = &mut self.current else {
            if !hung_up {
                return Ok(Found::Nothing);
            }
            return Ok(self.over(Closed::Disconnected));
        };
        let header = record.header;
        match header.kind {
            Kind::Data => {
                (self.stream, self.credit) = (header.stream, None);
                Ok(Found::Message)
            }
            Kind::Blob => {
                (self.stream, self.credit) = (header.stream, record.credit.take());
                let lane = Arc::clone(&self.lane);
                let loan = record.loan.take();
                self.held = loan.map(|loan| Message::from_twin(View { lane, loan }));
                self.pass(&header);
                Ok(Found::Message)
            }
            _ if kinds::is_of_sessions(&header) => Ok(Found::Control(header)),
            Kind::CloseWrite => Ok(self.over(Closed::Finished)),
            kind => unreachable!("{kind:?} is nothing that a twin sends"),
        }
    }

    pub(crate) const fn stream(&self) -> u32 {
        self.stream
    }

    pub(crate) const fn take_credit(&mut self) -> Option<u64> {
        self.credit.take()
    }

    /// Copies bytes of the record found last.
    pub(crate) fn body(&self, record: &RecordHeader, from: usize, into: &mut [u8]) {
        let current = self.current.as_ref().filter(|current| current.header == *record);
        let payload = current.map_or(&[][..], |current| &current.payload);
        into.copy_from_slice(&payload[from..from + into.len()]);
    }

    /// Goes on behind the record found last, and tells the sender now and then.
    pub(crate) fn pass(&mut self, record: &RecordHeader) {
        self.current = None;
        self.unreported += record.footprint();
        if self.unreported >= self.lane.limits.ring_bytes / 8 {
            self.report();
        }
    }

    /// The bytes of the current message.
    pub(crate) fn current(&self) -> &[u8] {
        match (&self.held, &self.current) {
            (Some(message), _) => message,
            (None, Some(record)) => &record.payload,
            (None, None) => &[],
        }
    }

    /// Takes the current message.
    pub(crate) fn take(&mut self) -> Message {
        if let Some(message) = self.held.take() {
            return message;
        }
        let message = Message::copied(self.current());
        self.done();
        message
    }

    /// Goes on behind the current message, if it was not taken.
    pub(crate) fn done(&mut self) {
        self.held = None;
        if let Some(header) = self.current.as_ref().map(|record| record.header) {
            self.pass(&header);
        }
    }

    /// Both sides are honest: what one does not understand is a mistake of the other.
    pub(crate) fn violated(&self, violation: Violation) -> ! {
        panic!("an honest side was refused: {violation}")
    }

    pub(crate) fn message_max(&self) -> u64 {
        self.lane.limits.message_max
    }

    /// Declares that somebody sleeps until records come; `true` if there is something already.
    pub(crate) fn arm(&mut self) -> bool {
        if self.end.is_some() || self.hung_up {
            return true;
        }
        self.report();
        self.hung_up = self.lane.receiver_door.drain_records();
        let mut flow = self.lane.flow();
        let is_ready = self.hung_up || self.current.is_some() || !flow.records.is_empty();
        flow.awaits_records = !is_ready;
        is_ready
    }

    /// One who never sleeps asks now and then; here everybody sleeps.
    pub(crate) fn notice_end(&mut self) -> Result<bool, Fault> {
        Ok(self.hung_up)
    }

    /// There are always streams.
    pub(crate) fn enable_streams(&mut self) {}

    pub(crate) fn wait(
        &mut self,
        _wait: Wait,
        _spinner: &mut Spinner,
        _deadline: Option<Instant>,
    ) -> Result<Waited, Fault> {
        unreachable!("of channels only")
    }

    /// Tells the sender that nobody receives any more.
    pub(crate) fn close(&mut self) {
        let mut flow = self.lane.flow();
        flow.is_receiver_gone = true;
        self.lane.tell_of_room(flow);
        self.side.depart();
    }

    pub(crate) fn stats(&self) -> ReceiverStats {
        ReceiverStats::default()
    }

    fn over(&mut self, closed: Closed) -> Found {
        self.end = Some(closed);
        Found::End(closed)
    }

    /// Tells the sender how far we are, and wakes it if it waits for that.
    fn report(&mut self) {
        if self.unreported > 0 {
            let mut flow = self.lane.flow();
            flow.consumed += std::mem::take(&mut self.unreported);
            self.lane.tell_of_room(flow);
        }
    }
}
