// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the pairs of views in `spec/link-decisions.tsv` lead to the decisions, how the stream
//! resumes, that their rows say. A receiver accepts no other decision of the table.

use partywall_reconcile::{
    AckedOffset, Decision, Epoch, Impossible, Position, ReceiverView, RecordDigest, SenderView,
    StreamId, reconcile,
};
use std::collections::{BTreeMap, BTreeSet};

/// One row of the table `spec/link-decisions.tsv`: the sender's view and the digests of its
/// records, the receiver's view, and the expected decision how the stream resumes.
struct Row {
    sender: SenderView,
    records: BTreeMap<u64, RecordDigest>,
    receiver: ReceiverView,
    decision: String,
    about: String,
}

fn number(text: &str) -> u64 {
    let digits = text.strip_prefix("0x");
    digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16)).unwrap()
}

fn digest(text: &str) -> RecordDigest {
    RecordDigest(u32::try_from(number(text)).unwrap())
}

fn rows() -> Vec<Row> {
    let table = include_str!("../../../../spec/link-decisions.tsv");
    table.lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.split('\t').collect();
    let [
        epoch,
        stream,
        base,
        tail,
        records,
        their_epoch,
        theirs,
        consumed,
        at,
        received,
        decision,
        about,
    ] = cells[..]
    else {
        panic!("a row has twelve cells: {line}")
    };
    let position = |text| Position(number(text));
    let stream = StreamId::new(number(stream)).unwrap();
    let acked_offset = StreamId::new(number(theirs)).map(|stream| AckedOffset {
        stream,
        position: position(consumed),
        digest: digest(at),
    });
    let pair = |pair: &str| {
        let (position, at) = pair.split_once('/').unwrap();
        (number(position), digest(at))
    };
    Row {
        sender: SenderView::new(Epoch(number(epoch)), stream, position(base), position(tail))
            .unwrap(),
        records: records.split(',').map(pair).collect(),
        receiver: ReceiverView::new(
            Epoch(number(their_epoch)),
            acked_offset,
            position(received),
            None,
        )
        .unwrap(),
        decision: decision.to_owned(),
        about: about.to_owned(),
    }
}

/// Returns a decision as text in the form of the table, with the field numbers of SPEC 15.3.
fn text(decision: &Decision) -> String {
    let (kind, digest, of, from, to, at) = match *decision {
        Decision::Resume(at) => (1, 0, 0, 0, 0, at.0),
        Decision::Gap { range, digest } => (2, digest.0, 0, range.from().0, range.to().0, 0),
        Decision::Lost { of, range, resume, digest } => {
            (3, digest.0, of.0.get(), range.from().0, range.to().0, resume.0)
        }
        Decision::Impossible(Impossible::ReceiverAhead) => (4, 0, 0, 0, 0, 1),
        Decision::Impossible(Impossible::NoBoundary) => (4, 0, 0, 0, 0, 2),
        Decision::Impossible(Impossible::OtherRecord) => (4, 0, 0, 0, 0, 3),
        Decision::NewEpoch(epoch) => (5, 0, 0, 0, 0, epoch.0),
    };
    format!("{kind}:{of:#x}:{from}..{to}:{at}/{digest:#x}")
}

fn decide(row: &Row) -> Decision {
    reconcile(&row.sender, &row.receiver, |at| row.records.get(&at.0).copied())
}

#[test]
fn each_pair_of_views_has_the_decision_of_its_row() {
    let rows = rows();
    let mut kinds = BTreeSet::new();
    for row in &rows {
        let decision = decide(row);
        assert_eq!(text(&decision), row.decision, "{}", row.about);
        assert_eq!(decision.check(&row.sender, &row.receiver), Ok(()), "{}", row.about);
        kinds.insert(row.decision.split(['.', '/']).next().unwrap()[..1].to_owned());
    }
    assert!(rows.len() >= 28, "{} rows", rows.len());
    assert_eq!(kinds.len(), 5, "each kind of decision has a row");
}

