// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks for `partywall doctor` with a real channel whose two ends are in this process: its
//! transport, a message in each direction, and its cost.
//!
//! The cost is the number of descriptors and mappings that the channel adds, measured in this
//! build.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use partywall::{AcceptError, Begin, Channel, Closed, Config, FallbackReason, Listener, Transport};
use partywall_sys::limits;
use partywall_sys::process::{Process, mappings, open_descriptors};

use super::finding::{Finding, Severity};
use crate::channel::summary::trust_of;
use partywall_bench::figure::quantity::time_name;

/// Creates a channel with both ends in this process, and checks it.
pub fn check() -> Vec<Finding> {
    let directory = match Directory::make() {
        Ok(directory) => directory,
        Err(error) => {
            let state = format!("making a directory for a socket failed: {error}");
            let advice = "set TMPDIR to a directory that is writable for this user";
            return vec![Finding::new(Severity::Fail, "channel", state, advice)];
        }
    };
    let before = Held::now();
    let started = Instant::now();
    match make(&directory.0) {
        Err(reason) => {
            let advice = "one of the findings above is probably the cause";
            vec![Finding::new(Severity::Fail, "channel", reason, advice)]
        }
        Ok((ours, theirs)) => {
            let took = started.elapsed();
            let cost = Held::now().since(before);
            let findings =
                vec![transport(&ours, took), works(ours, theirs), descriptors(cost), maps(cost)];
            findings
        }
    }
}

fn transport(channel: &Channel, took: Duration) -> Finding {
    let state = format!("{}, set up in {}", channel.transport(), time_name(took));
    let why = match channel.transport() {
        Transport::SharedMemory => return Finding::ok("transport", state),
        Transport::Socket(why) => why,
        _ => return Finding::ok("transport", state),
    };
    let advice = match why {
        FallbackReason::Memfd => "see the features of the kernel above",
        FallbackReason::Memory => "see the memory limits above",
        FallbackReason::Descriptors => {
            "raise `ulimit -n`, or let the security module pass descriptors"
        }
        _ => "see the findings above",
    };
    Finding::new(Severity::Fail, "transport", state, advice)
}

/// Checks the channel with a message in each direction. The finding also states whether the peer is
/// trusted.
fn works(mut local: Channel, mut remote: Channel) -> Finding {
    let trust = trust_of(local.peer());
    let deadline = Instant::now() + TIMEOUT;
    let message = vec![7; 100_000];
    let round_trip = local
        .send_deadline(&message, deadline)
        .map_err(|error| error.to_string())
        .and_then(|()| remote.recv_deadline(deadline).map_err(|error| error.to_string()))
        .and_then(|got| got.ok_or_else(|| Closed::Finished.to_string()))
        .and_then(|got| remote.send_deadline(&got, deadline).map_err(|error| error.to_string()))
        .and_then(|()| local.recv_deadline(deadline).map_err(|error| error.to_string()))
        .and_then(|got| got.ok_or_else(|| Closed::Finished.to_string()));
    match round_trip {
        Ok(got) if got == message => {
            Finding::ok("channel", format!("works; a process of the same user is {trust}"))
        }
        Ok(_) => Finding::new(
            Severity::Fail,
            "channel",
            "a message came back with other bytes",
            "report this, with the output of `partywall doctor --json`",
        ),
        Err(reason) => Finding::new(
            Severity::Fail,
            "channel",
            reason,
            "report this, with the output of `partywall doctor --json`",
        ),
    }
}

fn descriptors(cost: Held) -> Finding {
    let subject = "descriptors";
    let limit = limits::descriptors();
    let each = (cost.descriptors / 2).max(1);
    let Some(soft) = limit.soft else {
        return Finding::ok(subject, format!("{each} per side of an idle channel; no limit"));
    };
    let channels = soft.saturating_sub(SPARE) / each;
    let state = format!("limit {soft}, {each} per side of an idle channel: {channels} channels");
    if channels >= CHANNELS_WANTED {
        return Finding::ok(subject, state);
    }
    let hard = limit.hard.map_or("unlimited".to_owned(), |hard| hard.to_string());
    let advice = format!("for more channels, raise `ulimit -n` (up to {hard}) or LimitNOFILE=");
    Finding::new(Severity::Note, subject, state, advice)
}

