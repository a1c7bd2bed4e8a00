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

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::beside::{self, Executable};
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

/// A place that must notice a fault.
pub enum CaughtBy {
    /// A module of a test executable.
    Test(Place),
    /// A unit test, or a module of them.
    Unit(Place),
    /// A loom model, or a module of them (partywall-ring only).
    Model(Place),
    /// A unit test under shuttle, or a module of them (partywall only).
    Shuttle(Place),
    /// `cargo xtask torture --faults`: the oracle of `torture`, within two minutes. It is not in the
    /// stage, because a fault of a race may take most of that time.
    Torture(Place),
}

/// Tests of one executable.
pub struct Place {
    /// The directory below `crates`.
    pub package: &'static str,
    /// The name of the test executable, or [`LIBRARY`].
    pub executable: &'static str,
    /// Whole segments of the tests' paths: a module, or a test. Empty for all tests.
    pub path: &'static str,
}

/// The executable of a package's unit tests.
pub const LIBRARY: &str = "lib";

impl Place {
    /// Whether the test with this path lies here.
    fn holds(&self, test: &str) -> bool {
        let (test, path) = (format!("::{test}::"), format!("::{}::", self.path));
        self.path.is_empty() || test.contains(&path)
    }

    fn is_of(&self, executable: &Executable) -> bool {
        executable.package() == self.package && executable.is_called(self.executable)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.package, self.executable, self.path)
    }
}

impl CaughtBy {
    /// Where the tests are.
    pub const fn place(&self) -> &Place {
        match self {
            Self::Test(place) | Self::Unit(place) | Self::Model(place) | Self::Shuttle(place) => {
                place
            }
            Self::Torture(place) => place,
        }
    }

    /// Whether the test runs on this processor: it executes single steps on x86-64 only.
    fn is_here(&self) -> bool {
        cfg!(target_arch = "x86_64") || self.place().executable != "kill_sweep"
    }
}

