// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the output of `--stats` uses singular and plural correctly, and the same units in
//! each command.

use crate::program;

use std::io::{Read, Write};
use std::process::Stdio;

use program::{Listening, Running, partywall, text};

/// Sends `bytes` bytes from `connect` to `listen`; returns the summaries that the two commands
/// print.
fn summaries(bytes: usize) -> [String; 2] {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/stats.sock", directory.path().display());
    let mut listen = Listening::start(&[&address, "--stats"], Stdio::null());
    let mut command = partywall(&["connect", &listen.address, "--stats"]);
    let mut connect = Running::start(command.stdin(Stdio::piped()));
    let mut input = connect.0.stdin.take().unwrap();
    // The channel begins on a socket, which holds fewer bytes than the test writes. So a thread
    // writes them.
    let writing = std::thread::spawn(move || input.write_all(&vec![7; bytes]).unwrap());
    let mut received = Vec::new();
    listen.stdout().read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert_eq!(received.len(), bytes);
    let sender = connect.finish();
    let mut receiver = String::new();
    listen.stderr.read_to_string(&mut receiver).unwrap();
    assert_eq!(listen.process.code(), 0);
    [text(&sender.stderr), receiver]
}

#[test]
fn one_byte_is_one_message() {
    let [sender, receiver] = summaries(1);
    for (summary, way) in [(&sender, "sent"), (&receiver, "received")] {
        let line = summary.lines().find(|line| line.starts_with(way)).expect(summary);
        assert!(line.contains("1 B (1 byte) in 1 message, "), "{line}");
    }
    assert!(sender.contains("received          0 B (0 bytes) in 0 messages, "), "{sender}");
}

#[test]
fn sizes_and_rates_have_the_same_units() {
    for summary in summaries(3 << 20) {
        assert!(summary.contains("3.00 MiB (3145728 bytes) in "), "{summary}");
        let is_binary = ["KiB/s", "MiB/s", "GiB/s"].iter().any(|unit| summary.contains(unit));
        assert!(is_binary && !summary.contains("MB/s"), "{summary}");
    }
}
