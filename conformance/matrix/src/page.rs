// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of the guide that shows the results of a whole run. The page has no times or dates, so
//! two runs with the same results write the same page.

use std::fmt::Write;
use std::fs;

use crate::causes::CAUSES;
use crate::plan::{KINDS, Outcome, TRANSPORTS};
use crate::roster::{FEATURES, Roster, reason_of_lack};

/// Writes the page of a run in which no pair failed.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &str, roster: &Roster, outcomes: &[Outcome]) -> Result<(), String> {
    let text = [HEAD, &features(roster), PAIRS, &pairs(roster, outcomes), NUMBERS, &numbers()];
    fs::write(path, text.concat()).map_err(|error| format!("cannot write {path}: {error}"))
}

/// Returns a table of the features of each language, with the reason for each that it lacks.
fn features(roster: &Roster) -> String {
    let mut text = table(&[&["language"], &FEATURES[..]].concat());
    for program in &roster.programs {
        let cells = FEATURES.map(|feature| match reason_of_lack(&program.language, feature) {
            None => "yes".to_owned(),
            Some(reason) => format!("no: {reason}"),
        });
        row(&mut text, &program.language, &cells);
    }
    text
}

/// Returns a table of all pairs that shows how many tasks each pair has passed.
fn pairs(roster: &Roster, outcomes: &[Outcome]) -> String {
    let languages: Vec<&str> = roster.programs.iter().map(|it| it.language.as_str()).collect();
    let mut text = table(&[&["server ╲ client"], &languages[..]].concat());
    for server in &languages {
        let cells: Vec<String> =
            languages.iter().map(|client| cell(server, client, outcomes)).collect();
        row(&mut text, server, &cells);
    }
    text
}

/// Returns a cell of the table of pairs: the kinds of exchange that a pair has passed over every
/// transport.
fn cell(server: &str, client: &str, outcomes: &[Outcome]) -> String {
    let own = || outcomes.iter().filter(|it| it.server == server && it.client == client);
    let over = |kind: &str| own().filter(|it| it.kind == kind && it.result.is_ok()).count();
    let passed = KINDS.into_iter().filter(|kind| over(kind) == TRANSPORTS.len());
    passed.collect::<Vec<_>>().join(", ")
}

fn numbers() -> String {
    let mut text = table(&["cause", "what the client does", "number"]);
    for cause in CAUSES {
        row(&mut text, cause.name, &[cause.what.to_owned(), cause.number.to_string()]);
    }
    text
}

fn table(headings: &[&str]) -> String {
    format!("| {} |\n|{}\n", headings.join(" | "), "---|".repeat(headings.len()))
}

fn row(text: &mut String, first: &str, cells: &[String]) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "| {first} | {} |", cells.join(" | "));
}

const HEAD: &str = "\
# Every language against every other

This page is written by `cargo xtask matrix`, which starts a program of each language as server and
one of each language as client, in all pairs, over shared memory, Unix sockets and TCP. A page is
written only if every pair has passed. A short form is a stage of `cargo xtask test`.

";

const PAIRS: &str = "
## Pairs

Each word stands for a task that the pair has passed over each of the three transports:

- `channel`, `session`, `link`: messages of 0, 1, 47, 48, 4095, 4096, 65535 and 65536 bytes, 1 MiB
  and 8 MiB there and back, over a session on two streams at once. Both ends check every byte
  against a pattern, which each language makes by itself.
- `chain`: 2,000 messages there and back over a link, eight of them under way, while one end is
  killed by `kill -9` and started again; once the server, once the client. No message is lost, and
  none takes effect twice.
- `errors`: the causes below, each of which gives the same number in each language.

";

const NUMBERS: &str = "
## Numbers of errors

Three of these causes need a Unix socket, and are left out over TCP.

";

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(kind: &'static str, transport: &'static str, result: Result<(), String>) -> Outcome {
        Outcome { server: "C".to_owned(), client: "Go".to_owned(), kind, transport, result }
    }

    #[test]
    fn task_is_named_only_if_it_passed_over_each_transport() {
        let passed = |kind| TRANSPORTS.map(|transport| outcome(kind, transport, Ok(())));
        let mut outcomes: Vec<Outcome> = passed("channel").into_iter().collect();
        outcomes.extend(passed("errors"));
        outcomes.push(outcome("link", "tcp", Ok(())));
        assert_eq!(cell("C", "Go", &outcomes), "channel, errors");
        outcomes[0].result = Err("a message is wrong".to_owned());
        assert_eq!(cell("C", "Go", &outcomes), "errors");
        assert_eq!(cell("Go", "C", &outcomes), "");
    }

    #[test]
    fn table_has_a_line_below_its_headings() {
        assert_eq!(table(&["a", "b"]), "| a | b |\n|---|---|\n");
        assert_eq!(numbers().lines().count(), 2 + CAUSES.len());
    }
}
