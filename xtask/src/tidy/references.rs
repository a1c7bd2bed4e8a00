// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules for references from one file to another: sections of the specification, links,
//! commands, and names of seeded faults and of their tests.

use std::collections::BTreeSet;

use super::Finding;
use super::source::{Source, has_word};
use crate::executables::LIBRARY;
use crate::faults::{CaughtBy, Place, REGISTRY};
use crate::tree::Tree;

/// Reports cited sections of the specification, links and commands that do not exist.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    check_sections(tree, findings);
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (index, target) in links(&file.text) {
            if let Some(advice) = objection(tree, &file.path, &target) {
                findings.push(Finding::at(&file.path, index, "link", advice));
            }
        }
    }
    if let Some(readme) = tree.get("README.md") {
        check_commands(tree, &readme.text, findings);
    }
}

/// Compares the guards of seeded faults in the code with the registry in `faults.rs`. Reports
/// guards without a row, rows without a guard, and tests in rows that do not exist.
pub fn check_faults(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut guarded = BTreeSet::new();
    for file in tree.files.iter().filter(|file| is_code(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            let guards = line.split("seeded_fault(\"").skip(1);
            for name in guards.filter_map(|rest| rest.split('"').next()) {
                guarded.insert(name);
                if !REGISTRY.iter().any(|fault| fault.name == name) {
                    let advice = format!("add `{name}` to REGISTRY in {REGISTRY_FILE}");
                    findings.push(Finding::at(&file.path, index, "fault", advice));
                }
            }
        }
    }
    // The sample trees in the tests of other rules have no registry of seeded faults, so nothing is
    // checked there.
    let Some(registry) = tree.get(REGISTRY_FILE) else { return };
    for fault in REGISTRY.iter().filter(|fault| !guarded.contains(fault.name)) {
        let index = row_of(&registry.text, fault.name);
        let advice = format!(
            "no code is guarded by seeded_fault(\"{}\"): guard the rule, or remove the row",
            fault.name
        );
        findings.push(Finding::at(REGISTRY_FILE, index, "fault", advice));
    }
    for fault in REGISTRY {
        for place in fault.caught_by.iter().map(CaughtBy::place) {
            if let Some(objection) = objection_to_place(tree, place) {
                let advice = format!("`{}` names {objection}: {place}", fault.name);
                let index = row_of(&registry.text, fault.name);
                findings.push(Finding::at(REGISTRY_FILE, index, "fault", advice));
            }
        }
    }
}

/// Index, from 0, of the line in `registry` (the text of `faults.rs`) that names the fault `name`.
fn row_of(registry: &str, name: &str) -> usize {
    let name = format!("\"{name}\"");
    registry.lines().position(|line| line.contains(&name)).unwrap_or(0)
}

/// Returns why `place`, the tests that must notice a seeded fault, is wrong, or `None`. Its path
/// may be empty only if the executable is one file: a failure anywhere in a larger executable does
/// not show that the fault was noticed.
fn objection_to_place(tree: &Tree, place: &Place) -> Option<&'static str> {
    let Place { package, executable, path } = place;
    if !exists(tree, place) {
        return Some("tests that do not exist");
    }
    let is_one_file = tree.has(&format!("crates/{package}/tests/{executable}.rs"));
    (path.is_empty() && !is_one_file).then_some("a whole executable, not the module that fails")
}

/// Whether `place`, the tests that must notice a seeded fault, exists: each segment of its path is
/// a file, a module or a function of its executable.
fn exists(tree: &Tree, place: &Place) -> bool {
    let Place { package, executable, path } = place;
    let package = format!("crates/{package}/");
    let root = if *executable == LIBRARY {
        format!("{package}src/")
    } else {
        format!("{package}tests/{executable}")
    };
    let segments = path.split("::").filter(|segment| !segment.is_empty());
    let files: Vec<(&str, &Source)> =
        tree.rust().filter(|(path, _)| path.starts_with(&root)).collect();
    let declares = |code: &str, segment: &str| {
        (has_word(code, "fn") || has_word(code, "mod")) && has_word(code, segment)
    };
    !files.is_empty()
        && segments.into_iter().all(|segment| {
            files.iter().any(|(path, source)| {
                path.ends_with(&format!("/{segment}.rs"))
                    || source.lines.iter().any(|line| declares(&line.code, segment))
            })
        })
}

/// Whether the rules of this file check the source file `path`, in Rust or Go. Files of xtask are
/// not checked, because the samples in their tests only quote references.
fn is_code(path: &str) -> bool {
    (path.ends_with(".rs") && !path.starts_with("xtask/")) || path.ends_with(".go")
}

fn check_sections(tree: &Tree, findings: &mut Vec<Finding>) {
    let sections = tree.get(SPEC).map(|spec| sections(&spec.text)).unwrap_or_default();
    for file in &tree.files {
        if !is_code(&file.path) && !file.path.ends_with(".md") {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            for number in cited(line).filter(|number| !sections.contains(number)) {
                let advice = format!("{SPEC} has no section {number}: cite the one that says so");
                findings.push(Finding::at(&file.path, index, "spec-section", advice));
            }
        }
    }
}

