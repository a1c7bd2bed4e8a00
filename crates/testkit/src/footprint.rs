// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts descriptors and memory of this process, and locks out other tests while it counts.
//!
//! The tests of an executable are threads of one process. If one of them counts, it has to hold the
//! lock that [`alone`] takes, and every other test of the executable has to hold the lock that
//! [`together`] takes.

use partywall_sys::process::{Process, mappings, open_descriptors, resident_bytes};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Counts of the descriptors and the memory of this process. Tests compare the counts at two times
/// to find leaks.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Number of [`descriptors`] of this process.
    pub descriptors: usize,
    /// Number of mappings of memfds in this process.
    pub shared_mappings: usize,
    /// Resident memory of this process in bytes.
    pub resident_bytes: u64,
}

impl Footprint {
    /// Counts the descriptors and the memory that this process has now.
    pub fn now() -> Self {
        let maps = mappings(Process::Own).unwrap();
        Self {
            descriptors: descriptors(Process::Own),
            shared_mappings: maps.iter().filter(|range| range.name.contains("memfd:")).count(),
            resident_bytes: resident_bytes(Process::Own).unwrap(),
        }
    }
}

/// Counts the descriptors that a process has open, without timers: a connection opens one when its
/// side has slept often in a short time, so that their number depends on the schedule.
pub fn descriptors(process: Process) -> usize {
    let open = open_descriptors(process).unwrap();
    open.iter().filter(|(_, target)| !target.ends_with("anon_inode:[timerfd]")).count()
}

/// The lock of the tests of this executable. Tests that count descriptors and memory take the write
/// lock, all other tests the read lock.
static COUNTED: RwLock<()> = RwLock::new(());

/// Locks out the other tests of this executable while the calling test counts descriptors and
/// memory, because other tests would change the counts.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    COUNTED.write().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock of a test that does not count descriptors and memory. Such tests run in parallel
/// with each other, but never with a test that counts.
pub fn together() -> RwLockReadGuard<'static, ()> {
    COUNTED.read().unwrap_or_else(PoisonError::into_inner)
}
