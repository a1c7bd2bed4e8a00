// SPDX-License-Identifier: MIT OR Apache-2.0
//! `EndOptions`: the flags that `send` and `recv` share, for names, storage, framing and the
//! secret.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use partywall_link::{AfterReboot, Storage};

use super::framing::Framing;
use partywall_bench::figure::quantity::parse_time;

use crate::command::exit::usage;

/// The flags that `send` and `recv` share.
#[derive(Clone, Debug, clap::Args)]
pub struct EndOptions {
    /// Directory that keeps the link, so that it survives kill -9; it must be yours, with mode 700
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keep the link in memory only: unacknowledged messages are lost when this process ends
    #[arg(long, conflicts_with = "dir")]
    pub volatile: bool,
    /// Name of this end of the link, by which the peer knows it
    #[arg(long, value_name = "A")]
    pub name: String,
    /// Name of the link; a pair of ends may have several
    #[arg(long, value_name = "NAME", default_value = "messages")]
    pub link: String,
    /// How messages are delimited in the file or stream
    #[arg(long, value_enum, default_value_t = Framing::Lines)]
    pub framing: Framing,
    /// After a kill, some messages may come twice, and none is missing; the default
    #[arg(long, conflicts_with = "exactly_once")]
    pub at_least_once: bool,
    /// After a kill, each message comes exactly once; needs --dir and a file
    #[arg(long)]
    pub exactly_once: bool,
    /// File with the secret that both ends must have; only its owner may have permission to read it
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What to do with a file of the link that its owner had not closed before the machine rebooted
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = AfterRebootFlag::Refuse)]
    pub after_reboot: AfterRebootFlag,
    /// Longest time without progress, such as an acknowledgement or a received message; after it,
    /// the command fails [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub timeout: Option<Duration>,
    /// At the end, print bytes, messages and rate on stderr
    #[arg(long)]
    pub stats: bool,
    /// Do not print connections on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

/// The values of --after-reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AfterRebootFlag {
    /// End with an error that says which messages are whole, and leave the file unchanged
    Refuse,
    /// Go on with the messages that are whole by their checksums; print that other messages may be
    /// lost or come again
    AdoptProven,
}

impl From<AfterRebootFlag> for AfterReboot {
    fn from(flag: AfterRebootFlag) -> Self {
        match flag {
            AfterRebootFlag::Refuse => Self::Refuse,
            AfterRebootFlag::AdoptProven => Self::AdoptProven,
        }
    }
}

impl EndOptions {
    /// Returns where the link is stored: in --dir, or in memory with --volatile. `option` names the
    /// flag of the file that --exactly-once needs, and `is_given` says whether the user gave that
    /// flag.
    pub fn place(&self, (option, is_given): (&str, bool)) -> Result<Storage> {
        if self.exactly_once {
            let needs = "--exactly-once finds both again after a kill";
            if self.dir.is_none() {
                return Err(usage(format!("give --dir DIR: {needs}, the link and the file")));
            }
            if !is_given {
                let file = "the link and the file, but not a pipe";
                return Err(usage(format!("give {option} FILE: {needs}, {file}")));
            }
        }
        match &self.dir {
            Some(path) => Ok(Storage::directory(path)),
            None if self.volatile => Ok(Storage::Memory),
            None => Err(usage(
                "a link needs a directory: make one (mkdir -m 700 links) and give --dir links; or give --volatile, \
                 which loses unacknowledged messages when this process ends",
            )),
        }
    }

    /// The secret of both ends, read from the file of --token-file; `None` without that flag.
    pub fn secret(&self) -> Result<Option<Vec<u8>>> {
        self.token_file.as_deref().map(secret_in).transpose()
    }
}

fn secret_in(path: &Path) -> Result<Vec<u8>> {
    let name = || format!("--token-file {}", path.display());
    let file = File::open(path).with_context(name)?;
    let mode = file.metadata().with_context(name)?.mode() & 0o777;
    ensure!(mode & 0o077 == 0, "{}: other users can read it (mode {mode:03o}): chmod 600", name());
    let mut secret = Vec::new();
    // One byte more than the longest secret is read from the file, so that a longer secret is
    // detected.
    file.take(SECRET_MAX + 1).read_to_end(&mut secret).with_context(name)?;
    while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        secret.pop();
    }
    ensure!(
        !secret.is_empty(),
        "{}: it is empty: head -c 32 /dev/urandom | base64 makes a good one",
        name()
    );
    ensure!(secret.len() as u64 <= SECRET_MAX, "{}: it is longer than {SECRET_MAX} bytes", name());
    Ok(secret)
}

/// Whether `given` equals the secret; the time of the comparison depends only on the length of
/// `given`.
pub fn is_same(given: &[u8], secret: &[u8]) -> bool {
    let of = |index: usize| secret.get(index).copied().unwrap_or(0);
    let different = given.iter().enumerate().fold(0, |all, (index, byte)| all | (byte ^ of(index)));
    std::hint::black_box(different) == 0 && given.len() == secret.len()
}

/// Length of the longest secret in bytes: the protocol of links cannot carry a longer secret in a
/// login.
const SECRET_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_secret_is_not_the_same() {
        assert!(is_same(b"secret", b"secret"));
        for given in [&b""[..], b"secre", b"secret\0", b"secres", b"Secret", b"secretsecret"] {
            assert!(!is_same(given, b"secret"), "{given:?}");
        }
    }
}
