// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who owns a file, or did last (SPEC 13.3).
//!
//! The numbers name one process beyond doubt as long as the machine runs: a process id comes back, with the same
//! start time it does not. What they prove is for whoever asks the system.

use super::PAGE_SLOT_STRIDE;
use super::fault::FileFault;
use super::slot::{Slot, in_force};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One slot of the owner page.
///
/// ```text
///  0   sequence         8   incarnation      16  since            24  start time
///  32  boot id (16)                          48  pid namespace    56  time namespace
///  64  pid     68 left  72  zero (48)                             120 seal
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct OwnerRecord {
    /// Rises with each record, from 1.
    pub sequence: U64,
    /// How often the file was opened by an owner; 0 in the record that its maker leaves.
    pub incarnation: U64,
    /// When it was taken, in nanoseconds since 1970; for people.
    pub since_ns: U64,
    /// When the process was started, in ticks since the system was.
    pub start_ticks: U64,
    /// Which run of the kernel.
    pub boot_id: [u8; 16],
    /// In which pid namespace the pid counts: the inode.
    pub pid_namespace: U64,
    /// In which time namespace the start time counts: the inode; 0 if the kernel has none.
    pub time_namespace: U64,
    /// The process.
    pub pid: U32,
    /// 1 once this owner has left by itself, else 0.
    pub left: U32,
    /// Always 0.
    pub zero: [u8; 48],
    /// See [`Slot`].
    pub seal: U64,
}

const _: () = {
    assert!(size_of::<OwnerRecord>() == 128);
    assert!(core::mem::offset_of!(OwnerRecord, incarnation) == 8);
    assert!(core::mem::offset_of!(OwnerRecord, since_ns) == 16);
    assert!(core::mem::offset_of!(OwnerRecord, start_ticks) == 24);
    assert!(core::mem::offset_of!(OwnerRecord, boot_id) == 32);
    assert!(core::mem::offset_of!(OwnerRecord, pid_namespace) == 48);
    assert!(core::mem::offset_of!(OwnerRecord, time_namespace) == 56);
    assert!(core::mem::offset_of!(OwnerRecord, pid) == 64);
    assert!(core::mem::offset_of!(OwnerRecord, left) == 68);
    assert!(core::mem::offset_of!(OwnerRecord, zero) == 72);
    assert!(core::mem::offset_of!(OwnerRecord, seal) == 120);
    assert!(size_of::<OwnerRecord>() as u64 <= PAGE_SLOT_STRIDE);
};

impl OwnerRecord {
    /// What the maker of a file leaves: nobody has owned it.
    #[must_use]
    pub fn nobody() -> Self {
        let zero = U64::new(0);
        Self {
            sequence: U64::new(1),
            incarnation: zero,
            since_ns: zero,
            start_ticks: zero,
            boot_id: [0; 16],
            pid_namespace: zero,
            time_namespace: zero,
            pid: U32::new(0),
            left: U32::new(1),
            zero: [0; 48],
            seal: zero,
        }
        .sealed()
    }
}

impl Slot for OwnerRecord {
    fn sequence(&self) -> u64 {
        self.sequence.get()
    }
}

/// The record in force on the owner page.
///
/// # Errors
/// [`FileFault::OwnerDamaged`], [`FileFault::Contradiction`].
pub fn check(page: &[u8]) -> Result<OwnerRecord, FileFault> {
    let [first, second] = slots(page, size_of::<OwnerRecord>()).ok_or(FileFault::OwnerDamaged)?;
    let record: OwnerRecord = in_force(first, second).ok_or(FileFault::OwnerDamaged)?;
    let contradiction = |what, found| Err(FileFault::Contradiction { what, found });
    let incarnation = record.incarnation.get();
    if record.left.get() > 1 {
        return contradiction("an owner that neither stays nor left", record.left.get().into());
    }
    if incarnation > INCARNATION_MAX {
        return contradiction("an incarnation that is not reached", incarnation);
    }
    if incarnation == 0 && record.left.get() == 0 {
        return contradiction("an owner that never opened it", record.pid.get().into());
    }
    Ok(record)
}

/// The two slots of a page, each `size` bytes.
pub(super) fn slots(page: &[u8], size: usize) -> Option<[&[u8]; 2]> {
    let stride = usize::try_from(PAGE_SLOT_STRIDE).ok()?;
    Some([page.get(..size)?, page.get(stride..stride + size)?])
}

/// Not reached by opening a file every microsecond for a hundred thousand years; each is also the place of a lock.
pub const INCARNATION_MAX: u64 = 1 << 62;
