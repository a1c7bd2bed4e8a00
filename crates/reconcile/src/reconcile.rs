// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one pure function: a sender's view and a receiver's view of one direction make a decision (SPEC 12.3).
//!
//! ```text
//!                    base                          tail
//!  sender             |records ····················|
//!  receiver   Gap ────┤├── Resume, if the proof ───┤├── Impossible
//!             other stream: Lost        no stream: from the start
//! ```
//!
//! It is total: any two views have a decision. It reads the sender's records through one question, so
//! that a transport, a tool and a model can ask it alike.

use crate::decision::{Decision, Impossible};
use crate::position::{AckedOffset, Position, Range, RecordDigest};
use crate::views::{ReceiverView, SenderView};

/// Decides how a direction goes on.
///
/// `digest_at` is asked at most once, for a position from base to tail: the proof there, or `None` if no record begins or ends
/// there. At its own base a sender always knows one.
///
/// ```
/// use partywall_reconcile::{reconcile, Decision, Epoch, AckedOffset, Position, RecordDigest, ReceiverView, SenderView, StreamId};
/// let stream = StreamId::new(7).ok_or("zero")?;
/// let sender = SenderView::new(Epoch(1), stream, Position(64), Position(192))?;
/// let acked_offset = AckedOffset { stream, position: Position(128), digest: RecordDigest(5) };
/// let receiver = ReceiverView::new(Epoch(1), Some(acked_offset), Position(128), None)?;
/// let decision = reconcile(&sender, &receiver, |at| (at == Position(128)).then_some(RecordDigest(5)));
/// assert_eq!(decision, Decision::Resume(Position(128)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn reconcile(
    sender: &SenderView,
    receiver: &ReceiverView,
    digest_at: impl FnOnce(Position) -> Option<RecordDigest>,
) -> Decision {
    if sender.epoch() != receiver.epoch() {
        return Decision::NewEpoch(sender.epoch().max(receiver.epoch()));
    }
    match receiver.consumed() {
        None => from_the_start(sender, digest_at),
        Some(acked_offset) if acked_offset.stream == sender.stream() => {
            same_stream(sender, acked_offset, receiver.received(), digest_at)
        }
        Some(acked_offset) => Decision::Lost {
            of: acked_offset.stream,
            range: Range::clamped(acked_offset.position, receiver.received()),
            resume: sender.base(),
            digest: digest_at(sender.base()).unwrap_or_default(),
        },
    }
}

fn from_the_start(
    sender: &SenderView,
    digest_at: impl FnOnce(Position) -> Option<RecordDigest>,
) -> Decision {
    if sender.base() == Position::START {
        return Decision::Resume(Position::START);
    }
    gap(Position::START, sender, digest_at)
}

fn same_stream(
    sender: &SenderView,
    acked_offset: AckedOffset,
    received: Position,
    digest_at: impl FnOnce(Position) -> Option<RecordDigest>,
) -> Decision {
    // Received counts too: records are stored before they are sent, so nobody can hold one beyond the tail.
    if received > sender.tail() {
        return Decision::Impossible(Impossible::ReceiverAhead);
    }
    if acked_offset.position < sender.base() {
        return gap(acked_offset.position, sender, digest_at);
    }
    match digest_at(acked_offset.position) {
        None => Decision::Impossible(Impossible::NoBoundary),
        Some(digest) if digest != acked_offset.digest => {
            Decision::Impossible(Impossible::OtherRecord)
        }
        Some(_) => Decision::Resume(acked_offset.position),
    }
}

fn gap(
    from: Position,
    sender: &SenderView,
    digest_at: impl FnOnce(Position) -> Option<RecordDigest>,
) -> Decision {
    let digest = digest_at(sender.base()).unwrap_or_default();
    Decision::Gap { range: Range::clamped(from, sender.base()), digest }
}
