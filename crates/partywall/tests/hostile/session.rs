// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which the peer of a session breaks the rules of streams. The calls of this side report
//! the broken rule or continue correctly. They never panic, hang or use more and more memory.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::SessionError;
use partywall_layout::record_ring::Kind;
use partywall_testkit::hostile::session_home::{MESSAGE_MAX, SessionHome, keep_all};
use partywall_testkit::hostile::{Role, SessionFoe};
use partywall_testkit::{Random, Watchdog, together};
use std::time::{Duration, Instant};

type Act = fn(&mut SessionFoe);

/// Violations by the peer, each of which must end the session: a name, the code of the violation,
/// and the action of the peer.
const CASES: &[(&str, u32, Act)] = &[
    ("our number is opened", 16, |foe| _ = foe.open(4, b"")),
    ("an index beyond streams max", 16, |foe| _ = foe.open(9, b"")),
    ("the last number there is", 16, |foe| _ = foe.open(u32::MAX, b"")),
    ("opened twice", 16, |foe| {
        foe.open(1, b"");
        foe.open(1, b"");
    }),
    ("OPEN without its head", 7, |foe| _ = foe.send(Kind::Open, 1, &[0; 7])),
    ("metadata too long", 7, |foe| _ = foe.open(1, &[0; 1001])),
    ("a message never opened", 16, |foe| _ = foe.send(Kind::Data, 3, b"x")),
    ("a message of our number never opened", 16, |foe| _ = foe.send(Kind::Data, 4, b"x")),
    ("an end never opened", 16, |foe| _ = foe.send(Kind::CloseWrite, 3, b"")),
    ("END never opened", 16, |foe| _ = foe.send(Kind::End, 4, b"")),
    ("credit never opened", 16, |foe| _ = foe.credit(3, 0)),
    ("a fragment never opened", 16, |foe| _ = foe.first(3, 9, b"x")),
    ("a message of the session", 16, |foe| _ = foe.send(Kind::Data, 0, b"x")),
    ("OPEN of the session", 4, |foe| _ = foe.open(0, b"")),
    ("OPEN of the session with metadata", 4, |foe| _ = foe.open(0, &[0; 100])),
    ("RESET of the session", 4, |foe| _ = foe.reset(0, 3)),
    ("CREDIT of the session", 4, |foe| _ = foe.credit(0, 0)),
    ("END of the session", 4, |foe| _ = foe.send(Kind::End, 0, b"")),
    ("a fragment of the session", 16, |foe| _ = foe.first(0, 9, b"x")),
    ("GO_AWAY of a stream", 4, |foe| _ = foe.send(Kind::GoAway, 2, &[0; 8])),
    ("PING of a stream", 4, |foe| _ = foe.send(Kind::Ping, 2, &[0; 16])),
    ("a short GO_AWAY", 7, |foe| _ = foe.send(Kind::GoAway, 0, &[0; 7])),
    ("a reason without CLOSING", 7, |foe| _ = foe.send(Kind::GoAway, 0, &[0; 9])),
    ("a long PING", 7, |foe| _ = foe.send(Kind::Ping, 0, &[0; 17])),
    ("a PING that neither asks nor answers", 7, |foe| _ = foe.send(Kind::Ping, 0, &[2; 16])),
    ("a message after the end", 16, |foe| {
        foe.send(Kind::CloseWrite, 2, b"");
        foe.send(Kind::Data, 2, b"x");
    }),
    ("a message after RESET {sending}", 16, |foe| {
        foe.reset(2, 1);
        foe.send(Kind::Data, 2, b"x");
    }),
    ("CLOSE_WRITE twice", 16, |foe| {
        foe.send(Kind::CloseWrite, 2, b"");
        foe.send(Kind::CloseWrite, 2, b"");
    }),
    ("RESET {sending} twice", 16, |foe| {
        foe.reset(2, 1);
        foe.reset(2, 1);
    }),
    ("CLOSE_WRITE with a body", 7, |foe| _ = foe.send(Kind::CloseWrite, 2, b"x")),
    ("END with a body", 7, |foe| _ = foe.send(Kind::End, 2, b"x")),
    ("END of its own stream", 16, |foe| {
        foe.open(1, b"");
        // This side leaves the message unread. Otherwise it would send its own END first, after
        // which it ignores records of the stream.
        foe.send(Kind::Data, 1, b"x");
        foe.reset(1, 3);
        foe.send(Kind::End, 1, b"");
    }),
    ("END while open", 16, |foe| _ = foe.send(Kind::End, 2, b"")),
    ("END while one direction is open", 16, |foe| {
        foe.send(Kind::CloseWrite, 2, b"");
        foe.send(Kind::End, 2, b"");
    }),
    ("a record after END", 16, |foe| {
        foe.reset(2, 3);
        foe.send(Kind::End, 2, b"");
        foe.credit(2, 128);
    }),
    ("END twice", 16, |foe| {
        foe.reset(2, 3);
        foe.send(Kind::End, 2, b"");
        foe.send(Kind::End, 2, b"");
    }),
    ("RESET without direction", 7, |foe| _ = foe.reset(2, 0)),
    ("RESET of a third direction", 7, |foe| _ = foe.reset(2, 4)),
    ("RESET of all directions", 7, |foe| _ = foe.reset(2, u32::MAX)),
    ("a short RESET", 7, |foe| _ = foe.send(Kind::Reset, 2, &[1; 7])),
    ("a long RESET", 7, |foe| _ = foe.send(Kind::Reset, 2, &[1; 100])),
    ("a short CREDIT", 7, |foe| _ = foe.send(Kind::Credit, 2, &[0; 4])),
    ("more credit than was sent", 17, |foe| _ = foe.credit(2, 129)),
    ("all credit there is", 17, |foe| _ = foe.credit(2, u64::MAX)),
    ("credit that goes back", 17, |foe| {
        foe.credit(2, 128);
        foe.credit(2, 64);
    }),
    ("credit after the stop", 16, |foe| {
        foe.reset(2, 2);
        foe.credit(2, 128);
    }),
    ("more than the window", 17, |foe| {
        for _ in 0..3 {
            foe.send(Kind::Data, 2, &[0; 500]);
        }
    }),
    ("more than the window, in empty messages", 17, |foe| {
        for _ in 0..17 {
            foe.send(Kind::Data, 2, b"");
        }
    }),
    ("more than the window, announced", 17, |foe| {
        foe.send(Kind::Data, 2, &[0; 600]);
        foe.first(2, 600, b"x");
    }),
    ("a total longer than agreed", 11, |foe| _ = foe.first(2, MESSAGE_MAX + 1, b"x")),
    ("the longest total", 11, |foe| _ = foe.first(2, u64::MAX, b"x")),
    ("a first part without total", 7, |foe| _ = foe.send(Kind::FragmentFirst, 2, &[0; 7])),
    ("a part of nothing", 14, |foe| _ = foe.send(Kind::FragmentMid, 2, b"x")),
    ("a last part of nothing", 14, |foe| _ = foe.send(Kind::FragmentLast, 2, b"x")),
    ("the end of no message", 14, |foe| _ = foe.send(Kind::FragmentAbort, 2, b"")),
    ("an abort with a body", 7, |foe| {
        foe.first(2, 9, b"x");
        foe.send(Kind::FragmentAbort, 2, b"x");
    }),
    ("a message in parts within another", 14, |foe| {
        foe.first(2, 9, b"x");
        foe.first(2, 9, b"x");
    }),
    ("a message between its parts", 16, |foe| {
        foe.first(2, 9, b"x");
        foe.send(Kind::Data, 2, b"x");
    }),
    ("parts of another stream", 14, |foe| {
        foe.open(1, b"");
        foe.first(2, 9, b"x");
        foe.send(Kind::FragmentMid, 1, b"x");
    }),
    ("more than the total", 14, |foe| {
        foe.first(2, 3, b"x");
        foe.send(Kind::FragmentMid, 2, b"123");
    }),
    ("less than the total", 14, |foe| {
        foe.first(2, 9, b"x");
        foe.send(Kind::FragmentLast, 2, b"123");
    }),
];

