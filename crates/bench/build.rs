// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stores in the program the git commit from which it is built. Reports name that commit, because
//! results of different commits differ.

use std::process::Command;

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=PARTYWALL_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    // `--git-path` also finds HEAD in a linked worktree, where `.git` is a file.
    if let Some(head) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={head}");
    }
}

/// Runs git and returns its one line of output; `None` if git or the repository is missing.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
