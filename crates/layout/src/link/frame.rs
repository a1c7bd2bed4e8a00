// SPDX-License-Identifier: MIT OR Apache-2.0
//! A frame between the two ends of a link: its header, and the kinds of body (SPEC 15). By frames
//! the ends attach, decide how each direction resumes, and acknowledge messages.
//!
//! ```text
//!  0               8            12      16
//!  | word          | body bytes | crc   | body …
//!
//!  word   bit 63 … 1 | 0          crc   crc32c of bytes 0..11 and of the body
//!         kind       | 0 marks a frame (a record has 1 in this bit, SPEC 4.2)
//!
//!  attach.rs    ATTACH, ATTACHED     side.rs      identity and positions of a side
//!  refuse.rs    REFUSE               progress.rs  CONFIRM, BEGIN, ACK
//!  decision.rs  how a direction resumes            fault.rs     why a frame is invalid
//! ```
//!
//! This file decodes frames that are in memory as a whole. It does not decide which side sends
//! which frame when.
//!
//! # Invariants
//!
//! - A body that [`parse`] returns breaks no rule that can be checked on one frame.

pub mod attach;
pub mod decision;
mod fault;
pub mod progress;
pub mod refuse;
pub mod side;

pub use attach::{AttachFields, AttachedFields};
pub use decision::DecisionFields;
pub use fault::FrameFault;
pub use progress::{AckFields, BeginFields, ConfirmFields};
pub use refuse::RefuseFields;
pub use side::SideFields;

use super::checksum::crc32c_of;
use crate::link::header::NAME_BYTES_MAX;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic, eight fixed bytes that begin the body of ATTACH and identify the protocol of links.
pub const FRAME_MAGIC: [u8; 8] = *b"PWLINKF\x01";
/// The oldest version of the link protocol that this crate implements.
pub const FRAME_VERSION_MIN: u16 = 1;
/// The newest version of the link protocol that this crate implements.
pub const FRAME_VERSION_MAX: u16 = 1;

/// Size of a frame's header, in bytes.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Upper bound of the login, the application's data in an ATTACH or ATTACHED, in bytes.
pub const LOGIN_BYTES_MAX: usize = 4096;
/// Upper bound of the text in a REFUSE, in bytes. The text is for an operator.
pub const REFUSAL_TEXT_MAX: usize = 255;
/// Upper bound of the body of any frame, in bytes.
pub const FRAME_BODY_MAX: usize = size_of::<AttachFields>() + 3 * NAME_BYTES_MAX + LOGIN_BYTES_MAX;

/// The kind of a frame between the two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// ATTACH: a client asks a server to attach to a link.
    Attach = 1,
    /// ATTACHED: a server accepts the client that sent ATTACH.
    Attached = 2,
    /// REFUSE: a side refuses to attach, or ends a link to which it was attached.
    Refuse = 3,
    /// CONFIRM: the client confirms that it has applied the server's decision.
    Confirm = 4,
    /// BEGIN: the server confirms that it has applied the client's decision.
    Begin = 5,
    /// ACK: the sender of the frame reports messages that its application has acknowledged.
    Ack = 6,
    /// LEAVE: the sender of the frame closes its end of the link in good order; it may attach again
    /// later.
    Leave = 7,
    /// SHARE: the client has mapped the server's memory, so records after this frame do not use the
    /// socket.
    Share = 8,
}

impl FrameKind {
    const ALL: [Self; 8] = [
        Self::Attach,
        Self::Attached,
        Self::Refuse,
        Self::Confirm,
        Self::Begin,
        Self::Ack,
        Self::Leave,
        Self::Share,
    ];

    /// Smallest and largest size in bytes of the body of a frame of this kind. The ATTACH of
    /// another version may be longer or shorter than that of this version.
    #[must_use]
    pub const fn body_bytes(self) -> (usize, usize) {
        let fixed = match self {
            Self::Attach => return (attach::ANY_VERSION_BYTES, FRAME_BODY_MAX),
            Self::Attached => {
                let fixed = size_of::<AttachedFields>();
                return (fixed, fixed + LOGIN_BYTES_MAX);
            }
            Self::Refuse => {
                let fixed = size_of::<RefuseFields>();
                return (fixed, fixed + REFUSAL_TEXT_MAX);
            }
            Self::Confirm => size_of::<ConfirmFields>(),
            Self::Begin => size_of::<BeginFields>(),
            Self::Ack => size_of::<AckFields>(),
            Self::Leave | Self::Share => 0,
        };
        (fixed, fixed)
    }
}

/// The header of a frame, which precedes the body.
///
/// Each field after its offset in bytes:
/// ```text
///  0  word    8  body bytes    12  crc
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FrameHeader {
    /// The number of the frame's kind, shifted left by one bit; bit 0 is 0.
    pub word: U64,
    /// Length in bytes of the body that follows the header.
    pub body_bytes: U32,
    /// The crc32c of the bytes before this field, and of the body.
    pub crc: U32,
}

