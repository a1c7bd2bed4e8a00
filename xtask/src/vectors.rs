// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask gen`: the golden vectors of the specification, made by the layout crate's example
//! `vectors`.
//!
//! ```text
//! target/debug/examples/vectors target/vectors
//! target/vectors/**  ── gen ──▶  spec/vectors/**      (gen --check: compare only)
//!                               spec/sessions/**     with the argument --sessions
//!                               spec/handshakes/**   with the argument --handshakes
//! ```
//! These directories belong to the generator: a file that the generator does not make is
//! reported, or removed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::builds;
use crate::command::Step;

/// Runs the generator and writes the golden vectors again, or with `--check` compares the stored
/// vectors with the output of the generator.
///
/// # Errors
/// If the generator is missing or fails, or `--check` finds a difference.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let check = match arguments {
        [] => false,
        [one] if one == "--check" => true,
        _ => return Err("`gen` takes only `--check`".to_owned()),
    };
    if !exist() {
        return Err(format!("there is no generator yet: it belongs in {EXAMPLE}"));
    }
    builds::programs().args("-q --target-dir target --example vectors").run()?;
    SETS.iter().try_for_each(|set| generate(set, check))
}

/// Writes the files of one directory of the specification again, or compares them if `check`.
fn generate(set: &Set, check: bool) -> Result<(), String> {
    let committed_path = set.committed;
    let cannot =
        |error: io::Error| format!("cannot compare {FRESH} with {committed_path}: {error}");
    if Path::new(FRESH).exists() {
        fs::remove_dir_all(FRESH).map_err(cannot)?;
    }
    fs::create_dir_all(FRESH).map_err(cannot)?;
    let mut step = Step::new(GENERATOR);
    if let Some(flag) = set.flag {
        step = step.arg(flag);
    }
    step.arg(FRESH).run()?;
    let fresh = contents(Path::new(FRESH)).map_err(cannot)?;
    if fresh.is_empty() {
        return Err(format!("the generator wrote nothing to {FRESH}"));
    }
    let mut committed = contents(Path::new(committed_path)).map_err(cannot)?;
    committed.remove(Path::new("README.md")); // README.md is written by hand, not by the generator
    let differences = differences(&fresh, &committed);
    if check {
        return report(committed_path, &differences);
    }
    write(committed_path, &fresh, &differences)
        .map_err(|error| format!("cannot write {committed_path}: {error}"))?;
    println!("{committed_path}: {} files, {} changed", fresh.len(), differences.len());
    Ok(())
}

/// Whether the layout crate has the example `vectors`, the generator of the golden vectors.
pub fn exist() -> bool {
    Path::new(EXAMPLE).exists()
}

type Contents = BTreeMap<PathBuf, Vec<u8>>;

#[derive(Debug, PartialEq, Eq)]
enum Difference {
    Missing(PathBuf),
    Changed(PathBuf),
    Unknown(PathBuf),
}

fn differences(fresh: &Contents, committed: &Contents) -> Vec<Difference> {
    let mut found = Vec::new();
    for (path, bytes) in fresh {
        match committed.get(path) {
            None => found.push(Difference::Missing(path.clone())),
            Some(old) if old != bytes => found.push(Difference::Changed(path.clone())),
            Some(_) => {}
        }
    }
    let unknown = committed.keys().filter(|path| !fresh.contains_key(*path));
    found.extend(unknown.map(|path| Difference::Unknown(path.clone())));
    found
}

fn report(committed: &str, differences: &[Difference]) -> Result<(), String> {
    for difference in differences {
        let (path, what) = match difference {
            Difference::Missing(path) => (path, "is not committed"),
            Difference::Changed(path) => (path, "differs from what the generator makes"),
            Difference::Unknown(path) => (path, "is not made by the generator"),
        };
        println!("{committed}/{}:1: generated: {what}", path.display());
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} golden vectors differ. If the change of the layout is meant, raise the format version, \
         say so in spec/SPEC.md, and run `cargo xtask gen`",
        differences.len()
    ))
}

fn write(committed: &str, fresh: &Contents, differences: &[Difference]) -> io::Result<()> {
    for difference in differences {
        match difference {
            Difference::Missing(path) | Difference::Changed(path) => {
                let target = Path::new(committed).join(path);
                if let Some(parent) = target.parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::write(target, &fresh[path])?;
            }
            Difference::Unknown(path) => fs::remove_file(Path::new(committed).join(path))?,
        }
    }
    Ok(())
}

/// Returns the content of all files below the directory `root`, by path relative to it; empty if
/// there is no such directory.
fn contents(root: &Path) -> io::Result<Contents> {
    let mut all = Contents::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let relative = path.strip_prefix(root).map_err(io::Error::other)?.to_path_buf();
                all.insert(relative, fs::read(&path)?);
            }
        }
    }
    Ok(all)
}

const EXAMPLE: &str = "crates/layout/examples/vectors.rs";
const GENERATOR: &str = "target/debug/examples/vectors";
const FRESH: &str = "target/vectors";

/// A directory of the specification whose files the example `vectors` makes.
struct Set {
    committed: &'static str,
    /// The generator's argument that makes it write this directory; `None` for the directory that
    /// it writes without an argument.
    flag: Option<&'static str>,
}

const SETS: [Set; 3] = [
    Set { committed: "spec/vectors", flag: None },
    Set { committed: "spec/sessions", flag: Some("--sessions") },
    Set { committed: "spec/handshakes", flag: Some("--handshakes") },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &[u8])]) -> Contents {
        files.iter().map(|(path, bytes)| (PathBuf::from(path), bytes.to_vec())).collect()
    }

    #[test]
    fn equal_vectors_pass() {
        let vectors = of(&[("record.bin", &[1, 2])]);
        assert!(report("spec", &differences(&vectors, &vectors)).is_ok());
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let fresh = of(&[("new", &[1]), ("same", &[2]), ("other", &[3])]);
        let committed = of(&[("same", &[2]), ("other", &[4]), ("old", &[5])]);
        let found = differences(&fresh, &committed);
        let expected = [
            Difference::Missing("new".into()),
            Difference::Changed("other".into()),
            Difference::Unknown("old".into()),
        ];
        assert_eq!(found, expected);
        assert!(report("spec", &found).is_err());
    }

    #[test]
    fn unknown_arguments_are_refused() {
        assert!(main(&["--force".to_owned()]).is_err());
    }
}
