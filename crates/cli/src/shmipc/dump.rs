// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall shmipc dump`: the contents of the shmipc regions of a process or of a file.
//!
//! ```text
//!   copy ─▶ check ── no fault, or no process has the memory ────▶ print
//!    ▲        └───── fault, and a process may change it ──┐         ▲
//!    └───────────── a few times ──────────────────────────┴─────────┘ faults that all copies have
//! ```
//! A process may change the memory while it is copied, so a copy mixes several moments. A fault
//! that is not in the next copy was a change in progress. Slices in no list and in no queue have
//! leaked if no process has the region open. Otherwise a process may hold them.

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

/// Print and check lists, queues, pending messages and leaks in the shared memory of shmipc
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// A file with buffers or queues, or a process id for all regions of that process
    #[arg(value_name = "FILE|PID")]
    target: String,
    /// A file with queues of FILE [default: the files next to FILE with matching names]
    #[arg(long, value_name = "FILE")]
    queue: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Copies of shared memory, and the reports on their content.
pub struct Dump {
    /// The groups of regions that belong to one connection, each with the report on it.
    pub groups: Vec<(Group, Report)>,
    /// Copies of memory that has the name of a region but is no region, each with the reason.
    pub unrecognised: Vec<(Memory, String)>,
    /// Names of memory that could not be copied, each with the reason.
    pub unreadable: Vec<(String, String)>,
    /// The processes that have the memory open or mapped, among those that may be inspected.
    pub processes: Vec<u32>,
    /// Whether some copies had a fault and others did not, because a process changed the memory
    /// between the copies.
    pub moves: bool,
}

/// Inspects the memory that the arguments name, and prints the reports.
pub fn run(arguments: &Arguments) -> ExitCode {
    report::conclude(inspect_and_print(arguments), arguments.json)
}

fn inspect_and_print(arguments: &Arguments) -> Result<ExitCode> {
    let mut dump = Dump::of(arguments)?;
    for _ in 1..COPIES_MAX {
        if !dump.is_live() || !dump.is_broken() {
            break;
        }
        std::thread::sleep(PAUSE);
        let mut again = Dump::of(arguments)?;
        again.keep_faults_of(&dump);
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
        // Any program may have files in /dev/shm. A file that is no region is reported only if it
        // has the name of a region.
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
                "process {target} has no region of shmipc: neither a memfd called shmipc… nor a file in /dev/shm. With \
                 files, an end that has closed has none any more"
            );
        }
        Ok(Self { groups, unrecognised, unreadable, processes, moves: false })
    }

    /// Whether a process has the inspected memory open or mapped, and so may change it.
    pub fn is_live(&self) -> bool {
        !self.processes.is_empty()
    }

    fn is_broken(&self) -> bool {
        !self.unrecognised.is_empty()
            || self.groups.iter().any(|(_, report)| !report.broken.is_empty())
    }

    /// Keeps only those faults of this copy that the earlier copy `earlier` has, too.
    fn keep_faults_of(&mut self, earlier: &Self) {
        let (before, now) = (earlier.broken(), self.broken());
        self.moves = earlier.moves || before != now;
        for (_, report) in &mut self.groups {
            report.broken.retain(|what| before.contains(what));
        }
    }

    fn broken(&self) -> HashSet<String> {
        self.groups.iter().flat_map(|(_, report)| report.broken.iter().cloned()).collect()
    }

    /// Number of slices of a group that have leaked. They are in no list and no queue, and no
    /// process has the region open, so none can free them.
    pub fn leaked(&self, report: &Report) -> usize {
        if self.is_live() { 0 } else { report.unaccounted().count() }
    }

    /// Whether the dump found no broken region and no leaked slice.
    pub fn is_sound(&self) -> bool {
        !self.is_broken() && self.groups.iter().all(|(_, report)| self.leaked(report) == 0)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // The results of the writes are ignored, because writing to a string cannot fail.
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
                    writeln!(text, "the memory changed meanwhile: this copy mixes several moments");
            }
            let _ = write!(text, "{}", report.with_owners(self.is_live()));
            let _ = writeln!(text, "{}\n", self.verdict(group, report));
        }
        for (memory, why) in &self.unrecognised {
            let _ = writeln!(text, "{} has the name of a region and is none: {why}", memory.name);
        }
        for (name, why) in &self.unreadable {
            let _ = writeln!(text, "{name} cannot be read: {why}");
        }
        text
    }

    fn users(&self) -> String {
        let pids: Vec<String> = self.processes.iter().map(u32::to_string).collect();
        match pids.len() {
            0 => "no visible process has it: its processes are gone".to_owned(),
            1 => format!("process {} has it", pids[0]),
            _ => format!("processes {} have it", pids.join(", ")),
        }
    }

    fn verdict(&self, group: &Group, report: &Report) -> String {
        let (broken, leaked) = (report.broken.len(), self.leaked(report));
        let unseen = match (&group.buffers, group.queues.is_empty()) {
            (None, _) => "; the buffers that the queues point into are not here",
            (_, true) if self.is_live() => "; no queue was found, so its messages count as held",
            (_, true) => "; no queue was found, so its messages count as leaked",
            _ => "",
        };
        match (broken, leaked) {
            (0, 0) if self.moves => {
                format!(
                    "nothing was broken in all copies: repeat it while the memory is quiet{unseen}"
                )
            }
            (0, 0) => format!("sound{unseen}"),
            _ => format!("not sound: {broken} broken, {leaked} slices leaked{unseen}"),
        }
    }
}

/// Largest number of copies that are made of memory that a process may change. A copy without a
/// fault ends the copying.
const COPIES_MAX: u32 = 5;
/// Pause between two copies of the inspected memory, in which a process can complete a change.
const PAUSE: Duration = Duration::from_millis(20);

const HELP: &str = "\
Examples:
  partywall shmipc dump 4242                             all regions of a process
  partywall shmipc dump /dev/shm/shmipc_4242_buffer      a file, with the queues next to it
  partywall shmipc dump saved --queue saved-queue        copies with any names
  partywall shmipc dump 4242 --json | jq '.regions[].broken'

Output for each region:
  each list with the counted and the real number of free slices; each slice in use with its
  first bytes: in a pending message, held by a process (perhaps only kept for reuse), or leaked;
  each queue with the positions of both sides and the pending elements;
  broken invariants. Memory in use is copied up to five times, and only faults of all copies are
  reported, because a copy of busy memory mixes several moments.

A slice counts as leaked if no process that can be inspected has the region.
Regions are only read. A process can be inspected by its user and by root. Memory that it has
mapped without a descriptor is read from /proc/PID/mem, which takes the rights of a debugger.

Exit codes:
  0  all invariants hold, and nothing has leaked
  1  an invariant is broken, or slices have leaked
  2  wrong usage, or memory could not be read";

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
    fn fault_of_one_copy_only_is_not_reported() {
        let mut second = dump(&["7 can be reached", "cut"]);
        second.keep_faults_of(&dump(&["6 can be reached", "cut"]));
        assert_eq!(second.groups[0].1.broken, ["cut"]);
        assert!(second.moves && second.is_broken());
        let mut third = dump(&["9 can be reached"]);
        third.keep_faults_of(&second);
        assert!(third.moves && third.is_sound());
        let mut still = dump(&["cut"]);
        still.keep_faults_of(&dump(&["cut"]));
        assert!(!still.moves && !still.is_sound());
    }
}
