// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a link stands, for whoever drives it.

use super::LinkState;
use crate::event::Event;

impl LinkState {
    /// Whether a later owner has taken the place of this one.
    pub(crate) fn is_fenced(&self) -> bool {
        self.life.is_fenced
    }

    /// Whether all bytes are kept until a person decides.
    pub(crate) fn is_quarantined(&self) -> bool {
        self.durable.quarantine.is_some()
    }

    /// What the neighbour's application said at login.
    pub(crate) fn login(&self) -> &[u8] {
        &self.life.login
    }

    /// Whether there is a message that the application has not had.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        !self.inbox.is_drained()
    }

    /// Whether the peer closed its end in good order, and everything that it had sent was handed out. A later connection may
    /// have brought more: then the peer has not finished.
    pub(crate) fn has_finished(&self) -> bool {
        let received = (self.inbox.stream(), self.inbox.received());
        self.life.finished_at == Some(received) && !self.has_next()
    }

    /// The same, and the application learns of it: once for each time that the peer closed its end.
    pub(crate) fn take_finished(&mut self) -> bool {
        let has_finished = self.has_finished();
        if has_finished {
            self.life.finished_at = None;
        }
        has_finished
    }

    /// What the application has not been told.
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        self.life.events.pop_front()
    }

    /// For the application.
    pub(crate) fn tell(&mut self, event: Event) {
        self.life.tell(event);
    }
}
