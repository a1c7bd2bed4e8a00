// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of the handshake (SPEC 2).
//!
//! ```text
//!  connector                             acceptor
//!  HELLO, OFFER + descriptors   ───────▶
//!                               ◀───────  HELLO, OFFER, READY + descriptors
//!  READY                        ───────▶
//!  Either side may send REJECT, with a code and a text, in place of any frame, and then close.
//! ```
//!
//! Every frame starts with a tag of eight bytes, so the first bytes of a connection distinguish
//! Partywall from any other protocol. The first 16 bytes of HELLO are the same in all versions. A
//! frame may be longer than its fields, and lists the descriptors that it brings, by kind.
//! This file encodes and decodes frames; the handshake checks their order.

use crate::check::Violation;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The tag of the handshake frame HELLO: its first eight bytes, by which a receiver recognises it.
pub const HELLO_TAG: [u8; 8] = *b"PARTYWAL";
/// The tag of the handshake frame OFFER: its first eight bytes, by which a receiver recognises it.
pub const OFFER_TAG: [u8; 8] = *b"PWOFFER\0";
/// The tag of the handshake frame READY: its first eight bytes, by which a receiver recognises it.
pub const READY_TAG: [u8; 8] = *b"PWREADY\0";
/// The tag of the handshake frame REJECT: its first eight bytes, by which a receiver recognises it.
pub const REJECT_TAG: [u8; 8] = *b"PWREJECT";

/// The oldest protocol version that this crate implements.
pub const VERSION_MIN: u16 = 2;
/// The newest protocol version that this crate implements.
pub const VERSION_MAX: u16 = 2;

/// Size in bytes of the part that begins every frame: its tag, 4 bytes whose meaning depends on the
/// frame, and its length.
pub const PREAMBLE_BYTES: usize = 16;
/// Length of the longest frame of the handshake in bytes, also of a later version. It bounds the
/// memory that a side takes for the peer's frame.
pub const FRAME_BYTES_MAX: usize = 1024;
/// Length of the longest text of a REJECT in bytes, so that the whole frame stays below
/// [`FRAME_BYTES_MAX`].
pub const REJECT_TEXT_MAX: usize = 512;

/// Bit of [`Hello::features`]: the sender can share memory.
pub const FEATURE_SHM: u64 = 1;
/// Bit of [`Hello::features`]: the sender can use the socket alone, without shared memory.
pub const FEATURE_SOCKET: u64 = 1 << 1;
/// Bit of [`Hello::features`]: the connection begins on the socket, and may move to shared memory
/// while it runs (SPEC 8.5). Bit 2 is reserved for a later feature.
pub const FEATURE_MOVE: u64 = 1 << 3;

/// Value of [`Hello::service`]: one channel of messages, without streams.
pub const SERVICE_CHANNEL: u32 = 1;
/// Value of [`Hello::service`]: a session, which carries many streams.
pub const SERVICE_SESSION: u32 = 2;
/// Value of [`Hello::service`]: a link, a named pair of streams that survives connections.
pub const SERVICE_LINK: u32 = 3;

/// Value of [`crate::RegionHeader::role`]: the connector owns the region.
pub const ROLE_CONNECTOR: u32 = 0;
/// Value of [`crate::RegionHeader::role`]: the acceptor owns the region.
pub const ROLE_ACCEPTOR: u32 = 1;

/// Value of [`Offer::transport`] and [`Ready::transport`]: shared memory.
pub const TRANSPORT_SHM: u32 = 1;
/// Value of [`Offer::transport`] and [`Ready::transport`]: the socket carries the records.
pub const TRANSPORT_SOCKET: u32 = 2;

/// Bit of [`Ready::flags`]: both sides notify each other through eventfds as doorbells. Only a
/// connector sets the bit.
pub const READY_DOORBELLS: u32 = 1;

