// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `partywall link send` and `recv`: transfers of messages, the end of a transfer, errors
//! and exit codes.

use crate::linked;
use crate::program;

use linked::Ground;
use program::{Running, partywall, run, text, wait_until};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const BOTH_DONE: (Option<i32>, Option<i32>) = (Some(0), Some(0));

fn fails(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
    (output.status.code().unwrap(), text(&output.stderr))
}

#[test]
fn lines_arrive_and_both_end() {
    let long = "x".repeat(300_000);
    let input = format!("one\n\n{long}\nwithout an end");
    for is_tcp in [false, true] {
        let carried = Ground::new(is_tcp).carry(&input, &["--stats"], &["--stats"]);
        assert_eq!(carried.codes, BOTH_DONE, "{carried:?}");
        assert!(carried.output == format!("{input}\n"), "{} bytes", carried.output.len());
        assert!(carried.sender.contains("in 4 messages"), "{}", carried.sender);
        assert!(carried.receiver.contains("in 4 messages"), "{}", carried.receiver);
    }
    let carried = Ground::new(false).carry("", &[], &[]);
    assert_eq!((carried.codes, &*carried.output), (BOTH_DONE, ""), "{carried:?}");
}

#[test]
fn once_after_the_sender_has_finished_ends() {
    let ground = Ground::new(false);
    let once = || run(&ground.bob(&["--once"]));
    assert_eq!(ground.carry("1\n", &[], &[]).codes, BOTH_DONE);
    let finished = once();
    assert_eq!(finished.status.code(), Some(0), "{}", text(&finished.stderr));
    assert!(finished.stdout.is_empty());
    // The test writes the side file `sender` that a receiver leaves if it is killed between its
    // last acknowledgement and the arrival of the frame LEAVE from the sender.
    fs::write(ground.file_of("bob", "sender"), "attached\n").unwrap();
    let unfinished = once();
    let errors = text(&unfinished.stderr);
    assert_eq!(unfinished.status.code(), Some(4), "{errors}");
    assert!(errors.contains("no sender attached"), "{errors}");
    assert_eq!(ground.carry("2\n", &[], &[]).output, "2\n", "a sender that returns is received");
}

#[test]
fn refused_sender_keeps_its_input_and_says_so() {
    let ground = Ground::new(false);
    let receiver = ground.start(&ground.bob(&[]));
    let input = ground.write("input", "a line\n");
    let (code, printed) = fails(&ground.alice(&["--in", &input, "--link", "another"]));
    assert_eq!(code, 3, "{printed}");
    assert!(printed.contains("keeps the unacknowledged part of the first 7 bytes"), "{printed}");
    drop(receiver);
    let mut receiver =
        Running::start(&mut partywall(&ground.bob(&["--link", "another", "--once"])));
    let empty = run(&ground.alice(&["--in", "/dev/null", "--link", "another"]));
    assert_eq!(empty.status.code(), Some(0), "{}", text(&empty.stderr));
    let mut output = String::new();
    receiver.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!((receiver.code(), &*output), (0, "a line\n"));
}

#[test]
fn line_written_to_a_pipe_is_sent_at_once() {
    let ground = Ground::new(false);
    // Input: sender and receiver run without --dir, so neither stores its end of the link in a
    // file.
    let kept = ["--volatile", "--quiet", &ground.address];
    let receiving = [&["link", "recv", "--name", "bob", "--once"], &kept[..]].concat();
    let mut receiver = Running::start(&mut partywall(&receiving));
    let mut output = BufReader::new(receiver.0.stdout.take().unwrap());
    let sending = [&["link", "send", "--name", "alice", "--peer", "bob"], &kept[..]].concat();
    let mut sender = Running::start(partywall(&sending).stdin(Stdio::piped()));
    let mut input = sender.0.stdin.take().unwrap();
    for line in ["one\n", "two\n"] {
        input.write_all(line.as_bytes()).unwrap();
        let mut received = String::new();
        output.read_line(&mut received).unwrap();
        assert_eq!(received, line);
    }
    input.write_all(b"the last").unwrap();
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "the last\n");
    assert_eq!((sender.code(), receiver.code()), (0, 0));
}

