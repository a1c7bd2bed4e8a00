// SPDX-License-Identifier: MIT OR Apache-2.0
//! The storage of links: files in a directory, or memory of this process.

use std::path::{Path, PathBuf};

use super::error::{ConfigError, OpenError};
use super::link_state::LinkState;
use super::store::{AfterReboot, Directory, Key, OwnFile, Sizes, StorageError, StoreParts};

/// Place where a link keeps its messages. It determines whether they survive the end of the
/// process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// In the memory of this process. The link survives broken connections, but not its process.
    Memory,
    /// In files in the named directory, which must exist, belong to this user, and be writable for
    /// no other user. The two ends may use the same directory or different ones. The link survives
    /// the death of its processes. After a reboot the link continues if it was
    /// [closed](crate::Link::close) before. Otherwise the file is refused, unless
    /// [`Config::after_reboot`](crate::Config::after_reboot) says otherwise.
    Directory(PathBuf),
}

impl Storage {
    /// Returns [`Directory`](Self::Directory) with `path`.
    pub fn directory(path: impl AsRef<Path>) -> Self {
        Self::Directory(path.as_ref().to_owned())
    }
}

/// A [`Storage`] whose directory was checked and opened.
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

    /// Opens the state of a link, which continues where the last owner of the link's file left off.
    /// If `shares`, a link without a file uses memory that a peer can map, where possible.
    pub(super) fn core(
        &self,
        key: &Key,
        sizes: Sizes,
        after_reboot: AfterReboot,
        shares: bool,
    ) -> Result<LinkState, OpenError> {
        let parts = match self {
            Self::Directory(directory) => {
                let file = OwnFile::open_after(directory, key, sizes, after_reboot)?;
                StoreParts::of_file(file, INLINE_MAX)
            }
            Self::Memory => {
                let names = [key.local(), key.remote(), key.link()];
                let in_memfd = shares.then(|| StoreParts::in_memfd(sizes, names, INLINE_MAX));
                // If no memfd can be made, the link uses the heap and sends its records over the
                // socket.
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

/// The maximum length in bytes of a message in the ring: no limit but the ring's own, a quarter of
/// its size. Every message that fits goes into the ring, because over a socket the slab saves no
/// copy.
const INLINE_MAX: usize = usize::MAX;
