// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is quoted: the ratio of two cells, formed in each round and then the median, with its spread.
//!
//! Two cells of one round are measured within seconds of each other, so what disturbs a machine for longer than that
//! disturbs both. Absolute times of different rounds are *not* compared.

use super::cell::Scenario;
use super::measure::{Round, ratio};
use super::run::Outcome;

/// A median and the smallest and largest value around it.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of any values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let is_odd = sorted.len() % 2 == 1;
        let median =
            if is_odd { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, min, max })
    }

    /// Of the headline number over the rounds of a cell, in nanoseconds.
    pub fn of_headline(outcome: &Outcome) -> Option<Self> {
        Self::of(
            outcome.rounds.iter().flatten().map(|round| headline_ns(outcome.cell.scenario, round)),
        )
    }

    /// Of the ratio of two cells' headline numbers, round by round, where both have one.
    pub fn of_ratio(above: &Outcome, below: &Outcome) -> Option<Self> {
        let rounds = above.rounds.iter().zip(&below.rounds);
        let both = rounds.filter_map(|(a, b)| a.as_ref().zip(b.as_ref()));
        Self::of(both.map(|(a, b)| {
            headline_ns(above.cell.scenario, a) / headline_ns(below.cell.scenario, b)
        }))
    }
}

/// What a scenario is compared by: the median latency of `ping`, the cost per operation of `parallel`.
fn headline_ns(scenario: Scenario, round: &Round) -> f64 {
    match scenario {
        Scenario::Parallel => round.ns_per_op(),
        Scenario::Ping => ratio(round.latency.value_at_quantile(0.5), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread, Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([f64::NAN]), None);
    }
}
