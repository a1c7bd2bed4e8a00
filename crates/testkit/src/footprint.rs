// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this process holds, and the lock of the tests that count it.
//!
//! The tests of an executable are threads of one process. In an executable with a test that counts,
//! that test takes [`alone`] and every other one [`together`].

use partywall_sys::process::{Process, mappings, open_descriptors, resident_bytes};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Counts of what this process holds.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mappings of memory files.
    pub shared_mappings: usize,
    /// Memory of the process that is in RAM.
    pub resident_bytes: u64,
}

impl Footprint {
    /// Counts.
    pub fn now() -> Self {
        let maps = mappings(Process::Own).unwrap();
        Self {
            descriptors: open_descriptors(Process::Own).unwrap().len(),
            shared_mappings: maps.iter().filter(|range| range.name.contains("memfd:")).count(),
            resident_bytes: resident_bytes(Process::Own).unwrap(),
        }
    }
}

/// Tests that count write, the others read.
static COUNTED: RwLock<()> = RwLock::new(());

/// Keeps the other tests of this executable from running: they would change what this one counts.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    COUNTED.write().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a test that counts nothing run beside its like, but not beside one that counts.
pub fn together() -> RwLockReadGuard<'static, ()> {
    COUNTED.read().unwrap_or_else(PoisonError::into_inner)
}
