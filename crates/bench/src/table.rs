// SPDX-License-Identifier: MIT OR Apache-2.0
//! Columns of text, and numbers as people read them.
//!
//! It does *not* know what the numbers mean; that is `summary.rs`, `detail.rs` and `targets.rs`.

use super::spread::Spread;

/// A table in the making.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings; the first column is for words, the others are for numbers.
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|&heading| heading.to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Headings and rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table as text: words to the left, numbers to the right, a rule under the headings.
    pub fn to_text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(|column| self.width(column)).collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let gap = widths[column] - cell.chars().count();
                let (before, after) = if column == 0 { (0, gap) } else { (gap + 2, 0) };
                line.extend([&" ".repeat(before), cell, &" ".repeat(after)].map(String::as_str));
            }
            text.push_str(line.trim_end());
            text.push('\n');
            if index == 0 {
                let width = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
                text.push_str(&"─".repeat(width));
                text.push('\n');
            }
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

/// `437 ns`, `7.15 µs`, `1.29 ms`, `2.10 s`.
pub fn time_name(ns: f64) -> String {
    scaled(ns, &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// `950 /s`, `12.3 k/s`, `4.60 M/s`.
pub fn rate_name(per_second: f64) -> String {
    scaled(per_second, &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9)])
}

/// `12.0 KiB`, `1.30 MiB`.
pub fn bytes_name(bytes: f64) -> String {
    scaled(bytes, &[("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)])
}

/// `6.12 GB/s` (decimal, as memory bandwidth is quoted).
pub fn bandwidth_name(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, &[("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)])
}

/// `1.04×`, or a dash.
pub fn ratio_name(spread: Option<Spread>) -> String {
    spread.map_or_else(dash, |spread| format!("{:.2}×", spread.median))
}

/// `1.04 [0.99–1.12]`, or a dash.
pub fn spread_name(spread: Option<Spread>) -> String {
    let name = |Spread { median, min, max }| format!("{median:.2} [{min:.2}–{max:.2}]");
    spread.map_or_else(dash, name)
}

/// What stands where there is no number.
pub fn dash() -> String {
    "–".to_owned()
}

/// Three significant digits in the largest unit that leaves at least 1.
fn scaled(number: f64, units: &[(&str, f64)]) -> String {
    let fitting = units.iter().rev().find(|(_, factor)| number >= *factor * 0.9995);
    let Some(&(name, factor)) = fitting.or(units.first()) else { return dash() };
    let value = number / factor;
    let decimals = match value {
        v if v >= 99.95 || factor <= 1.0 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(time_name(285.4), "285 ns");
        assert_eq!(time_name(999.9), "1.00 µs");
        assert_eq!(time_name(7_150.0), "7.15 µs");
        assert_eq!(time_name(1_290_000.0), "1.29 ms");
        assert_eq!(rate_name(48_000_000.0), "48.0 M/s");
        assert_eq!(bandwidth_name(6_123_000_000.0), "6.12 GB/s");
        assert_eq!(bytes_name(196_608.0), "192 KiB");
        assert_eq!(time_name(0.0), "0 ns");
    }

    #[test]
    fn a_table_lines_up() {
        let mut table = Table::new(&["what", "ours", "÷ floor"]);
        table.push(vec!["there and back (64 B)".into(), "437 ns".into(), "1.04×".into()]);
        table.push(vec!["1 MiB".into(), "92.0 µs".into(), "–".into()]);
        let expected = "\
what                      ours  ÷ floor
───────────────────────────────────────
there and back (64 B)   437 ns    1.04×
1 MiB                  92.0 µs        –
";
        assert_eq!(table.to_text(), expected);
    }
}
