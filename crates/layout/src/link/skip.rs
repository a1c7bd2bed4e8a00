// SPDX-License-Identifier: MIT OR Apache-2.0
//! A skip: a range of a link's stream that its receiver passed over without consuming it (SPEC
//! 12.3). The receiver's file, the sender's file and frames hold a skip in the same bytes.
//!
//! Each field after its offset in bytes:
//! ```text
//!  0  epoch   8  of   16  into   24  from   32  to   40  resume
//! ```
//!
//! This file does not report skips to the application.

use super::past::{ensure, is_position};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A range of positions that a receiver skipped. All fields are 0 if the receiver has skipped
/// nothing.
///
/// Each field after its offset in bytes:
/// ```text
///  0  epoch   8  of   16  into   24  from   32  to   40  resume
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SkipFields {
    /// The epoch in which the receiver skipped the range.
    pub epoch: U64,
    /// The stream of the skipped range; 0 if the receiver has skipped nothing.
    pub of: U64,
    /// Id of the stream with which the receiver resumed after the skipped range.
    pub into: U64,
    /// The first position of the range, which the receiver did not consume.
    pub from: U64,
    /// The position after the skipped range. If the receiver resumed with another stream, `to` is
    /// the position up to which it had received the old stream.
    pub to: U64,
    /// The position at which the receiver resumed; equal to `to` if it resumed in the same stream.
    pub resume: U64,
}

const _: () = {
    assert!(size_of::<SkipFields>() == 48);
    assert!(core::mem::offset_of!(SkipFields, of) == 8);
    assert!(core::mem::offset_of!(SkipFields, into) == 16);
    assert!(core::mem::offset_of!(SkipFields, from) == 24);
    assert!(core::mem::offset_of!(SkipFields, to) == 32);
    assert!(core::mem::offset_of!(SkipFields, resume) == 40);
};

impl SkipFields {
    /// Whether the receiver has skipped a range.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.of.get() != 0
    }

    /// Checks that the fields of the skip do not contradict each other.
    ///
    /// # Errors
    /// A text that names the broken rule, and the value that breaks it.
    pub fn check(&self) -> Result<(), (&'static str, u64)> {
        if !self.is_there() {
            let is_empty = self.as_bytes().iter().all(|byte| *byte == 0);
            return ensure(is_empty, "a skip without a stream", self.into.get());
        }
        ensure(self.into.get() != 0, "a skip without a stream to resume with", self.of.get())?;
        for position in [self.from, self.to, self.resume] {
            ensure(
                is_position(position),
                "a skip at an offset that is not a position",
                position.get(),
            )?;
        }
        ensure(self.from <= self.to, "a skip whose end is before its start", self.to.get())?;
        let is_reached = self.of != self.into || self.resume == self.to;
        ensure(is_reached, "a skip that does not end where the stream resumes", self.resume.get())
    }
}
