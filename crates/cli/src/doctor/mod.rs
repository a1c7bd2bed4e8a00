// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall doctor`: checks whether shared memory works on this machine, and gives advice.
//!
//! ```text
//!   kernel.rs  version, features        memory.rs  limits of memory, files and mappings
//!   cpu.rs     cores, quota, spinning   pair.rs    a real channel: its transport and its cost
//!                       │
//!                   finding.rs ──▶ text, or --json
//! ```
//! The command changes no setting, and removes all that it creates for a check.

mod cpu;
mod finding;
mod kernel;
mod memory;
mod pair;

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::command::exit::Exit;
use finding::{Finding, Severity};
use partywall_bench::figure::quantity::counted;

/// Check whether shared memory works on this machine, and give advice
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// All findings, as `doctor --json` prints them.
#[derive(serde::Serialize)]
struct Report<'a> {
    version: &'static str,
    healthy: bool,
    findings: &'a [Finding],
}

/// Runs all checks of `partywall doctor`, and prints the findings.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut findings = kernel::check();
    findings.extend(cpu::check());
    findings.extend(memory::check());
    findings.extend(pair::check());
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
        (0, warnings) => {
            format!("Shared memory works here, with {}.", counted(warnings as u64, "warning"))
        }
        (failures, _) => format!(
            "Shared memory does not work here ({}); channels use the socket instead.",
            counted(failures as u64, "failure")
        ),
    }
}

const HELP: &str = "\
Examples:
  partywall doctor                    all checks
  partywall doctor --json | jq '.findings[] | select(.severity != \"ok\")'
  partywall doctor > /dev/null || echo 'no shared memory here'

Exit codes:
  0  shared memory works here; there may be notes and warnings
  1  something that shared memory needs is missing
  2  wrong usage";
