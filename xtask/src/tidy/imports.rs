// SPDX-License-Identifier: MIT OR Apache-2.0
//! The imports of a crate: which of its files names items of which other file.
//!
//! ```text
//! transport/mod.rs   pub use shm::Sender;               a re-export
//! channel.rs         use crate::transport::Sender;      channel.rs ──▶ transport/shm.rs
//! ```
//! This file reads whole use-trees (nested braces, globs, renames, `crate::`, `self::`, `super::`)
//! and the paths written in code. A path is followed through all re-exports to the file that
//! defines its item. A module that only re-exports an item gets no edge. Code that only tests
//! compile is left out. Types and macros are not understood: a method call names no file.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Line;
use crate::tree::Tree;

/// The modules of one crate's sources, and which file imports from which.
pub struct Imports {
    /// Directory of the crate's sources, such as `crates/ring/src/`.
    pub root: String,
    /// Paths of the crate's files, relative to `root`, without those that only tests compile.
    pub files: Vec<String>,
    /// The imports, by importing and imported file. The value is the first reason for the import:
    /// its line (counted from 0) and the imported path.
    pub edges: BTreeMap<(String, String), (usize, String)>,
}

/// Returns the imports of every crate in `crates/`, and of xtask.
pub fn of_all(tree: &Tree) -> Vec<Imports> {
    Definitions::of_all(tree).iter().map(|definitions| definitions.0.imports()).collect()
}

/// The files in which the items of one crate are defined.
pub struct Definitions(Crate);

impl Definitions {
    /// Reads the sources of every crate in `crates/`, and of xtask. Returns one value for each
    /// crate.
    pub fn of_all(tree: &Tree) -> Vec<Self> {
        roots(tree).iter().map(|root| Self(Crate::read(tree, root))).collect()
    }

    /// Directory of the crate's sources, such as `crates/ring/src/`.
    pub fn root(&self) -> &str {
        &self.0.root
    }

    /// Returns the file that defines the item which the code of `file` calls `name`. Returns `None`
    /// if only tests compile `file`.
    pub fn home_of(&self, file: &str, name: &str) -> Option<String> {
        let module = module_of(file);
        self.0.modules.contains_key(&module).then_some(())?;
        match self.0.resolve(&module, &[name.to_owned()], DEPTH_MAX) {
            Some(Target::Item(home)) => Some(home),
            Some(Target::Module(_)) | None => Some(file.to_owned()),
        }
    }
}

fn roots(tree: &Tree) -> BTreeSet<String> {
    let mut roots = BTreeSet::new();
    for (path, _) in tree.rust() {
        let parts: Vec<&str> = path.split('/').collect();
        match parts[..] {
            ["crates", name, "src", ..] => roots.insert(format!("crates/{name}/src/")),
            ["xtask", "src", ..] => roots.insert("xtask/src/".to_owned()),
            _ => continue,
        };
    }
    roots
}

type Path = Vec<String>;

/// A name that a `use` brings into a module.
#[derive(Clone, Debug)]
struct Import {
    path: Path,
    /// The name that the module uses for the import; `None` for a glob.
    alias: Option<String>,
    line: usize,
}

/// A module of the crate; an inline module belongs to the file that contains it.
#[derive(Debug, Default)]
struct Module {
    file: String,
    imports: Vec<Import>,
    /// Paths that are written in the module's code, each with the index of its line.
    paths: Vec<(Path, usize)>,
    /// Names of the items that the file defines directly in this module.
    items: BTreeSet<String>,
}

struct Crate {
    root: String,
    modules: BTreeMap<Path, Module>,
}

impl Crate {
    fn read(tree: &Tree, root: &str) -> Self {
        let mut found = Crate { root: root.to_owned(), modules: BTreeMap::new() };
        let mut tests = Vec::new();
        for (path, source) in tree.rust() {
            let Some(file) = path.strip_prefix(root) else { continue };
            let tokens = tokens(&source.lines);
            Reader { tokens: &tokens, at: 0, file, found: &mut found, tests: &mut tests }
                .module(&module_of(file));
        }
        found.modules.retain(|path, _| !tests.iter().any(|test: &Path| path.starts_with(test)));
        found
    }

