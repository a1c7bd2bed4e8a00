// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output and exit codes of the commands that inspect files and memory: `inspect`, `link inspect`,
//! `shmipc dump`.
//!
//! ```text
//!   inspection ─▶ text or JSON ─▶ stdout     0 sound · 1 UNSOUND · 2 UNREADABLE
//! ```
//! The numbers are the exit codes: what was inspected is sound, is damaged (UNSOUND), or could not
//! be read (UNREADABLE).

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::Serialize;

/// The exit code if the inspected file or shared memory is damaged.
pub const UNSOUND: u8 = 1;
/// The exit code if the file or process to inspect could not be read. Wrong usage of the command
/// has the same code.
pub const UNREADABLE: u8 = 2;

/// Returns the exit code of an inspection. If the inspection failed, its error is printed, and the
/// exit code is 2 ([`UNREADABLE`]). If the command was to print JSON, stdout gets an object with
/// the error.
pub fn conclude(inspected: Result<ExitCode>, is_json: bool) -> ExitCode {
    inspected.unwrap_or_else(|error| {
        let error = line(&format!("{error:#}"));
        eprintln!("partywall: {error}");
        if is_json {
            print_failure(&error);
        }
        UNREADABLE.into()
    })
}

/// Prints the error of a command with `--json` on stdout: a line with an object that has the member
/// `error`.
pub fn print_failure(error: &str) {
    let failure = Failure { version: partywall_bench::VERSION, error };
    // The result of printing on stdout is ignored: if stdout cannot be written, stderr has the
    // error.
    let _ = serde_json::to_string(&failure).is_ok_and(|text| print(&escaped(&text)).is_ok());
}

#[derive(Serialize)]
struct Failure<'a> {
    version: &'static str,
    error: &'a str,
}

/// Makes a name or a reason a part of one line: control characters are escaped, because a terminal
/// executes some of them.
pub fn line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// Prints the text on stdout. A closed pipe is no error, because the reader has seen enough.
///
/// # Errors
/// If stdout cannot be written.
pub fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Formats `whole` as the text of one JSON object, followed by a newline.
///
/// # Errors
/// If `whole` cannot be written as JSON.
pub fn json(whole: &impl Serialize) -> Result<String> {
    Ok(escaped(&serde_json::to_string_pretty(whole).context("writing JSON")?))
}

/// Escapes the control characters in `written`, the text of a JSON object, and ends the text with a
/// newline.
fn escaped(written: &str) -> String {
    let mut text = String::with_capacity(written.len() + 1);
    for character in written.chars() {
        // JSON allows these control characters in a string, but a terminal executes some of them.
        if character.is_control() && character != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            text.push(character);
        }
    }
    text.push('\n');
    text
}

/// Formats an id of 16 bytes as hexadecimal digits.
pub fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Writes the time that has passed since `moment` in words, such as `12 s ago`.
pub fn ago(moment: SystemTime) -> String {
    let seconds = moment.elapsed().unwrap_or(Duration::ZERO).as_secs();
    match seconds {
        0..=119 => format!("{seconds} s ago"),
        120..=7199 => format!("{} min ago", seconds / 60),
        7200..=172_799 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_no_control_character_and_keeps_all_others() {
        assert_eq!(line("a/\u{1b}[2J\u{9b}\n\u{e9}\"'"), "a/\\u{1b}[2J\\u{9b}\\n\u{e9}\"'");
    }

    #[test]
    fn json_has_no_control_character_and_says_the_same() {
        let said = "a\u{1b}[2J\u{7f}\u{9b}31m\u{e9}\n\"\\";
        let text = json(&[said]).unwrap();
        assert!(!text.replace('\n', "").contains(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [said]);
    }
}
