// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests `partywall link send` and `recv` after another boot. A link file that was not closed is
//! refused with exit code 8, until `link adopt` or `--after-reboot adopt-proven` adopts it.
//!
//! After an adoption, the first run that delivers messages ends with exit code 9 or 10 (possible
//! loss or repetition), even if earlier runs failed or were killed.

use crate::linked;
use crate::program;

use linked::Ground;
use partywall_layout::link::{OWNER_OFFSET, OwnerRecord, PAGE_SLOT_STRIDE, slot};
use program::{Running, partywall, run, text, wait_until};
use std::fs;
use std::mem::offset_of;
use std::path::Path;

const REFUSED: i32 = 8;
const LOSS_POSSIBLE: i32 = 9;
const REPEAT_POSSIBLE: i32 = 10;
const SEAL_OFFSET: usize = size_of::<OwnerRecord>() - slot::SEAL_BYTES;
const ADOPT: [&str; 2] = ["--after-reboot", "adopt-proven"];

/// Changes the owner records of the link file at `path` as if its owners were from another boot.
fn reboot(path: &Path) {
    let mut image = fs::read(path).unwrap();
    for index in [0, 1] {
        let at = usize::try_from(OWNER_OFFSET + index * PAGE_SLOT_STRIDE).unwrap();
        let (body, seal) = image[at..at + size_of::<OwnerRecord>()].split_at_mut(SEAL_OFFSET);
        let is_whole = seal == slot::seal(body).to_le_bytes();
        if is_whole && body[offset_of!(OwnerRecord, incarnation)] > 0 {
            body[offset_of!(OwnerRecord, boot_id)..][..16].fill(7);
            seal.copy_from_slice(&slot::seal(body).to_le_bytes());
        }
    }
    fs::write(path, image).unwrap();
}

/// Changes the file `links.list`, which lists the links of the directory, as if its links were
/// listed in another boot.
fn reboot_list(ground: &Ground) {
    let list = ground.links.join("links.list");
    let lines = fs::read_to_string(&list).unwrap();
    let other: String =
        lines.lines().map(|line| format!("{} {}\n", &line[..16], "7".repeat(32))).collect();
    fs::write(list, other).unwrap();
}

/// Finds `bytes` in the file at `path`; returns their offset, if the file has them.
fn place_of(path: &Path, bytes: &str) -> Option<usize> {
    let image = fs::read(path).ok()?;
    image.windows(bytes.len()).position(|found| found == bytes.as_bytes())
}

/// Prepares a link whose sender stored `lines` in its link file and was killed before any receiver
/// came. The file looks as after a reboot.
fn killed_sender(lines: &[&str]) -> Ground {
    let ground = Ground::new(false);
    let input = ground.write("kept", lines.concat());
    let mut sender = ground.start(&ground.alice(&["--in", &input, "--ring", "4k"]));
    let (file, last) = (ground.file_of("alice", "link"), lines.last().unwrap().trim_end());
    wait_until("the link keeps the input", || place_of(&file, last).is_some());
    sender.0.kill().unwrap();
    sender.0.wait().unwrap();
    reboot(&file);
    ground
}

/// Prepares a link whose receiver wrote and acknowledged the line `1` and was killed. Its link file
/// looks as after a reboot.
fn killed_receiver() -> Ground {
    let ground = Ground::new(false);
    let mut receiver = ground.start(&ground.bob(&[]));
    let input = ground.write("input", "1\n");
    assert_eq!(run(&ground.alice(&["--in", &input])).status.code(), Some(0));
    receiver.0.kill().unwrap();
    receiver.0.wait().unwrap();
    fs::remove_file(ground.path("links.sock")).unwrap();
    reboot(&ground.file_of("bob", "link"));
    ground
}