    fn imports(&self) -> Imports {
        let mut edges = BTreeMap::new();
        for (path, module) in &self.modules {
            let named = module.imports.iter().map(|import| (&import.path, import.line, true));
            let written = module.paths.iter().map(|(path, line)| (path, *line, false));
            for (named, line, is_import) in named.chain(written) {
                let target = self.resolve(path, named, DEPTH_MAX);
                let Some(target) = target.or_else(|| self.defined_by_macro(path, named)) else {
                    continue;
                };
                let file = match &target {
                    Target::Item(file) => file,
                    // A `use` that names a module adds no edge to the module's file. The importing
                    // file uses the module's items by longer paths, and those paths add the edges.
                    Target::Module(_) if is_import => continue,
                    Target::Module(target) => &self.modules[target].file,
                };
                if *file != module.file {
                    let edge = (module.file.clone(), file.clone());
                    edges.entry(edge).or_insert_with(|| (line, named.join("::")));
                }
            }
        }
        let files: BTreeSet<String> = self.modules.values().map(|m| m.file.clone()).collect();
        Imports { root: self.root.clone(), files: files.into_iter().collect(), edges }
    }

    /// Returns the module in which `path` looks for its item, if the module exists but the scanner
    /// finds no definition of the item there. A macro must then define the item.
    fn defined_by_macro(&self, module: &[String], path: &[String]) -> Option<Target> {
        if !["crate", "self", "super"].contains(&path.first()?.as_str()) {
            return None;
        }
        match self.resolve(module, path.split_last()?.1, DEPTH_MAX)? {
            Target::Module(module) => Some(Target::Item(self.modules[&module].file.clone())),
            item @ Target::Item(_) => Some(item),
        }
    }

    /// Returns the module or the item to which `path` leads, if it is written in `module`; `None`
    /// if the target is outside this crate.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Target> {
        let depth = depth.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.descend(&[], rest, depth),
            "self" => self.descend(module, rest, depth),
            "super" => self.descend(module.split_last()?.1, rest, depth),
            _ => self.descend(module, path, depth),
        }
    }

    fn descend(&self, module: &[String], path: &[String], depth: usize) -> Option<Target> {
        let Some((name, rest)) = path.split_first() else {
            return self.modules.contains_key(module).then(|| Target::Module(module.to_vec()));
        };
        if name == "super" {
            return self.descend(module.split_last()?.1, rest, depth);
        }
        if name == "self" {
            return self.descend(module, rest, depth);
        }
        let mut child = module.to_vec();
        child.push(name.clone());
        if self.modules.contains_key(&child) {
            return self.descend(&child, rest, depth);
        }
        let here = self.modules.get(module)?;
        if here.items.contains(name) {
            return Some(Target::Item(here.file.clone()));
        }
        for import in &here.imports {
            let target = match &import.alias {
                Some(alias) if alias == name => self.resolve(module, &import.path, depth),
                Some(_) => continue,
                None => {
                    let mut path = import.path.clone();
                    path.push(name.clone());
                    self.resolve(module, &path, depth)
                }
            };
            match target {
                Some(Target::Module(module)) => return self.descend(&module, rest, depth),
                Some(item) => return Some(item),
                None => {}
            }
        }
        None
    }
}

enum Target {
    Module(Path),
    /// An item of the crate, represented by the file that defines it.
    Item(String),
}

/// The path of the module that `file` contains: both `a/mod.rs` and `a.rs` contain the module `a`.
fn module_of(file: &str) -> Path {
    let mut parts: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let is_root = parts.last().is_some_and(|last| last == "mod")
        || (parts.len() == 1 && ["lib", "main"].contains(&parts[0].as_str()));
    if is_root {
        parts.pop();
    }
    parts
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
}

