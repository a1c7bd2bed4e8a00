// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender record: a small file next to the receiver's link file, which says whether the link's
//! sender has finished.
//!
//! ```text
//!   (no file) ── attached ─▶ "attached" ── peer left, all written ─▶ "finished" ── attached ─▶ …
//! ```
//! The link's file does not store that the peer has left. After a restart `recv --once` reads from
//! this record whether the sender has finished, so that it does not wait for a sender that has
//! finished. Without --dir the record is not stored, because a restarted receiver without --dir
//! does not continue the former link.
//!
//! Invariant: the record says "attached" before the first message of a connection is acknowledged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The last known state of a link's sender, and the file that stores it.
#[derive(Debug)]
pub struct SenderRecord {
    path: Option<PathBuf>,
    state: SenderState,
}

/// The last known state of a link's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderState {
    /// The sender has never attached, or the file that stores its state is missing.
    Unknown,
    /// The sender has attached, and has not left in good order.
    Attached,
    /// The sender left in good order, and all its messages are written.
    Finished,
}

impl SenderRecord {
    /// Reads the sender record from the file next to `link_file`. Without a link file, the record
    /// exists in memory only, and says at first that the sender's state is unknown.
    pub fn open(link_file: Option<&Path>) -> Result<Self> {
        let path = link_file.map(|file| file.with_extension("sender"));
        let state = match path.as_deref().map(fs::read_to_string) {
            None => SenderState::Unknown,
            Some(Ok(text)) if text == FINISHED => SenderState::Finished,
            Some(Ok(_)) => SenderState::Attached,
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => SenderState::Unknown,
            Some(Err(error)) => return Err(error).context("reading the record of the sender"),
        };
        Ok(Self { path, state })
    }

    /// The last known state of the sender, from this record.
    pub fn state(&self) -> SenderState {
        self.state
    }

    /// Writes to the sender record that the sender has attached.
    pub fn record_attached(&mut self) -> Result<()> {
        self.record(SenderState::Attached, ATTACHED)
    }

    /// Writes to the sender record that the sender has finished.
    pub fn record_finished(&mut self) -> Result<()> {
        self.record(SenderState::Finished, FINISHED)
    }

    /// Writes the file that stores the sender record, and the name of that file, to the disk. Does
    /// nothing if the link has no file: the sender record then has none either.
    pub fn sync(&self) -> Result<()> {
        let Some(path) = self.path.as_deref().filter(|_| self.state != SenderState::Unknown) else {
            return Ok(());
        };
        let directory = path.parent().context("a record without a directory")?;
        let synced = File::open(path).and_then(|file| file.sync_all());
        let synced = synced.and_then(|()| File::open(directory)?.sync_all());
        synced.with_context(|| format!("writing {} to the disk", path.display()))
    }

    fn record(&mut self, state: SenderState, text: &str) -> Result<()> {
        if self.state == state {
            return Ok(());
        }
        if let Some(path) = &self.path {
            replace(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        self.state = state;
        Ok(())
    }
}

/// Replaces the content of the file at `path` by a rename. A process killed at any moment leaves
/// either the old content or the new content, never a mix.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("sender.new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&new, path)
}

const ATTACHED: &str = "attached\n";
const FINISHED: &str = "finished\n";
const MODE: u32 = 0o600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_state_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("00.link");
        let mut record = SenderRecord::open(Some(&link)).unwrap();
        assert_eq!(record.state(), SenderState::Unknown);
        record.record_attached().unwrap();
        assert_eq!(SenderRecord::open(Some(&link)).unwrap().state(), SenderState::Attached);
        record.record_finished().unwrap();
        assert_eq!(SenderRecord::open(Some(&link)).unwrap().state(), SenderState::Finished);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no other file is left");
    }
}
