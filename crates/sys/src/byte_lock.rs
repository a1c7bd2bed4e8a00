// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks on single bytes of a file that belong to an open file description (`F_OFD_SETLK`).
//!
//! ```text
//!   open ──▶ description ──▶ lock on byte n     a second open in the same process is another
//!                ▲                              description: its lock attempt fails, too
//!   fork() ──────┘ the child's descriptor keeps the description, and so the lock
//! ```
//!
//! The locked byte need not exist. Process locks (`F_SETLK`) would be released when the process
//! closes *any* descriptor of the file, and would not exclude two owners within one process. The
//! kernel does not say who holds a lock.
//!
//! # Invariants
//!
//! - At most one description holds the lock of a byte. The lock is released when the last
//!   descriptor of that description is closed, however its processes end, or by an explicit unlock.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Takes the lock of the file's byte `offset`. Returns `false` if another open file description
/// holds the lock. The call never blocks.
///
/// # Errors
///
/// `EINVAL` if `offset` is 2⁶³ or more, `ENOLCK` if the file system or the system has no locks
/// left, `EBADF` if `file` is not writable.
pub fn try_lock(file: impl AsFd, offset: u64) -> io::Result<bool> {
    match control(&file, libc::F_OFD_SETLK, libc::F_WRLCK, offset) {
        Ok(_) => Ok(true),
        // POSIX allows two errors for a lock that another open file description holds, EACCES and
        // EAGAIN; Linux returns EAGAIN.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Releases the lock of the file's byte `offset`, if the open file description of `file` holds the
/// lock.
///
/// # Errors
///
/// Fails as [`try_lock`] does: the offset is too large, the system has no locks left, or the file
/// is not writable.
pub fn unlock(file: impl AsFd, offset: u64) -> io::Result<()> {
    control(&file, libc::F_OFD_SETLK, libc::F_UNLCK, offset).map(|_| ())
}

/// Whether another open file description holds the lock of the file's byte `offset` at this moment.
///
/// # Errors
///
/// Fails as [`try_lock`] does: the offset is too large, the system has no locks left, or the file
/// is not writable.
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
        l_pid: 0, // the kernel rejects other values (EINVAL)
    };
    for _ in 0..ATTEMPTS_MAX {
        let descriptor = file.as_fd().as_raw_fd();
        // SAFETY: the descriptor is borrowed, so it is open; the lock commands of fcntl read and
        // write one `flock` structure, which `lock` is.
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

/// The value of `SEEK_SET` in a lock request: offsets count from the start of the file.
const WHENCE_START: libc::c_short = 0;

/// Largest number of calls of fcntl for one request, if signals interrupt them. After the last one
/// the caller gets its error.
const ATTEMPTS_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn byte_is_locked_by_one_description() {
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
