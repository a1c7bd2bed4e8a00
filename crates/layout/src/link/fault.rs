// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the file of a link can say that is not true (SPEC 13.6).
//!
//! It ends the opening and changes nothing: the bytes stay for whoever looks into them.

use core::fmt;

/// Why the bytes of a file are not those of a link that this version could open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileFault {
    /// The file is not one of a link (SPEC 13.1).
    Foreign,
    /// Shorter than it has to be.
    Truncated {
        /// What its header says, or the least there can be; in bytes.
        expected: u64,
        /// Number of bytes.
        actual: u64,
    },
    /// Made by an older version of this software, which this one does not read.
    Older {
        /// The version of its format.
        version: u32,
    },
    /// Made by a newer version of this software.
    Newer {
        /// The version of its format.
        version: u32,
    },
    /// The checksum of the header page is wrong.
    HeaderDamaged,
    /// Made by other rules of the same version.
    OtherLayout {
        /// The layout hash found.
        found: u64,
    },
    /// Longer than its header says.
    TooLong {
        /// What its header says; in bytes.
        expected: u64,
        /// Number of bytes.
        actual: u64,
    },
    /// A name that cannot be: empty, not UTF-8, or not followed by zeros.
    Name {
        /// Which one.
        which: &'static str,
    },
    /// The file of another link, whose names have the same hash.
    OtherLink,
    /// Parts that do not lie one after the other within the file.
    Geometry {
        /// Which field.
        field: &'static str,
        /// What was there.
        found: u64,
    },
    /// Nobody can tell who owned it last.
    OwnerDamaged,
    /// Nobody can tell which state is in force.
    StateDamaged,
    /// Nobody can tell how far was consumed.
    ConsumedDamaged,
    /// An image that is whole and cannot be.
    Contradiction {
        /// What is wrong.
        what: &'static str,
        /// The value found.
        found: u64,
    },
}

impl FileFault {
    /// A stable number for logs and other languages.
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
            Self::Foreign => write!(f, "it is not the file of a link: its first bytes are others"),
            Self::Truncated { expected, actual } => {
                write!(f, "it was cut: it has {actual} bytes of {expected}")
            }
            Self::Older { version } => {
                write!(
                    f,
                    "it has format {version}, which is older than what this version reads (1)"
                )
            }
            Self::Newer { version } => {
                write!(
                    f,
                    "it has format {version}, which is newer than what this version reads (1)"
                )
            }
            Self::HeaderDamaged => write!(f, "its header is damaged: the checksum is wrong"),
            Self::OtherLayout { found } => {
                write!(f, "it was made by other rules of format 1 (layout {found:#x})")
            }
            Self::TooLong { expected, actual } => {
                write!(f, "something was appended to it: it has {actual} bytes, not {expected}")
            }
            Self::Name { which } => write!(f, "its {which} name is none"),
            Self::OtherLink => {
                write!(f, "it belongs to another link, whose names have the same hash")
            }
            Self::Geometry { field, found } => {
                write!(f, "its header has an impossible {field} ({found:#x})")
            }
            Self::OwnerDamaged => write!(f, "the record of its owner is damaged"),
            Self::StateDamaged => write!(f, "its state is damaged"),
            Self::ConsumedDamaged => write!(f, "the record of what was consumed is damaged"),
            Self::Contradiction { what, found } => {
                write!(f, "its state contradicts itself: {what} ({found:#x})")
            }
        }?;
        write!(f, " (SPEC 13.6)")
    }
}

impl core::error::Error for FileFault {}
