// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has arrived and is not yet consumed.
//!
//! ```text
//!   consumed          handed out          received
//!   ├─────────────────┼───────────────────┤ position
//!   │ until it is committed │ for the application
//! ```
//!
//! It holds no more than the neighbour may have under way: what its ring and slab hold.

use std::collections::VecDeque;

use bytes::Bytes;
use partywall_reconcile::watermarks::OutOfOrder;
use partywall_reconcile::{Arrival, Incoming, Mark, Position, Proof, StreamId};

use crate::link::protocol::frame::Window;

/// One message.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) start: Position,
    pub(super) end: Position,
    pub(super) proof: Proof,
    pub(super) bytes: Bytes,
    /// Whether the bytes lay in the neighbour's slab.
    pub(super) in_slab: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Inbox {
    stream: Option<StreamId>,
    incoming: Incoming,
    messages: VecDeque<Arrived>,
    /// How many of them the application has had.
    handed_out: usize,
    slab_bytes: u64,
    /// Bytes of the neighbour's slab that were consumed since it was last told.
    slab_untold: u64,
}

/// More lies here unread than the neighbour said it could have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overfull;

impl Inbox {
    pub(super) fn new(mark: Option<Mark>) -> Self {
        let at = mark.map_or(Position::START, |mark| mark.position);
        Self {
            stream: mark.map(|mark| mark.stream),
            incoming: Incoming::at(at),
            messages: VecDeque::new(),
            handed_out: 0,
            slab_bytes: 0,
            slab_untold: 0,
        }
    }

    /// A stream goes on at a mark, and what is here is not known to be of it.
    pub(super) fn begin(&mut self, mark: Mark) {
        *self = Self::new(Some(mark));
    }

    /// No stream any more.
    pub(super) fn forget(&mut self) {
        *self = Self::new(None);
    }

    pub(super) fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    pub(super) fn stream(&self) -> Option<StreamId> {
        self.stream
    }

    pub(super) fn consumed(&self) -> Position {
        self.incoming.consumed()
    }

    pub(super) fn received(&self) -> Position {
        self.incoming.received()
    }

    /// Bytes of the neighbour's slab that were consumed since it was last told.
    pub(super) const fn slab_untold(&self) -> u64 {
        self.slab_untold
    }

    /// The neighbour is told.
    pub(super) const fn slab_told(&mut self) {
        self.slab_untold = 0;
    }

    /// Whether the application has had all there is.
    pub(super) fn is_drained(&self) -> bool {
        self.handed_out == self.messages.len()
    }

    /// Takes the place of a record. `Known`: what it carries was here before.
    pub(super) fn arrive(&mut self, at: Position, footprint: u64) -> Result<Arrival, OutOfOrder> {
        self.incoming.arrive(at, footprint)
    }

    /// Keeps a message that `arrive` took for the next.
    pub(super) fn keep(&mut self, message: Arrived, window: &Window) -> Result<(), Overfull> {
        if message.in_slab {
            self.slab_bytes = self.slab_bytes.saturating_add(message.bytes.len() as u64);
        }
        let unread = self.received().since(self.consumed());
        if unread > window.ring_bytes || self.slab_bytes > window.slab_bytes {
            return Err(Overfull);
        }
        self.messages.push_back(message);
        Ok(())
    }

    /// The next message that the application has not had.
    pub(super) fn next(&mut self) -> Option<&Arrived> {
        let message = self.messages.get(self.handed_out)?;
        self.handed_out += 1;
        Some(message)
    }

    /// Hands out the last `count` messages again.
    pub(super) fn rewind(&mut self) {
        self.handed_out = 0;
    }

    /// The mark behind the message that ends at `end`, if the application has had it and it is not consumed.
    pub(super) fn mark_at(&self, stream: StreamId, end: Position) -> Option<Mark> {
        if self.stream != Some(stream) {
            return None;
        }
        let handed = self.messages.range(..self.handed_out);
        // Usually the first, or the last.
        let index = match self.messages.front() {
            Some(first) if first.end == end => (self.handed_out > 0).then_some(0)?,
            _ => handed.clone().rposition(|message| message.end == end)?,
        };
        let message = self.messages.get(index)?;
        Some(Mark { stream, position: message.end, proof: message.proof })
    }

    /// Consumes up to a mark that [`mark_at`](Self::mark_at) gave.
    pub(super) fn consume(&mut self, mark: Mark) {
        if self.incoming.consume(mark.position).is_err() {
            return;
        }
        while let Some(first) = self.messages.front() {
            if first.end > mark.position {
                break;
            }
            if first.in_slab {
                let bytes = first.bytes.len() as u64;
                self.slab_bytes = self.slab_bytes.saturating_sub(bytes);
                self.slab_untold = self.slab_untold.saturating_add(bytes);
            }
            self.messages.pop_front();
            self.handed_out = self.handed_out.saturating_sub(1);
        }
    }
}
