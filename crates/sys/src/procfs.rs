// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small text files under `/proc` and `/sys`, and the `Name: value` lines in them.
//!
//! It does not interpret their content.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Reads up to [`TEXT_SIZE_MAX`] bytes of a file that the kernel generates.
pub(crate) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(TEXT_SIZE_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first number in a file; `None` without a file or number.
pub(crate) fn read_number(path: impl AsRef<Path>) -> Option<u64> {
    read_text(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// The kernel's description of one of our descriptors.
///
/// Read through `thread-self`, because `self` is the first thread, which may be gone or have its
/// own table.
pub(crate) fn fdinfo(fd: impl AsFd) -> io::Result<String> {
    read_text(format!("/proc/thread-self/fdinfo/{}", fd.as_fd().as_raw_fd()))
}

/// The value of the first line `name:<spaces>value`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// True if `/proc` is of our pid namespace; another namespace's would show other processes.
pub(crate) fn is_our_own() -> bool {
    let own = std::process::id().to_string();
    std::fs::read_link("/proc/self").is_ok_and(|target| target.as_os_str() == own.as_str())
}

/// Larger than any file read here, `/proc/PID/maps` of a large process included.
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
