// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask tidy`: the rules of CONTRIBUTING.md that a tool can check.
//!
//! Each rule reads the [`Tree`] and adds [`Finding`]s, printed as `path:line: rule: what to do`.
//! Rules are textual: they read scanned source, in which strings and comments are separate from
//! code. They do not know types; clippy does.

mod atomics;
mod circles;
mod constants;
mod files;
pub mod go;
mod imports;
mod lints;
mod manifest;
mod references;
pub mod source;
mod text;
mod threads;
mod vocabulary;

use std::fmt;

use crate::tree::Tree;

/// A place in a file that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

impl Finding {
    /// A finding in the line with the index `index`, which counts from 0.
    pub fn at(path: &str, index: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        Finding { path: path.to_owned(), line: index + 1, rule, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

/// Checks the tree below the current directory and prints what it finds.
///
/// # Errors
/// If an argument is wrong, or the tree cannot be read or breaks a rule.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let tree = Tree::read()?;
    match arguments {
        [] => {}
        [argument] if argument == "--circles" => {
            print!("{}", circles::report(&tree));
            return Ok(());
        }
        [argument] if argument == "--vocabulary" => {
            print!("{}", vocabulary::report(&tree));
            return Ok(());
        }
        [argument, ..] => return Err(format!("`tidy` does not know the argument `{argument}`")),
    }
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files", tree.files.len());
            Ok(())
        }
        1 => Err("tidy has one finding; repeat it with: cargo xtask tidy".to_owned()),
        many => Err(format!("tidy has {many} findings; repeat it with: cargo xtask tidy")),
    }
}

/// Applies all rules to the files of the repository, and returns the places that break a rule.
fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        rule(tree, &mut findings);
    }
    findings.sort();
    findings.dedup();
    findings
}

/// The type of a function that checks a rule, or a few rules that read the same text.
type Rule = fn(&Tree, &mut Vec<Finding>);

const RULES: [Rule; 12] = [
    vocabulary::check,
    circles::check,
    lints::check,
    atomics::check,
    files::check,
    threads::check,
    manifest::check,
    text::check,
    references::check,
    references::check_faults,
    constants::check,
    go::check,
];

/// Runs one rule over sample files (path and text), and returns the findings as they are printed.
#[cfg(test)]
fn findings_of(rule: Rule, samples: &[(&str, &str)]) -> Vec<String> {
    let mut findings = Vec::new();
    rule(&Tree::of(samples), &mut findings);
    findings.iter().map(Finding::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_prints_a_place_an_editor_can_open() {
        let finding = Finding::at("crates/ring/src/park.rs", 6, "unsafe", "move it");
        assert_eq!(finding.to_string(), "crates/ring/src/park.rs:7: unsafe: move it");
    }

    #[test]
    fn findings_are_sorted_by_place() {
        let tree = Tree::of(&[("b/utils.rs", "fn f() {}\n"), ("a/utils.rs", "fn f() {}\n")]);
        let paths: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert!(paths.is_sorted(), "{paths:?}");
        assert!(paths.len() >= 4, "a name and an SPDX finding each: {paths:?}");
    }
}