/// The section numbers of the specification: those of headings (`### 4.2 Title`) and of numbered
/// paragraphs (`**4.2.1** …`).
fn sections(spec: &str) -> BTreeSet<String> {
    let number = |line: &str| {
        let marked = line.trim_start_matches(['#', '*', ' ', '§']);
        let is_marked = line.starts_with('#') || line.starts_with("**");
        let number = leading_number(marked);
        (is_marked && !number.is_empty()).then_some(number)
    };
    spec.lines().filter_map(number).collect()
}

/// The section numbers cited in a line, as in `SPEC 4.2` or `SPEC §4.2`.
fn cited(line: &str) -> impl Iterator<Item = String> {
    line.split("SPEC ")
        .skip(1)
        .map(|rest| leading_number(rest.trim_start_matches('§')))
        .filter(|number| !number.is_empty())
}

/// The number at the start of a text: the `4.2` of `4.2. Title`.
fn leading_number(text: &str) -> String {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].trim_matches('.').to_owned()
}

/// The targets of all links in the text of a Markdown page, each with the index of its line. Links
/// in code do not count.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_fence = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        if in_fence {
            continue;
        }
        // Backquotes split the line into text and code in turn, so every second piece is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for rest in prose.split("](").skip(1) {
            if let Some(target) = rest.split(')').next() {
                found.push((index, target.split(' ').next().unwrap_or(target).to_owned()));
            }
        }
    }
    found
}

/// Returns why a link to `target` on the Markdown page at `path` is wrong, or `None` if it is
/// right.
fn objection(tree: &Tree, path: &str, target: &str) -> Option<String> {
    let file = target.split('#').next().unwrap_or(target);
    if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    if file.starts_with('/') {
        return Some(format!("`{target}` is absolute: make it relative to this page"));
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => {
                return Some(format!("`{target}` leads out of the repository"));
            }
            ".." => {}
            name => parts.push(name),
        }
    }
    let resolved = parts.join("/");
    if resolved.is_empty() || tree.has(&resolved) {
        return None;
    }
    Some(format!("there is no {resolved}: correct the link or add the page"))
}

/// Reports if the README lacks one of the two commands that a newcomer tries first, or if the
/// command would fail.
fn check_commands(tree: &Tree, readme: &str, findings: &mut Vec<Finding>) {
    let mut report = |path: &str, advice: String| {
        findings.push(Finding::at(path, 0, "command", advice));
    };
    for command in [BENCH, TEST] {
        if !readme.lines().any(|line| line.trim() == command) {
            report("README.md", format!("show the command `{command}` on a line of its own"));
        }
    }
    if !tree.has("crates/bench/src/lib.rs") {
        report("README.md", format!("`{BENCH}` needs the library crates/bench"));
    }
    let is_default =
        |line: &str| line.starts_with("default-members") && line.contains("\"crates/cli\"");
    if !tree.get("Cargo.toml").is_some_and(|file| file.text.lines().any(is_default)) {
        report("Cargo.toml", format!("`{BENCH}` needs crates/cli in default-members"));
    }
    let is_alias = |line: &str| line.starts_with("xtask = ");
    if !tree.get(".cargo/config.toml").is_some_and(|file| file.text.lines().any(is_alias)) {
        report(".cargo/config.toml", format!("`{TEST}` needs the alias `xtask`"));
    }
    // The machine of `.ci/run` has the tools of all stages, so the script may name the stages that
    // must not be skipped.
    let exec = format!("exec {TEST}");
    let runs_it = |line: &str| {
        let rest = line.trim().strip_prefix(&exec);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" --require "))
    };
    match tree.get(".ci/run") {
        None => report("README.md", format!("add .ci/run, which runs exactly `{TEST}`")),
        Some(run) if !run.text.lines().any(runs_it) => {
            report(".ci/run", format!("end it with `{exec}`, and run nothing else"));
        }
        Some(run) if !run.executable => report(".ci/run", "make it executable".to_owned()),
        Some(_) => {}
    }
}

