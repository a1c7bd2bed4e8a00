// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of a twin: decides as a wall does how a message travels.
//!
//! ```text
//!   length ≤ inline_max ──────────────▶ DATA      in the queue
//!   memory to be had ─────────────────▶ BLOB      lent until the receiver drops it
//!   none, and the policy is Overflow ─▶ FRAGMENT… pieces of an eighth of the queue
//! ```
//!
//! It never waits. What was appended is invisible until it is published; an attempt that fails forgets all of it.

use super::{Lane, Loan, Record, Side};
use crate::config::BackPressure;
use crate::error::{Closed, Fault, Limit, SendError, TooLarge};
use crate::stats::SenderStats;
use crate::transport::{Memory, Progress, Unsent};
use partywall_layout::record_ring::{
    BlobBody, FRAGMENT_PREFIX_BYTES, HEADER_BYTES, Position, footprint,
};
use partywall_layout::{Kind, RecordHeader};
use std::sync::Arc;

/// The sending end.
#[derive(Debug)]
pub(crate) struct TwinSender {
    lane: Arc<Lane>,
    side: Arc<Side>,
    /// Appended and not published.
    open: Vec<Record>,
    open_bytes: u64,
    published: u64,
    stream: u32,
    /// What the next message tells of what was taken of the other direction of its stream.
    credit: Option<u64>,
    end: Option<Closed>,
}

impl TwinSender {
    pub(super) const fn new(lane: Arc<Lane>, side: Arc<Side>) -> Self {
        let open = Vec::new();
        Self { lane, side, open, open_bytes: 0, published: 0, stream: 0, credit: None, end: None }
    }

    pub(crate) const fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Sends a whole message at once or not at all.
    pub(crate) fn try_send(&mut self, payload: &[u8]) -> Result<(), Unsent> {
        self.check()?;
        let added = self.add(payload);
        self.finish(added)
    }

    /// Sends a message; under `Overflow` in pieces if no memory is left.
    pub(crate) fn send_on(
        &mut self,
        payload: &[u8],
        progress: &mut Progress,
    ) -> Result<(), Unsent> {
        self.check()?;
        if progress.started {
            return self.send_fragments(payload, progress);
        }
        if !self.overflows() || payload.len() <= self.lane.limits.inline_max {
            return self.try_send(payload);
        }
        match self.allocate(payload.len()) {
            Ok(mut loan) => {
                loan.as_mut_slice().copy_from_slice(payload);
                let added = self.add_loan(loan).map_err(|(unsent, loan)| {
                    self.give_back(&loan);
                    unsent
                });
                self.finish(added)
            }
            Err(Unsent::Full) => self.send_fragments(payload, progress),
            Err(unsent) => Err(unsent),
        }
    }

    pub(crate) const fn set_stream(&mut self, stream: u32, credit: Option<u64>) {
        (self.stream, self.credit) = (stream, credit);
    }

