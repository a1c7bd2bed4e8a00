// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is quoted: the ratio of two cells, formed in each round and then the median, with its spread.
//!
//! Two cells of one round are measured within seconds of each other, so what disturbs a machine for longer than that
//! disturbs both. Absolute times of different rounds are *not* compared.

use super::cell::Scenario;
use super::measure::{Round, ratio};
use super::run::Outcome;
use super::spread::Spread;

impl Spread {
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
