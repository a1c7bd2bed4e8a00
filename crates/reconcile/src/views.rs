// SPDX-License-Identifier: MIT OR Apache-2.0
//! The views that two sides send each other about one direction when they attach (SPEC 12.2).
//!
//! ```text
//!  sender's view     epoch and stream; the sender still has the records from base to tail
//!  receiver's view   epoch and stream; the receiver has consumed up to consumed, where a record
//!                    with the digest ends, and received up to received; its last skip
//! ```
//!
//! Views come from the peer, so their constructors check every contradiction within one view.
//! [`reconcile`](crate::reconcile()) checks contradictions between two views.

use core::fmt;

use crate::identity::{Epoch, StreamId};
use crate::position::{AckedOffset, Incoming, Outgoing, Position, RecordDigest};
use crate::skip::Skip;

/// A sender's view of its stream, which it sends to the receiver when they attach: epoch, stream,
/// and which records the sender has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SenderView {
    epoch: Epoch,
    stream: StreamId,
    base: Position,
    tail: Position,
}

impl SenderView {
    /// The view of a sender that has the records from `base` up to `tail`.
    ///
    /// # Errors
    /// [`Malformed::BaseBeyondTail`] if `base` lies after `tail`.
    pub const fn new(
        epoch: Epoch,
        stream: StreamId,
        base: Position,
        tail: Position,
    ) -> Result<Self, Malformed> {
        if base.0 > tail.0 {
            return Err(Malformed::BaseBeyondTail);
        }
        Ok(Self { epoch, stream, base, tail })
    }

    /// The view of a sender in `epoch`, whose stream has the watermarks `outgoing`.
    #[must_use]
    pub const fn of(epoch: Epoch, outgoing: &Outgoing) -> Self {
        let (base, tail) = (outgoing.base(), outgoing.tail());
        Self { epoch, stream: outgoing.stream(), base, tail }
    }

    /// The epoch in which the sender was when it made this view.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The id of the stream that the sender sends.
    #[must_use]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// The position of the first record that the sender still has.
    #[must_use]
    pub const fn base(&self) -> Position {
        self.base
    }

    /// The position of the sender's next record.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.tail
    }
}

/// A receiver's view of a stream, which it sends to the sender when they attach: how far the
/// receiver has consumed and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiverView {
    epoch: Epoch,
    consumed: Option<AckedOffset>,
    received: Position,
    skip: Option<Skip>,
}

impl ReceiverView {
    /// The view of a receiver that has consumed up to the acked offset `consumed`, and received up
    /// to `received`.
    ///
    /// `consumed` is `None` until the receiver knows a stream of this epoch. `skip` is the last
    /// range that the receiver skipped without consuming it, in whatever epoch.
    ///
    /// # Errors
    /// [`Malformed::ConsumedBeyondReceived`], also if records were received but no stream is known;
    /// [`Malformed::DigestAtStart`] for a digest at position 0.
    pub fn new(
        epoch: Epoch,
        consumed: Option<AckedOffset>,
        received: Position,
        skip: Option<Skip>,
    ) -> Result<Self, Malformed> {
        let position = consumed.map_or(Position::START, |acked_offset| acked_offset.position);
        if position > received || (consumed.is_none() && received != Position::START) {
            return Err(Malformed::ConsumedBeyondReceived);
        }
        if position == Position::START
            && consumed.is_some_and(|acked_offset| acked_offset.digest != RecordDigest::START)
        {
            return Err(Malformed::DigestAtStart);
        }
        Ok(Self { epoch, consumed, received, skip })
    }

    /// The view of a receiver that has consumed up to an acked offset, and whose watermarks are
    /// `incoming`.
    #[must_use]
    pub fn of(
        epoch: Epoch,
        consumed: Option<AckedOffset>,
        incoming: &Incoming,
        skip: Option<Skip>,
    ) -> Self {
        let Some(acked_offset) = consumed else { return Self::nothing(epoch, skip) };
        let received = incoming.received().max(acked_offset.position);
        let is_start = acked_offset.position == Position::START;
        let digest = if is_start { RecordDigest::START } else { acked_offset.digest };
        Self { epoch, consumed: Some(AckedOffset { digest, ..acked_offset }), received, skip }
    }

    /// The view of a receiver that knows no stream of `epoch` yet.
    #[must_use]
    pub const fn nothing(epoch: Epoch, skip: Option<Skip>) -> Self {
        Self { epoch, consumed: None, received: Position::START, skip }
    }

    /// The epoch in which the receiver was when it made this view.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The acked offset of the receiver; `None` if it knows no stream of its epoch.
    #[must_use]
    pub const fn consumed(&self) -> Option<AckedOffset> {
        self.consumed
    }

    /// The position up to which the receiver has received.
    #[must_use]
    pub const fn received(&self) -> Position {
        self.received
    }

    /// The last range that the receiver skipped without consuming it.
    #[must_use]
    pub const fn skip(&self) -> Option<Skip> {
        self.skip
    }
}

/// Reason why a view is refused: it contradicts itself. The caller closes the connection because of
/// a violation; no state was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// A sender's first record lies beyond its own tail.
    BaseBeyondTail,
    /// A receiver claims to have consumed beyond the position up to which it has received.
    ConsumedBeyondReceived,
    /// A digest is given at the start of a stream, where no record ends.
    DigestAtStart,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BaseBeyondTail => "a sender's base lies beyond its tail",
            Self::ConsumedBeyondReceived => "a receiver consumed more than it received",
            Self::DigestAtStart => "a digest is given at the start of a stream",
        })
    }
}

impl core::error::Error for Malformed {}
