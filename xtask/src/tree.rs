// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of the repository, read once: all files that git tracks or would add.
//!
//! Without git, as in an unpacked archive, the directory is walked instead, without the directories
//! that the build writes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::command::Step;
use crate::tidy::source::Source;

/// A text file of the repository.
pub struct File {
    /// Path of the file relative to the repository, with `/` between the parts.
    pub path: String,
    /// Text of the file.
    pub text: String,
    /// Whether the owner of the file may execute it.
    pub executable: bool,
    /// The text split into code and comments, if the file is a Rust file.
    pub source: Option<Source>,
}

/// All files of the repository; those that are not text are known by name only.
pub struct Tree {
    /// The text files of the repository, in the order of their paths.
    pub files: Vec<File>,
    names: BTreeSet<String>,
}

impl Tree {
    /// Reads the tree below the current directory.
    ///
    /// # Errors
    /// If the current directory cannot be read.
    pub fn read() -> Result<Self, String> {
        let mut tree = Tree { files: Vec::new(), names: BTreeSet::new() };
        for path in paths()? {
            // If the file cannot be found, it was deleted but is still in git's index. Such a file
            // is not part of the tree.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if !metadata.is_file() {
                continue;
            }
            tree.add_name(&path);
            if metadata.len() > TEXT_BYTES_MAX {
                continue;
            }
            let bytes = fs::read(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
            let executable = metadata.permissions().mode() & 0o100 != 0;
            if let Ok(text) = String::from_utf8(bytes) {
                tree.files.push(file(&path, text, executable));
            }
        }
        Ok(tree)
    }

    /// Whether the tree has a file with this path, or a file in a directory with this path.
    pub fn has(&self, path: &str) -> bool {
        self.names.contains(path.trim_end_matches('/'))
    }

    /// The paths of all files, and of the directories that hold them.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).filter(|path| !path.is_empty())
    }

    /// The text file with the path `path`; `None` if the tree has no such text file.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The path and the scanned text of each Rust file.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.files.iter().filter_map(|file| Some((file.path.as_str(), file.source.as_ref()?)))
    }

    /// A tree made from sample files (path and text), for the tests of the rules.
    #[cfg(test)]
    pub fn of(samples: &[(&str, &str)]) -> Self {
        let mut tree = Tree { files: Vec::new(), names: BTreeSet::new() };
        for (path, text) in samples {
            tree.add_name(path);
            tree.files.push(file(path, (*text).to_owned(), false));
        }
        tree
    }

    fn add_name(&mut self, path: &str) {
        self.names.extend(Path::new(path).ancestors().filter_map(Path::to_str).map(str::to_owned));
    }
}

fn file(path: &str, text: String, executable: bool) -> File {
    let source = path.ends_with(".rs").then(|| Source::scan(&text));
    File { path: path.to_owned(), text, executable, source }
}

fn paths() -> Result<Vec<String>, String> {
    let listing =
        Step::new("git").args("ls-files -z --cached --others --exclude-standard").capture();
    if let Ok(output) = listing
        .as_ref()
        .map_err(|_| ())
        .and_then(|output| if output.status.success() { Ok(output) } else { Err(()) })
    {
        let text = String::from_utf8_lossy(&output.stdout);
        let all: BTreeSet<String> =
            text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
        return Ok(all.into_iter().collect());
    }
    let mut found = Vec::new();
    walk(Path::new("."), &mut found).map_err(|error| format!("cannot list the tree: {error}"))?;
    found.sort();
    Ok(found)
}

fn walk(directory: &Path, found: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path: PathBuf = entry.path();
        let relative = path.strip_prefix(".").unwrap_or(&path);
        let Some(name) = relative.to_str() else { continue };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let last = entry.file_name();
            if !MADE.iter().any(|made| name == *made || last == **made) {
                walk(&path, found)?;
            }
        } else if kind.is_file() {
            found.push(name.to_owned());
        }
    }
    Ok(())
}

/// Size in bytes above which a file counts as data, so that its text is not read.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Directories that the build, the benchmarks or the fuzzer write, as listed in .gitignore.
const MADE: [&str; 6] =
    [".git", "target", "bench-report", "fuzz/corpus", "fuzz/artifacts", "fuzz/coverage"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_files_are_in_the_tree() {
        let tree = Tree::of(&[("docs/guide/book.toml", "")]);
        assert!(tree.has("docs/guide/book.toml"));
        assert!(tree.has("docs/guide/"));
        assert!(!tree.has("docs/gui"));
    }

    #[test]
    fn only_rust_files_are_scanned() {
        let tree = Tree::of(&[("a.rs", "fn a() {}"), ("b.md", "fn b() {}")]);
        assert_eq!(tree.rust().count(), 1);
    }
}
