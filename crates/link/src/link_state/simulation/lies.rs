// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of single faults that the simulation does not make: a false connection number, a peer that
//! reads nothing, a corrupt word in the store.

use partywall_reconcile::{ConnectionNumber, Position, StreamId};

use super::memory::TestStore;
use crate::link_state::{Conn, End, LinkState};
use crate::protocol::frame::{Frame, Names, Refusal};

fn asking(core: &mut LinkState) -> Option<Conn> {
    let names = Names { client: "a".into(), server: "b".into(), link: "l".into() };
    core.attach(names, Vec::new())
}

#[test]
fn false_connection_number_uses_none_up() {
    let mut core = LinkState::open(TestStore::new(1).open()).unwrap();
    let conn = asking(&mut core).unwrap();
    let end = core.on_refuse(&conn, conn.nonce, Refusal::Stale(ConnectionNumber(u64::MAX)));
    assert_eq!(end, End::NotFresh);
    // Rule: an end believes a higher connection number that its peer reports, if an end with an
    // older copy of its file could have missed so many connections.
    let seen = ConnectionNumber(1000);
    core.on_refuse(&conn, conn.nonce, Refusal::Stale(seen));
    let next = asking(&mut core).expect("it attaches again");
    assert!(next.connection_number > seen);
}

#[test]
fn unread_ack_frames_replace_each_other() {
    let mut core = LinkState::open(TestStore::new(1).open()).unwrap();
    let mut conn = asking(&mut core).unwrap();
    let before = conn.control.len();
    let stream = StreamId::new(7).unwrap();
    let say = |conn: &mut Conn, position| {
        conn.push_frame(&Frame::Ack { stream, consumed: Position(position) });
        conn.control.len() - before
    };
    let one = say(&mut conn, 64);
    assert!((2..1000).all(|slot| say(&mut conn, slot * 64) == one));
    // Rule: in the queue of frames to be written, an ACK does not replace an earlier ACK that was
    // already written in part.
    conn.control_sent = before + 1;
    let begun = conn.control[before..].to_vec();
    assert_eq!(say(&mut conn, 64_000), 2 * one);
    assert_eq!(conn.control[before..before + one], begun);
    // Rule: in the queue of frames to be written, an ACK does not replace an earlier ACK that
    // another queued frame follows.
    conn.push_frame(&Frame::Leave);
    let said = conn.control.len() - before;
    assert_eq!(say(&mut conn, 64_064), said + one);
}

#[test]
fn rotted_delivery_count_does_not_prevent_opening() {
    let mut kept = TestStore::new(1);
    for rotted in [1, 100, u64::MAX] {
        let mut core = LinkState::open(kept.open()).unwrap();
        let stream = StreamId::new(7).unwrap();
        core.store.durable.acked_offset = Some(partywall_reconcile::AckedOffset {
            stream,
            position: Position::START,
            digest: partywall_reconcile::RecordDigest::START,
        });
        core.commit_state();
        core.store.consumed.note_delivered(stream.0.get(), rotted);
        drop(core);
    }
    let core = LinkState::open(kept.open()).unwrap();
    assert_eq!(core.store.durable.delivered(), []);
}
