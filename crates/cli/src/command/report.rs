// SPDX-License-Identifier: MIT OR Apache-2.0
//! What commands have in common that look into what others left, and tell: `link inspect`, `shmipc dump`.
//!
//! ```text
//!   look ─▶ text, or JSON ─▶ standard output     0 sound · 1 UNSOUND · 2 UNREADABLE
//! ```

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

/// Something was looked at, and is not as it should be.
pub const UNSOUND: u8 = 1;
/// Nothing could be looked at; wrong usage, too.
pub const UNREADABLE: u8 = 2;

/// The exit code of a look, and the error if there was one.
pub fn conclude(looked: Result<ExitCode>) -> ExitCode {
    looked.unwrap_or_else(|error| {
        eprintln!("partywall: {error:#}");
        UNREADABLE.into()
    })
}

/// Prints it. One who reads no further has seen enough.
///
/// # Errors
/// Standard output cannot be written.
pub fn tell(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// One JSON object, and a line's end.
///
/// # Errors
/// It cannot be written as JSON.
pub fn json(whole: &impl Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(whole).context("writing JSON")?;
    text.push('\n');
    Ok(text)
}
