// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests which side of a session closes the socket, and when, if only one side sends CLOSE_WRITE,
//! the record that ends a session (SPEC 11.6).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall_layout::record_ring::Kind;
use partywall_testkit::hostile::{Role, SessionFoe, SessionHome};
use partywall_testkit::{TIMEOUT, Watchdog, in_time, pattern};

/// Length of a message in bytes, so short that one record holds it on each transport.
const SHORT: usize = 100;

/// Makes the side under test, with a linger time longer than any test, so that no session ends
/// because of it.
fn home(role: Role) -> SessionHome {
    SessionHome::with(role, |config| config.linger(2 * TIMEOUT))
}

/// Receives records until the side under test closes the socket. Its last record, and no other,
/// must be the session's CLOSE_WRITE. Returns the number of records of the kind `kind`.
fn count_until_hang_up(foe: &mut SessionFoe, kind: Kind) -> usize {
    let (mut count, mut is_closed) = (0, false);
    while let Some(received) = foe.receive() {
        assert!(!is_closed, "{received:?} after CLOSE_WRITE");
        count += usize::from(received.kind == kind as u64);
        is_closed = received.kind == Kind::CloseWrite as u64 && received.stream == 0;
    }
    assert!(is_closed, "the victim hung up without CLOSE_WRITE");
    count
}

#[test]
fn side_that_read_close_write_answers_and_closes_the_socket() {
    let _watchdog = Watchdog::new("answer to CLOSE_WRITE", TIMEOUT);
    for role in Role::ALL {
        let home = home(role);
        let (mut foe, session) = home.meet();
        assert!(foe.open(1, b"") && foe.send(Kind::Data, 1, b"last"));
        assert!(foe.send(Kind::CloseWrite, 0, b""));
        // The test's own peer keeps its socket open, and the application keeps the session. So the
        // side under test closes the socket because of CLOSE_WRITE alone.
        assert_eq!(count_until_hang_up(&mut foe, Kind::Data), 0, "{role:?}");
        home.runtime.block_on(async {
            let mut stream = in_time("a stream", session.accept()).await.unwrap().unwrap();
            assert_eq!(
                in_time("a message", stream.recv()).await.unwrap().unwrap(),
                b"last",
                "{role:?}"
            );
            assert!(in_time("the end", session.closed()).await.is_good_end(), "{role:?}");
        });
    }
}

#[test]
fn side_that_ends_sends_all_and_closes_without_the_peers_close_write() {
    let _watchdog = Watchdog::new("end without an answer", TIMEOUT);
    for role in Role::ALL {
        let home = home(role);
        let (mut foe, session) = home.meet();
        home.runtime.block_on(async {
            let mut stream = in_time("a new stream", session.open(b"")).await.unwrap();
            for number in 0..20 {
                in_time("room", stream.send(&pattern(SHORT, number))).await.unwrap();
            }
        });
        // The side under test, which ends the session, reads the peer's pings and drops them.
        assert!(foe.flood_of_pings(0..100));
        session.close(0, "");
        assert_eq!(count_until_hang_up(&mut foe, Kind::Data), 20, "{role:?}");
        drop(session);
    }
}