fn maps(cost: Held) -> Finding {
    let subject = "vm.max_map_count";
    let each = (cost.mappings / 2).max(1);
    let Some(max) = limits::mappings_max() else {
        return Finding::ok(subject, "unknown");
    };
    let channels = max / each;
    let state = format!("{max}, {each} per side of a channel: {channels} channels");
    if channels >= CHANNELS_WANTED {
        return Finding::ok(subject, state);
    }
    let advice = "for more channels: `sysctl vm.max_map_count=262144`";
    Finding::new(Severity::Note, subject, state, advice)
}

/// Creates the two connected ends of a channel; their listener exists only during the call.
fn make(directory: &Path) -> Result<(Channel, Channel), String> {
    let address = format!("unix:{}", directory.join("doctor.sock").display());
    let mut listener = Listener::bind(&address).map_err(|error| error.to_string())?;
    // The channel begins in shared memory, because `doctor` checks whether memory can be shared and
    // what a channel costs there.
    let config = Config::default().begin(Begin::SharedMemory);
    thread::scope(|scope| {
        let client = scope.spawn(|| partywall::connect_with(&address, &config));
        let server = accept(&mut listener, || client.is_finished());
        let client = client.join().map_err(|_| "connecting panicked".to_owned())?;
        let client = client.map_err(|error| error.to_string())?;
        Ok((client, server.map_err(|error| error.to_string())?))
    })
}

/// Accepts the client's connection, and stops waiting if `is_over` says that the client has failed.
fn accept(listener: &mut Listener, is_over: impl Fn() -> bool) -> Result<Channel, AcceptError> {
    let deadline = Instant::now() + TIMEOUT;
    while !is_over() && Instant::now() < deadline {
        match listener.accept_deadline(Instant::now() + ACCEPT_STEP) {
            Err(AcceptError::TimedOut) => {}
            accepted => return accepted,
        }
    }
    listener.accept_deadline(Instant::now() + ACCEPT_STEP)
}

/// The open descriptors of this process, and the memfds that it has mapped, both as numbers. The
/// growth of these numbers while a channel is opened is what a channel costs.
#[derive(Clone, Copy, Default)]
struct Held {
    descriptors: u64,
    mappings: u64,
}

impl Held {
    fn now() -> Self {
        let descriptors = open_descriptors(Process::Own).map_or(0, |open| open.len() as u64);
        // Only mappings of memfds are counted, because mappings of the heap change at any time.
        let shared = |maps: Vec<_>| maps.iter().filter(is_memfd).count() as u64;
        Self { descriptors, mappings: mappings(Process::Own).map_or(0, shared) }
    }

    const fn since(self, before: Self) -> Self {
        Self {
            descriptors: self.descriptors.saturating_sub(before.descriptors),
            mappings: self.mappings.saturating_sub(before.mappings),
        }
    }
}

fn is_memfd(range: &&partywall_sys::process::MappedRange) -> bool {
    range.name.contains("memfd:")
}

/// A private temporary directory, which is removed with its content on drop.
struct Directory(PathBuf);

impl Directory {
    fn make() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("partywall-doctor-{}", process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // An error of the removal is ignored: at worst an empty directory stays in the temporary
        // directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Longest time that one step of the check, such as connecting or receiving, may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait of one accept, before the thread checks again whether the client has failed.
const ACCEPT_STEP: Duration = Duration::from_millis(100);

/// Estimated number of descriptors that a program needs besides those of its channels. It is
/// subtracted from the limit on descriptors, before the number of possible channels is computed.
const SPARE: u64 = 16;

/// If a limit of this machine allows fewer channels than this in one process, `doctor` reports it
/// with advice.
const CHANNELS_WANTED: u64 = 100;