/// Kind of a descriptor that comes with HELLO: a pidfd of the sender's process.
pub const DESCRIPTOR_PIDFD: u8 = 1;
/// Kind of a descriptor that comes with OFFER: the memory of the sender's region.
pub const DESCRIPTOR_REGION: u8 = 2;
/// Kind of a descriptor that comes with OFFER: the eventfd by which the peer, after writing
/// records, wakes the OFFER's sender.
pub const DESCRIPTOR_RECORDS: u8 = 3;
/// Kind of a descriptor that comes with OFFER: the eventfd by which the peer, after freeing room,
/// wakes the OFFER's sender.
pub const DESCRIPTOR_ROOM: u8 = 4;
/// Largest number of descriptors that one frame of the handshake brings: the list of their kinds
/// has room for seven.
pub const DESCRIPTORS_MAX: usize = 7;
/// The kinds of the descriptors of an OFFER without doorbells: the region alone.
pub static REGION_ALONE: &[u8] = &[DESCRIPTOR_REGION];
/// The kinds of the descriptors of an OFFER with doorbells, in their order.
pub static REGION_AND_DOORBELLS: &[u8] = &[DESCRIPTOR_REGION, DESCRIPTOR_RECORDS, DESCRIPTOR_ROOM];

/// HELLO, the first frame that each side sends: identity and features of its sender.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0   "PARTYWAL"   8  version min  10 version max  12 length
///  16  features     24 service      28 fallback     32 map max     40 message max
///  48  peer blocks max              56 segments max 60 pid         64 nonce (16)
///  80  stream window                88 streams max  92 zero        96 descriptors (8)
///  104 zero (24)                    128
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Hello {
    /// The first eight bytes of the frame, always [`HELLO_TAG`].
    pub tag: [u8; 8],
    /// The oldest version that the frame's sender implements.
    pub version_min: U16,
    /// The newest version that the frame's sender implements.
    pub version_max: U16,
    /// Length of this HELLO in bytes.
    pub length: U32,
    /// Features of the frame's sender, as a union of `FEATURE_…` bits.
    pub features: U64,
    /// The service for which the connector wants the connection: one of the values `SERVICE_…`.
    pub service: U32,
    /// Why the sender of the frame cannot share memory: a number of SPEC 2.6, or 0 if the sender
    /// can.
    pub fallback_reason: U32,
    /// Maximum number of bytes of the peer's memory that the sender of the frame maps.
    pub map_max: U64,
    /// Length of the longest message that the sender of this frame receives, in bytes.
    pub message_max: U64,
    /// Number of entries in the ring in which the sender returns the peer's blocks of memory. The
    /// peer never has more blocks in flight.
    pub peer_blocks_max: U64,
    /// Maximum number of the peer's segments that the sender of the frame maps at the same time.
    pub segments_max: U32,
    /// The process id of the sender in its own namespace. The id is for an operator: the receiver
    /// never acts on it.
    pub pid: U32,
    /// The nonce consists of random bytes. The connector's nonce becomes the session id.
    pub nonce: [u8; 16],
    /// In a session: the credit in bytes with which the sender of the frame begins each stream; in
    /// other services 0.
    pub stream_window: U64,
    /// In a session: how many streams of its peer the sender accepts at the same time; in other
    /// services 0.
    pub streams_max: U32,
    /// A reserved field of HELLO, always 0.
    pub zero0: U32,
    /// The list of the descriptors that come with this HELLO.
    pub descriptors: Descriptors,
    /// A reserved field of HELLO, always 0.
    pub zero1: [u8; 24],
}

