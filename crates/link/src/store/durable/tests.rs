// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a durable state survives encoding into its image, the stored fields, and decoding.

use super::*;
use crate::protocol::codec::{decode, encode};
use crate::protocol::frame::Frame;
use crate::protocol::samples;
use partywall_layout::link::{ConsumedRecord, Slot};
use partywall_reconcile::attach::Nonce;
use partywall_reconcile::{
    Decision, Range, ReceivedPast, ReceiverView, Reports, SentPast, epoch, reconcile, skip,
};
use proptest::prelude::*;
use proptest::{collection, option};

/// Input: random reports, as the rules of `partywall_reconcile` and a quarantine produce them.
fn reports(last: u64) -> impl Strategy<Value = Vec<Report>> {
    let skipped = (samples::skip(last), any::<bool>())
        .prop_map(|(skip, is_receiving)| skip.reports(direction(is_receiving)));
    let pasts = (samples::past(last), samples::past(last), samples::past(last));
    let settled = pasts.prop_map(|(live, past, peer)| match live {
        Some(live) => epoch::adopt(live, past, peer).reports,
        None => epoch::settle(past, peer).reports,
    });
    let quarantined = (samples::impossible(), any::<bool>(), samples::range()).prop_map(
        move |(why, is_receiving, range)| {
            let (from, known_to) = (range.from(), range.to());
            let span = Span { from, to: None, known_to, exact: false };
            let (direction, cause) = (direction(is_receiving), Cause::Quarantined(why));
            vec![Report { direction, cause, epoch: Epoch(last), stream: None, span }]
        },
    );
    let list = |reports: Reports| reports.iter().collect::<Vec<_>>();
    let some = prop_oneof![skipped.prop_map(list), settled.prop_map(list), quarantined];
    collection::vec(some, 0..5).prop_map(|lists| lists.concat())
}

fn out() -> impl Strategy<Value = (Outgoing, RecordDigest)> {
    (samples::stream(), samples::positions(), any::<u32>()).prop_map(
        |(stream, [base, acked, tail], digest)| {
            let digest = if base == Position::START { 0 } else { digest };
            (Outgoing::found(stream, base, acked, tail).unwrap(), RecordDigest(digest))
        },
    )
}

fn acked_offset() -> impl Strategy<Value = AckedOffset> {
    (samples::stream(), samples::position(), any::<u32>()).prop_map(|(stream, position, digest)| {
        let digest = RecordDigest(if position == Position::START { 0 } else { digest });
        AckedOffset { stream, position, digest }
    })
}

fn durable() -> impl Strategy<Value = DurableState> {
    prop_oneof![0_u64..4, any::<u64>()].prop_flat_map(|epoch| {
        let skips = (option::of(samples::skip(epoch)), option::of(samples::skip(u64::MAX)));
        let streams = (option::of(out()), option::of(acked_offset()), samples::past(epoch), skips);
        let quarantine = (any::<bool>(), samples::impossible())
            .prop_map(|(is_receiving, why)| Quarantine { direction: direction(is_receiving), why });
        let rest = (option::of(samples::peer()), option::of(quarantine), any::<u64>());
        let lists = (reports(epoch), collection::vec(samples::position(), 0..20));
        (streams, rest, lists).prop_map(move |(streams, rest, (reports, delivered))| {
            let (out, acked_offset, past, (skip, skip_reported)) = streams;
            let (peer, quarantine, reports_dropped) = rest;
            let mut durable = DurableState {
                epoch: Epoch(epoch),
                outgoing: out.map(|(out, _)| out),
                base_digest: out.map_or(RecordDigest::START, |(_, digest)| digest),
                acked_offset,
                past,
                peer,
                skip,
                skip_reported,
                quarantine,
                reports_dropped,
                ..DurableState::new()
            };
            reports.into_iter().for_each(|report| durable.report(report));
            let delivered = delivered.into_iter().filter(|_| acked_offset.is_some());
            delivered.for_each(|position| durable.note_delivered(position));
            durable
        })
    })
}

