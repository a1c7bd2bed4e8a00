// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rule 1: a file is named by its noun or verb, not by "whatever did not fit elsewhere".

use std::path::Path;

use super::Finding;
use crate::tree::Tree;

/// Reports files and directories with a name that says nothing.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        for part in file.path.split('/') {
            let stem = Path::new(part).file_stem().and_then(|stem| stem.to_str()).unwrap_or(part);
            if FORBIDDEN.contains(&stem.to_ascii_lowercase().as_str()) {
                let advice = format!("`{stem}` names no idea: name it by its noun or verb");
                findings.push(Finding::at(&file.path, 0, "file-name", advice));
            }
        }
    }
}

const FORBIDDEN: [&str; 9] =
    ["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc", "stuff"];

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    #[test]
    fn names_that_say_nothing_are_flagged() {
        assert!(findings_of(check, &[("crates/ring/src/producer.rs", "")]).is_empty());
        for bad in ["crates/sys/src/utils.rs", "crates/cli/tests/common/mod.rs", "docs/misc.md"] {
            let findings = findings_of(check, &[(bad, "")]);
            assert_eq!(findings.len(), 1, "{bad}");
            assert!(findings[0].contains("file-name"), "{findings:?}");
        }
    }
}
