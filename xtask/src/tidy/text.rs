// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules for text files: each has a licence line, and none names a path that exists on one machine
//! only, or a private source of packages.

use super::Finding;
use crate::tree::{File, Tree};

/// Reports missing licence lines, machine paths and private package sources.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let licence = licence();
    for file in &tree.files {
        if needs_licence(file) && !file.text.lines().take(2).any(|line| line.contains(&licence)) {
            let advice = format!("begin the file with a comment `{licence}`");
            findings.push(Finding::at(&file.path, 0, "spdx", advice));
        }
        for (index, line) in file.text.lines().enumerate() {
            for prefix in machine_prefixes() {
                if has_machine_path(line, &prefix) {
                    let advice = format!("`{prefix}…` exists on one machine: use a relative path");
                    findings.push(Finding::at(&file.path, index, "machine-path", advice));
                }
            }
            if let Some(what) = private_source(&file.path, line) {
                let advice = format!("{what}: leave it out, so that every clone builds");
                findings.push(Finding::at(&file.path, index, "package-source", advice));
            }
        }
    }
}

fn needs_licence(file: &File) -> bool {
    let suffixes = [".rs", ".go", ".toml", ".sh"];
    suffixes.iter().any(|suffix| file.path.ends_with(suffix)) || file.text.starts_with("#!/")
}

/// Whether an absolute path that begins with `prefix` is anywhere in the line. The path does not
/// count if it begins in the middle of another path.
fn has_machine_path(line: &str, prefix: &str) -> bool {
    line.match_indices(prefix).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-})>*/".contains(c))
    })
}

/// The part of a line that names a source of packages other than the public registry.
fn private_source(path: &str, line: &str) -> Option<&'static str> {
    let line = line.trim();
    if path.ends_with("Cargo.lock") {
        let foreign = line.starts_with("source = ") && !line.contains(PUBLIC_INDEX);
        return foreign.then_some("a locked package comes from a private source");
    }
    if path.contains(".cargo/") || path.ends_with(".toml") {
        let replaced = ["[source.", "[registries", "replace-with"];
        if replaced.iter().any(|start| line.starts_with(start)) {
            return Some("this replaces the public registry");
        }
    }
    let mut indexes = ["sparse+", "registry+"].into_iter().map(|scheme| format!("{scheme}http"));
    if indexes.any(|index| line.contains(&index)) && !line.contains(PUBLIC_INDEX) {
        return Some("this names a private package index");
    }
    let private = hosts(line).any(|host| {
        PRIVATE_SUFFIXES.iter().any(|suffix| host.ends_with(suffix)) || is_private_address(host)
    });
    private.then_some("this names a host of a private network")
}

fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("://").map(|(at, scheme)| {
        let rest = &line[at + scheme.len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || ".-".contains(c)));
        &rest[..end.unwrap_or(rest.len())]
    })
}

fn is_private_address(host: &str) -> bool {
    host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_private())
}

/// The text of a licence line. The function puts the text together from parts, so that this file
/// does not match the rule's search for it.
fn licence() -> String {
    ["SPDX-License-Identifier:", "MIT OR Apache-2.0"].join(" ")
}

/// Beginnings of paths that exist on one machine only. The function puts them together from parts,
/// so that this file passes its own rule.
fn machine_prefixes() -> [String; 4] {
    ["work", "root", "home", "Users"].map(|directory| format!("/{directory}/"))
}

const PUBLIC_INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";
const PRIVATE_SUFFIXES: [&str; 5] = [".internal", ".local", ".lan", ".corp", ".intranet"];

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    #[test]
    fn source_files_begin_with_their_licence() {
        let line = licence();
        let rust = format!("// {line}\nfn f() {{}}\n");
        let script = format!("#!/bin/sh\n# {line}\n");
        assert!(findings_of(check, &[("a.rs", &rust), (".ci/run", &script)]).is_empty());
        for (path, text) in [
            ("a.rs", "fn f() {}\n"),
            ("a.go", "package a\n"),
            ("a.toml", "[a]\n"),
            (".ci/run", "#!/bin/sh\n"),
        ] {
            let findings = findings_of(check, &[(path, text)]);
            assert!(findings[0].contains("spdx"), "{findings:?}");
        }
        assert!(findings_of(check, &[("a.md", "# A\n")]).is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_flagged() {
        for prefix in machine_prefixes() {
            let bad = format!("\nsee {prefix}me/notes\n");
            let findings = findings_of(check, &[("a.md", &bad)]);
            assert!(findings[0].starts_with("a.md:2: machine-path"), "{findings:?}");
            let good = format!("see crates{prefix}me\n");
            assert!(findings_of(check, &[("a.md", &good)]).is_empty());
        }
    }

    #[test]
    fn private_package_sources_are_flagged() {
        let index = ["sparse+", "https://packages.example/index/"].concat();
        let mirror = ["https://mirror", ".internal/x"].concat();
        let address = ["http://", "10.1.2.3:8080/x"].concat();
        for (path, bad) in [
            (".cargo/config", "[source.crates-io]".to_owned()),
            ("Cargo.lock", format!("source = \"{index}\"")),
            ("a.md", format!("use {index}")),
            ("a.md", mirror),
            ("a.md", address),
        ] {
            let findings = findings_of(check, &[(path, &bad)]);
            assert_eq!(findings.len(), 1, "{bad}");
            assert!(findings[0].contains("package-source"), "{findings:?}");
        }
        let lock = format!("source = \"{PUBLIC_INDEX}\"\n");
        let page = "http://127.0.0.1:8080 and https://docs.rs/partywall\n";
        assert!(findings_of(check, &[("Cargo.lock", &lock), ("a.md", page)]).is_empty());
    }
}
