// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of opening a link file, each with advice to the operator.
//!
//! Whatever the error, opening changed no existing file.
//!
//! An error text already contains its cause, so `source` returns `None`: a printed error chain
//! would name the cause twice.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use partywall_layout::link::FileFault;

use super::evidence::Evidence;

/// Reason why a link file was not opened. The file was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The directory does not exist, or cannot be opened.
    #[error(
        "{} cannot be opened as the directory of links ({cause}): make it, for this user alone (mkdir -m 700)",
        path.display()
    )]
    NoDirectory {
        /// The path of the directory, as the caller gave it.
        path: PathBuf,
        /// The error of the system call that failed.
        cause: io::Error,
    },
    /// Another user owns the directory, and could replace the link files.
    #[error(
        "the directory {} belongs to user {owner}, not to {user}: choose one of your own",
        path.display()
    )]
    DirectoryNotOurs {
        /// The path of the directory, as the caller gave it.
        path: PathBuf,
        /// The user id of the directory's owner.
        owner: u32,
        /// The effective user id of this process.
        user: u32,
    },
    /// Other users may write to the directory, and could replace the link files.
    #[error(
        "others may write to the directory {} (mode {mode:03o}): take that right from them (chmod go-w)",
        path.display()
    )]
    DirectoryWritable {
        /// The path of the directory, as the caller gave it.
        path: PathBuf,
        /// The permissions of the directory, as its mode bits.
        mode: u32,
    },
    /// The name of the link file belongs to a directory, device, pipe, socket or symbolic link.
    #[error(
        "{} is no regular file: move it away; whatever it is, no link made it",
        path.display()
    )]
    NotAFile {
        /// The path of the object that has the link file's name, but is no regular file.
        path: PathBuf,
    },
    /// The link file belongs to another user.
    #[error(
        "{} belongs to user {owner}, not to {user}: run as that user, or move the file away",
        path.display()
    )]
    NotOurs {
        /// The path of the link file that was not opened.
        path: PathBuf,
        /// The user id of the link file's owner.
        owner: u32,
        /// The effective user id of this process.
        user: u32,
    },
    /// Other users may read or write the link file.
    #[error(
        "{} has mode {mode:03o}, not 600: find out who changed it, and who read or wrote the messages; \
         then chmod 600",
        path.display()
    )]
    Mode {
        /// The path of the link file that was not opened.
        path: PathBuf,
        /// The permissions of the link file, as its mode bits.
        mode: u32,
    },
    /// The contents of the link file break a rule for link files (SPEC 13.6), so they are damaged
    /// or of another link.
    #[error("{} is not opened: {fault}. {}", path.display(), advice(fault))]
    File {
        /// The path of the link file that was not opened.
        path: PathBuf,
        /// The first rule for link files (SPEC 13.6) that the file breaks.
        fault: FileFault,
    },
    /// The link file was last owned in another boot, and a power loss may have taken a part of it.
    #[error(
        "{} was last used before this boot: {evidence}. {}",
        path.display(),
        Advice { path, evidence }
    )]
    OtherBoot {
        /// The path of the link file that was not opened.
        path: PathBuf,
        /// Facts that the file itself proves about its messages, such as how many are whole.
        evidence: Box<Evidence>,
    },
    /// The directory lists a link file that was there before this boot, and is not there now.
    #[error(
        "{} is missing: it was there before this boot. Restore it from a copy; or let a new one begin empty, \
         with AfterReboot::AdoptProven (--after-reboot adopt-proven)",
        path.display()
    )]
    Missing {
        /// The path where the link file was.
        path: PathBuf,
    },
    /// Another owner has the link file, and is alive or cannot be proven dead.
    #[error(
        "{} is owned by process {pid} since {}: end that process, or use another link name; if it is in another \
         container or on another machine it cannot be judged from here",
        path.display(),
        Ago(*since)
    )]
    Busy {
        /// The path of the link file that was not opened.
        path: PathBuf,
        /// The process id of the owner, in the owner's own pid namespace.
        pid: u32,
        /// The time when the owner process became the owner of the link file.
        since: SystemTime,
    },
    /// Another process is becoming the owner: it holds the lock for that, but did not write its
    /// owner record in time.
    #[error(
        "{} is being opened by another process: try again. If this stays, that process was killed in the middle of \
         it while a child that it had forked lives on: end that child (see /proc/locks)",
        path.display()
    )]
    Opening {
        /// The path of the link file that was not opened.
        path: PathBuf,
    },
    /// The file system has no room for a new link file, so no file was made.
    #[error(
        "no room for {size} bytes in {} ({}{cause}): make room, raise the limit (size= of the tmpfs, quota, \
         ulimit -f), or ask for a smaller ring and slab",
        path.display(),
        available.map(|bytes| format!("{bytes} are left; ")).unwrap_or_default()
    )]
    NoSpace {
        /// The path of the directory of the link files.
        path: PathBuf,
        /// The size in bytes of the link file that was to be created.
        size: u64,
        /// The free bytes of the file system; `None` if the file system does not report them.
        available: Option<u64>,
        /// The error of the system call that failed.
        cause: io::Error,
    },
    /// The file system lacks a feature that link files need.
    #[error(
        "the file system of {} does not offer {what} ({cause}): use a directory on tmpfs, ext4, xfs or btrfs",
        path.display()
    )]
    Unsupported {
        /// The path of the directory of the link files.
        path: PathBuf,
        /// The name of the feature that the file system lacks.
        what: &'static str,
        /// The error of the system call that failed.
        cause: io::Error,
    },
    /// The configured sizes are impossible for a link file.
    #[error(
        "a ring of {ring} bytes with {entries} entries and {slab} bytes of slab cannot be: the ring is a power of two \
         from 4096 to 2^30, the entries one from 8 to 2^20, the slab at most 2^40"
    )]
    Sizes {
        /// The size of the record ring in bytes.
        ring: u64,
        /// The number of entries of the release ring.
        entries: u64,
        /// The size of the slab in bytes.
        slab: u64,
    },
    /// A system call failed for a reason that no other variant names.
    #[error("{what} failed for {}: {cause}", path.display())]
    System {
        /// The path of the link file, the list or the directory on which the system call failed.
        path: PathBuf,
        /// The operation for which the failed system call was made, as text.
        what: &'static str,
        /// The error of the system call that failed.
        cause: io::Error,
    },
}

