// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds test executables with cargo, and runs a few of them at a time.
//!
//! ```text
//! cargo test --no-run ──▶ Queue of executables ──▶ worker ──▶ output, whole, when it ends
//!                                             └──▶ worker ──▶ …
//! ```
//!
//! `cargo test` runs one executable after the other. Many of this project's executables block most
//! of the time, for a second process or until a deadline, so others can run meanwhile. The first
//! ones run while cargo still compiles the rest. Only executables with cargo's test harness are
//! run, each in the directory of its package, as cargo does. The output of each is printed as a
//! whole when the executable ends.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::builds::FAULT;
use crate::command::Step;

/// A function that chooses which tests of an executable run, by their paths or parts of these. If
/// the function returns `None`, the executable does not run; with an empty list, all its tests run.
pub type Choice = fn(&Executable) -> Option<Vec<&'static str>>;

/// Chooses all tests of each executable.
pub fn all(_: &Executable) -> Option<Vec<&'static str>> {
    Some(Vec::new())
}

/// Builds the executables of each step of `builds` (a `cargo test` without `--no-run`), one step
/// after the other, and runs the chosen tests, up to `at_once` of the executables at the same time.
///
/// # Errors
/// If the build fails, cargo's answer is not understood, or a test failed; the message says how to
/// repeat it.
pub fn run(builds: &[(Step, Choice)], at_once: usize) -> Result<(), String> {
    let (mut count, passed) = (0, AtomicUsize::new(0));
    let work = |(executable, paths): &(Executable, Vec<&str>)| {
        passed.fetch_add(executable.run(paths)?, Ordering::Relaxed);
        Ok(())
    };
    Queue::new(at_once).run(work, |queue| {
        builds.iter().try_for_each(|(step, choice)| {
            let mut push = |executable: Executable| {
                let Some(paths) = choice(&executable) else { return };
                count += 1;
                let rank = LONG.iter().position(|name| *name == executable.name);
                queue.push((executable, paths), rank.unwrap_or(LONG.len()));
            };
            let mut with_program = Vec::new();
            build_each(step, |executable| {
                if executable.has_program() {
                    with_program.push(executable)
                } else {
                    push(executable)
                }
            })?;
            with_program.into_iter().for_each(&mut push);
            Ok(())
        })
    })?;
    println!("{} tests in {count} executables passed", passed.into_inner());
    Ok(())
}

/// Builds the executables that `step` (a `cargo test` without `--no-run`) would run.
///
/// # Errors
/// If the build fails, cargo's answer is not understood, or there is no executable.
pub fn build(step: &Step) -> Result<Vec<Executable>, String> {
    let mut executables = Vec::new();
    build_each(step, |executable| executables.push(executable))?;
    Ok(executables)
}

/// Builds the executables that `step` would run, and calls `each` for each executable as soon as it
/// is built.
fn build_each(step: &Step, mut each: impl FnMut(Executable)) -> Result<(), String> {
    let mut is_empty = true;
    step.clone().args("--no-run --message-format=json-render-diagnostics").lines(|line| {
        if let Some(executable) = Executable::of(line)? {
            is_empty = false;
            each(executable);
        }
        Ok(())
    })?;
    if is_empty {
        return Err(format!("there is no test to run; repeat it with:\n    {step}"));
    }
    Ok(())
}

/// The name that stands for the unit tests of a library, where [`Executable::is_called`] takes the
/// name of a test executable.
pub const LIBRARY: &str = "lib";

/// A test executable that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    path: String,
    /// Name of the cargo target that the executable was built from: a test target, or a crate.
    name: String,
    /// Whether the executable has the unit tests of a library.
    is_library: bool,
    directory: String,
}

