// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small text files under `/proc` and `/sys`, and the `Name: value` lines in them.
//!
//! The code in this source file does not interpret the values that it reads.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use rustix::fs::OFlags;

use crate::fork::{ForkGuard, own_pid};

/// Reads up to [`TEXT_SIZE_MAX`] bytes of the file `path`, which the kernel generates.
pub(crate) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(TEXT_SIZE);
    File::open(path)?.take(TEXT_SIZE_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first number in the file `path`; `None` if there is no such file or number.
pub(crate) fn read_number(path: impl AsRef<Path>) -> Option<u64> {
    read_text(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// The kernel's description of a descriptor of this process: the content of its file in `fdinfo`.
///
/// The path goes through `thread-self`: `self` is the first thread, which may have ended or have a
/// descriptor table of its own.
pub(crate) fn fdinfo(fd: impl AsFd) -> io::Result<String> {
    let path = format!("/proc/thread-self/fdinfo/{}", fd.as_fd().as_raw_fd());
    let mut file = File::open(&path)?;
    let mut text = [0; FDINFO_SIZE];
    // The kernel generates a file of `/proc` in one piece. So a read that does not fill the buffer
    // has all of the file.
    let size = file.read(&mut text)?;
    if size == FDINFO_SIZE {
        return read_text(path);
    }
    Ok(String::from_utf8_lossy(&text[..size]).into_owned())
}

/// Parses the status flags of a descriptor in a text that [`fdinfo`] returned.
pub(crate) fn flags(info: &str) -> Option<OFlags> {
    let flags = u32::from_str_radix(field(info, "flags")?, 8).ok()?;
    Some(OFlags::from_bits_retain(flags))
}

/// The user namespace and the pid namespace of a process, which is named by its directory in
/// `/proc`; `None` if they cannot be read.
pub(crate) fn namespaces(process: &str) -> Option<[PathBuf; 2]> {
    let of_kind = |kind| std::fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    Some([of_kind("user")?, of_kind("pid")?])
}

/// The user namespace and the pid namespace of this process, which are read once: a process that
/// moves to another user namespace does so before it connects.
pub(crate) fn own_namespaces() -> Option<[PathBuf; 2]> {
    OWN.get(|own| own.namespaces.clone(), |own| own.namespaces = namespaces("thread-self"))
}

/// Returns the value in the first line of `text` that reads `name:<spaces>value`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// Whether `/proc` belongs to this process's pid namespace; another `/proc` would show other
/// processes. A `/proc` that was found to be right is not checked again.
pub(crate) fn is_our_own() -> bool {
    let shows_us = || {
        let own = own_pid().to_string();
        let target = std::fs::read_link("/proc/self").ok()?;
        (target.as_os_str() == own.as_str()).then_some(())
    };
    OWN.get(|own| own.has_own_proc, |own| own.has_own_proc = shows_us()).is_some()
}

/// The values that `/proc` has for one process, and the fork guard's word of that process: a forked
/// child has another word, and reads the values for itself.
#[derive(Debug, Default)]
struct OwnProcess {
    word: u64,
    has_own_proc: Option<()>,
    namespaces: Option<[PathBuf; 2]>,
}

/// The values that this process has read from `/proc`, protected by a lock. A child may be forked
/// while another thread holds the lock. In the child the lock then stays locked for ever. So no
/// thread blocks on the lock: a thread that does not get it reads the value from `/proc` again.
struct OwnValues(RwLock<OwnProcess>);

static OWN: OwnValues =
    OwnValues(RwLock::new(OwnProcess { word: 0, has_own_proc: None, namespaces: None }));

impl OwnValues {
    /// Returns a value of this process from `/proc`: the stored one, which `known` looks up, or
    /// else the one that `find` reads from `/proc` now. A value that was read is stored unless it
    /// is `None`.
    fn get<T>(
        &self,
        known: impl Fn(&OwnProcess) -> Option<T>,
        find: impl FnOnce(&mut OwnProcess),
    ) -> Option<T> {
        let word = ForkGuard::current().value();
        if let Ok(own) = self.0.try_read() {
            if own.word == word {
                if let Some(value) = known(&own) {
                    return Some(value);
                }
            }
        }
        let mut found = OwnProcess { word, ..OwnProcess::default() };
        find(&mut found);
        let value = known(&found);
        if let Ok(mut own) = self.0.try_write() {
            if own.word != word {
                *own = found;
            } else {
                own.has_own_proc = own.has_own_proc.or(found.has_own_proc);
                own.namespaces = own.namespaces.take().or(found.namespaces);
            }
        }
        value
    }
}

/// Size in bytes of the buffer for the kernel's description of a descriptor. The description of a
/// pidfd or an eventfd is shorter.
const FDINFO_SIZE: usize = 1024;

/// Size in bytes of the buffer for a text, which grows if the text is longer. With an empty buffer
/// the standard library would read the file in many small pieces.
const TEXT_SIZE: usize = 4096;

/// Upper bound of the bytes read of one file. `/proc/PID/maps` of a large process is shorter.
const TEXT_SIZE_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_found_by_whole_name() {
        let text = "pos:\t0\nPid:\t42\nNSpid:\t42 1\n";
        assert_eq!(field(text, "Pid"), Some("42"));
        assert_eq!(field(text, "NSpid"), Some("42 1"));
        assert_eq!(field(text, "id"), None);
    }
}
