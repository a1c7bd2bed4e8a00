// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rule 23: which crate may depend on which other crate, and on which crates from outside.
//!
//! ```text
//! cli ──▶ bench
//!  │        │
//!  │        ▼
//!  ├──▶  link ──▶ reconcile           shmipc    extras
//!  │        │                           │          │
//!  └────────┴──▶  partywall  ◀──────────┴──────────┘
//!            capi ──▶ partywall, link, shmipc, extras, layout, ring, sys
//!                     │
//!                   wait ──▶ ring ──▶ layout
//!                     └────▶ sys ──▶ ring
//! testkit ──▶ any of them, for tests alone
//! ```
//! The table `TABLE` is the decision; a Cargo.toml with more dependencies is a finding. Widening
//! the table needs a page in docs/decisions. The reader of Cargo.toml understands only sections and
//! keys, which is enough.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::tree::Tree;

/// Reports dependencies in Cargo.toml files that `TABLE` does not allow.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        if file.path == "Cargo.toml" {
            check_members(&file.text, findings);
        }
        let Some(directory) = file.path.strip_suffix("/Cargo.toml") else { continue };
        if directory.starts_with("bench/") || directory.starts_with("conformance/") {
            continue; // separate workspaces, in which anything goes
        }
        let Some(row) = TABLE.iter().find(|row| row.directory == directory) else {
            let advice = "add a row for this crate to TABLE in xtask/src/tidy/manifest.rs";
            findings.push(Finding::at(&file.path, 0, "dependency", advice));
            continue;
        };
        for dependency in dependencies(&file.text) {
            if let Some(advice) = row.objection(&dependency) {
                findings.push(Finding::at(&file.path, dependency.index, "dependency", advice));
            }
        }
    }
}

/// Returns the crates of this repository by name, each with the crates of this repository that it
/// depends on.
pub fn dependencies_of_crates(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let mut graph = BTreeMap::new();
    for file in &tree.files {
        if !file.path.starts_with("crates/") || !file.path.ends_with("/Cargo.toml") {
            continue;
        }
        let is_name = |line: &&str| line.starts_with("name = ");
        let Some(name) = file.text.lines().find(is_name).and_then(|line| line.split('"').nth(1))
        else {
            continue;
        };
        let needed = dependencies(&file.text).into_iter().filter(|d| d.kind != Kind::Dev);
        graph.insert(name.to_owned(), needed.map(|d| d.name).collect());
    }
    graph
}

/// A row of `TABLE`: the dependencies that one crate may have.
struct Row {
    directory: &'static str,
    normal: &'static [&'static str],
    loom_only: &'static [&'static str],
    dev: &'static [&'static str],
}

impl Row {
    fn objection(&self, dependency: &Dependency) -> Option<String> {
        let name = dependency.name.as_str();
        let here = self.normal.contains(&name);
        let allowed = match dependency.kind {
            Kind::Normal => here,
            Kind::Loom => here || self.loom_only.contains(&name),
            Kind::Dev => here || self.dev.contains(&name),
        };
        if allowed {
            return None;
        }
        if self.loom_only.contains(&name) {
            return Some(format!("`{name}` belongs in [target.'cfg(loom)'.dependencies] only"));
        }
        if self.dev.contains(&name) {
            return Some(format!("`{name}` is for tests: move it to [dev-dependencies]"));
        }
        Some(format!(
            "{} may not depend on `{name}`: use what is there, or record the decision in docs/decisions \
             and widen TABLE in xtask/src/tidy/manifest.rs",
            self.directory
        ))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Loom,
    Dev,
}

#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    name: String,
    kind: Kind,
    index: usize,
}

/// Reports a member of the workspace that lies in bench/peers. The libraries that benchmarks
/// compare with stay out of the workspace, so that its lock file does not name their dependencies.
fn check_members(text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let key = line.split('=').next().unwrap_or("").trim();
        if (key == "members" || key == "default-members") && line.contains("\"bench/") {
            let advice = "bench/peers is a workspace of its own: take it out of this one";
            findings.push(Finding::at("Cargo.toml", index, "dependency", advice));
        }
    }
}

/// Returns the dependencies in the text of a Cargo.toml, each with its package name, also if the
/// Cargo.toml gives the package another name.
fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut kind = None;
    let mut nesting = 0_usize;
    for (index, line) in text.lines().enumerate() {
        let line = line.split(" #").next().unwrap_or(line).trim();
        let nested = nesting > 0;
        let opened = nesting + line.matches(['[', '{']).count();
        nesting = opened.saturating_sub(line.matches([']', '}']).count());
        if nested || line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (section_kind, name) = section_kind(section);
            kind = if name.is_some() { None } else { section_kind };
            if let (Some(kind), Some(name)) = (section_kind, name) {
                found.push(Dependency { name, kind, index });
            }
        } else if let (Some(kind), Some((key, value))) = (kind, line.split_once('=')) {
            let name = renamed(value).unwrap_or_else(|| key.split('.').next().unwrap_or(key));
            found.push(Dependency { name: unquoted(name), kind, index });
        }
    }
    found
}

