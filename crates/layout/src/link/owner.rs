// SPDX-License-Identifier: MIT OR Apache-2.0
//! The owner record of a link's file: which process has the file open, or had it open last (SPEC
//! 13.3).
//!
//! Boot id, process id and start time identify one process: the kernel reuses a process id, but
//! never with the same start time. This file does not check whether that process lives.

use super::PAGE_SLOT_STRIDE;
use super::fault::FileFault;
use super::past::is_position;
use super::slot::{Slot, in_force};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The owner record: one of the two slots of the owner page in a link's file.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0   sequence         8   incarnation      16  since            24  start time
///  32  boot id (16)                          48  pid namespace    56  time namespace
///  64  pid     68 left  72  closing (40)     112 adopted 116 zero 120 seal
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct OwnerRecord {
    /// Sequence number of this owner record, from 1. Each later owner record of the file has a
    /// higher number.
    pub sequence: U64,
    /// Incarnation of the owner: the number of owners that have opened the file so far. 0 in the
    /// record of a new file.
    pub incarnation: U64,
    /// Time at which the owner opened the file, in nanoseconds since 1970. Only operators use it.
    pub since_ns: U64,
    /// Start time of the owner's process, in clock ticks since boot.
    pub start_ticks: U64,
    /// Boot id of the kernel that runs the owner's process.
    pub boot_id: [u8; 16],
    /// The pid namespace in which the process id `pid` is valid, as its inode number.
    pub pid_namespace: U64,
    /// The time namespace to which `start_ticks` belongs, as its inode number; 0 if the kernel has
    /// no time namespaces.
    pub time_namespace: U64,
    /// Process id of the owner's process.
    pub pid: U32,
    /// 1 once the owner has given up the file in order, otherwise 0.
    pub left: U32,
    /// The contents of the file when this owner closed it; all fields are 0 if the owner has not
    /// closed the file.
    pub closing: Closing,
    /// 1 if this owner, or one before it, continued after another boot with a file that had lost a
    /// part, and no application has been notified of the loss; otherwise 0.
    pub adopted: U32,
    /// A reserved field of the owner record, always 0.
    pub zero: U32,
    /// The seal, which ends the slot and is stored last; see [`Slot`].
    pub seal: U64,
}

/// The closing record: the positions and digests that an owner had synced to the disk before it
/// closed the file and stored this record.
///
/// After another boot this record is the only evidence that the file is whole. A page that a power
/// loss left unwritten looks like the end of the stream.
///
/// Each field after its offset in bytes:
/// ```text
///  0   tail    8  consumed    16  state sequence
///  24  digest at tail   28 digest at consumed   32 closed   36 zero
/// ```
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Closing {
    /// The position after the last record of the stream that the owner sent.
    pub tail: U64,
    /// The position up to which the owner had consumed the stream that it received.
    pub consumed: U64,
    /// The sequence number of the newest state image.
    pub state_sequence: U64,
    /// The record digest at `tail`.
    pub tail_digest: U32,
    /// The record digest at `consumed`.
    pub consumed_digest: U32,
    /// 1 if the owner closed the file, otherwise 0. If the field is 0, all other fields are 0 as
    /// well.
    pub closed: U32,
    /// A reserved field of the closing record, always 0.
    pub zero: U32,
}

impl Closing {
    /// Whether this owner record says that the owner closed the link file in order. An owner closes
    /// its link file only after everything that it stored has been synced to the disk.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.get() == 1
    }

    fn check(&self, left: u32) -> Result<(), FileFault> {
        let ensure = |holds: bool, what, found| {
            if holds { Ok(()) } else { Err(FileFault::Contradiction { what, found }) }
        };
        let closed = self.closed.get();
        ensure(closed <= left, "an owner that closed the file and has not left", closed.into())?;
        ensure(closed == 1 || *self == Self::default(), "a closing of a file not closed", 0)?;
        for position in [self.tail, self.consumed] {
            let what = "a closing at an offset that is not a position";
            ensure(is_position(position), what, position.get())?;
        }
        let what = "a record digest at the start of a stream";
        for (position, digest) in
            [(self.tail, self.tail_digest), (self.consumed, self.consumed_digest)]
        {
            ensure(position.get() != 0 || digest.get() == 0, what, digest.get().into())?;
        }
        Ok(())
    }
}

