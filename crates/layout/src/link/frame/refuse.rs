// SPDX-License-Identifier: MIT OR Apache-2.0
//! REFUSE: the frame that says why an end does not attach; its bytes are the same in every version
//! (SPEC 15.2).
//!
//! ```text
//!  echo │ code │ length │ number │ text
//! ```
//!
//! SPEC 12.2 says what the peer does when it receives a REFUSE.

use super::{FrameBody, FrameFault, FrameKind, ensure};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The part of a REFUSE before its text.
///
/// Each field after its offset in bytes:
/// ```text
///  0  echo    8  code    12  text bytes    16  number    24
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RefuseFields {
    /// The nonce that the refused peer chose for this connection, repeated from its ATTACH or
    /// ATTACHED.
    pub echo: U64,
    /// The reason of the refusal: one of the `REFUSE_…` codes.
    pub code: U32,
    /// Length in bytes of the text that follows these fields: at most
    /// [`REFUSAL_TEXT_MAX`](super::REFUSAL_TEXT_MAX), and 0 where the code has no text.
    pub text_bytes: U32,
    /// Depending on the code: a connection number, an incarnation, or versions. For other codes 0.
    pub number: U64,
}

/// [`RefuseFields::code`]: the peer's connection is not newer than a connection that the refusing
/// end knows; `number` is the number of the known connection.
pub const REFUSE_STALE: u32 = 1;
/// [`RefuseFields::code`]: a later owner of the peer's store has attached; `number` is its
/// incarnation.
pub const REFUSE_FENCED: u32 = 2;
/// [`RefuseFields::code`]: the refusing end is quarantined.
pub const REFUSE_QUARANTINED: u32 = 3;
/// [`RefuseFields::code`]: the refusing end does not have the name that the peer asked for, or has
/// no link of the requested name; a text follows.
pub const REFUSE_UNKNOWN: u32 = 4;
/// [`RefuseFields::code`]: the application rejected the peer; a text follows.
pub const REFUSE_REJECTED: u32 = 5;
/// [`RefuseFields::code`]: the peer's records exceed the limits of the refusing end; a text
/// follows.
pub const REFUSE_TOO_LARGE: u32 = 6;
/// [`RefuseFields::code`]: the refusing end shuts down, or cannot take a further connection; a text
/// follows.
pub const REFUSE_BUSY: u32 = 7;
/// [`RefuseFields::code`]: the ends have no version in common. `number` holds the refusing end's
/// oldest version in the low 16 bits, and its newest in the 16 bits above.
pub const REFUSE_VERSION: u32 = 8;

const _: () = {
    assert!(size_of::<RefuseFields>() == 24);
    assert!(core::mem::offset_of!(RefuseFields, code) == 8);
    assert!(core::mem::offset_of!(RefuseFields, text_bytes) == 12);
    assert!(core::mem::offset_of!(RefuseFields, number) == 16);
};

pub(super) fn parse(body: &[u8]) -> Result<FrameBody<'_>, FrameFault> {
    let length = FrameFault::Length { kind: FrameKind::Refuse, bytes: body.len() };
    let Ok((fields, text)) = RefuseFields::ref_from_prefix(body) else { return Err(length) };
    let (code, number) = (fields.code.get(), fields.number.get());
    let is_code = (REFUSE_STALE..=REFUSE_VERSION).contains(&code);
    ensure(is_code, "unknown refusal code", code.into())?;
    let is_number = match code {
        REFUSE_STALE => true,
        REFUSE_FENCED => number != 0,
        REFUSE_VERSION => {
            number >> 32 == 0 && number & 0xffff != 0 && number >> 16 >= number & 0xffff
        }
        _ => number == 0,
    };
    ensure(is_number, "a number that the refusal code does not have", number)?;
    let has_text = (REFUSE_UNKNOWN..=REFUSE_BUSY).contains(&code);
    let text_bytes = fields.text_bytes.get();
    ensure(
        has_text || text_bytes == 0,
        "a text that the refusal code does not have",
        text_bytes.into(),
    )?;
    if text.len() != usize::try_from(text_bytes).unwrap_or(usize::MAX) {
        return Err(length);
    }
    let text = core::str::from_utf8(text).map_err(|_| FrameFault::Text { which: "refusal" })?;
    Ok(FrameBody::Refuse { fields, text })
}