/// All faults.
pub const REGISTRY: &[Fault] = &[
    // A record is published without a 0 in the slot after it: old payload there may read as a record.
    fault("no_zero_next_slot", &[test("ring", "ring", "forged_words")]),
    // The first word of a batch is stored at once: a batch not yet published shows, an aborted one comes alive.
    fault("early_first_word", &[test("ring", "ring", "forged_words"), model("ring")]),
    // The id of a block is the same each time: a neighbour that returns it twice frees its next use.
    fault("same_generation", &[test("ring", "ring", "double_release")]),
    // Release or acquire is missing: a word is seen before what it publishes.
    fault("relaxed_publish", &[model("ring"), model("release")]),
    fault("no_acquire_fence", &[model("ring"), model("release")]),
    // A full fence of parking is missing: a sleeper and its neighbour overlook each other.
    fault("no_sleeper_fence", &[model("parking")]),
    fault("no_waker_fence", &[model("parking")]),
    // A favoured thread looks whether it is favoured still before it is seen to be inside: two are inside.
    fault("no_light_barrier", &[model("bias")]),
    // Whoever takes the favour away does not make the favoured thread's flag seen, or does not wait until it is down.
    fault("no_heavy_barrier", &[model("bias")]),
    fault("no_wait_for_vacancy", &[model("bias")]),
    // All favoured threads have one flag: one that comes late says of another that it is outside.
    fault("one_slot_for_all", &[model("bias")]),
    // A driver that finds room for one who has not called it yet looks for ever, and never tells.
    fault(
        "no_look_for_uncalled",
        &[
            unit(
                "partywall",
                "driver::tests::one_who_waits_for_room_is_woken_before_it_has_called",
            ),
            shuttle("races::who_waits_for_room_is_told_of_it"),
        ],
    ),
    // A lock of the next incarnation is enough, whoever has become the owner meanwhile: two owners.
    fault("link_lock_is_enough", &[test("link", "owner", "")]),
    // A lock that a dead owner's child keeps counts as its life: nobody follows.
    fault("link_lock_is_life", &[test("link", "owner", "")]),
    // The seal of an image is stored before its body: who is killed between them leaves neither image.
    fault("link_seal_first", &[test("link", "files", "state_survives_kills"), SWEEP]),
    // What was consumed since another record is still beside the new one when that is put in force.
    fault("link_since_later", &[unit("link", "store::slots::tests")]),
    // A word is read with the records, and may be of the one that was in the slot before.
    fault("link_since_early", &[unit("link", "store::slots::tests")]),
    // Nobody looks whether a word is of the record that was read: it may be of the one that followed in its slot.
    fault("link_seal_once", &[unit("link", "store::slots::tests")]),
    // A newest image that rotted is taken for one that was not finished: an older one comes back.
    fault("link_rot_is_unfinished", &[test("layout", "layout", "link_files")]),
    // A half-written record stays where the next stream begins: nobody can tell it from a damaged one.
    fault("link_half_record_first", &[test("link", "files", "stream_survives_kills")]),
    // A whole record of the former stream, where the next begins, is taken for damage.
    fault("link_former_is_damage", &[test("link", "files", "stream_survives_kills")]),
    // The bytes of a BLOB are not judged when a stream is found.
    fault("link_blob_unchecked", &[test("link", "files", "stream_survives_kills")]),
    // A record without a prefix lies where the ring begins: the neighbour refuses it, and so does the next owner.
    fault("link_compact_first", &[test("link", "files", "compact_records"), SIMULATION]),
    // A reply's record has no prefix, and so commits nothing: an owner that is killed behind it answers twice.
    fault("link_compact_of_reply", &[unit("link", "link_state::shm::compact"), SWEEP]),
    // An answer that was for another connection is taken: late bytes decide how a stream goes on.
    fault("link_echo_unchecked", &[SIMULATION]),
    // A commit is not stored: the next owner is handed what was consumed.
    fault("link_consumed_now_and_then", &[TORTURE]),
    // What arrived is acknowledged, not what was consumed: whoever is killed before it consumes it never gets it again.
    fault("link_ack_of_received", &[SIMULATION, TORTURE]),
    // Acknowledgements wait for traffic back: what was consumed is kept for ever.
    fault("link_ack_waits", &[TORTURE]),
    // A connection goes on behind what the receiver has not got.
    fault("link_resume_at_tail", &[TORTURE]),
    // Room is used again before the base that gives it up is in force: an owner finds the middle of a record.
    fault("link_base_not_committed", &[SIMULATION, SWEEP, TORTURE]),
    // What replies have committed is forgotten by the next owner: requests are answered twice.
    fault("link_reply_commits_nothing", &[SIMULATION, TORTURE]),
    // A request is consumed before its answer is sent: an owner that is killed in between never answers.
    fault("link_reply_in_two_steps", &[SWEEP, TORTURE]),
    // A record that is here already is taken once more.
    fault("link_known_taken_again", &[TORTURE]),
    // Records of a batch are published one by one: half a batch survives.
    fault("link_batch_one_by_one", &[SWEEP, TORTURE]),
    // What was agreed on a connection is not stored before records flow.
    fault("link_attach_not_committed", &[TORTURE]),
    // What was received before another owner decided anew stays, and comes twice.
    fault("link_inbox_outlives_jump", &[TORTURE]),
    // Each connection claims the number of the one before: the server takes none of them for newer.
    fault("link_connection_number_kept", &[TORTURE]),
    // An epoch drops what is left, and says nothing.
    fault("link_epoch_unreported", &[SIMULATION, TORTURE]),
    // Messages that are handed out again make those behind them seem never attempted.
    fault("link_attempts_fall", &[SIMULATION, TORTURE]),
    // A message is noted as handed out once it was read: one that its readers die of is new to each owner.
    fault("link_read_before_noted", &[test("link", "links", "read_in_place")]),
    // What the application's code panics over is consumed.
    fault("link_panic_consumes", &[test("link", "links", "read_in_place")]),
    // A message is said to be sent while it is not published.
    fault("link_unpublished_now_and_then", &[TORTURE]),
    // A session that is over waits for room for ever: one who never reads keeps its driver.
    fault(
        "no_bound_on_leaving",
        &[unit("partywall", "driver::tests::one_who_never_reads_is_not_waited_for_after_the_end")],
    ),
    // What a waiter compares with is read after its attempt: room that came in between is overlooked.
    fault("late_glance", &[shuttle("races::who_waits_for_room_is_told_of_it")]),
    // A driver does not wait until whoever wrote OPEN has noted the stream: its answer is of no stream.
    fault("no_wait_for_open", &[shuttle("races::a_stream_that_is_answered_at_once_is_known")]),
    // Credit that goes along with a message is taken before the outbox: newer credit may go first.
    fault(
        "credit_before_lock",
        &[shuttle("races::credit_beside_messages_is_never_older_than_what_was_told")],
    ),
    // A message is not checked again behind the lock: it may come behind END, on the next stream of that number.
    fault("no_check_behind_end", &[shuttle("races::nothing_comes_behind_the_end_of_a_stream")]),
    // A stream is opened, or room awaited, just when the session has ended: nobody tells it.
    fault(
        "no_look_after_open",
        &[shuttle("ends::who_opens_a_stream_as_the_session_ends_learns_of_it")],
    ),
    fault(
        "no_look_while_waiting",
        &[shuttle("ends::who_begins_to_wait_for_room_as_the_session_closes_is_told")],
    ),
];