/// OFFER, the second frame that each side sends: the transport that its sender offers.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0  "PWOFFER\0"  8 zero  12 length  16 transport  20 reason  24 zero (8)  32 region size
///  40 descriptors (8)               48 zero (16)                                 64
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Offer {
    /// The first eight bytes of the frame, always [`OFFER_TAG`].
    pub tag: [u8; 8],
    /// A reserved field of OFFER, always 0.
    pub zero0: U32,
    /// Length of this OFFER in bytes.
    pub length: U32,
    /// The offered transport, one of `TRANSPORT_…`. With [`TRANSPORT_SHM`] the region's descriptor
    /// accompanies the frame.
    pub transport: U32,
    /// Why the sender of the frame does not offer shared memory: a number of SPEC 2.6, or 0 if the
    /// sender does.
    pub reason: U32,
    /// A reserved field of OFFER, always 0.
    pub zero1: [u8; 8],
    /// Size of the offered region in bytes; 0 if no region is offered.
    pub region_size: U64,
    /// The list of the descriptors that come with this OFFER.
    pub descriptors: Descriptors,
    /// A reserved field of OFFER, always 0.
    pub zero2: [u8; 16],
}

/// READY, the third frame that each side sends: its sender has accepted the peer's OFFER.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0  "PWREADY\0"  8 zero  12 length  16 transport  20 reason  24 flags  28 zero
///  32 descriptors (8)                                                      40
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Ready {
    /// The first eight bytes of the frame, always [`READY_TAG`].
    pub tag: [u8; 8],
    /// A reserved field of READY, always 0.
    pub zero0: U32,
    /// Length of this READY in bytes.
    pub length: U32,
    /// The transport that the sender of the frame chooses from both offers, one of `TRANSPORT_…`.
    pub transport: U32,
    /// Why the sender of the frame does not choose shared memory: a number of SPEC 2.6, or 0 if the
    /// sender does.
    pub reason: U32,
    /// Flags of the frame's sender, as a union of `READY_…` bits.
    pub flags: U32,
    /// A reserved field of READY, always 0.
    pub zero1: U32,
    /// The descriptors that come with this frame: none in this version.
    pub descriptors: Descriptors,
}

/// The list of the descriptors that a frame brings, in their order.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0  count   1 kind, kind, … (7)   8
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Descriptors {
    /// Number of descriptors that the frame brings, at most [`DESCRIPTORS_MAX`].
    pub count: u8,
    /// The kind of each descriptor: `DESCRIPTOR_…`. A receiver closes descriptors of other kinds.
    pub kinds: [u8; DESCRIPTORS_MAX],
}

/// The head of REJECT, the frame that refuses a connection. The text of the refusal follows the
/// head.
///
/// Each field after its offset in bytes:
/// ```text
///  0  "PWREJECT"  8 zero  12 length  16 code  20 text length  24 text ...
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RejectHead {
    /// The first eight bytes of the frame, always [`REJECT_TAG`].
    pub tag: [u8; 8],
    /// A reserved field of REJECT, always 0.
    pub zero: U32,
    /// Length of this REJECT in bytes, text included.
    pub length: U32,
    /// The reason of the refusal: a number of SPEC 2.5.
    pub code: U32,
    /// Length in bytes of the text that follows the head of the REJECT.
    pub text_length: U32,
}

const _: () = {
    assert!(size_of::<Hello>() == 128);
    assert!(core::mem::offset_of!(Hello, version_min) == 8);
    assert!(core::mem::offset_of!(Hello, version_max) == 10);
    assert!(core::mem::offset_of!(Hello, length) == 12);
    assert!(core::mem::offset_of!(Hello, features) == 16);
    assert!(core::mem::offset_of!(Hello, service) == 24);
    assert!(core::mem::offset_of!(Hello, fallback_reason) == 28);
    assert!(core::mem::offset_of!(Hello, map_max) == 32);
    assert!(core::mem::offset_of!(Hello, message_max) == 40);
    assert!(core::mem::offset_of!(Hello, peer_blocks_max) == 48);
    assert!(core::mem::offset_of!(Hello, segments_max) == 56);
    assert!(core::mem::offset_of!(Hello, pid) == 60);
    assert!(core::mem::offset_of!(Hello, nonce) == 64);
    assert!(core::mem::offset_of!(Hello, stream_window) == 80);
    assert!(core::mem::offset_of!(Hello, streams_max) == 88);
    assert!(core::mem::offset_of!(Hello, descriptors) == 96);
    assert!(size_of::<Descriptors>() == 8);
    assert!(core::mem::offset_of!(Descriptors, kinds) == 1);
    assert!(size_of::<Offer>() == 64);
    assert!(core::mem::offset_of!(Offer, length) == 12);
    assert!(core::mem::offset_of!(Offer, transport) == 16);
    assert!(core::mem::offset_of!(Offer, reason) == 20);
    assert!(core::mem::offset_of!(Offer, region_size) == 32);
    assert!(core::mem::offset_of!(Offer, descriptors) == 40);
    assert!(size_of::<Ready>() == 40);
    assert!(core::mem::offset_of!(Ready, transport) == 16);
    assert!(core::mem::offset_of!(Ready, reason) == 20);
    assert!(core::mem::offset_of!(Ready, flags) == 24);
    assert!(core::mem::offset_of!(Ready, descriptors) == 32);
    assert!(size_of::<RejectHead>() == 24);
    assert!(core::mem::offset_of!(RejectHead, code) == 16);
    assert!(core::mem::offset_of!(RejectHead, text_length) == 20);
};