proptest! {
    #[test]
    fn durable_state_is_read_as_it_was_written(durable in durable()) {
        let tail = durable.outgoing.map_or(Position::START, |out| out.tail());
        let state = durable.write();
        prop_assert_eq!(state.check(), Ok(()));
        let found = DurableState::read(&state.sealed(), tail);
        prop_assert_eq!(found.as_ref(), Ok(&durable));
        if let Some(short) = durable.outgoing.and_then(|out| out.acked().0.checked_sub(64)) {
            prop_assert!(DurableState::read(&state, Position(short)).is_err());
        }
    }

    /// Rule: no values that a peer's frames can carry make this end store a state that contradicts
    /// itself.
    #[test]
    fn whatever_a_peer_says_can_be_stored(
        mut durable in durable(), peer in samples::sides(), digest in any::<u32>(),
    ) {
        let mine = [
            durable.outgoing.map(|out| out.stream()),
            durable.past.and_then(|past| past.sending).map(|sent| sent.stream),
        ];
        let skip_reported = peer.receiving.skip();
        if let Some(reports) = skip::learn(skip_reported, durable.skip_reported, &mine) {
            durable.skip_reported = skip_reported;
            reports.iter().for_each(|report| durable.report(report));
        }
        if peer.identity.epoch > durable.epoch {
            let live = left_of(&durable);
            let settlement = epoch::adopt(live, durable.past, peer.past);
            let kept = DurableState { past: settlement.past, peer: durable.peer, ..DurableState::new() };
            durable = DurableState { epoch: peer.identity.epoch, skip: durable.skip, skip_reported: durable.skip_reported, ..kept };
            settlement.reports.iter().for_each(|report| durable.report(report));
        } else if peer.identity.epoch == durable.epoch {
            let settlement = epoch::settle(durable.past, peer.past);
            durable.past = settlement.past;
            settlement.reports.iter().for_each(|report| durable.report(report));
        }
        let received = durable.acked_offset.map_or(Position::START, |acked_offset| acked_offset.position);
        let view = ReceiverView::new(durable.epoch, durable.acked_offset, received, durable.skip).unwrap();
        let decision = reconcile(&peer.sending, &view, |_| Some(RecordDigest(digest)));
        if let Some(decision) = through_a_frame(decision) {
            if let Ok(applied) = decision.apply(&peer.sending, &view, &view, false) {
                let reports = applied.skip.map(|skip| skip.reports(Direction::Incoming));
                durable.acked_offset = Some(applied.consumed);
                durable.skip = applied.skip.or(durable.skip);
                reports.unwrap_or_default().iter().for_each(|report| durable.report(report));
            }
        }
        durable.peer = Some(Peer::of(&peer.identity));
        prop_assert_eq!(durable.write().check(), Ok(()));
    }

    /// Rule: every position of every report ever added is in a kept report, or a dropped report was
    /// counted for it.
    #[test]
    fn no_report_vanishes_silently(mut made in reports(3), more in reports(3), last in reports(3)) {
        made.extend(more);
        made.extend(last);
        let mut durable = DurableState::new();
        made.iter().for_each(|report| durable.report(*report));
        prop_assert!(durable.reports().len() <= REPORTS_MAX);
        let is_kept = |report: &Report| durable.reports().iter().any(|kept| kept.covers(report));
        let missing = made.iter().filter(|report| !is_kept(report)).count() as u64;
        prop_assert!(durable.reports_dropped > 0 || missing == 0, "{} are missing", missing);
    }
}

fn left_of(durable: &DurableState) -> Past {
    let sent =
        |out: Outgoing| SentPast { stream: out.stream(), acked: out.acked(), tail: out.tail() };
    let received = |acked_offset: AckedOffset| ReceivedPast {
        stream: acked_offset.stream,
        consumed: acked_offset.position,
    };
    let (sending, receiving) = (durable.outgoing.map(sent), durable.acked_offset.map(received));
    Past { epoch: durable.epoch, sending, receiving, settled: false }
}

/// Encodes the decision into a frame, and decodes it again. Returns the decoded decision; `None` if
/// no frame can carry the decision.
fn through_a_frame(decision: Decision) -> Option<Decision> {
    let mut bytes = Vec::new();
    encode(&Frame::Confirm { echo: Nonce(0), decision, tail: Position::START }, &mut bytes);
    let (header, body) = bytes.split_first_chunk().unwrap();
    match decode(header, body) {
        Ok(Frame::Confirm { decision, .. }) => Some(decision),
        _ => None,
    }
}

fn gap(stream: u64, from: u64, to: u64) -> Report {
    let stream = StreamId::new(stream).unwrap();
    let range = Range::new(Position(from), Position(to)).unwrap();
    let skip = Skip { epoch: Epoch(1), of: stream, into: stream, range, resume: range.to() };
    skip.reports(Direction::Incoming).iter().next().unwrap()
}

#[test]
fn two_alike_of_too_many_reports_are_merged() {
    let mut durable = DurableState::new();
    (1..=16).for_each(|stream| durable.report(gap(stream, 64, 128)));
    durable.report(gap(5, 128, 192));
    assert_eq!((durable.reports().len(), durable.reports_dropped), (16, 0));
    assert_eq!(durable.reports()[4], gap(5, 64, 192));
    // The two reported gaps are not adjacent. So the merged report includes the positions between
    // them, and says that its range is not exact.
    durable.report(gap(6, 256, 320));
    assert!(!durable.reports()[5].span.exact && durable.reports()[5].covers(&gap(6, 256, 320)));
}

#[test]
fn oldest_of_too_many_unlike_reports_is_counted_as_dropped() {
    let mut durable = DurableState::new();
    (1..=18).for_each(|stream| durable.report(gap(stream, 64, 128)));
    assert_eq!((durable.reports().len(), durable.reports_dropped), (16, 2));
    assert_eq!(durable.reports()[0], gap(3, 64, 128));
    durable.forget_reports(|_| true, 2);
    assert_eq!((durable.reports().len(), durable.reports_dropped), (0, 0));
}

#[test]
fn report_merged_after_it_was_read_is_kept() {
    let mut durable = DurableState::new();
    (1..=16).for_each(|stream| durable.report(gap(stream, 64, 128)));
    let seen = durable.reports().to_vec();
    durable.report(gap(5, 128, 192));
    durable.forget_reports(|report| seen.contains(report), 0);
    assert_eq!(durable.reports(), [gap(5, 64, 192)]);
}

#[test]
fn consumed_offset_counts_for_the_same_stream_only() {
    let stream = StreamId::new(7).unwrap();
    let acked_offset = AckedOffset { stream, position: Position(128), digest: RecordDigest(5) };
    for (of, position, expected) in [(7, 192, 192), (7, 64, 128), (8, 192, 128)] {
        let mut durable = DurableState { acked_offset: Some(acked_offset), ..DurableState::new() };
        durable.catch_up(&Consumed::of(ConsumedRecord::new(1, of, position, 6)));
        assert_eq!(durable.acked_offset.unwrap().position, Position(expected));
    }
}
