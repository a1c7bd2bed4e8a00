// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes one rule out of the code at a time and requires that a test notices.
//!
//! ```text
//! crates/ring/src/…:   if !seeded_fault("no_zero_next_slot") {
//!                          self.mem.clear_word0(end);
//!                      }
//! REGISTRY:            "no_zero_next_slot" · tests/forged_words.rs
//! faults:              with the fault chosen, run each test of the row, expect `test … ... FAILED`
//! ```
//!
//! To add a fault: guard the line as above, add one row to [`REGISTRY`]. `tidy` reports a guard without a row
//! and a row without a guard. A test that hangs instead of failing is an error too: tests have deadlines.
//! Of a loom model any failure counts: a model that finds a deadlock can end the process with it. Without a fault the
//! same tests, of the same build, have to pass.
//!
//! Guards exist only where `--cfg partywall_faults` is given, and there `PARTYWALL_FAULT` chooses among them: one build
//! serves for all. The `cfg` reaches the compiler through a workspace wrapper, not through `RUSTFLAGS`: cargo then takes
//! the dependencies that the `test` stage has built, and keeps our own crates with guards beside those without, under
//! other names. `RUSTFLAGS='--cfg partywall_faults'` does the same by hand, and builds everything anew.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::command::Step;
use crate::stages::{Done, loom_step, shuttle_step, test_step};
use crate::torture;

/// One rule that can be taken out of the code.
pub struct Fault {
    /// What the guard asks for: `seeded_fault("…")`.
    pub name: &'static str,
    /// The tests that must fail, each of them.
    pub caught_by: &'static [CaughtBy],
}

