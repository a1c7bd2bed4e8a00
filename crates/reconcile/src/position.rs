// SPDX-License-Identifier: MIT OR Apache-2.0
//! Positions in a stream, acked offsets, and the watermarks of one direction (SPEC 12.1, 12.5).
//!
//! ```text
//!  position  0          64         128        192
//!            |record A  |record B  |record C  |
//!  digest    0          crc of A   crc of B   crc of C
//!
//!  sender                                receiver                                 sender
//!  base ─trim─▶ acked ─acknowledge─▶ … consumed ─consume─▶ received ─arrive─▶ … tail ─append─▶
//! ```
//!
//! `base ≤ acked ≤ consumed ≤ received ≤ tail` holds in every state. Each side checks its own part
//! at each move, and the peer's claims against it. A move either happens or changes nothing.
//!
//! A position never repeats within a stream. Nothing here knows how long a record may be.

use crate::identity::StreamId;

/// An absolute position in one stream, in bytes of footprint since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// Where every stream begins.
    pub const START: Self = Self(0);

    /// The position `bytes` further on, or `None` beyond the last one there is.
    ///
    /// ```
    /// use partywall_reconcile::Position;
    /// assert_eq!(Position(64).plus(64), Some(Position(128)));
    /// assert_eq!(Position(u64::MAX).plus(1), None);
    /// ```
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(position) => Some(Self(position)),
            None => None,
        }
    }

    /// How many bytes `self` lies beyond `earlier`; 0 if it does not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The bytes from one position up to, and without, another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    from: Position,
    to: Position,
}

impl Range {
    /// The bytes `from..to`, or `None` if they run backwards.
    ///
    /// ```
    /// use partywall_reconcile::{Position, Range};
    /// assert!(Range::new(Position(64), Position(64)).is_some_and(|range| range.is_empty()));
    /// assert!(Range::new(Position(64), Position(0)).is_none());
    /// ```
    #[must_use]
    pub const fn new(from: Position, to: Position) -> Option<Self> {
        if from.0 <= to.0 { Some(Self { from, to }) } else { None }
    }

    /// The bytes `from..to`, or none at `from` if they would run backwards.
    #[must_use]
    pub const fn clamped(from: Position, to: Position) -> Self {
        Self { from, to: if from.0 <= to.0 { to } else { from } }
    }

    /// The position of the first byte.
    #[must_use]
    pub const fn from(&self) -> Position {
        self.from
    }

    /// The position after the last byte.
    #[must_use]
    pub const fn to(&self) -> Position {
        self.to
    }

    /// The length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.to.since(self.from)
    }

    /// Whether the range holds no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.from.0 == self.to.0
    }
}

/// Identifies the record that ends at a position, by its crc32c; 0 at the start of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordDigest(pub u32);

impl RecordDigest {
    /// The digest at the start of every stream, where no record ends.
    pub const START: Self = Self(0);
}

/// A position of a named stream, with the digest there: how far a receiver has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckedOffset {
    /// The id of the stream.
    pub stream: StreamId,
    /// Everything below this position is acknowledged.
    pub position: Position,
    /// The digest of the record that ends there.
    pub digest: RecordDigest,
}

/// An acknowledgement that a reply stores when it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prepared {
    /// The acked offset once the reply is published.
    pub acked_offset: AckedOffset,
    /// Where the reply begins, in this side's own stream.
    pub reply_at: Position,
}

/// How far this side had acknowledged when it ended, perhaps in the middle of a commit (SPEC 12.5).
///
/// ```text
///  acknowledge alone      stored := acked offset
///  reply                  the reply's one publishing store   │ does both: the reply has the offset
///                         stored := acked offset             │ any time before it is trimmed
/// ```
///
/// The caller makes [`Prepared`] of the last own published record that carries an acked offset of
/// the stored one's stream. The record carries the digest too: after a crash it is nowhere else,
/// because the record that it identifies is the peer's. `ack_at` gives the `ack_pos` of the own
/// published record at a position, if there is one.
///
/// The highest acknowledgement that the peer saw is *not* used. If this store was replaced by an
/// older copy, that would silently skip messages which the application here has forgotten.
///
/// ```
/// use partywall_reconcile::{AckedOffset, Position, Prepared, RecordDigest, StreamId, recover};
/// let stream = StreamId::new(7).ok_or("zero")?;
/// let at = |position, digest| {
///     let (position, digest) = (Position(position), RecordDigest(digest));
///     AckedOffset { stream, position, digest }
/// };
/// let prepared = Prepared { acked_offset: at(64, 9), reply_at: Position(128) };
/// assert_eq!(recover(Some(at(0, 0)), Some(prepared), |_| None), Some(at(0, 0)));
/// let published = recover(Some(at(0, 0)), Some(prepared), |_| Some(Position(64)));
/// assert_eq!(published, Some(at(64, 9)));
/// # Ok::<(), &'static str>(())
/// ```
#[must_use]
pub fn recover(
    stored: Option<AckedOffset>,
    prepared: Option<Prepared>,
    ack_at: impl FnOnce(Position) -> Option<Position>,
) -> Option<AckedOffset> {
    let (Some(old), Some(new)) = (stored, prepared) else { return stored };
    if new.acked_offset.stream != old.stream || new.acked_offset.position <= old.position {
        return stored;
    }
    match ack_at(new.reply_at) {
        Some(ack) if ack >= new.acked_offset.position => Some(new.acked_offset),
        _ => stored,
    }
}