    /// Appends a record that is not a message, to be published with others.
    pub(crate) fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), Unsent> {
        self.check()?;
        if self.open_bytes + footprint(body.len() as u64) > self.lane.limits.ring_bytes / 2 {
            // Many of them are more than a batch.
            self.publish()?;
        }
        self.stream = stream;
        self.append(kind, &[body])
    }

    /// Makes the open batch visible and wakes the receiver if it sleeps. Where nobody will ever look again,
    /// nothing is sent.
    pub(crate) fn publish(&mut self) -> Result<(), Unsent> {
        let lane = Arc::clone(&self.lane);
        let mut flow = lane.flow();
        if flow.is_receiver_gone {
            drop(flow);
            self.roll_back();
            return Err(self.left());
        }
        self.published += self.open_bytes;
        flow.published = self.published;
        flow.records.extend(self.open.drain(..));
        self.open_bytes = 0;
        lane.tell_of_records(flow);
        Ok(())
    }

    /// Memory for a message of `len` bytes.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<Memory, Unsent> {
        self.check()?;
        if len <= self.lane.limits.inline_max {
            return Ok(Memory::Private(vec![0; len]));
        }
        match self.allocate(len) {
            Ok(loan) => Ok(Memory::Twin(loan)),
            Err(Unsent::Full) if self.overflows() => Ok(Memory::Private(vec![0; len])),
            Err(unsent) => Err(unsent),
        }
    }

    /// Sends what was written to reserved memory.
    pub(crate) fn commit(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), Unsent> {
        self.check()?;
        match memory.take() {
            None => Ok(()),
            Some(Memory::Twin(loan)) => {
                let added = self.add_loan(loan).map_err(|(unsent, loan)| {
                    *memory = Some(Memory::Twin(loan));
                    unsent
                });
                self.finish(added)
            }
            Some(other) => {
                let sent = self.send_on(other.as_slice(), progress);
                if sent.is_err() {
                    *memory = Some(other);
                }
                sent
            }
        }
    }

    /// Takes reserved memory back.
    pub(crate) fn release(&mut self, memory: Memory) {
        if let Memory::Twin(loan) = memory {
            self.give_back(&loan);
        }
    }

    /// Takes rings that nobody waited for.
    pub(crate) fn drain(&mut self) -> Result<(), Fault> {
        if self.lane.sender_door.drain_room() {
            self.note_hang_up();
        }
        Ok(())
    }

    /// Declares that somebody sleeps until room comes. A wall also rings the receiver here, for one that is quiet;
    /// nobody is quiet here, and one who sleeps has told of all room before.
    pub(crate) fn arm(&mut self, _quiet: bool) -> Result<(), Fault> {
        self.lane.flow().awaits_room = true;
        Ok(())
    }

    pub(crate) fn disarm(&mut self) {
        self.lane.flow().awaits_room = false;
    }

    pub(crate) fn note_hang_up(&mut self) {
        let has_left = self.lane.flow().is_receiver_gone;
        self.end = Some(if has_left { Closed::Finished } else { Closed::Disconnected });
    }

    /// Tells the receiver that no more will come, behind all that was published.
    pub(crate) fn close(&mut self) {
        self.roll_back();
        self.stream = 0;
        let record = self.record(Kind::CloseWrite, Vec::new(), None);
        let mut flow = self.lane.flow();
        flow.records.push_back(record);
        self.lane.tell_of_records(flow);
        self.side.depart();
    }

    pub(crate) fn stats(&self) -> SenderStats {
        SenderStats::default()
    }

    /// There is no idle memory.
    pub(crate) fn trim(&mut self, _all: bool) -> Result<(), Unsent> {
        self.check()
    }

    pub(crate) fn give_up(&mut self, _: &[u8], _: &Progress) -> Result<(), SendError> {
        unreachable!("of channels only")
    }

    pub(crate) fn add_to_batch(&mut self, _payload: &[u8]) -> Result<(), Unsent> {
        unreachable!("of channels only")
    }

    pub(crate) fn commit_batch(&mut self) -> Result<(), Unsent> {
        unreachable!("of channels only")
    }

    pub(crate) fn abort_batch(&mut self) {
        unreachable!("of channels only")
    }

    fn overflows(&self) -> bool {
        self.lane.limits.policy == BackPressure::Overflow
    }

    fn check(&self) -> Result<(), Unsent> {
        self.end.map_or(Ok(()), |closed| Err(Unsent::Closed(closed)))
    }

    fn left(&mut self) -> Unsent {
        self.end = Some(Closed::Finished);
        Unsent::Closed(Closed::Finished)
    }

    /// Publishes what was appended if that went well, forgets it otherwise.
    fn finish(&mut self, added: Result<(), Unsent>) -> Result<(), Unsent> {
        match added {
            Ok(()) => self.publish(),
            Err(unsent) => {
                self.roll_back();
                Err(unsent)
            }
        }
    }

    /// Forgets what was appended but not published.
    fn roll_back(&mut self) {
        self.open_bytes = 0;
        for loan in std::mem::take(&mut self.open).into_iter().filter_map(|record| record.loan) {
            self.give_back(&loan);
        }
    }

    /// Appends a message to the open batch, in the way its length asks for.
    fn add(&mut self, payload: &[u8]) -> Result<(), Unsent> {
        if payload.len() <= self.lane.limits.inline_max {
            self.append_credit()?;
            return self.append(Kind::Data, &[payload]);
        }
        let mut loan = match self.allocate(payload.len()) {
            Err(Unsent::Full) if self.overflows() => return self.add_fragments(payload),
            other => other?,
        };
        loan.as_mut_slice().copy_from_slice(payload);
        self.add_loan(loan).map_err(|(unsent, loan)| {
            self.give_back(&loan);
            unsent
        })
    }

    fn add_loan(&mut self, loan: Loan) -> Result<(), (Unsent, Loan)> {
        let body = vec![0; size_of::<BlobBody>()];
        if let Err(unsent) = self.check_room(footprint(body.len() as u64)) {
            return Err((unsent, loan));
        }
        let mut record = self.record(Kind::Blob, body, Some(loan));
        record.credit = self.credit.take();
        self.push(record);
        Ok(())
    }

    /// Appends the credit that a message cannot carry itself.
    fn append_credit(&mut self) -> Result<(), Unsent> {
        match self.credit.take() {
            None => Ok(()),
            Some(credited) => self.append(Kind::Credit, &[&credited.to_le_bytes()]),
        }
    }

    fn append(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), Unsent> {
        let payload = parts.concat();
        self.check_room(footprint(payload.len() as u64))?;
        let record = self.record(kind, payload, None);
        self.push(record);
        Ok(())
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than the queue bears")]
    fn record(&self, kind: Kind, payload: Vec<u8>, loan: Option<Loan>) -> Record {
        let position = Position(self.published + self.open_bytes);
        let header =
            RecordHeader { position, kind, len: payload.len() as u32, stream: self.stream };
        Record { header, payload, loan, credit: None }
    }

    fn push(&mut self, record: Record) {
        self.open_bytes += record.header.footprint();
        self.open.push(record);
    }

    fn check_room(&mut self, bytes: u64) -> Result<(), Unsent> {
        let flow = self.lane.flow();
        let used = flow.published - flow.consumed + self.open_bytes;
        if used + bytes <= self.lane.limits.ring_bytes {
            return Ok(());
        }
        let is_gone = flow.is_receiver_gone;
        drop(flow);
        Err(if is_gone { self.left() } else { Unsent::Full })
    }

    fn allocate(&mut self, len: usize) -> Result<Loan, Unsent> {
        let limits = self.lane.limits;
        let charged = len as u64;
        self.check_length(charged)?;
        if charged > limits.memory_bytes {
            if self.overflows() {
                return Err(Unsent::Full);
            }
            let (max, limit) = (limits.memory_bytes, Limit::OwnMemory);
            return Err(Unsent::TooLarge(TooLarge { len: charged, max, limit }));
        }
        let mut flow = self.lane.flow();
        if flow.lent + charged <= limits.memory_bytes {
            flow.lent += charged;
            return Ok(Loan { bytes: vec![0; len], charged });
        }
        let is_gone = flow.is_receiver_gone;
        drop(flow);
        Err(if is_gone { self.left() } else { Unsent::Full })
    }

    /// Memory is free again on our own side, which no glance shows.
    fn give_back(&self, loan: &Loan) {
        self.lane.flow().lent -= loan.charged;
    }

    fn check_length(&self, len: u64) -> Result<(), Unsent> {
        let max = self.lane.limits.message_max;
        if len <= max {
            return Ok(());
        }
        Err(Unsent::TooLarge(TooLarge { len, max, limit: Limit::PeerMessage }))
    }
}