/// Where the test is that notices a fault.
pub enum CaughtBy {
    /// Any test of the file `tests/NAME.rs` of any package.
    File(&'static str),
    /// A unit test of a library whose path contains this.
    Unit(&'static str),
    /// Any loom model of `tests/NAME.rs` (partywall-ring only).
    Model(&'static str),
    /// A model under shuttle whose path contains this (partywall only).
    Shuttle(&'static str),
    /// `cargo xtask torture --faults`: the oracle of `tests/link_torture.rs`, within two minutes. Not in the stage, because a
    /// fault of a race may take most of that.
    Torture,
}

impl CaughtBy {
    const fn name(&self) -> &'static str {
        match self {
            Self::File(name) | Self::Unit(name) | Self::Model(name) | Self::Shuttle(name) => name,
            Self::Torture => "link_torture",
        }
    }

    /// Single steps are led on this kind of processor only; the test is empty elsewhere.
    fn is_here(&self) -> bool {
        cfg!(target_arch = "x86_64") || self.name() != SWEEP.name()
    }
}

/// All faults.
pub const REGISTRY: &[Fault] = &[
    // A record is published without a 0 in the slot after it: old payload there may read as a record.
    fault("no_zero_next_slot", &[CaughtBy::File("forged_words")]),
    // The first word of a batch is stored at once: a batch not yet published shows, an aborted one comes alive.
    fault("early_first_word", &[CaughtBy::File("forged_words"), CaughtBy::Model("loom_ring")]),
    // The id of a block is the same each time: a neighbour that returns it twice frees its next use.
    fault("same_generation", &[CaughtBy::File("released_twice")]),
    // Release or acquire is missing: a word is seen before what it publishes.
    fault("relaxed_publish", &[CaughtBy::Model("loom_ring"), CaughtBy::Model("loom_release")]),
    fault("no_acquire_fence", &[CaughtBy::Model("loom_ring"), CaughtBy::Model("loom_release")]),
    // A full fence of parking is missing: a sleeper and its neighbour overlook each other.
    fault("no_sleeper_fence", &[CaughtBy::Model("loom_parking")]),
    fault("no_waker_fence", &[CaughtBy::Model("loom_parking")]),
    // A favoured thread looks whether it is favoured still before it is seen to be inside: two are inside.
    fault("no_light_barrier", &[CaughtBy::Model("loom_bias")]),
    // Whoever takes the favour away does not make the favoured thread's flag seen, or does not wait until it is down.
    fault("no_heavy_barrier", &[CaughtBy::Model("loom_bias")]),
    fault("no_wait_for_vacancy", &[CaughtBy::Model("loom_bias")]),
    // All favoured threads have one flag: one that comes late says of another that it is outside.
    fault("one_slot_for_all", &[CaughtBy::Model("loom_bias")]),
    // A driver that finds room for one who has not called it yet looks for ever, and never tells.
    fault(
        "no_look_for_uncalled",
        &[CaughtBy::Unit("one_who_waits_for_room"), CaughtBy::Shuttle("waits_for_room")],
    ),
    // A lock of the next incarnation is enough, whoever has become the owner meanwhile: two owners.
    fault("link_lock_is_enough", &[CaughtBy::File("link_has_one_owner")]),
    // A lock that a dead owner's child keeps counts as its life: nobody follows.
    fault("link_lock_is_life", &[CaughtBy::File("link_has_one_owner")]),
    // The seal of an image is stored before its body: who is killed between them leaves neither image.
    fault("link_seal_first", &[CaughtBy::File("link_state_survives_kills"), SWEEP]),
    // What was consumed since another record is still beside the new one when that is put in force.
    fault("link_since_later", &[CaughtBy::Unit("store::slots::tests")]),
    // A word is read with the records, and may be of the one that was in the slot before.
    fault("link_since_early", &[CaughtBy::Unit("store::slots::tests")]),
    // Nobody looks whether a word is of the record that was read: it may be of the one that followed in its slot.
    fault("link_seal_once", &[CaughtBy::Unit("store::slots::tests")]),
    // A newest image that rotted is taken for one that was not finished: an older one comes back.
    fault("link_rot_is_unfinished", &[CaughtBy::File("link_files")]),
    // A half-written record stays where the next stream begins: nobody can tell it from a damaged one.
    fault("link_half_record_first", &[CaughtBy::File("link_stream_survives_kills")]),
    // A whole record of the former stream, where the next begins, is taken for damage.
    fault("link_former_is_damage", &[CaughtBy::File("link_stream_survives_kills")]),
    // The bytes of a BLOB are not judged when a stream is found.
    fault("link_blob_unchecked", &[CaughtBy::File("link_stream_survives_kills")]),
    // A record without a prefix lies where the ring begins: the neighbour refuses it, and so does the next owner.
    fault("link_compact_first", &[CaughtBy::File("link_compact_records"), SIMULATION]),
    // A reply's record has no prefix, and so commits nothing: an owner that is killed behind it answers twice.
    fault("link_compact_of_reply", &[CaughtBy::Unit("link_state::walled::compact"), SWEEP]),
    // An answer that was for another connection is taken: late bytes decide how a stream goes on.
    fault("link_echo_unchecked", &[SIMULATION]),
    // A commit is not stored: the next owner is handed what was consumed.
    fault("link_consumed_now_and_then", &[CaughtBy::Torture]),
    // What arrived is acknowledged, not what was consumed: whoever is killed before it consumes it never gets it again.
    fault("link_ack_of_received", &[SIMULATION, CaughtBy::Torture]),
    // Acknowledgements wait for traffic back: what was consumed is kept for ever.
    fault("link_ack_waits", &[CaughtBy::Torture]),
    // A connection goes on behind what the receiver has not got.
    fault("link_resume_at_tail", &[CaughtBy::Torture]),
    // Room is used again before the base that gives it up is in force: an owner finds the middle of a record.
    fault("link_base_not_committed", &[SIMULATION, SWEEP, CaughtBy::Torture]),
    // What replies have committed is forgotten by the next owner: requests are answered twice.
    fault("link_reply_commits_nothing", &[SIMULATION, CaughtBy::Torture]),
    // A request is consumed before its answer is sent: an owner that is killed in between never answers.
    fault("link_reply_in_two_steps", &[SWEEP, CaughtBy::Torture]),
    // A record that is here already is taken once more.
    fault("link_known_taken_again", &[CaughtBy::Torture]),
    // Records of a batch are published one by one: half a batch survives.
    fault("link_batch_one_by_one", &[SWEEP, CaughtBy::Torture]),
    // What was agreed on a connection is not stored before records flow.
    fault("link_attach_not_committed", &[CaughtBy::Torture]),
    // What was received before another owner decided anew stays, and comes twice.
    fault("link_inbox_outlives_jump", &[CaughtBy::Torture]),
    // Each connection claims the number of the one before: the server takes none of them for newer.
    fault("link_generation_kept", &[CaughtBy::Torture]),
    // An epoch drops what is left, and says nothing.
    fault("link_epoch_unreported", &[SIMULATION, CaughtBy::Torture]),
    // Messages that are handed out again make those behind them seem never attempted.
    fault("link_attempts_fall", &[SIMULATION, CaughtBy::Torture]),
    // A message is noted as handed out once it was read: one that its readers die of is new to each owner.
    fault("link_read_before_noted", &[CaughtBy::File("link_messages_are_read")]),
    // What the application's code panics over is consumed.
    fault("link_panic_consumes", &[CaughtBy::File("link_messages_are_read")]),
    // A message is said to be sent while it is not published.
    fault("link_unpublished_now_and_then", &[CaughtBy::Torture]),
    // A session that is over waits for room for ever: one who never reads keeps its driver.
    fault("no_bound_on_leaving", &[CaughtBy::Unit("one_who_never_reads")]),
    // What a waiter compares with is read after its attempt: room that came in between is overlooked.
    fault("late_glance", &[CaughtBy::Shuttle("waits_for_room")]),
    // A driver does not wait until whoever wrote OPEN has noted the stream: its answer is of no stream.
    fault("no_wait_for_open", &[CaughtBy::Shuttle("answered_at_once")]),
    // Credit that goes along with a message is taken before the outbox: newer credit may go first.
    fault("credit_before_lock", &[CaughtBy::Shuttle("credit_beside_messages")]),
    // A message is not checked again behind the lock: it may come behind END, on the next stream of that number.
    fault("no_check_behind_end", &[CaughtBy::Shuttle("behind_the_end")]),
    // A stream is opened, or room awaited, just when the session has ended: nobody tells it.
    fault("no_look_after_open", &[CaughtBy::Shuttle("as_the_session_ends")]),
    fault("no_look_while_waiting", &[CaughtBy::Shuttle("begins_to_wait_for_room")]),
];

/// Two ends of a link and the network between them, in one thread.
const SIMULATION: CaughtBy = CaughtBy::Unit("link_state::simulation");

/// An end that dies at each instruction of what it does, in its short form.
const SWEEP: CaughtBy = CaughtBy::File("link_kill_sweep");

const fn fault(name: &'static str, caught_by: &'static [CaughtBy]) -> Fault {
    Fault { name, caught_by }
}

/// Runs every fault.
///
/// # Errors
/// A fault does not compile, is not noticed, hangs its test, or ends it without naming a failed test.
pub fn main() -> Result<Done, String> {
    run(|by| !matches!(by, CaughtBy::Torture))?;
    Ok(Done::Passed)
}

/// Runs every fault that the torture of links must notice.
///
/// # Errors
/// As [`main`].
pub fn tortured() -> Result<(), String> {
    run(|by| matches!(by, CaughtBy::Torture))
}

fn run(is_chosen: fn(&CaughtBy) -> bool) -> Result<(), String> {
    let wrapper = wrapper()?;
    let (mut built, mut sound) = (BTreeSet::new(), BTreeSet::new());
    for fault in REGISTRY {
        for by in fault.caught_by.iter().filter(|by| is_chosen(by) && by.is_here()) {
            let build = build(by).variable("RUSTC_WORKSPACE_WRAPPER", &wrapper);
            if built.insert(build.to_string()) {
                build.clone().args("--quiet --no-run").run()?;
            }
            let step = chosen(build, by);
            if sound.insert(step.to_string()) {
                pass_without(by, &step)?;
            }
            let step = step.variable("PARTYWALL_FAULT", fault.name);
            check(by, &step).map_err(|error| {
                format!("fault `{}`: {error}\n  repeat it with:\n    {step}", fault.name)
            })?;
            println!("fault {:<28} noticed by {}", fault.name, by.name());
        }
    }
    Ok(())
}

/// The same tests pass while no fault is chosen: else their failure would say nothing.
fn pass_without(by: &CaughtBy, step: &Step) -> Result<(), String> {
    let step = match by {
        CaughtBy::Torture => step.clone().variable("PARTYWALL_TORTURE_MINUTES", "1"),
        // A few orders: the stages `loom` and `shuttle` look at them all.
        CaughtBy::Model(_) => step.clone().variable("LOOM_MAX_PREEMPTIONS", "1"),
        CaughtBy::Shuttle(_) => step.clone().variable("PARTYWALL_SHUTTLE_TIMES", "0.05"),
        CaughtBy::File(_) | CaughtBy::Unit(_) => step.clone(),
    };
    // The environment may have one chosen.
    let step = step.variable("PARTYWALL_FAULT", "");
    let ran = step.clone().within_seconds(RUN_SECONDS_MAX).capture()?;
    if ran.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&ran.stdout);
    Err(format!("fails without any fault:\n{output}\n  repeat it with:\n    {step}"))
}

fn check(by: &CaughtBy, step: &Step) -> Result<(), String> {
    // A test that kills at random instants may miss the one that matters.
    let runs = if RANDOM.contains(&by.name()) { CHANCES } else { 1 };
    let mut verdict = Ok(());
    for _ in 0..runs {
        let ran = step.clone().within_seconds(RUN_SECONDS_MAX).capture()?;
        let is_passed = ran.status.success();
        verdict = judge(by, ran.status.code(), &String::from_utf8_lossy(&ran.stdout));
        if !is_passed {
            break;
        }
    }
    verdict
}

/// Decides whether the outcome of a test run shows that the fault was noticed.
fn judge(caught_by: &CaughtBy, status: Option<i32>, output: &str) -> Result<(), String> {
    match status {
        Some(0) => return Err("the tests pass, so nothing tests the rule it takes out".to_owned()),
        Some(124 | 137) => {
            return Err(format!(
                "still running after {RUN_SECONDS_MAX} s; the test needs a deadline"
            ));
        }
        _ => {}
    }
    let mut failed = output.lines().filter_map(|line| {
        let rest = line.trim().strip_prefix("test ")?;
        Some(rest.strip_suffix("FAILED")?.trim_end_matches(" ... "))
    });
    let expected = match caught_by {
        CaughtBy::Unit(name) | CaughtBy::Shuttle(name) => failed.any(|test| test.contains(name)),
        CaughtBy::File(_) | CaughtBy::Torture => failed.next().is_some(),
        CaughtBy::Model(_) => true,
    };
    if expected {
        return Ok(());
    }
    Err(format!("the run failed, but not in the registered test:\n{output}"))
}

/// Builds the tests of this kind, with guards.
///
/// It is a build for a run of moments: quick to build is quicker.
fn build(by: &CaughtBy) -> Step {
    let once = || test_step().variable("CARGO_INCREMENTAL", "0");
    match by {
        CaughtBy::File(name) => once().args("--test").arg(name),
        // The packages whose tests would need the library once more, without its unit tests, are left out.
        CaughtBy::Unit(_) => once()
            .args("--exclude partywall-shmipc --config profile.test.package.partywall.opt-level=0")
            .args("--lib"),
        CaughtBy::Model(name) => loom_step().args("--test").arg(name),
        CaughtBy::Torture => torture::build(),
        CaughtBy::Shuttle(_) => shuttle_step().variable("CARGO_PROFILE_TEST_OPT_LEVEL", "0"),
    }
}

/// What runs, of what was built, those tests that must fail.
fn chosen(build: Step, by: &CaughtBy) -> Step {
    match by {
        CaughtBy::File(_) | CaughtBy::Model(_) => build,
        CaughtBy::Unit(name) | CaughtBy::Shuttle(name) => build.arg(name),
        CaughtBy::Torture => torture::of_kills(build)
            .variable("PARTYWALL_TORTURE_FORGET", "1")
            .variable("PARTYWALL_TORTURE_MINUTES", "2"),
    }
}

/// Writes the script through which cargo calls the compiler for workspace members, and returns its path. Cargo tells builds
/// apart by that path: another script needs another name.
fn wrapper() -> Result<String, String> {
    let directory = PathBuf::from("target/faults");
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", directory.display());
    fs::create_dir_all(&directory).map_err(cannot)?;
    let path = directory.canonicalize().map_err(cannot)?.join("with-guards");
    let script = "#!/bin/sh\nexec \"$@\" --cfg partywall_faults\n";
    if fs::read_to_string(&path).is_ok_and(|old| old == script) {
        return Ok(path.display().to_string());
    }
    fs::write(&path, script).map_err(cannot)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(cannot)?;
    Ok(path.display().to_string())
}

/// Tests that kill at random instants: one run in some fifty, of 150 kills each, misses a window of nanoseconds.
const RANDOM: [&str; 2] = ["link_state_survives_kills", "link_stream_survives_kills"];
/// So often they may run until they notice.
const CHANCES: u32 = 3;
/// For one run of the registered test; building it is not counted.
const RUN_SECONDS_MAX: u32 = 180;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_means_noticed() {
        let output = "running 1 test\ntest forged_words_are_not_delivered ... FAILED\n";
        assert!(judge(&CaughtBy::File("forged_words"), Some(101), output).is_ok());
        assert!(judge(&CaughtBy::Unit("forged_words"), Some(101), output).is_ok());
        assert!(judge(&CaughtBy::Shuttle("forged_words"), Some(101), output).is_ok());
    }

    #[test]
    fn passing_tests_mean_unnoticed() {
        let error = judge(&CaughtBy::File("forged_words"), Some(0), "test a ... ok");
        assert!(error.is_err_and(|error| error.contains("pass")));
    }

    #[test]
    fn another_failed_test_does_not_count() {
        let output = "test allocator_is_exact ... FAILED\n";
        assert!(judge(&CaughtBy::Unit("forged_words"), Some(101), output).is_err());
        assert!(judge(&CaughtBy::Shuttle("forged_words"), Some(101), output).is_err());
        assert!(judge(&CaughtBy::File("forged_words"), Some(101), "aborted").is_err());
    }

    #[test]
    fn a_model_may_end_the_process() {
        assert!(judge(&CaughtBy::Model("loom_parking"), Some(101), "aborted").is_ok());
        assert!(judge(&CaughtBy::Model("loom_parking"), Some(0), "").is_err());
        assert!(judge(&CaughtBy::Model("loom_parking"), Some(124), "").is_err());
    }

    #[test]
    fn a_hang_is_an_error() {
        assert!(judge(&CaughtBy::File("a"), Some(124), "").is_err_and(|e| e.contains("deadline")));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = REGISTRY.iter().map(|fault| fault.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), REGISTRY.len());
        assert!(REGISTRY.iter().all(|fault| !fault.caught_by.is_empty()));
    }
}
