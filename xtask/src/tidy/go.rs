// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules for the Go modules, besides those for text files and vocabulary.
//!
//! ```text
//! go.mod        requires what its row of `MODULES` allows
//! function      at most 70 lines, from `func` to its closing brace
//! comment line  at most 100 columns; a tab counts as 4
//! unsafe        only in go/internal/mem and go/internal/sys
//! cgo           nowhere; nor `go:linkname`
//! sleep         nowhere in a test: it waits for a condition with a deadline
//! ```
//!
//! gofmt writes the files, so a function ends at the first line that is `}` alone.

use super::Finding;
use super::files::COMMENT_COLUMNS_MAX;
use super::lints::FUNCTION_LINES_MAX;
use super::source::Source;
use crate::tree::{File, Tree};

/// A Go module, and the modules that its go.mod may require directly. The indirect requirements,
/// which these modules bring with them, are free.
pub struct Module {
    pub directory: &'static str,
    requires: &'static [&'static str],
}

/// The Go modules. A module with many requirements is nested in the first module, so that programs
/// which do not import it download none of them. A new row or requirement needs a page in
/// docs/decisions.
pub const MODULES: [Module; 7] = [
    Module { directory: "go", requires: &["golang.org/x/net", "golang.org/x/sys"] },
    Module {
        directory: "go/partywallgrpc",
        requires: &["google.golang.org/grpc", "partywall.test/go"],
    },
    Module {
        directory: "go/partywallhertz",
        requires: &["github.com/cloudwego/hertz", "partywall.test/go"],
    },
    Module {
        directory: "go/partywallkitex",
        requires: &[
            "github.com/cloudwego/gopkg",
            "github.com/cloudwego/kitex",
            "partywall.test/go",
        ],
    },
    Module {
        directory: "go/partywallshmipc",
        requires: &["github.com/cloudwego/shmipc-go", "golang.org/x/sys", "partywall.test/go"],
    },
    // This module has no code: its go.mod pins staticcheck and the dependencies of staticcheck. The
    // stage `go` builds it.
    Module { directory: STATICCHECK, requires: &[] },
    Module {
        directory: "go/examples",
        requires: &[
            "github.com/alicebob/miniredis/v2",
            "github.com/redis/go-redis/v9",
            "partywall.test/go",
        ],
    },
];

/// The directory of the module that pins staticcheck.
pub const STATICCHECK: &str = "go/staticcheck";

/// Reports lines of the Go modules that break a rule.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        if file.path.starts_with("go/") && file.path.ends_with("/go.mod") {
            check_requirements(file, findings);
        }
        if file.path.starts_with("go/") && file.path.ends_with(".go") {
            check_lines(file, findings);
            check_length(file, findings);
        }
    }
}

/// Reports a Go module without a row in `MODULES`, and each requirement that is not in the module's
/// row.
fn check_requirements(file: &File, findings: &mut Vec<Finding>) {
    let directory = file.path.trim_end_matches("/go.mod");
    let Some(module) = MODULES.iter().find(|module| module.directory == directory) else {
        let advice = "add a row for this module to MODULES in xtask/src/tidy/go.rs";
        findings.push(Finding::at(&file.path, 0, "dependency", advice));
        return;
    };
    let mut is_in_block = false;
    for (index, line) in file.text.lines().enumerate() {
        match line {
            "require (" => is_in_block = true,
            ")" => is_in_block = false,
            _ => {}
        }
        let requirement = line.strip_prefix("require ").or(is_in_block.then_some(line));
        let Some(name) = requirement.and_then(|text| text.split_whitespace().next()) else {
            continue;
        };
        let is_direct = !line.ends_with("// indirect") && !line.ends_with('(');
        if is_direct && !module.requires.contains(&name) {
            let advice = format!("`{name}` is not in the row of {directory} in MODULES");
            findings.push(Finding::at(&file.path, index, "dependency", advice));
        }
    }
}

fn check_lines(file: &File, findings: &mut Vec<Finding>) {
    let source = Source::scan(&file.text);
    let is_unsafe_allowed = UNSAFE_DIRECTORIES.iter().any(|prefix| file.path.starts_with(prefix));
    let is_test = file.path.ends_with("_test.go");
    for (index, (line, scanned)) in file.text.lines().zip(&source.lines).enumerate() {
        let mut report = |rule, advice: String| {
            findings.push(Finding::at(&file.path, index, rule, advice));
        };
        let columns: usize = line.chars().map(|c| if c == '\t' { TAB_COLUMNS } else { 1 }).sum();
        if !scanned.comment.is_empty() && columns > COMMENT_COLUMNS_MAX {
            let advice =
                format!("{columns} columns, at most {COMMENT_COLUMNS_MAX}: break the line");
            report("comment-width", advice);
        }
        let import = line.trim().trim_start_matches("import").trim_start();
        if import == "\"unsafe\"" && !is_unsafe_allowed {
            report("unsafe", format!("unsafe code belongs in {}", UNSAFE_DIRECTORIES.join(" or ")));
        }
        if import == "\"C\"" || line.starts_with("//go:linkname ") {
            report("cgo", "the module is built with CGO_ENABLED=0, from exported names".to_owned());
        }
        if is_test && scanned.code.contains("time.Sleep(") {
            report("sleep", "wait for a condition with a deadline".to_owned());
        }
    }
}

