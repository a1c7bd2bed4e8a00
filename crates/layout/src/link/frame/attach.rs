// SPDX-License-Identifier: MIT OR Apache-2.0
//! ATTACH and ATTACHED: the frames in which client and server state their identities and positions
//! (SPEC 15.2).
//!
//! ```text
//!  ATTACH     magic │ versions │ side │ lengths │ names: client, server, link │ login
//!  ATTACHED   version │ echo │ side │ decision │ length │ login
//! ```
//!
//! The first 24 bytes of an ATTACH are the same in every version, so that a server which supports
//! none of the client's versions can refuse the client.

use super::decision::DecisionFields;
use super::{FRAME_MAGIC, FRAME_VERSION_MAX, FRAME_VERSION_MIN, LOGIN_BYTES_MAX};
use super::{FrameBody, FrameFault, FrameKind, SideFields, ensure};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The part of an ATTACH before its names.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0    magic (8)     8    version min    10   version max    12   zero
///  16   side (232), its nonce first
///  248  lengths of the names: client, server, link            251  zero    252  login bytes    256
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AttachFields {
    /// The magic that begins the body, always [`FRAME_MAGIC`].
    pub magic: [u8; 8],
    /// The oldest version of the link protocol that the client supports.
    pub version_min: U16,
    /// The newest version of the link protocol that the client supports.
    pub version_max: U16,
    /// A reserved field of ATTACH, always 0.
    pub zero: U32,
    /// Identity and positions of the client, which sends the ATTACH.
    pub side: SideFields,
    /// Lengths in bytes of the names of client, server and link, each at least 1.
    pub name_lengths: [u8; 3],
    /// A reserved field of ATTACH, always 0.
    pub zero_too: u8,
    /// Length in bytes of the client's login, at most [`LOGIN_BYTES_MAX`].
    pub login_bytes: U32,
}

/// The part of an ATTACHED before its login.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0    version    2   zero (6)    8   echo
///  16   side (232)
///  248  decision (40)              288 login bytes    292  zero    296
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AttachedFields {
    /// The version of the link protocol that both sides use after this frame.
    pub version: U16,
    /// A reserved field of ATTACHED, always 0.
    pub zero: [u8; 6],
    /// The client's nonce, repeated from the ATTACH, by which the client knows that the frame
    /// answers its ATTACH.
    pub echo: U64,
    /// Identity and positions of the server, which sends the ATTACHED.
    pub side: SideFields,
    /// The server's decision how the direction of its records resumes on this connection.
    pub decision: DecisionFields,
    /// Length in bytes of the server's login, at most [`LOGIN_BYTES_MAX`].
    pub login_bytes: U32,
    /// A reserved field of ATTACHED, always 0.
    pub zero_too: U32,
}

/// Size in bytes of the part of an ATTACH that is the same in every version: from the magic to the
/// nonce.
pub const ANY_VERSION_BYTES: usize = 24;

const _: () = {
    assert!(size_of::<AttachFields>() == 256);
    assert!(core::mem::offset_of!(AttachFields, version_min) == 8);
    assert!(core::mem::offset_of!(AttachFields, version_max) == 10);
    assert!(core::mem::offset_of!(AttachFields, zero) == 12);
    assert!(core::mem::offset_of!(AttachFields, side) == 16);
    assert!(core::mem::offset_of!(AttachFields, name_lengths) == 248);
    assert!(core::mem::offset_of!(AttachFields, zero_too) == 251);
    assert!(core::mem::offset_of!(AttachFields, login_bytes) == 252);
    assert!(ANY_VERSION_BYTES == 16 + core::mem::offset_of!(SideFields, incarnation));
    assert!(size_of::<AttachedFields>() == 296);
    assert!(core::mem::offset_of!(AttachedFields, zero) == 2);
    assert!(core::mem::offset_of!(AttachedFields, echo) == 8);
    assert!(core::mem::offset_of!(AttachedFields, side) == 16);
    assert!(core::mem::offset_of!(AttachedFields, decision) == 248);
    assert!(core::mem::offset_of!(AttachedFields, login_bytes) == 288);
    assert!(core::mem::offset_of!(AttachedFields, zero_too) == 292);
};

