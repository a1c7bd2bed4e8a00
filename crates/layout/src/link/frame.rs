// SPDX-License-Identifier: MIT OR Apache-2.0
//! One frame of a link that is no record: its header, and which body it has (SPEC 15).
//!
//! ```text
//!  0               8            12      16
//!  | word          | body bytes | crc   | body …
//!
//!  word   bit 63 … 1 | 0          crc   crc32c of bytes 0..11 and of the body
//!         kind       | 0: no record (a record has 1 there, SPEC 4.2)
//!
//!  attach.rs    ATTACH, ATTACHED     side.rs      what both say of themselves
//!  refuse.rs    REFUSE               progress.rs  CONFIRM, BEGIN, ACK; LEAVE and SHARE have no body
//!  decision.rs  how a direction goes on            fault.rs     what is wrong with a frame
//! ```
//!
//! It reads frames that lie in memory whole. Who sends which when is not its business.
//!
//! # Invariants
//!
//! - What [`parse`] gives breaks no rule that can be told from one frame.

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

/// The first bytes of ATTACH.
pub const FRAME_MAGIC: [u8; 8] = *b"PWLINKF\x01";
/// The oldest version of the protocol of links that this crate speaks.
pub const FRAME_VERSION_MIN: u16 = 1;
/// The newest one.
pub const FRAME_VERSION_MAX: u16 = 1;

/// Size of a frame's header, in bytes.
pub const FRAME_HEADER_BYTES: usize = 16;
/// The most bytes that an application may send along with an ATTACH or ATTACHED.
pub const LOGIN_BYTES_MAX: usize = 4096;
/// The most bytes of text in a REFUSE.
pub const REFUSAL_TEXT_MAX: usize = 255;
/// The most bytes that the body of any frame has.
pub const FRAME_BODY_MAX: usize = size_of::<AttachFields>() + 3 * NAME_BYTES_MAX + LOGIN_BYTES_MAX;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// A client asks.
    Attach = 1,
    /// A server answers.
    Attached = 2,
    /// Not so, or not any more.
    Refuse = 3,
    /// The client has taken the server's decision.
    Confirm = 4,
    /// The server has taken the client's.
    Begin = 5,
    /// Consumed and committed.
    Ack = 6,
    /// The side closes its end for now.
    Leave = 7,
    /// The client has mapped the server's memory: records do not go over the socket.
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

    /// The least and the most bytes of its body. An ATTACH of another version may have other ones than ours.
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

/// What stands before every body.
///
/// ```text
///  0  word    8  body bytes    12  crc
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FrameHeader {
    /// The kind, twice.
    pub word: U64,
    /// Length of the body.
    pub body_bytes: U32,
    /// crc32c of the bytes before it, and of the body.
    pub crc: U32,
}

const _: () = {
    assert!(size_of::<FrameHeader>() == FRAME_HEADER_BYTES);
    assert!(core::mem::offset_of!(FrameHeader, body_bytes) == 8);
    assert!(core::mem::offset_of!(FrameHeader, crc) == 12);
    assert!(FRAME_BODY_MAX < 8192);
};

impl FrameHeader {
    /// The header of this body, of which only [`FRAME_BODY_MAX`] bytes are counted.
    #[must_use]
    pub fn new(kind: FrameKind, body: &[u8]) -> Self {
        let body = &body[..body.len().min(FRAME_BODY_MAX)];
        let body_bytes = U32::new(u32::try_from(body.len()).unwrap_or(0));
        let header = Self { word: U64::new((kind as u64) << 1), body_bytes, crc: U32::new(0) };
        Self { crc: U32::new(header.checksum(body)), ..header }
    }

    /// What the frame is, and how many bytes follow: at most [`FRAME_BODY_MAX`].
    ///
    /// # Errors
    /// [`FrameFault::Kind`], [`FrameFault::Length`].
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

/// A frame's body, all of it checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameBody<'a> {
    /// See [`FrameKind::Attach`].
    Attach {
        /// What has a place of its own.
        fields: &'a AttachFields,
        /// The client's, the server's, the link's.
        names: [&'a str; 3],
        /// For the server's application.
        login: &'a [u8],
    },
    /// See [`FrameKind::Attached`].
    Attached {
        /// What has a place of its own.
        fields: &'a AttachedFields,
        /// For the client's application.
        login: &'a [u8],
    },
    /// See [`FrameKind::Refuse`].
    Refuse {
        /// What has a place of its own.
        fields: &'a RefuseFields,
        /// For people.
        text: &'a str,
    },
    /// See [`FrameKind::Confirm`].
    Confirm(&'a ConfirmFields),
    /// See [`FrameKind::Begin`].
    Begin(&'a BeginFields),
    /// See [`FrameKind::Ack`].
    Ack(&'a AckFields),
    /// See [`FrameKind::Leave`].
    Leave,
    /// See [`FrameKind::Share`].
    Share,
}

/// Judges a frame, in the order of SPEC 15.4.
///
/// # Errors
/// The first rule that is broken.
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