/// Whether an ACK is due, on a transport where the sender cannot read the acked offset itself (SPEC
/// 12.5).
///
/// ```text
///  acked ────────── consumed ───── received
///  └ a quarter of the window: due ┘
///  └ anything, and nothing is left to consume: due
/// ```
///
/// `acked` is the last position sent on this connection, in the view, an ACK or a record. `window`
/// is the sender's, in bytes. `drained`: no received message is left to consume. An ACK needs no
/// room for data, so a sender whose window is full gets one at the latest when its receiver has
/// consumed everything.
///
/// ```
/// use partywall_reconcile::{Position, is_ack_due};
/// assert!(!is_ack_due(4096, Position(0), Position(512), false));
/// assert!(is_ack_due(4096, Position(0), Position(1024), false));
/// assert!(is_ack_due(4096, Position(0), Position(64), true));
/// ```
#[must_use]
pub const fn is_ack_due(window: u64, acked: Position, consumed: Position, drained: bool) -> bool {
    let unacked = consumed.since(acked);
    unacked > 0 && (drained || unacked >= window / QUARTER)
}

/// The consumed position from which on an ACK [is due](is_ack_due), even if more is left to consume.
///
/// ```
/// use partywall_reconcile::{Position, ack_due_at, is_ack_due};
/// let due = ack_due_at(4096, Position(64));
/// assert!(is_ack_due(4096, Position(64), due, false));
/// assert!(!is_ack_due(4096, Position(64), Position(due.0 - 1), false));
/// ```
#[must_use]
pub const fn ack_due_at(window: u64, acked: Position) -> Position {
    let quarter = window / QUARTER;
    Position(acked.0.saturating_add(if quarter == 0 { 1 } else { quarter }))
}

/// The sender's watermarks of its stream.
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

    /// The id of the stream.
    #[must_use]
    #[inline]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// The position of the first record that is kept.
    #[must_use]
    #[inline]
    pub const fn base(&self) -> Position {
        self.base
    }

    /// How far the receiver has acknowledged, as far as this side knows.
    #[must_use]
    #[inline]
    pub const fn acked(&self) -> Position {
        self.acked
    }

    /// The position of the next record.
    #[must_use]
    #[inline]
    pub const fn tail(&self) -> Position {
        self.tail
    }

    /// Takes `footprint` bytes for a record, and returns its position.
    ///
    /// # Errors
    /// [`Full`], if more than `window` bytes would be kept: acknowledged records have to be trimmed
    /// first.
    pub fn append(&mut self, footprint: u64, window: u64) -> Result<Position, Full> {
        let end = self.tail.plus(footprint).ok_or(Full)?;
        if end.since(self.base) > window {
            return Err(Full);
        }
        Ok(core::mem::replace(&mut self.tail, end))
    }

    /// Applies an acknowledgement of `stream` up to `position`: from an ACK, the peer's memory, or
    /// a view.
    ///
    /// An older acknowledgement changes nothing.
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

    /// Frees acknowledged records up to `position`, and returns the range that they took.
    ///
    /// # Errors
    /// [`NotAcked`] beyond the last acknowledgement; nothing was changed.
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

/// The receiver may still need these records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAcked;

/// Why an acknowledgement is not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckUnfit {
    /// It is of another stream, from before an epoch or a loss, and is dropped.
    OtherStream,
    /// It is of records that were never written: a violation.
    BeyondTail,
}

/// The receiver's watermarks of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incoming {
    consumed: Position,
    received: Position,
}

/// How a record that arrives relates to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is the next one.
    Next,
    /// It arrived before: drop it.
    Known,
}

impl Incoming {
    /// A receiver that has consumed up to a position and holds nothing beyond it.
    #[must_use]
    #[inline]
    pub const fn at(consumed: Position) -> Self {
        Self { consumed, received: consumed }
    }

    /// Everything below this position is consumed.
    #[must_use]
    #[inline]
    pub const fn consumed(&self) -> Position {
        self.consumed
    }

    /// Everything below this position has arrived.
    #[must_use]
    #[inline]
    pub const fn received(&self) -> Position {
        self.received
    }

    /// Takes a record that lies at `position`, on the present connection.
    ///
    /// # Errors
    /// [`OutOfOrder`], a violation: it leaves a gap, overlaps records before it, or has no end.
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

/// A record is not at the position of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfOrder;

/// No received message ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReceived;

/// This part of the window is acknowledged before the receiver is drained.
const QUARTER: u64 = 4;
