// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of misfortune and malice share: a place for sockets, a watchdog, numbers that look
//! random, second processes, and a neighbour that keeps no rule.
//!
//! A second process is this very test program, started again to run one test, `child`, in a role that an
//! environment variable names; without the variable that test returns at once.
#![allow(dead_code, reason = "no test program uses all of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

pub mod foe;
pub mod home;

use partywall::{Channel, Config, Listener};
use partywall_sys::process::{Process, mappings, open_descriptors, resident_bytes};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// The environment variable that names the role of a second process.
const ROLE: &str = "PARTYWALL_TEST_ROLE";

/// A directory for socket files, removed at the end.
pub struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn address(&self, name: &str) -> String {
        format!("unix:{}", self.path(name).display())
    }

    /// The names of the files in it.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

/// Tests that count what the process holds write; the other tests of such an executable read.
static COUNTED: RwLock<()> = RwLock::new(());

/// Keeps the other tests of this executable from running: they would change what this one counts.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    COUNTED.write().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a test that counts nothing run beside its like, but not beside one that counts.
pub fn together() -> RwLockReadGuard<'static, ()> {
    COUNTED.read().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the whole program if a test does not end in time: a hang must not pass for patience.
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub fn new(what: &'static str, limit: Duration) -> Self {
        let (alive, ended) = channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{what}: hung for {limit:?}");
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}

pub fn within(limit: Duration) -> Instant {
    Instant::now() + limit
}

pub fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Numbers that look random and are the same in every run (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A payload that tells which message it is: its number, then bytes that follow from number and place.
pub fn payload(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes
        .extend((8..len).map(|index| (index as u64 * 31 + number * 7 + (index as u64 >> 8)) as u8));
    bytes
}

/// The number of a payload, after checking every byte of it.
pub fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == payload(number, bytes.len()), "message {number} is torn");
    number
}

/// A connected pair within this process.
pub fn pair(address: &str, config: &Config) -> (Channel, Channel) {
    let mut listener = Listener::bind_with(address, config).unwrap();
    let address = listener.local_address().to_string();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| partywall::connect_with(&address, config).unwrap());
        let server = listener.accept_deadline(within(Duration::from_secs(10))).unwrap();
        (client.join().unwrap(), server)
    })
}

/// The role of this process, if it is a second one.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// An argument of this role.
pub fn argument(name: &str) -> String {
    std::env::var(format!("{ROLE}_{name}")).unwrap()
}

/// The command that runs `test` (a path as the harness prints it) of this test program, in another role.
pub fn second_process(test: &str, role: &str, arguments: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(ROLE, role);
    for (name, value) in arguments {
        command.env(format!("{ROLE}_{name}"), value);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A process that does not outlive its test.
pub struct Victim(pub Child);

impl Victim {
    pub fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    /// kill -9, and waits until nothing is left of it.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What this process holds.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    pub descriptors: usize,
    pub shared_mappings: usize,
    pub resident_bytes: u64,
}

impl Holdings {
    pub fn now() -> Self {
        let maps = mappings(Process::Own).unwrap();
        Self {
            descriptors: open_descriptors(Process::Own).unwrap().len(),
            shared_mappings: maps.iter().filter(|range| range.name.contains("memfd:")).count(),
            resident_bytes: resident_bytes(Process::Own).unwrap(),
        }
    }
}
