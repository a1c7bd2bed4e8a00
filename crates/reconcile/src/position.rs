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
//! An arrow names the move that raises the watermark on its left, at most up to the watermark on
//! its right. `base ≤ acked ≤ consumed ≤ received ≤ tail` holds in every state. Each side checks
//! its own positions at each move, and the peer's claims against these positions. A move either
//! succeeds or changes nothing.
//!
//! A position never repeats within a stream. This file sets no limit on the length of a record.

use crate::identity::StreamId;

/// An absolute position in one stream: the number of bytes that the records before it take in the
/// ring, headers and padding included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The position at which every stream begins.
    pub const START: Self = Self(0);

    /// The position `bytes` further on; `None` if it would exceed the highest position.
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

    /// The number of bytes from `earlier` to `self`; 0 if `self` is before `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A range of a stream: the bytes from one position up to another, which is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    from: Position,
    to: Position,
}

impl Range {
    /// The range `from..to`; `None` if `to` is before `from`.
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

    /// The range `from..to`; the empty range at `from` if `to` is before `from`.
    #[must_use]
    pub const fn clamped(from: Position, to: Position) -> Self {
        Self { from, to: if from.0 <= to.0 { to } else { from } }
    }

    /// The position of the first byte of the range.
    #[must_use]
    pub const fn from(&self) -> Position {
        self.from
    }

    /// The position after the last byte of the range.
    #[must_use]
    pub const fn to(&self) -> Position {
        self.to
    }

    /// The length of the range in bytes.
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

/// The crc32c of the record that ends at a position, which identifies the record; 0 at the start of
/// a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordDigest(pub u32);

impl RecordDigest {
    /// The digest at the start of every stream, where no record ends.
    pub const START: Self = Self(0);
}

/// A position of a named stream, with its digest, up to which a receiver has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckedOffset {
    /// The id of the stream to which the position belongs.
    pub stream: StreamId,
    /// The acknowledged position: every record before it is acknowledged.
    pub position: Position,
    /// The digest of the record that ends at the acknowledged position.
    pub digest: RecordDigest,
}

/// An acknowledgement that becomes valid together with a reply, when the reply is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prepared {
    /// The acked offset that is valid once the reply is published.
    pub acked_offset: AckedOffset,
    /// The position at which the reply begins, in the stream that the receiver itself sends.
    pub reply_at: Position,
}

/// The acked offset that the local side had when its last process ended, perhaps in the middle of
/// an update of its store (SPEC 12.5).
///
/// ```text
///  acknowledgement alone   one update: stored := acked offset
///  with a reply            one store publishes the reply, which carries the acked offset: that
///                          store makes both valid
///                          later, before the reply is trimmed: stored := acked offset
/// ```
///
/// The caller takes [`Prepared`] from the last published record of its own stream that carries an
/// acked offset of the same stream as `stored`. That record carries the digest too. After a crash
/// the digest is nowhere else, because the record that it identifies is the peer's. `ack_at`
/// returns the field `ack_pos`, the acknowledged position, of the published record that begins at a
/// position of the own stream.
///
/// The highest acknowledgement that the peer saw is *not* used. If the local store was replaced by
/// an older copy, using it would silently skip messages that the application has forgotten.
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

/// Whether the receiver should send an ACK, on a transport where the sender cannot read the acked
/// offset itself (SPEC 12.5).
///
/// ```text
///  from acked to consumed: at least a quarter of the window      an ACK is due
///  from acked to consumed: anything, and consumed = received     an ACK is due
/// ```
///
/// `acked` is the last position that the receiver reported on this connection, in the view, an ACK
/// or a record. `window` is the number of bytes that the sender may send without an
/// acknowledgement. `drained`: every received message is consumed. An ACK needs no room for data,
/// so a sender that may send nothing more gets one at the latest when its receiver has consumed
/// everything.
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

/// The consumed position from which on an ACK [is due](is_ack_due), although more is left to
/// consume.
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

/// The watermarks of a stream at its sender: base, acked and tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outgoing {
    stream: StreamId,
    base: Position,
    acked: Position,
    tail: Position,
}

impl Outgoing {
    /// A new stream, which is empty and begins at position 0.
    #[must_use]
    #[inline]
    pub const fn new(stream: StreamId) -> Self {
        Self { stream, base: Position::START, acked: Position::START, tail: Position::START }
    }

