// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Bar`: a row of `targets.tsv`, the table of this project's targets. `bench targets` and
//! `bench-peers targets` measure the numbers; this file holds no measurement.
//!
//! ```text
//! program │ target │ bar: must hold │ aim: wanted │ why it is not measured
//! ```

use std::fmt;

/// One target of this project: a number that the benchmark measures, and the bounds that it has to
/// meet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bar {
    /// The program that prints the target: `bench` or `bench-peers`.
    pub program: &'static str,
    /// The name of the target, which describes the measured number.
    pub name: &'static str,
    /// The bound that the measured number must meet.
    pub bar: Limit,
    /// The stricter bound that the measured number should meet, if there is one.
    pub aim: Option<Limit>,
    /// The reason why the program does not measure the number; `None` if the program measures the
    /// number.
    pub obstacle: Option<&'static str>,
}

/// A bound for the measured number of a target.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    /// The measured number must not exceed this value.
    AtMost(f64),
    /// The measured number must not fall below this value.
    AtLeast(f64),
}

impl Bar {
    /// The rows of the table of targets that concern `program`, one of the programs that print
    /// measured ratios beside their bars.
    pub fn of_program(program: &str) -> Vec<Self> {
        rows().filter_map(Self::parse).filter(|bar| bar.program == program).collect()
    }

    fn parse(line: &'static str) -> Option<Self> {
        let mut columns = line.split('\t');
        let (program, name) = (columns.next()?, columns.next()?);
        let (bar, aim) = (Limit::parse(columns.next()?)?, columns.next()?);
        let obstacle = columns.next().filter(|why| !why.is_empty());
        let aim = if aim == "-" { None } else { Some(Limit::parse(aim)?) };
        Some(Self { program, name, bar, aim, obstacle })
    }
}

impl Limit {
    /// Whether the measured number `number` meets this bound.
    pub fn holds(self, number: f64) -> bool {
        match self {
            Self::AtMost(limit) => number <= limit,
            Self::AtLeast(limit) => number >= limit,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (sign, number) = text.split_once(' ')?;
        let number = number.parse().ok()?;
        match sign {
            "≤" => Some(Self::AtMost(number)),
            "≥" => Some(Self::AtLeast(number)),
            _ => None,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
            Self::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

/// The lines of `targets.tsv`, the table of targets, without its comments.
fn rows() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.starts_with('#'))
}

const TABLE: &str = include_str!("../../targets.tsv");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_a_target_of_one_of_the_two_programs() {
        let all: Vec<Bar> = rows().map(|row| Bar::parse(row).expect(row)).collect();
        for (index, bar) in all.iter().enumerate() {
            assert!(["bench", "bench-peers"].contains(&bar.program), "{bar:?}");
            assert!(all[..index].iter().all(|other| other.name != bar.name), "{bar:?} twice");
        }
        assert!(!Bar::of_program("bench").is_empty());
    }

    #[test]
    fn limit_holds_on_its_side_and_at_the_edge() {
        assert!(Limit::AtMost(1.3).holds(1.3) && !Limit::AtMost(1.3).holds(1.31));
        assert!(Limit::AtLeast(0.9).holds(0.9) && !Limit::AtLeast(0.9).holds(0.89));
        assert!(!Limit::AtLeast(0.9).holds(f64::NAN));
        assert_eq!(Limit::parse("≤ 1.05"), Some(Limit::AtMost(1.05)));
        assert_eq!(Limit::parse("1.05"), None);
    }
}
