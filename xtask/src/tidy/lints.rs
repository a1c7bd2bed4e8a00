// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules 4, 12 and 25: functions have a maximum length, `unsafe` may only be in certain files, and
//! every `allow` gives its reason.

use super::Finding;
use super::source::{Source, has_word};
use crate::tree::Tree;

/// Reports `unsafe` outside the files that may have it, crate roots that do not deny it, and
/// `allow`s without a reason.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in tree.rust() {
        if !UNSAFE_FILES.iter().any(|prefix| path.starts_with(prefix)) {
            check_unsafe(path, source, findings);
        }
        if is_crate_root(path) && !denies_unsafe(source) {
            let advice =
                "begin the crate with `#![deny(unsafe_code)]` or `#![forbid(unsafe_code)]`";
            findings.push(Finding::at(path, 0, "unsafe-root", advice));
        }
        check_allows(path, source, findings);
        check_length(path, source, findings);
    }
}

/// Reports functions that are too long. A function is measured from `fn` to its closing brace,
/// because it must fit on a screen.
fn check_length(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    for function in source.functions() {
        let lines = function.last - function.first + 1;
        if lines > FUNCTION_LINES_MAX {
            let advice = format!(
                "`{}` has {lines} lines, at most {FUNCTION_LINES_MAX}: move the computing into leaves",
                function.name
            );
            findings.push(Finding::at(path, function.first, "function-length", advice));
        }
    }
}

fn check_unsafe(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.lines.iter().enumerate() {
        if has_word(&line.code, "unsafe") {
            let advice = "unsafe code belongs in crates/ring/src/mem.rs or crates/sys/src/: \
                          put a safe function there and call it";
            findings.push(Finding::at(path, index, "unsafe", advice));
        }
    }
}

fn is_crate_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["crates" | "bindings", _, "src", file] | ["xtask", "src", file] => {
            file == "lib.rs" || file == "main.rs"
        }
        _ => false,
    }
}

fn denies_unsafe(source: &Source) -> bool {
    source.lines.iter().any(|line| {
        let code = line.code.trim();
        (code.starts_with("#![deny(") || code.starts_with("#![forbid("))
            && has_word(code, "unsafe_code")
    })
}

fn check_allows(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.lines.iter().enumerate() {
        let code = line.code.trim();
        let attribute = code.starts_with("#[") || code.starts_with("#![");
        if !attribute || !["allow(", "expect("].iter().any(|word| code.contains(word)) {
            continue;
        }
        let end = source.lines[index..].iter().position(|line| line.code.contains(']'));
        let span = &source.lines[index..=index + end.unwrap_or(0)];
        let commented = index.checked_sub(1).is_some_and(|above| {
            let above = &source.lines[above];
            !above.is_code() && !above.comment.is_empty()
        });
        let reasoned = span.iter().any(|line| has_word(&line.code, "reason"));
        if !reasoned && !commented && line.comment.is_empty() {
            let advice = "say why: `#[allow(…, reason = \"…\")]`";
            findings.push(Finding::at(path, index, "allow-reason", advice));
        }
    }
}

pub(super) const FUNCTION_LINES_MAX: usize = 70;

/// Files that may have unsafe code: the one file of the crate `ring` that accesses shared memory,
/// and the files with system calls.
const UNSAFE_FILES: [&str; 10] = [
    "crates/ring/src/mem.rs",
    "crates/sys/src/",
    "crates/sys/tests/",
    // `fork.rs` forks processes for tests, which needs unsafe code.
    "crates/testkit/src/fork.rs",
    // The buffer protocol of Python, by which other packages read memory in place, passes pointers.
    "bindings/python/src/buffer.rs",
    "bindings/python/src/message.rs",
    "bindings/python/src/reservation.rs",
    // C programs pass pointers to exported functions of the library. These files read the pointers,
    // define the exported names, and keep the objects behind handles.
    "crates/capi/src/argument.rs",
    "crates/capi/src/export.rs",
    "crates/capi/src/table.rs",
];

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    #[test]
    fn unsafe_is_allowed_in_its_files_only() {
        let block = "fn f() { unsafe { g() } }\n";
        for allowed in
            ["crates/ring/src/mem.rs", "crates/sys/src/map.rs", "crates/sys/tests/map.rs"]
        {
            assert!(findings_of(check, &[(allowed, block)]).is_empty(), "{allowed}");
        }
        for other in
            ["crates/ring/src/park.rs", "fuzz/fuzz_targets/hello.rs", "crates/cli/src/run.rs"]
        {
            assert_eq!(findings_of(check, &[(other, block)]).len(), 1, "{other}");
        }
        let words = "#![deny(unsafe_code)]\n// unsafe\nfn f() -> &'static str { \"unsafe\" }\n";
        assert!(findings_of(check, &[("crates/ring/src/lib.rs", words)]).is_empty());
    }

    #[test]
    fn a_crate_root_denies_unsafe() {
        let denying = "//! Doc.\n#![forbid(unsafe_code)]\n";
        assert!(findings_of(check, &[("crates/layout/src/lib.rs", denying)]).is_empty());
        let findings = findings_of(check, &[("crates/layout/src/lib.rs", "//! Doc.\n")]);
        assert!(findings[0].contains("unsafe-root"), "{findings:?}");
    }

    #[test]
    fn an_allow_gives_its_reason() {
        let good = "#[allow(dead_code, reason = \"later\")]\nfn f() {}\n\
                    // Needed by the loom build.\n#[allow(unused)]\nfn g() {}\n";
        assert!(findings_of(check, &[("a.rs", good)]).is_empty());
        let findings = findings_of(check, &[("a.rs", "\n#[allow(dead_code)]\nfn f() {}\n")]);
        assert!(findings[0].starts_with("a.rs:2: allow-reason"), "{findings:?}");
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    #[test]
    fn function_of_71_lines_is_flagged() {
        assert!(findings_of(check, &[("a.rs", &function(70))]).is_empty());
        let findings = findings_of(check, &[("a.rs", &function(71))]);
        assert!(findings[0].starts_with("a.rs:1: function-length: `long` has 71"), "{findings:?}");
    }
}