fn outcome(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    (output.status.code().unwrap(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn refused_file_of_a_sender_is_adopted_by_its_path() {
    let lines = ["first\n", "second\n"];
    let ground = killed_sender(&lines);
    let file = ground.file_of("alice", "link");
    let (path, before) = (file.to_str().unwrap(), fs::read(&file).unwrap());
    let (code, printed) = outcome(&ground.alice(&["--in", "/dev/null"]));
    assert_eq!(code, REFUSED, "{printed}");
    let advice = format!("partywall link adopt {path} --yes");
    assert!(printed.contains("2 kept messages are whole (positions 0..128)"), "{printed}");
    assert!(printed.contains(&advice), "{printed}");
    let (code, printed) = outcome(&["link", "adopt", path]);
    assert!(
        code == 1 && printed.contains("would be sent") && printed.contains("--yes"),
        "{printed}"
    );
    assert!(fs::read(&file).unwrap() == before, "a file that is refused was changed");
    let dir = ground.links.to_str().unwrap();
    let (code, printed) = outcome(&["link", "adopt", "--dir", dir, "--link", "messages", "--yes"]);
    assert!(
        code == 0 && printed.contains("2 kept messages (positions 0..128) are sent"),
        "{printed}"
    );
    let carried = ground.carry("third\n", &[], &[]);
    assert_eq!(carried.codes, (Some(LOSS_POSSIBLE), Some(0)), "{carried:?}");
    assert_eq!(carried.output, "first\nsecond\nthird\n");
    assert!(carried.sender.contains("sent messages may be lost"), "{}", carried.sender);
    assert_eq!(ground.carry("fourth\n", &[], &[]).codes, (Some(0), Some(0)), "it is reported once");
    let (code, printed) = outcome(&["link", "adopt", path, "--yes"]);
    assert!(code == 2 && printed.contains("nothing to adopt"), "{printed}");
}

#[test]
fn messages_behind_a_hole_are_lost_and_the_exit_code_says_so() {
    let long = format!("{}\n", "x".repeat(900));
    let ground = killed_sender(&["first\n", &long, "behind\n"]);
    let file = ground.file_of("alice", "link");
    let mut image = fs::read(&file).unwrap();
    let hole = place_of(&file, "xxx").unwrap().next_multiple_of(512);
    image[hole..hole + 512].fill(0);
    fs::write(&file, image).unwrap();
    let (code, printed) = outcome(&ground.alice(&["--in", "/dev/null"]));
    assert!(code == REFUSED && printed.contains("1 kept messages are whole"), "{printed}");
    let carried = ground.carry("new\n", &ADOPT, &[]);
    assert_eq!(carried.codes, (Some(LOSS_POSSIBLE), Some(0)), "{carried:?}");
    assert_eq!(carried.output, "first\nnew\n");
}

#[test]
fn adoption_is_reported_by_a_later_run_if_the_first_fails_or_is_killed() {
    let ground = killed_sender(&["first\n"]);
    let failing = [&["--in", "/dev/null", "--timeout", "10ms"], &ADOPT[..]].concat();
    let (code, printed) = outcome(&ground.alice(&failing));
    assert!(code == 3 && printed.contains("sent messages may be lost"), "{printed}");
    // Input: a sender that has read the event of the adoption from its link, and is killed while it
    // waits for a receiver. It has not reported the event with its exit code.
    let input = ground.write("more", "more\n");
    let mut sender = ground.start(&ground.alice(&["--in", &input]));
    wait_until("the link keeps more", || {
        place_of(&ground.file_of("alice", "link"), "more").is_some()
    });
    sender.0.kill().unwrap();
    sender.0.wait().unwrap();
    let carried = ground.carry("last\n", &[], &[]);
    assert_eq!(carried.codes, (Some(LOSS_POSSIBLE), Some(0)), "{carried:?}");
    assert_eq!(carried.output, "first\nmore\nlast\n");
    assert_eq!(ground.carry("", &[], &[]).codes, (Some(0), Some(0)));
}

#[test]
fn receiver_says_that_messages_may_have_come_again() {
    let ground = killed_receiver();
    let (code, printed) = outcome(&ground.bob(&["--once"]));
    assert!(code == REFUSED && printed.contains("link adopt"), "{printed}");
    let carried = ground.carry("2\n", &[], &ADOPT);
    assert_eq!(carried.codes, (Some(0), Some(REPEAT_POSSIBLE)), "{carried:?}");
    assert_eq!(carried.output, "2\n");
    assert!(carried.receiver.contains("may come again"), "{}", carried.receiver);
    assert_eq!(ground.carry("3\n", &[], &[]).codes, (Some(0), Some(0)), "it is reported once");
}

#[test]
fn receiver_to_a_file_says_that_the_file_may_have_lost_its_end() {
    let ground = killed_receiver();
    let out = ground.path("out");
    let carried = ground.carry("2\n", &[], &[&["--out", &out], &ADOPT[..]].concat());
    assert_eq!(carried.codes, (Some(0), Some(LOSS_POSSIBLE)), "{carried:?}");
    assert_eq!(ground.read("out"), "2\n");
}

#[test]
fn receiver_that_waits_for_any_peer_ends_if_the_file_is_refused() {
    let ground = killed_receiver();
    let dir = ground.links.to_str().unwrap();
    let any = ["link", "recv", "--name", "bob", "--once", "--dir", dir, &ground.address];
    let receiver = Running::start(&mut partywall(&any));
    let input = ground.write("input", "2\n");
    let mut sender = ground.start(&ground.alice(&["--in", &input]));
    let output = receiver.finish();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(REFUSED), "{printed}");
    assert!(output.stdout.is_empty() && printed.contains("link adopt"), "{printed}");
    sender.0.kill().unwrap();
    sender.0.wait().unwrap();
}

#[test]
fn run_that_cannot_write_its_side_files_to_the_disk_does_not_close_the_link() {
    let ground = killed_receiver();
    // Input: in the same boot, a receiver that finds a wrong checkpoint in its side file. So it
    // fails before it writes to the disk the output of the receiver that was killed before.
    // Expected result: the next boot still refuses the link file.
    let carried = ground.carry("2\n", &[], &[&["--out", &ground.path("out")], &ADOPT[..]].concat());
    assert_eq!(carried.codes.1, Some(LOSS_POSSIBLE), "{carried:?}");
    fs::write(ground.file_of("bob", "out"), "no checkpoint").unwrap();
    let out = ground.path("out");
    let (code, printed) = outcome(&ground.bob(&["--once", "--exactly-once", "--out", &out]));
    assert_eq!(code, 1, "{printed}");
    reboot(&ground.file_of("bob", "link"));
    let (code, printed) = outcome(&ground.bob(&["--once"]));
    assert_eq!(code, REFUSED, "{printed}");
}

#[test]
fn missing_file_is_refused_and_a_new_one_is_reported() {
    let ground = Ground::new(false);
    assert_eq!(ground.carry("1\n", &[], &[]).codes, (Some(0), Some(0)));
    for local in ["alice", "bob"] {
        reboot(&ground.file_of(local, "link"));
    }
    reboot_list(&ground);
    fs::remove_file(ground.file_of("alice", "link")).unwrap();
    let (code, printed) = outcome(&ground.alice(&["--in", "/dev/null"]));
    assert!(code == REFUSED && printed.contains("is missing"), "{printed}");
    let failing = [&["--in", "/dev/null", "--timeout", "10ms"], &ADOPT[..]].concat();
    assert_eq!(outcome(&ground.alice(&failing)).0, 3);
    let carried = ground.carry("2\n", &[], &[]);
    assert_eq!(carried.output, "2\n", "{carried:?}");
    // The sender's link file was missing, so the sender began a new one, and warns that messages
    // may be lost. The receiver had acknowledged messages of the stream in the old file, and
    // reports that this stream is lost.
    assert_eq!(carried.codes, (Some(LOSS_POSSIBLE), Some(LOSS_POSSIBLE)), "{carried:?}");
    assert!(carried.receiver.contains("lost: positions"), "{}", carried.receiver);
}

#[test]
fn files_of_commands_that_ended_by_themselves_are_believed() {
    let ground = Ground::new(false);
    let input = ground.write("kept", "first\n");
    let (code, printed) = outcome(&ground.alice(&["--in", &input, "--timeout", "10ms"]));
    assert_eq!(code, 3, "{printed}");
    reboot(&ground.file_of("alice", "link"));
    let carried = ground.carry("second\n", &[], &[]);
    assert_eq!(carried.codes, (Some(0), Some(0)), "{carried:?}");
    assert_eq!(carried.output, "first\nsecond\n");
    for local in ["alice", "bob"] {
        reboot(&ground.file_of(local, "link"));
    }
    let carried = ground.carry("third\n", &[], &[]);
    assert_eq!((carried.codes, &*carried.output), ((Some(0), Some(0)), "third\n"), "{carried:?}");
}
