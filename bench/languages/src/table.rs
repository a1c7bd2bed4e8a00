// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of results of all languages, and the machine and the git commit that were measured.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::series::{Series, TASKS};

/// Returns the table of results, and below it a sentence about the run.
pub fn of(languages: &[(String, Vec<Series>)], rounds: usize) -> String {
    let titles = TASKS.iter().map(|task| task.title).collect::<Vec<_>>().join(" | ");
    let mut text = format!("| language | {titles} |\n|{}\n", "---|".repeat(TASKS.len() + 1));
    for (language, series) in languages {
        let cells = series.iter().map(cell).collect::<Vec<_>>().join(" | ");
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "| {language} | {cells} |");
    }
    let _ = write!(
        text,
        "\nEach cell: time over shared memory ÷ time over the language's own Unix socket, as the median of\n\
         {rounds} interleaved rounds (least–greatest), and the median time over shared memory. Both copy each\n\
         message into memory of the receiver. {}.\n",
        machine()
    );
    text
}

fn cell(series: &Series) -> String {
    let ratio = series.ratio();
    let time = time(series.ours_ns());
    format!("**{:.2}** ({:.2}–{:.2}), {time}", ratio.median, ratio.least, ratio.greatest)
}

fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        short if short < 1000.0 => format!("{short:.0} ns"),
        long => format!("{:.1} µs", long / 1000.0),
    }
}

/// Returns a text with the measured git commit, the processor and the kernel.
fn machine() -> String {
    let unknown = || "unknown".to_owned();
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit = output.map_or_else(|_| unknown(), |it| String::from_utf8_lossy(&it.stdout).into());
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processors.lines().find_map(|line| line.strip_prefix("model name"));
    let name = name.map_or_else(unknown, |it| it.trim_start_matches([' ', '\t', ':']).to_owned());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_else(|_| unknown());
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = kernel.split(['-', '+', '\n']).next().unwrap_or_default();
    let commit = commit.trim();
    format!("Commit {commit}, {count} × {name},\nLinux {kernel}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_has_a_unit_that_fits() {
        assert_eq!(time(63.4), "63 ns");
        assert_eq!(time(12_345.0), "12.3 µs");
    }
}
