// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rule for `spec/constants.tsv`, the table of the specification's fields and constants that
//! other languages generate code from.
//!
//! ```text
//! spec/constants.tsv ─┬─ constants, fields, kinds ─▶ crates/layout: each value equals the code's
//!                     └─ error numbers, codes ─────▶ spec/SPEC.md: each row is in its table
//! ```
//!
//! The table must be complete: each public constant, field of a wire structure and kind of
//! `crates/layout` has a row, and so has each number that SPEC.md lists. The rule evaluates the
//! expressions of the code as text, so it needs no build.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::tree::{File, Tree};

/// Reports rows of `spec/constants.tsv` that differ from the code or the specification, and
/// constants, fields and numbers without a row.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(table) = tree.get(TABLE) else { return };
    let Some(spec) = tree.get(SPEC) else { return };
    let code = Code::read(tree);
    let mut numbers = numbers_of(&spec.text);
    let mut seen = BTreeSet::new();
    let mut met = BTreeSet::new();
    for (index, line) in table.text.lines().enumerate() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let mut report = |advice: String| {
            findings.push(Finding::at(TABLE, index, "constants", advice));
        };
        let cells: Vec<&str> = line.split('\t').collect();
        let [kind, name, of, value, size, section, place] = cells[..] else {
            report("write seven cells, with tabs between them".to_owned());
            continue;
        };
        if !seen.insert((kind, name)) {
            report(format!("`{kind} {name}` has two rows: remove one"));
        }
        if !has_section(&spec.text, section) {
            report(format!("{SPEC} has no section {section}: name the one that defines it"));
        }
        if place != "-" {
            met.insert(place);
            match code.meaning_of(place) {
                Some(found) if (&*found.of, &*found.value, &*found.size) == (of, value, size) => {}
                Some(Meaning { of, value, size }) => report(format!(
                    "`{place}` is {value} ({of}, size {size}) in {LAYOUT}: correct the row or the code"
                )),
                None => report(format!("{LAYOUT} has no `{place}`: correct the last cell")),
            }
            continue;
        }
        let is_constant = kind == "constant";
        if !(of == "u32" || (is_constant && of == "u64")) {
            report(format!("`{kind} {name}` cannot have the type {of}: numbers of lists are u32"));
        }
        if let Some(rows) = numbers.get_mut(section) {
            let title = name.replace('_', " ");
            if rows.remove(&title).as_deref() != Some(value) {
                report(format!("{SPEC} {section} does not list {value} as `{title}`"));
            }
        } else if !spec.text.contains(value) {
            report(format!("{SPEC} does not name {value}"));
        }
    }
    for (section, rows) in numbers {
        for (title, number) in rows {
            let advice = format!("add a row for {number}, `{title}`, of {SPEC} {section}");
            findings.push(Finding::at(TABLE, 0, "constants", advice));
        }
    }
    for place in code.places().filter(|place| !met.contains(place.as_str())) {
        let Meaning { of, value, size } = code.meaning_of(&place).unwrap_or_default();
        let advice =
            format!("add a row for `{place}` of {LAYOUT}: type {of}, value {value}, size {size:?}");
        findings.push(Finding::at(TABLE, 0, "constants", advice));
    }
}

/// The cells of a row in `spec/constants.tsv` whose values the code decides.
#[derive(Default)]
struct Meaning {
    of: String,
    value: String,
    size: String,
}

/// The constants, structures and kinds of the layout crate, each under a path such as
/// `hello::Hello.service`.
struct Code {
    constants: BTreeMap<String, (String, String)>,
    structs: BTreeMap<String, Vec<(String, String)>>,
    kinds: BTreeMap<String, String>,
}

impl Code {
    fn read(tree: &Tree) -> Self {
        let (constants, structs, kinds) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut code = Self { constants, structs, kinds };
        for file in tree.files.iter().filter(|file| file.path.starts_with(LAYOUT)) {
            code.read_file(file);
        }
        code
    }

