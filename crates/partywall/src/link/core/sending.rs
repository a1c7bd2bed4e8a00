// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the application: into the ring, where they stay until the neighbour has consumed them.

use partywall_layout::seeded_fault;
use partywall_reconcile::{Mark, Position};

use super::Core;
use crate::link::retained::Refused;

/// A message was not taken; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendFault {
    /// As much as may be kept lies here unconsumed.
    Full,
    /// It never fits.
    TooLarge {
        /// The largest that does.
        max: usize,
    },
    /// The open batch would be more than half the ring.
    BatchFull,
    /// The link keeps what it has, and takes no more: it is in quarantine, or fenced.
    Stopped,
}

impl Core {
    /// Takes a message; it says how far was consumed, too.
    pub(crate) fn send(&mut self, parts: &[&[u8]]) -> Result<Position, SendFault> {
        self.send_with(parts, self.books.mark)
    }

    pub(super) fn send_with(
        &mut self,
        parts: &[&[u8]],
        mark: Option<Mark>,
    ) -> Result<Position, SendFault> {
        let end = self.append(parts, mark)?;
        if !seeded_fault("link_unpublished_now_and_then") || end.0 % 4096 > 256 {
            self.publish();
        }
        Ok(end)
    }

    /// Takes a message into the open batch, which nobody sees before `publish`.
    pub(crate) fn append_to_batch(&mut self, parts: &[&[u8]]) -> Result<Position, SendFault> {
        self.append(parts, self.books.mark)
    }

    /// The open batch is sent, all at once.
    pub(crate) fn publish(&mut self) {
        self.retained.publish();
        if let Some(told) = self.life.to_be_told.take() {
            self.life.told = self.life.told.max(told);
            self.inbox.slab_told();
        }
    }

    /// The neighbour was told of what is published: a moment to prepare for the next.
    pub(crate) fn prepare_ahead(&mut self) {
        self.retained.prepare_ahead();
    }

    /// The open batch never was.
    pub(crate) fn abort(&mut self) {
        self.life.to_be_told = None;
        self.retained.abort();
    }

    fn append(&mut self, parts: &[&[u8]], mark: Option<Mark>) -> Result<Position, SendFault> {
        if self.life.is_fenced || self.books.quarantine.is_some() {
            return Err(SendFault::Stopped);
        }
        loop {
            match self.retained.append(parts, mark) {
                Ok(end) => {
                    // It says so itself, on the present connection.
                    let told = self.life.active.and(mark).map(|mark| mark.position);
                    self.life.to_be_told = told.or(self.life.to_be_told);
                    return Ok(end);
                }
                Err(Refused::TooLarge { max, .. }) => return Err(SendFault::TooLarge { max }),
                Err(Refused::BatchFull) => return Err(SendFault::BatchFull),
                Err(Refused::Full) if self.trim() || self.hear_consumed() && self.trim() => {}
                Err(Refused::Full) => return Err(SendFault::Full),
            }
        }
    }

    /// Gives up what was acknowledged, in one commit; `false` if that is nothing.
    fn trim(&mut self) -> bool {
        let Some(base) = self.retained.trim_to() else { return false };
        // What a record that goes has committed is in the state from here on: `books.mark` is up to date.
        if !seeded_fault("link_base_not_committed") {
            self.commit_base(base);
        }
        self.retained.trimmed(base);
        true
    }

    /// Up to where the neighbour has consumed, as far as is known.
    pub(crate) fn acked(&self) -> Position {
        self.retained.acked()
    }

    /// The end of what was sent.
    pub(crate) fn tail(&self) -> Position {
        self.retained.tail()
    }
}
