// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a frame of a link is invalid (SPEC 15.4).
//!
//! An invalid frame ends the connection. It changes the state of neither end.

use super::{FRAME_VERSION_MAX, FRAME_VERSION_MIN, FrameKind};
use core::fmt;

/// Why this version does not accept certain bytes as a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameFault {
    /// The first word of the bytes is that of a record, or of no known kind of frame.
    Kind {
        /// The first eight bytes of the supposed frame, as a word.
        word: u64,
    },
    /// The length of the frame's body does not fit the frame's kind.
    Length {
        /// The kind of the frame according to its header.
        kind: FrameKind,
        /// Length of the frame's body in bytes.
        bytes: usize,
    },
    /// The body of the frame does not begin with the magic, eight fixed bytes of the link protocol:
    /// the peer uses another protocol.
    Foreign {
        /// The first eight bytes of the frame's body, where the magic of the link protocol should
        /// be.
        magic: [u8; 8],
    },
    /// The checksum in the header of the frame is wrong.
    Crc,
    /// The peer supports no version that this crate supports.
    Version {
        /// The oldest version of the link protocol that the peer supports.
        min: u16,
        /// The newest version of the link protocol that the peer supports.
        max: u16,
        /// The peer's nonce, which the answering REFUSE repeats.
        nonce: u64,
    },
    /// A field of the frame has an impossible value.
    Field {
        /// The name of the field, and the rule that its value breaks.
        what: &'static str,
        /// The impossible value of the field.
        found: u64,
    },
    /// A name or a text in the link frame is empty, too long, or not UTF-8.
    Text {
        /// Which name or text of the frame is invalid.
        which: &'static str,
    },
}

impl FrameFault {
    /// The number of the fault, the same in every release and in every language's implementation.
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
            Self::Kind { word } => write!(f, "{word:#018x} is not the first word of a link frame"),
            Self::Length { kind, bytes } => {
                write!(f, "a {kind:?} frame with a body of {bytes} bytes: wrong length")
            }
            Self::Foreign { magic } => {
                write!(f, "not the link protocol: the first bytes are \"{}\"", magic.escape_ascii())
            }
            Self::Crc => write!(f, "invalid frame: checksum mismatch"),
            Self::Version { min, max, .. } => write!(
                f,
                "the peer offers link versions {min} to {max}, this side supports {FRAME_VERSION_MIN} to \
                 {FRAME_VERSION_MAX}"
            ),
            Self::Field { what, found } => write!(f, "invalid frame: {what} ({found:#x})"),
            Self::Text { which } => {
                write!(f, "invalid frame: the {which} is empty, too long or not UTF-8")
            }
        }?;
        write!(f, " (SPEC 15.4)")
    }
}

impl core::error::Error for FrameFault {}
