// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generators of random fields of a link's frames for property tests: positions, epochs, and skips.
//!
//! All generated values are valid. Tests derive invalid values from them, or take those of the
//! specification's test vectors.

use super::frame::{Attach, Window};
use partywall_reconcile::attach::Nonce;
use partywall_reconcile::{
    AckedOffset, ConnectionNumber, Epoch, Identity, Impossible, Incarnation, Past, Peer, Position,
    Range, ReceivedPast, ReceiverView, RecordDigest, SenderView, SentPast, Skip, StoreId, StreamId,
};
use proptest::option;
use proptest::prelude::*;

/// Generates stream positions from three ranges: small positions, so that two of them are often
/// equal; the largest positions; and all positions.
pub(crate) fn position() -> impl Strategy<Value = Position> {
    let slot = prop_oneof![0_u64..6, (u64::MAX / 64 - 2)..=u64::MAX / 64, 0..=u64::MAX / 64];
    slot.prop_map(|slot| Position(slot * 64))
}

/// Generates `N` positions in ascending order.
pub(crate) fn positions<const N: usize>() -> impl Strategy<Value = [Position; N]> {
    proptest::collection::vec(position(), N).prop_map(|mut positions| {
        positions.sort();
        std::array::from_fn(|index| positions[index])
    })
}

pub(crate) fn stream() -> impl Strategy<Value = StreamId> {
    prop_oneof![1_u64..4, 1..=u64::MAX].prop_map(|number| StreamId::new(number).unwrap())
}

pub(crate) fn range() -> impl Strategy<Value = Range> {
    positions().prop_map(|[from, to]| Range::new(from, to).unwrap())
}

pub(crate) fn impossible() -> impl Strategy<Value = Impossible> {
    use Impossible::{NoBoundary, OtherRecord, ReceiverAhead};
    prop::sample::select(vec![ReceiverAhead, NoBoundary, OtherRecord])
}

pub(crate) fn peer() -> impl Strategy<Value = Peer> {
    (1..=u128::MAX, 1_u64..=1 << 62).prop_map(|(store_id, incarnation)| Peer {
        store_id: StoreId(store_id),
        incarnation: Incarnation(incarnation),
    })
}

/// Generates a skip of an epoch up to `last`. The skip lies within one stream, or leads from one
/// stream into another.
pub(crate) fn skip(last: u64) -> impl Strategy<Value = Skip> {
    (0..=last, stream(), option::of(stream()), range(), position()).prop_map(
        |(epoch, of, into, range, resume)| {
            let into = into.unwrap_or(of);
            let resume = if into == of { range.to() } else { resume };
            Skip { epoch: Epoch(epoch), of, into, range, resume }
        },
    )
}

/// Generates the summary of a past epoch (its streams and positions) before `epoch`, or `None`.
pub(crate) fn past(epoch: u64) -> impl Strategy<Value = Option<Past>> {
    let sent = (stream(), positions()).prop_map(|(stream, [acked, tail])| SentPast {
        stream,
        acked,
        tail,
    });
    let received =
        (stream(), position()).prop_map(|(stream, consumed)| ReceivedPast { stream, consumed });
    let numbers = (0..epoch.max(1), any::<bool>(), any::<bool>());
    (numbers, option::of(sent), option::of(received)).prop_map(
        move |((before, settled, is_there), sending, receiving)| {
            let past = Past { epoch: Epoch(before), sending, receiving, settled };
            (is_there && epoch > 0).then_some(past)
        },
    )
}

/// Generates any valid [`Attach`]: an identity, with views of its epoch.
pub(crate) fn sides() -> impl Strategy<Value = Attach> {
    prop_oneof![0_u64..4, any::<u64>()].prop_flat_map(|epoch| {
        let epoch = Epoch(epoch);
        let sending = (stream(), positions()).prop_map(move |(stream, [base, tail])| {
            SenderView::new(epoch, stream, base, tail).unwrap()
        });
        let acked_offset = option::of((stream(), positions(), any::<u32>()));
        let skip = option::of(skip(epoch.0));
        let receiving =
            (acked_offset, skip).prop_map(move |(acked_offset, skip)| match acked_offset {
                None => ReceiverView::nothing(epoch, skip),
                Some((stream, [position, received], digest)) => {
                    let digest = RecordDigest(if position == Position::START { 0 } else { digest });
                    let acked_offset = AckedOffset { stream, position, digest };
                    ReceiverView::new(epoch, Some(acked_offset), received, skip).unwrap()
                }
            });
        let window = (12_u32..=30, 0_u64..=1 << 40)
            .prop_map(|(ring, slab_bytes)| Window { ring_bytes: 1 << ring, slab_bytes });
        let numbers = (any::<u64>(), any::<u64>(), peer());
        (numbers, sending, receiving, past(epoch.0), window).prop_map(
            move |((nonce, connection_number, peer), sending, receiving, past, window)| {
                let identity = Identity {
                    store_id: peer.store_id,
                    incarnation: peer.incarnation,
                    connection_number: ConnectionNumber(connection_number),
                    epoch,
                };
                let shares = nonce % 2 == 1;
                Attach { nonce: Nonce(nonce), identity, sending, receiving, past, window, shares }
            },
        )
    })
}