    fn read_file(&mut self, file: &File) {
        let path = file.path.trim_start_matches(LAYOUT).trim_end_matches(".rs");
        let module = path.replace('/', "::");
        let mut scope = module.clone();
        // Everything after the first unit tests is ignored, because unit tests come last in a file.
        let text = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let mut lines = text.lines();
        let mut is_wire = false;
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("pub mod ").and_then(|it| it.strip_suffix(" {")) {
                scope = format!("{module}::{name}");
            } else if line == "}" {
                scope.clone_from(&module);
            } else if let Some((name, rest)) = constant(line) {
                let mut text = rest.to_owned();
                while !text.ends_with(';') && !text.ends_with('{') {
                    let Some(more) = lines.next() else { break };
                    text.push_str(more.trim());
                }
                if let Some((of, value)) = text.trim_end_matches(';').split_once('=') {
                    let row = (of.trim().to_owned(), value.trim().to_owned());
                    self.constants.insert(format!("{scope}::{name}"), row);
                }
            } else if line.starts_with("#[repr(") {
                is_wire = true;
            } else if let Some(name) = line.strip_prefix("pub struct ").and_then(name_of_braced) {
                let fields = body(&mut lines, |field| {
                    let (name, of) =
                        field.strip_prefix("pub ")?.strip_suffix(',')?.split_once(": ")?;
                    Some((name.to_owned(), of.to_owned()))
                });
                if is_wire {
                    self.structs.insert(format!("{module}::{name}"), fields);
                }
                is_wire = false;
            } else if let Some(name) = line.strip_prefix("pub enum ").and_then(name_of_braced) {
                for (kind, value) in body(&mut lines, |kind| {
                    let (name, value) = kind.strip_suffix(',')?.split_once(" = ")?;
                    Some((name.to_owned(), value.to_owned()))
                }) {
                    self.kinds.insert(format!("{module}::{name}::{kind}"), value);
                }
                is_wire = false;
            }
        }
    }

    /// The paths of all constants, fields and kinds of the layout crate that need a row in
    /// `spec/constants.tsv`.
    fn places(&self) -> impl Iterator<Item = String> {
        let fields = self.structs.iter().flat_map(|(path, fields)| {
            fields.iter().map(move |(field, _)| format!("{path}.{field}"))
        });
        let constants = self.constants.iter();
        // Constants that are texts or structures, and one that is a hash over rules, are left out.
        // This rule reads the code as text, and cannot compute their values.
        let is_number = |of: &str, value: &str| !of.contains("str") && of != "Self" && value != "{";
        let constants = constants.filter(move |(_, (of, value))| is_number(of, value));
        constants.map(|(path, _)| path.clone()).chain(fields).chain(self.kinds.keys().cloned())
    }

    /// Returns what the row of `place` in `spec/constants.tsv` must contain. For a constant this is
    /// the type, the value and an empty text; for a field the type, the offset and the size.
    fn meaning_of(&self, place: &str) -> Option<Meaning> {
        if let Some((path, field)) = place.split_once('.') {
            let mut offset = 0;
            for (name, of) in self.structs.get(path)? {
                let size = self.size_of(of)?;
                if name == field {
                    let of = if name == "text" { "text".to_owned() } else { self.type_of(of)? };
                    let (value, size) = (offset.to_string(), size.to_string());
                    return Some(Meaning { of, value, size });
                }
                offset += size;
            }
            return None;
        }
        if let Some(value) = self.kinds.get(place) {
            // The constants in an enum of `repr(u8)`, such as the kinds of records, have the type
            // `u8` in the table.
            let (of, value) = ("u8".to_owned(), value.clone());
            return Some(Meaning { of, value, size: String::new() });
        }
        let (of, text) = self.constants.get(place)?;
        let value = match text.strip_prefix("*b\"") {
            Some(bytes) => hex(bytes.strip_suffix('"')?)?,
            None => Expression { code: self, place, rest: text }.whole()?.to_string(),
        };
        Some(Meaning { of: self.type_of(of)?, value, size: String::new() })
    }

    /// The name that the table has for a type of the code.
    fn type_of(&self, of: &str) -> Option<String> {
        let name = match of {
            "u8" | "u16" | "u32" | "u64" => of,
            "U16" => "u16",
            "U32" => "u32",
            "U64" | "usize" => "u64",
            _ if of.starts_with("[u8; ") => "bytes",
            _ => match of.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                None => "struct",
                Some(array) => {
                    let (of, count) = array.rsplit_once("; ")?;
                    let count = count.parse().ok().or_else(|| self.number(count, ""))?;
                    return Some(format!("{}[{count}]", self.type_of(of)?));
                }
            },
        };
        Some(name.to_owned())
    }

    fn size_of(&self, of: &str) -> Option<u64> {
        match of {
            "u8" => return Some(1),
            "U16" => return Some(2),
            "U32" => return Some(4),
            "U64" => return Some(8),
            _ => {}
        }
        if let Some((of, count)) = of
            .strip_prefix('[')
            .and_then(|it| it.strip_suffix(']'))
            .and_then(|it| it.rsplit_once("; "))
        {
            let count = count.parse().ok().or_else(|| self.number(count, ""))?;
            return Some(self.size_of(of)? * count);
        }
        let ending = format!("::{of}");
        let (_, fields) = self.structs.iter().find(|(path, _)| path.ends_with(&ending))?;
        fields.iter().map(|(_, of)| self.size_of(of)).sum()
    }

    /// Returns the value of the constant that `name` means in the expression of the constant
    /// `place`.
    fn number(&self, name: &str, place: &str) -> Option<u64> {
        match name {
            "u64::MAX" => return Some(u64::MAX),
            "u32::MAX" => return Some(u32::MAX.into()),
            _ => {}
        }
        let last = name.rsplit("::").next()?;
        let scope = place.rsplit_once("::").map_or("", |(scope, _)| scope);
        let near = format!("{scope}::{last}");
        let ending = format!("::{last}");
        let path = if self.constants.contains_key(&near) {
            &near
        } else {
            self.constants.keys().find(|path| path.ends_with(&ending))?
        };
        let (_, text) = self.constants.get(path)?;
        Expression { code: self, place: path, rest: text }.whole()
    }
}

