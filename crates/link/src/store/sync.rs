// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing to the disk: the only place where a link file is synced, so that tests see each sync.
//!
//! A failed sync is never retried: after the error the system counts the pages as clean, so a
//! second sync would succeed without writing them.

use std::fs::File;
use std::io;

use partywall_sys::persistent_file::sync_file_system;

/// The changed pages that one sync writes to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncScope {
    File,
    /// The pages of all changed files in the file's file system, which is cheaper if many files
    /// have changed.
    FileSystem,
}

impl SyncScope {
    /// Writes the contents of `file` to the disk, including what was stored through its mappings.
    /// Returns when the contents are on the disk.
    pub(super) fn sync(self, file: &File) -> io::Result<()> {
        #[cfg(all(test, not(shuttle)))]
        observed::note(file);
        match self {
            Self::File => file.sync_data(),
            Self::FileSystem => sync_file_system(file),
        }
    }
}

/// Records what the disk holds of each file that this thread synced, so that tests can simulate a
/// power loss.
#[cfg(all(test, not(shuttle)))]
pub(crate) mod observed {
    use std::cell::RefCell;
    use std::fs::File;
    use std::os::unix::fs::{FileExt, MetadataExt};

    /// The inode number of a synced file, and the contents of the file at that sync.
    type Synced = (u64, Vec<u8>);

    thread_local! {
        static SYNCED: RefCell<(bool, Vec<Synced>)> = const { RefCell::new((false, Vec::new())) };
    }

    pub(crate) fn begin() {
        SYNCED.set((true, Vec::new()));
    }

    /// Stops recording the synced files if `is_paused`, and otherwise continues to record them.
    pub(crate) fn pause(is_paused: bool) {
        SYNCED.with_borrow_mut(|(is_noting, _)| *is_noting = !is_paused);
    }

    pub(crate) fn take() -> Vec<Synced> {
        SYNCED.with_borrow_mut(|(_, synced)| std::mem::take(synced))
    }

    pub(super) fn note(file: &File) {
        SYNCED.with_borrow_mut(|(is_noting, synced)| {
            if !*is_noting {
                return;
            }
            let of = file.metadata().unwrap();
            let mut bytes = vec![0; usize::try_from(of.len()).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            synced.push((of.ino(), bytes));
        });
    }
}
