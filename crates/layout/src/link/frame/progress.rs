// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bodies of three frames (SPEC 15.2): CONFIRM and BEGIN, by which client and server accept
//! each other's decision how a direction resumes after a new connection, and ACK, which
//! acknowledges messages.
//!
//! ```text
//!  CONFIRM   echo │ tail │ decision
//!  BEGIN     stream │ consumed │ tail
//!  ACK       stream │ consumed
//! ```
//!
//! The sender of an ACK decides what is consumed; this file does not.

use super::decision::DecisionFields;
use super::{FrameFault, ensure};
use crate::link::past::is_position;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The body of a CONFIRM: the client has applied the server's decision, and sends its own.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0  echo    8  tail    16  decision (40)    56
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConfirmFields {
    /// The server's nonce, repeated from the ATTACHED, by which the server knows that the frame
    /// answers its ATTACHED.
    pub echo: U64,
    /// A position in the client's stream. The acknowledgements in the client's records from this
    /// position on refer to the stream that the client consumes now; those in earlier records, to a
    /// former stream.
    pub tail: U64,
    /// The client's decision how the direction of its records resumes on this connection.
    pub decision: DecisionFields,
}

/// The body of a BEGIN: the server has applied the client's decision how the client's records
/// resume.
///
/// Each field after its offset in bytes:
/// ```text
///  0  stream    8  consumed    16  tail    24
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BeginFields {
    /// Id of the stream that the server consumes. If the server consumes none, the id and
    /// `consumed` are 0.
    pub stream: U64,
    /// Position up to which the server has consumed the stream.
    pub consumed: U64,
    /// A position in the server's stream. The acknowledgements in the server's records from this
    /// position on refer to `stream`; those in earlier records, to a former stream.
    pub tail: U64,
}

/// The body of an ACK: how far its sender has consumed the peer's stream.
///
/// Each field after its offset in bytes:
/// ```text
///  0  stream    8  consumed    16
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AckFields {
    /// Id of the stream that the sender of the ACK consumes; never 0.
    pub stream: U64,
    /// Position up to which the sender of the ACK has consumed the stream.
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
        ensure(is_position(self.tail), "the tail is not a position", self.tail.get())?;
        self.decision.check()
    }
}

impl BeginFields {
    pub(super) fn check(&self) -> Result<(), FrameFault> {
        let consumed = self.consumed.get();
        ensure(is_position(self.consumed), NO_PLACE, consumed)?;
        let is_stream = self.stream.get() != 0 || consumed == 0;
        ensure(is_stream, "a position is consumed of no stream", consumed)?;
        ensure(is_position(self.tail), "the tail is not a position", self.tail.get())
    }
}

impl AckFields {
    pub(super) fn check(&self) -> Result<(), FrameFault> {
        let consumed = self.consumed.get();
        ensure(self.stream.get() != 0, "a position is consumed of no stream", consumed)?;
        ensure(is_position(self.consumed), NO_PLACE, consumed)
    }
}

const NO_PLACE: &str = "consumed is not a position";
