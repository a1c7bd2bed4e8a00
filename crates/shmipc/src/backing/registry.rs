// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffer regions of this process, by what they are and not by what they are called.
//!
//! ```text
//!   session A ─┐  (device, inode)
//!   session B ─┴────────────────▶ one Region: one mapping, one lock per list, one owner per slice
//! ```
//!
//! A peer's sessions share its buffer region. Two mappings of it would each believe to know which slices this process
//! has.
//!
//! # Invariants
//!
//! - An entry does not keep its region; as long as it lives, its identity cannot become another file's.

use super::{Backing, Given, RegionError};
use crate::region::{Class, Region, Shared};
use partywall_sys::{FileIdentity, SharedMap};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// Fills `map`, fresh memory of `backing`, with a buffer region; the two belong together.
///
/// # Errors
///
/// See [`RegionError`].
pub fn create_buffer(
    backing: &Backing,
    map: SharedMap,
    classes: &[Class],
) -> Result<Arc<Region>, RegionError> {
    let region = Region::create(map, classes)?;
    backing.seal()?;
    let mut regions = REGIONS.lock().unwrap_or_else(PoisonError::into_inner);
    regions.retain(|_, region| region.strong_count() > 0);
    regions.insert(backing.identity(), Arc::downgrade(region.shared()));
    Ok(region)
}

/// The buffer region in `given`: the one that other sessions of this process use already, if any does.
///
/// # Errors
///
/// See [`RegionError`].
pub fn open_buffer(given: &Given) -> Result<Arc<Region>, RegionError> {
    // Held while mapping, so that no two sessions map the same.
    let mut regions = REGIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(region) = regions.get(&given.identity()).and_then(Weak::upgrade) {
        return Ok(Region::of(region));
    }
    regions.retain(|_, region| region.strong_count() > 0);
    let region = Region::map(given.map()?)?;
    regions.insert(given.identity(), Arc::downgrade(region.shared()));
    Ok(region)
}

static REGIONS: LazyLock<Mutex<HashMap<FileIdentity, Weak<Shared>>>> =
    LazyLock::new(Mutex::default);
