// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall inspect`: the connections and links of a process, read from outside.
//!
//! ```text
//!   PID ─▶ /proc/PID/fd  own regions, files of links ─┐
//!          /proc/PID/maps, mem   regions of its peers ┼▶ found.rs ─▶ text, or json.rs
//!   FILE ─▶ a copy of a region ───────────────────────┘  connection.rs
//! ```
//!
//! The process is not asked and not stopped: it may hang, or be stopped. The values in regions are
//! claims of their owners (SPEC 3.4).

mod connection;
mod found;
mod json;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;

use crate::command::report::{self, UNREADABLE, UNSOUND};
use found::Found;

/// Show the connections and links of a process, without asking it
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// A process id, or a file with a copy of a region
    #[arg(value_name = "FILE|PID")]
    target: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Inspects the process or file that the arguments name, and prints the result.
pub fn run(arguments: &Arguments) -> ExitCode {
    report::conclude(inspect_and_print(arguments), arguments.json)
}

fn inspect_and_print(arguments: &Arguments) -> Result<ExitCode> {
    let found = match arguments.target.parse() {
        Ok(pid) => Found::of_process(pid)?,
        Err(_) => Found::of_file(arguments.target.as_ref())?,
    };
    let text = if arguments.json { json::text(&found)? } else { text(&found) };
    report::print(&text)?;
    Ok(match (found.damaged.is_empty(), found.unreadable.is_empty()) {
        (false, _) => UNSOUND.into(),
        (true, false) => UNREADABLE.into(),
        (true, true) => ExitCode::SUCCESS,
    })
}

fn text(found: &Found) -> String {
    let mut text = String::new();
    // The results of the writes are ignored, because writing to a string cannot fail.
    for connection in found.connections() {
        let _ = connection.write(&mut text);
    }
    for link in &found.links {
        let [local, remote, name] = &link.names;
        let _ = writeln!(
            text,
            "link {name:?} of {local:?} with {remote:?}, made {}\n  {:?}\n  its state: partywall \
             link inspect\n",
            report::ago(connection::moment(link.created_ns)),
            link.source,
        );
    }
    for source in &found.inherited {
        let _ = writeln!(
            text,
            "inherited: {source:?}\n  open here and not mapped: a parent process uses it, and this \
             one has it since its fork\n"
        );
    }
    for (source, why) in &found.damaged {
        let _ = writeln!(text, "damaged or foreign: {source:?}\n  {why}\n");
    }
    for (source, why) in &found.unreadable {
        let _ = writeln!(text, "not readable: {source:?}\n  {why}\n");
    }
    text
}

const HELP: &str = "\
Examples:
  partywall inspect 4242                      the connections and links of process 4242
  partywall inspect 4242 --json | jq '.connections[].own.state'
  partywall inspect region.bin                a copy of a region, such as one from a core file

Output for each connection over shared memory, from the process's own region and its peer's:
  role and service, the address of the listener, and the state with the number of an error;
  process and program of each side, where the owner of the region has stated them;
  messages and bytes sent and received, what the peer has not consumed yet, and who sleeps.
For each link, its names and the path of its file: partywall link inspect shows more.
A forked child has the connections and links of its parent open: they are listed as inherited.

The process is only read: it may hang or be stopped. Connections over sockets have no region and
are not shown. All values are claims of the process that wrote them.

Exit codes:
  0  everything found was read
  1  memory that is named like a region is damaged, or of another version
  2  wrong usage, no such process or file, nothing found there, or it may not be read";
