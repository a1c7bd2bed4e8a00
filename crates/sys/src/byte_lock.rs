// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks on single bytes of a file that belong to an open file description (`F_OFD_SETLK`).
//!
//! ```text
//!   open ──▶ description ──▶ lock on byte n        a second open in the same process is another description:
//!                ▲                                 it is refused like a stranger's
//!   fork() ──────┘ the child's descriptor keeps the description, and so the lock
//! ```
//!
//! The byte need not exist. Locks of processes (`F_SETLK`) would go when *any* descriptor of the file is closed in
//! the process, and would not keep a process from itself. Whose a lock is, the kernel does not say.
//!
//! # Invariants
//!
//! - At most one description has the lock of a byte at a time; it goes when the last descriptor of it is closed,
//!   however the processes end, or when one of them unlocks.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Takes the lock of byte `offset`; `false` if another description has it. Never waits.
///
/// # Errors
///
/// `EINVAL` beyond 2⁶³, `ENOLCK` where the file system or the system has no locks left, `EBADF` if `file` cannot be
/// written.
pub fn try_lock(file: impl AsFd, offset: u64) -> io::Result<bool> {
    match control(&file, libc::F_OFD_SETLK, libc::F_WRLCK, offset) {
        Ok(_) => Ok(true),
        // POSIX allows either; Linux says the first.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Gives the lock of byte `offset` back, if this description has it.
///
/// # Errors
///
/// As [`try_lock`].
pub fn unlock(file: impl AsFd, offset: u64) -> io::Result<()> {
    control(&file, libc::F_OFD_SETLK, libc::F_UNLCK, offset).map(|_| ())
}

/// Whether another description has the lock of byte `offset` at this moment.
///
/// # Errors
///
/// As [`try_lock`].
pub fn is_locked(file: impl AsFd, offset: u64) -> io::Result<bool> {
    let found = control(&file, libc::F_OFD_GETLK, libc::F_WRLCK, offset)?;
    Ok(libc::c_int::from(found.l_type) != libc::F_UNLCK)
}

fn control(
    file: &impl AsFd,
    command: libc::c_int,
    kind: libc::c_int,
    offset: u64,
) -> io::Result<libc::flock> {
    let refused = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut lock = libc::flock {
        l_type: libc::c_short::try_from(kind).map_err(|_| io::ErrorKind::InvalidInput)?,
        l_whence: WHENCE_START,
        l_start: libc::off_t::try_from(offset).map_err(refused)?,
        l_len: 1,
        l_pid: 0, // anything else is EINVAL
    };
    for _ in 0..ATTEMPTS_MAX {
        let descriptor = file.as_fd().as_raw_fd();
        // SAFETY: the descriptor is borrowed, so it is open, and these commands read and write one `flock`, which
        // `lock` is.
        if unsafe { libc::fcntl(descriptor, command, &raw mut lock) } == 0 {
            return Ok(lock);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// `SEEK_SET`.
const WHENCE_START: libc::c_short = 0;

/// How often a signal may interrupt what does not wait.
const ATTEMPTS_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn one_description_has_a_byte() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let open = || File::options().create(true).truncate(false).write(true).open(&path).unwrap();
        let (first, second) = (open(), open());
        assert!(try_lock(&first, 1 << 61).unwrap());
        assert!(try_lock(&first, 1 << 61).unwrap(), "it has it already");
        assert!(!try_lock(&second, 1 << 61).unwrap());
        assert!(try_lock(&second, (1 << 61) + 1).unwrap());
        assert!(is_locked(&second, 1 << 61).unwrap());
        assert!(!is_locked(&first, 1 << 61).unwrap(), "only others count");
        let inherited = first.try_clone().unwrap();
        drop(first);
        assert!(is_locked(&second, 1 << 61).unwrap());
        unlock(&inherited, 1 << 61).unwrap();
        assert!(try_lock(&second, 1 << 61).unwrap());
        assert!(try_lock(&second, u64::MAX).is_err());
    }
}
