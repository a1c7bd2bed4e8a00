// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing to the disk: the only place where a link file is synced, so that tests see each sync.
//!
//! An error is never retried: after it the system counts the pages as clean, and a second sync
//! would succeed without them.

use std::fs::File;
use std::io;

use partywall_sys::persistent_file::sync_file_system;

/// How much is written to the disk at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncScope {
    /// One file.
    File,
    /// Everything that was changed in its file system, which is cheaper for many files.
    FileSystem,
}

impl SyncScope {
    /// Writes the contents of `file` to the disk, those of its mappings too, and returns when they
    /// are there.
    pub(super) fn sync(self, file: &File) -> io::Result<()> {
        #[cfg(all(test, not(shuttle)))]
        observed::note(file);
        match self {
            Self::File => file.sync_data(),
            Self::FileSystem => sync_file_system(file),
        }
    }
}

/// What the disk holds of the files that this thread synced, for tests of a power loss.
#[cfg(all(test, not(shuttle)))]
pub(crate) mod observed {
    use std::cell::RefCell;
    use std::fs::File;
    use std::os::unix::fs::{FileExt, MetadataExt};

    /// The inode number of a file, and its contents when it was synced.
    type Synced = (u64, Vec<u8>);

    thread_local! {
        static SYNCED: RefCell<(bool, Vec<Synced>)> = const { RefCell::new((false, Vec::new())) };
    }

    /// Begins to note the contents of each file that this thread syncs.
    pub(crate) fn begin() {
        SYNCED.set((true, Vec::new()));
    }

    /// Stops noting, or goes on with it.
    pub(crate) fn pause(is_paused: bool) {
        SYNCED.with_borrow_mut(|(is_noting, _)| *is_noting = !is_paused);
    }

    /// Takes what was noted since the last call.
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
