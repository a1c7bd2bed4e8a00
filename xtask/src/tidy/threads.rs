// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rule 11: the libraries start no thread: a channel works in the thread that calls it. The
//! exception is a session of `partywall::blocking`, which has one thread, as its documentation
//! says.

use super::Finding;
use crate::tree::Tree;

/// Reports each line in which the shipped code of a library starts a thread.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in tree.rust() {
        if !LIBRARIES.iter().any(|prefix| path.starts_with(prefix)) {
            continue;
        }
        for (index, line) in source.shipped() {
            if ALLOWED.iter().any(|prefix| path.starts_with(prefix)) {
                continue;
            }
            if STARTS.iter().any(|start| line.code.contains(start)) {
                let advice = "a library starts no thread: let the caller's thread do it, or leave it to the user";
                findings.push(Finding::at(path, index, "thread", advice));
            }
        }
    }
}

const LIBRARIES: [&str; 6] = [
    "crates/layout/src/",
    "crates/reconcile/src/",
    "crates/ring/src/",
    "crates/sys/src/",
    "crates/partywall/src/",
    "crates/shmipc/src/",
];
/// Files of libraries that may start a thread: the driver of a session without a runtime, and files
/// that have only test code.
const ALLOWED: [&str; 4] = [
    "crates/partywall/src/blocking/thread.rs",
    "crates/partywall/src/session/interleavings/",
    "crates/link/src/link_state/shm/",
    "crates/link/src/end/tests.rs",
];
const STARTS: [&str; 3] = ["thread::spawn", "thread::Builder", "thread::scope"];

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    #[test]
    fn libraries_start_no_thread() {
        let start = "fn f() {\n    std::thread::spawn(g);\n}\n";
        let findings = findings_of(check, &[("crates/partywall/src/listen.rs", start)]);
        assert!(
            findings[0].starts_with("crates/partywall/src/listen.rs:2: thread"),
            "{findings:?}"
        );
    }

    #[test]
    fn commands_tests_and_examples_in_comments_may() {
        let start = "fn f() {\n    std::thread::spawn(g);\n}\n";
        let test = format!("#[cfg(test)]\nmod tests {{\n{start}}}\n");
        let tree = [
            ("crates/cli/src/bench/harness.rs", start),
            ("crates/partywall/tests/death/channels.rs", start),
            ("crates/partywall/src/message.rs", &*test),
            ("crates/partywall/src/session/interleavings/races.rs", start),
            ("crates/partywall/src/lib.rs", "//! std::thread::spawn(f)\n"),
        ];
        assert_eq!(findings_of(check, &tree), [""; 0]);
    }
}
