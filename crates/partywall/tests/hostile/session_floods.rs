// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which the peer of a session floods this side with records that are cheap for the peer
//! to send. The memory and the descriptors of this side stay bounded. Records beyond a bound are
//! the violation that the specification names.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::tokio::Session;
use partywall_layout::record_ring::Kind;
use partywall_testkit::hostile::Role;
use partywall_testkit::hostile::session_home::{STREAMS_MAX, SessionHome};
use partywall_testkit::{Footprint, Watchdog, alone, together};
use std::time::Duration;

/// Maximum number of bytes by which this process's resident memory may grow during the peer's flood
/// of records, so that kept records show.
const GROWTH_MAX: u64 = 8 << 20;
/// Code of the violation that reports a broken rule of streams (SPEC 11.2).
const STREAM: u32 = 16;

/// Starts a task that accepts the peer's streams and drops each stream immediately.
fn drop_all(home: &SessionHome, session: &Session) {
    let session = session.clone();
    home.runtime.spawn(async move { while let Ok(Some(_)) = session.accept().await {} });
}

#[test]
fn rapid_reset_and_floods_take_bounded_memory() {
    let _alone = alone();
    let _watchdog = Watchdog::new("floods", Duration::from_secs(120));
    for role in Role::ALL {
        flood(role);
    }
}

fn flood(role: Role) {
    let home = SessionHome::new(role);
    let (mut foe, session, _ours) = home.in_use();
    drop_all(&home, &session);
    let mut before = None;
    for round in 0..5000u64 {
        foe.open(1, &[0; 1000]);
        foe.send(Kind::Data, 1, &[0; 900]);
        foe.reset(1, 3);
        assert!(foe.receive_until(Kind::End, 1).is_some(), "{:?}", session.close_reason());
        if round == 500 {
            before = Some(Footprint::now());
        }
    }
    // The peer reads no answers to its pings, so this side keeps only the newest answer.
    assert!(foe.flood_of_pings(0..200_000));
    assert!(foe.flood(Kind::GoAway, 0, (0..50_000).map(|_| vec![0; 8])));
    assert!(foe.receive_answer(199_999));
    let (before, after) = (before.unwrap(), Footprint::now());
    assert!(after.resident_bytes < before.resident_bytes + GROWTH_MAX, "{before:?} {after:?}");
    assert_eq!(after.descriptors, before.descriptors);
}

/// Input: a peer opens streams, and this side accepts none. Expected: `streams_max` of them are
/// allowed, and the next OPEN is a violation.
#[test]
fn a_flood_of_opens_ends_at_the_number_agreed() {
    const MANY: u32 = 1024;
    let _alone = alone();
    let _watchdog = Watchdog::new("opens", Duration::from_secs(120));
    for role in Role::ALL {
        let home = SessionHome::with(role, |config| config.streams_max(MANY));
        let mut before = None;
        for _ in 0..4 {
            let (mut foe, session) = home.meet();
            for index in 0..MANY {
                assert!(foe.open(2 * index + 1, &[9; 1000]), "index {index}");
            }
            assert!(foe.ping(1) && foe.receive_answer(1), "{:?}", session.close_reason());
            assert_eq!(session.streams(), MANY as usize);
            foe.open(2 * MANY + 1, b"");
            assert_eq!(home.code(&session), STREAM, "{role:?}");
            drop(session);
            let held = Footprint::now().resident_bytes;
            let first = *before.get_or_insert(held);
            assert!(held < first + GROWTH_MAX, "{role:?}: {first}, then {held}");
        }
    }
}

/// Input: a peer opens and resets streams, and this side accepts none. Expected: the reuse of a
/// stream's number is a violation, because the number becomes free only after the stream was
/// accepted.
#[test]
fn opens_and_resets_without_pause_end_at_the_number_agreed_while_nobody_accepts() {
    let _together = together();
    let _watchdog = Watchdog::new("opens and resets", Duration::from_secs(120));
    for role in Role::ALL {
        let home = SessionHome::new(role);
        for _ in 0..50 {
            let (mut foe, session) = home.meet();
            for number in 0..STREAMS_MAX {
                foe.open(2 * number + 1, &[9; 1000]);
                foe.reset(2 * number + 1, 3);
            }
            assert!(foe.ping(1) && foe.receive_answer(1), "{:?}", session.close_reason());
            assert_eq!(session.streams(), STREAMS_MAX as usize);
            foe.open(1, b"");
            assert_eq!(home.code(&session), STREAM, "{role:?}");
        }
    }
}

/// Input: a peer opens and resets streams, and this side accepts and drops them. Expected: bounded
/// memory. If the peer reuses a number before it is free, which depends on timing, the session ends
/// with a violation.
#[test]
fn opens_and_resets_without_pause_take_bounded_memory_while_all_are_accepted() {
    const ROUNDS: u32 = 20_000;
    let _alone = alone();
    let _watchdog = Watchdog::new("opens and resets", Duration::from_secs(120));
    for role in Role::ALL {
        let home = SessionHome::new(role);
        let mut before = None;
        for _ in 0..20 {
            let (mut foe, session) = home.meet();
            drop_all(&home, &session);
            let mut is_open = true;
            for round in 0..ROUNDS {
                let number = 2 * (round % STREAMS_MAX) + 1;
                is_open = foe.open(number, &[9; 1000]) && foe.reset(number, 3);
                // A stream that has ended may count as open for another moment.
                assert!(session.streams() <= 2 * STREAMS_MAX as usize, "{role:?}");
                if !is_open || session.close_reason().is_some() {
                    is_open = false;
                    break;
                }
            }
            if !is_open {
                assert_eq!(home.code(&session), STREAM, "{role:?}");
            }
            drop((foe, session));
            let held = Footprint::now().resident_bytes;
            let first = *before.get_or_insert(held);
            assert!(held < first + GROWTH_MAX, "{role:?}: {first}, then {held}");
        }
    }
}
