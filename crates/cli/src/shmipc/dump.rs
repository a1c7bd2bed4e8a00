// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall shmipc dump`: what is in the regions of a process, or in a file.
//!
//! ```text
//!   copy ─▶ look ── nothing broken, or nobody has it ──────────▶ tell
//!    ▲        └─── broken, and somebody may work on it ─┐         ▲
//!    └───────────── a few times ────────────────────────┴─────────┘ what is broken in all of them
//! ```
//! A copy of memory that is being worked on is of no single moment: what is in one copy and not in the next was under way.
//! Slices that are in no list and in no queue have leaked if nobody has the region any more; else somebody may hold
//! them.

use super::memory::Memory;
use super::pair::{Group, pair};
use super::{find, json, process};
use crate::command::report::{self, UNREADABLE, UNSOUND};
use anyhow::{Result, bail};
use partywall_shmipc::regions::Report;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Print lists, queues, pending messages and leaks of shmipc's shared memory, and check all of it
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// A file with buffers or queues; or the number of a process, for all regions that it has
    #[arg(value_name = "FILE|PID")]
    target: String,
    /// A file with queues that point into FILE; without it, those beside FILE by their names
    #[arg(long, value_name = "FILE")]
    queue: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What was looked at.
pub struct Dump {
    /// What belongs together, and what is in it.
    pub groups: Vec<(Group, Report)>,
    /// What is called like a region and is none, and why.
    pub unrecognised: Vec<(Memory, String)>,
    /// What could not be copied, and why.
    pub unreadable: Vec<(String, String)>,
    /// Who has it, of the processes that may be looked into.
    pub processes: Vec<u32>,
    /// It was worked on while it was copied: something was broken in some of the copies only.
    pub moves: bool,
}

/// Looks, and tells.
pub fn run(arguments: &Arguments) -> ExitCode {
    report::conclude(look_and_tell(arguments))
}

fn look_and_tell(arguments: &Arguments) -> Result<ExitCode> {
    let mut dump = Dump::of(arguments)?;
    for _ in 1..LOOKS_MAX {
        if !dump.is_live() || !dump.is_broken() {
            break;
        }
        std::thread::sleep(PAUSE);
        let mut again = Dump::of(arguments)?;
        again.leave_out_what_passed(&dump);
        dump = again;
    }
    let text = if arguments.json { json::text(&dump)? } else { dump.text() };
    report::print(&text)?;
    Ok(match (dump.is_sound(), dump.unreadable.is_empty()) {
        (false, _) => UNSOUND.into(),
        (true, false) => UNREADABLE.into(),
        (true, true) => ExitCode::SUCCESS,
    })
}

impl Dump {
    fn of(arguments: &Arguments) -> Result<Self> {
        let (memories, unreadable, processes) = match arguments.target.parse::<u32>() {
            Ok(pid) => {
                if !arguments.queue.is_empty() {
                    bail!("--queue goes with a file; of a process all queues are found");
                }
                let owned = process::of_process(pid)?;
                (owned.memories, owned.unreadable, vec![pid])
            }
            Err(_) => {
                let (memories, files) = find::of_file(arguments.target.as_ref(), &arguments.queue)?;
                (memories, Vec::new(), process::users_of(&files)?)
            }
        };
        let (paired, mut unrecognised) = pair(memories);
        // Anybody may have anything in /dev/shm: only what is called like a region should be one.
        unrecognised.retain(|(memory, _)| memory.family().len() != memory.name.len());
        let mut groups = Vec::with_capacity(paired.len());
        for group in paired {
            let report = group.inspect()?;
            groups.push((group, report));
        }
        if groups.is_empty() && unrecognised.is_empty() {
            let target = &arguments.target;
            if let Some((name, why)) = unreadable.first() {
                bail!("process {target} has {name}, which cannot be read: {why}");
            }
            bail!(
                "process {target} has no region of shmipc: no memfd called shmipc…, and nothing of the kind in \
                 /dev/shm. With files, an end that has closed has none any more"
            );
        }
        Ok(Self { groups, unrecognised, unreadable, processes, moves: false })
    }

    /// Whether somebody may be working on it.
    pub fn is_live(&self) -> bool {
        !self.processes.is_empty()
    }

    fn is_broken(&self) -> bool {
        !self.unrecognised.is_empty()
            || self.groups.iter().any(|(_, report)| !report.broken.is_empty())
    }

    /// Keeps only what was broken an earlier time, too.
    fn leave_out_what_passed(&mut self, earlier: &Self) {
        let (before, now) = (earlier.broken(), self.broken());
        self.moves = earlier.moves || before != now;
        for (_, report) in &mut self.groups {
            report.broken.retain(|what| before.contains(what));
        }
    }

    fn broken(&self) -> HashSet<String> {
        self.groups.iter().flat_map(|(_, report)| report.broken.iter().cloned()).collect()
    }

