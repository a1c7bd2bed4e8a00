// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small text files under `/proc` and `/sys`, and the `Name: value` lines in them.
//!
//! This file does not interpret the values.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Reads up to [`TEXT_SIZE_MAX`] bytes of the file `path`, which the kernel generates.
pub(crate) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(TEXT_SIZE_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first number in the file `path`; `None` if there is no such file or number.
pub(crate) fn read_number(path: impl AsRef<Path>) -> Option<u64> {
    read_text(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// The kernel's description of a descriptor of this process.
///
/// The path goes through `thread-self`: `self` is the first thread, which may have ended or have a
/// descriptor table of its own.
pub(crate) fn fdinfo(fd: impl AsFd) -> io::Result<String> {
    read_text(format!("/proc/thread-self/fdinfo/{}", fd.as_fd().as_raw_fd()))
}

/// The value of the first line of `text` that reads `name:<spaces>value`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// Whether `/proc` is that of this process's pid namespace; another `/proc` would show other
/// processes.
pub(crate) fn is_our_own() -> bool {
    let own = std::process::id().to_string();
    std::fs::read_link("/proc/self").is_ok_and(|target| target.as_os_str() == own.as_str())
}

/// Upper bound of the bytes read of one file: more than `/proc/PID/maps` of a large process has.
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
