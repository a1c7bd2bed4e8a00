// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket of a connection over shared memory: doorbells and frames (SPEC 5.4, 6.7).
//!
//! ```text
//!  doorbell   one byte: 01
//!  frame      at 0: type (u8)   at 1: descriptors (u8)   at 2: length (u16)   from 4: the rest
//!  SEGMENT    at 0: 2           at 1: 1                  at 2: 8              at 4: number (u32)
//! ```
//!
//! A frame says its own length and number of descriptors, so that a reader can skip a frame of an
//! unknown type. A reader may skip only frames whose type is [`CONTROL_SKIPPED_MIN`] or higher.

use crate::check::Violation;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The byte of the control socket that is a doorbell: it wakes the peer, and is not part of a frame
/// (SPEC 6.6).
pub const CONTROL_DOORBELL: u8 = 1;
/// Type of the frame that carries the descriptor of a segment (SPEC 5.4).
pub const CONTROL_SEGMENT: u8 = 2;
/// The lowest frame type that a reader skips if it does not know the type. An unknown lower type is
/// a violation.
pub const CONTROL_SKIPPED_MIN: u8 = 128;
/// Length in bytes of the head with which each frame begins; the shortest frame is a head alone.
pub const CONTROL_HEAD_BYTES: usize = 4;
/// Length of the longest frame on the control socket in bytes, head included. It bounds the buffer
/// in which a reader gathers a frame, also one of an unknown type.
pub const CONTROL_FRAME_MAX: usize = 64;
/// Largest number of descriptors that come with one frame on the control socket, also with a frame
/// of an unknown type.
pub const CONTROL_DESCRIPTORS_MAX: u8 = 4;

/// The head of a frame: the first bytes of every frame on the control socket.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ControlHead {
    /// Type of the frame: one of the values `CONTROL_…`.
    pub kind: u8,
    /// Number of descriptors that come with the frame.
    pub descriptors: u8,
    /// Length of the frame in bytes, head included.
    pub length: U16,
}

/// The frame that carries the descriptor of a segment.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ControlSegment {
    /// The head of the frame, of type [`CONTROL_SEGMENT`], with one descriptor.
    pub head: ControlHead,
    /// The number of the segment whose descriptor comes with the frame.
    pub number: U32,
}

const _: () = {
    assert!(size_of::<ControlHead>() == CONTROL_HEAD_BYTES);
    assert!(core::mem::offset_of!(ControlHead, descriptors) == 1);
    assert!(core::mem::offset_of!(ControlHead, length) == 2);
    assert!(size_of::<ControlSegment>() == 8);
    assert!(core::mem::offset_of!(ControlSegment, number) == 4);
};

impl ControlHead {
    /// Checks the type of a frame, which is its first byte.
    ///
    /// # Errors
    /// [`Violation::Frame`] if the type is unknown and may not be skipped.
    pub const fn check_kind(kind: u8) -> Result<(), Violation> {
        if kind == CONTROL_SEGMENT || kind >= CONTROL_SKIPPED_MIN {
            return Ok(());
        }
        Err(Violation::Frame { what: "byte on the control socket", found: kind as u64 })
    }

    /// Reads and checks the head of a frame.
    ///
    /// # Errors
    /// [`Violation::Frame`], naming the first field that is impossible.
    pub fn read(bytes: &[u8; CONTROL_HEAD_BYTES]) -> Result<Self, Violation> {
        let [kind, descriptors, low, high] = *bytes;
        let length = U16::from_bytes([low, high]);
        Self::check_kind(kind)?;
        let (fewest, most, shortest) = match kind {
            CONTROL_SEGMENT => (1, 1, size_of::<ControlSegment>()),
            _ => (0, CONTROL_DESCRIPTORS_MAX, CONTROL_HEAD_BYTES),
        };
        if !(fewest..=most).contains(&descriptors) {
            let what = "number of descriptors on the control socket";
            return Err(Violation::Frame { what, found: descriptors.into() });
        }
        if !(shortest..=CONTROL_FRAME_MAX).contains(&usize::from(length.get())) {
            let what = "length of a frame on the control socket";
            return Err(Violation::Frame { what, found: length.get().into() });
        }
        Ok(Self { kind, descriptors, length })
    }
}

impl ControlSegment {
    /// Makes the frame that announces the segment with the number `number`.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "8")]
        let length = U16::new(size_of::<Self>() as u16);
        let head = ControlHead { kind: CONTROL_SEGMENT, descriptors: 1, length };
        Self { head, number: U32::new(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_of_a_segment_is_accepted() {
        let frame = ControlSegment::new(7);
        assert_eq!(frame.as_bytes(), [2, 1, 8, 0, 7, 0, 0, 0]);
        assert_eq!(ControlHead::read(&[2, 1, 8, 0]), Ok(frame.head));
        assert!(ControlHead::read(&[2, 1, 64, 0]).is_ok(), "a later version may add fields");
    }

    #[test]
    fn frame_of_a_reserved_type_is_refused_and_a_skippable_one_accepted() {
        for kind in (0..CONTROL_SKIPPED_MIN).filter(|kind| *kind != CONTROL_SEGMENT) {
            assert!(ControlHead::read(&[kind, 1, 8, 0]).is_err(), "{kind}");
        }
        for head in [[128, 0, 4, 0], [255, 4, 64, 0], [200, 1, 12, 0]] {
            assert!(ControlHead::read(&head).is_ok(), "{head:?}");
        }
    }

    #[test]
    fn impossible_counts_and_lengths_are_refused() {
        for head in [
            [2, 0, 8, 0],
            [2, 2, 8, 0],
            [2, 1, 7, 0],
            [2, 1, 65, 0],
            [2, 1, 8, 1],
            [128, 5, 8, 0],
            [128, 0, 3, 0],
            [128, 0, 65, 0],
        ] {
            assert!(ControlHead::read(&head).is_err(), "{head:?}");
        }
    }
}
