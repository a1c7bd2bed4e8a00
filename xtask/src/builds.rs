// SPDX-License-Identifier: MIT OR Apache-2.0
//! The builds that the stages of `cargo xtask test` share, each with its packages, features,
//! compiler flags and target directory.
//!
//! ```text
//! tests()      stages test and doc; torture     target/
//! programs()   golden vectors; stages go and    target/          of the same build
//!              go-frameworks
//! guarded()    stages test, faults and matrix;  target/          guards of seeded faults
//!              torture --faults
//! models()     stages loom and faults           target/loom      guards, --cfg loom
//! orders()     stages shuttle and faults        target/shuttle   guards, --cfg shuttle
//! ```
//!
//! Each row has a function of this file, the stages that use its build, and the target directory.
//! Cargo reuses an artefact only if packages, features, flags and directory are equal. So each
//! build is described once. A seeded fault (`faults.rs`) breaks the code on purpose, to show that a
//! test notices it: it leaves out the lines behind its guard, an `if`. Guards exist only under
//! `--cfg partywall_faults`. That flag reaches the compiler through a workspace wrapper, not
//! through `RUSTFLAGS`, which would change dependencies, too: `tests()` and `guarded()` share
//! these.
//!
//! The tests of links have guards in every stage, and so have the models. All other tests, those of
//! the command among them, run the code that ships, without any guard. Those of them that must
//! notice a fault run once more with guards. The stage `faults` runs the executables that have
//! passed in an earlier stage.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::command::Step;

/// The build of the tests of all packages, with all features. With fewer packages or features,
/// cargo would build the dependencies again with other features.
pub fn tests() -> Step {
    Step::cargo("test --workspace --all-features")
}

/// The build of programs, with the profile and the features of [`tests`], so that the stage `test`
/// has built them already. The caller adds the targets, at least one of them an example: an example
/// needs the same development dependencies as the tests, so cargo does not build the dependencies
/// once more with other features.
pub fn programs() -> Step {
    Step::cargo("build --profile test --workspace --all-features")
}

/// The build of those packages of the ordinary test build ([`tests`]) whose tests notice seeded
/// faults, with the guards of these faults. The caller adds the test targets. The package of the
/// command `partywall` is included, although its tests notice no fault: without the package the
/// dependencies would have fewer features.
///
/// # Errors
/// If the compiler's wrapper cannot be written.
pub fn guarded() -> Result<Step, String> {
    with_guards(tests().args(&without_unguarded()))
}

/// The build of [`programs`] with the packages and the guards of [`guarded`].
///
/// # Errors
/// If the compiler's wrapper cannot be written.
pub fn guarded_programs() -> Result<Step, String> {
    with_guards(programs().args(&without_unguarded()))
}

/// The cargo arguments that leave out of the build the packages whose tests notice no seeded fault.
fn without_unguarded() -> String {
    let unused = ["bench", "extras", "probe", "shmipc", "sys", "testkit", "wait"];
    let unused = unused.map(|package| format!("--exclude partywall-{package}")).join(" ");
    format!("{unused} --exclude xtask")
}

/// The build of the models of `partywall-ring`: tests in which loom explores the orders of threads.
/// The build uses loom's atomics instead of those of the processor.
///
/// # Errors
/// If the compiler's wrapper cannot be written.
pub fn models() -> Result<Step, String> {
    with_guards(
        Step::cargo("test -p partywall-ring --profile loom --target-dir target/loom --test loom")
            .variable("RUSTFLAGS", "--cfg loom"),
    )
}

/// The build of the models of sessions: unit tests in which shuttle chooses the order of threads.
/// The build uses shuttle's locks instead of those of the standard library.
///
/// # Errors
/// If the compiler's wrapper cannot be written.
pub fn orders() -> Result<Step, String> {
    with_guards(on_shuttle("test -p partywall --lib"))
}

/// A cargo command that builds with shuttle's locks, without the guards of seeded faults.
pub fn on_shuttle(arguments: &str) -> Step {
    Step::cargo(arguments)
        .args("--target-dir target/shuttle")
        .variable("RUSTFLAGS", "--cfg shuttle")
}

/// The build `step` with the guards of seeded faults. The environment variable that activates a
/// fault ([`FAULT`]) is empty, so no fault is active while its tests run.
fn with_guards(step: Step) -> Result<Step, String> {
    Ok(step.variable("RUSTC_WORKSPACE_WRAPPER", &wrapper()?).variable(FAULT, ""))
}

/// Name of the environment variable that activates one seeded fault.
pub const FAULT: &str = "PARTYWALL_FAULT";

/// Writes the script through which cargo calls the compiler for workspace members, and returns the
/// script's path. To cargo that path is part of the identity of a build, so another script needs
/// another path.
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