/// An expression of constants that is being evaluated. It may have numbers, names, sizes of
/// structures, `+ - * / <<` and parentheses.
struct Expression<'a> {
    code: &'a Code,
    place: &'a str,
    rest: &'a str,
}

impl Expression<'_> {
    fn whole(mut self) -> Option<u64> {
        let value = self.shift()?;
        self.rest.trim().is_empty().then_some(value)
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn shift(&mut self) -> Option<u64> {
        let mut value = self.sum()?;
        while self.take("<<") {
            value = value.checked_shl(u32::try_from(self.sum()?).ok()?)?;
        }
        Some(value)
    }

    fn sum(&mut self) -> Option<u64> {
        let mut value = self.product()?;
        loop {
            if self.take("+") {
                value = value.checked_add(self.product()?)?;
            } else if self.take("-") {
                value = value.checked_sub(self.product()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn product(&mut self) -> Option<u64> {
        let mut value = self.atom()?;
        loop {
            if self.take("*") {
                value = value.checked_mul(self.atom()?)?;
            } else if self.take("/") {
                value = value.checked_div(self.atom()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn atom(&mut self) -> Option<u64> {
        if self.take("(") {
            let value = self.shift()?;
            return self.take(")").then_some(value);
        }
        if self.take("size_of::<") {
            let (of, rest) = self.rest.split_once(">()")?;
            self.rest = rest;
            return self.code.size_of(of);
        }
        let text = self.rest.trim_start();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let (name, rest) = text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len()));
        self.rest = rest;
        let digits = name.replace('_', "");
        if let Some(digits) = digits.strip_prefix("0x") {
            return u64::from_str_radix(digits, 16).ok();
        }
        digits.parse().ok().or_else(|| self.code.number(name, self.place))
    }
}

/// Applies `read` to the lines of a struct or enum up to its closing brace, and keeps the results
/// that `read` returns.
fn body<'a, T>(
    lines: &mut impl Iterator<Item = &'a str>,
    read: impl Fn(&str) -> Option<T>,
) -> Vec<T> {
    lines.take_while(|line| *line != "}").filter_map(|line| read(line.trim())).collect()
}

/// Returns the name of the public constant that the line begins, and the rest of the line; `None`
/// if the line begins no such constant.
fn constant(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim_start().strip_prefix("pub const ")?;
    rest.split_once(": ").filter(|(name, _)| is_constant(name))
}

fn name_of_braced(line: &str) -> Option<&str> {
    line.strip_suffix(" {").filter(|name| !name.contains('<'))
}

fn is_constant(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Returns the bytes of a byte string in Rust code as hexadecimal digits.
fn hex(text: &str) -> Option<String> {
    let mut digits = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let byte = match c {
            '\\' => match rest.next()? {
                '0' => 0,
                'x' => u8::from_str_radix(&rest.by_ref().take(2).collect::<String>(), 16).ok()?,
                _ => return None,
            },
            c => u8::try_from(c).ok()?,
        };
        digits.push_str(&format!("{byte:02x}"));
    }
    Some(digits)
}

/// The numbers in the specification's sections that list codes: a map from section to name to
/// number.
fn numbers_of(spec: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut numbers: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut section = "";
    for line in spec.lines() {
        if line.starts_with('#') {
            let title = line.trim_start_matches(['#', ' ']);
            section = title
                .split([' ', '.'])
                .next()
                .map_or("", |_| title.split_once(' ').map_or(title, |(number, _)| number));
        }
        if !LISTS.iter().any(|list| section == *list || section.starts_with(&format!("{list}."))) {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        for pair in cells.windows(2) {
            let [number, name] = pair else { continue };
            if number.parse::<u32>().is_ok() {
                let rows = numbers.entry(section.to_owned()).or_default();
                rows.insert((*name).to_owned(), (*number).to_owned());
            }
        }
    }
    numbers
}

fn has_section(spec: &str, section: &str) -> bool {
    spec.lines().any(|line| {
        let title = line.trim_start_matches('#');
        line.starts_with('#') && title.trim_start().starts_with(&format!("{section} "))
    })
}

const TABLE: &str = "spec/constants.tsv";
const SPEC: &str = "spec/SPEC.md";
const LAYOUT: &str = "crates/layout/src/";
/// The sections of the specification that list numbers with names.
const LISTS: [&str; 4] = ["2.5", "2.6", "9.3", "17"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    const CODE: &str = "\
pub const LINE: u64 = 64 * 2;
pub const FLAG: u64 = 1 << (LINE / 64);
pub const TAG: [u8; 4] = *b\"PW\\0\\x01\";
#[repr(C)]
pub struct Head {
    pub tag: [u8; 4],
    pub zero: [U32; 3],
    pub size: U64,
    pub text: [u8; 6],
}
#[repr(u8)]
pub enum Kind {
    Data = 1,
}
";
    const TEXT: &str = "## 3 Region\n### 9.3 Violations\n| 2 | word | 4.2 |\n";
    const GOOD: &str = "\
# kind\tname\ttype\tvalue\tsize\tsection\tplace
constant\tline\tu64\t128\t\t3\ta::LINE
constant\tflag\tu64\t4\t\t3\ta::FLAG
constant\ttag\tbytes\t50570001\t\t3\ta::TAG
field\thead.tag\tbytes\t0\t4\t3\ta::Head.tag
field\thead.zero\tu32[3]\t4\t12\t3\ta::Head.zero
field\thead.size\tu64\t16\t8\t3\ta::Head.size
field\thead.text\ttext\t24\t6\t3\ta::Head.text
kind\tdata\tu8\t1\t\t3\ta::Kind::Data
violation\tword\tu32\t2\t\t9.3\t-
";

    fn findings(table: &str) -> Vec<String> {
        let samples = [(TABLE, table), (SPEC, TEXT), ("crates/layout/src/a.rs", CODE)];
        findings_of(check, &samples)
    }

    #[test]
    fn table_that_agrees_with_code_and_text_is_accepted() {
        assert_eq!(findings(GOOD), Vec::<String>::new());
    }

    #[test]
    fn each_difference_is_reported() {
        for (from, to, words) in [
            ("line\tu64\t128", "line\tu64\t64", "is 128"),
            ("flag\tu64\t4", "flag\tu64\t2", "is 4"),
            ("50570001", "50570002", "is 50570001"),
            ("head.size\tu64\t16\t8", "head.size\tu64\t20\t8", "is 16"),
            ("zero\tu32[3]\t4\t12", "zero\tu32[3]\t4\t8", "size 12)"),
            ("head.zero\tu32[3]", "head.zero\tu32", "(u32[3]"),
            ("head.text\ttext", "head.text\tbytes", "(text"),
            ("tag\tbytes\t5057", "tag\tu32\t5057", "(bytes"),
            ("data\tu8", "data\tu32", "(u8"),
            ("word\tu32", "word\tu8", "cannot have the type u8"),
            ("data\tu8\t1", "data\tu8\t2", "is 1"),
            ("word\tu32\t2", "word\tu32\t3", "does not list 3"),
            ("\t3\ta::LINE", "\t5\ta::LINE", "no section 5"),
            ("a::LINE", "a::GONE", "has no `a::GONE`"),
            ("head.tag", "head.size", "two rows"),
            ("field\thead.size\tu64\t16\t8\t3\ta::Head.size\n", "", "add a row for `a::Head.size`"),
            ("violation\tword\tu32\t2\t\t9.3\t-\n", "", "add a row for 2, `word`"),
            ("kind\tdata\tu8\t1", "kind data u8 1", "seven cells"),
        ] {
            let found = findings(&GOOD.replacen(from, to, 1)).join("\n");
            assert!(found.contains(words), "{from:?} → {to:?}: {found}");
        }
    }
}
