// SPDX-License-Identifier: MIT OR Apache-2.0
//! CONFIRM, BEGIN and ACK: what was decided is taken, what was consumed is told (SPEC 15.2).
//!
//! ```text
//!  CONFIRM   echo │ tail │ decision
//!  BEGIN     stream │ consumed │ tail
//!  ACK       stream │ consumed
//! ```
//!
//! Whether it was consumed is for whoever sent it.

use super::decision::DecisionFields;
use super::{FrameFault, ensure};
use crate::link::past::is_position;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A CONFIRM.
///
/// ```text
///  0  echo    8  tail    16  decision (40)    56
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConfirmFields {
    /// The server's nonce.
    pub echo: U64,
    /// From here on the client's records speak of the stream that is now consumed.
    pub tail: U64,
    /// About the client's records.
    pub decision: DecisionFields,
}

/// A BEGIN.
///
/// ```text
///  0  stream    8  consumed    16  tail    24
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BeginFields {
    /// What the server consumes; 0 if nothing, then `consumed` is 0.
    pub stream: U64,
    /// Up to where.
    pub consumed: U64,
    /// From here on the server's records speak of that stream.
    pub tail: U64,
}

/// An ACK.
///
/// ```text
///  0  stream    8  consumed    16
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AckFields {
    /// Of which stream; never 0.
    pub stream: U64,
    /// Up to where.
    pub consumed: U64,
}

const _: () = {
    assert!(size_of::<ConfirmFields>() == 56);
    assert!(core::mem::offset_of!(ConfirmFields, tail) == 8);
    assert!(core::mem::offset_of!(ConfirmFields, decision) == 16);
    assert!(size_of::<BeginFields>() == 24);
    assert!(core::mem::offset_of!(BeginFields, consumed) == 8);
    assert!(core::mem::offset_of!(BeginFields, tail) == 16);
    assert!(size_of::<AckFields>() == 16);
    assert!(core::mem::offset_of!(AckFields, consumed) == 8);
};

impl ConfirmFields {
    pub(super) fn check(&self) -> Result<(), FrameFault> {
        ensure(is_position(self.tail), "a tail that is no position", self.tail.get())?;
        self.decision.check()
    }
}

impl BeginFields {
    pub(super) fn check(&self) -> Result<(), FrameFault> {
        let consumed = self.consumed.get();
        ensure(is_position(self.consumed), NO_PLACE, consumed)?;
        let is_stream = self.stream.get() != 0 || consumed == 0;
        ensure(is_stream, "something consumed of no stream", consumed)?;
        ensure(is_position(self.tail), "a tail that is no position", self.tail.get())
    }
}

impl AckFields {
    pub(super) fn check(&self) -> Result<(), FrameFault> {
        let consumed = self.consumed.get();
        ensure(self.stream.get() != 0, "something consumed of no stream", consumed)?;
        ensure(is_position(self.consumed), NO_PLACE, consumed)
    }
}

const NO_PLACE: &str = "a place up to which was consumed that is none";
