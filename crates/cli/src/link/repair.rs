// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link adopt` and `partywall link reset`, by which an operator ends the quarantine of a
//! link. A link is in quarantine if the files of its two ends contradict each other.
//!
//! ```text
//!   partywall_link::adopt, reset ─ without --yes: report only ─▶ text of the plan, exit code 1
//!                                 └ with --yes: repair ─────────▶ text of the result, exit code 0
//! ```

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use partywall_link::{Adopted, Key, QuarantineSnapshot, Reset, adopt, reset};

use crate::command::report::{self, UNSOUND};

/// The flags that name the end of a link to repair.
#[derive(Clone, Debug, clap::Args)]
struct Which {
    /// Directory with the link's file
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Name of the link's own end, whose file is in DIR
    #[arg(long, value_name = "A")]
    name: String,
    /// Name of the link's other end
    #[arg(long, value_name = "B")]
    peer: String,
    /// Name of the link
    #[arg(long, value_name = "NAME", default_value = "messages")]
    link: String,
    /// Change the link's file; without this flag, the command only prints what it would do
    #[arg(long)]
    yes: bool,
}

/// End the quarantine of a link, and receive from the peer again
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

/// Runs `link adopt`, which ends the quarantine of a link.
pub fn run_adopt(arguments: &AdoptArguments) -> ExitCode {
    let which = &arguments.which;
    report::conclude(which.key().and_then(|key| {
        let adopted = adopt(&which.dir, &key, which.yes)?;
        which.print(&adopted_text(&adopted, which.yes))
    }))
}

/// Runs `link reset`, which drops the messages without a known acknowledgement and begins a new
/// stream.
pub fn run_reset(arguments: &ResetArguments) -> ExitCode {
    let which = &arguments.which;
    report::conclude(which.key().and_then(|key| {
        let done = reset(&which.dir, &key, which.yes)?;
        which.print(&reset_text(&done, which.yes))
    }))
}

impl Which {
    fn key(&self) -> Result<Key> {
        Ok(Key::new(&self.name, &self.peer, &self.link)?)
    }

    fn print(&self, text: &str) -> Result<ExitCode> {
        let end = if self.yes { "" } else { "nothing was done: give --yes to do it\n" };
        report::print(&format!("{text}{end}"))?;
        Ok(if self.yes { ExitCode::SUCCESS } else { UNSOUND.into() })
    }
}

fn adopted_text(adopted: &Adopted, is_done: bool) -> String {
    let Adopted { path, quarantine, forgotten, needs_reset, .. } = adopted;
    let mut text = format!("{}\n", path.display());
    // The result is ignored, because writing to a string cannot fail.
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

fn reset_text(done: &Reset, is_done: bool) -> String {
    let mut text = format!("{}\n", done.path.display());
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
        let _ = writeln!(text, "  copy         {}", copy.display());
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
  2  wrong usage, no such link, not in quarantine, or the file has an owner or is damaged";

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
