// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that credit in a BLOB record (SPEC 5.2, 11.4) must obey the rules of CREDIT records. A
//! peer that breaks these rules is refused.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::StreamSendError;
use partywall_layout::record_ring::Kind;
use partywall_testkit::hostile::channel::blob;
use partywall_testkit::hostile::session_home::{SessionHome, keep_all};
use partywall_testkit::hostile::{Role, SessionFoe};
use partywall_testkit::{Watchdog, together};
use std::time::Duration;
use zerocopy::IntoBytes;

type Act = fn(&mut SessionFoe);

/// Sends a BLOB of eight bytes at the beginning of the slab, with the bytes `behind` after its
/// body.
fn send_blob(foe: &mut SessionFoe, block: u64, behind: &[u8]) -> bool {
    foe.send(Kind::Blob, 2, &[blob(block, 0, 0, 8).as_bytes(), behind].concat())
}

/// Violations by the peer, each of which must end the session: a name, the code of the violation,
/// and the action of the peer. Before the action, this side has sent a message that cost 128 bytes
/// of credit.
const CASES: &[(&str, u32, Act)] = &[
    ("more credit than was sent", 17, |foe| _ = send_blob(foe, 1, &129u64.to_le_bytes())),
    ("all credit there is", 17, |foe| _ = send_blob(foe, 1, &u64::MAX.to_le_bytes())),
    ("credit that goes back", 17, |foe| {
        foe.credit(2, 128);
        send_blob(foe, 1, &64u64.to_le_bytes());
    }),
    ("CREDIT behind the credit of a BLOB", 17, |foe| {
        send_blob(foe, 1, &128u64.to_le_bytes());
        foe.credit(2, 64);
    }),
    ("credit after the stop", 16, |foe| {
        foe.reset(2, 2);
        send_blob(foe, 1, &128u64.to_le_bytes());
    }),
    ("seven bytes of credit", 7, |foe| _ = send_blob(foe, 1, &[0; 7])),
    ("nine bytes of credit", 7, |foe| _ = send_blob(foe, 1, &[0; 9])),
    ("two credits", 7, |foe| _ = send_blob(foe, 1, &[0; 16])),
    ("credit for a stream that never was", 16, |foe| {
        let body = [blob(1, 0, 0, 8).as_bytes(), &0u64.to_le_bytes()].concat();
        foe.send(Kind::Blob, 3, &body);
    }),
];

#[test]
fn credit_in_a_blob_is_checked_as_credit_is() {
    let _together = together();
    let _watchdog = Watchdog::new("credit in blobs", Duration::from_secs(60));
    let mut wrong = Vec::new();
    for role in Role::ALL.into_iter().filter(|role| role.is_shared_memory) {
        let home = SessionHome::new(role);
        for (what, code, act) in CASES {
            let (mut foe, session, _ours) = home.in_use();
            keep_all(&home, &session);
            act(&mut foe);
            let found = home.code(&session);
            if found != *code {
                wrong.push(format!("{what}, {role:?}: not code {code} but {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_blob_with_credit_is_a_message_like_any_other() {
    let _together = together();
    let _watchdog = Watchdog::new("a blob with credit", Duration::from_secs(60));
    for role in Role::ALL.into_iter().filter(|role| role.is_shared_memory) {
        let home = SessionHome::new(role);
        let (mut foe, _session, mut ours) = home.in_use();
        assert!(send_blob(&mut foe, 1, &0u64.to_le_bytes()));
        assert!(send_blob(&mut foe, 2, &128u64.to_le_bytes()));
        assert!(send_blob(&mut foe, 3, &[]));
        for _ in 0..3 {
            assert_eq!(*home.wait(ours.recv()).unwrap().unwrap(), [0; 8]);
        }
        assert!(foe.ping(5) && foe.receive_answer(5), "{role:?}");
    }
}

/// Input: a BLOB whose credit exceeds the window, which is a violation, and would let a waiting
/// sender of this side continue. Expected: that sender reports the end of the session.
#[test]
fn waiting_sender_gets_violation_that_comes_with_credit() {
    let _together = together();
    let _watchdog = Watchdog::new("a violation with credit", Duration::from_secs(60));
    for role in Role::ALL.into_iter().filter(|role| role.is_shared_memory) {
        let home = SessionHome::new(role);
        let (mut foe, session, mut ours) = home.in_use();
        let sending = home.runtime.spawn(async move {
            loop {
                if let Err(error) = ours.send(&[0; 500_000]).await {
                    return error;
                }
            }
        });
        // The peer has given credit for two messages, so the third message of this side waits.
        for _ in 0..2 {
            assert!(foe.receive_until(Kind::Blob, 2).is_some());
        }
        // By now the sender most likely waits for credit.
        std::thread::sleep(Duration::from_millis(20));
        for block in 0..15 {
            send_blob(&mut foe, block, &[]);
        }
        send_blob(&mut foe, 15, &128u64.to_le_bytes());
        let error = home.wait(sending).unwrap();
        assert!(matches!(error, StreamSendError::Session(_)), "{role:?}: {error}");
        assert_eq!(home.code(&session), 17, "more than the window");
    }
}
