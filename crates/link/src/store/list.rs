// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of the link files in a directory (SPEC 13.9). It reveals that a power loss has removed
//! a link file together with its name.
//!
//! ```text
//!   links.list   c3577146f5953aeb 0123456789abcdef0123456789abcdef ⏎     50 bytes a line
//!                hash of the names   boot in which the file was last listed
//!   first owner of a file, or first owner in a boot: syncs the directory, appends a line, syncs it
//!   no file of a link, but a line of another boot for that link: the file is missing
//! ```
//!
//! Lines are only appended, each by one write, so several processes may append at a time. Of two
//! lines with the same hash, the later line holds. A line of another form is ignored: a power loss
//! may have torn the last line. An owner uses its file only after the line is on the disk, so the
//! file of a torn line was never used.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use super::sync::SyncScope;

/// The entries of `links.list`, as far as this process has read that file: for each link file, the
/// boot in which it was last listed.
#[derive(Debug, Default)]
pub(super) struct List {
    read_to: u64,
    boots: HashMap<u64, u128>,
}

impl List {
    /// Reads the lines that were added to `links.list`, the list of link files, since the last
    /// call.
    pub(super) fn refresh(&mut self, file: &File) -> io::Result<()> {
        if file.metadata()?.len() < self.read_to {
            // The file `links.list` is shorter than the part that was read before, so an operator
            // has replaced the file, which is read from its start again.
            *self = Self::default();
        }
        let mut bytes = [0; LINES_AT_ONCE * LINE_BYTES];
        loop {
            let count = file.read_at(&mut bytes, self.read_to)?;
            let lines = bytes[..count].chunks_exact(LINE_BYTES);
            let whole = lines.len() * LINE_BYTES;
            if whole == 0 {
                return Ok(());
            }
            for line in lines {
                if let Some((name, boot)) = parsed(line) {
                    self.boots.insert(name, boot);
                }
            }
            self.read_to += whole as u64;
        }
    }

    /// The boot in which the link file with the hash `name` was last listed; `None` if it was never
    /// listed.
    pub(super) fn boot(&self, name: u64) -> Option<u128> {
        self.boots.get(&name).copied()
    }

    /// The hashes of all links in `links.list`, the list of link files.
    pub(super) fn names(&self) -> impl Iterator<Item = u64> {
        self.boots.keys().copied()
    }

    /// Appends a line to `links.list`, the list of link files. When this function returns, the line
    /// is on the disk.
    pub(super) fn append(&mut self, mut file: &File, name: u64, boot: u128) -> io::Result<()> {
        // A power loss may have torn the last line, and two processes may complete it at the same
        // time. The line of the second process then begins at a wrong offset, so that process tries
        // again.
        for _ in 0..ATTEMPTS_MAX {
            // A last line that a power loss has torn is filled up with line feeds, so that the new
            // line begins at a multiple of the line length.
            let torn = file.metadata()?.len() % LINE_BYTES as u64;
            let missing = (LINE_BYTES as u64 - torn) % LINE_BYTES as u64;
            let filled = "\n".repeat(usize::try_from(missing).unwrap_or(0));
            file.write_all(format!("{filled}{name:016x} {boot:032x}\n").as_bytes())?;
            SyncScope::File.sync(file)?;
            self.refresh(file)?;
            if self.boot(name) == Some(boot) {
                return Ok(());
            }
        }
        Err(io::Error::other("other processes write it all the time"))
    }
}

fn parsed(line: &[u8]) -> Option<(u64, u128)> {
    let (name, boot) = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.split_once(' ')?;
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if name.len() != 16 || boot.len() != 32 || !is_hex(name) || !is_hex(boot) {
        return None;
    }
    Some((u64::from_str_radix(name, 16).ok()?, u128::from_str_radix(boot, 16).ok()?))
}

/// Name of the file with the list of link files, in the directory of these files.
pub(super) const LIST_NAME: &str = "links.list";
/// Length in bytes of one line of `links.list`, the list of link files.
const LINE_BYTES: usize = 50;
/// Maximum number of lines that one read of `links.list`, the list of link files, takes: about 4
/// KB. The number bounds the size of a buffer, not that of the list.
const LINES_AT_ONCE: usize = 80;
/// Maximum number of attempts to append one line to `links.list`, the list of link files. An
/// attempt fails only if another process appended at the same moment.
const ATTEMPTS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_line_holds_and_a_torn_one_is_filled_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LIST_NAME);
        let open = || File::options().read(true).append(true).create(true).open(&path).unwrap();
        let file = open();
        let mut list = List::default();
        for number in 0..1000_u64 {
            list.append(&file, number % 300, u128::from(number) << 64 | 7).unwrap();
        }
        assert_eq!(list.boot(299), Some(899 << 64 | 7));
        assert_eq!(list.boot(99), Some(999 << 64 | 7));
        assert_eq!(list.boot(300), None);
        // Input: a list of link files whose last line lacks its end, as after a power loss.
        // Expected: the lines before it still count, and a later line is appended whole.
        file.set_len(999 * 50 + 20).unwrap();
        let mut list = List::default();
        list.refresh(&file).unwrap();
        assert_eq!(list.boot(99), Some(699 << 64 | 7), "the line before holds");
        list.append(&file, 99, 5).unwrap();
        list.append(&open(), 7, 6).unwrap();
        assert_eq!((list.boot(99), list.boot(7)), (Some(5), Some(6)));
        let mut again = List::default();
        again.refresh(&file).unwrap();
        assert_eq!(again.boots, list.boots);
    }
}
