// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds test executables with cargo, and runs a few of them at a time.
//!
//! ```text
//! cargo test --no-run ──▶ executables ──▶ worker ──▶ output, whole, when it ends
//!                                    └──▶ worker ──▶ …
//! ```
//!
//! `cargo test` runs one executable after the other. Many of this project's executables block most
//! of the time, for a second process or until a deadline, so others can run meanwhile. Only
//! executables with cargo's test harness are run, each in the directory of its package, as cargo
//! does. The output of each is printed as a whole when the executable ends.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::builds::FAULT;
use crate::command::Step;

/// Builds the executables of `step` (a `cargo test` without `--no-run`), and runs up to `at_once`
/// of them at the same time.
///
/// # Errors
/// If the build fails, cargo's answer is not understood, or a test failed; the message says how to
/// repeat it.
pub fn run(step: &Step, at_once: usize) -> Result<(), String> {
    let mut executables = build(step)?;
    let count = executables.len();
    // The sort puts the executables of `LONG` first, because false comes before true.
    executables.sort_by_key(|executable| !LONG.contains(&&*executable.name));
    let passed = AtomicUsize::new(0);
    each(executables, at_once, |executable| {
        passed.fetch_add(executable.run()?, Ordering::Relaxed);
        Ok(())
    })?;
    println!("{} tests in {count} executables passed", passed.into_inner());
    Ok(())
}

/// Builds the executables that `step` (a `cargo test` without `--no-run`) would run.
///
/// # Errors
/// If the build fails, cargo's answer is not understood, or there is no executable.
pub fn build(step: &Step) -> Result<Vec<Executable>, String> {
    let messages = step.clone().args("--no-run --message-format=json-render-diagnostics").read()?;
    let tests = messages.lines().filter_map(|line| Executable::of(line).transpose());
    let tests = tests.collect::<Result<Vec<_>, _>>()?;
    if tests.is_empty() {
        return Err(format!("there is no test to run; repeat it with:\n    {step}"));
    }
    Ok(tests)
}

/// The name that [`Executable::is_called`] takes for the unit tests of a library.
pub const LIBRARY: &str = "lib";

/// A test executable that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    path: String,
    /// Name of the cargo target that the executable was built from: a test target, or a crate.
    name: String,
    /// Whether the executable has the unit tests of a library.
    is_library: bool,
    /// The directory of the executable's package.
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
        let is_library = target.starts_with(r#""kind":["lib"]"#);
        Ok(Some(Self { path: path.to_owned(), name: name.to_owned(), is_library, directory }))
    }

    /// Name of the directory of the executable's package, without the path above it.
    pub fn package(&self) -> &str {
        self.directory.rsplit('/').next().unwrap_or_default()
    }

    /// Whether this executable is the test executable `name`. For [`LIBRARY`]: whether it has the
    /// unit tests of a library.
    pub fn is_called(&self, name: &str) -> bool {
        if name == LIBRARY { self.is_library } else { self.name == name }
    }

    /// The command that runs the executable, in the directory where cargo would run it. The command
    /// chooses no seeded fault, whatever the environment of this process says.
    pub fn step(&self) -> Step {
        Step::new(&self.path)
            .directory(&self.directory)
            .variable("CARGO_MANIFEST_DIR", &self.directory)
            .variable(FAULT, "")
    }

    /// Runs the executable, prints its output, and returns how many of its tests passed.
    fn run(&self) -> Result<usize, String> {
        let start = Instant::now();
        let step = self.step();
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
    let waiting = Mutex::new(items.into_iter());
    let failures = Mutex::new(Vec::new());
    let work = || {
        while lock(&failures).is_empty() {
            let Some(item) = lock(&waiting).next() else { break };
            if let Err(failure) = run(&item) {
                lock(&failures).push(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(work);
        }
    });
    match lock(&failures).as_slice() {
        [] => Ok(()),
        failures => Err(failures.join("\n  ")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The string under `key` in a JSON object. The function does not understand strings with escapes,
/// because the names and paths of this project need none.
fn text<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = object.split_once(&format!(r#""{key}":""#))?;
    let (value, _) = rest.split_once('"')?;
    (!value.contains('\\')).then_some(value)
}

/// The executables whose run takes longest. They begin first, so that none of them runs alone at
/// the end.
const LONG: [&str; 12] = [
    "commands",
    "channels",
    "hostile",
    "ring",
    "partywall_link",
    "memory",
    "hostile_peers",
    "model",
    "death",
    "links",
    "kill_sweep",
    "idle",
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
    fn a_failure_is_reported_and_nothing_more_begins() {
        let step = |program: &str| Step::new(program);
        assert_eq!(each(vec![step("true"), step("true"), step("true")], 2, Step::run), Ok(()));
        let error = each(vec![step("false"), step("no-such-program")], 1, Step::run).unwrap_err();
        assert!(error.contains("false") && !error.contains("no-such"), "{error}");
    }
}