#[test]
fn each_rule_of_streams_that_is_broken_is_named() {
    let _together = together();
    let _watchdog = Watchdog::new("each rule", Duration::from_secs(120));
    let mut wrong = Vec::new();
    for role in Role::ALL {
        let home = SessionHome::new(role);
        for (what, code, act) in CASES {
            let (mut foe, session, mut ours) = home.in_use();
            keep_all(&home, &session);
            act(&mut foe);
            let found = home.code(&session);
            if found != *code {
                wrong.push(format!("{what}, {role:?}: not code {code} but {found}"));
            }
            // After the violation, every later call of the session and its streams fails.
            assert!(home.wait(ours.send(b"x")).is_err());
            assert!(home.wait(session.open(b"")).is_err());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Unusual actions of the peer that the protocol allows, each with a name.
const HARMLESS: &[(&str, Act)] = &[
    ("GO_AWAY twice", |foe| {
        foe.send(Kind::GoAway, 0, &[0; 8]);
        foe.send(Kind::GoAway, 0, &[0; 8]);
    }),
    ("an answer that nobody asked for", |foe| {
        _ = foe.send(Kind::Ping, 0, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0])
    }),
    ("RESET {receiving} twice", |foe| {
        foe.reset(2, 2);
        foe.reset(2, 2);
    }),
    ("the same credit twice", |foe| {
        foe.credit(2, 128);
        foe.credit(2, 128);
    }),
    ("a message under way for ever", |foe| _ = foe.first(2, MESSAGE_MAX, b"x")),
    ("empty parts", |foe| {
        foe.first(2, 4, b"");
        for _ in 0..1000 {
            foe.send(Kind::FragmentMid, 2, b"");
        }
        foe.send(Kind::FragmentLast, 2, b"1234");
    }),
    ("the highest index first", |foe| _ = foe.open(7, &[0; 1000])),
    ("what was under way when its stream ended", |foe| {
        foe.open(1, b"");
        foe.reset(1, 3);
        assert!(foe.receive_until(Kind::End, 1).is_some());
        foe.send(Kind::Data, 1, &[0; 60_000]);
        foe.send(Kind::Data, 1, &[0; 60_000]);
        foe.credit(1, 1 << 40);
        foe.send(Kind::CloseWrite, 1, b"");
        foe.open(1, b"again");
    }),
];

#[test]
fn what_is_strange_but_allowed_does_no_harm() {
    let _together = together();
    let _watchdog = Watchdog::new("harmless", Duration::from_secs(60));
    for role in Role::ALL {
        let home = SessionHome::new(role);
        for (what, act) in HARMLESS {
            let (mut foe, session, _ours) = home.in_use();
            keep_all(&home, &session);
            act(&mut foe);
            let is_well = foe.ping(77) && foe.receive_answer(77);
            assert!(is_well, "{what}, {role:?}: {:?}", session.close_reason());
        }
    }
}

#[test]
fn a_stream_that_was_never_accepted_is_not_opened_again() {
    let _together = together();
    for role in Role::ALL {
        let home = SessionHome::new(role);
        let (mut foe, session) = home.meet();
        foe.open(1, b"");
        foe.reset(1, 3);
        assert!(foe.ping(1) && foe.receive_answer(1));
        assert_eq!(session.streams(), 1, "it ends when it was accepted");
        foe.open(1, b"");
        assert_eq!(home.code(&session), 16);
    }
}

/// Input: sessions that end while the peer reads none of their messages, so that each waits for the
/// peer. Expected: other tasks of the runtime continue meanwhile.
#[test]
fn one_who_ends_without_reading_holds_up_no_thread_of_the_runtime() {
    let _together = together();
    let _watchdog = Watchdog::new("lingering", Duration::from_secs(60));
    let home = SessionHome::new(Role::ALL[0]);
    let met: Vec<_> = (0..4).map(|_| home.meet()).collect();
    let mut foes = Vec::new();
    for (mut foe, session) in met {
        home.wait(async {
            let mut stream = session.open(b"").await.unwrap();
            while stream.try_send(&[1; 900 << 10]).is_ok() {}
        });
        foe.send(Kind::CloseWrite, 0, b"");
        foes.push(foe);
    }
    // If a session that waits to be closed blocked a thread, as many of them as the runtime has
    // threads would block all tasks.
    let slowest = home.wait(async {
        let mut slowest = Duration::ZERO;
        for _ in 0..50 {
            let began = Instant::now();
            tokio::spawn(tokio::time::sleep(Duration::from_millis(5))).await.unwrap();
            slowest = slowest.max(began.elapsed());
        }
        slowest
    });
    assert!(slowest < Duration::from_millis(400), "{slowest:?}");
    drop(foes);
}

#[test]
fn records_at_random_end_in_a_violation_or_in_nothing() {
    let _together = together();
    let _watchdog = Watchdog::new("random records", Duration::from_secs(120));
    let homes = Role::ALL.map(SessionHome::new);
    let kinds = [
        Kind::Data,
        Kind::FragmentFirst,
        Kind::FragmentMid,
        Kind::FragmentLast,
        Kind::FragmentAbort,
        Kind::Open,
        Kind::CloseWrite,
        Kind::Reset,
        Kind::Credit,
        Kind::GoAway,
        Kind::Ping,
        Kind::End,
    ];
    let (mut violations, mut alive) = (0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed + 1);
        let home = &homes[seed as usize % homes.len()];
        let (mut foe, session, _ours) = home.in_use();
        keep_all(home, &session);
        foe.open(1, b"");
        for _ in 0..random.below(12) {
            let kind = kinds[random.below(kinds.len() as u64) as usize];
            let stream = random.below(4) as u32;
            let len = [0, 8, 8, 16, 9, 1000][random.below(6) as usize];
            let body: Vec<u8> =
                (0..len).map(|_| random.below(4) as u8 * (random.below(3) / 2) as u8).collect();
            foe.send(kind, stream, &body);
        }
        if foe.ping(1 << 40) && foe.receive_answer(1 << 40) {
            assert!(session.close_reason().is_none());
            alive += 1;
        } else {
            match home.wait(session.closed()) {
                // One of the random records was a CLOSE_WRITE of stream 0, by which a peer ends the
                // session in good order.
                SessionError::Closed(_) | SessionError::ClosedByPeer { .. } => {}
                _ => assert!((1..=17).contains(&home.code(&session)), "seed {seed}"),
            }
            violations += 1;
        }
    }
    assert!(violations > 100 && alive > 20, "{violations} violations, {alive} alive");
}
