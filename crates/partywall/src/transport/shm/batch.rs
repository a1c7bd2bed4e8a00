// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that appear all at once: records of an open batch are written to the ring, but the word
//! that makes the first of them exist is stored last (SPEC 4.5).
//!
//! A batch takes at most half the ring. It may wait for room half-way, because what lies before it is
//! the receiver's to consume; it may not wait for memory that only it holds.

use super::sender::ShmSender;
use crate::error::{Limit, TooLarge};
use crate::transport::Unsent;
use partywall_layout::record_ring::BlobBody;

impl ShmSender {
    /// Adds a message to the open batch.
    pub(crate) fn add_to_batch(&mut self, payload: &[u8]) -> Result<(), Unsent> {
        self.check()?;
        // The batch may also have to carry what we owe.
        let room = self.producer.size().batch_max().saturating_sub(self.growth.pending_bytes_max());
        let needed =
            partywall_layout::record_ring::footprint(if payload.len() <= self.inline_max {
                payload.len() as u64
            } else {
                size_of::<BlobBody>() as u64
            });
        if self.producer.open_bytes() + needed > room {
            let (len, max) =
                (payload.len() as u64, room.saturating_sub(self.producer.open_bytes()));
            return Err(Unsent::TooLarge(TooLarge { len, max, limit: Limit::Batch }));
        }
        match self.add(payload) {
            // All memory is held by this very batch: nothing will ever come home for it.
            Err(Unsent::Full)
                if payload.len() > self.inline_max
                    && self.producer.has_room(size_of::<BlobBody>()) == Ok(true)
                    && !self.batch_blocks.is_empty()
                    && self.slab.in_flight() == self.batch_blocks.len() as u64 =>
            {
                let len = payload.len() as u64;
                Err(Unsent::TooLarge(TooLarge { len, max: 0, limit: Limit::Batch }))
            }
            Err(unsent) => Err(unsent),
            Ok(()) => {
                self.count(payload.len());
                Ok(())
            }
        }
    }

    /// Sends the open batch.
    pub(crate) fn commit_batch(&mut self) -> Result<(), Unsent> {
        self.check()?;
        self.publish()
    }

    /// Forgets the open batch.
    pub(crate) fn abort_batch(&mut self) {
        if self.shm.connection_state.guard.is_owner() {
            self.roll_back();
        }
    }
}
