// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall link adopt` and `partywall link reset`: what a person decides about a link that stands.
//!
//! ```text
//!   partywall_link::adopt, reset ─ without --yes: what would be ─▶ text, exit code 1
//!                                 └ with --yes: done ─────────────▶ text, exit code 0
//! ```

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use partywall_link::{Adopted, Key, QuarantineSnapshot, Reset, adopt, reset};

use crate::command::report::{self, UNSOUND};

/// Which end of which link.
#[derive(Clone, Debug, clap::Args)]
struct Which {
    /// The directory that keeps the link
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// What this end is called
    #[arg(long, value_name = "A")]
    name: String,
    /// What the other end is called
    #[arg(long, value_name = "B")]
    peer: String,
    /// What the link is called
    #[arg(long, value_name = "NAME", default_value = "messages")]
    link: String,
    /// Do it; without, only say what would be done
    #[arg(long)]
    yes: bool,
}

/// End the quarantine of a link, and take what the other end has
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = ADOPT)]
pub struct AdoptArguments {
    #[command(flatten)]
    which: Which,
}

/// Give up what one end of a link sends, and let it begin anew
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = RESET)]
pub struct ResetArguments {
    #[command(flatten)]
    which: Which,
}

/// Ends a quarantine.
pub fn run_adopt(arguments: &AdoptArguments) -> ExitCode {
    let which = &arguments.which;
    report::conclude(which.key().and_then(|key| {
        let adopted = adopt(&which.dir, &key, which.yes)?;
        which.tell(&adopted_text(&adopted, which.yes))
    }))
}

/// Begins a stream anew.
pub fn run_reset(arguments: &ResetArguments) -> ExitCode {
    let which = &arguments.which;
    report::conclude(which.key().and_then(|key| {
        let done = reset(&which.dir, &key, which.yes)?;
        which.tell(&reset_text(&done, which.yes))
    }))
}

impl Which {
    fn key(&self) -> Result<Key> {
        Ok(Key::new(&self.name, &self.peer, &self.link)?)
    }

    fn tell(&self, text: &str) -> Result<ExitCode> {
        let end = if self.yes { "" } else { "nothing was done: say --yes to do it\n" };
        report::tell(&format!("{text}{end}"))?;
        Ok(if self.yes { ExitCode::SUCCESS } else { UNSOUND.into() })
    }
}

fn adopted_text(adopted: &Adopted, is_done: bool) -> String {
    let Adopted { path, quarantine, forgotten, needs_reset, .. } = adopted;
    let mut text = format!("{}\n", path.display());
    // Writing to a string does not fail.
    let _ = writeln!(text, "  quarantine   {}: {}", why(quarantine), ends(is_done));
    let receiving = match (forgotten, needs_reset, quarantine.is_receiving) {
        (Some(to), ..) => format!(
            "that {to} is consumed {} forgotten: what the other end still has of it comes again",
            if is_done { "is" } else { "would be" }
        ),
        (None, true, _) => {
            "as it is, because messages that this end has sent, and keeps, speak of it: \
            the other end has to be reset, or both are in quarantine again"
                .to_owned()
        }
        (None, false, true) => "as it is: nothing was consumed".to_owned(),
        (None, false, false) => "as it is".to_owned(),
    };
    let _ = writeln!(text, "  receiving    {receiving}");
    let _ = writeln!(text, "  sending      as it is: all that is kept is offered again");
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
        let _ = writeln!(text, "  receiving    that {to} is consumed {is} forgotten");
    }
    if let Some(copy) = &done.copy {
        let _ = writeln!(text, "  as it was    {}", copy.display());
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
  partywall link inspect --dir links                                      which link stands, and why?
  partywall link adopt --dir links --name bob --peer alice                what would happen?
  partywall link adopt --dir links --name bob --peer alice --yes          do it

A link stands, in quarantine, when what its two ends remember contradicts itself, mostly because one of the two files was put back
from a copy. Both ends keep everything, and attach no more, until somebody decides at each of them. adopt ends the quarantine
of the end whose file is in DIR. What that end sends stays as it is.

  The end that receives the contradicting direction forgets how far it had consumed, and takes what the other end has: from
  the first message, or behind a gap, which is reported. Messages may come that had come before.
  The end that sends it offers again what it keeps.

  To keep all that is there        adopt at both ends
  To drop what the sender has      reset at the sender, adopt at the receiver

If this end has sent messages that say how far it had consumed, and keeps them, it cannot forget that: after a restart they
would be believed. Then adopt only ends the quarantine, and the other end has to be reset. If the two ends still
contradict each other, both are in quarantine again, and nothing is lost.

The file is opened for that: no living process may own it. That counts as one more owner, also without --yes.

Exit codes:
  0  done
  1  not done, because --yes is missing
  2  wrong usage, no such link, not in quarantine, or the file has an owner or is damaged";

const RESET: &str = "\
Examples:
  partywall link reset --dir links --name alice --peer bob                what would be lost?
  partywall link reset --dir links --name alice --peer bob --yes          do it
  partywall link inspect --dir links                                      how it is now

reset gives up what the end whose file is in DIR sends: its next message is the first of another stream. What the other end was
not known to have consumed is not sent any more; its range is printed, and is a report of the link. The other end will report
that the stream before was lost. Quarantine of this end is over; if it was for what this end receives, how far that was
consumed is forgotten, as with adopt.

The file as it was lies beside it, as ….link.reset-1 and so on; remove it when nobody needs it. The small files of
`send --exactly-once` and `recv --exactly-once` say what to do about them when they are met.

The file is opened for that: no living process may own it. That counts as one more owner, also without --yes.

Exit codes:
  0  done
  1  not done, because --yes is missing
  2  wrong usage, no such link, or the file has an owner, is damaged, or could not be copied";
