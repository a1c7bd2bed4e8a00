// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the two streams of a link stand, for who keeps something of its own beside them.

use partywall_reconcile::{AckedOffset, Position, StreamId};

use super::LinkState;

impl LinkState {
    /// The stream that is sent, and the end of what was sent.
    pub(crate) fn sent_to(&self) -> (StreamId, Position) {
        (self.retained.stream(), self.retained.tail())
    }

    /// How far was consumed; `None` before any stream of this epoch is known.
    pub(crate) fn acked_offset(&self) -> Option<AckedOffset> {
        self.durable.acked_offset
    }
}
