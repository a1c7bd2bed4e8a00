// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a link tells at once: names, how it stands, epochs, reports. It is all as in [`crate::Link`].

use bytes::Bytes;

use super::handle::Link;
use crate::{
    EpochError, Event, Key, LinkId, ReportSnapshot, Stats, Status, Stopped, StreamPosition,
};

impl Link {
    /// The three names.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.blocking().key()
    }

    /// Which link of its group it is.
    #[must_use]
    pub fn id(&self) -> LinkId {
        self.blocking().id()
    }

    /// How it stands at this moment.
    #[must_use]
    pub fn status(&self) -> Status {
        self.blocking().status()
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.blocking().stats()
    }

    /// Bytes of the stream that were sent and are not yet known to be consumed: messages, with 16 to 103 bytes for each.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn unconsumed_bytes(&self) -> Result<u64, Stopped> {
        self.blocking().unconsumed_bytes()
    }

    /// Where the next message that is sent will begin: see [`sent_position`](crate::Link::sent_position) there.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn sent_position(&self) -> Result<StreamPosition, Stopped> {
        self.blocking().sent_position()
    }

    /// Up to where what is received was committed; `None` before this end has met a stream of this epoch.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn acked_position(&self) -> Result<Option<StreamPosition>, Stopped> {
        self.blocking().acked_position()
    }

    /// Begins an epoch: both directions are empty again. What was not consumed is dropped, and reported at both ends.
    ///
    /// # Errors
    /// [`EpochError`].
    pub fn begin_epoch(&self, epoch: u64) -> Result<(), EpochError> {
        self.handle.news.act(|| self.blocking().begin_epoch(epoch))
    }

    /// The epoch that this end is in; 0 before any was begun.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn epoch(&self) -> Result<u64, Stopped> {
        self.blocking().epoch()
    }

    /// What happened next, if anything did that was not yet told.
    pub fn try_event(&self) -> Option<Event> {
        self.blocking().try_event()
    }

    /// What happened and was not yet told.
    pub fn events(&self) -> Vec<Event> {
        self.blocking().events()
    }

    /// What was skipped or dropped, each range once, oldest first. It is kept with the link until
    /// [`acknowledge_reports`](Self::acknowledge_reports).
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn reports(&self) -> Result<Vec<ReportSnapshot>, Stopped> {
        self.blocking().reports()
    }

    /// These were taken notice of, as [`reports`](Self::reports) gave them, and need not be kept. One that has become part of a larger
    /// one meanwhile, because there was no more room, stays with that one.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn acknowledge_reports(&self, reports: &[ReportSnapshot]) -> Result<(), Stopped> {
        self.blocking().acknowledge_reports(reports)
    }

    /// How many more reports there were, for which there was no room.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn reports_dropped(&self) -> Result<u64, Stopped> {
        self.blocking().reports_dropped()
    }

    /// So many of those that found no room were taken notice of.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn acknowledge_dropped_reports(&self, count: u64) -> Result<(), Stopped> {
        self.blocking().acknowledge_dropped_reports(count)
    }

    /// How many owners this end has had, this one included: always 1 if it is not kept in a file.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn incarnation(&self) -> Result<u64, Stopped> {
        self.blocking().incarnation()
    }

    /// Clients: what the server's application said with the last connection; empty before there was one.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn login_reply(&self) -> Result<Bytes, Stopped> {
        self.blocking().login_reply()
    }

    fn blocking(&self) -> &crate::Link {
        &self.handle.link
    }
}