    /// A stream whose watermarks were read from a file; `None` unless base ≤ acked ≤ tail.
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

    /// The id of the stream that has these watermarks.
    #[must_use]
    #[inline]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// The position of the first record that the sender keeps.
    #[must_use]
    #[inline]
    pub const fn base(&self) -> Position {
        self.base
    }

    /// The position up to which the receiver is known to have acknowledged.
    #[must_use]
    #[inline]
    pub const fn acked(&self) -> Position {
        self.acked
    }

    /// The tail: the position at which the sender's next record will begin.
    #[must_use]
    #[inline]
    pub const fn tail(&self) -> Position {
        self.tail
    }

    /// Reserves `footprint` bytes, which a record takes in the ring, and returns the record's
    /// position.
    ///
    /// # Errors
    /// [`Full`], if the sender would then keep more than `window` bytes: acknowledged records have
    /// to be trimmed first.
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
    /// An acknowledgement below the present one changes nothing.
    ///
    /// # Errors
    /// [`AckUnfit`]: the acknowledgement names another stream, or a position beyond the tail;
    /// nothing was changed.
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

    /// Frees acknowledged records up to `position`, and returns the freed range.
    ///
    /// # Errors
    /// [`NotAcked`] if `position` is above the acknowledged position; nothing was changed.
    pub fn trim(&mut self, position: Position) -> Result<Range, NotAcked> {
        if position > self.acked {
            return Err(NotAcked);
        }
        let range = Range::clamped(self.base, position);
        self.base = range.to();
        Ok(range)
    }
}

/// Error of [`Outgoing::append`]: the sender would keep more bytes than it may, or the stream has
/// reached the highest position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Error of [`Outgoing::trim`]: the given position is above the acknowledged one, so the receiver
/// may still need some of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAcked;

/// Reason why a sender does not apply an acknowledgement: the error of [`Outgoing::acknowledge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckUnfit {
    /// The acknowledgement names another stream than the present one: a stream of an earlier epoch,
    /// or of a store that was lost. The sender drops the acknowledgement.
    OtherStream,
    /// The acknowledgement covers records that were never written: a violation by the peer.
    BeyondTail,
}

/// The watermarks of a stream at its receiver: consumed and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incoming {
    consumed: Position,
    received: Position,
}

/// How a record that arrives at a receiver relates to the records received before: the result of
/// [`Incoming::arrive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The record begins where the record received last ended.
    Next,
    /// The record was received before; the receiver drops it.
    Known,
}

impl Incoming {
    /// The watermarks of a receiver that has consumed up to `consumed`, and received nothing
    /// beyond.
    #[must_use]
    #[inline]
    pub const fn at(consumed: Position) -> Self {
        Self { consumed, received: consumed }
    }

    /// The consumed position: every message before it is consumed.
    #[must_use]
    #[inline]
    pub const fn consumed(&self) -> Position {
        self.consumed
    }

    /// The received position: every record before it has arrived.
    #[must_use]
    #[inline]
    pub const fn received(&self) -> Position {
        self.received
    }

    /// Counts a record that arrives at `position`, on the present connection.
    ///
    /// # Errors
    /// [`OutOfOrder`], a violation: the record leaves a gap, overlaps earlier records, or ends
    /// beyond the highest position.
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

    /// Moves the consumed position to `position`.
    ///
    /// # Errors
    /// [`NotReceived`] if `position` is below the consumed position, or above the received one;
    /// nothing was changed.
    #[inline]
    pub fn consume(&mut self, position: Position) -> Result<(), NotReceived> {
        if position < self.consumed || position > self.received {
            return Err(NotReceived);
        }
        self.consumed = position;
        Ok(())
    }
}

/// Error of [`Incoming::arrive`]: the record does not begin at the position where the receiver
/// expects the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfOrder;

/// Error of [`Incoming::consume`]: the position is below the consumed position or above the
/// received one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReceived;

/// An ACK is due once the receiver has consumed one part in `QUARTER` of the sender's window, even
/// if messages are left to consume. The window is the number of bytes that the sender may send
/// without an acknowledgement.
const QUARTER: u64 = 4;