#[test]
fn restart_continues_in_the_file_and_a_new_epoch_begins_with_its_first_line() {
    let ground = Ground::new(false);
    let out = ground.path("out");
    let receiving = ["--exactly-once", "--out", &out];
    let carry = |input: &str, more: &[&str]| {
        let carried = ground.carry(input, &[&["--exactly-once"], more].concat(), &receiving);
        assert_eq!(carried.codes, BOTH_DONE, "{carried:?}");
        ground.read("out")
    };
    assert_eq!(carry("1\n2\n", &[]), "1\n2\n");
    assert_eq!(carry("1\n2\n", &[]), "1\n2\n");
    assert_eq!(carry("1\n2\n3\n", &[]), "1\n2\n3\n");
    assert_eq!(carry("1\n2\n3\n", &["--epoch", "7"]), "1\n2\n3\n1\n2\n3\n");
    assert_eq!(carry("1\n2\n3\n4\n", &["--epoch", "7"]), "1\n2\n3\n1\n2\n3\n4\n");
    for (local, ending) in [("alice", "in"), ("bob", "out")] {
        let mode = fs::metadata(ground.file_of(local, ending)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{ending}");
    }
    let (code, printed) = fails(&ground.alice(&["--epoch", "6"]));
    assert!(code == 1 && printed.contains("epoch 7 already"), "{printed}");
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let ground = Ground::new(false);
    let out = ground.path("out");
    let receiving = ["--exactly-once", "--out", &out];
    let carried = ground.carry("1\n2\n", &["--exactly-once"], &receiving);
    assert_eq!(carried.codes, BOTH_DONE, "{carried:?}");
    assert_eq!(ground.carry("1\n2\n3\n", &["--exactly-once"], &receiving).codes, BOTH_DONE);
    let other = ground.write("other", "1\n2\n");
    let (code, printed) = fails(&ground.alice(&["--exactly-once", "--in", &other]));
    assert!(code == 1 && printed.contains("another file than this --in"), "{printed}");
    let elsewhere = ground.path("elsewhere");
    let (code, printed) = fails(&ground.bob(&["--exactly-once", "--out", &elsewhere]));
    assert!(code == 1 && printed.contains("another file than this --out"), "{printed}");
    fs::File::options().write(true).open(&out).unwrap().set_len(1).unwrap();
    let (code, printed) = fails(&ground.bob(&receiving));
    assert!(code == 1 && printed.contains("it was truncated"), "{printed}");
    // Input: the receiver's link file is missing, so `recv` creates a new one. Expected result:
    // `recv` refuses to append to the output file of the earlier link.
    fs::write(&out, "1\n2\n").unwrap();
    fs::remove_file(ground.file_of("bob", "link")).unwrap();
    let (code, printed) = fails(&ground.bob(&receiving));
    assert!(
        code == 1 && printed.contains("lost and made anew") && printed.contains("remove it"),
        "{printed}"
    );
    fs::remove_file(ground.file_of("alice", "link")).unwrap();
    let input = ground.path("input");
    let (code, printed) = fails(&ground.alice(&["--exactly-once", "--in", &input]));
    assert!(code == 1 && printed.contains("another stream"), "{printed}");
    fs::remove_file(ground.file_of("alice", "in")).unwrap();
    let piped = ground.alice(&["--exactly-once", "--in", "/dev/null"]);
    let (code, printed) = fails(&piped);
    assert!(code == 1 && printed.contains("regular file"), "{printed}");
}

#[test]
fn wrong_input_is_an_error_with_its_position() {
    let ground = Ground::new(false);
    let prefixed = |lens: &[u32]| -> Vec<u8> {
        lens.iter().flat_map(|len| [&len.to_le_bytes()[..], b"abc"].concat()).collect()
    };
    for (bytes, options, expected) in [
        (
            [&b"one\nfour\n"[..], &[b'x'; 2000]].concat(),
            ["--framing", "lines"],
            "at byte 9 of the input is longer",
        ),
        (prefixed(&[3, 4]), ["--framing", "length"], "ends within the message at byte 7"),
        (prefixed(&[3, 5000]), ["--framing", "length"], "at byte 7 of the input is longer"),
    ] {
        let input = ground.write("input", bytes);
        let sizes = ["--volatile", "--ring", "4k", "--slab", "9b", "--in", &input, &ground.address];
        let sending =
            [&["link", "send", "--name", "a", "--peer", "b"], &sizes[..], &options].concat();
        let (code, printed) = fails(&sending);
        assert!(code == 1 && printed.contains(expected), "{printed}");
    }
    let (code, printed) = fails(&ground.alice(&["--in", "/nowhere/to/be/found"]));
    assert!(code == 1 && printed.contains("--in /nowhere"), "{printed}");
    let (code, printed) = fails(&ground.bob(&["--out", "/nowhere/to/be/found"]));
    assert!(code == 1 && printed.contains("--out /nowhere"), "{printed}");
    let held = ground.write("held", "something");
    let (code, printed) = fails(&ground.bob(&["--framing", "length", "--out", &held]));
    assert!(code == 1 && printed.contains("half a message"), "{printed}");
}

#[test]
fn file_that_was_removed_in_this_boot_is_warned_of_once() {
    let ground = Ground::new(false);
    let sending = ["--in", "/dev/null", "--timeout", "10ms"];
    let warns = || fails(&ground.alice(&sending)).1.contains("was removed: a new one begins empty");
    assert!(!warns(), "the link is new");
    fs::remove_file(ground.file_of("alice", "link")).unwrap();
    assert!(warns());
    assert!(!warns(), "the new file is there");
}

#[test]
fn each_error_has_its_text_and_code() {
    let ground = Ground::new(false);
    let (address, links) = (&*ground.address, ground.links.to_str().unwrap());
    let send = ["link", "send", "--name", "alice", "--peer", "bob", address];
    let recv = ["link", "recv", "--name", "bob"];
    for (arguments, code, words) in [
        ([&send[..], &[]].concat(), 2, "mkdir -m 700"),
        ([&send[..], &["--volatile", "--dir", links]].concat(), 2, "cannot be used with"),
        ([&send[..], &["--volatile", "--exactly-once"]].concat(), 2, "give --dir"),
        ([&send[..], &["--dir", links, "--exactly-once"]].concat(), 2, "give --in"),
        ([&send[..], &["--dir", "/nowhere/at/all"]].concat(), 1, "mkdir -m 700"),
        ([&send[..], &["--dir", links, "--ring", "5000"]].concat(), 2, "--ring is 5000"),
        (
            [&send[..], &["--dir", links, "--token-file", "/nowhere"]].concat(),
            1,
            "--token-file /nowhere",
        ),
        ([&send[..], &["--volatile", "--timeout", "10ms"]].concat(), 3, "no peer attached"),
        ([&recv[..], &["--volatile", "tcp:127.0.0.1:0"]].concat(), 2, "--allow-anonymous"),
        (
            [&recv[..], &["--volatile", "--allow-anonymous", "tcp:0.0.0.0:0"]].concat(),
            3,
            "--allow-remote",
        ),
        ([&recv[..], &["--volatile", "unix:/nowhere/at/all"]].concat(), 3, "/nowhere"),
        (
            [&recv[..], &["--volatile", "--timeout", "10ms", address]].concat(),
            3,
            "no peer attached",
        ),
        ([&recv[..], &["--volatile", "--exactly-once", address]].concat(), 2, "give --dir"),
        (vec!["link", "recv"], 2, "--name"),
        (vec!["link", "reset"], 2, "--name"),
    ] {
        let (found, printed) = fails(&arguments);
        assert!(found == code && printed.contains(words), "{arguments:?}: {found}: {printed}");
    }
    let input = ground.write("input", "a line\n");
    let waiting = [&send[..], &["--volatile", "--timeout", "10ms", "--in", &input]].concat();
    let (code, printed) = fails(&waiting);
    assert!(code == 3 && printed.contains("no peer attached"), "{printed}");
    // The reason for which the last attempt to connect failed is printed once: as an event, or with
    // --quiet at the end.
    let nowhere = ["link", "send", "--name", "a", "--peer", "b", "--volatile", "unix:/nowhere/x"];
    for more in [&["--timeout", "50ms"][..], &["--timeout", "50ms", "--quiet"]] {
        let (code, printed) = fails(&[&nowhere[..], more].concat());
        assert_eq!((code, printed.matches("/nowhere/x").count()), (3, 1), "{printed}");
    }
}

#[test]
fn refusal_of_the_peer_is_printed_with_its_reason() {
    let ground = Ground::new(true);
    let secret = |name: &str, text: &str| {
        let path = ground.write(name, text);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (right, wrong) = (secret("right", "open sesame\n"), secret("wrong", "open barley\n"));
    let _receiver = ground.start(&ground.bob(&["--token-file", &right]));
    let input = ground.write("input", "a line\n");
    let (code, printed) = fails(&ground.alice(&["--in", &input, "--token-file", &wrong]));
    assert!(code == 3 && printed.contains("the secret is not that of the receiver"), "{printed}");
    let (code, printed) = fails(&ground.alice(&["--in", &input]));
    assert!(code == 3 && printed.contains("--token-file"), "{printed}");
    let other = ["--in", &input, "--token-file", &right, "--link", "another"];
    let (code, printed) = fails(&ground.alice(&other));
    assert!(code == 3 && printed.contains("--link"), "{printed}");
    let output = run(&ground.alice(&["--in", &input, "--token-file", &right]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    fs::set_permissions(&right, Permissions::from_mode(0o644)).unwrap();
    let (code, printed) = fails(&ground.alice(&["--token-file", &right]));
    assert!(code == 1 && printed.contains("chmod 600"), "{printed}");
}

#[test]
fn link_has_one_owner_at_a_time() {
    let ground = Ground::new(false);
    let first = ground.start(&ground.bob(&[]));
    let owned = format!("owned by process {}", first.0.id());
    // The test waits with `inspect`, which never owns the receiver's file. A second receiver that
    // started too early would become the owner, and the first receiver would be fenced and exit.
    wait_until("it owns its file", || ground.inspected().contains(&owned));
    let elsewhere = format!("unix:{}", ground.path("elsewhere.sock"));
    let again = ground.bob(&[]);
    let again: Vec<_> =
        again.iter().map(|one| if *one == ground.address { &*elsewhere } else { one }).collect();
    let (code, printed) = fails(&again);
    assert!(code == 1 && printed.contains(&owned), "{printed}");
}

#[test]
fn signals_end_a_receiver_in_good_order() {
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let ground = Ground::new(false);
        let out = ground.path("out");
        let mut receiver = ground.start(&ground.bob(&["--out", &out]));
        let input = ground.write("input", "a line\n");
        assert_eq!(run(&ground.alice(&["--in", &input])).status.code(), Some(0));
        let pid = receiver.0.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert_eq!(receiver.code(), code);
        assert_eq!(ground.read("out"), "a line\n");
        assert!(!ground.directory.path().join("links.sock").exists());
        let output = ground.inspected();
        assert_eq!(output.matches("has left").count(), 2, "{output}");
    }
}

#[test]
fn closed_output_ends_the_receiver_and_loses_no_message() {
    let ground = Ground::new(false);
    let mut receiver = Running::start(&mut partywall(&ground.bob(&[])));
    drop(receiver.0.stdout.take());
    let input = ground.write("input", "a line\n");
    let sender = ground.start(&ground.alice(&["--in", &input]));
    assert_eq!(receiver.code(), 6);
    drop(sender);
    let carried = ground.carry("", &[], &[]);
    assert_eq!((carried.codes, &*carried.output), (BOTH_DONE, "a line\n"), "{carried:?}");
}
