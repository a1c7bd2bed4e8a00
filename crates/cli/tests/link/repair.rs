// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests links in quarantine. If the link file of the sender or receiver was restored from an older
//! copy, the two files contradict each other, and the link stops. `partywall link adopt` and
//! `reset` end the quarantine, and print the consequences before they act.

use crate::linked;
use crate::program;

use linked::Ground;
use program::{run, text};
use std::fs;

const QUARANTINE: (Option<i32>, Option<i32>) = (Some(5), Some(5));
const BOTH_DONE: (Option<i32>, Option<i32>) = (Some(0), Some(0));

/// A link in quarantine: it had three acknowledged messages, and then the sender's file was
/// replaced by a copy that has only the first message.
fn quarantined() -> Ground {
    quarantined_keeping("")
}

/// A link in quarantine, as made by [`quarantined`]. The older copy of the sender's file also holds
/// the message `kept`, which the receiver had not received when the file was copied.
fn quarantined_keeping(kept: &str) -> Ground {
    let ground = Ground::new(false);
    let (file, copy) = (ground.file_of("alice", "link"), ground.path("copy"));
    assert_eq!(ground.carry("1\n", &[], &[]).codes, BOTH_DONE);
    if !kept.is_empty() {
        keep(&ground, kept);
    }
    fs::copy(&file, &copy).unwrap();
    assert_eq!(ground.carry("2\n3\n", &[], &[]).output, format!("{kept}2\n3\n"));
    fs::copy(&copy, &file).unwrap();
    let carried = ground.carry("4\n", &[], &[]);
    assert_eq!(carried.codes, QUARANTINE, "{carried:?}");
    for printed in [&carried.sender, &carried.receiver] {
        assert!(printed.contains("in quarantine") && printed.contains("adopt --help"), "{printed}");
    }
    ground
}

/// Runs `link send` for a message while there is no receiver, so that the message stays in the
/// sender's file without an acknowledgement.
fn keep(ground: &Ground, message: &str) {
    let input = ground.write("kept", message);
    let output = run(&ground.alice(&["--in", &input, "--timeout", "200ms"]));
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}

fn repair(ground: &Ground, task: &str, local: &str, more: &[&str]) -> (i32, String) {
    let peer = if local == "alice" { "bob" } else { "alice" };
    let dir = ground.links.to_str().unwrap();
    let own = ["link", task, "--dir", dir, "--name", local, "--peer", peer];
    let output = run(&[&own[..], more].concat());
    (output.status.code().unwrap(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn link_adopted_at_both_ends_sends_all_kept_messages_again() {
    let ground = quarantined();
    let (code, printed) = repair(&ground, "adopt", "bob", &[]);
    assert!(
        code == 1 && printed.contains("would be forgotten") && printed.contains("--yes"),
        "{printed}"
    );
    assert_eq!(ground.inspected().matches("quarantined  ").count(), 2);
    let (code, printed) = repair(&ground, "adopt", "bob", &["--yes"]);
    assert!(code == 0 && printed.contains("receiving: receiver ahead: ended"), "{printed}");
    let (code, printed) = repair(&ground, "adopt", "alice", &["--yes"]);
    assert!(code == 0 && printed.contains("sending: receiver ahead: ended"), "{printed}");
    let carried = ground.carry("5\n", &[], &[]);
    assert_eq!(carried.codes, BOTH_DONE, "{carried:?}");
    // Expected result: the receiver's output has the message 4 only if the sender had stored that
    // message in its file when it noticed the quarantine.
    assert!(["1\n4\n5\n", "1\n5\n"].contains(&&*carried.output), "{carried:?}");
    // Expected result: the next `link send`, which becomes the owner of the sender's file, does not
    // send earlier messages again.
    assert_eq!(ground.carry("6\n", &[], &[]).output, "6\n");
}

#[test]
fn reset_drops_sent_messages_and_keeps_a_copy() {
    let ground = quarantined_keeping("kept\n");
    let before = fs::read(ground.file_of("alice", "link")).unwrap();
    let (code, printed) = repair(&ground, "reset", "alice", &[]);
    assert!(code == 1 && printed.contains("at most: would be given up"), "{printed}");
    let (code, printed) = repair(&ground, "reset", "alice", &["--yes"]);
    assert!(
        code == 0 && printed.contains("at most: given up") && printed.contains(".link.reset-1"),
        "{printed}"
    );
    let copy = fs::read(ground.file_of("alice", "link.reset-1")).unwrap();
    assert!(copy[8192..] == before[8192..], "but for its owners the copy is the file as it was");
    // `reset` changed only the sender's file. The receiver's file still has the stream from which
    // it received, so the receiver needs `adopt`, but no `reset`.
    let (code, _) = repair(&ground, "adopt", "bob", &["--yes"]);
    assert_eq!(code, 0);
    let carried = ground.carry("5\n", &[], &[]);
    assert_eq!((carried.codes, &*carried.output), (BOTH_DONE, "5\n"), "{carried:?}");
    assert!(carried.sender.contains("undelivered: positions"), "{}", carried.sender);
    assert_eq!(ground.carry("6\n", &[], &[]).output, "6\n");
}

#[test]
fn repair_of_one_end_does_not_change_the_other() {
    let ground = quarantined();
    let (code, _) = repair(&ground, "adopt", "alice", &["--yes"]);
    assert_eq!(code, 0);
    let carried = ground.carry("5\n", &["--timeout", "5s"], &[]);
    assert_eq!(carried.codes.1, Some(5), "{carried:?}");
    assert_ne!(carried.codes.0, Some(0), "{carried:?}");
}

#[test]
fn link_in_order_is_not_adopted_and_owned_link_is_unchanged() {
    let ground = Ground::new(false);
    assert_eq!(ground.carry("1\n", &[], &[]).codes, BOTH_DONE);
    let (code, printed) = repair(&ground, "adopt", "alice", &["--yes"]);
    assert!(code == 2 && printed.contains("not in quarantine"), "{printed}");
    let (code, printed) = repair(&ground, "reset", "alice", &["--link", "other"]);
    assert!(code == 2 && printed.contains("link inspect"), "{printed}");
    keep(&ground, "2\n");
    let receiver = ground.start(&ground.bob(&[]));
    let owned = format!("owned by process {}", receiver.0.id());
    // The test waits with `inspect`, which never owns the receiver's file. A `reset` that comes too
    // early would become the owner, and the receiver, which starts at the same time, would be
    // fenced and exit.
    program::wait_until("it owns its file", || ground.inspected().contains(&owned));
    let (code, printed) = repair(&ground, "reset", "bob", &["--yes"]);
    assert!(code == 2 && printed.contains(&owned), "{printed}");
    let (code, printed) = repair(&ground, "reset", "alice", &["--yes"]);
    assert!(code == 0 && printed.contains("undelivered  positions 64..128, at most"), "{printed}");
}