const _: () = {
    assert!(size_of::<Closing>() == 40);
    assert!(core::mem::offset_of!(Closing, consumed) == 8);
    assert!(core::mem::offset_of!(Closing, state_sequence) == 16);
    assert!(core::mem::offset_of!(Closing, tail_digest) == 24);
    assert!(core::mem::offset_of!(Closing, consumed_digest) == 28);
    assert!(core::mem::offset_of!(Closing, closed) == 32);
    assert!(core::mem::offset_of!(Closing, zero) == 36);
    assert!(size_of::<OwnerRecord>() == 128);
    assert!(core::mem::offset_of!(OwnerRecord, incarnation) == 8);
    assert!(core::mem::offset_of!(OwnerRecord, since_ns) == 16);
    assert!(core::mem::offset_of!(OwnerRecord, start_ticks) == 24);
    assert!(core::mem::offset_of!(OwnerRecord, boot_id) == 32);
    assert!(core::mem::offset_of!(OwnerRecord, pid_namespace) == 48);
    assert!(core::mem::offset_of!(OwnerRecord, time_namespace) == 56);
    assert!(core::mem::offset_of!(OwnerRecord, pid) == 64);
    assert!(core::mem::offset_of!(OwnerRecord, left) == 68);
    assert!(core::mem::offset_of!(OwnerRecord, closing) == 72);
    assert!(core::mem::offset_of!(OwnerRecord, adopted) == 112);
    assert!(core::mem::offset_of!(OwnerRecord, zero) == 116);
    assert!(core::mem::offset_of!(OwnerRecord, seal) == 120);
    assert!(size_of::<OwnerRecord>() as u64 <= PAGE_SLOT_STRIDE);
};

impl OwnerRecord {
    /// The owner record of a new link file, which no process has owned yet.
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
            closing: Closing::default(),
            adopted: U32::new(0),
            zero: U32::new(0),
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

/// Checks the owner page of a link's file, and returns the newest owner record.
///
/// # Errors
/// [`FileFault::OwnerDamaged`] if damage hides which slot is the newest;
/// [`FileFault::Contradiction`] if fields of the newest record contradict each other.
pub fn check(page: &[u8]) -> Result<OwnerRecord, FileFault> {
    let [first, second] = slots(page, size_of::<OwnerRecord>()).ok_or(FileFault::OwnerDamaged)?;
    let record: OwnerRecord = in_force(first, second).ok_or(FileFault::OwnerDamaged)?;
    let contradiction = |what, found| Err(FileFault::Contradiction { what, found });
    let incarnation = record.incarnation.get();
    if record.left.get() > 1 {
        return contradiction(
            "an owner that has neither stayed nor left",
            record.left.get().into(),
        );
    }
    if incarnation > INCARNATION_MAX {
        return contradiction("an incarnation beyond the maximum", incarnation);
    }
    if incarnation == 0 && record.left.get() == 0 {
        return contradiction("an owner that never opened it", record.pid.get().into());
    }
    if record.adopted.get() > 1 {
        let adopted = record.adopted.get();
        return contradiction("a file that is neither adopted nor not", adopted.into());
    }
    record.closing.check(record.left.get())?;
    Ok(record)
}

/// The two slots of the owner page or state page of a link's file, `size` bytes each. One is at the
/// start of `page`, the other at [`PAGE_SLOT_STRIDE`]. `None` if `page` is too short.
pub(super) fn slots(page: &[u8], size: usize) -> Option<[&[u8]; 2]> {
    let stride = usize::try_from(PAGE_SLOT_STRIDE).ok()?;
    Some([page.get(..size)?, page.get(stride..stride + size)?])
}

/// Upper bound of [`OwnerRecord::incarnation`]: opening a file every microsecond reaches it after a
/// hundred thousand years. An owner locks the byte of its file at the offset of its incarnation,
/// and a file's offsets have 63 bits.
pub const INCARNATION_MAX: u64 = 1 << 62;