/// Length in bytes of the HELLO of this version; later versions may append fields.
pub const HELLO_BYTES: usize = size_of::<Hello>();
/// Length in bytes of the OFFER of this version; later versions may append fields.
pub const OFFER_BYTES: usize = size_of::<Offer>();
/// Length in bytes of the READY of this version; later versions may append fields.
pub const READY_BYTES: usize = size_of::<Ready>();
/// Length of REJECT without its text, in bytes.
pub const REJECT_HEAD_BYTES: usize = size_of::<RejectHead>();

/// A frame of the handshake that was decoded and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// HELLO, the first frame that each side sends in a handshake.
    Hello(Hello),
    /// OFFER, the second frame that each side sends in a handshake.
    Offer(Offer),
    /// READY, the third frame that each side sends in a handshake.
    Ready(Ready),
    /// REJECT, the refusal of a connection: its code, and its text as received, which need not be
    /// UTF-8.
    Reject(u32, &'a [u8]),
    /// A HELLO whose version range does not overlap the range of this crate. The values are the
    /// smallest and the largest version that the HELLO's sender implements.
    OtherVersion(u16, u16),
}

/// Returns the length of a whole handshake frame in bytes, read from the frame's first 16 bytes.
///
/// # Errors
/// [`Violation::Frame`] if no frame begins with these bytes, or the length is impossible.
pub fn frame_length(preamble: &[u8; PREAMBLE_BYTES]) -> Result<usize, Violation> {
    let mut tag = [0; 8];
    tag.copy_from_slice(&preamble[..8]);
    let length = u32::from_le_bytes([preamble[12], preamble[13], preamble[14], preamble[15]]);
    let minimum = match tag {
        // A later version may send a longer HELLO, but never one shorter than the preamble, the
        // first 16 bytes. This version skips the bytes that it does not know.
        HELLO_TAG => PREAMBLE_BYTES,
        OFFER_TAG => OFFER_BYTES,
        READY_TAG => READY_BYTES,
        REJECT_TAG => REJECT_HEAD_BYTES,
        _ => return Err(Violation::Frame { what: "frame tag", found: u64::from_le_bytes(tag) }),
    };
    let usable = usize::try_from(length).unwrap_or(usize::MAX);
    if usable < minimum || usable > FRAME_BYTES_MAX {
        return Err(Violation::Frame { what: "frame length", found: length.into() });
    }
    Ok(usable)
}