/// Two ends of a link and the network between them, in one thread.
const SIMULATION: CaughtBy = unit("link", "link_state::simulation");

/// An end that dies at each instruction of what it does, in its short form.
const SWEEP: CaughtBy = test("link", "kill_sweep", "");

/// The oracle of the torture of links.
const TORTURE: CaughtBy =
    CaughtBy::Torture(Place { package: "link", executable: "torture", path: "" });

const fn fault(name: &'static str, caught_by: &'static [CaughtBy]) -> Fault {
    Fault { name, caught_by }
}

const fn test(package: &'static str, executable: &'static str, path: &'static str) -> CaughtBy {
    CaughtBy::Test(Place { package, executable, path })
}

const fn unit(package: &'static str, path: &'static str) -> CaughtBy {
    CaughtBy::Unit(Place { package, executable: LIBRARY, path })
}

const fn model(path: &'static str) -> CaughtBy {
    CaughtBy::Model(Place { package: "ring", executable: "loom", path })
}

const fn shuttle(path: &'static str) -> CaughtBy {
    CaughtBy::Shuttle(Place { package: "partywall", executable: LIBRARY, path })
}

/// Runs every fault.
///
/// # Errors
/// A fault does not compile, is not noticed, hangs its test, or ends it without naming a failed test.
pub fn main() -> Result<Done, String> {
    run(|by| !matches!(by, CaughtBy::Torture(_)), FAULTS_AT_ONCE)?;
    Ok(Done::Passed)
}

/// Runs every fault that the torture of links must notice.
///
/// # Errors
/// As [`main`].
pub fn tortured() -> Result<(), String> {
    run(|by| matches!(by, CaughtBy::Torture(_)), 1)
}

/// A place, the command that runs its tests, and the fault to choose; none to show that they pass.
type Run = (&'static CaughtBy, Step, Option<&'static str>);

fn run(is_chosen: fn(&CaughtBy) -> bool, at_once: usize) -> Result<(), String> {
    let wrapper = wrapper()?;
    let mut built: BTreeMap<String, Vec<Executable>> = BTreeMap::new();
    let (mut sound, mut faulty) = (BTreeMap::<String, Run>::new(), Vec::<Run>::new());
    for fault in REGISTRY {
        for by in fault.caught_by.iter().filter(|by| is_chosen(by) && by.is_here()) {
            let build = build(by).variable("RUSTC_WORKSPACE_WRAPPER", &wrapper);
            let executables = match built.entry(build.to_string()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(beside::build(&build)?),
            };
            let is_there = |executable: &&Executable| by.place().is_of(executable);
            let executable = executables.iter().find(is_there).ok_or_else(|| {
                format!("fault `{}`: there is no test executable {}", fault.name, by.place())
            })?;
            let step = chosen(executable.step(), by);
            sound.entry(step.to_string()).or_insert_with(|| (by, step.clone(), None));
            faulty.push((by, step, Some(fault.name)));
        }
    }
    beside::each(sound.into_values().chain(faulty).collect(), at_once, |(by, step, fault)| {
        let Some(fault) = fault else { return pass_without(by, step) };
        let step = step.clone().variable("PARTYWALL_FAULT", fault);
        check(by, &step)
            .map_err(|error| format!("fault `{fault}`: {error}\n  repeat it with:\n    {step}"))?;
        println!("fault {fault:<28} noticed by {}", by.place());
        Ok(())
    })
}

/// The same tests pass while no fault is chosen: else their failure would say nothing.
fn pass_without(by: &CaughtBy, step: &Step) -> Result<(), String> {
    let step = match by {
        CaughtBy::Torture(_) => step.clone().variable("PARTYWALL_TORTURE_MINUTES", "1"),
        // A few orders: the stages `loom` and `shuttle` explore them all.
        CaughtBy::Model(_) => step.clone().variable("LOOM_MAX_PREEMPTIONS", "1"),
        CaughtBy::Shuttle(_) => step.clone().variable("PARTYWALL_SHUTTLE_TIMES", "0.05"),
        CaughtBy::Test(_) | CaughtBy::Unit(_) => step.clone(),
    };
    // The environment may have one chosen.
    let step = step.variable("PARTYWALL_FAULT", "");
    let ran = step.clone().within_seconds(RUN_SECONDS_MAX).capture()?;
    let output = String::from_utf8_lossy(&ran.stdout);
    if !ran.status.success() {
        return Err(format!("fails without any fault:\n{output}\n  repeat it with:\n    {step}"));
    }
    if results(&output, "ok").any(|test| by.place().holds(test)) {
        return Ok(());
    }
    Err(format!("there is no test {}\n  it was looked for with:\n    {step}", by.place()))
}

