// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rule 1, one object, one home: the names of files, and the files that may hold the methods of a
//! type.
//!
//! ```text
//! file name     names an object: no utils, no participle (waiting.rs)
//! small file    has one short function and no type: the function belongs in another file
//! type          its inherent methods are in at most 2 files of its crate
//! crate         at most 35 % of the lines of all crates
//! comment line  at most 100 columns
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Finding;
use super::imports::Definitions;
use super::source::{Source, has_word};
use crate::tree::Tree;

/// Reports file names that do not name an object, types whose methods are spread, and crates that
/// are too large.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    check_forbidden(tree, findings);
    check_participles(tree, findings);
    for (path, source) in tree.rust() {
        check_small(path, source, findings);
        check_comments(path, source, findings);
    }
    check_methods(tree, findings);
    check_hidden(tree, findings);
    check_crates(tree, findings);
}

fn check_forbidden(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        for part in file.path.split('/') {
            let stem = stem(part);
            if FORBIDDEN.contains(&stem.to_ascii_lowercase().as_str()) {
                let advice = format!("`{stem}` names no idea: name it by its noun");
                findings.push(Finding::at(&file.path, 0, "file-name", advice));
            }
        }
    }
}

fn stem(part: &str) -> &str {
    Path::new(part).file_stem().and_then(|stem| stem.to_str()).unwrap_or(part)
}

/// Whether the file is below a directory `src`, and so no file of tests. Names of test files are
/// exempt from this rule, because they state object, condition and result.
fn is_source(path: &str) -> bool {
    path.ends_with(".rs") && (path.starts_with("src/") || path.contains("/src/"))
}

fn check_participles(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut reported = BTreeSet::new();
    for (path, _) in tree.rust().filter(|(path, _)| is_source(path)) {
        let below = path.rsplit_once("src/").map_or(path, |(_, below)| below);
        for part in below.split('/') {
            let stem = stem(part);
            let word = stem.rsplit('_').next().unwrap_or(stem);
            let is_noun = NOUNS.iter().any(|(noun, _)| *noun == word);
            if word.ends_with("ing") && !is_noun && reported.insert((path, stem)) {
                let advice =
                    format!("`{stem}` names no object: name the file after the type in it");
                findings.push(Finding::at(path, 0, "file-name", advice));
            }
        }
    }
}

fn check_small(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_root = ["mod.rs", "lib.rs", "main.rs"].contains(&name) || path.contains("/bin/");
    // In `crates/sys/src` a file is named after a mechanism of the system, not after an object
    // (ARCHITECTURE.md), so this check leaves those files out.
    if !is_source(path) || is_root || path.starts_with("crates/sys/src/") {
        return;
    }
    let code: Vec<&str> =
        source.shipped().filter(|(_, line)| line.is_code()).map(|(_, line)| &*line.code).collect();
    let count = |words: &[&str]| {
        code.iter().filter(|line| words.iter().any(|word| has_word(line, word))).count()
    };
    let objects = count(&["struct", "enum", "trait", "type", "impl", "mod", "macro_rules"]);
    if code.len() < SMALL_FILE_LINES && count(&["fn"]) <= 1 && objects == 0 {
        let advice = format!("{} code lines and no type: move it to its owner", code.len());
        findings.push(Finding::at(path, 0, "small-file", advice));
    }
}

fn check_comments(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.lines.iter().enumerate() {
        let columns = line.code.chars().count() + line.comment.chars().count();
        if !line.comment.is_empty() && columns > COMMENT_COLUMNS_MAX {
            let advice =
                format!("{columns} columns, at most {COMMENT_COLUMNS_MAX}: break the line");
            findings.push(Finding::at(path, index, "comment-width", advice));
        }
    }
}

/// Reports types whose inherent methods are spread over more files than allowed.
fn check_methods(tree: &Tree, findings: &mut Vec<Finding>) {
    for definitions in Definitions::of_all(tree) {
        let mut files: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for (path, source) in tree.rust() {
            let Some(file) = path.strip_prefix(definitions.root()) else { continue };
            for name in inherent_impls(source) {
                // If `home_of` finds no file, the type is defined in a file that only tests
                // compile, so the rule does not count its methods.
                let Some(home) = definitions.home_of(file, &name) else { continue };
                files.entry((home, name)).or_default().insert(file.to_owned());
            }
        }
        for ((home, name), files) in files {
            let is_named = METHODS.iter().any(|(excepted, _)| *excepted == name);
            if files.len() > METHOD_FILES_MAX && !is_named {
                let list: Vec<&str> = files.iter().map(String::as_str).collect();
                let advice = format!(
                    "`{name}` has methods in {} files, at most {METHOD_FILES_MAX}: {}",
                    files.len(),
                    list.join(" ")
                );
                let path = format!("{}{home}", definitions.root());
                findings.push(Finding::at(&path, 0, "methods", advice));
            }
        }
    }
}