const _: () = {
    assert!(size_of::<FrameHeader>() == FRAME_HEADER_BYTES);
    assert!(core::mem::offset_of!(FrameHeader, body_bytes) == 8);
    assert!(core::mem::offset_of!(FrameHeader, crc) == 12);
    assert!(FRAME_BODY_MAX < 8192);
};

impl FrameHeader {
    /// Makes the header of a frame with this kind and body, which has at most [`FRAME_BODY_MAX`]
    /// bytes.
    #[must_use]
    pub fn new(kind: FrameKind, body: &[u8]) -> Self {
        let body = &body[..body.len().min(FRAME_BODY_MAX)];
        let body_bytes = U32::new(u32::try_from(body.len()).unwrap_or(0));
        let header = Self { word: U64::new((kind as u64) << 1), body_bytes, crc: U32::new(0) };
        Self { crc: U32::new(header.checksum(body)), ..header }
    }

    /// The kind of the frame and the length of its body, at most [`FRAME_BODY_MAX`].
    ///
    /// # Errors
    /// Either [`FrameFault::Kind`] or [`FrameFault::Length`].
    pub fn check(&self) -> Result<(FrameKind, usize), FrameFault> {
        let word = self.word.get();
        let kind = FrameKind::ALL.into_iter().find(|kind| (*kind as u64) << 1 == word);
        let kind = kind.ok_or(FrameFault::Kind { word })?;
        let bytes = usize::try_from(self.body_bytes.get()).unwrap_or(usize::MAX);
        let (least, most) = kind.body_bytes();
        if bytes < least || bytes > most {
            return Err(FrameFault::Length { kind, bytes });
        }
        Ok((kind, bytes))
    }

    fn checksum(&self, body: &[u8]) -> u32 {
        let (counted, _) = self.as_bytes().split_at(core::mem::offset_of!(Self, crc));
        crc32c_of(counted, &[body])
    }
}

/// The body of a frame that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameBody<'a> {
    /// The body of an ATTACH ([`FrameKind::Attach`]).
    Attach {
        /// The part of the body with fields of fixed size, with which the body begins.
        fields: &'a AttachFields,
        /// Names of the client, the server and the link.
        names: [&'a str; 3],
        /// Login data from the client for the server's application.
        login: &'a [u8],
    },
    /// The body of an ATTACHED ([`FrameKind::Attached`]).
    Attached {
        /// The part of the body with fields of fixed size, with which the body begins.
        fields: &'a AttachedFields,
        /// Login data from the server for the client's application.
        login: &'a [u8],
    },
    /// The body of a REFUSE ([`FrameKind::Refuse`]).
    Refuse {
        /// The fields of fixed size, with which the body of a REFUSE begins.
        fields: &'a RefuseFields,
        /// Why the side that sends the REFUSE refuses, as text for an operator.
        text: &'a str,
    },
    /// The body of a CONFIRM ([`FrameKind::Confirm`]).
    Confirm(&'a ConfirmFields),
    /// The body of a BEGIN ([`FrameKind::Begin`]).
    Begin(&'a BeginFields),
    /// The body of an ACK ([`FrameKind::Ack`]).
    Ack(&'a AckFields),
    /// LEAVE, which has no body: its sender closes its end of the link in good order.
    Leave,
    /// SHARE, which has no body: the client has mapped the server's memory, so records after this
    /// frame do not use the socket.
    Share,
}

/// Checks a frame between the two ends of a link, in the order of SPEC 15.4, and returns its body.
///
/// # Errors
/// A [`FrameFault`], the first rule that the frame breaks.
pub fn parse<'a>(header: &FrameHeader, body: &'a [u8]) -> Result<FrameBody<'a>, FrameFault> {
    let (kind, bytes) = header.check()?;
    let length = FrameFault::Length { kind, bytes: body.len() };
    if bytes != body.len() {
        return Err(length);
    }
    if kind == FrameKind::Attach {
        attach::check_magic(body)?;
    }
    if header.crc.get() != header.checksum(body) {
        return Err(FrameFault::Crc);
    }
    match kind {
        FrameKind::Attach => attach::parse_attach(body),
        FrameKind::Attached => attach::parse_attached(body),
        FrameKind::Refuse => refuse::parse(body),
        FrameKind::Confirm => {
            let fields = ConfirmFields::ref_from_bytes(body).map_err(|_| length)?;
            fields.check().map(|()| FrameBody::Confirm(fields))
        }
        FrameKind::Begin => {
            let fields = BeginFields::ref_from_bytes(body).map_err(|_| length)?;
            fields.check().map(|()| FrameBody::Begin(fields))
        }
        FrameKind::Ack => {
            let fields = AckFields::ref_from_bytes(body).map_err(|_| length)?;
            fields.check().map(|()| FrameBody::Ack(fields))
        }
        FrameKind::Leave => Ok(FrameBody::Leave),
        FrameKind::Share => Ok(FrameBody::Share),
    }
}

fn ensure(holds: bool, what: &'static str, found: u64) -> Result<(), FrameFault> {
    if holds { Ok(()) } else { Err(FrameFault::Field { what, found }) }
}
