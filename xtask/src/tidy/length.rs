// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules 1 and 4: how long a file and a function may be.
//!
//! A file is measured in code lines (no blanks, comments or test modules at the end), because half of a good
//! file may be explanation. A function is measured from `fn` to its brace, because it must fit on a screen.

use super::Finding;
use crate::tree::Tree;

/// Reports files and functions that are too long.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in tree.rust() {
        let code_lines = source.shipped().filter(|(_, line)| line.is_code()).count();
        if code_lines > FILE_CODE_LINES_MAX {
            let advice = format!(
                "{code_lines} code lines, at most {FILE_CODE_LINES_MAX}: give its second idea a file"
            );
            findings.push(Finding::at(path, 0, "file-length", advice));
        }
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
}

const FILE_CODE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    fn file(code_lines: usize) -> String {
        let tests = "#[cfg(test)]\nmod tests {\n".to_owned() + &"use a;\n".repeat(500) + "}\n";
        "//! Doc.\n\n".repeat(300) + &"use a;\n".repeat(code_lines) + &tests
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    #[test]
    fn comments_blanks_and_tests_do_not_make_a_file_long() {
        assert!(findings_of(check, &[("a.rs", &file(400))]).is_empty());
    }

    #[test]
    fn a_long_file_is_flagged() {
        let findings = findings_of(check, &[("a.rs", &file(401))]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("a.rs:1: file-length: 401"), "{findings:?}");
    }

    #[test]
    fn a_function_may_have_seventy_lines() {
        assert!(findings_of(check, &[("a.rs", &function(70))]).is_empty());
        let findings = findings_of(check, &[("a.rs", &function(71))]);
        assert!(findings[0].starts_with("a.rs:1: function-length: `long` has 71"), "{findings:?}");
    }
}
