// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the application: into the ring, where they stay until the neighbour has consumed them.
//!
//! ```text
//!   over a socket           DATA     says how far was consumed
//!   over shared memory      BARE     the mark lies in the consumed record since before, and the neighbour reads it there
//!   a reply, anywhere       DATA     commits what it answers (SPEC 12.5)
//! ```

use partywall_layout::seeded_fault;
use partywall_reconcile::{AckedOffset, Position};

use super::LinkState;
use crate::retained::{Refused, join, len_of};

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

/// Where it is said how far this side has consumed, as of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Saying {
    /// In its record.
    Here(Option<AckedOffset>),
    /// In the consumed record, which the neighbour reads: the message's needs not.
    Elsewhere,
}

impl LinkState {
    /// Takes a message; it says how far was consumed, too.
    #[inline(always)]
    pub(crate) fn send(&mut self, parts: &[&[u8]]) -> Result<Position, SendFault> {
        self.send_with(len_of(parts), |room| join(parts, room))
    }

    /// Takes a message of `len` bytes that `fill` writes, every one of them; if it is not taken, `fill` was not called.
    #[inline(always)]
    pub(crate) fn send_with(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Position, SendFault> {
        let saying = self.saying();
        self.send_saying(len, fill, saying)
    }

    #[inline(always)]
    pub(super) fn send_saying(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        saying: Saying,
    ) -> Result<Position, SendFault> {
        let end = self.append(len, fill, saying)?;
        if !seeded_fault("link_unpublished_now_and_then") || end.0 % 4096 > 256 {
            self.publish();
        }
        Ok(end)
    }

    /// Takes a message into the open batch, which nobody sees before `commit`.
    pub(crate) fn append_to_batch(&mut self, parts: &[&[u8]]) -> Result<Position, SendFault> {
        let saying = self.saying();
        self.append(len_of(parts), |room| join(parts, room), saying)
    }

    /// The open batch is sent, all at once.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        self.retained.publish();
        if let Some(told) = self.life.to_be_told.take() {
            self.life.told = self.life.told.max(told);
            self.inbox.slab_told();
        }
    }

    /// The neighbour was told of what is published: a moment to prepare for the next.
    #[inline]
    pub(crate) fn prepare_ahead(&mut self) {
        self.retained.prepare_ahead();
    }

    /// The open batch never was.
    pub(crate) fn abort(&mut self) {
        self.life.to_be_told = None;
        self.retained.abort();
    }

    /// What a message has to say that commits nothing.
    ///
    /// While the neighbour reads this memory, the mark lies in its consumed record, whatever moved it: each commit stores it
    /// there first, each reply before it returns, and a skip or a recovery did before the wall was there (SPEC 16.5).
    #[inline(always)]
    fn saying(&self) -> Saying {
        if self.is_shared() { Saying::Elsewhere } else { Saying::Here(self.durable.acked_offset) }
    }

    #[inline(always)]
    fn append(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        saying: Saying,
    ) -> Result<Position, SendFault> {
        if self.life.is_fenced || self.durable.quarantine.is_some() {
            return Err(SendFault::Stopped);
        }
        if let Saying::Elsewhere = saying {
            if let Ok(Some(begin)) = self.retained.place_short_compact(len) {
                return Ok(self.retained.append_short_compact(begin, len, fill));
            }
        }
        self.append_any(len, fill, saying)
    }

    /// The same, whatever it takes.
    #[inline(never)]
    fn append_any(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        saying: Saying,
    ) -> Result<Position, SendFault> {
        let (ack, is_said) = match saying {
            Saying::Here(acked_offset) => (acked_offset, false),
            Saying::Elsewhere => (self.durable.acked_offset, true),
        };
        loop {
            // Short and BARE is one of the places.
            match self.retained.place(len, is_said) {
                Ok(place) => {
                    let end = self.retained.append_placed(place, len, fill, ack);
                    if !is_said {
                        // It says so itself, on the present connection.
                        let told =
                            self.life.active.and(ack).map(|acked_offset| acked_offset.position);
                        self.life.to_be_told = told.or(self.life.to_be_told);
                    }
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
        // What a record that goes has committed is in the state from here on: `durable.acked_offset` is up to date.
        if !seeded_fault("link_base_not_committed") {
            self.commit_base(base);
        }
        self.retained.trimmed(base);
        true
    }

    /// Up to where the neighbour has consumed, as far as is known.
    #[inline]
    pub(crate) fn acked(&self) -> Position {
        self.retained.acked()
    }

    /// The end of what was sent.
    #[inline]
    pub(crate) fn tail(&self) -> Position {
        self.retained.tail()
    }
}
