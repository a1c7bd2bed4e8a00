// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one lie, one idle neighbour or one rotted word could do, one at a time.

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
    // What an older copy of the file may have reached is believed.
    let seen = ConnectionNumber(1000);
    core.on_refuse(&conn, conn.nonce, Refusal::Stale(seen));
    let next = asking(&mut core).expect("it attaches again");
    assert!(next.connection_number > seen);
}

#[test]
fn acknowledgements_that_nobody_reads_do_not_pile_up() {
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
    // One that went in part stays as it is.
    conn.control_sent = before + 1;
    let begun = conn.control[before..].to_vec();
    assert_eq!(say(&mut conn, 64_000), 2 * one);
    assert_eq!(conn.control[before..before + one], begun);
    // Whatever was said after it stays behind it.
    conn.push_frame(&Frame::Leave);
    let said = conn.control.len() - before;
    assert_eq!(say(&mut conn, 64_064), said + one);
}

#[test]
fn a_rotted_count_of_deliveries_keeps_no_memory_closed() {
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
