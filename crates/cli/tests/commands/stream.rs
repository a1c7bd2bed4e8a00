// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of bytes that are sent through `connect` and `listen`, in several lengths and over all
//! transports. They arrive unchanged, and neither process exceeds its memory limit.
//!
//! ```text
//!   blocks ─▶ stdin of connect ══ shm, socket, tcp ══▶ listen, its stdout ─▶ the same blocks?
//!
//!   block n, of 256 KiB: the pattern of seed n, in which no word occurs twice
//! ```

use crate::program;

use std::fs;
use std::io::{Read, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use partywall_testkit::{fill, is_pattern};
use program::{Listening, Running, partywall};

/// The transports of the test, each as a name, the family of the address, and the value of
/// `--transport`.
const WIRES: [(&str, &str, &str); 3] =
    [("shm", "unix", "shm"), ("unix socket", "unix", "socket"), ("tcp", "tcp", "auto")];

#[test]
fn empty() {
    WIRES.iter().for_each(|wire| stream(wire, 0, 64));
}

#[test]
fn one_byte() {
    WIRES.iter().for_each(|wire| stream(wire, 1, 64));
}

#[test]
fn of_300_megabytes() {
    WIRES.iter().for_each(|wire| stream(wire, 300_000_001, 16));
}

#[test]
fn of_5_gibibytes_over_shared_memory() {
    stream(&WIRES[0], FIVE_GIB, 64);
}

#[test]
fn of_5_gibibytes_over_a_socket() {
    stream(&WIRES[1], FIVE_GIB, 64);
}

/// Sends `bytes` bytes of pattern blocks through a `connect` and a `listen`, and compares each
/// received block with its pattern. Each process may use 64 MiB plus `memory` MiB of resident
/// memory.
fn stream(&(name, family, transport): &(&str, &str, &str), bytes: u64, memory: u64) {
    let directory = tempfile::tempdir().unwrap();
    let address = match family {
        "unix" => format!("unix:{}/stream.sock", directory.path().display()),
        _ => "tcp:127.0.0.1:0".to_owned(),
    };
    let allowance = format!("{memory}m");
    let options = ["--transport", transport, "--memory", &allowance, "--stats"];
    let started = Instant::now();
    let mut listen = Listening::start(&[&[&*address][..], &options].concat(), Stdio::null());
    let arguments = [&["connect", &listen.address][..], &options].concat();
    let mut connect = Running::start(partywall(&arguments).stdin(Stdio::piped()));
    let monitors = [listen.process.0.id(), connect.0.id()].map(ResidentMonitor::start);

    let input = connect.0.stdin.take().unwrap();
    let writer = thread::spawn(move || write(input, bytes));
    let received = read(listen.stdout());
    writer.join().unwrap();

    let resident = monitors.map(ResidentMonitor::finish);
    let mut printed = String::new();
    listen.stderr.read_to_string(&mut printed).unwrap();
    assert_eq!(listen.process.code(), 0, "{name}: {printed}");
    let output = connect.finish();
    assert_eq!(output.status.code(), Some(0), "{name}: {}", program::text(&output.stderr));
    assert_eq!(received, bytes, "{name}");
    let line = printed.lines().find(|line| line.starts_with("transport  ")).expect(&printed);
    assert_eq!(line.contains("socket:"), transport != "shm", "{printed}");
    let max = (64 + memory) << 20;
    for (who, resident) in ["listen", "connect"].iter().zip(resident) {
        assert!(resident <= max, "{name}: {who} had {resident} bytes resident, allowed: {max}");
    }
    let [ours, theirs] = resident.map(|bytes| bytes >> 20);
    println!("{name}: {bytes} bytes in {:?}, resident {ours} and {theirs} MiB", started.elapsed());
}

struct ResidentMonitor {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<u64>,
}

impl ResidentMonitor {
    fn start(pid: u32) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut most = 0;
            while stopped.recv_timeout(SAMPLE_EVERY) == Err(RecvTimeoutError::Timeout) {
                most = most.max(resident_bytes(pid));
            }
            most
        });
        Self { stop, thread }
    }

    fn finish(self) -> u64 {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

/// Resident memory of a process, from the second number of `/proc/PID/statm`; 0 when the process
/// has ended.
fn resident_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * PAGE_BYTES_MAX
}

/// Writes `bytes` bytes of pattern blocks; block n has the pattern of seed n.
fn write(mut to: ChildStdin, bytes: u64) {
    let mut block = vec![0; BLOCK_BYTES];
    let (mut left, mut seed) = (bytes, 0);
    while left > 0 {
        let len = left.min(BLOCK_BYTES as u64) as usize;
        fill(&mut block[..len], seed);
        to.write_all(&block[..len]).unwrap();
        left -= len as u64;
        seed += 1;
    }
}

/// Reads until the sender has finished, compares each block with its pattern, and returns the
/// number of bytes.
fn read(mut from: impl Read) -> u64 {
    let mut block = vec![0; BLOCK_BYTES];
    let (mut bytes, mut seed) = (0, 0);
    loop {
        let mut len = 0;
        while len < block.len() {
            match from.read(&mut block[len..]).unwrap() {
                0 => break,
                count => len += count,
            }
        }
        assert!(is_pattern(&block[..len], seed), "another byte came than went, in block {seed}");
        bytes += len as u64;
        seed += 1;
        if len < block.len() {
            return bytes;
        }
    }
}

const FIVE_GIB: u64 = 5 << 30;
const BLOCK_BYTES: usize = 1 << 18;
const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// Assumed page size in bytes. On a machine with larger pages the computed resident memory is too
/// small, so the memory limit of the test is weaker.
const PAGE_BYTES_MAX: u64 = 4096;
