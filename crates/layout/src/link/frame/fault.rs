// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a frame of a link (SPEC 15.4).
//!
//! It ends the connection and changes nothing: both sides keep what they have.

use super::{FRAME_VERSION_MAX, FRAME_VERSION_MIN, FrameKind};
use core::fmt;

/// Why these bytes are no frame that this version could take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameFault {
    /// It begins like none, or like a record.
    Kind {
        /// Its first eight bytes.
        word: u64,
    },
    /// No frame of this kind is so long, or so short.
    Length {
        /// What it says it is.
        kind: FrameKind,
        /// How long its body is.
        bytes: usize,
    },
    /// Who attaches speaks another protocol.
    Foreign {
        /// What it begins with.
        magic: [u8; 8],
    },
    /// The checksum is wrong.
    Crc,
    /// Who attaches, or is attached to, speaks no version that we speak.
    Version {
        /// The oldest it speaks.
        min: u16,
        /// The newest it speaks.
        max: u16,
        /// To be echoed in REFUSE.
        nonce: u64,
    },
    /// A field that cannot be.
    Field {
        /// What is wrong.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// A name or a text that is none: empty, too long, or not UTF-8.
    Text {
        /// Which one.
        which: &'static str,
    },
}

impl FrameFault {
    /// A stable number for logs and other languages.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Self::Kind { .. } => 1,
            Self::Length { .. } => 2,
            Self::Foreign { .. } => 3,
            Self::Crc => 4,
            Self::Version { .. } => 5,
            Self::Field { .. } => 6,
            Self::Text { .. } => 7,
        }
    }
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Kind { word } => write!(f, "no frame of a link begins with {word:#018x}"),
            Self::Length { kind, bytes } => write!(f, "no {kind:?} has a body of {bytes} bytes"),
            Self::Foreign { magic } => {
                write!(f, "it is no end of a link: it begins with \"{}\"", magic.escape_ascii())
            }
            Self::Crc => write!(f, "the checksum of a frame is wrong"),
            Self::Version { min, max, .. } => write!(
                f,
                "the peer offers link versions {min} to {max}, this side supports {FRAME_VERSION_MIN} to \
                 {FRAME_VERSION_MAX}"
            ),
            Self::Field { what, found } => write!(f, "a frame has {what} ({found:#x})"),
            Self::Text { which } => write!(f, "the {which} of a frame is none"),
        }?;
        write!(f, " (SPEC 15.4)")
    }
}

impl core::error::Error for FrameFault {}
