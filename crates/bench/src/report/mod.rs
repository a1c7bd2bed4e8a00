// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the report of a run: text tables for the terminal, and a directory with JSON, plots and
//! an HTML page.
//!
//! ```text
//! DIR/results.json   {"machine": {…}, "results": [one object per cell]}
//! DIR/report.html    machine, table, plots (inside the page), method
//! DIR/*.svg          the plots of the page, each as a file
//! ```

pub mod bars;
pub mod charts;
pub mod detail;
pub mod json;
pub mod plot;
pub mod summary;
pub mod targets;

use std::fs;
use std::path::Path;
use std::process;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::figure::text_table::TextTable;
use crate::harness::pattern::Touch;
use crate::machine::Machine;
use crate::outcome::Outcome;
use json::Line;

/// The table of a run's results, and the text that follows the table.
pub struct Output {
    /// The table of the run's results.
    pub table: TextTable,
    /// The text that the terminal shows below the table.
    pub notes: String,
}

/// Makes the directory of the report and writes a file into it, so that an error is found before a
/// long measurement.
pub fn prepare(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let probe = directory.join(format!(".partywall-{}", process::id()));
    fs::write(&probe, "")
        .and_then(|()| fs::remove_file(&probe))
        .with_context(|| format!("no file can be written to {}", directory.display()))
}

/// Writes the report of a run to `directory`, which [`prepare`] has made.
pub fn write(
    directory: &Path,
    machine: &Machine,
    lines: &[Line],
    outcomes: &[Outcome],
    output: &Output,
) -> Result<()> {
    let mut plots = Vec::new();
    for (name, chart) in charts::all(outcomes) {
        let svg = chart.to_svg()?;
        save(directory, &format!("{name}.svg"), &svg)?;
        plots.push(svg);
    }
    let results = Results { machine, results: lines };
    let json = serde_json::to_string_pretty(&results).context("writing JSON")?;
    save(directory, "results.json", &json)?;
    save(directory, "report.html", &page(machine, outcomes, output, &plots))
}

/// The content of the file `results.json`.
#[derive(Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    results: &'a [Line],
}

fn page(machine: &Machine, outcomes: &[Outcome], output: &Output, plots: &[String]) -> String {
    let is_untouched = outcomes.iter().any(|o| o.cell.touch == Touch::None);
    let touched = if is_untouched { UNTOUCHED } else { TOUCHED };
    [
        HEAD.to_owned(),
        format!("<p class=\"machine\">{}</p>\n", escaped(&machine.summary())),
        html_table(&output.table),
        format!("<p class=\"notes\">{}</p>\n", escaped(&output.notes)),
        plots.iter().map(|svg| format!("<figure>{svg}</figure>\n")).collect(),
        "<details><summary>Every measurement</summary>\n".to_owned(),
        html_table(&detail::table(outcomes)),
        format!("<p class=\"notes\">{}</p>\n", escaped(&detail::notes(outcomes))),
        "</details>\n".to_owned(),
        METHOD.to_owned(),
        format!("<p>{touched}</p>\n</body>\n</html>\n"),
    ]
    .concat()
}

fn html_table(table: &TextTable) -> String {
    let row = |(index, cells): (usize, &Vec<String>)| {
        let tag = if index == 0 { "th" } else { "td" };
        let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = table.rows().iter().enumerate().map(row).collect();
    format!("<div class=\"wide\"><table>\n{rows}</table></div>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn save(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Partywall, measured</title>
<style>
body { font: 15px/1.5 sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; color: #222; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; }
th, td { padding: .3em .8em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.machine, .notes { color: #555; white-space: pre-line; }
figure { margin: 1.5em 0; }
svg { max-width: 100%; height: auto; }
</style>
</head>
<body>
<h1>Partywall, measured</h1>
"#;

const METHOD: &str = r"<h2>Method</h2>
<p>Two processes, each pinned to its own CPU unless the line above or the row says otherwise. In each round every
combination is measured once on a new connection. Ratios are formed within a round; the median over the rounds is
quoted with the smallest and the largest. Ratios can be compared between machines, absolute times cannot.</p>
<p>Unix sockets, TCP (TCP_NODELAY) and pipes are blocking, with the kernel's default buffers, one write and one
read of known size per message. baseline-spin is the payload and one flag in plain shared memory; baseline-eventfd
is an eventfd, written and read. parallel is many streams on tokio with one message in flight on each: over shared
memory all in one session, over sockets one connection each with a length before each message. rate is open loop
and measured from the intended send time. CPU time is that of all threads of both processes.</p>
";

const TOUCHED: &str = "The sender wrote and the receiver verified each payload byte.";
const UNTOUCHED: &str =
    "<strong>Payloads were neither written nor verified (--touch none).</strong>";
