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

    /// What the application has not been told.
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        self.life.events.pop_front()
    }

    /// For the application.
    pub(crate) fn tell(&mut self, event: Event) {
        self.life.tell(event);
    }
}
