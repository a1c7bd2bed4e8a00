// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rule for circles of imports, in which files or folders import from each other: between
//! crates, between the folders of a crate, and between the files of a folder.
//!
//! ```text
//! crates    none, by their manifests
//! folders   each folder of a crate is one node        at most 3 in a circle
//! files     each file of a folder and each folder     at most 3 in a circle
//!           in it is one node; the folder's own
//!           module (mod.rs, lib.rs) is left out
//! ```
//! A circle is a strongly connected component: imports lead from each of its members to every other
//! one. The imports are those of `imports.rs`. `cargo xtask tidy --circles` prints every component
//! and its edges.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Finding;
use super::imports::{Imports, of_all};
use super::manifest::dependencies_of_crates;
use crate::tree::Tree;

/// Reports each circle of imports with more files or folders than allowed ([`CIRCLE_MAX`]), and
/// each circle of crates.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for circle in of_crates(tree) {
        let advice = format!("crates depend on each other: {}", circle.join(", "));
        findings.push(Finding::at("Cargo.toml", 0, "circle", advice));
    }
    for imports in of_all(tree) {
        for circle in circles(&imports).iter().filter(|circle| circle.is_too_large()) {
            let advice = format!("{}; `cargo xtask tidy --circles` shows it", circle.title());
            let path = format!("{}{}", imports.root, circle.edges[0].from);
            findings.push(Finding::at(&path, circle.edges[0].line, "circle", advice));
        }
    }
}

/// Lists every circle of imports with the imports that form it. Circles that are too large are
/// marked.
pub fn report(tree: &Tree) -> String {
    let mut text = String::new();
    for circle in of_crates(tree) {
        let _ = writeln!(text, "!! crates: {}", circle.join(", "));
    }
    for imports in of_all(tree) {
        for circle in circles(&imports) {
            let mark = if circle.is_too_large() { "!!" } else { "ok" };
            let _ = writeln!(text, "{mark} {}{}", imports.root, circle.title());
            for edge in &circle.edges {
                let Edge { from, to, line, path } = edge;
                let _ = writeln!(text, "      {from}:{} > {to}   {path}", line + 1);
            }
        }
    }
    text
}

/// A strongly connected component of at least two nodes in a graph of imports.
struct Circle {
    /// The kind of the nodes in the circle of imports: crates, folders or files.
    of: &'static str,
    /// The folder that holds the nodes of the circle of imports.
    folder: String,
    nodes: Vec<String>,
    edges: Vec<Edge>,
}

struct Edge {
    from: String,
    to: String,
    line: usize,
    path: String,
}

impl Circle {
    fn is_too_large(&self) -> bool {
        self.nodes.len() > CIRCLE_MAX
    }

    fn title(&self) -> String {
        let Self { of, folder, nodes, .. } = self;
        format!(
            "{folder}: circle of {} {of} (at most {CIRCLE_MAX}): {}",
            nodes.len(),
            nodes.join(" ")
        )
    }
}

/// Returns the circles of imports between the folders of a crate, then those between the files of
/// each folder.
fn circles(imports: &Imports) -> Vec<Circle> {
    let mut found = Vec::new();
    let folders: BTreeSet<&str> =
        imports.files.iter().flat_map(|file| folders_above(file)).collect();
    let node = |file: &str| Some(folder_of(&folders, file));
    collect(imports, "folders", "", &node, &mut found);
    for &folder in &folders {
        collect(imports, "files", folder, &|file| child_of(folder, file), &mut found);
    }
    found
}

/// Returns the folders of the crate above `file`, each with a slash at its end. The folder of the
/// crate itself is the empty text.
fn folders_above(file: &str) -> impl Iterator<Item = &str> {
    file.match_indices('/').map(|(at, _)| &file[..=at]).chain([""])
}

/// The folder that a file belongs to. If `a.rs` lies next to the folder `a`, it is the module of
/// that folder and belongs to it.
fn folder_of(folders: &BTreeSet<&str>, file: &str) -> String {
    let own = format!("{}/", file.trim_end_matches(".rs"));
    let above = file.rfind('/').map_or("", |end| &file[..=end]);
    if folders.contains(own.as_str()) { own } else { above.to_owned() }
}

/// Returns the file or folder directly in `folder` that is or contains `file`; `None` for the
/// module of the folder itself.
fn child_of(folder: &str, file: &str) -> Option<String> {
    let rest = file.strip_prefix(folder)?;
    let child = rest.split('/').next()?;
    let is_own = rest == child && ["mod.rs", "lib.rs", "main.rs"].contains(&child);
    // If `a.rs` lies next to the folder `a`, it is the module of that folder, and both are one node
    // of the graph.
    (!is_own).then(|| child.trim_end_matches(".rs").to_owned())
}