/// Returns the names of the types to which a file adds inherent methods outside of its test
/// modules.
fn inherent_impls(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = source.shipped().map(|(_, line)| line.code.as_str());
    while let Some(line) = lines.next() {
        let start = line.trim_start();
        if !start.starts_with("impl")
            || start[4..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            continue;
        }
        let mut header = start.to_owned();
        while !header.contains('{') {
            let Some(more) = lines.next() else { break };
            header.push(' ');
            header.push_str(more.trim());
        }
        let header = header.split('{').next().unwrap_or_default();
        let target = without_generics(&header[4..]);
        let target = target.split(" where ").next().unwrap_or_default().trim();
        if !has_word(target, "for") && !target.is_empty() {
            let name = target.rsplit("::").next().unwrap_or(target);
            found.push(name.trim().to_owned());
        }
    }
    found
}

/// The content of `text` without the parts between `<` and `>`.
fn without_generics(text: &str) -> String {
    let mut depth = 0_usize;
    let mut before = ' ';
    let mut kept = String::new();
    for c in text.chars() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth = depth.saturating_sub(1),
            c if depth == 0 => kept.push(c),
            _ => {}
        }
        before = c;
    }
    kept
}

fn check_hidden(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut places = Vec::new();
    for (path, source) in tree.rust().filter(|(path, _)| path.starts_with("crates/")) {
        for (index, line) in source.lines.iter().enumerate() {
            if line.code.contains("doc(hidden)") {
                places.push((path, index));
            }
        }
    }
    for (path, index) in places.into_iter().skip(HIDDEN_MAX) {
        let advice = "an item that users may not see is private, or in a crate below both";
        findings.push(Finding::at(path, index, "doc-hidden", advice));
    }
}

/// Reports a crate that holds too large a share of all crates' lines. Also reports code of links in
/// the crate `partywall`: it belongs in the crate `link`.
fn check_crates(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, source) in tree.rust() {
        if let ["crates", name, "src", ..] = path.split('/').collect::<Vec<_>>()[..] {
            *lines.entry(name).or_default() += source.lines.len();
        }
        if path.starts_with("crates/partywall/src/") {
            for (index, line) in source.lines.iter().enumerate() {
                if line.code.contains("crate::link") || line.comment.contains("crate::link") {
                    let advice =
                        "channels and sessions know nothing of links: they are crates/link";
                    findings.push(Finding::at(path, index, "crate-link", advice));
                }
            }
        }
    }
    let total: usize = lines.values().sum();
    for (name, count) in lines {
        // The tests of other rules have sample trees with a single crate, which would hold 100 %.
        // So the rule ignores trees with a small total of lines.
        if total > CRATE_TOTAL_MIN && count * 100 > total * CRATE_PERCENT_MAX {
            let advice =
                format!("{count} of {total} lines, at most {CRATE_PERCENT_MAX} %: cut a crate out");
            findings.push(Finding::at(
                &format!("crates/{name}/Cargo.toml"),
                0,
                "crate-size",
                advice,
            ));
        }
    }
}

const FORBIDDEN: [&str; 9] =
    ["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc", "stuff"];

/// Words that end with "ing", but name an object, so file names may end with them.
const NOUNS: [(&str, &str); 14] = [
    ("ring", "the data structure"),
    ("string", "text"),
    ("mapping", "memory mapped into a process"),
    ("blocking", "the front without a runtime, as `tokio` is the one with it"),
    ("pending", "the calls that have no reply yet"),
    ("ping", "the benchmark, as in ICMP"),
    ("finding", "a result of `doctor` or `tidy`"),
    ("framing", "how messages lie in a stream of bytes"),
    ("encoding", "the form of a value in bytes"),
    ("backing", "the file behind a memory mapping"),
    ("incoming", "tonic's name for a stream of accepted connections"),
    ("greeting", "the first frame of a connection"),
    ("routing", "the choice of the stream that a record belongs to"),
    ("serving", "the calls that a server runs"),
];

