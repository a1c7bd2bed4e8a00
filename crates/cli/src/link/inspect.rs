// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link inspect`: prints the owner, age and positions of each link in a directory, and
//! the damaged files.
//!
//! A damaged file is printed among the other files, with the reason, and sets the exit code.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use partywall_link::{
    Found, Inspection, OwnerStatus, StorageError, inspect, inspect_file, missing_files,
};

use crate::command::report::{self, UNSOUND, ago, hex};

use super::json;

/// Show the contents of the files of links, without changing them
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// File of a link, or a copy of one; instead of --dir
    #[arg(value_name = "FILE", conflicts_with = "dir", required_unless_present = "dir")]
    file: Option<PathBuf>,
    /// Directory with the files of the links
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Show only links whose own end has this name
    #[arg(long, value_name = "A")]
    name: Option<String>,
    /// Show only links whose peer has this name
    #[arg(long, value_name = "B")]
    peer: Option<String>,
    /// Show only links with this name
    #[arg(long, value_name = "L")]
    link: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Inspects the link files that the arguments name, and prints the results.
pub fn run(arguments: &Arguments) -> ExitCode {
    report::conclude(inspect_and_print(arguments), arguments.json)
}

/// The results of `link inspect`: the content of the link files, and which link files are missing.
pub struct Inspected {
    pub found: Vec<Found>,
    /// Link files that the directory's own list of its links names, and that do not exist.
    pub missing: Vec<PathBuf>,
}

fn inspect_and_print(arguments: &Arguments) -> Result<ExitCode> {
    let Inspected { mut found, mut missing } = arguments.inspected()?;
    // An unreadable file stays in the results, because it may be that of a link that the arguments
    // name.
    found.retain(|found| {
        found.inspection.as_ref().map_or(true, |inspection| arguments.matches(inspection))
    });
    if arguments.has_filter() {
        // The list of links that a directory keeps has only file names, so a filter by the names of
        // links cannot decide whether a missing file belongs to the link that is sought.
        missing.clear();
        if found.is_empty() {
            bail!("there is no such link: without --name, --peer and --link, all are listed");
        }
    }
    let is_sound = found.iter().all(|found| found.inspection.is_ok());
    let inspected = Inspected { found, missing };
    let text = if arguments.json { json::text(&inspected)? } else { text(&inspected) };
    report::print(&text)?;
    Ok(if is_sound { ExitCode::SUCCESS } else { UNSOUND.into() })
}

impl Arguments {
    fn inspected(&self) -> Result<Inspected> {
        let dir = match (&self.file, &self.dir) {
            (Some(file), _) if !file.is_dir() => {
                return Ok(Inspected { found: vec![inspect_file(file)?], missing: Vec::new() });
            }
            (Some(dir), _) | (None, Some(dir)) => dir,
            (None, None) => bail!("give FILE or --dir DIR"),
        };
        Ok(Inspected { missing: missing_files(dir)?, found: inspect(dir)? })
    }

    fn has_filter(&self) -> bool {
        self.name.is_some() || self.peer.is_some() || self.link.is_some()
    }

    fn matches(&self, inspection: &Inspection) -> bool {
        let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|w| w == name);
        let key = &inspection.key;
        is(&self.name, key.local()) && is(&self.peer, key.remote()) && is(&self.link, key.link())
    }
}

fn text(inspected: &Inspected) -> String {
    let Inspected { found, missing } = inspected;
    let mut text = String::new();
    if found.is_empty() {
        text.push_str("no link has a file here\n");
    }
    // The results of the writes are ignored, because writing to a string cannot fail.
    for one in found {
        let _ = match &one.inspection {
            Ok(inspection) => link(&mut text, one, inspection),
            Err(error) => refused(&mut text, one, error),
        };
    }
    for file in missing {
        let _ = writeln!(
            text,
            "{}: missing: a link had this file, which was removed or lost",
            line(file)
        );
    }
    text
}

/// Makes a path a part of one line of text, without control characters.
fn line(path: &Path) -> String {
    report::line(&path.display().to_string())
}

/// Appends to `text` the path of a link file that is refused, with the names of its link if the
/// file's header is readable.
fn refused(text: &mut String, found: &Found, error: &StorageError) -> std::fmt::Result {
    if let Some(key) = &found.key {
        write!(text, "{:?} with {:?}, link {:?}: ", key.local(), key.remote(), key.link())?;
    }
    writeln!(
        text,
        "{}: damaged, foreign, or of another version\n  {}\n",
        line(&found.path),
        report::line(&error.to_string())
    )
}