impl Executable {
    /// The test executable that `line`, one of cargo's messages, describes; `None` if it describes
    /// another thing.
    fn of(line: &str) -> Result<Option<Self>, String> {
        let is_test = line.contains(r#""reason":"compiler-artifact""#)
            && line.contains(r#""test":true},"features""#)
            && !line.contains(r#""executable":null"#);
        if !is_test {
            return Ok(None);
        }
        let target = line.split_once(r#""target":{"#).map_or("", |(_, rest)| rest);
        let found = (text(line, "executable"), text(target, "name"), text(line, "manifest_path"));
        let (Some(path), Some(name), Some(manifest)) = found else {
            return Err(format!("cargo's message is not understood: {line}"));
        };
        let directory = Path::new(manifest).parent().unwrap_or(Path::new("."));
        let directory = directory.to_string_lossy().into_owned();
        // A library that cargo also makes as an archive for C has two kinds, `rlib` and
        // `staticlib`.
        let kind = target.strip_prefix(r#""kind":["#).unwrap_or_default();
        let is_library = kind.starts_with(r#""lib""#) || kind.starts_with(r#""rlib""#);
        Ok(Some(Self { path: path.to_owned(), name: name.to_owned(), is_library, directory }))
    }

    /// Makes an `Executable` for tests of other files: the unit tests of a library, or a test
    /// executable.
    #[cfg(test)]
    pub fn sample(package: &str, name: &str) -> Self {
        Self {
            path: format!("target/debug/deps/{name}"),
            name: name.to_owned(),
            is_library: name == LIBRARY,
            directory: format!("crates/{package}"),
        }
    }

    /// Whether the executable's package has a program, which its tests may start. Cargo may build
    /// such an executable before the program, so it is run only once the whole build has ended.
    fn has_program(&self) -> bool {
        ["src/main.rs", "src/bin"].iter().any(|path| Path::new(&self.directory).join(path).exists())
    }

    /// Name of the directory of the executable's package, such as `ring` for `crates/ring`.
    pub fn package(&self) -> &str {
        self.directory.rsplit('/').next().unwrap_or_default()
    }

    /// Whether this executable is the test executable `name`. For the name [`LIBRARY`]: whether it
    /// has the unit tests of a library.
    pub fn is_called(&self, name: &str) -> bool {
        if name == LIBRARY { self.is_library } else { self.name == name }
    }

    /// The command that runs the executable, in the directory where cargo would run it. The command
    /// activates no seeded fault, whatever the environment of this process says.
    pub fn step(&self) -> Step {
        Step::new(&self.path)
            .directory(&self.directory)
            .variable("CARGO_MANIFEST_DIR", &self.directory)
            .variable(FAULT, "")
    }

    /// Runs the tests whose paths contain one of `paths`, or all tests if there is no path. Prints
    /// the output, and returns how many tests passed.
    fn run(&self, paths: &[&str]) -> Result<usize, String> {
        let start = Instant::now();
        let step = paths.iter().fold(self.step(), |step, path| step.arg(path));
        let output = step.capture()?;
        println!(
            "     Running {} {} ({}), {:.1} s\n{}{}",
            self.package(),
            self.name,
            self.path,
            start.elapsed().as_secs_f64(),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        if output.status.success() {
            return Ok(tests_passed(&String::from_utf8_lossy(&output.stdout)));
        }
        Err(format!("{}; repeat it with:\n    {step}", output.status))
    }
}

/// The number of passed tests in the line `test result: ok. 12 passed; 0 failed; …`.
fn tests_passed(output: &str) -> usize {
    let result = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    result.filter_map(|rest| rest.split(' ').next()?.parse::<usize>().ok()).sum()
}

/// Calls `run` for each of `items`, in their order, up to `at_once` calls at the same time. After a
/// failure no further call begins, and this function waits for the calls that run.
///
/// # Errors
/// All failures, each on its own line.
pub fn each<T: Send>(
    items: Vec<T>,
    at_once: usize,
    run: impl Fn(&T) -> Result<(), String> + Sync,
) -> Result<(), String> {
    Queue::new(at_once).run(run, |queue| {
        items.into_iter().for_each(|item| queue.push(item, 0));
        Ok(())
    })
}

/// Items, such as test executables, that worker threads process, a few at the same time, while
/// other items are still added.
struct Queue<T> {
    state: Mutex<State<T>>,
    /// Notified after each change of the queue's state.
    changed: Condvar,
    /// Number of items that are processed at the same time once all have been added. Before that,
    /// while cargo still compiles others, the number is [`WHILE_COMPILING`].
    at_once: usize,
}

struct State<T> {
    /// The items that wait for a worker thread, each under its rank and the number of items that
    /// were added before it.
    waiting: BTreeMap<(usize, usize), T>,
    added: usize,
    running: usize,
    /// Whether all items have been added to the queue.
    is_complete: bool,
    failures: Vec<String>,
}

impl<T: Send> Queue<T> {
    fn new(at_once: usize) -> Self {
        let state = State {
            waiting: BTreeMap::new(),
            added: 0,
            running: 0,
            is_complete: false,
            failures: Vec::new(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), at_once }
    }

    /// Adds an item, which is taken before all that wait with a higher rank, and after all that
    /// wait with the same rank.
    fn push(&self, item: T, rank: usize) {
        let mut state = self.lock();
        let key = (rank, state.added);
        state.added += 1;
        state.waiting.insert(key, item);
        self.changed.notify_all();
    }

    /// Calls `fill`, which pushes all items, and `work` for each item. After a failure no further
    /// call of `work` begins.
    fn run(
        &self,
        work: impl Fn(&T) -> Result<(), String> + Sync,
        fill: impl FnOnce(&Self) -> Result<(), String>,
    ) -> Result<(), String> {
        std::thread::scope(|scope| {
            for _ in 0..self.at_once {
                scope.spawn(|| {
                    while let Some(item) = self.take() {
                        self.finish(work(&item));
                    }
                });
            }
            let outcome = fill(self);
            let mut state = self.lock();
            state.is_complete = true;
            state.failures.extend(outcome.err());
            self.changed.notify_all();
        });
        match self.lock().failures.as_slice() {
            [] => Ok(()),
            failures => Err(failures.join("\n  ")),
        }
    }

    /// Waits until a worker thread may process another item, and returns the item. Returns `None`
    /// when no items are left, or one has failed.
    fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if !state.failures.is_empty() || state.is_complete && state.waiting.is_empty() {
                return None;
            }
            let at_once = if state.is_complete { self.at_once } else { WHILE_COMPILING };
            let item = if state.running < at_once { state.waiting.pop_first() } else { None };
            if let Some((_, item)) = item {
                state.running += 1;
                return Some(item);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn finish(&self, outcome: Result<(), String>) {
        let mut state = self.lock();
        state.running -= 1;
        state.failures.extend(outcome.err());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of executables that run at the same time while cargo compiles others. Cargo alone keeps
/// two cores busy. Most executables wait for a second process most of the time, so one of them
/// takes little from cargo.
const WHILE_COMPILING: usize = 1;

/// The string under `key` in a JSON object. The function does not understand strings with escapes,
/// because the names and paths of this project need none.
fn text<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = object.split_once(&format!(r#""{key}":""#))?;
    let (value, _) = rest.split_once('"')?;
    (!value.contains('\\')).then_some(value)
}

/// The executables whose run takes longest, the longest first. They begin in this order, before all
/// others, so that none of them runs alone at the end.
const LONG: [&str; 16] = [
    "hostile",
    "channels",
    "partywall_link",
    "link",
    "hostile_peers",
    "death",
    "memory",
    "links",
    "shmipc",
    "commands",
    "kill_sweep",
    "proxy",
    "sessions",
    "idle",
    "model",
    "idle_links",
];

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/ring#partywall-ring@0.1.0","manifest_path":"/w/crates/ring/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"forged_words","src_path":"/w/x.rs","edition":"2024","doc":false,"doctest":false,"test":true},"profile":{"opt_level":"2","debuginfo":1,"debug_assertions":true,"overflow_checks":true,"test":true},"features":[],"filenames":["/w/t"],"executable":"/w/t","fresh":true}"#;

    #[test]
    fn a_message_of_a_test_tells_what_to_run_and_where() {
        let found = Executable::of(MESSAGE).unwrap().unwrap();
        let text = |text: &str| text.to_owned();
        assert_eq!(found.path, text("/w/t"));
        assert_eq!(found.name, text("forged_words"));
        assert_eq!(found.directory, text("/w/crates/ring"));
        assert_eq!(found.package(), "ring");
        assert!(found.step().to_string().contains("PARTYWALL_FAULT='' "));
        assert!(found.is_called("forged_words") && !found.is_called(LIBRARY));
        let library = MESSAGE.replace(r#""kind":["test"]"#, r#""kind":["lib"]"#);
        assert!(Executable::of(&library).unwrap().unwrap().is_called(LIBRARY));
        let archive = MESSAGE.replace(r#""kind":["test"]"#, r#""kind":["rlib","staticlib"]"#);
        assert!(Executable::of(&archive).unwrap().unwrap().is_called(LIBRARY));
    }

    #[test]
    fn what_is_no_test_is_passed_over() {
        let library =
            MESSAGE.replace(r#"true,"test":true},"features""#, r#"true,"test":false},"features""#);
        assert_eq!(Executable::of(&library), Ok(None));
        let dependency = MESSAGE.replace(r#""executable":"/w/t""#, r#""executable":null"#);
        assert_eq!(Executable::of(&dependency), Ok(None));
        assert_eq!(Executable::of(r#"{"reason":"build-finished","success":true}"#), Ok(None));
    }

    #[test]
    fn package_with_a_program_is_recognised() {
        let executable = |directory: &str| Executable {
            directory: format!("{}/{directory}", env!("CARGO_MANIFEST_DIR")),
            ..Executable::sample("", "")
        };
        assert!(executable("../crates/cli").has_program() && executable(".").has_program());
        assert!(!executable("../crates/link").has_program());
    }

    #[test]
    fn passed_tests_are_counted() {
        let output = "running 3 tests\ntest result: ok. 3 passed; 0 failed; 1 ignored\n";
        assert_eq!(tests_passed(output), 3);
        assert_eq!(tests_passed("test result: FAILED. 1 passed; 2 failed\n"), 0);
    }

    #[test]
    fn a_message_that_is_not_understood_is_an_error() {
        let escaped = MESSAGE.replace("/w/t\",\"fresh", "/w\\\"/t\",\"fresh");
        assert!(Executable::of(&escaped).is_err());
    }

    #[test]
    fn items_are_processed_while_others_arrive() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let work = |item: &u32| sender.send(*item).map_err(|error| error.to_string());
        let outcome = Queue::new(2).run(work, |queue| {
            queue.push(1, 0);
            let second = receiver.recv().map_err(|error| error.to_string())?;
            queue.push(second + 1, 0);
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn items_are_taken_by_rank_and_then_in_their_order() {
        let queue = Queue::new(1);
        for (item, rank) in [("short", 2), ("shorter", 2), ("long", 1), ("longest", 0)] {
            queue.push(item, rank);
        }
        for item in ["longest", "long", "short", "shorter"] {
            assert_eq!(queue.take(), Some(item));
            queue.finish(Ok(()));
        }
    }

    #[test]
    fn a_build_that_fails_is_a_failure() {
        let outcome = Queue::new(1).run(|(): &()| Ok(()), |_| Err("no compiler".to_owned()));
        assert_eq!(outcome, Err("no compiler".to_owned()));
    }

    #[test]
    fn a_failure_is_reported_and_nothing_more_begins() {
        let step = |program: &str| Step::new(program);
        assert_eq!(each(vec![step("true"), step("true"), step("true")], 2, Step::run), Ok(()));
        let error = each(vec![step("false"), step("no-such-program")], 1, Step::run).unwrap_err();
        assert!(error.contains("false") && !error.contains("no-such"), "{error}");
    }
}
