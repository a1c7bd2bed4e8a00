// SPDX-License-Identifier: MIT OR Apache-2.0
//! The durable state of one end of a link, which a later owner continues: the stored fields (the
//! state image), as types of `partywall_reconcile`.
//!
//! ```text
//!   StateImage (bytes, SPEC 13.4)  ── read, with the tail from the ring ──▶  DurableState
//!                                  ◀── write ──────────────────────────────    ─▶ views, decisions
//! ```
//!
//! This file only converts: `slots.rs` adds the sequence number and the seal (checksum) that
//! `write` leaves out, and stores the image.
//!
//! # Invariants
//!
//! - `write` writes back every field that `read` reads, except fields that have no meaning in the
//!   given state.
//! - No report vanishes silently: a report is kept, merged into another one, or counted in
//!   `reports_dropped`.

use partywall_layout::link::state::{
    DELIVERED_MAX, QUARANTINE_RECEIVING, REPORT_INEXACT, REPORT_OPEN, REPORT_RECEIVING, REPORTS_MAX,
};
use partywall_layout::link::{Consumed, FileFault, Report as ReportFields, StateImage};
use partywall_reconcile::{
    AckedOffset, Cause, Direction, Epoch, Impossible, Incarnation, Outgoing, Past, Peer, Position,
    RecordDigest, Report, Reports, Skip, Span, StoreId, StreamId,
};
use zerocopy::FromZeros;
use zerocopy::little_endian::{U32, U64};

use crate::protocol::codec;

/// Everything that one end of a link stores besides the records (SPEC 12.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableState {
    /// The number of the present epoch, which the application chooses and which never decreases.
    pub epoch: Epoch,
    /// Id, base, acknowledged position and end of the stream that this end sends; `None` before its
    /// first stream.
    pub outgoing: Option<Outgoing>,
    /// The record digest at the base of the stream that this end sends.
    pub base_digest: RecordDigest,
    /// The position up to which this end had acknowledged the received stream when the state was
    /// stored; [`catch_up`](Self::catch_up) adds what was acknowledged later.
    pub acked_offset: Option<AckedOffset>,
    /// The streams of the last epoch, with their positions when this end left that epoch.
    pub past: Option<Past>,
    /// The identity of the peer; `None` until the first attach.
    pub peer: Option<Peer>,
    /// The last range of positions that this end skipped as a receiver.
    pub skip: Option<Skip>,
    /// The last range of this end's stream that the peer skipped as its receiver, and that this end
    /// has reported to its application.
    pub skip_reported: Option<Skip>,
    /// Reason why the link is in quarantine, which lasts until an operator decides; `None` if the
    /// link is not in quarantine.
    pub quarantine: Option<Quarantine>,
    /// The number of reports that were dropped because a state image holds no more than 16.
    pub reports_dropped: u64,
    reports: Vec<Report>,
    delivered: Vec<Position>,
}

/// A contradiction between the files of the two ends, because of which both keep all bytes until an
/// operator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quarantine {
    /// The stream about which the two ends contradict each other: the sent one or the received one.
    pub direction: Direction,
    /// The kind of the contradiction, such as a receiver that is ahead of its sender.
    pub why: Impossible,
}