/// Decodes one whole frame of the handshake.
///
/// # Errors
/// [`Violation::Frame`], naming the first invalid field.
pub fn parse(bytes: &[u8]) -> Result<Frame<'_>, Violation> {
    let Some((preamble, _)) = bytes.split_first_chunk::<PREAMBLE_BYTES>() else {
        return Err(Violation::Frame { what: "frame length", found: bytes.len() as u64 });
    };
    if frame_length(preamble)? != bytes.len() {
        return Err(Violation::Frame { what: "frame length", found: bytes.len() as u64 });
    }
    if preamble.starts_with(&HELLO_TAG) {
        return parse_hello(bytes);
    }
    if preamble.starts_with(&OFFER_TAG) {
        let offer: Offer = beginning(bytes, "OFFER length")?;
        offer.descriptors.check()?;
        return match offer.transport.get() {
            TRANSPORT_SHM | TRANSPORT_SOCKET => Ok(Frame::Offer(offer)),
            other => Err(Violation::Frame { what: "OFFER transport", found: other.into() }),
        };
    }
    if preamble.starts_with(&READY_TAG) {
        let ready: Ready = beginning(bytes, "READY length")?;
        ready.descriptors.check()?;
        return match ready.transport.get() {
            TRANSPORT_SHM | TRANSPORT_SOCKET => Ok(Frame::Ready(ready)),
            other => Err(Violation::Frame { what: "READY transport", found: other.into() }),
        };
    }
    let Ok((head, text)) = RejectHead::read_from_prefix(bytes) else {
        return Err(Violation::Frame { what: "REJECT length", found: bytes.len() as u64 });
    };
    if u64::from(head.text_length.get()) != text.len() as u64 || text.len() > REJECT_TEXT_MAX {
        return Err(Violation::Frame {
            what: "REJECT text length",
            found: head.text_length.get().into(),
        });
    }
    Ok(Frame::Reject(head.code.get(), text))
}

fn parse_hello(bytes: &[u8]) -> Result<Frame<'_>, Violation> {
    let version_min = u16::from_le_bytes([bytes[8], bytes[9]]);
    let version_max = u16::from_le_bytes([bytes[10], bytes[11]]);
    if version_min > version_max || version_min == 0 {
        return Err(Violation::Frame { what: "HELLO version range", found: version_min.into() });
    }
    if version_min > VERSION_MAX || version_max < VERSION_MIN {
        return Ok(Frame::OtherVersion(version_min, version_max));
    }
    let hello: Hello = beginning(bytes, "HELLO length")?;
    hello.descriptors.check()?;
    // A HELLO may have the number of an unknown service: the handshake refuses that service with a
    // REJECT. Only the number 0 is a violation.
    match hello.service.get() {
        0 => Err(Violation::Frame { what: "HELLO service", found: 0 }),
        _ => Ok(Frame::Hello(hello)),
    }
}

/// Reads those fields of a handshake frame that this version of the protocol knows. A newer peer
/// may append other fields, which this version ignores.
fn beginning<T: FromBytes>(bytes: &[u8], what: &'static str) -> Result<T, Violation> {
    let Ok((frame, _newer)) = T::read_from_prefix(bytes) else {
        return Err(Violation::Frame { what, found: bytes.len() as u64 });
    };
    Ok(frame)
}

#[expect(clippy::cast_possible_truncation, reason = "frames are at most 1024 bytes")]
const fn length_of<T>() -> U32 {
    U32::new(size_of::<T>() as u32)
}

impl Hello {
    /// Makes a HELLO with the tag of HELLO frames, the protocol versions of this crate, and the
    /// length of the frame. All other fields are 0.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            tag: HELLO_TAG,
            version_min: U16::new(VERSION_MIN),
            version_max: U16::new(VERSION_MAX),
            length: length_of::<Self>(),
            features: U64::new(0),
            service: U32::new(SERVICE_CHANNEL),
            fallback_reason: U32::new(0),
            map_max: U64::new(0),
            message_max: U64::new(0),
            peer_blocks_max: U64::new(0),
            segments_max: U32::new(0),
            pid: U32::new(0),
            nonce: [0; 16],
            stream_window: U64::new(0),
            streams_max: U32::new(0),
            zero0: U32::new(0),
            descriptors: Descriptors::none(),
            zero1: [0; 24],
        }
    }
}

impl Default for Hello {
    fn default() -> Self {
        Self::new()
    }
}