impl TwinSender {
    /// Sends as many pieces as there is room for.
    fn send_fragments(&mut self, payload: &[u8], progress: &mut Progress) -> Result<(), Unsent> {
        if !progress.started {
            self.check_length(payload.len() as u64)?;
        }
        while progress.sent < payload.len() {
            let piece = self.piece(payload, progress.sent);
            let appended = self.append_credit();
            let appended = appended.and_then(|()| self.append_piece(payload, progress.sent, piece));
            if appended.is_err() {
                return self.finish(appended);
            }
            progress.started = true;
            progress.sent += piece;
            self.publish()?;
        }
        Ok(())
    }

    /// Adds all pieces of a message to the open batch, or none.
    fn add_fragments(&mut self, payload: &[u8]) -> Result<(), Unsent> {
        self.check_length(payload.len() as u64)?;
        let pieces = payload.len() / self.piece_max() + 2;
        let needed = pieces as u64 * (self.lane.limits.ring_bytes / 8);
        if self.open_bytes + needed > self.lane.limits.ring_bytes / 2 {
            let (len, max) = (payload.len() as u64, self.lane.limits.memory_bytes);
            let limit = Limit::OwnMemory;
            let too_large = Unsent::TooLarge(TooLarge { len, max, limit });
            return Err(if len <= max { Unsent::Full } else { too_large });
        }
        self.check_room(needed)?;
        self.append_credit()?;
        let mut sent = 0;
        while sent < payload.len() {
            let piece = self.piece(payload, sent);
            self.append_piece(payload, sent, piece)?;
            sent += piece;
        }
        Ok(())
    }

    /// The longest piece: an eighth of the queue.
    #[expect(clippy::cast_possible_truncation, reason = "less than the queue bears")]
    fn piece_max(&self) -> usize {
        (self.lane.limits.ring_bytes / 8 - HEADER_BYTES - FRAGMENT_PREFIX_BYTES) as usize
    }

    /// How many bytes the next piece takes; the first is never also the last.
    fn piece(&self, payload: &[u8], sent: usize) -> usize {
        let left = payload.len() - sent;
        self.piece_max().min(if sent == 0 { left - 1 } else { left })
    }

    fn append_piece(&mut self, payload: &[u8], sent: usize, piece: usize) -> Result<(), Unsent> {
        let bytes = &payload[sent..sent + piece];
        if sent == 0 {
            let total = (payload.len() as u64).to_le_bytes();
            return self.append(Kind::FragmentFirst, &[&total, bytes]);
        }
        let is_last = sent + piece == payload.len();
        self.append(if is_last { Kind::FragmentLast } else { Kind::FragmentMid }, &[bytes])
    }
}
