// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a received message, at an address where a struct of any alignment up to 64 can be
//! read.
//!
//! ```text
//!   There     the message itself, whose bytes are in memory of the peer or on the heap
//!   Short     a copy of up to 128 bytes within the `Place` value, which is itself aligned
//!   Long      a longer copy, on the heap
//! ```

use crate::message::Message;
use zerocopy::{FromZeros, Immutable, IntoBytes, KnownLayout};

/// A cache line of 64 bytes, aligned as blocks are. Structs may need at most this alignment.
#[derive(Clone, Copy, Debug, zerocopy::FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub(super) struct Line([u8; 64]);

/// Number of cache lines of message bytes that a `Place` holds within its own value, without heap
/// memory.
const SHORT_LINES: usize = 2;

/// The bytes of a message at an address that is aligned for a struct.
pub(super) enum Place {
    There(Message),
    Short { lines: [Line; SHORT_LINES], len: u8 },
    Long { lines: Vec<Line>, len: usize },
}

impl Place {
    /// Makes a private copy of `bytes` at an address aligned to 64 bytes: within the value itself
    /// if the bytes are few, otherwise on the heap.
    pub(super) fn copied(bytes: &[u8]) -> Self {
        let len = bytes.len();
        if len <= SHORT_LINES * size_of::<Line>() {
            let mut lines = [Line::new_zeroed(); SHORT_LINES];
            lines.as_mut_bytes()[..len].copy_from_slice(bytes);
            #[expect(clippy::cast_possible_truncation, reason = "at most 128")]
            return Self::Short { lines, len: len as u8 };
        }
        let mut lines = vec![Line::new_zeroed(); len.div_ceil(size_of::<Line>())];
        lines.as_mut_bytes()[..len].copy_from_slice(bytes);
        Self::Long { lines, len }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::There(message) => message,
            Self::Short { lines, len } => &lines.as_bytes()[..usize::from(*len)],
            Self::Long { lines, len } => &lines.as_bytes()[..*len],
        }
    }
}
