// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the memory of links comes from: files in a directory, or this process.

use super::config::LinkPlace;
use super::core::{Core, Parts};
use super::directory::LinkDirectory;
use super::error::LinkError;
use super::fault::{LinkConfigError, LinkOpenError};
use super::file::{OwnFile, Sizes};
use super::key::LinkKey;

/// A [`LinkPlace`] that was found fit.
#[derive(Debug)]
pub(super) enum Place {
    Volatile,
    Directory(LinkDirectory),
}

impl Place {
    pub(super) fn open(place: &LinkPlace) -> Result<Self, LinkError> {
        Ok(match place {
            LinkPlace::Volatile => Self::Volatile,
            LinkPlace::Directory(path) => Self::Directory(LinkDirectory::open(path)?),
        })
    }

    /// The core of a link, gone on with if there was one.
    pub(super) fn core(&self, key: &LinkKey, sizes: Sizes) -> Result<Core, LinkOpenError> {
        let parts = match self {
            Self::Directory(directory) => {
                Parts::of_file(OwnFile::open(directory, key, sizes)?, INLINE_MAX)
            }
            Self::Volatile => Parts::volatile(sizes, INLINE_MAX).ok_or(LinkConfigError {
                setting: "slab_bytes",
                found: sizes.slab,
                wanted: "as much memory as there is",
            })?,
        };
        Core::open(parts).map_err(|fault| LinkOpenError::Damaged(fault.to_string()))
    }
}

/// Whatever fits goes into the ring: on a socket the slab saves no copy.
const INLINE_MAX: usize = usize::MAX;