/// Types that may have methods in more files than the rule allows, each with the decision page that
/// says why.
const METHODS: [(&str, &str); 0] = [];

const METHOD_FILES_MAX: usize = 2;
/// Number of code lines below which a file with a single function counts as small.
const SMALL_FILE_LINES: usize = 25;
pub(super) const COMMENT_COLUMNS_MAX: usize = 100;
const HIDDEN_MAX: usize = 1;
const CRATE_PERCENT_MAX: usize = 35;
const CRATE_TOTAL_MIN: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<String> {
        let findings = findings_of(check, &[(path, text)]);
        findings.iter().map(|f| f.split(": ").nth(1).unwrap_or_default().to_owned()).collect()
    }

    const TYPE: &str = "pub struct A;\n";

    #[test]
    fn name_that_says_nothing_is_flagged() {
        assert!(findings_of(check_forbidden, &[("crates/ring/src/producer.rs", "")]).is_empty());
        for bad in ["crates/sys/src/utils.rs", "crates/cli/tests/common/mod.rs", "docs/misc.md"] {
            let findings = findings_of(check_forbidden, &[(bad, "")]);
            assert_eq!(findings.len(), 1, "{bad}");
            assert!(findings[0].contains("file-name"), "{findings:?}");
        }
    }

    #[test]
    fn participle_is_no_file_name() {
        assert_eq!(rules("crates/a/src/waiting.rs", TYPE), ["file-name"]);
        assert_eq!(rules("crates/a/src/early_waking/mod.rs", TYPE), ["file-name"]);
        assert_eq!(rules("crates/a/src/record_ring.rs", TYPE), [""; 0]);
        assert_eq!(rules("crates/a/tests/nobody_waiting.rs", TYPE), [""; 0]);
    }

    #[test]
    fn small_file_of_one_function_is_flagged() {
        let function = "use a::b;\nfn f() {\n    b()\n}\n";
        assert_eq!(rules("crates/a/src/f.rs", function), ["small-file"]);
        assert_eq!(rules("crates/a/src/mod.rs", function), [""; 0]);
        assert_eq!(rules("crates/a/src/f.rs", &format!("{TYPE}{function}")), [""; 0]);
        let long = format!("{function}fn g() {{\n{}}}\n", "    b();\n".repeat(30));
        assert_eq!(rules("crates/a/src/f.rs", &long), [""; 0]);
    }

    #[test]
    fn methods_are_in_two_files() {
        let home = "pub struct A<T>(T);\nimpl<T: Into<u8>> A<T> {\n}\nimpl Clone for A<u8> {\n}\n";
        let other = "use crate::home::A;\nimpl<T>\n    A<T>\nwhere\n    T: B,\n{\n}\n";
        let mut samples = vec![("crates/a/src/home.rs", home), ("crates/a/src/x.rs", other)];
        assert_eq!(findings_of(check_methods, &samples), [""; 0]);
        samples.push(("crates/a/src/y.rs", other));
        let findings = findings_of(check_methods, &samples);
        assert!(findings[0].contains("`A` has methods in 3 files"), "{findings:?}");
        samples[2].1 = "struct A;\nimpl A {\n}\n";
        assert_eq!(findings_of(check_methods, &samples), [""; 0]);
    }

    #[test]
    fn wide_comment_is_flagged() {
        let wide = format!("// {}\n", "a".repeat(98));
        assert_eq!(rules("crates/a/tests/a.rs", &wide), ["comment-width"]);
        assert_eq!(rules("crates/a/tests/a.rs", &wide[1..]), [""; 0]);
    }

    #[test]
    fn second_hidden_item_is_flagged() {
        let hidden = "#[doc(hidden)]\npub struct A;\n";
        assert_eq!(rules("crates/a/src/a.rs", hidden), [""; 0]);
        assert_eq!(rules("crates/a/src/a.rs", &hidden.repeat(2)), ["doc-hidden"]);
    }

    #[test]
    fn crate_is_at_most_a_third() {
        let long = TYPE.repeat(6_000);
        let samples = ["a", "b"].map(|name| format!("crates/{name}/src/lib.rs"));
        let samples = samples.each_ref().map(|path| (path.as_str(), long.as_str()));
        assert_eq!(findings_of(check_crates, &samples).len(), 2);
        let link = [("crates/partywall/src/a.rs", "use crate::link::A;\n")];
        assert_eq!(findings_of(check_crates, &link).len(), 1);
    }
}
