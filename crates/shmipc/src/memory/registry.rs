// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registry of the buffer regions that this process has mapped, identified by device and inode
//! instead of file name. Every session looks up here whether its region is mapped already.
//!
//! ```text
//!   session A ─┐  (device, inode)
//!   session B ─┴────────▶ one BufferRegion: one mapping, one lock per list, one owner per slice
//! ```
//!
//! The sessions of a peer share its buffer region. If this process had two `BufferRegion`s over the
//! same memory, each would assume that it alone knows which slices this process holds.
//!
//! # Invariants
//!
//! - Slices are allocated only from registered regions.
//! - An entry does not keep its region alive. While the region lives, no other file can have the
//!   same device and inode.

use super::{Backing, BackingError, PeerMemory, RegionError};
use crate::region::{BufferRegion, Class, Shared};
use partywall_sys::shared_file::AdoptedFile;
use partywall_sys::{FileIdentity, SharedMap};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// Writes an empty buffer region into the memory that `map` maps, seals the memory, and registers
/// the region. `backing` is the fresh memfd or file of that memory.
///
/// # Errors
///
/// Fails for one of the reasons in [`RegionError`].
pub fn create_buffer(
    backing: &Backing,
    map: SharedMap,
    classes: &[Class],
) -> Result<Arc<BufferRegion>, RegionError> {
    let region = BufferRegion::create(map, classes)?;
    backing.seal()?;
    let mut regions = regions();
    regions.retain(|_, region| region.strong_count() > 0);
    regions.insert(backing.identity(), Arc::downgrade(region.shared()));
    Ok(region)
}

/// Returns the buffer region in the memory `given`. Sessions of this process that use the same
/// memory share its state. If any of these sessions demands it, the mapping is guarded: a
/// truncation of the file then does not kill this process.
///
/// # Errors
///
/// Fails for one of the reasons in [`RegionError`].
pub fn open_buffer(given: &PeerMemory) -> Result<Arc<BufferRegion>, RegionError> {
    open_or(given, || Ok(BufferRegion::map(given.map()?)?))
}

/// Returns a value to be held by each session that uses the file of `given`, which a client named.
/// The file is removed when the last of these sessions drops the value. Returns `None` if this
/// process may not remove the file.
pub fn keep(given: PeerMemory) -> Option<Arc<Backing>> {
    AdoptedFile::remove_unlocked();
    let mut adopted = adopted();
    // No `Backing` (owner of a region's file) is dropped while the table of files is locked: the
    // drop may remove the file, and a call of the file system may block.
    if let Some(backing) = adopted.get(&given.identity()).and_then(Weak::upgrade) {
        return Some(backing);
    }
    let backing = Arc::new(given.backing()?);
    adopted.retain(|_, backing| backing.strong_count() > 0);
    adopted.insert(backing.identity(), Arc::downgrade(&backing));
    Some(backing)
}

/// Returns the region registered for the memory `given`, or a new one that `map` maps. The function
/// `map` runs without the lock of the registry of regions, because mapping and reading headers may
/// block on the file system.
fn open_or(
    given: &PeerMemory,
    map: impl FnOnce() -> Result<Arc<BufferRegion>, RegionError>,
) -> Result<Arc<BufferRegion>, RegionError> {
    let known = find(&regions(), given);
    let region = match known {
        Some(region) => region,
        None => {
            let mapped = map()?;
            let mut regions = regions();
            // If another thread has registered the region meanwhile, this thread uses that one, and
            // discards its own mapping, from which no slice was allocated.
            find(&regions, given).unwrap_or_else(|| {
                regions.retain(|_, region| region.strong_count() > 0);
                regions.insert(given.identity(), Arc::downgrade(mapped.shared()));
                mapped
            })
        }
    };
    if given.needs_guard() {
        region.guard().map_err(BackingError::from)?;
    }
    Ok(region)
}

type Regions = HashMap<FileIdentity, Weak<Shared>>;

fn find(regions: &Regions, given: &PeerMemory) -> Option<Arc<BufferRegion>> {
    regions.get(&given.identity()).and_then(Weak::upgrade).map(BufferRegion::of)
}

type Adopted = HashMap<FileIdentity, Weak<Backing>>;

fn adopted() -> MutexGuard<'static, Adopted> {
    ADOPTED.lock().unwrap_or_else(PoisonError::into_inner)
}

static ADOPTED: LazyLock<Mutex<Adopted>> = LazyLock::new(Mutex::default);

fn regions() -> MutexGuard<'static, Regions> {
    REGIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

static REGIONS: LazyLock<Mutex<Regions>> = LazyLock::new(Mutex::default);

#[cfg(test)]
mod tests {
    use super::super::MemoryRules;
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    fn given() -> (Backing, PeerMemory) {
        let (backing, map) = Backing::create_memfd("/registry", 1 << 20).unwrap();
        let classes = [Class { size: 4096, percent: 100 }];
        drop(create_buffer(&backing, map, &classes).unwrap());
        let fd = backing.fd().try_clone_to_owned().unwrap();
        let given = PeerMemory::descriptor(fd, &MemoryRules::new(1 << 20, None)).unwrap();
        (backing, given)
    }

    #[test]
    fn a_region_that_is_slow_to_map_holds_up_no_other() {
        let ((_slow, slow), (_other, other)) = (given(), given());
        let (tell, opened) = mpsc::channel();
        std::thread::scope(|scope| {
            let region = open_or(&slow, || {
                scope.spawn(|| tell.send(open_buffer(&other).is_ok()));
                let opened = opened.recv_timeout(Duration::from_secs(10));
                assert_eq!(opened, Ok(true), "another session waits for this one's file");
                Ok(BufferRegion::map(slow.map()?)?)
            });
            assert!(region.unwrap().is_same_as(&open_buffer(&slow).unwrap()));
        });
    }

    #[test]
    fn of_two_who_map_the_same_both_have_one_region() {
        let (_backing, given) = given();
        let mut faster = None;
        let region = open_or(&given, || {
            faster = Some(open_buffer(&given)?);
            Ok(BufferRegion::map(given.map()?)?)
        });
        assert!(region.unwrap().is_same_as(&faster.unwrap()));
    }
}