impl DurableState {
    /// The state of an end that was never attached.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            epoch: Epoch(0),
            outgoing: None,
            base_digest: RecordDigest::START,
            acked_offset: None,
            past: None,
            peer: None,
            skip: None,
            skip_reported: None,
            quarantine: None,
            reports_dropped: 0,
            reports: Vec::new(),
            delivered: Vec::new(),
        }
    }

    /// Decodes the state from its stored image. `tail` is the position after the last record in the
    /// ring; it is ignored if this end has no stream to send.
    ///
    /// # Errors
    ///
    /// [`FileFault::Contradiction`] if the fields contradict each other, or if the records end
    /// before the acknowledged position.
    pub fn read(state: &StateImage, tail: Position) -> Result<Self, FileFault> {
        state.check()?;
        let quarantine = state.quarantine.get();
        let why = codec::impossible(u64::from(quarantine & !QUARANTINE_RECEIVING));
        Ok(Self {
            epoch: Epoch(state.epoch.get()),
            outgoing: outgoing(state, tail)?,
            base_digest: RecordDigest(state.sending_digest.get()),
            acked_offset: StreamId::new(state.receiving_stream.get()).map(|stream| AckedOffset {
                stream,
                position: Position(state.receiving_consumed.get()),
                digest: RecordDigest(state.receiving_digest.get()),
            }),
            past: codec::past(&state.previous),
            peer: (state.peer_incarnation.get() != 0).then(|| Peer {
                store_id: StoreId(u128::from_le_bytes(state.peer_store_id)),
                incarnation: Incarnation(state.peer_incarnation.get()),
            }),
            skip: codec::skip(&state.skip),
            skip_reported: codec::skip(&state.skip_reported),
            quarantine: why.map(|why| Quarantine {
                direction: direction(quarantine & QUARANTINE_RECEIVING != 0),
                why,
            }),
            reports_dropped: state.reports_dropped.get(),
            reports: state.reports().iter().filter_map(report).collect(),
            delivered: state.delivered().iter().map(|at| Position(at.get())).collect(),
        })
    }

    /// Encodes this state as an image, the stored form, which the caller writes into the store.
    #[must_use]
    pub fn write(&self) -> StateImage {
        let (out, acked_offset) = (self.outgoing.as_ref(), self.acked_offset.as_ref());
        let base = out.map_or(Position::START, Outgoing::base);
        // No record ends at the start of a stream. So if the base is there, it has no record
        // digest, and the check of a state image refuses an image with one.
        let base_digest =
            if base == Position::START { RecordDigest::START } else { self.base_digest };
        let delivered = if acked_offset.is_some() { self.delivered.as_slice() } else { &[] };
        let mut state = StateImage {
            epoch: U64::new(self.epoch.0),
            sending_stream: U64::new(codec::stream_number(out.map(Outgoing::stream))),
            sending_base: U64::new(base.0),
            sending_acked: U64::new(out.map_or(0, |out| out.acked().0)),
            sending_digest: U32::new(base_digest.0),
            receiving_stream: U64::new(codec::stream_number(
                acked_offset.map(|acked_offset| acked_offset.stream),
            )),
            receiving_consumed: U64::new(
                acked_offset.map_or(0, |acked_offset| acked_offset.position.0),
            ),
            receiving_digest: U32::new(
                acked_offset.map_or(0, |acked_offset| acked_offset.digest.0),
            ),
            quarantine: U32::new(self.quarantine.map_or(0, quarantine_number)),
            peer_incarnation: U64::new(self.peer.map_or(0, |peer| peer.incarnation.0)),
            peer_store_id: self.peer.map_or([0; 16], |peer| peer.store_id.0.to_le_bytes()),
            previous: codec::past_fields(self.past.as_ref()),
            skip: codec::skip_fields(self.skip.as_ref()),
            skip_reported: codec::skip_fields(self.skip_reported.as_ref()),
            reports_dropped: U64::new(self.reports_dropped),
            ..StateImage::new_zeroed()
        };
        for (fields, report) in state.reports.iter_mut().zip(&self.reports) {
            *fields = report_fields(report);
            state.report_count += 1;
        }
        for (at, position) in state.delivered.iter_mut().zip(delivered) {
            *at = U64::new(position.0);
            state.delivered_count += 1;
        }
        state
    }

    /// Applies the record of the acked offset in the control page, which holds what the application
    /// acknowledged after the state was stored (SPEC 13.5).
    pub fn catch_up(&mut self, consumed: &Consumed) {
        let (position, digest) = (Position(consumed.position), RecordDigest(consumed.digest));
        if let Some(acked_offset) = &mut self.acked_offset {
            if consumed.record.stream == acked_offset.stream.0.get()
                && position > acked_offset.position
            {
                (acked_offset.position, acked_offset.digest) = (position, digest);
            }
        }
    }

    /// The reports of skipped or dropped messages that the application has not yet acknowledged.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// Removes the reports that `is_seen` selects, and subtracts `dropped` from the number of
    /// dropped reports.
    pub fn forget_reports(&mut self, mut is_seen: impl FnMut(&Report) -> bool, dropped: u64) {
        self.reports.retain(|report| !is_seen(report));
        self.reports_dropped = self.reports_dropped.saturating_sub(dropped);
    }

    /// Adds a report. If there are more than a state image can hold, two reports of the same kind
    /// are merged; without such a pair, the oldest report is dropped and counted.
    pub fn report(&mut self, report: Report) {
        self.reports.push(report);
        if self.reports.len() <= REPORTS_MAX {
            return;
        }
        if let Some((older, newer)) = alike(&self.reports) {
            let newer = self.reports.remove(newer);
            self.reports[older] = united(&self.reports[older], &newer);
        } else {
            self.reports.remove(0);
            self.reports_dropped = self.reports_dropped.saturating_add(1);
        }
    }

    /// Adds all `reports` of skipped or dropped messages; if there are too many, some are merged,
    /// as [`report`](Self::report) describes.
    pub fn report_all(&mut self, reports: Reports) {
        reports.iter().for_each(|report| self.report(report));
    }

    /// For each earlier owner, the position up to which it delivered messages of the received
    /// stream; the latest owner comes last.
    pub fn delivered(&self) -> &[Position] {
        &self.delivered
    }

    /// Records that one more owner delivered everything up to `position`. If the list of such
    /// positions is full, the oldest position is dropped.
    pub fn note_delivered(&mut self, position: Position) {
        if self.delivered.len() >= DELIVERED_MAX {
            self.delivered.remove(0);
        }
        self.delivered.push(position);
    }

    /// Removes the delivered positions of owners that delivered nothing beyond `position`, up to
    /// which all messages are acknowledged.
    pub fn forget_delivered_to(&mut self, position: Position) {
        self.delivered.retain(|delivered| *delivered > position);
    }

    /// Removes the delivered positions of all earlier owners, because the link now receives another
    /// stream.
    pub fn forget_delivered(&mut self) {
        self.delivered.clear();
    }
}

