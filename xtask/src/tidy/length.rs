// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rule 4: how long a function may be, from `fn` to its closing brace, because it must fit on a screen.

use super::Finding;
use crate::tree::Tree;

/// Reports functions that are too long.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in tree.rust() {
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

const FUNCTION_LINES_MAX: usize = 70;

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

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