/// A class of the decisions for a pair of views: the decision without its numbers, and how the
/// positions in the decision compare with those in the views. The match has no wildcard, so a new
/// variant needs a class of its own.
fn outcome(sender: &SenderView, receiver: &ReceiverView, decision: &Decision) -> String {
    let place = |at: Position| match at {
        Position::START => "the start",
        at if at == sender.base() => "the base",
        at if at == sender.tail() => "the tail",
        _ => "a record between",
    };
    let known = if receiver.consumed().is_some() { "a known stream" } else { "no known stream" };
    match *decision {
        Decision::Resume(at) => format!("resume at {} with {known}", place(at)),
        Decision::Gap { range, .. } => {
            let is_from_start = range.from() == Position::START;
            format!("gap with {known}, from the start: {is_from_start}")
        }
        Decision::Lost { range, resume, .. } => {
            let is_empty = range.from() == range.to();
            format!("lost, nothing unconsumed: {is_empty}, go on at {}", place(resume))
        }
        Decision::Impossible(Impossible::ReceiverAhead) => "receiver ahead".to_owned(),
        Decision::Impossible(Impossible::NoBoundary) => "no boundary".to_owned(),
        Decision::Impossible(Impossible::OtherRecord) => "other record".to_owned(),
        Decision::NewEpoch(epoch) => {
            format!("new epoch, of the sender: {}", epoch == sender.epoch())
        }
    }
}

/// The classes of decisions (`outcome`) that occur among all pairs of views with few positions,
/// epochs, streams and digests.
fn all_outcomes() -> BTreeSet<String> {
    let (positions, boundaries) = ([0, 64, 128, 192, 256, 320].map(Position), [0, 64, 192, 256]);
    let stream = |number| StreamId::new(number).unwrap();
    let digest_at = |at: Position| {
        boundaries.contains(&at.0).then(|| RecordDigest(u32::try_from(at.0).unwrap()))
    };
    let mut consumed = vec![None];
    for position in positions {
        for digest in [digest_at(position).unwrap_or_default(), RecordDigest(0xbad)] {
            let digest = if position == Position::START { RecordDigest::START } else { digest };
            consumed.extend(
                [1, 2].map(|number| Some(AckedOffset { stream: stream(number), position, digest })),
            );
        }
    }
    let mut outcomes = BTreeSet::new();
    for (base, tail) in boundaries.iter().flat_map(|base| boundaries.map(|tail| (*base, tail))) {
        for epoch in 1..=2 {
            let view = SenderView::new(Epoch(epoch), stream(1), Position(base), Position(tail));
            let Ok(sender) = view else { continue };
            for (acked, received) in
                consumed.iter().flat_map(|acked| positions.map(|at| (*acked, at)))
            {
                for their_epoch in 1..=2 {
                    let view = ReceiverView::new(Epoch(their_epoch), acked, received, None);
                    let Ok(receiver) = view else { continue };
                    let decision = reconcile(&sender, &receiver, digest_at);
                    outcomes.insert(outcome(&sender, &receiver, &decision));
                }
            }
        }
    }
    outcomes
}

#[test]
fn every_outcome_of_two_views_has_a_row() {
    let rows = rows();
    let covered: BTreeSet<String> =
        rows.iter().map(|row| outcome(&row.sender, &row.receiver, &decide(row))).collect();
    let all = all_outcomes();
    assert!(all.len() >= 16, "{all:?}");
    let missing: Vec<_> = all.difference(&covered).collect();
    assert!(missing.is_empty(), "no row of spec/link-decisions.tsv shows: {missing:#?}");
}

#[test]
fn no_receiver_accepts_a_decision_of_another_outcome() {
    let rows = rows();
    let mut refused = 0;
    for row in &rows {
        let own = decide(row);
        // A receiver does not know the sender's records, and has to believe the sender whether
        // these records contradict its own. So the test skips such decisions.
        if matches!(own, Decision::Impossible(_)) {
            continue;
        }
        for other in rows.iter().map(decide).filter(|other| other.resume_at() != own.resume_at()) {
            if !matches!(other, Decision::Impossible(_)) {
                let checked = other.check(&row.sender, &row.receiver);
                assert!(checked.is_err(), "{}: {other:?}", row.about);
                refused += 1;
            }
        }
    }
    assert!(refused > 200, "{refused}");
}