pub(super) fn check_magic(body: &[u8]) -> Result<(), FrameFault> {
    match body.first_chunk() {
        Some(magic) if *magic == FRAME_MAGIC => Ok(()),
        magic => Err(FrameFault::Foreign { magic: magic.copied().unwrap_or_default() }),
    }
}

pub(super) fn parse_attach(body: &[u8]) -> Result<FrameBody<'_>, FrameFault> {
    check_versions(body)?;
    let length = FrameFault::Length { kind: FrameKind::Attach, bytes: body.len() };
    let Ok((fields, rest)) = AttachFields::ref_from_prefix(body) else { return Err(length) };
    ensure(fields.zero.get() == 0, NOT_ZERO, fields.zero.get().into())?;
    fields.side.check()?;
    ensure(fields.zero_too == 0, NOT_ZERO, fields.zero_too.into())?;
    let login_bytes = login_bytes(fields.login_bytes)?;
    let mut rest = rest;
    let mut names = [""; 3];
    for (index, which) in WHICH_NAMES.into_iter().enumerate() {
        let bytes = usize::from(fields.name_lengths[index]);
        let (name, behind) = rest.split_at_checked(bytes).ok_or(length)?;
        let name = core::str::from_utf8(name).ok().filter(|name| !name.is_empty());
        names[index] = name.ok_or(FrameFault::Text { which })?;
        rest = behind;
    }
    if rest.len() != login_bytes {
        return Err(length);
    }
    Ok(FrameBody::Attach { fields, names, login: rest })
}

fn check_versions(body: &[u8]) -> Result<(), FrameFault> {
    let (min, max, nonce) = (number(body, 8), number(body, 10), body.get(16..24));
    let nonce = nonce.and_then(|bytes| bytes.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b));
    ensure(1 <= min && min <= max, "an empty range of versions", min.into())?;
    let is_common = min <= FRAME_VERSION_MAX && FRAME_VERSION_MIN <= max;
    if is_common { Ok(()) } else { Err(FrameFault::Version { min, max, nonce }) }
}

fn number(body: &[u8], offset: usize) -> u16 {
    let bytes = body.get(offset..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

pub(super) fn parse_attached(body: &[u8]) -> Result<FrameBody<'_>, FrameFault> {
    let length = FrameFault::Length { kind: FrameKind::Attached, bytes: body.len() };
    let Ok((fields, login)) = AttachedFields::ref_from_prefix(body) else { return Err(length) };
    let (version, nonce) = (fields.version.get(), fields.side.nonce.get());
    if !(FRAME_VERSION_MIN..=FRAME_VERSION_MAX).contains(&version) {
        return Err(FrameFault::Version { min: version, max: version, nonce });
    }
    ensure(fields.zero == [0; 6], NOT_ZERO, fields.zero[0].into())?;
    fields.side.check()?;
    fields.decision.check()?;
    let login_bytes = login_bytes(fields.login_bytes)?;
    ensure(fields.zero_too.get() == 0, NOT_ZERO, fields.zero_too.get().into())?;
    if login.len() != login_bytes {
        return Err(length);
    }
    Ok(FrameBody::Attached { fields, login })
}

fn login_bytes(bytes: U32) -> Result<usize, FrameFault> {
    let found = bytes.get();
    let bytes = usize::try_from(found).unwrap_or(usize::MAX);
    ensure(bytes <= LOGIN_BYTES_MAX, "the login is too long", found.into())?;
    Ok(bytes)
}

const NOT_ZERO: &str = "a reserved field is not 0";
/// The words by which error texts name the three names in an ATTACH frame, in the order in which
/// the frame has them.
const WHICH_NAMES: [&str; 3] = ["client's name", "server's name", "link's name"];