fn check(by: &CaughtBy, step: &Step) -> Result<(), String> {
    // A test that kills at random instants may miss the one that matters.
    let runs = if RANDOM.contains(&by.place().path) { CHANCES } else { 1 };
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
fn judge(by: &CaughtBy, status: Option<i32>, output: &str) -> Result<(), String> {
    match status {
        Some(0) => return Err("the tests pass, so nothing tests the rule it takes out".to_owned()),
        Some(124 | 137) => {
            return Err(format!(
                "still running after {RUN_SECONDS_MAX} s; the test needs a deadline"
            ));
        }
        _ => {}
    }
    let is_model = matches!(by, CaughtBy::Model(_));
    if is_model || results(output, "FAILED").any(|test| by.place().holds(test)) {
        return Ok(());
    }
    Err(format!("the run failed, but not in {}:\n{output}", by.place()))
}

/// The paths of the tests whose line ends with `verdict`.
fn results<'a>(output: &'a str, verdict: &'a str) -> impl Iterator<Item = &'a str> {
    output.lines().filter_map(move |line| {
        let rest = line.trim().strip_prefix("test ")?;
        Some(
            rest.strip_suffix(verdict)?
                .trim_end_matches(" ... ")
                .trim_end_matches(" - should panic"),
        )
    })
}

/// Builds the tests of this kind, with guards.
fn build(by: &CaughtBy) -> Step {
    match by {
        CaughtBy::Test(_) | CaughtBy::Unit(_) => REGISTRY
            .iter()
            .flat_map(|fault| fault.caught_by)
            .filter(|by| matches!(by, CaughtBy::Test(_)))
            .map(|by| by.place().executable)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .fold(test_step().args("--lib"), |step, name| step.args("--test").arg(name)),
        CaughtBy::Model(_) => loom_step().args("--test loom"),
        CaughtBy::Torture(_) => torture::build(),
        CaughtBy::Shuttle(_) => shuttle_step(),
    }
}

/// Runs, of an executable, those tests that must fail.
fn chosen(executable: Step, by: &CaughtBy) -> Step {
    match by {
        CaughtBy::Torture(_) => torture::of_kills(executable)
            .variable("PARTYWALL_TORTURE_FORGET", "1")
            .variable("PARTYWALL_TORTURE_MINUTES", "2"),
        _ if by.place().path.is_empty() => executable,
        _ => executable.arg(by.place().path),
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

/// So many runs at once: a few of them use two threads, most use one.
const FAULTS_AT_ONCE: usize = 2;
/// Tests that kill at random instants: one run in some fifty, of 150 kills each, misses a window of nanoseconds.
const RANDOM: [&str; 2] = ["state_survives_kills", "stream_survives_kills"];
/// So often they may run until they notice.
const CHANCES: u32 = 3;
/// For one run of the registered test; building it is not counted.
const RUN_SECONDS_MAX: u32 = 180;

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: CaughtBy = test("ring", "ring", "forged_words");

    #[test]
    fn failure_in_the_module_of_the_row_is_noticed() {
        let output = "running 1 test\ntest forged_words::none_is_delivered ... FAILED\n";
        assert!(judge(&WORDS, Some(101), output).is_ok());
        let whole = "test ring::forged_words::none_is_delivered - should panic ... FAILED\n";
        assert!(judge(&unit("ring", "forged_words"), Some(101), whole).is_ok());
        let one = "ring::forged_words::none_is_delivered";
        assert!(judge(&shuttle(one), Some(101), whole).is_ok());
        assert!(judge(&test("ring", "ring", ""), Some(101), output).is_ok());
    }

    #[test]
    fn passing_tests_leave_a_fault_unnoticed() {
        let error = judge(&WORDS, Some(0), "test forged_words::a ... ok");
        assert!(error.is_err_and(|error| error.contains("pass")));
    }

    #[test]
    fn failure_in_another_module_leaves_a_fault_unnoticed() {
        for output in [
            "test allocator::is_exact ... FAILED\n",
            "test slab::forged_words_of_a_slab ... FAILED\n",
            "test unforged_words::a ... FAILED\n",
            "test forged_words::a ... ok\ntest copies::b ... FAILED\n",
            "aborted",
        ] {
            assert!(judge(&WORDS, Some(101), output).is_err(), "{output}");
            assert!(judge(&shuttle("forged_words"), Some(101), output).is_err(), "{output}");
        }
    }

    #[test]
    fn a_model_may_end_the_process() {
        assert!(judge(&model("parking"), Some(101), "aborted").is_ok());
        assert!(judge(&model("parking"), Some(0), "").is_err());
        assert!(judge(&model("parking"), Some(124), "").is_err());
    }

    #[test]
    fn a_hang_is_an_error() {
        assert!(judge(&WORDS, Some(124), "").is_err_and(|e| e.contains("deadline")));
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
