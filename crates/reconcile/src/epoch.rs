// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions by which a side of a link leaves an epoch (SPEC 12.4). They decide what the side keeps
//! of its streams, and which ranges of messages it reports as undelivered.
//!
//! ```text
//!  sender of epoch 1    has sent up to `tail`
//!  receiver of epoch 1  has consumed up to `consumed`: both sides report the positions from
//!                       `consumed` to `tail` as Undelivered
//!  epoch 2              both directions begin at 0; each side keeps the state of epoch 1 as its
//!                       `Past` until it leaves epoch 2, because the peer may still ask for it
//! ```
//!
//! Only the receiver knows `consumed`, and only the sender knows `tail`. So a side's report is
//! exact once it has seen the peer's past of the same epoch. A past never changes, except that
//! `settled` is set in the update of the store that adds its reports. So an old past that arrives
//! late is still true.
//!
//! Pasts are compared when both sides are in the same epoch, or by the side with the lower epoch
//! while it takes over the higher one. The side with the higher epoch waits, because the peer may
//! still send messages of the lower epoch.

use crate::identity::{Epoch, StreamId};
use crate::position::Position;
use crate::report::{Cause, Direction, Report, Reports, Span};

/// The outgoing stream of a past epoch, as its sender left it: a part of [`Past`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SentPast {
    /// The id of the stream that the side sent in the epoch.
    pub stream: StreamId,
    /// The highest acknowledged position that the sender knows; the receiver may have acknowledged
    /// more.
    pub acked: Position,
    /// The end of the stream: the position after its last record.
    pub tail: Position,
}

/// The incoming stream of a past epoch, as its receiver left it: a part of [`Past`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceivedPast {
    /// The id of the stream that the side received in the epoch.
    pub stream: StreamId,
    /// The position in the stream up to which the receiver has consumed.
    pub consumed: Position,
}

/// The state of the two streams of an epoch at the moment when a side left that epoch. Each side
/// keeps the past of the last epoch that it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Past {
    /// The number of the epoch that the side left.
    pub epoch: Epoch,
    /// The stream that the side sent; `None` if the side was never in that epoch.
    pub sending: Option<SentPast>,
    /// The stream that the side received; `None` if the side knew none in that epoch.
    pub receiving: Option<ReceivedPast>,
    /// Whether the reports of that epoch were stored, so that no range is reported twice.
    pub settled: bool,
}

/// The changes that a side stores in one update when it leaves an epoch, or when it settles one
/// that it has left. To settle an epoch is to compare the side's past with the peer's, and to
/// report the ranges that will never be consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The past that replaces the side's stored past.
    pub past: Option<Past>,
    /// The reports that the update stores for the application.
    pub reports: Reports,
}

/// Returns what a side stores when it leaves an epoch because its own application begins another
/// one. The side knows nothing of the peer's past at that moment.
///
/// A past is the state of the streams of an epoch that a side has left: `live` is that of the
/// present epoch, and `past` the stored one of the epoch before. If the ranges of `past` were never
/// reported, they are reported now, as far as they are known.
#[must_use]
pub fn leave(live: Past, past: Option<Past>) -> Settlement {
    let mut reports = Reports::default();
    if let Some(past) = past.filter(|past| !past.settled) {
        report_own(&past, None, &mut reports);
    }
    Settlement { past: Some(Past { settled: false, ..live }), reports }
}

/// Returns what a side stores when it leaves an epoch because the peer is in a higher one. `live`
/// is the state of the streams of the present epoch, `past` the stored one of the epoch before, and
/// `peer` the past that the peer sent.
#[must_use]
pub fn adopt(live: Past, past: Option<Past>, peer: Option<Past>) -> Settlement {
    let mut reports = Reports::default();
    if let Some(past) = past.filter(|past| !past.settled) {
        report_own(&past, peer, &mut reports);
    }
    let settled = settle(Some(Past { settled: false, ..live }), peer);
    for report in settled.reports.iter() {
        reports.add(Some(report));
    }
    Settlement { past: settled.past, reports }
}