fn advice(fault: &FileFault) -> &'static str {
    match fault {
        FileFault::Foreign => {
            "If a link made the file, its beginning was damaged since: restore it from a copy. \
             Otherwise move it away"
        }
        FileFault::Older { .. } => {
            "Drain the link with the version that made it, then remove the file"
        }
        FileFault::Newer { .. } => "Open it with the version that made it",
        FileFault::OtherLayout { .. } => {
            "Open it with the version that made it until its peer has acknowledged everything, then remove the file"
        }
        FileFault::OtherLink => "Choose another name for one of the two links",
        _ => {
            "Inspect it with `partywall link inspect`; then restore the file from a copy, or move it away: a new one begins \
             empty, and the peer reports that messages were lost"
        }
    }
}

/// Advice for the operator, printed after the evidence of a link file that was last owned in
/// another boot.
struct Advice<'a> {
    path: &'a Path,
    evidence: &'a Evidence,
}

impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.evidence.damage.is_some() {
            return f.write_str(
                "Restore it from a copy, or move it away: a new one begins empty, and the peer \
                 reports that messages were lost",
            );
        }
        write!(
            f,
            "To go on with that: `partywall link adopt {} --yes`, or open it once with \
             AfterReboot::AdoptProven (--after-reboot adopt-proven)",
            self.path.display()
        )
    }
}

/// A time that is printed as an age and as seconds since 1970.
struct Ago(SystemTime);

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let ago = self.0.elapsed().unwrap_or(Duration::ZERO);
        write!(f, "{} s ago (Unix time {})", ago.as_secs(), seconds.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    #[test]
    fn a_missing_directory_names_its_cause_once() {
        let cause = io::Error::from_raw_os_error(2);
        let error = StorageError::NoDirectory { path: "/nowhere".into(), cause };
        assert!(error.to_string().contains("No such file or directory"));
        assert!(error.source().is_none());
    }
}
