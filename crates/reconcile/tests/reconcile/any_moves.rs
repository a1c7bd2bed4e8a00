// SPDX-License-Identifier: MIT OR Apache-2.0
//! Property tests. Any sequence of operations on a stream keeps its watermarks in order. The pasts
//! of two sides lead to reports of the messages lost between them: once, and the same on both
//! sides.

use partywall_reconcile::{
    AckUnfit, Arrival, Direction, Epoch, Incoming, Outgoing, Past, Position, ReceivedPast,
    SentPast, Skip, StreamId, epoch, skip,
};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Move {
    Append(u64),
    Acknowledge(u64),
    Trim(u64),
    Arrive(u64, u64),
    Consume(u64),
}

fn a_move() -> impl Strategy<Value = Move> {
    let number = prop_oneof![0_u64..9, any::<u64>()];
    prop_oneof![
        number.clone().prop_map(Move::Append),
        number.clone().prop_map(Move::Acknowledge),
        number.clone().prop_map(Move::Trim),
        (number.clone(), number.clone()).prop_map(|(at, long)| Move::Arrive(at, long)),
        number.prop_map(Move::Consume),
    ]
}

fn past() -> impl Strategy<Value = Past> {
    let stream = || (1_u64..3).prop_map(|number| StreamId::new(number).unwrap());
    let sending = (stream(), 0_u64..4, 0_u64..4).prop_map(|(stream, acked, more)| SentPast {
        stream,
        acked: Position(acked),
        tail: Position(acked + more),
    });
    let receiving = (stream(), 0_u64..8)
        .prop_map(|(stream, consumed)| ReceivedPast { stream, consumed: Position(consumed) });
    (1_u64..4, proptest::option::of(sending), proptest::option::of(receiving), any::<bool>())
        .prop_map(|(epoch, sending, receiving, settled)| Past {
            epoch: Epoch(epoch),
            sending,
            receiving,
            settled,
        })
}

proptest! {
    #[test]
    fn the_chain_of_watermarks_holds_whatever_is_asked(
        moves in proptest::collection::vec(a_move(), 0..40),
    ) {
        let stream = StreamId::new(1).unwrap();
        let mut out = Outgoing::new(stream);
        let mut incoming = Incoming::at(Position(0));
        for a_move in moves {
            let before = (out, incoming);
            let refused = match a_move {
                Move::Append(bytes) => out.append(bytes, 8).is_err(),
                Move::Acknowledge(to) => out.acknowledge(stream, Position(to)).is_err(),
                Move::Trim(to) => out.trim(Position(to)).is_err(),
                Move::Arrive(at, bytes) => incoming.arrive(Position(at), bytes).is_err(),
                Move::Consume(to) => incoming.consume(Position(to)).is_err(),
            };
            prop_assert!(!refused || before == (out, incoming));
            prop_assert!(out.base() <= out.acked() && out.acked() <= out.tail());
            prop_assert!(out.tail().since(out.base()) <= 8);
            prop_assert!(incoming.consumed() <= incoming.received());
            prop_assert!(out.base() >= before.0.base() && out.acked() >= before.0.acked());
        }
    }

    #[test]
    fn two_pasts_of_one_epoch_are_reported_alike_and_once(one in past(), other in past()) {
        let other = Past { epoch: one.epoch, ..other };
        let (one, other) = (Past { settled: false, ..one }, Past { settled: false, ..other });
        let here = epoch::settle(Some(one), Some(other));
        let there = epoch::settle(Some(other), Some(one));
        for report in here.reports.iter().filter(|report| report.span.exact) {
            let mirrored = there.reports.iter().any(|mirror| {
                mirror.direction != report.direction
                    && (mirror.span, mirror.stream) == (report.span, report.stream)
            });
            prop_assert!(mirrored, "{report:?}");
        }
        prop_assert_eq!(epoch::settle(here.past, Some(other)).reports.iter().count(), 0);
        prop_assert_eq!(epoch::settle(here.past, there.past).reports.iter().count(), 0);
    }

    #[test]
    fn any_two_pasts_are_settled_once(one in past(), other in proptest::option::of(past())) {
        let here = epoch::settle(Some(one), other);
        let again = epoch::settle(here.past, other);
        prop_assert_eq!(again.reports.iter().count(), 0);
        prop_assert_eq!(again.past, here.past);
        let adopted = epoch::adopt(one, here.past, other);
        prop_assert!(adopted.past.is_some_and(|past| past.settled));
    }
}

#[test]
fn an_acknowledgement_of_another_stream_is_dropped_and_one_beyond_the_tail_is_not_believed() {
    let mut out = Outgoing::new(StreamId::new(1).unwrap());
    assert_eq!(out.append(2, 8), Ok(Position(0)));
    let other = StreamId::new(2).unwrap();
    assert_eq!(out.acknowledge(other, Position(1)), Err(AckUnfit::OtherStream));
    assert_eq!(out.acknowledge(out.stream(), Position(3)), Err(AckUnfit::BeyondTail));
    assert_eq!(out.acknowledge(out.stream(), Position(1)), Ok(()));
    assert_eq!(out.acknowledge(out.stream(), Position(0)), Ok(()));
    assert_eq!(out.acked(), Position(1));
}

#[test]
fn a_record_that_is_known_is_dropped_and_one_that_leaves_out_another_is_refused() {
    let mut incoming = Incoming::at(Position(2));
    assert_eq!(incoming.arrive(Position(0), 2), Ok(Arrival::Known));
    assert_eq!(incoming.arrive(Position(2), 2), Ok(Arrival::Next));
    assert!(incoming.arrive(Position(5), 1).is_err());
    assert!(incoming.arrive(Position(3), 2).is_err());
    assert!(incoming.arrive(Position(4), 0).is_err());
}

#[test]
fn skip_is_reported_once_and_only_of_own_streams() {
    let (old, new) = (StreamId::new(1).unwrap(), StreamId::new(2).unwrap());
    let range = partywall_reconcile::Range::clamped(Position(1), Position(3));
    let skip = Skip { epoch: Epoch(1), of: old, into: new, range, resume: Position(0) };
    let reports = skip::learn(Some(skip), None, &[Some(new), None]).unwrap();
    let report = reports.iter().next().unwrap();
    assert_eq!((report.direction, report.stream), (Direction::Outgoing, Some(old)));
    assert_eq!((report.span.to, report.span.known_to), (None, Position(3)));
    assert_eq!(skip::learn(Some(skip), Some(skip), &[Some(new)]), None);
    assert_eq!(skip::learn(Some(skip), None, &[Some(old)]), None);
}
