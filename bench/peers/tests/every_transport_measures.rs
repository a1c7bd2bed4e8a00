// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that `bench-peers` measures each transport in each scenario: its messages arrive verified,
//! it prints the results as JSON, and leaves no file behind.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

#[test]
fn parallel_in_one_process() {
    let lines = measure("parallel --touch all --streams 7 --size 64,128k");
    assert_eq!(lines.len(), 2 * PARALLEL);
    assert!(lines.iter().all(|line| line["processes"] == 1 && line["p50_ns"].is_u64()));
}

#[test]
fn parallel_touched_with_more_messages_than_slices_of_their_size() {
    let lines = measure("parallel --touch all --streams 199 --size 1m --transport shmipc");
    assert_eq!(lines[0]["over_socket"], 0);
}

#[test]
fn parallel_in_two_processes() {
    let lines = measure("parallel --two-processes --touch all --streams 7 --size 4k --pin none");
    assert_eq!(lines.len(), PARALLEL);
    assert!(lines.iter().all(|line| line["processes"] == 2));
}

#[test]
fn ping_between_two_processes() {
    let lines = measure("ping --size 48,64k --pin none");
    assert_eq!(lines.len(), 2 * PING);
    assert!(lines.iter().all(|line| line["p50_ns"].is_u64() && line["touched"] == true));
}

/// Runs `bench-peers` with short measurements, checks that it leaves no file behind, and returns
/// its JSON lines.
fn measure(arguments: &str) -> Vec<Value> {
    // One test at a time measures: the crate `shmipc` fails if opening a session takes a second, as
    // on a busy machine.
    let _one_at_a_time = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let program = Command::new(env!("CARGO_BIN_EXE_bench-peers"))
        .args(arguments.split(' '))
        .args(["--rounds", "2", "--duration", "5ms", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = program.id();
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments}");
    assert_eq!(left_behind(pid), Vec::<PathBuf>::new());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        assert!(line["ops"].as_u64().unwrap() > 0 && line["rounds"] == 2, "{line}");
    }
    lines
}

/// Files in `/dev/shm` and in the temporary directory that process `pid` of `bench-peers` has made,
/// as their names show.
fn left_behind(pid: u32) -> Vec<PathBuf> {
    let name = format!("bench-peers-{pid}");
    let directories = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let entries = directories.iter().filter_map(|directory| directory.read_dir().ok()).flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().contains(&name)).collect()
}

static MEASURING: Mutex<()> = Mutex::new(());

/// The expected numbers of transports on which `parallel` and `ping` run.
const PARALLEL: usize = 7;
const PING: usize = 4;