fn collect(
    imports: &Imports,
    of: &'static str,
    folder: &str,
    node_of: &dyn Fn(&str) -> Option<String>,
    found: &mut Vec<Circle>,
) {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in imports.edges.keys() {
        if let (Some(from), Some(to)) = (node_of(from), node_of(to)) {
            graph.entry(to.clone()).or_default();
            graph.entry(from).or_default().insert(to);
        }
    }
    for nodes in components(&graph) {
        let is_inside = |file: &str| node_of(file).filter(|node| nodes.contains(node));
        let mut edges = Vec::new();
        for ((from, to), (line, path)) in &imports.edges {
            if let (Some(a), Some(b)) = (is_inside(from), is_inside(to))
                && a != b
            {
                let (from, to, path) = (from.clone(), to.clone(), path.clone());
                edges.push(Edge { from, to, line: *line, path });
            }
        }
        let name = |node: String| if node.is_empty() { "src/".to_owned() } else { node };
        let nodes = nodes.into_iter().map(name).collect();
        found.push(Circle { of, folder: folder.to_owned(), nodes, edges });
    }
}

/// Returns the circles of crates that depend on each other by their Cargo.toml files. Development
/// dependencies do not count.
fn of_crates(tree: &Tree) -> Vec<Vec<String>> {
    let graph = dependencies_of_crates(tree);
    components(&graph).into_iter().map(|circle| circle.into_iter().collect()).collect()
}

/// The strongly connected components of `graph` with at least two nodes, in the order of their
/// first nodes.
fn components(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|node| (node.as_str(), reached(graph, node))).collect();
    let mut found = BTreeSet::new();
    for (&node, others) in &reached {
        let is_back = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(node));
        let circle: BTreeSet<String> =
            others.iter().filter(is_back).map(|&other| other.to_owned()).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// Returns all nodes of the graph of imports that can be reached from `start` by at least one edge.
fn reached<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, start: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&str> = graph.get(start).into_iter().flatten().map(String::as_str).collect();
    while let Some(node) = left.pop() {
        if found.insert(node) {
            left.extend(graph.get(node).into_iter().flatten().map(String::as_str));
        }
    }
    found
}

/// Upper bound of the number of files or folders in one circle of imports.
const CIRCLE_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(samples: &[(&str, &str)]) -> Vec<String> {
        let imports = of_all(&Tree::of(samples)).remove(0);
        circles(&imports).iter().map(Circle::title).collect()
    }

    #[test]
    fn circle_within_folder_leaves_its_module_out() {
        let samples = [
            ("crates/a/src/lib.rs", "pub struct L;\nuse crate::x::X;\n"),
            ("crates/a/src/x.rs", "pub struct X;\nuse crate::{L, y::Y};\n"),
            ("crates/a/src/y.rs", "pub struct Y;\nuse crate::x::X;\n"),
            ("crates/a/src/z.rs", "use crate::{x::X, L};\n"),
        ];
        assert_eq!(titles(&samples), [": circle of 2 files (at most 3): x y"]);
    }

    #[test]
    fn circle_between_folders_is_found() {
        let samples = [
            ("crates/a/src/x/mod.rs", "pub mod one;\n"),
            ("crates/a/src/x/one.rs", "pub struct One;\nuse crate::y::two::Two;\n"),
            ("crates/a/src/y/mod.rs", "pub mod two;\n"),
            ("crates/a/src/y/two.rs", "pub struct Two;\nuse crate::x::one::One;\n"),
        ];
        let found = titles(&samples);
        assert_eq!(found[0], ": circle of 2 folders (at most 3): x/ y/");
        assert_eq!(found[1], ": circle of 2 files (at most 3): x y");
    }

    #[test]
    fn tree_without_circle_has_no_component() {
        let samples = [
            ("crates/a/src/x.rs", "pub struct X;\nuse crate::y::Y;\n"),
            ("crates/a/src/y.rs", "pub struct Y;\n"),
        ];
        assert_eq!(titles(&samples), [""; 0]);
    }

    #[test]
    fn crates_in_a_circle_are_a_finding() {
        let manifest = |name: &str, other: &str| {
            format!("[package]\nname = \"{name}\"\n[dependencies]\n{other}.workspace = true\n")
        };
        let (a, b) = (manifest("a", "b"), manifest("b", "a"));
        let samples = [("crates/a/Cargo.toml", a.as_str()), ("crates/b/Cargo.toml", b.as_str())];
        let found = super::super::findings_of(check, &samples);
        assert_eq!(found, ["Cargo.toml:1: circle: crates depend on each other: a, b"]);
    }
}
