// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening sockets that a service manager passed to this process: `LISTEN_FDS`.
//!
//! ```text
//!   LISTEN_PID=4242  LISTEN_FDS=2  LISTEN_FDNAMES=app:admin     descriptors 3 and 4
//! ```
//!
//! The descriptors stay open as they are, because other code of this process may use them: this
//! file returns duplicates. A forked child has another process id than `LISTEN_PID`, so no
//! descriptor is meant for the child.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use crate::fork::own_pid;

/// A duplicate of the passed descriptor with this name (`FileDescriptorName=` of systemd).
///
/// # Errors
///
/// `NotFound` if no descriptor of that name was passed to this process; `EBADF` if the descriptor
/// is not open. `EMFILE` if this process can open no further descriptor.
pub fn passed_descriptor(name: &str) -> io::Result<OwnedFd> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (pid, names) = (variable("LISTEN_PID"), variable("LISTEN_FDNAMES"));
    let count = variable("LISTEN_FDS").parse().unwrap_or(0);
    let found = if pid.parse() == Ok(own_pid()) { number_of(name, count, &names) } else { None };
    let number = found.ok_or_else(|| {
        let text = format!("no socket named {name} was passed (LISTEN_PID, _FDS, _FDNAMES)");
        io::Error::new(io::ErrorKind::NotFound, text)
    })?;
    // SAFETY: the number is from 3 to 3 + DESCRIPTORS_MAX, so not -1. The borrow ends with the call
    // that duplicates the descriptor, which fails if the descriptor is not open.
    let passed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(rustix::io::fcntl_dupfd_cloexec(passed, FIRST + 1)?)
}

/// Returns the number of the passed descriptor with this name. A descriptor for which `names` has
/// no name is called `unknown`.
fn number_of(name: &str, count: usize, names: &str) -> Option<RawFd> {
    let count = count.min(DESCRIPTORS_MAX);
    let mut names = names.split(':').filter(|name| !name.is_empty());
    let index = (0..count).find(|_| names.next().unwrap_or("unknown") == name)?;
    Some(FIRST + RawFd::try_from(index).ok()?)
}

/// Number of the first descriptor that a service manager passes to a process.
const FIRST: RawFd = 3;

/// Upper bound of the passed descriptors among which a name is searched, whatever number the
/// environment variable `LISTEN_FDS` states. Service managers pass far fewer.
const DESCRIPTORS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_is_found_by_its_name() {
        assert_eq!(number_of("app", 2, "app:admin"), Some(3));
        assert_eq!(number_of("admin", 2, "app:admin"), Some(4));
        assert_eq!(number_of("admin", 1, "app:admin"), None);
        assert_eq!(number_of("unknown", 1, ""), Some(3));
        assert_eq!(number_of("app", 0, "app"), None);
    }

    #[test]
    fn nothing_is_passed_to_a_test() {
        assert_eq!(passed_descriptor("app").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
