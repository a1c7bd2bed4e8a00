// SPDX-License-Identifier: MIT OR Apache-2.0
//! The faults that a link's file can have (SPEC 13.6).
//!
//! A fault makes opening the file fail. The file is not changed, so an operator can inspect its
//! bytes.

use core::fmt;

/// Why the bytes of a file are not those of a link that this version can open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileFault {
    /// The file that was opened is no link file (SPEC 13.1).
    Foreign,
    /// The link file is shorter than its header says, or than a link's file can be.
    Truncated {
        /// The size in the link file's header, or the smallest possible size of a link file, in
        /// bytes.
        expected: u64,
        /// Actual size of the link file in bytes.
        actual: u64,
    },
    /// An older, unsupported version of this software made the file.
    Older {
        /// The version of the file format that the header of the older file states.
        version: u32,
    },
    /// A newer version of this software made the file.
    Newer {
        /// The version of the file format that the header of the newer file states.
        version: u32,
    },
    /// The checksum of the link file's header page is wrong.
    HeaderDamaged,
    /// The link file states the version of this crate, but another layout hash: it was written by
    /// other rules for its layout.
    OtherLayout {
        /// The layout hash that the link file's header holds.
        found: u64,
    },
    /// The link file is longer than the size in its own header.
    TooLong {
        /// The size of the link file in bytes, as its header states it.
        expected: u64,
        /// Actual size of the link file in bytes.
        actual: u64,
    },
    /// A name in the link file's header is invalid: empty, not UTF-8, or not followed by zeros.
    Name {
        /// Which name is invalid: local, remote or link.
        which: &'static str,
    },
    /// The link file belongs to another link, whose names have the same hash.
    OtherLink,
    /// The header's offsets and sizes of record ring, release ring and slab are impossible, or not
    /// in this order within the file.
    Geometry {
        /// The name of the header field that is invalid.
        field: &'static str,
        /// The value of the invalid header field.
        found: u64,
    },
    /// The owner page of the link file is damaged: the last owner of the file cannot be determined.
    OwnerDamaged,
    /// The state page of the link file is damaged: the newest state of the link cannot be
    /// determined.
    StateDamaged,
    /// The control page of the link file is damaged: the consumed position cannot be determined.
    ConsumedDamaged,
    /// The owner, the state or the consumed position in the file has a correct checksum, but
    /// impossible content.
    Contradiction {
        /// The rule that the impossible content breaks, as text.
        what: &'static str,
        /// The value in the link file that breaks the rule.
        found: u64,
    },
}

impl FileFault {
    /// The layout hash of files that were made before the first release, up to revision 581432a6.
    /// Their consumed record is longer.
    pub const FORMER_LAYOUT: u64 = 0xd6f2_33fa_42a3_cc3d;

    /// The number of the fault, the same in every release and in every language's implementation.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Self::Foreign => 1,
            Self::Truncated { .. } => 2,
            Self::Older { .. } => 3,
            Self::Newer { .. } => 4,
            Self::HeaderDamaged => 5,
            Self::OtherLayout { .. } => 6,
            Self::TooLong { .. } => 7,
            Self::Name { .. } => 8,
            Self::OtherLink => 9,
            Self::Geometry { .. } => 10,
            Self::OwnerDamaged => 11,
            Self::StateDamaged => 12,
            Self::ConsumedDamaged => 13,
            Self::Contradiction { .. } => 14,
        }
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Foreign => {
                write!(f, "it is not the file of a link: the magic number does not match")
            }
            Self::Truncated { expected, actual } => {
                write!(f, "it is truncated: it has {actual} bytes of {expected}")
            }
            Self::Older { version } => {
                write!(f, "it has format {version}; this version reads format 1, which is newer")
            }
            Self::Newer { version } => {
                write!(f, "it has format {version}; this version reads format 1 only")
            }
            Self::HeaderDamaged => write!(f, "its header is damaged: the checksum is wrong"),
            Self::OtherLayout { found: Self::FORMER_LAYOUT } => write!(
                f,
                "it was made before the first release, by revision 581432a6 or one before it (layout \
                 {:#x})",
                Self::FORMER_LAYOUT
            ),
            Self::OtherLayout { found } => {
                write!(f, "it was made by other rules of format 1 (layout {found:#x})")
            }
            Self::TooLong { expected, actual } => {
                write!(f, "it is too long: it has {actual} bytes, not {expected}")
            }
            Self::Name { which } => write!(f, "its {which} name is invalid"),
            Self::OtherLink => {
                write!(f, "it belongs to another link, whose names have the same hash")
            }
            Self::Geometry { field, found } => {
                write!(f, "its header has an impossible {field} ({found:#x})")
            }
            Self::OwnerDamaged => write!(f, "the record of its owner is damaged"),
            Self::StateDamaged => write!(f, "its state is damaged"),
            Self::ConsumedDamaged => write!(f, "the record of its consumed position is damaged"),
            Self::Contradiction { what, found } => {
                write!(f, "its state contradicts itself: {what} ({found:#x})")
            }
        }?;
        write!(f, " (SPEC 13.6)")
    }
}

impl core::error::Error for FileFault {}