const SPEC: &str = "spec/SPEC.md";
const REGISTRY_FILE: &str = "xtask/src/faults.rs";
const BENCH: &str = "cargo run --release -- bench";
const TEST: &str = "cargo xtask test";

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    #[test]
    fn cited_sections_exist() {
        let spec =
            "# The ring\n## 4. Records\n### 4.2 Commit\n**4.2.1** A record\n4.9 is no heading\n";
        let good = "// SPEC 4.2, and (SPEC 4.2.1), and SPEC §4.\nfn spec() {}\n";
        assert_eq!(findings_of(check, &[(SPEC, spec), ("crates/a.rs", good)]), [""; 0]);
        let findings = findings_of(check, &[(SPEC, spec), ("crates/a.rs", "\n// SPEC 4.9\n")]);
        assert!(findings[0].starts_with("crates/a.rs:2: spec-section"), "{findings:?}");
        assert_eq!(findings_of(check, &[("crates/a.rs", "// SPEC 1.1\n")]).len(), 1);
        assert_eq!(findings_of(check, &[("go/a.go", "// SPEC 1.1\n")]).len(), 1);
    }

    #[test]
    fn relative_links_lead_somewhere() {
        let good = "[a](../spec/SPEC.md#records) [b](https://docs.rs) [c](#here) `[d](no.md)`\n\
                    [e](guide) ![f](./a.md \"title\")\n```\n[g](no.md)\n```\n";
        let tree = [("docs/a.md", good), (SPEC, ""), ("docs/guide/b.md", "")];
        assert_eq!(findings_of(check, &tree), [""; 0]);
        for bad in ["no.md", "/docs/a.md", "../../a.md", "../spec/SPEC.txt#records"] {
            let page = format!("# A\n[x]({bad})\n");
            let findings = findings_of(check, &[("docs/a.md", &page), (SPEC, "")]);
            assert!(findings[0].starts_with("docs/a.md:2: link"), "{bad}: {findings:?}");
        }
    }

    #[test]
    fn the_commands_of_the_readme_exist() {
        let readme = format!("```sh\n{BENCH}\n{TEST}\n```\n");
        let mut tree = vec![
            ("README.md", readme.as_str()),
            ("crates/bench/src/lib.rs", ""),
            ("Cargo.toml", "default-members = [\"crates/cli\"]\n"),
            (".cargo/config.toml", "xtask = \"run --package xtask --\"\n"),
            (".ci/run", "exec cargo xtask test\n"),
        ];
        // A file of a sample tree is never executable, so the expected result is one finding: the
        // file `.ci/run` is not executable.
        assert_eq!(findings_of(check, &tree), [".ci/run:1: command: make it executable"]);
        tree[4].1 = "exec cargo xtask test --require go,volo\n";
        assert_eq!(findings_of(check, &tree), [".ci/run:1: command: make it executable"]);
        tree[4].1 = "exec cargo xtask test --quick\n";
        assert!(findings_of(check, &tree)[0].contains("run nothing else"));
        tree[0].1 = "# Partywall\n";
        assert_eq!(findings_of(check, &tree).len(), 3);
        tree.truncate(1);
        assert_eq!(findings_of(check, &tree).len(), 6);
    }

    #[test]
    fn faults_in_the_code_are_registered() {
        let known = format!("if !seeded_fault(\"{}\") {{\n", REGISTRY[0].name);
        assert!(findings_of(check_faults, &[("crates/a.rs", &known)]).is_empty());
        let unknown = "seen.then(|| seeded_fault(\"no_such_rule\"))\n";
        let findings = findings_of(check_faults, &[("crates/a.rs", unknown)]);
        assert!(findings[0].starts_with("crates/a.rs:1: fault"), "{findings:?}");
    }

    #[test]
    fn registered_faults_are_in_the_code() {
        let registry = format!("\nfault(\"{}\", &[]),\n", REGISTRY[0].name);
        let findings = findings_of(check_faults, &[(REGISTRY_FILE, &registry)]);
        assert!(findings.len() > REGISTRY.len(), "no guard, and no place of tests");
        assert!(
            findings.iter().any(|f| f.starts_with("xtask/src/faults.rs:2: fault")),
            "{findings:?}"
        );
    }

    #[test]
    fn place_of_a_fault_exists() {
        let tree = Tree::of(&[
            ("crates/ring/tests/ring/words.rs", "#[test]\nfn are_refused() {}\n"),
            ("crates/link/src/state.rs", "mod tests {\n    fn is_kept() {}\n}\n"),
            ("crates/link/tests/owner.rs", ""),
        ]);
        let is_there =
            |package, executable, path| exists(&tree, &Place { package, executable, path });
        assert!(
            is_there("ring", "ring", "words") && is_there("ring", "ring", "words::are_refused")
        );
        assert!(
            is_there("link", LIBRARY, "state::tests::is_kept") && is_there("link", "owner", "")
        );
        assert!(!is_there("ring", "ring", "word") && !is_there("ring", "loom", ""));
        assert!(!is_there("link", LIBRARY, "state::tests::is_gone"));
    }

    #[test]
    fn whole_executable_is_a_place_only_if_it_is_one_file() {
        let tree = Tree::of(&[
            ("crates/ring/tests/ring/words.rs", "#[test]\nfn are_refused() {}\n"),
            ("crates/link/src/state.rs", ""),
            ("crates/link/tests/owner.rs", ""),
        ]);
        let objection = |package, executable, path| {
            objection_to_place(&tree, &Place { package, executable, path })
        };
        assert_eq!(objection("link", "owner", ""), None);
        assert_eq!(objection("ring", "ring", "words"), None);
        assert!(objection("ring", "ring", "").is_some_and(|text| text.contains("whole")));
        assert!(objection("link", LIBRARY, "").is_some_and(|text| text.contains("whole")));
        assert!(objection("link", "gone", "").is_some_and(|text| text.contains("not exist")));
    }
}
