// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link file of one side (client or server) of the model: the state that survives its process,
//! and the updates that change that state.
//!
//! ```text
//!   identity · outgoing records from base to tail · acked offset · past · peer · skips · reports
//!   ghosts: ledger (what its application sent), log (what its application consumed)
//! ```
//!
//! Each method is one update of the file. In the model, the prepared acked offset is stored before
//! the reply. In SPEC 14 the reply's record carries the offset, and one store publishes both: these
//! are the model's two steps with no event in between. So the model covers every history of the
//! protocol. It also tries a prepared offset whose reply is never published.
//!
//! The ghosts are the application's own state. They are part of the same file, so an older copy of
//! the file has older ghosts. No rule of the protocol reads the ghosts.

use partywall_reconcile::{
    AckedOffset, Applied, Cause, Direction, Epoch, Impossible, Incarnation, Outgoing, Past, Peer,
    Position, ReceivedPast, RecordDigest, Report, Reports, SenderView, SentPast, Skip, Span,
    StoreId, StreamId,
};
use partywall_reconcile::{Prepared, recover};

/// A record of the model's links: only its number, which also serves as its bytes and its crc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub position: Position,
    pub number: u32,
    pub ack: Position,
}

/// One entry of a list that the application keeps in the file: `ledger` of sent messages, or `log`
/// of consumed ones. The entry holds the epoch, stream and position of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub epoch: Epoch,
    pub stream: StreamId,
    pub position: Position,
    pub number: u32,
    /// The number of the request that this message answers; `None` if the message is no reply.
    pub answers: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct File {
    pub store_id: StoreId,
    pub incarnation: Incarnation,
    pub epoch: Epoch,
    pub out: Outgoing,
    pub base_digest: RecordDigest,
    pub records: Vec<Record>,
    pub stored: Option<AckedOffset>,
    pub prepared: Option<Prepared>,
    pub skip: Option<Skip>,
    pub skip_reported: Option<Skip>,
    pub past: Option<Past>,
    pub peer: Option<Peer>,
    pub quarantined: bool,
    pub reports: Vec<Report>,
    pub ledger: Vec<Entry>,
    pub log: Vec<Entry>,
}

impl File {
    pub fn new(store_id: u128, epoch: u64, stream: u64) -> Self {
        Self {
            store_id: StoreId(store_id),
            incarnation: Incarnation(1),
            epoch: Epoch(epoch),
            out: Outgoing::new(StreamId::new(stream).unwrap()),
            base_digest: RecordDigest::START,
            records: Vec::new(),
            stored: None,
            prepared: None,
            skip: None,
            skip_reported: None,
            past: None,
            peer: None,
            quarantined: false,
            reports: Vec::new(),
            ledger: Vec::new(),
            log: Vec::new(),
        }
    }

    /// The kept record that begins at `position`; `None` if no kept record begins there.
    pub fn record_at(&self, position: Position) -> Option<Record> {
        self.records.iter().find(|record| record.position == position).copied()
    }

    /// The digest at this position; `None` unless the position is the base or the end of a kept
    /// record.
    pub fn digest_at(&self, position: Position) -> Option<RecordDigest> {
        if position == self.out.base() {
            return Some(self.base_digest);
        }
        let before = Position(position.0.checked_sub(1)?);
        self.record_at(before).map(|record| RecordDigest(record.number))
    }

    /// The acked offset that the next owner of this file recovers.
    pub fn recovered(&self) -> Option<AckedOffset> {
        recover(self.stored, self.prepared, |at| self.record_at(at).map(|record| record.ack))
    }

    pub fn sender_view(&self) -> SenderView {
        let out = &self.out;
        SenderView::new(self.epoch, out.stream(), out.base(), out.tail()).unwrap()
    }

    /// The past that this side would store if it left the present epoch now.
    pub fn live(&self, consumed: Option<AckedOffset>) -> Past {
        let out = &self.out;
        let sending = Some(SentPast { stream: out.stream(), acked: out.acked(), tail: out.tail() });
        let receiving = consumed.map(|acked_offset| ReceivedPast {
            stream: acked_offset.stream,
            consumed: acked_offset.position,
        });
        Past { epoch: self.epoch, sending, receiving, settled: false }
    }

    /// Publishes a record at the tail; `None` if as many records as the bounds allow are
    /// unacknowledged.
    pub fn publish(
        &mut self,
        number: u32,
        window: u64,
        ack: Option<AckedOffset>,
        answers: Option<u32>,
    ) -> Option<Record> {
        let position = self.out.append(1, window).ok()?;
        let ack = ack.map_or(Position::START, |acked_offset| acked_offset.position);
        let record = Record { position, number, ack };
        self.records.push(record);
        let stream = self.out.stream();
        self.ledger.push(Entry { epoch: self.epoch, stream, position, number, answers });
        Some(record)
    }

    /// Adds a record to `log`, the application's list of consumed messages.
    pub fn note(&mut self, acked_offset: AckedOffset, record: Record) {
        self.log.push(Entry {
            epoch: self.epoch,
            stream: acked_offset.stream,
            position: record.position,
            number: record.number,
            answers: None,
        });
    }

    /// Trims the kept records up to a position. If `store_first`, the acked offset that a trimmed
    /// reply carries is stored before.
    pub fn trim(&mut self, position: Position, store_first: bool) {
        if store_first && self.prepared.is_some_and(|prepared| prepared.reply_at < position) {
            self.stored = self.recovered();
            self.prepared = None;
        }
        let digest = self.digest_at(position);
        if self.out.trim(position).is_ok() {
            self.base_digest = digest.unwrap_or_default();
            self.records.retain(|record| record.position >= position);
        }
    }

    /// In one update of the file, begins an epoch with empty streams, and keeps `past`, the state
    /// of the epoch that this side leaves.
    pub fn begin(&mut self, epoch: Epoch, stream: u64, past: Option<Past>) {
        self.epoch = epoch;
        self.out = Outgoing::new(StreamId::new(stream).unwrap());
        self.base_digest = RecordDigest::START;
        self.records.clear();
        self.stored = None;
        self.prepared = None;
        self.past = past;
    }

    /// Stores what a receiver changes when it applies the decision of the handshake: how the
    /// sender's stream resumes.
    pub fn apply(&mut self, applied: Applied) -> Reports {
        self.stored = Some(applied.consumed);
        self.prepared = None;
        self.skip = applied.skip.or(self.skip);
        applied.skip.map(|skip| skip.reports(Direction::Incoming)).unwrap_or_default()
    }

    pub fn quarantine(&mut self, direction: Direction, why: Impossible) {
        if self.quarantined {
            return;
        }
        self.quarantined = true;
        let span =
            Span { from: self.out.base(), to: None, known_to: self.out.tail(), exact: false };
        let cause = Cause::Quarantined(why);
        self.reports.push(Report { direction, cause, epoch: self.epoch, stream: None, span });
    }
}