/// Compares the pasts of two sides that are in the same epoch, and reports the ranges that will
/// never be consumed.
///
/// A second call with the same pasts changes and reports nothing.
///
/// ```
/// use partywall_reconcile::{epoch, Epoch, Past, Position, ReceivedPast, SentPast, StreamId};
/// let stream = StreamId::new(7).ok_or("zero")?;
/// let sent = SentPast { stream, acked: Position(0), tail: Position(192) };
/// let received = ReceivedPast { stream, consumed: Position(64) };
/// let mine = Past { epoch: Epoch(1), sending: Some(sent), receiving: None, settled: false };
/// let peer = Past { epoch: Epoch(1), sending: None, receiving: Some(received), settled: false };
/// let settlement = epoch::settle(Some(mine), Some(peer));
/// let report = settlement.reports.iter().next().ok_or("none")?;
/// assert_eq!((report.span.from, report.span.to), (Position(64), Some(Position(192))));
/// assert_eq!(epoch::settle(settlement.past, Some(peer)).reports.iter().count(), 0);
/// # Ok::<(), &'static str>(())
/// ```
#[must_use]
pub fn settle(mine: Option<Past>, peer: Option<Past>) -> Settlement {
    let mut reports = Reports::default();
    if let Some(mine) = mine.filter(|mine| !mine.settled) {
        report_own(&mine, peer, &mut reports);
    }
    let mut past = mine.map(|mine| Past { settled: true, ..mine });
    // The peer left an epoch in which the local side never was. So the local side has consumed none
    // of the messages that the peer sent in that epoch.
    if let Some(peer) = peer.filter(|peer| mine.is_none_or(|mine| mine.epoch < peer.epoch)) {
        reports.add(undelivered(Direction::Incoming, peer.epoch, peer.sending, None));
        past = Some(Past { epoch: peer.epoch, sending: None, receiving: None, settled: true });
    }
    Settlement { past, reports }
}

/// Reports the ranges of both directions that were not consumed in an epoch that the local side
/// left.
fn report_own(mine: &Past, peer: Option<Past>, reports: &mut Reports) {
    let epoch = mine.epoch;
    let both = peer.filter(|peer| peer.epoch == epoch);
    let sent = both.and_then(|peer| peer.sending);
    let received = both.and_then(|peer| peer.receiving);
    // `knows` says whether the peer's past shows what the peer consumed in the epoch to report. A
    // past of a lower epoch shows that the peer was never in this epoch. With a past of a higher
    // epoch, or with a new store, the peer may have forgotten what it consumed.
    let knows = peer.is_some_and(|peer| peer.epoch <= epoch);
    let outgoing = undelivered(Direction::Outgoing, epoch, mine.sending, received);
    reports.add(outgoing.map(|report| Report {
        span: Span { exact: report.span.exact && knows, ..report.span },
        ..report
    }));
    reports.add(undelivered(Direction::Incoming, epoch, sent, mine.receiving));
}

/// Returns the range of messages of one direction that will never be consumed, from the state of
/// the stream at its sender and at its receiver. Both sides compute the same range.
fn undelivered(
    direction: Direction,
    epoch: Epoch,
    sent: Option<SentPast>,
    received: Option<ReceivedPast>,
) -> Option<Report> {
    let (stream, from, to, exact) = match (sent, received) {
        (None, None) => return None,
        (None, Some(received)) => (received.stream, received.consumed, None, false),
        (Some(sent), Some(received))
            if received.stream == sent.stream
                && sent.acked <= received.consumed
                && received.consumed <= sent.tail =>
        {
            (sent.stream, received.consumed, Some(sent.tail), true)
        }
        // The sender's past has a stream, and the receiver's past of the same epoch has none: the
        // receiver consumed nothing in that epoch. The range begins at the highest acknowledged
        // position that the sender knows. It is exact only if that is the start of the stream.
        (Some(sent), None) => {
            (sent.stream, sent.acked, Some(sent.tail), sent.acked == Position::START)
        }
        (Some(sent), Some(_)) => (sent.stream, sent.acked, Some(sent.tail), false),
    };
    let span = Span { from, to, known_to: to.unwrap_or(from), exact };
    Some(Report { direction, cause: Cause::Undelivered, epoch, stream: Some(stream), span })
}
