// SPDX-License-Identifier: MIT OR Apache-2.0
//! Property tests: for any view of a sender and any view of a receiver, the decision how the stream
//! resumes keeps the rule that the test states.

use partywall_reconcile::{
    AckedOffset, Decision, Epoch, Impossible, Malformed, Position, ReceiverView, RecordDigest,
    SenderView, StreamId, Unfit, reconcile,
};
use proptest::prelude::*;

/// Generates the numbers in the views of sender and receiver: small numbers, which often coincide,
/// and the largest numbers, which provoke overflows.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..6, u64::MAX - 2..=u64::MAX, any::<u64>()]
}

fn stream() -> impl Strategy<Value = StreamId> {
    (1_u64..4).prop_map(|number| StreamId::new(number).unwrap())
}

fn sender() -> impl Strategy<Value = SenderView> {
    (0_u64..3, stream(), number(), number()).prop_filter_map(
        "backwards",
        |(epoch, stream, a, b)| {
            SenderView::new(Epoch(epoch), stream, Position(a.min(b)), Position(a.max(b))).ok()
        },
    )
}

fn receiver() -> impl Strategy<Value = ReceiverView> {
    let acked_offset = proptest::option::of((stream(), number(), 0_u32..3));
    (0_u64..3, acked_offset, number()).prop_filter_map(
        "no view",
        |(epoch, acked_offset, received)| {
            let acked_offset = acked_offset.map(|(stream, position, digest)| AckedOffset {
                stream,
                position: Position(position),
                digest: RecordDigest(digest),
            });
            ReceiverView::new(Epoch(epoch), acked_offset, Position(received), None).ok()
        },
    )
}

fn digest() -> impl Strategy<Value = Option<RecordDigest>> {
    proptest::option::of((0_u32..3).prop_map(RecordDigest))
}

proptest! {
    #[test]
    fn nothing_is_resumed_outside_what_both_have(
        sender in sender(), receiver in receiver(), digest in digest(),
    ) {
        let decision = reconcile(&sender, &receiver, |_| digest);
        let consumed = receiver.consumed().map_or(Position(0), |acked_offset| acked_offset.position);
        if let Some(resume) = decision.resume_at() {
            prop_assert!(resume >= sender.base() && resume <= sender.tail());
            if !matches!(decision, Decision::Lost { .. }) {
                prop_assert!(resume >= consumed);
            }
        }
        if decision == Decision::Resume(consumed) {
            prop_assert!(receiver.received() <= sender.tail());
            if let Some(acked_offset) = receiver.consumed() {
                prop_assert_eq!((acked_offset.stream, Some(acked_offset.digest)), (sender.stream(), digest));
            }
        }
        prop_assert_eq!(
            matches!(decision, Decision::NewEpoch(_)),
            sender.epoch() != receiver.epoch()
        );
    }

    #[test]
    fn whatever_is_not_resumed_at_consumed_is_a_skip(
        sender in sender(), receiver in receiver(), digest in digest(),
    ) {
        let decision = reconcile(&sender, &receiver, |_| digest);
        let consumed = receiver.consumed().map_or(Position(0), |acked_offset| acked_offset.position);
        match decision.skip(&sender) {
            Some(skip) => {
                prop_assert_eq!(skip.range.from(), consumed);
                prop_assert_eq!(Some(skip.resume), decision.resume_at());
                prop_assert!(skip.range.to() == skip.resume || skip.of != skip.into);
            }
            None => prop_assert!(decision.resume_at().is_none_or(|resume| resume == consumed)),
        }
    }

    #[test]
    fn what_a_sender_decides_its_receiver_accepts(
        sender in sender(), receiver in receiver(), digest in digest(),
    ) {
        let decision = reconcile(&sender, &receiver, |_| digest);
        prop_assert_eq!(decision.check(&sender, &receiver), Ok(()));
        let applied = decision.apply(&sender, &receiver, &receiver, false);
        match decision.resume_at() {
            Some(resume) => {
                let applied = applied.unwrap();
                prop_assert_eq!(applied.consumed.position, resume);
                prop_assert_eq!(applied.consumed.stream, sender.stream());
                prop_assert_eq!(applied.skip, decision.skip(&sender));
            }
            None => prop_assert_eq!(applied, Err(Unfit::NoStream)),
        }
    }

    #[test]
    fn a_decision_for_other_views_changes_nothing_it_does_not_fit(
        sender in sender(), other in sender(), given in receiver(), now in receiver(),
        digest in digest(), continuous in any::<bool>(),
    ) {
        let decision = reconcile(&other, &given, |_| digest);
        if let Ok(applied) = decision.apply(&sender, &given, &now, continuous) {
            prop_assert_eq!(applied.consumed.stream, sender.stream());
            prop_assert!(applied.consumed.position >= decision.resume_at().unwrap());
            if applied.skip.is_some() {
                prop_assert_eq!(given.consumed(), now.consumed());
            }
        }
    }
}

#[test]
fn views_that_contradict_themselves_are_none() {
    let stream = StreamId::new(1).unwrap();
    let at = |position, digest| AckedOffset {
        stream,
        position: Position(position),
        digest: RecordDigest(digest),
    };
    let view = |acked_offset, received| {
        ReceiverView::new(Epoch(1), acked_offset, Position(received), None)
    };
    assert_eq!(
        SenderView::new(Epoch(1), stream, Position(2), Position(1)),
        Err(Malformed::BaseBeyondTail)
    );
    assert_eq!(view(Some(at(2, 9)), 1), Err(Malformed::ConsumedBeyondReceived));
    assert_eq!(view(None, 1), Err(Malformed::ConsumedBeyondReceived));
    assert_eq!(view(Some(at(0, 9)), 1), Err(Malformed::DigestAtStart));
}

#[test]
fn a_receiver_that_holds_more_than_was_sent_is_ahead_even_if_it_consumed_less() {
    let stream = StreamId::new(1).unwrap();
    let sender = SenderView::new(Epoch(1), stream, Position(0), Position(64)).unwrap();
    let acked_offset = AckedOffset { stream, position: Position(64), digest: RecordDigest(5) };
    let receiver = ReceiverView::new(Epoch(1), Some(acked_offset), Position(128), None).unwrap();
    let decision = reconcile(&sender, &receiver, |_| Some(RecordDigest(5)));
    assert_eq!(decision, Decision::Impossible(Impossible::ReceiverAhead));
}