impl Offer {
    /// An OFFER of a region of `region_size` bytes, with these descriptors.
    #[must_use]
    pub const fn shm(region_size: u64, kinds: &[u8]) -> Self {
        let descriptors = Descriptors::of(kinds);
        Self { region_size: U64::new(region_size), descriptors, ..Self::of(TRANSPORT_SHM, 0) }
    }

    /// An OFFER of the socket as the transport; `reason` says why shared memory is not offered.
    #[must_use]
    pub const fn socket(reason: u32) -> Self {
        Self::of(TRANSPORT_SOCKET, reason)
    }

    const fn of(transport: u32, reason: u32) -> Self {
        Self {
            tag: OFFER_TAG,
            zero0: U32::new(0),
            length: length_of::<Self>(),
            transport: U32::new(transport),
            reason: U32::new(reason),
            zero1: [0; 8],
            region_size: U64::new(0),
            descriptors: Descriptors::none(),
            zero2: [0; 16],
        }
    }
}

impl Descriptors {
    /// Returns a list without descriptors, for a frame that brings none.
    #[must_use]
    pub const fn none() -> Self {
        Self { count: 0, kinds: [0; DESCRIPTORS_MAX] }
    }

    /// Returns a list with one descriptor of each of these kinds, in this order; at most
    /// [`DESCRIPTORS_MAX`].
    #[must_use]
    pub const fn of(kinds: &[u8]) -> Self {
        let mut list = Self::none();
        let mut index = 0;
        while index < kinds.len() && index < DESCRIPTORS_MAX {
            list.kinds[index] = kinds[index];
            index += 1;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most DESCRIPTORS_MAX")]
        let count = index as u8;
        list.count = count;
        list
    }

    /// The kinds of the listed descriptors, in the order in which the frame brings the descriptors.
    #[must_use]
    pub fn kinds(&self) -> &[u8] {
        &self.kinds[..usize::from(self.count).min(DESCRIPTORS_MAX)]
    }

    /// Checks that the list of descriptors is possible: not too long, and no known kind twice.
    fn check(&self) -> Result<(), Violation> {
        if usize::from(self.count) > DESCRIPTORS_MAX {
            return Err(Violation::Frame { what: "descriptor count", found: self.count.into() });
        }
        for kind in [DESCRIPTOR_PIDFD, DESCRIPTOR_REGION, DESCRIPTOR_RECORDS, DESCRIPTOR_ROOM] {
            if self.kinds().iter().filter(|found| **found == kind).count() > 1 {
                return Err(Violation::Frame { what: "kinds of descriptors", found: kind.into() });
            }
        }
        Ok(())
    }
}

impl Ready {
    /// Makes a READY frame that chooses `transport` for the connection. If `transport` is not
    /// shared memory, `reason` says why.
    #[must_use]
    pub const fn new(transport: u32, reason: u32) -> Self {
        Self {
            tag: READY_TAG,
            zero0: U32::new(0),
            length: length_of::<Self>(),
            transport: U32::new(transport),
            reason: U32::new(reason),
            flags: U32::new(0),
            zero1: U32::new(0),
            descriptors: Descriptors::none(),
        }
    }

    /// Returns this READY frame with the flag [`READY_DOORBELLS`] set, which says that both sides
    /// notify each other through eventfds.
    #[must_use]
    pub const fn with_doorbells(self) -> Self {
        Self { flags: U32::new(READY_DOORBELLS), ..self }
    }
}

impl RejectHead {
    /// Makes the head of a REJECT frame, whose text has `text_length` bytes, at most
    /// [`REJECT_TEXT_MAX`].
    #[must_use]
    pub fn new(code: u32, text_length: usize) -> Self {
        let text = u32::try_from(text_length.min(REJECT_TEXT_MAX)).unwrap_or(0);
        Self {
            tag: REJECT_TAG,
            zero: U32::new(0),
            length: U32::new(length_of::<Self>().get() + text),
            code: U32::new(code),
            text_length: U32::new(text),
        }
    }
}
