// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link adopt` and `partywall link reset`: the decisions of an operator on a quarantined
//! link, or on a file that is refused after a reboot.
//!
//! ```text
//!   partywall_link::adopt, reset ─ without --yes: report only ─▶ text of the plan, exit code 1
//!                                 └ with --yes: repair ─────────▶ text of the result, exit code 0
//! ```

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use partywall_link::{Adopted, Evidence, Key, QuarantineSnapshot, Reset, adopt, inspect, reset};

use crate::command::report::{self, UNSOUND};

/// The flags that name the end of a link to repair.
#[derive(Clone, Debug, clap::Args)]
struct Which {
    /// File of the link, as errors and `link inspect` print it; instead of --dir and names
    #[arg(value_name = "FILE", conflicts_with_all = ["dir", "name", "peer", "link"])]
    file: Option<PathBuf>,
    /// Directory of the link
    #[arg(long, value_name = "DIR", required_unless_present = "file")]
    dir: Option<PathBuf>,
    /// Name of this end; not needed if --link names one link of the directory
    #[arg(long, value_name = "A", required_unless_present_any = ["file", "link"])]
    name: Option<String>,
    /// Name of the peer; not needed if --link names one link of the directory
    #[arg(long, value_name = "B", required_unless_present_any = ["file", "link"])]
    peer: Option<String>,
    /// Name of the link [default: messages]
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Do it; without this flag, only print what would be done
    #[arg(long)]
    yes: bool,
}

/// End the quarantine of a link, or go on with a file that is refused after a reboot
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = ADOPT)]
pub struct AdoptArguments {
    #[command(flatten)]
    which: Which,
}

/// Drop the messages of one end of a link that have no known acknowledgement, and begin a new
/// stream
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = RESET)]
pub struct ResetArguments {
    #[command(flatten)]
    which: Which,
}

/// Runs `link adopt`, which ends the quarantine of a link or the refusal of its file.
pub fn run_adopt(arguments: &AdoptArguments) -> ExitCode {
    let which = &arguments.which;
    report::conclude(
        which.end().and_then(|(dir, key)| {
            let adopted = adopt(&dir, &key, which.yes)?;
            which.print(&adopted_text(&adopted, which.yes))
        }),
        false,
    )
}

/// Runs `link reset`, which drops the messages without a known acknowledgement and begins a new
/// stream.
pub fn run_reset(arguments: &ResetArguments) -> ExitCode {
    let which = &arguments.which;
    report::conclude(
        which.end().and_then(|(dir, key)| {
            let done = reset(&dir, &key, which.yes)?;
            which.print(&reset_text(&done, which.yes))
        }),
        false,
    )
}

impl Which {
    /// The directory of the link's file, and the three names that identify this end of the link.
    fn end(&self) -> Result<(PathBuf, Key)> {
        if let Some(file) = &self.file {
            let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
            let dir = dir.unwrap_or(Path::new("."));
            fs::metadata(file).with_context(|| file.display().to_string())?;
            let found =
                inspect(dir)?.into_iter().find(|found| found.path.file_name() == file.file_name());
            let found = found.with_context(|| {
                format!(
                    "{} is not the file of a link: `link inspect --dir {}` lists them",
                    file.display(),
                    dir.display()
                )
            })?;
            return Ok((dir.to_owned(), found.inspection?.key));
        }
        let dir = self.dir.clone().context("give FILE or --dir DIR")?;
        if let (Some(name), Some(peer)) = (&self.name, &self.peer) {
            let link = self.link.as_deref().unwrap_or("messages");
            return Ok((dir, Key::new(name, peer, link)?));
        }
        let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|w| w == name);
        let mut keys: Vec<Key> = inspect(&dir)?
            .into_iter()
            .filter_map(|found| Some(found.inspection.ok()?.key))
            .collect();
        keys.retain(|key| {
            is(&self.name, key.local())
                && is(&self.peer, key.remote())
                && is(&self.link, key.link())
        });
        match <[Key; 1]>::try_from(keys) {
            Ok([key]) => Ok((dir, key)),
            Err(keys) => bail!(
                "{} has {} such links: give --name, --peer and --link, or the file (`link inspect` lists them)",
                dir.display(),
                keys.len()
            ),
        }
    }

    fn print(&self, text: &str) -> Result<ExitCode> {
        let end = if self.yes { "" } else { "nothing was done: give --yes to do it\n" };
        report::print(&format!("{text}{end}"))?;
        Ok(if self.yes { ExitCode::SUCCESS } else { UNSOUND.into() })
    }
}

fn adopted_text(adopted: &Adopted, is_done: bool) -> String {
    let Adopted { path, evidence, quarantine, forgotten, needs_reset, .. } = adopted;
    let mut text = format!("{}\n", report::line(&path.display().to_string()));
    if let Some(evidence) = evidence {
        proven_text(&mut text, evidence, is_done);
    }
    let Some(quarantine) = quarantine else { return text };
    // The results of the writes are ignored, because writing to a string cannot fail.
    let _ = writeln!(text, "  quarantine   {}: {}", why(quarantine), ends(is_done));
    let receiving = match (forgotten, needs_reset, quarantine.is_receiving) {
        (Some(to), ..) => format!(
            "the acknowledgement of {to} {} forgotten: messages that the peer still has come again",
            if is_done { "is" } else { "would be" }
        ),
        (None, true, _) => {
            "unchanged, because messages that this end has sent and keeps refer to it: reset the peer, or \
             both are in quarantine again"
                .to_owned()
        }
        (None, false, true) => "unchanged: nothing was acknowledged".to_owned(),
        (None, false, false) => "unchanged".to_owned(),
    };
    let _ = writeln!(text, "  receiving    {receiving}");
    let _ = writeln!(text, "  sending      unchanged: all kept messages are sent again");
    text
}

