// SPDX-License-Identifier: MIT OR Apache-2.0
//! The spread of several measured values: their median, the smallest and the largest. The report
//! shows it for numbers that were measured in several rounds.

use serde::Serialize;

/// The median of several measured values, with the smallest and the largest of them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The median of the values; of an even number of values, the mean of the two middle ones.
    pub median: f64,
    /// The smallest of the measured values.
    pub min: f64,
    /// The largest of the measured values.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of those `values` that are finite; `None` if no value is finite.
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

    /// Returns the spread whose median, smallest and largest value are the results of `change` for
    /// those of this spread.
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { median: change(self.median), min: change(self.min), max: change(self.max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_count_is_the_mean_of_the_middle() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread, Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([f64::NAN]), None);
    }
}