/// Splits code into tokens: words, `::`, and other marks, each of one character.
fn tokens(lines: &[Line]) -> Vec<Token> {
    let mut found = Vec::new();
    for (line, text) in lines.iter().enumerate() {
        let chars: Vec<char> = text.code.chars().collect();
        let mut at = 0;
        while let Some(&c) = chars.get(at) {
            let end = if is_word(c) {
                at + chars[at..].iter().take_while(|&&c| is_word(c)).count()
            } else if c == ':' && chars.get(at + 1) == Some(&':') {
                at + 2
            } else {
                at + 1
            };
            let token: String = chars[at..end].iter().collect();
            if !c.is_whitespace() {
                // This reader splits a name such as `r#type` into `r`, `#` and `type`. No module of
                // this project has such a name.
                found.push(Token { text: token, line });
            }
            at = end;
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Collects the modules of one file, with their items and imports, from the file's tokens.
struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    file: &'a str,
    found: &'a mut Crate,
    /// Paths of the modules that only tests compile.
    tests: &'a mut Vec<Path>,
}

impl Reader<'_> {
    fn text(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text.as_str())
    }

    fn is_name(&self, ahead: usize) -> bool {
        self.text(ahead).chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
    }

    /// Reads the tokens of the module at `path`, up to the brace that ends it or to the end of the
    /// file.
    fn module(&mut self, path: &[String]) {
        let mut module = Module { file: self.file.to_owned(), ..Module::default() };
        let mut depth = 0_usize;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "#" if self.is_test_attribute() => {
                    self.skip_attribute();
                    self.skip_item(path);
                }
                "#" if self.text(1) == "[" => self.skip_attribute(),
                "use" => self.import(&mut module),
                "mod" if self.is_name(1) && self.text(2) == "{" => {
                    let mut inner = path.to_vec();
                    inner.push(self.text(1).to_owned());
                    self.at += 3;
                    self.module(&inner);
                }
                "{" => {
                    depth += 1;
                    self.at += 1;
                }
                "}" if depth == 0 => {
                    self.at += 1;
                    break;
                }
                "}" => {
                    depth -= 1;
                    self.at += 1;
                }
                _ if self.is_name(0) => self.name(&mut module, depth),
                _ => self.at += 1,
            }
        }
        self.found.modules.insert(path.to_vec(), module);
    }

    /// Reads a word outside of `use`. The word begins a definition or a path, or is ignored.
    fn name(&mut self, module: &mut Module, depth: usize) {
        if depth == 0 && DEFINES.contains(&self.text(0)) && self.is_name(1) {
            module.items.insert(self.text(1).to_owned());
        }
        if self.text(0) == "macro_rules" && self.text(1) == "!" {
            module.items.insert(self.text(2).to_owned());
        }
        let line = self.tokens[self.at].line;
        let mut path = vec![self.text(0).to_owned()];
        self.at += 1;
        while self.text(0) == "::" && self.is_name(1) {
            path.push(self.text(1).to_owned());
            self.at += 2;
        }
        if path.len() > 1 {
            module.paths.push((path, line));
        }
    }

    /// Reads a `use` declaration, up to its semicolon.
    fn import(&mut self, module: &mut Module) {
        self.at += 1;
        if self.text(0) == "<" {
            return; // not an import: `impl Trait + use<'a>`
        }
        self.tree(&[], module);
        while !["", ";"].contains(&self.text(0)) {
            self.at += 1;
        }
    }

    fn tree(&mut self, prefix: &[String], module: &mut Module) {
        let mut path = prefix.to_vec();
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        loop {
            match self.text(0) {
                "::" => self.at += 1,
                "*" => {
                    self.at += 1;
                    module.imports.push(Import { path, alias: None, line });
                    return;
                }
                "{" => {
                    self.at += 1;
                    while !["", "}"].contains(&self.text(0)) {
                        self.tree(&path, module);
                        if self.text(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "as" => {
                    let alias = Some(self.text(1).to_owned());
                    self.at += 2;
                    module.imports.push(Import { path, alias, line });
                    return;
                }
                "self" if !path.is_empty() => self.at += 1,
                _ if self.is_name(0) => {
                    path.push(self.text(0).to_owned());
                    self.at += 1;
                }
                _ => {
                    let alias = path.last().cloned();
                    module.imports.push(Import { path, alias, line });
                    if !["", ",", "}", ";"].contains(&self.text(0)) {
                        self.at += 1;
                    }
                    return;
                }
            }
        }
    }

    /// Whether the next tokens are an attribute `#[cfg(…)]` that contains `test` and does not
    /// contain `not(test)`.
    fn is_test_attribute(&self) -> bool {
        if self.text(1) != "[" || self.text(2) != "cfg" {
            return false;
        }
        let end = (0..).find(|&ahead| ["]", ""].contains(&self.text(ahead))).unwrap_or(0);
        let word = |ahead: &usize| self.text(*ahead) == "test" && self.text(ahead - 2) != "not";
        (3..end).any(|ahead| word(&ahead))
    }

    fn skip_attribute(&mut self) {
        let mut brackets = 0_usize;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "[" => brackets += 1,
                "]" if brackets == 1 => {
                    self.at += 1;
                    return;
                }
                "]" => brackets -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Skips an item that only tests compile; if it is a module, its path is added to `tests`.
    fn skip_item(&mut self, path: &[String]) {
        let mut braces = 0_usize;
        let mut nesting = 0_usize;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "mod" if braces == 0 && self.is_name(1) => {
                    let mut module = path.to_vec();
                    module.push(self.text(1).to_owned());
                    self.tests.push(module);
                }
                "(" | "[" => nesting += 1,
                ")" | "]" if nesting == 0 && braces == 0 => return, // an argument or an element
                ")" | "]" => nesting = nesting.saturating_sub(1),
                "{" => braces += 1,
                "}" if braces == 0 => return,
                "}" if braces == 1 => {
                    self.at += 1;
                    return;
                }
                "}" => braces -= 1,
                ";" | "," if braces == 0 && nesting == 0 => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
    }
}

const DEFINES: [&str; 9] =
    ["struct", "enum", "union", "trait", "fn", "type", "const", "static", "macro"];

/// Upper bound of the re-exports that are followed one after the other.
const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(samples: &[(&str, &str)]) -> Vec<String> {
        let samples: Vec<(String, &str)> =
            samples.iter().map(|(path, text)| (format!("crates/a/src/{path}"), *text)).collect();
        let samples: Vec<(&str, &str)> =
            samples.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let imports = of_all(&Tree::of(&samples)).remove(0);
        imports.edges.keys().map(|(from, to)| format!("{from} > {to}")).collect()
    }

    #[test]
    fn use_tree_nested_is_read_whole() {
        let lib = "mod b;\nmod c;\nmod d;\n";
        let b = "use crate::{c::{One, sub::Two as Three}, d::*};\nstruct B;\n";
        let c = "pub struct One;\npub mod sub { pub struct Two; }\n";
        let found = edges(&[("lib.rs", lib), ("b.rs", b), ("c.rs", c), ("d.rs", "pub struct X;")]);
        assert_eq!(found, ["b.rs > c.rs"]);
    }

    #[test]
    fn reexport_is_followed_to_its_definition() {
        let facade = "mod shm;\npub use shm::Sender;\npub use self::shm::*;\n";
        let shm = "pub struct Sender;\npub struct Receiver;\n";
        let user = "use super::transport::{Receiver, Sender as S};\n";
        let samples = [("transport/mod.rs", facade), ("transport/shm.rs", shm), ("user.rs", user)];
        assert_eq!(
            edges(&samples),
            ["transport/mod.rs > transport/shm.rs", "user.rs > transport/shm.rs"]
        );
    }

    #[test]
    fn path_in_code_is_an_import() {
        let a =
            "fn f() { crate::b::g(); b::h(); other::i(); }\nmod inner { fn j() { super::f() } }\n";
        let found = edges(&[("lib.rs", "use crate::b;\n"), ("a.rs", a), ("b.rs", "pub fn g() {}")]);
        assert_eq!(found, ["a.rs > b.rs"]);
        let imported = "use crate::b;\nfn f() { b::g(); }\n";
        let found = edges(&[("lib.rs", ""), ("a.rs", imported), ("b.rs", "pub fn g() {}")]);
        assert_eq!(found, ["a.rs > b.rs"]);
    }

    #[test]
    fn test_code_is_left_out() {
        let a = "#[cfg(test)]\nuse crate::b::B;\n#[cfg(test)]\nmod tests;\n\
                 #[cfg(all(test, shuttle))]\nmod models { use crate::b::B; }\n\
                 #[cfg(not(test))]\nuse crate::c::C;\n";
        let samples = [
            ("a.rs", a),
            ("a/tests.rs", "use crate::b::B;\n"),
            ("b.rs", "pub struct B;"),
            ("c.rs", "pub struct C;"),
        ];
        assert_eq!(edges(&samples), ["a.rs > c.rs"]);
    }
}
