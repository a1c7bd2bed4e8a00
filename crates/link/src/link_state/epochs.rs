// SPDX-License-Identifier: MIT OR Apache-2.0
//! Epochs, skips, quarantine: what the application is told, each once and in one commit with what it is about (SPEC 12.3, 12.4).

use partywall_layout::seeded_fault;
use partywall_reconcile::{
    Cause, Direction, Epoch, Impossible, Outgoing, Past, RecordDigest, Report, Reports, Skip, Span,
    StreamId, epoch, skip,
};

use super::LinkState;
use crate::event::Event;
use crate::store::Quarantine;

/// An epoch does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link is in epoch {present}: a new one must be higher")]
pub struct StaleEpoch {
    /// Where it is.
    pub present: u64,
}

impl LinkState {
    /// The application begins an epoch: empty streams. Every connection is over.
    pub(crate) fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), StaleEpoch> {
        if epoch <= self.durable.epoch {
            return Err(StaleEpoch { present: self.durable.epoch.0 });
        }
        // Over shared memory nobody tells; it lies there.
        self.hear_consumed();
        let settlement = epoch::leave(self.live(), self.durable.past);
        self.enter(epoch, settlement.past, settlement.reports);
        Ok(())
    }

    /// The neighbour is in a higher one.
    pub(super) fn adopt(&mut self, epoch: Epoch, theirs: Option<Past>) {
        self.hear_consumed();
        let settlement = epoch::adopt(self.live(), self.durable.past, theirs);
        self.enter(epoch, settlement.past, settlement.reports);
    }

    fn enter(&mut self, epoch: Epoch, past: Option<Past>, reports: Reports) {
        let stream = self.other_stream();
        self.durable.epoch = epoch;
        self.durable.past = past;
        self.durable.acked_offset = None;
        self.durable.forget_delivered();
        if !seeded_fault("link_epoch_unreported") {
            self.report(reports);
        }
        self.durable.outgoing = Some(Outgoing::new(stream));
        self.durable.base_digest = RecordDigest::START;
        self.retained.end(stream);
        // From this commit on it is the new stream's ring, whatever lies in it.
        self.memory.commit(&self.durable);
        self.memory.show_stream(stream);
        self.retained.begin(stream);
        self.inbox.forget();
        self.life.peer = None;
        self.life.active = None;
        self.shm = None;
        self.life.decided = None;
        self.life.acks_from = None;
        self.life.tell(Event::Epoch { epoch: epoch.0 });
    }

    /// Learns of a skip that the neighbour has made of what was sent here; one commit if that is news.
    pub(super) fn learn(&mut self, skip: Option<Skip>) {
        if self.note_skip(skip) {
            self.commit();
        }
    }

    /// The same, for whoever commits.
    pub(super) fn note_skip(&mut self, skip: Option<Skip>) -> bool {
        let before = self.durable.past.and_then(|past| past.sending).map(|sent| sent.stream);
        let mine = [Some(self.retained.stream()), before];
        let Some(reports) = skip::learn(skip, self.durable.told, &mine) else { return false };
        self.durable.told = skip;
        self.report(reports);
        true
    }

    /// All bytes are kept until a person decides.
    pub(super) fn quarantine(&mut self, direction: Direction, why: Impossible) {
        if self.durable.quarantine.is_some() {
            return;
        }
        self.durable.quarantine = Some(Quarantine { direction, why });
        let (from, known_to) = match direction {
            Direction::Outgoing => (self.retained.base(), self.retained.tail()),
            Direction::Incoming => (self.inbox.consumed(), self.inbox.received()),
        };
        let span = Span { from, to: None, known_to, exact: false };
        let cause = Cause::Quarantined(why);
        self.durable.report(Report {
            direction,
            cause,
            epoch: self.durable.epoch,
            stream: None,
            span,
        });
        self.commit();
        self.life.tell(Event::Quarantined);
    }

    /// For the application, in the next commit.
    pub(super) fn report(&mut self, reports: Reports) {
        for report in reports.iter() {
            self.durable.report(report);
        }
    }

    /// What was skipped or dropped, and is not yet taken notice of.
    pub(crate) fn reports(&self) -> &[Report] {
        self.durable.reports()
    }

    /// How many found no room.
    pub(crate) fn reports_dropped(&self) -> u64 {
        self.durable.reports_dropped
    }

    /// The application has taken notice of those that `is_seen` knows, and of so many that were dropped.
    pub(crate) fn reports_seen(&mut self, is_seen: impl FnMut(&Report) -> bool, dropped: u64) {
        let before = (self.durable.reports().len(), self.durable.reports_dropped);
        self.durable.forget_reports(is_seen, dropped);
        if before != (self.durable.reports().len(), self.durable.reports_dropped) {
            self.commit();
        }
    }

    /// A stream whose records cannot be taken for those of the present one.
    fn other_stream(&self) -> StreamId {
        loop {
            let stream = new_stream();
            if self.retained.is_told_from(stream) {
                return stream;
            }
        }
    }
}

/// A number that no other stream has.
pub(super) fn new_stream() -> StreamId {
    loop {
        let number = super::attach::chance();
        if let Some(stream) = StreamId::new(number) {
            return stream;
        }
    }
}