    /// How many slices of a group nobody will ever give back.
    pub fn leaked(&self, report: &Report) -> usize {
        if self.is_live() { 0 } else { report.unaccounted().count() }
    }

    /// Whether nothing is broken, and nothing leaked.
    pub fn is_sound(&self) -> bool {
        !self.is_broken() && self.groups.iter().all(|(_, report)| self.leaked(report) == 0)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for (group, report) in &self.groups {
            for (number, memory) in group.memories().enumerate() {
                let kind = match (&group.buffers, number) {
                    (Some(_), 0) => "buffers".to_owned(),
                    (Some(_), number) => format!("queue {}", number - 1),
                    (None, number) => format!("queue {number}"),
                };
                let Memory { name, source, bytes } = memory;
                let _ = writeln!(text, "{kind}: {name}, {} bytes, read from {source}", bytes.len());
            }
            let _ = writeln!(text, "{}", self.users());
            if self.moves {
                let _ =
                    writeln!(text, "it was worked on meanwhile: this copy is of no single moment");
            }
            let _ = write!(text, "{}", report.with_owners(self.is_live()));
            let _ = writeln!(text, "{}\n", self.verdict(group, report));
        }
        for (memory, why) in &self.unrecognised {
            let _ = writeln!(text, "{} is called like a region and is none: {why}", memory.name);
        }
        for (name, why) in &self.unreadable {
            let _ = writeln!(text, "{name} cannot be read: {why}");
        }
        text
    }

    fn users(&self) -> String {
        let pids: Vec<String> = self.processes.iter().map(u32::to_string).collect();
        match pids.len() {
            0 => "nobody who can be seen from here has it: its processes are gone".to_owned(),
            1 => format!("process {} has it", pids[0]),
            _ => format!("processes {} have it", pids.join(", ")),
        }
    }

    fn verdict(&self, group: &Group, report: &Report) -> String {
        let (broken, leaked) = (report.broken.len(), self.leaked(report));
        let unseen = match (&group.buffers, group.queues.is_empty()) {
            (None, _) => "; the buffers that the queues point into are not here",
            (_, true) if self.is_live() => {
                "; no queue was found, so what waits in one counts as held"
            }
            (_, true) => "; no queue was found, so what waits in one counts as leaked",
            _ => "",
        };
        match (broken, leaked) {
            (0, 0) if self.moves => {
                format!("nothing was broken each time: to be sure, look when less goes on{unseen}")
            }
            (0, 0) => format!("sound{unseen}"),
            _ => format!("not sound: {broken} broken, {leaked} slices leaked{unseen}"),
        }
    }
}

/// How often something that is being worked on is looked at until it is sound.
const LOOKS_MAX: u32 = 5;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

const HELP: &str = "\
Examples:
  partywall shmipc dump 4242                             all regions that a process has
  partywall shmipc dump /dev/shm/shmipc_4242_buffer      a file, with the queues beside it
  partywall shmipc dump saved --queue saved-queue        copies, called anything
  partywall shmipc dump 4242 --json | jq '.regions[].broken'

What it prints of each region:
  every list: how many slices say they are free, and how many really are; each slice that is
  not, with its first bytes: in a pending message, or held by a process (perhaps only kept
  for reuse), or leaked;
  every queue: how far both sides are, and what is pending;
  what should hold and does not. Memory in use is looked at up to five times: only what is
  broken each time is reported. While it is busy, a copy is of no single moment.

A slice counts as leaked if no process that can be looked into has the region any more.
Regions are only read. For a process one must be its user, or root; memory that it has mapped
without a descriptor is read from /proc/PID/mem, which takes a debugger's rights.

Exit codes:
  0  everything holds, and nothing leaked
  1  something does not hold, or leaked
  2  wrong usage, or something could not be read";

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(broken: &[&str]) -> Dump {
        let group = Group::default();
        let mut report = group.inspect().unwrap();
        report.broken = broken.iter().map(|&what| what.to_owned()).collect();
        let (unrecognised, unreadable, processes) = (Vec::new(), Vec::new(), vec![1]);
        Dump { groups: vec![(group, report)], unrecognised, unreadable, processes, moves: false }
    }

    #[test]
    fn what_is_broken_in_one_copy_only_was_under_way() {
        let mut second = dump(&["7 can be reached", "cut"]);
        second.leave_out_what_passed(&dump(&["6 can be reached", "cut"]));
        assert_eq!(second.groups[0].1.broken, ["cut"]);
        assert!(second.moves && second.is_broken());
        let mut third = dump(&["9 can be reached"]);
        third.leave_out_what_passed(&second);
        assert!(third.moves && third.is_sound());
        let mut still = dump(&["cut"]);
        still.leave_out_what_passed(&dump(&["cut"]));
        assert!(!still.moves && !still.is_sound());
    }
}
