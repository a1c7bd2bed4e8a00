// SPDX-License-Identifier: MIT OR Apache-2.0
//! The watermarks of one direction, and the only moves there are (SPEC 12.1).
//!
//! ```text
//!  sender                                     receiver
//!  base ──trim──▶ acked ──acknowledge──▶ … consumed ──consume──▶ received ──arrive──▶ … tail ──append──▶
//! ```
//!
//! `base ≤ acked ≤ consumed ≤ received ≤ tail` holds in every state: each side checks its own part at each
//! move, and the neighbour's word against it. Each move either happens or changes nothing.

use crate::identity::StreamId;
use crate::position::{Position, Range};

/// What a sender knows of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outgoing {
    stream: StreamId,
    base: Position,
    acked: Position,
    tail: Position,
}

impl Outgoing {
    /// A new stream: empty, at position 0.
    #[must_use]
    #[inline]
    pub const fn new(stream: StreamId) -> Self {
        Self { stream, base: Position::START, acked: Position::START, tail: Position::START }
    }

    /// A stream as it was found in a file; `None` unless base ≤ acked ≤ tail.
    #[must_use]
    #[inline]
    pub const fn found(
        stream: StreamId,
        base: Position,
        acked: Position,
        tail: Position,
    ) -> Option<Self> {
        if base.0 > acked.0 || acked.0 > tail.0 {
            return None;
        }
        Some(Self { stream, base, acked, tail })
    }

    /// The stream.
    #[must_use]
    #[inline]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// The first position that is kept.
    #[must_use]
    #[inline]
    pub const fn base(&self) -> Position {
        self.base
    }

    /// Up to where the receiver has consumed, as far as is known here.
    #[must_use]
    #[inline]
    pub const fn acked(&self) -> Position {
        self.acked
    }

    /// Where the next record goes.
    #[must_use]
    #[inline]
    pub const fn tail(&self) -> Position {
        self.tail
    }

    /// Takes `footprint` bytes for a record, and says where.
    ///
    /// # Errors
    /// [`Full`], if more than `window` bytes would be kept: what was acknowledged has to be trimmed first.
    pub fn append(&mut self, footprint: u64, window: u64) -> Result<Position, Full> {
        let end = self.tail.plus(footprint).ok_or(Full)?;
        if end.since(self.base) > window {
            return Err(Full);
        }
        Ok(core::mem::replace(&mut self.tail, end))
    }

    /// Hears that the receiver has consumed `stream` up to `position`: from an ACK, from the neighbour's half, or from
    /// a view. What was heard before is no news and changes nothing.
    ///
    /// # Errors
    /// [`AckUnfit`]; nothing was changed.
    pub fn acknowledge(&mut self, stream: StreamId, position: Position) -> Result<(), AckUnfit> {
        if stream != self.stream {
            return Err(AckUnfit::OtherStream);
        }
        if position > self.tail {
            return Err(AckUnfit::BeyondTail);
        }
        self.acked = self.acked.max(position);
        Ok(())
    }

    /// Gives up what was acknowledged, up to `position`, and says which range that was.
    ///
    /// # Errors
    /// [`NotAcked`] beyond what was acknowledged; nothing was changed.
    pub fn trim(&mut self, position: Position) -> Result<Range, NotAcked> {
        if position > self.acked {
            return Err(NotAcked);
        }
        let range = Range::clamped(self.base, position);
        self.base = range.to();
        Ok(range)
    }
}

/// There is no room in the window, or no position left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The receiver may still need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAcked;

/// Why an acknowledgement is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckUnfit {
    /// It is of another stream, from before an epoch or a loss: dropped.
    OtherStream,
    /// Of what was never written: a violation.
    BeyondTail,
}

/// What a receiver knows of the stream it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incoming {
    consumed: Position,
    received: Position,
}

/// What a record that arrives is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The next one.
    Next,
    /// Known already: drop it.
    Known,
}

impl Incoming {
    /// A receiver that has consumed up to a position and holds nothing beyond it.
    #[must_use]
    #[inline]
    pub const fn at(consumed: Position) -> Self {
        Self { consumed, received: consumed }
    }

    /// Everything below was consumed.
    #[must_use]
    #[inline]
    pub const fn consumed(&self) -> Position {
        self.consumed
    }

    /// Everything below has arrived.
    #[must_use]
    #[inline]
    pub const fn received(&self) -> Position {
        self.received
    }

    /// Takes a record that lies at `position`, on the present connection.
    ///
    /// # Errors
    /// [`OutOfOrder`], a violation: it leaves something out, overlaps with what is known, or has no end.
    #[inline]
    pub fn arrive(&mut self, position: Position, footprint: u64) -> Result<Arrival, OutOfOrder> {
        let end = position.plus(footprint).ok_or(OutOfOrder)?;
        if end == position || position > self.received {
            return Err(OutOfOrder);
        }
        if position == self.received {
            self.received = end;
            return Ok(Arrival::Next);
        }
        if end <= self.received { Ok(Arrival::Known) } else { Err(OutOfOrder) }
    }

    /// Consumes up to `position`.
    ///
    /// # Errors
    /// [`NotReceived`] if that goes back, or beyond what has arrived; nothing was changed.
    #[inline]
    pub fn consume(&mut self, position: Position) -> Result<(), NotReceived> {
        if position < self.consumed || position > self.received {
            return Err(NotReceived);
        }
        self.consumed = position;
        Ok(())
    }
}

/// A record is not where the next one has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfOrder;

/// There is nothing there to be consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReceived;