fn check_length(file: &File, findings: &mut Vec<Finding>) {
    let mut function = None;
    for (index, line) in file.text.lines().enumerate() {
        // A function that begins and ends on one line is not measured, because it cannot be too
        // long.
        if line.starts_with("func ") && !line.ends_with('}') {
            function = Some((index, line));
        }
        if line != "}" {
            continue;
        }
        let Some((first, head)) = function.take() else { continue };
        let lines = index - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let advice = format!(
                "`{}` has {lines} lines, at most {FUNCTION_LINES_MAX}: move the computing into leaves",
                head.trim_end_matches(" {")
            );
            findings.push(Finding::at(&file.path, first, "function-length", advice));
        }
    }
}

const TAB_COLUMNS: usize = 4;

/// The packages that may import `unsafe`: access to mapped memory, and system calls.
const UNSAFE_DIRECTORIES: [&str; 2] = ["go/internal/mem/", "go/internal/sys/"];

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<String> {
        let findings = findings_of(check, &[(path, text)]);
        findings.iter().map(|f| f.split(": ").nth(1).unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn unsafe_is_imported_in_its_packages_only() {
        for import in ["import \"unsafe\"\n", "import (\n\t\"fmt\"\n\t\"unsafe\"\n)\n"] {
            assert_eq!(rules("go/internal/mem/own.go", import), [""; 0]);
            assert_eq!(rules("go/internal/sys/memfd.go", import), [""; 0]);
            assert_eq!(rules("go/internal/layout/frame.go", import), ["unsafe"]);
            assert_eq!(rules("go/internal/memory/a.go", import), ["unsafe"]);
        }
        assert_eq!(rules("go/a.go", "// \"unsafe\" is no import here\n"), [""; 0]);
    }

    #[test]
    fn cgo_and_linkname_are_refused() {
        assert_eq!(rules("go/a.go", "import \"C\"\n"), ["cgo"]);
        assert_eq!(rules("go/internal/sys/a.go", "//go:linkname f runtime.f\n"), ["cgo"]);
    }

    #[test]
    fn wide_comment_is_flagged() {
        let wide = format!("\t// {}\n", "a".repeat(94));
        assert_eq!(rules("go/a.go", &wide), ["comment-width"]);
        assert_eq!(rules("go/a.go", &wide[1..]), [""; 0]);
        assert_eq!(rules("conformance/go/a.go", &wide), [""; 0]);
    }

    #[test]
    fn long_function_is_flagged() {
        let function =
            |lines: usize| format!("func (a *A) f() {{\n{}}}\n", "\ta()\n".repeat(lines - 2));
        assert_eq!(rules("go/a.go", &function(70)), [""; 0]);
        assert_eq!(rules("go/a.go", &function(71)), ["function-length"]);
        let table = format!("var t = []int{{\n{}}}\n", "\t1,\n".repeat(100));
        assert_eq!(rules("go/a.go", &table), [""; 0]);
        assert_eq!(rules("go/a.go", &format!("func f() {{}}\n{table}{}", function(70))), [""; 0]);
    }

    #[test]
    fn requirement_outside_its_row_is_flagged() {
        let module = |require: &str| format!("module m\n\ngo 1.25\n\n{require}");
        assert_eq!(rules("go/go.mod", &module("require golang.org/x/sys v0.33.0\n")), [""; 0]);
        assert_eq!(rules("go/go.mod", &module("require example.org/a v1.0.0\n")), ["dependency"]);
        let block = module("require (\n\tgolang.org/x/sys v0.33.0\n\texample.org/a v1.0.0\n)\n");
        assert_eq!(rules("go/go.mod", &block), ["dependency"]);
        let indirect = module("require (\n\texample.org/a v1.0.0 // indirect\n)\n");
        assert_eq!(rules("go/go.mod", &indirect), [""; 0]);
    }

    #[test]
    fn module_without_row_is_flagged() {
        assert_eq!(rules("go/partywallnone/go.mod", "module m\n"), ["dependency"]);
        assert_eq!(rules("conformance/go/go.mod", "module m\n"), [""; 0]);
    }

    #[test]
    fn test_that_sleeps_is_flagged() {
        let sleep = "func f() {\n\ttime.Sleep(time.Second)\n}\n";
        assert_eq!(rules("go/a_test.go", sleep), ["sleep"]);
        assert_eq!(rules("go/a.go", sleep), [""; 0]);
    }
}
