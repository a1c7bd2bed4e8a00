// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that is killed at any instant while it writes states into its link file leaves a
//! complete state there. The state is never older than the last one that the process logged as
//! written. The same holds for the acked offset in the file.

use crate::support_link;

use partywall_layout::link::{Report, StateImage};
use partywall_link::store::OwnFile;
use partywall_sys::signal::{self, Signal};
use partywall_testkit::{Random, Second, TIMEOUT, soon, variable};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support_link::{DIRECTORY, directory, inspection_of, open};

const ROUNDS: u32 = 150;
/// Minimum number of states that the child processes write into the link file before the test ends.
/// Writing a state takes several stores; after so many states the kills have hit many different
/// stores.
const COMMITS: u64 = 10_000;
const STREAM: u64 = 7;

/// The role of the child process: it writes states and acked offsets into the link file without
/// end, until the test kills it. It logs the number of each completed one.
#[test]
fn committer() {
    let Some(directory) = variable(DIRECTORY) else { return };
    let directory = PathBuf::from(directory);
    let mut own = open(&directory).unwrap();
    let log = fs::File::options().write(true).open(directory.join("log")).unwrap();
    let first = own.state.state().epoch.get();
    let consumed = own.image.consumed_to().0 / 64;
    // The process before may have been killed between a commit of the acked offset and its log. The
    // offset that this process found counts as logged. Otherwise a second such kill, in the first
    // step, would leave an offset that is two numbers after the logged one.
    log.write_all_at(&consumed.to_le_bytes(), 8).unwrap();
    let until = Instant::now() + TIMEOUT;
    for step in 1.. {
        let number = first + step;
        own.state.commit(&numbered(number));
        log.write_all_at(&number.to_le_bytes(), 0).unwrap();
        let number = consumed + step;
        own.consumed.commit(STREAM, number * 64, digest(number));
        log.write_all_at(&number.to_le_bytes(), 8).unwrap();
        if Instant::now() >= until {
            return;
        }
    }
}

/// Input: a state image in which every part contains `number`.
fn numbered(number: u64) -> StateImage {
    let report = Report {
        kind: 1.into(),
        flags: 0.into(),
        epoch: number.into(),
        stream: number.into(),
        from: (number * 64).into(),
        to: (number * 192).into(),
    };
    StateImage {
        epoch: number.into(),
        sending_stream: number.into(),
        sending_base: (number * 64).into(),
        sending_acked: (number * 128).into(),
        sending_digest: digest(number).into(),
        report_count: 16.into(),
        receiving_stream: STREAM.into(),
        peer_incarnation: number.into(),
        peer_store_id: [1; 16],
        reports: [report; 16],
        ..StateImage::new()
    }
}

fn digest(number: u64) -> u32 {
    u32::try_from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap()
}

fn word(log: &fs::File, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    log.read_exact_at(&mut bytes, offset).unwrap();
    u64::from_le_bytes(bytes)
}

/// Checks the link file of a killed process against its log: the state and the acked offset are
/// complete, and neither is older than the last logged one. Returns the number of the state in the
/// file.
fn judge(own: &OwnFile, log: &fs::File) -> u64 {
    let state = own.state.state();
    let number = state.epoch.get();
    let expected = if number == 0 { StateImage::new() } else { numbered(number) };
    let same = StateImage { sequence: state.sequence, seal: state.seal, ..expected };
    assert!(same == *state, "state {number} is not whole: {state:?}");
    let confirmed = word(log, 0);
    assert!((confirmed..=confirmed + 1).contains(&number), "{number}, confirmed {confirmed}");
    let (consumed, found) = own.image.consumed_to();
    let number_consumed = consumed / 64;
    assert!(consumed == 0 || found == digest(number_consumed), "consumed {number_consumed}");
    let confirmed = word(log, 8);
    let range = confirmed..=confirmed + 1;
    assert!(range.contains(&number_consumed), "consumed {number_consumed}, confirmed {confirmed}");
    number
}

fn log_in(directory: &Path) -> fs::File {
    let path = directory.join("log");
    fs::write(&path, [0; 16]).unwrap();
    fs::File::open(path).unwrap()
}

#[test]
fn state_after_a_kill_was_committed_and_no_confirmed_one_is_lost() {
    let directory = directory();
    let log = log_in(directory.path());
    let mut chance = Random::new(u64::from(std::process::id()));
    let mut commits = 0;
    let deadline = Instant::now() + 4 * TIMEOUT;
    for round in 1.. {
        // On a busy machine a child process writes few states before the test kills it. So the test
        // kills further child processes until enough states were written.
        if round > ROUNDS && commits > COMMITS {
            break;
        }
        assert!(round <= ROUNDS || Instant::now() < deadline, "{commits} commits");
        let variables = [(DIRECTORY, directory.path().to_str().unwrap())];
        let mut second = Second::start("state_survives_kills::committer", &variables);
        // The test kills the child process after it has written its first state, and after a
        // further pause whose order of magnitude is random.
        let (before, until) = (word(&log, 0), soon());
        while word(&log, 0) == before {
            assert!(Instant::now() < until, "nothing is committed");
            std::thread::yield_now();
        }
        let kill_at = Instant::now() + Duration::from_micros(chance.size(5000) as u64);
        while Instant::now() < kill_at {
            // Rule: the test's process, which reads the link file without its lock while the child
            // process writes a state, finds a complete state too.
            inspection_of(directory.path());
        }
        signal::kill(second.pid(), Signal::KILL).unwrap();
        second.wait();
        let own = open(directory.path()).unwrap();
        assert_eq!(own.incarnation, 2 * u64::from(round));
        commits = judge(&own, &log);
    }
}

#[test]
fn a_state_that_contradicts_itself_is_never_committed() {
    let directory = directory();
    let mut own = open(directory.path()).unwrap();
    let before = fs::read(support_link::file(directory.path())).unwrap();
    let wrong = StateImage { sending_base: 1.into(), ..numbered(1) };
    let commit = std::panic::AssertUnwindSafe(|| own.state.commit(&wrong));
    assert!(std::panic::catch_unwind(commit).is_err());
    assert!(fs::read(support_link::file(directory.path())).unwrap() == before);
}