impl Default for DurableState {
    fn default() -> Self {
        Self::new()
    }
}

fn outgoing(state: &StateImage, tail: Position) -> Result<Option<Outgoing>, FileFault> {
    let Some(stream) = StreamId::new(state.sending_stream.get()) else { return Ok(None) };
    let (base, acked) = (state.sending_base.get(), state.sending_acked.get());
    let what = "the records end before what was acknowledged";
    Outgoing::found(stream, Position(base), Position(acked), tail)
        .map(Some)
        .ok_or(FileFault::Contradiction { what, found: tail.0 })
}

fn direction(is_receiving: bool) -> Direction {
    if is_receiving { Direction::Incoming } else { Direction::Outgoing }
}

fn quarantine_number(quarantine: Quarantine) -> u32 {
    let receiving = match quarantine.direction {
        Direction::Incoming => QUARANTINE_RECEIVING,
        Direction::Outgoing => 0,
    };
    codec::impossible_number(quarantine.why) | receiving
}

fn report(fields: &ReportFields) -> Option<Report> {
    let flags = fields.flags.get();
    let cause = match fields.kind.get() {
        1 => Cause::Gap,
        2 => Cause::Lost,
        3 => Cause::Undelivered,
        kind => Cause::Quarantined(codec::impossible(u64::from(kind.checked_sub(3)?))?),
    };
    let known_to = Position(fields.to.get());
    let span = Span {
        from: Position(fields.from.get()),
        to: (flags & REPORT_OPEN == 0).then_some(known_to),
        known_to,
        exact: flags & REPORT_INEXACT == 0,
    };
    Some(Report {
        direction: direction(flags & REPORT_RECEIVING != 0),
        cause,
        epoch: Epoch(fields.epoch.get()),
        stream: StreamId::new(fields.stream.get()),
        span,
    })
}

/// Encodes a report into the fields of a state image. A span (the range of positions that the
/// report is about) whose end is unknown is encoded as inexact.
fn report_fields(report: &Report) -> ReportFields {
    let span = &report.span;
    let mut flags = 0;
    if report.direction == Direction::Incoming {
        flags |= REPORT_RECEIVING;
    }
    if !span.exact || span.to.is_none() {
        flags |= REPORT_INEXACT;
    }
    if span.to.is_none() {
        flags |= REPORT_OPEN;
    }
    let kind = match report.cause {
        Cause::Gap => 1,
        Cause::Lost => 2,
        Cause::Undelivered => 3,
        Cause::Quarantined(why) => 3 + codec::impossible_number(why),
    };
    let to = span.to.unwrap_or(span.known_to).max(span.from);
    ReportFields {
        kind: U32::new(kind),
        flags: U32::new(flags),
        epoch: U64::new(report.epoch.0),
        stream: U64::new(codec::stream_number(report.stream)),
        from: U64::new(span.from.0),
        to: U64::new(to.0),
    }
}

/// Returns the indices of the first two reports that can be merged; `None` if no two reports can.
fn alike(reports: &[Report]) -> Option<(usize, usize)> {
    let kind = |report: &Report| (report.direction, report.cause, report.epoch, report.stream);
    reports.iter().enumerate().find_map(|(older, one)| {
        let newer = reports.iter().skip(older + 1).position(|other| kind(one) == kind(other))?;
        Some((older, older + 1 + newer))
    })
}

/// Merges two reports of the same kind into one whose range covers every position of either report.
fn united(one: &Report, other: &Report) -> Report {
    let (a, b) = (&one.span, &other.span);
    let (first, second) = if a.from <= b.from { (a, b) } else { (b, a) };
    let touch = first.to.is_some_and(|end| end >= second.from);
    let span = Span {
        from: first.from,
        to: a.to.zip(b.to).map(|(a, b)| a.max(b)),
        known_to: a.known_to.max(b.known_to),
        exact: a.exact && b.exact && touch,
    };
    Report { span, ..*one }
}

#[cfg(test)]
mod tests;