/// Appends to `text` the state that a file from another boot proves, and the consequences of
/// adopting the file.
fn proven_text(text: &mut String, evidence: &Evidence, is_done: bool) {
    let Evidence { messages, from, to, consumed, .. } = evidence;
    let (is, are) = if is_done { ("is", "are") } else { ("would be", "would be") };
    // The results of the writes are ignored, because writing to a string cannot fail.
    let _ = writeln!(text, "  proven       {evidence}");
    let _ = writeln!(
        text,
        "  sending      {messages} kept messages (positions {from}..{to}) {are} sent; others may be lost"
    );
    let _ = writeln!(
        text,
        "  receiving    {is} gone on with from position {consumed}; acknowledged messages may come again"
    );
    let _ = writeln!(
        text,
        "  the next owner of the file {is} told that messages may be lost or come again"
    );
}

fn reset_text(done: &Reset, is_done: bool) -> String {
    let mut text = format!("{}\n", report::line(&done.path.display().to_string()));
    if let Some(quarantine) = &done.quarantine {
        let _ = writeln!(text, "  quarantine   {}: {}", why(quarantine), ends(is_done));
    }
    let gives_up = if is_done { "given up" } else { "would be given up" };
    let _ = match done.undelivered {
        Some((from, to)) => {
            writeln!(text, "  undelivered  positions {from}..{to}, at most: {gives_up}")
        }
        None => writeln!(text, "  undelivered  nothing"),
    };
    if let Some(to) = done.forgotten {
        let is = if is_done { "is" } else { "would be" };
        let _ = writeln!(text, "  receiving    the acknowledgement of {to} {is} forgotten");
    }
    if let Some(copy) = &done.copy {
        let _ = writeln!(text, "  copy         {}", report::line(&copy.display().to_string()));
    }
    text
}

fn why(quarantine: &QuarantineSnapshot) -> String {
    let direction = if quarantine.is_receiving { "receiving" } else { "sending" };
    format!("{direction}: {}", quarantine.why)
}

fn ends(is_done: bool) -> &'static str {
    if is_done { "ended" } else { "would end" }
}

const ADOPT: &str = "\
Examples:
  partywall link inspect --dir links                                      which is in quarantine?
  partywall link adopt --dir links --name bob --peer alice                what would happen?
  partywall link adopt --dir links --name bob --peer alice --yes          do it
  partywall link adopt links/c3577146f5953aeb.link --yes                  the same, by its file
  partywall link adopt --dir links --link orders --yes                    if only one is called so

A file that was not closed before a reboot is refused, because a power loss may have taken any of
its pages. adopt goes on with what the file proves: the whole messages from the first kept one on,
up to the first hole. The rest is given up. The next owner is told: link send then ends with 9, and
link recv with 9 or 10, instead of 0.

A link is in quarantine if the files of its two ends contradict each other, usually because one of
them was restored from a copy. Both ends keep everything and do not attach until an operator
decides at each end. adopt ends the quarantine of the end whose file is in DIR. The messages that
this end sends stay unchanged.

  The end that receives the contradicting direction forgets its acknowledgements, and receives
  again: from the peer's first message, or after a gap, which is reported. Messages may come a
  second time. The end that sends that direction sends all kept messages again.

  To keep all messages              adopt at both ends
  To drop those of the sender       reset at the sender, adopt at the receiver

If this end keeps sent messages that contain an acknowledgement, it cannot forget it: after a
restart they would count again. Then adopt only ends the quarantine, and the peer has to be reset.
If both ends still contradict each other, they are in quarantine again, and nothing is lost.

The command opens the file, so no living process may own it. It counts as one more owner, also
without --yes.

Exit codes:
  0  done
  1  not done, because --yes is missing
  2  wrong usage, no such link, neither in quarantine nor refused, or the file has an owner or is
     damaged";

const RESET: &str = "\
Examples:
  partywall link reset --dir links --name alice --peer bob                what would be lost?
  partywall link reset --dir links --name alice --peer bob --yes          do it
  partywall link inspect --dir links                                      the state afterwards

reset drops the messages that the end whose file is in DIR has to send: its next message begins a
new stream. Messages without a known acknowledgement are not sent any more; their range is
printed, and is a report of the link. The peer reports that the former stream was lost. A
quarantine of this end ends; if it concerned the receiving direction, this end forgets its
acknowledgements, as with adopt.

A copy of the former file lies next to it, with the ending .link.reset-1 and so on; remove it when
it is not needed. The checkpoint files of `send --exactly-once` and `recv --exactly-once` are
checked at their next use.

The command opens the file, so no living process may own it. It counts as one more owner, also
without --yes.

Exit codes:
  0  done
  1  not done, because --yes is missing
  2  wrong usage, no such link, or the file has an owner, is damaged, or could not be copied";