fn link(text: &mut String, found: &Found, inspection: &Inspection) -> std::fmt::Result {
    let (key, sizes) = (&inspection.key, &inspection.sizes);
    writeln!(
        text,
        "{:?} with {:?}, link {:?}: {}",
        key.local(),
        key.remote(),
        key.link(),
        line(&found.path)
    )?;
    writeln!(
        text,
        "  store id     {}, made {}",
        hex(inspection.store_id),
        ago(inspection.created)
    )?;
    writeln!(text, "  incarnation  {}, {}", inspection.incarnation, owner(inspection))?;
    match inspection.peer {
        Some((store_id, seen)) => {
            writeln!(text, "  peer         {}, incarnation {seen}", hex(store_id))?
        }
        None => writeln!(text, "  peer         never attached")?,
    }
    writeln!(text, "  epoch        {}", inspection.epoch)?;
    match inspection.sending_stream {
        0 => writeln!(text, "  sending      nothing yet")?,
        stream => writeln!(
            text,
            "  sending      stream {stream:016x}: base {}, acknowledged {} (bytes of the stream)",
            inspection.base, inspection.acked
        )?,
    }
    match inspection.receiving_stream {
        0 => writeln!(text, "  receiving    nothing yet")?,
        stream => writeln!(
            text,
            "  receiving    stream {stream:016x}: consumed {} (bytes of the stream)",
            inspection.consumed
        )?,
    }
    if let Some(old) = &inspection.previous {
        let (acked, tail, consumed) = (old.acked, old.tail, old.consumed);
        let settled = if old.is_settled { "settled" } else { "not settled" };
        writeln!(
            text,
            "  previous     epoch {}, {settled}: acknowledged {acked}, end {tail}; consumed {consumed} \
             (bytes of each stream)",
            old.epoch
        )?;
    }
    if let Some(quarantine) = &inspection.quarantine {
        let direction = if quarantine.is_receiving { "receiving" } else { "sending" };
        writeln!(text, "  quarantined  {direction}: {}", quarantine.why)?;
    }
    for report in &inspection.reports {
        writeln!(text, "  to report    {report}")?;
    }
    if inspection.reports_dropped != 0 {
        writeln!(text, "  not kept     {} more reports", inspection.reports_dropped)?;
    }
    writeln!(
        text,
        "  sizes        file {}, ring {}, release ring {}, slab {} bytes\n",
        sizes.file, sizes.ring, sizes.release_ring, sizes.slab
    )
}

fn owner(inspection: &Inspection) -> String {
    let (pid, since) = (inspection.owner.pid, ago(inspection.owner.since));
    match status(inspection.owner.status) {
        "never" => "never owned".to_owned(),
        "alive" => format!("owned by process {pid}, alive, since {since}"),
        "left" => format!("free: process {pid}, owner since {since}, has left"),
        "dead" => format!("free: process {pid}, owner since {since}, is dead"),
        _ => format!(
            "owned since {since} by process {pid} of another container or machine, perhaps alive"
        ),
    }
}

/// The status of an owner in one word, in text and in JSON.
pub fn status(status: OwnerStatus) -> &'static str {
    match status {
        OwnerStatus::Never => "never",
        OwnerStatus::Left => "left",
        OwnerStatus::Dead => "dead",
        OwnerStatus::Alive => "alive",
        _ => "unknown",
    }
}

const HELP: &str = "\
Examples:
  partywall link inspect --dir links                             all links with a file there
  partywall link inspect --dir links --name alice --peer bob     the links of one pair
  partywall link inspect links/c3577146f5953aeb.link             one file, or a copy of it
  partywall link inspect --dir links --json | jq '.links[].owner'

Output for each file:
  the names of both ends and of the link, and the store id: a file that was made anew has another;
  the number of its owners, and the status of the last: alive, dead, left, or unknown (of another
  container or machine); a stopped process is alive;
  the epoch, and the positions up to which this end has sent and acknowledged, in bytes of a stream;
  the previous epoch until both ends have settled it; reports that the application has not read.

Files are only read, without a lock, also while their owners work on them. A damaged or foreign
file is printed with the reason, and all others are printed too. A file that the directory's list
has, and the directory has not, is named as missing: that is no error, you may have removed it.

Exit codes:
  0  all files are in order
  1  a file is foreign, truncated, damaged, or of another version
  2  wrong usage, no such link, or the directory is not fit for links";
