// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the memory of links comes from: files in a directory, or this process.

use super::config::Storage;
use super::fault::{ConfigError, OpenError};
use super::link_state::LinkState;
use super::store::Directory;
use super::store::Key;
use super::store::StorageError;
use super::store::StoreParts;
use super::store::{OwnFile, Sizes};

/// A [`Storage`] that was found fit.
#[derive(Debug)]
pub(super) enum Place {
    Volatile,
    Directory(Directory),
}

impl Place {
    pub(super) fn open(place: &Storage) -> Result<Self, StorageError> {
        Ok(match place {
            Storage::Memory => Self::Volatile,
            Storage::Directory(path) => Self::Directory(Directory::open(path)?),
        })
    }

    /// The core of a link, gone on with if there was one. `shares`: in memory that a neighbour can be shown, if that can be.
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
            Self::Volatile => {
                let names = [key.local(), key.remote(), key.link()];
                let shown = shares.then(|| StoreParts::in_memfd(sizes, names, INLINE_MAX));
                // Without it the link goes over its socket.
                let parts = shown.and_then(Result::ok);
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

/// Whatever fits goes into the ring: on a socket the slab saves no copy.
const INLINE_MAX: usize = usize::MAX;