/// Returns the kind of dependencies that a section of a Cargo.toml lists, and the single dependency
/// if its title names one (`[dependencies.name]`).
fn section_kind(section: &str) -> (Option<Kind>, Option<String>) {
    // A section `workspace.dependencies` only sets versions. Being listed in that section makes no
    // crate depend on another.
    if section.starts_with("workspace.") {
        return (None, None);
    }
    let Some(at) = section.find("dependencies") else { return (None, None) };
    let name = section[at + "dependencies".len()..].strip_prefix('.').map(unquoted);
    let kind = if section[..at].ends_with("dev-") {
        Kind::Dev
    } else if section[..at].contains("cfg(loom)") {
        Kind::Loom
    } else {
        Kind::Normal
    };
    (Some(kind), name)
}

/// The name of the package in a dependency that renames it: `{ package = "name", … }`.
fn renamed(value: &str) -> Option<&str> {
    let (_, rest) = value.split_once("package")?;
    rest.trim_start().strip_prefix('=')?.split('"').nth(1)
}

fn unquoted(name: &str) -> String {
    name.trim().trim_matches(['"', '\'']).to_owned()
}

/// The allowed dependencies of each crate. A crate that the code of a crate may use may also be
/// used by its tests.
const TABLE: &[Row] = &[
    Row {
        directory: "crates/layout",
        normal: &["crc-fast", "zerocopy"],
        loom_only: &[],
        dev: &["proptest"],
    },
    // The crate `reconcile` has the rules by which links resume, which need no other crate. Its
    // tests explore the states of these rules with stateright (docs/decisions/0018-links.md).
    Row {
        directory: "crates/reconcile",
        normal: &[],
        loom_only: &[],
        dev: &["proptest", "stateright"],
    },
    Row {
        directory: "crates/ring",
        normal: &["partywall-layout"],
        loom_only: &["loom"],
        dev: &["proptest", "loom"],
    },
    Row {
        directory: "crates/sys",
        // libc is needed to handle SIGBUS (docs/decisions/0016-sigbus.md); every other system call
        // goes through rustix. partywall-ring has the code that decides which thread may take a
        // biased lock without a mutex (docs/decisions/0022-biased-lock.md).
        normal: &["partywall-ring", "libc", "rustix", "thiserror"],
        loom_only: &[],
        dev: &["tempfile", "proptest"],
    },
    Row {
        directory: "crates/partywall",
        // zerocopy is needed to turn the layouts of partywall-layout, which derive its traits, into
        // bytes and back.
        normal: &[
            "partywall-layout",
            "partywall-ring",
            "partywall-sys",
            "partywall-wait",
            "axum",
            "bytes",
            "postcard",
            "serde",
            "futures-core",
            "hyper",
            "hyper-util",
            "thiserror",
            "tokio",
            "tonic",
            "tower-service",
            "zerocopy",
        ],
        loom_only: &[],
        dev: &[
            "anyhow",
            "http-body-util",
            "nix",
            "partywall-testkit",
            "proptest",
            "prost",
            "shuttle",
            "tempfile",
            "tokio-stream",
            "tonic-prost",
        ],
    },
    // The crate `wait` implements how a thread waits for memory that another process writes.
    // Channels and links depend on it.
    Row {
        directory: "crates/wait",
        normal: &["partywall-ring", "partywall-sys", "thiserror"],
        loom_only: &[],
        dev: &["partywall-testkit", "proptest"],
    },
    Row {
        directory: "crates/link",
        normal: &[
            "partywall",
            "partywall-layout",
            "partywall-reconcile",
            "partywall-ring",
            "partywall-sys",
            "partywall-wait",
            "bytes",
            "thiserror",
            "tokio",
            "zerocopy",
        ],
        loom_only: &[],
        dev: &["anyhow", "nix", "partywall-testkit", "proptest", "tempfile"],
    },
    // The crate `testkit` is scaffolding of tests: only dev-dependencies may name it.
    Row {
        directory: "crates/testkit",
        normal: &[
            "partywall",
            "partywall-layout",
            "partywall-link",
            "partywall-ring",
            "partywall-sys",
            "partywall-wait",
            "anyhow",
            "bytes",
            "libc",
            "nix",
            "rustix",
            "tempfile",
            "tokio",
            "zerocopy",
        ],
        loom_only: &[],
        dev: &["proptest"],
    },
    // The crate `extras` uses only the public API (docs/decisions/0023-adapters-and-extras.md).
    Row {
        directory: "crates/extras",
        normal: &["partywall", "bytes", "thiserror", "tokio", "zerocopy"],
        loom_only: &[],
        dev: &[
            "partywall-layout",
            "partywall-ring",
            "partywall-sys",
            "partywall-testkit",
            "proptest",
            "tempfile",
        ],
    },
    Row {
        directory: "crates/shmipc",
        normal: &["partywall", "partywall-sys", "thiserror", "tokio"],
        loom_only: &[],
        dev: &["partywall-testkit", "proptest", "tempfile"],
    },
    // The crate `capi` uses only public APIs, of `partywall-layout` the guards of seeded faults, of
    // `partywall-ring` the lanes of handles, and of `partywall-sys` the barrier that those need
    // (docs/decisions/0037-c-interface.md).
    Row {
        directory: "crates/capi",
        normal: &[
            "partywall",
            "partywall-extras",
            "partywall-layout",
            "partywall-link",
            "partywall-ring",
            "partywall-shmipc",
            "partywall-sys",
        ],
        loom_only: &[],
        dev: &["partywall-testkit", "tempfile"],
    },
    Row {
        directory: "crates/bench",
        normal: &[
            "partywall",
            "partywall-link",
            "partywall-ring",
            "partywall-sys",
            "anyhow",
            "clap",
            "hdrhistogram",
            "indicatif",
            "plotters",
            "serde",
            "serde_json",
            "tokio",
            // These dependencies belong to the feature `frameworks`, and are measured by `bench
            // grpc` and `bench http`.
            "http-body-util",
            "hyper",
            "hyper-util",
            "prost",
            "tokio-stream",
            "tonic",
            "tonic-prost",
            "tower-service",
        ],
        loom_only: &[],
        dev: &[],
    },
    Row {
        directory: "crates/cli",
        normal: &[
            "partywall",
            "partywall-link",
            "partywall-bench",
            "partywall-shmipc",
            "partywall-layout",
            "partywall-ring",
            "partywall-sys",
            "anyhow",
            "tokio",
            "clap",
            "clap_complete",
            "clap_mangen",
            "hdrhistogram",
            "serde",
            "serde_json",
            "signal-hook",
        ],
        loom_only: &[],
        dev: &["partywall-testkit", "tempfile", "proptest"],
    },
    Row { directory: "xtask", normal: &[], loom_only: &[], dev: &[] },
    Row {
        directory: "xtask/probe",
        normal: &["partywall", "partywall-link"],
        loom_only: &[],
        dev: &[],
    },
    Row {
        directory: "fuzz",
        normal: &[
            "libfuzzer-sys",
            "arbitrary",
            "partywall",
            "partywall-link",
            "partywall-layout",
            "partywall-ring",
            "partywall-shmipc",
            "partywall-sys",
            "zerocopy",
        ],
        loom_only: &[],
        dev: &[],
    },
    Row {
        directory: "bindings/python",
        normal: &[
            "bytes",
            "partywall",
            "partywall-extras",
            "partywall-link",
            "partywall-shmipc",
            "pyo3",
            "rustix",
            "tokio",
        ],
        loom_only: &[],
        dev: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    #[test]
    fn the_ring_depends_on_the_layout_and_in_models_on_loom() {
        let good = "[package]\nname = \"partywall-ring\"\n\n[dependencies]\npartywall-layout.workspace = true\n\
                    [target.'cfg(loom)'.dependencies]\nloom.workspace = true\n\
                    [dev-dependencies]\nproptest = { version = \"1\", features = [\n  \"std\",\n] }\n";
        assert_eq!(findings_of(check, &[("crates/ring/Cargo.toml", good)]), [""; 0]);
    }

    #[test]
    fn a_dependency_against_the_direction_is_flagged() {
        let bad = "[dependencies]\npartywall-sys.workspace = true\n";
        let findings = findings_of(check, &[("crates/ring/Cargo.toml", bad)]);
        assert!(findings[0].starts_with("crates/ring/Cargo.toml:2: dependency"), "{findings:?}");
    }

    #[test]
    fn a_dependency_in_the_wrong_section_is_flagged() {
        for bad in [
            "[dependencies]\nloom = \"0.7\"\n",
            "[dependencies.proptest]\nversion = \"1\"\n",
            "[dev-dependencies]\nx = { package = \"rand\", version = \"1\" }\n",
            "[build-dependencies]\ncc = \"1\"\n",
        ] {
            assert_eq!(findings_of(check, &[("crates/ring/Cargo.toml", bad)]).len(), 1, "{bad}");
        }
    }

    #[test]
    fn an_unknown_crate_needs_a_row() {
        assert_eq!(findings_of(check, &[("crates/new/Cargo.toml", "")]).len(), 1);
        let anything = "[dependencies]\niceoryx2 = \"0.10\"\n";
        assert!(findings_of(check, &[("bench/peers/Cargo.toml", anything)]).is_empty());
    }

    #[test]
    fn the_rivals_stay_out_of_the_workspace() {
        let good = "[workspace]\nmembers = [\"xtask\"]\nexclude = [\"bench/peers\"]\n\
                    [workspace.dependencies]\nloom = \"0.7\"\n";
        assert!(findings_of(check, &[("Cargo.toml", good)]).is_empty());
        let bad = "[workspace]\nmembers = [\"xtask\", \"bench/peers\"]\n";
        assert_eq!(findings_of(check, &[("Cargo.toml", bad)]).len(), 1);
    }
}
