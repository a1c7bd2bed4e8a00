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
use crate::position::{Mark, Position, Proof, Range};
use crate::views::{ReceiverView, SenderView};

/// Decides how a direction goes on.
///
/// `proof_at` is asked at most once, for a position from base to tail: the proof there, or `None` if no record begins or ends
/// there. At its own base a sender always knows one.
///
/// ```
/// use partywall_reconcile::{reconcile, Decision, Epoch, Mark, Position, Proof, ReceiverView, SenderView, StreamId};
/// let stream = StreamId::new(7).ok_or("zero")?;
/// let sender = SenderView::new(Epoch(1), stream, Position(64), Position(192))?;
/// let mark = Mark { stream, position: Position(128), proof: Proof(5) };
/// let receiver = ReceiverView::new(Epoch(1), Some(mark), Position(128), None)?;
/// let decision = reconcile(&sender, &receiver, |at| (at == Position(128)).then_some(Proof(5)));
/// assert_eq!(decision, Decision::Resume(Position(128)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn reconcile(
    sender: &SenderView,
    receiver: &ReceiverView,
    proof_at: impl FnOnce(Position) -> Option<Proof>,
) -> Decision {
    if sender.epoch() != receiver.epoch() {
        return Decision::NewEpoch(sender.epoch().max(receiver.epoch()));
    }
    match receiver.consumed() {
        None => from_the_start(sender, proof_at),
        Some(mark) if mark.stream == sender.stream() => {
            same_stream(sender, mark, receiver.received(), proof_at)
        }
        Some(mark) => Decision::Lost {
            of: mark.stream,
            range: Range::clamped(mark.position, receiver.received()),
            resume: sender.base(),
            proof: proof_at(sender.base()).unwrap_or_default(),
        },
    }
}

fn from_the_start(
    sender: &SenderView,
    proof_at: impl FnOnce(Position) -> Option<Proof>,
) -> Decision {
    if sender.base() == Position::START {
        return Decision::Resume(Position::START);
    }
    gap(Position::START, sender, proof_at)
}

fn same_stream(
    sender: &SenderView,
    mark: Mark,
    received: Position,
    proof_at: impl FnOnce(Position) -> Option<Proof>,
) -> Decision {
    // Received counts too: records are stored before they are sent, so nobody can hold one beyond the tail.
    if received > sender.tail() {
        return Decision::Impossible(Impossible::ReceiverAhead);
    }
    if mark.position < sender.base() {
        return gap(mark.position, sender, proof_at);
    }
    match proof_at(mark.position) {
        None => Decision::Impossible(Impossible::NoBoundary),
        Some(proof) if proof != mark.proof => Decision::Impossible(Impossible::OtherRecord),
        Some(_) => Decision::Resume(mark.position),
    }
}

fn gap(
    from: Position,
    sender: &SenderView,
    proof_at: impl FnOnce(Position) -> Option<Proof>,
) -> Decision {
    let proof = proof_at(sender.base()).unwrap_or_default();
    Decision::Gap { range: Range::clamped(from, sender.base()), proof }
}
