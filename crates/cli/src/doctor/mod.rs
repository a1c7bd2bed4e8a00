// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall doctor`: what this machine allows, and what to do where it stands in the way.
//!
//! ```text
//!   kernel.rs  version, features        memory.rs  limits of memory, files and mappings
//!   cpu.rs     cores, quota, spinning   pair.rs    a real channel: its transport, and what it costs
//!                       │
//!                   finding.rs ──▶ text, or --json
//! ```
//! It changes nothing, and what it makes to try is gone when it ends.

mod cpu;
mod finding;
mod kernel;
mod memory;
mod pair;

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::command::exit::Exit;
use finding::{Finding, Severity};

/// Look at what this machine allows, and say what to do about it
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Everything found, for `--json`.
#[derive(serde::Serialize)]
struct Report<'a> {
    version: &'static str,
    healthy: bool,
    findings: &'a [Finding],
}

/// Looks, and tells.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut findings = kernel::look();
    findings.extend(cpu::look());
    findings.extend(memory::look());
    findings.extend(pair::look());
    let healthy = findings.iter().all(|finding| finding.severity != Severity::Fail);
    if arguments.json {
        let report = Report { version: partywall_bench::VERSION, healthy, findings: &findings };
        println!("{}", serde_json::to_string_pretty(&report).context("writing JSON")?);
    } else {
        for finding in &findings {
            print!("{}", finding.text());
        }
        println!("\n{}", verdict(&findings));
    }
    Ok(if healthy { Exit::Done } else { Exit::Failure }.into())
}

fn verdict(findings: &[Finding]) -> String {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    match (count(Severity::Fail), count(Severity::Warn)) {
        (0, 0) => "All is well: shared memory works here.".to_owned(),
        (0, warnings) => format!("Shared memory works here; {warnings} to look at."),
        (failures, _) => format!(
            "{failures} things stand in the way of shared memory; channels use the socket instead."
        ),
    }
}

const HELP: &str = "\
Examples:
  partywall doctor                    what this machine allows
  partywall doctor --json | jq '.findings[] | select(.severity != \"ok\")'
  partywall doctor > /dev/null || echo 'no shared memory here'

Exit codes:
  0  shared memory works here, whatever else there may be to note
  1  something that shared memory needs is missing";
