// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where `recv` writes: stdout, or a file that it goes on with.
//!
//! ```text
//!   --out FILE   what it holds │ the batch that is being written       cut: back to here, with --exactly-once
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

/// See the module.
pub struct Output {
    file: File,
    /// Where the next batch goes; of a file.
    length: u64,
}

impl Output {
    /// The file, made if it is not there, or stdout.
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
        // A pipe has no end to go to.
        let length = if file.metadata()?.is_file() {
            file.seek(SeekFrom::End(0)).with_context(name)?
        } else {
            0
        };
        Ok(Self { file, length })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn len(&self) -> u64 {
        self.length
    }

    /// Makes a new message not begin within one that was half written, as far as can be known without --exactly-once.
    pub fn mend(&mut self, framing: Framing) -> Result<()> {
        if self.length == 0 {
            return Ok(());
        }
        ensure!(
            framing == Framing::Lines,
            "--out holds something already, and a kill may have left half a message at its end, behind which nobody could \
             find the next: give a new file, or --exactly-once"
        );
        let mut last = [0];
        self.file.read_exact_at(&mut last, self.length - 1).context("reading --out")?;
        if last != *b"\n" {
            self.file.write_all(b"\n").context("writing --out")?;
            self.length += 1;
        }
        Ok(())
    }

    /// Cuts off everything behind `length`.
    pub fn cut(&mut self, length: u64) -> Result<()> {
        self.file.set_len(length).context("cutting --out")?;
        self.length = self.file.seek(SeekFrom::End(0)).context("cutting --out")?;
        Ok(())
    }

    /// Writes all of it.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let written = self.file.write_all(bytes);
        self.length += bytes.len() as u64;
        written.map_err(|error| Ended {
            exit: Exit::OutputClosed,
            reason: format!(
                "writing the output failed: {error}; what it has not got stays in the link"
            ),
        })
    }
}
