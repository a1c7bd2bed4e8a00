// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of `partywall link recv`: stdout, or the file of --out.
//!
//! ```text
//!   --out FILE   former content │ the present batch
//!                               └ `truncate_to` removes the present batch, if it must not stay
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::framing::Framing;
use super::monitor::Ended;
use crate::command::exit::Exit;

/// The file, or stdout, to which received messages are written.
pub struct Output {
    file: File,
    /// Length of the output file in bytes: the offset of the next batch.
    length: u64,
}

impl Output {
    /// Opens or creates the file at `path`; without a path, the output is stdout.
    pub fn open(path: Option<&PathBuf>) -> Result<Self> {
        let Some(path) = path else {
            let descriptor: OwnedFd =
                io::stdout().as_fd().try_clone_to_owned().context("stdout")?;
            return Ok(Self { file: descriptor.into(), length: 0 });
        };
        let name = || format!("--out {}", path.display());
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.with_context(name)?;
        // A pipe cannot seek, so only a regular file has a length.
        let length = if file.metadata()?.is_file() {
            file.seek(SeekFrom::End(0)).with_context(name)?
        } else {
            0
        };
        Ok(Self { file, length })
    }

    /// The output's open file, from which the checkpoint takes its identity.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Length of the output file in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Writes a newline if the file ends with a part of a line, which a killed process wrote. The
    /// next message thereby begins a new line. With --exactly-once the command does not call this
    /// function, because the checkpoint removes such a part.
    pub fn end_partial_line(&mut self, framing: Framing) -> Result<()> {
        if self.length == 0 {
            return Ok(());
        }
        ensure!(
            framing == Framing::Lines,
            "--out is not empty, and a kill may have left half a message at its end, after which no reader could find the \
             next: give a new file, or --exactly-once"
        );
        let mut last = [0];
        self.file.read_exact_at(&mut last, self.length - 1).context("reading --out")?;
        if last != *b"\n" {
            self.file.write_all(b"\n").context("writing --out")?;
            self.length += 1;
        }
        Ok(())
    }

    /// Truncates the output file to its first `length` bytes.
    pub fn truncate_to(&mut self, length: u64) -> Result<()> {
        self.file.set_len(length).context("truncating --out")?;
        self.length = self.file.seek(SeekFrom::End(0)).context("truncating --out")?;
        Ok(())
    }

    /// Whether the output is a regular file, whose last bytes a power loss may take although their
    /// messages were acknowledged.
    pub fn is_regular(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.is_file())
    }

    /// Writes the content of the output to the disk, if the output is a regular file.
    pub fn sync(&self) -> Result<(), Ended> {
        let synced = if self.is_regular() { self.file.sync_all() } else { Ok(()) };
        synced.map_err(|error| Ended {
            exit: Exit::OutputClosed,
            reason: format!("writing the output to the disk failed: {error}"),
        })
    }

    /// Appends all of `bytes` to the output.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let written = self.file.write_all(bytes);
        self.length += bytes.len() as u64;
        written.map_err(|error| Ended {
            exit: Exit::OutputClosed,
            reason: format!(
                "writing the output failed: {error}; unwritten messages stay in the link"
            ),
        })
    }
}
