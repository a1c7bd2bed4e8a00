// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that `partywall doctor` prints findings with advice as text and JSON, and fails if shared
//! memory does not work.

use crate::program;

use std::process::{Command, Output, Stdio};

use program::{Running, run, text};
use serde_json::Value;

/// Runs `partywall doctor` in a shell after the shell command `limit`, such as `ulimit -f 100`,
/// which lowers a resource limit.
fn doctor_with(limit: &str, arguments: &str) -> Output {
    let script = format!("ulimit -c 0; {limit}; exec \"$0\" doctor {arguments}");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_partywall")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(&mut command).finish()
}

fn findings(output: &Output) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["healthy"], output.status.success());
    assert!(report["version"].is_string());
    report["findings"].as_array().expect("a list").clone()
}

fn find<'a>(findings: &'a [Value], subject: &str) -> &'a Value {
    let found = findings.iter().find(|finding| finding["subject"] == subject);
    found.unwrap_or_else(|| panic!("nothing about {subject}"))
}

#[test]
fn doctor_finds_that_shared_memory_works_here() {
    let output = run(&["doctor"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    for subject in SUBJECTS {
        assert!(printed.contains(subject), "nothing about {subject} in {printed}");
    }
    assert!(printed.contains("shared memory, set up in"), "{printed}");
    assert!(
        printed.contains("Shared memory works here") || printed.contains("All is well"),
        "{printed}"
    );
}

#[test]
fn json_has_the_same_findings() {
    let output = run(&["doctor", "--json"]);
    let findings = findings(&output);
    for subject in SUBJECTS {
        let finding = find(&findings, subject);
        let severity = finding["severity"].as_str().expect("a word");
        assert!(["ok", "note", "warn", "fail"].contains(&severity), "{finding}");
        assert!(finding["state"].is_string());
        assert_eq!(finding["advice"].is_string(), severity != "ok", "{finding}");
    }
}

#[test]
fn low_descriptor_limit_is_noted_with_the_number_of_channels() {
    let output = doctor_with("ulimit -n 60", "--json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let findings = findings(&output);
    let finding = find(&findings, "descriptors");
    assert_eq!(finding["severity"], "note");
    assert!(finding["state"].as_str().unwrap().contains("limit 60"), "{finding}");
    assert!(finding["advice"].as_str().unwrap().contains("ulimit -n"), "{finding}");
}

#[test]
fn missing_descriptors_are_a_failure() {
    let output = doctor_with("ulimit -n 9", "--json");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let findings = findings(&output);
    assert!(findings.iter().any(|finding| finding["severity"] == "fail"));
}

#[test]
fn file_size_limit_is_a_failure_without_a_signal() {
    let output = doctor_with("ulimit -f 8", "--json");
    assert_eq!(output.status.code(), Some(1), "{} {}", text(&output.stdout), text(&output.stderr));
    let findings = findings(&output);
    let finding = find(&findings, "RLIMIT_FSIZE");
    assert_eq!(finding["severity"], "fail");
    assert!(finding["advice"].as_str().unwrap().contains("ulimit -f"));
}

/// The expected subjects of the findings of `partywall doctor`, in order, on a machine where shared
/// memory works.
const SUBJECTS: [&str; 23] = [
    "kernel",
    "memfd with seals",
    "MFD_NOEXEC_SEAL",
    "F_SEAL_FUTURE_WRITE",
    "a region of 64 KiB",
    "pidfd",
    "eventfd",
    "SCM_CREDENTIALS",
    "vm.memfd_noexec",
    "cores",
    "CPU quota",
    "spinning",
    "memory",
    "cgroup memory",
    "RLIMIT_FSIZE",
    "RLIMIT_AS",
    "overcommit",
    "shmem huge pages",
    "RemoveIPC",
    "transport",
    "channel",
    "descriptors",
    "vm.max_map_count",
];
