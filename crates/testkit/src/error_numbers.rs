// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of numbers in SPEC.md, and a walk over all variants of an error type.
//!
//! This file uses nothing of the crate `testkit`, so crates on which `testkit` depends can include
//! the file by its path.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// A table of SPEC.md that gives each number one name. The value also records which numbers a test
/// has found in errors.
#[derive(Debug)]
pub struct NumberTable {
    rows: BTreeMap<u32, String>,
    met: BTreeSet<u32>,
}

impl NumberTable {
    /// Reads the tables of the section of SPEC.md with this `heading`, which is given without the
    /// `#` signs.
    ///
    /// A row may hold several pairs of number and name, as in section 9.3.
    ///
    /// # Panics
    /// SPEC.md has no such section, or one of the section's numbers or names occurs twice.
    #[must_use]
    pub fn of_section(heading: &str) -> Self {
        let lines = SPEC.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading);
        let depth = |line: &str| line.bytes().take_while(|byte| *byte == b'#').count();
        let own_depth = lines.clone().next().map(depth).unwrap();
        let rest = lines.skip(1).take_while(|line| depth(line) == 0 || depth(line) > own_depth);
        Self { rows: rows(heading, rest), met: BTreeSet::new() }
    }

    /// Makes a table with a single row: one number and its name.
    #[must_use]
    pub fn of_row(number: u32, name: &str) -> Self {
        Self { rows: BTreeMap::from([(number, name.to_owned())]), met: BTreeSet::new() }
    }

    /// Checks that the tables of another document have the same numbers and names as this table.
    ///
    /// # Panics
    /// A row differs or is missing.
    pub fn assert_same_rows(&self, document: &str) {
        let found = rows("the document", document.lines());
        let differs = |row: &(&u32, &String)| found.get(row.0) != Some(row.1);
        let unlike: Vec<_> = self.rows.iter().filter(differs).collect();
        assert!(unlike.is_empty(), "SPEC.md has other rows than the document: {unlike:?}");
        assert_eq!(found.len(), self.rows.len(), "the document has numbers that SPEC.md has not");
    }

    /// Adds the rows of the table `other`. In each row `base` is added to the number, and `prefix`
    /// is put before the name.
    #[must_use]
    pub fn with(mut self, base: u32, prefix: &str, other: &Self) -> Self {
        for (number, name) in &other.rows {
            let former = self.rows.insert(base + number, format!("{prefix}{name}"));
            assert_eq!(former, None, "the number {} is there twice", base + number);
        }
        self
    }

    /// Returns the numbers of the table, in rising order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.rows.keys().copied()
    }

    /// Checks that the table gives `number` the name `name`, and records that a test has found the
    /// number in an error. `what` names the error in the panic's message.
    ///
    /// # Panics
    /// The table has another name for the number, or none.
    pub fn check(&mut self, what: &str, number: u32, name: &str) {
        let found = self.rows.get(&number).map(String::as_str);
        assert_eq!(
            found,
            Some(name),
            "{what} has the number {number}: add it to the table of SPEC.md"
        );
        self.met.insert(number);
    }

    /// Checks that tests have found each number of the table within `range` in an error.
    ///
    /// # Panics
    /// The table has a number that no error has.
    pub fn assert_all_met(&self, range: RangeInclusive<u32>) {
        let unmet: Vec<_> =
            self.rows.range(range).filter(|(number, _)| !self.met.contains(number)).collect();
        assert!(unmet.is_empty(), "SPEC.md has numbers that no error has: {unmet:?}");
    }
}

/// The pairs of number and name in the tables among the given lines. `title` names the text in
/// messages.
fn rows<'a>(title: &str, lines: impl Iterator<Item = &'a str>) -> BTreeMap<u32, String> {
    let mut rows = BTreeMap::new();
    for line in lines {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        for pair in cells.windows(2) {
            let [number, name] = pair else { continue };
            let Ok(number) = number.parse::<u32>() else { continue };
            assert!(!rows.values().any(|other| other == name), "{title}: {name} is there twice");
            let former = rows.insert(number, (*name).to_owned());
            assert_eq!(former, None, "{title}: the number {number} is there twice");
        }
    }
    assert!(!rows.is_empty(), "{title}: the section has no table of numbers");
    rows
}

/// Compares the numbers of all variants of an error type with those that a table of SPEC.md gives
/// them ([`NumberTable`]).
///
/// The caller lists each variant with a sample value and the name of its number. If the list lacks
/// a variant, the call does not compile; so only the crate that defines the type can make the call.
#[macro_export]
macro_rules! walk_variants {
    ($table:expr, $code:expr, $error:ty { $($variant:ident = $sample:expr => $name:expr),+ $(,)? }) => {{
        type Walked = $error;
        let name_of = |error: &Walked| match error {
            $(Walked::$variant { .. } => stringify!($variant),)+
        };
        let samples: Vec<(&str, Walked, &str)> = vec![$((stringify!($variant), $sample, $name)),+];
        for (variant, sample, name) in &samples {
            assert_eq!(name_of(sample), *variant, "a sample of another variant");
            $table.check(&format!("{}::{variant}", stringify!($error)), ($code)(sample), name);
        }
    }};
}

/// The text of the specification, from which the tables are read.
const SPEC: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/SPEC.md"));
