// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the memory of links comes from: files in a directory, or this process.

use std::path::{Path, PathBuf};

use super::error::{ConfigError, OpenError};
use super::link_state::LinkState;
use super::store::{Directory, Key, OwnFile, Sizes, StorageError, StoreParts};

/// Where messages of links are kept, and so what they survive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// In the memory of this process. A link survives broken connections, and ends with its
    /// process.
    Memory,
    /// In files in this directory, which must exist, belong to this user, and be writable for no
    /// other user. A link survives that its processes are killed. It does not survive that the
    /// machine loses power.
    Directory(PathBuf),
}

impl Storage {
    /// Makes a [`Directory`](Self::Directory).
    pub fn directory(path: impl AsRef<Path>) -> Self {
        Self::Directory(path.as_ref().to_owned())
    }
}

/// A [`Storage`] that was checked and opened.
#[derive(Debug)]
pub(super) enum OpenStorage {
    Memory,
    Directory(Directory),
}

impl OpenStorage {
    pub(super) fn open(storage: &Storage) -> Result<Self, StorageError> {
        Ok(match storage {
            Storage::Memory => Self::Memory,
            Storage::Directory(path) => Self::Directory(Directory::open(path)?),
        })
    }

    /// Opens the state of a link, which continues where it was. `shares`: in memory that a peer can
    /// map, if possible.
    pub(super) fn core(
        &self,
        key: &Key,
        sizes: Sizes,
        shares: bool,
    ) -> Result<LinkState, OpenError> {
        let parts = match self {
            Self::Directory(directory) => {
                StoreParts::of_file(OwnFile::open(directory, key, sizes)?, INLINE_MAX)
            }
            Self::Memory => {
                let names = [key.local(), key.remote(), key.link()];
                let in_memfd = shares.then(|| StoreParts::in_memfd(sizes, names, INLINE_MAX));
                // Without such memory the link uses its socket.
                let parts = in_memfd.and_then(Result::ok);
                let parts = parts.or_else(|| StoreParts::on_heap(sizes, INLINE_MAX));
                parts.ok_or(ConfigError {
                    setting: "slab_bytes",
                    found: sizes.slab,
                    wanted: "as much memory as there is",
                })?
            }
        };
        LinkState::open(parts).map_err(|fault| OpenError::Damaged(fault.to_string()))
    }
}

/// Every message that fits goes into the ring: on a socket the slab saves no copy.
const INLINE_MAX: usize = usize::MAX;
