// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `admit`, which decides whether a new connection replaces the present one: one test for
//! each case (SPEC 12.2).

use partywall_reconcile::attach::{Nonce, admit};
use partywall_reconcile::{
    Admission, Connection, ConnectionNumber, Epoch, Identity, Incarnation, Peer, PeerOrder, StoreId,
};
use proptest::prelude::*;

fn claim(store_id: u128, incarnation: u64, connection_number: u64) -> Identity {
    Identity {
        store_id: StoreId(store_id),
        incarnation: Incarnation(incarnation),
        connection_number: ConnectionNumber(connection_number),
        epoch: Epoch(1),
    }
}

fn present(claim: &Identity) -> Connection {
    Connection { peer: Peer::of(claim), connection_number: claim.connection_number }
}

#[test]
fn the_first_client_is_admitted() {
    assert_eq!(admit(None, None, &claim(1, 1, 1)), Admission::Accept);
}

#[test]
fn an_equal_or_older_connection_is_stale_and_a_newer_one_is_admitted() {
    let now = claim(1, 3, 5);
    let known = Peer::of(&now);
    let ask = |connection_number| {
        admit(Some(&known), Some(present(&now)), &claim(1, 3, connection_number))
    };
    assert_eq!(ask(4), Admission::Stale(ConnectionNumber(5)));
    assert_eq!(ask(5), Admission::Stale(ConnectionNumber(5)));
    assert_eq!(ask(6), Admission::Accept);
}

#[test]
fn older_owner_is_fenced_and_newer_one_admitted_with_any_connection_number() {
    let now = claim(1, 3, 5);
    let known = Peer::of(&now);
    let older = admit(Some(&known), Some(present(&now)), &claim(1, 2, 9));
    assert_eq!(older, Admission::Fenced(Incarnation(3)));
    let newer = admit(Some(&known), Some(present(&now)), &claim(1, 4, 1));
    assert_eq!(newer, Admission::Accept);
}

#[test]
fn another_file_is_a_stranger_and_admitted() {
    let now = claim(1, 3, 5);
    let known = Peer::of(&now);
    assert_eq!(Peer::compare(Some(&known), &claim(2, 1, 1)), PeerOrder::Stranger);
    assert_eq!(admit(Some(&known), Some(present(&now)), &claim(2, 1, 1)), Admission::Accept);
}

#[test]
fn no_connection_number_follows_the_last() {
    assert_eq!(ConnectionNumber(4).next_above(ConnectionNumber(9)), Some(ConnectionNumber(10)));
    assert_eq!(ConnectionNumber(u64::MAX).next_above(ConnectionNumber(0)), None);
}

proptest! {
    #[test]
    fn of_two_connections_of_one_owner_only_the_later_replaces_the_other(
        one in any::<u64>(), other in any::<u64>(), incarnation in any::<u64>(),
    ) {
        let (one, other) = (claim(1, incarnation, one), claim(1, incarnation, other));
        let admits = |now: &Identity, claim: &Identity| {
            admit(Some(&Peer::of(now)), Some(present(now)), claim) == Admission::Accept
        };
        prop_assert_eq!(admits(&one, &other), one.connection_number < other.connection_number);
        prop_assert!(!(admits(&one, &other) && admits(&other, &one)));
    }

    #[test]
    fn a_nonce_is_echoed_by_itself_alone(one in any::<u64>(), other in any::<u64>()) {
        prop_assert_eq!(Nonce(one).is_echoed_by(Nonce(other)), one == other);
    }
}
