// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table of text columns, in which the benchmark prints its results.
//!
//! The table does *not* know the meaning of its values: `summary.rs`, `detail.rs` and `targets.rs`
//! fill it.

use super::spread::Spread;

/// A table whose cells are text, in aligned columns.
#[derive(Clone, Debug, Default)]
pub struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with the column headings `headings`. The first column is aligned to the left, and
    /// all other columns to the right.
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|&heading| heading.to_owned()).collect()] }
    }

    /// Adds a row of text at the end of the table.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Removes from the table each column that has only dashes, and each column with a heading in
    /// `left_out`.
    pub fn drop_columns(&mut self, left_out: &[&str]) {
        let Some(headings) = self.rows.first() else { return };
        let is_kept = |column: usize, heading: &str| {
            let has_value = |row: &Vec<String>| row.get(column).is_some_and(|cell| *cell != dash());
            !left_out.contains(&heading) && self.rows.iter().skip(1).any(has_value)
        };
        let kept: Vec<bool> =
            headings.iter().enumerate().map(|(column, heading)| is_kept(column, heading)).collect();
        for row in &mut self.rows {
            let mut kept = kept.iter();
            row.retain(|_| kept.next().copied().unwrap_or(true));
        }
    }

    /// All rows of the table, of which the first has the headings.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table as lines of text, with a rule under the headings.
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

/// Formats the median of a ratio, such as `1.04×`; a dash if there is no ratio.
pub fn ratio_name(spread: Option<Spread>) -> String {
    spread.map_or_else(dash, |spread| format!("{:.2}×", spread.median))
}

/// Formats a spread, such as `1.04 [0.99–1.12]`; a dash if there is no spread.
pub fn spread_name(spread: Option<Spread>) -> String {
    let name = |Spread { median, min, max }| format!("{median:.2} [{min:.2}–{max:.2}]");
    spread.map_or_else(dash, name)
}

/// The text that a table shows in place of a missing number.
pub fn dash() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_without_a_number_is_dropped() {
        let mut table = TextTable::new(&["what", "p50", "÷ base", "max"]);
        table.push(vec!["one".into(), dash(), dash(), "2 ns".into()]);
        table.push(vec!["two".into(), "1 ns".into(), dash(), "3 ns".into()]);
        table.drop_columns(&["max"]);
        assert_eq!(table.rows(), [["what", "p50"], ["one", "–"], ["two", "1 ns"]]);
    }

    #[test]
    fn table_as_text_has_aligned_columns() {
        let mut table = TextTable::new(&["what", "ours", "÷ other"]);
        table.push(vec!["there and back (64 B)".into(), "437 ns".into(), "1.04×".into()]);
        table.push(vec!["1 MiB".into(), "92.0 µs".into(), "–".into()]);
        let expected = "\
what                      ours  ÷ other
───────────────────────────────────────
there and back (64 B)   437 ns    1.04×
1 MiB                  92.0 µs        –
";
        assert_eq!(table.to_text(), expected);
    }
}
