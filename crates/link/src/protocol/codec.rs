// SPDX-License-Identifier: MIT OR Apache-2.0
//! The codec of link frames, which converts between [`Frame`] and its bytes (SPEC 15).
//!
//! ```text
//!  Frame ── encode ──▶ header (16) │ fields │ names, login or text
//!        ◀── decode ── checked by partywall_layout, then in the terms of partywall_reconcile
//!
//!  file (SPEC 13.4) ─┐                    ┌─ store/durable.rs  the state
//!                    ├─ Previous ◀─▶ Past │
//!  frame (SPEC 15) ──┘  SkipFields ◀─▶ Skip ─ codec.rs
//! ```
//!
//! The codec keeps no state between two frames, and reads from no socket. A past epoch and a skip
//! have the same fields in frames and in the state of a file, so `store/durable.rs` calls the
//! functions of this file for them.
//!
//! # Invariants
//!
//! - Decoding the bytes of an encoded frame gives the same frame, and encoding a decoded frame
//!   gives the same bytes.
//! - Whatever the bytes, `decode` returns a frame or a fault; it never panics.

use partywall_layout::link::frame::decision::{
    DECISION_GAP, DECISION_IMPOSSIBLE, DECISION_LOST, DECISION_NEW_EPOCH, DECISION_RESUME,
};
use partywall_layout::link::frame::refuse::{
    REFUSE_BUSY, REFUSE_FENCED, REFUSE_QUARANTINED, REFUSE_REJECTED, REFUSE_STALE,
    REFUSE_TOO_LARGE, REFUSE_UNKNOWN, REFUSE_VERSION,
};
use partywall_layout::link::frame::side::SIDE_SHARES_MEMORY;
use partywall_layout::link::frame::{
    AckFields, AttachFields, AttachedFields, BeginFields, ConfirmFields, DecisionFields,
    FRAME_MAGIC, FRAME_VERSION_MAX, FRAME_VERSION_MIN, FrameBody, RefuseFields, SideFields, parse,
};
pub use partywall_layout::link::frame::{
    FRAME_BODY_MAX, FRAME_HEADER_BYTES, FrameFault, FrameHeader, FrameKind, LOGIN_BYTES_MAX,
    REFUSAL_TEXT_MAX,
};
use partywall_layout::link::past::{PREVIOUS_SETTLED, PREVIOUS_THERE};
use partywall_layout::link::{Previous, SkipFields};
use partywall_reconcile::attach::Nonce;
use partywall_reconcile::{
    AckedOffset, ConnectionNumber, Decision, Epoch, Identity, Impossible, Incarnation, Malformed,
    Past, Position, Range, ReceivedPast, ReceiverView, RecordDigest, SenderView, SentPast, Skip,
    StoreId, StreamId,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::frame::{Attach, Frame, Names, Refusal, Window};

/// The length in bytes of the body that follows `header`, at most [`FRAME_BODY_MAX`].
///
/// # Errors
///
/// [`FrameFault::Kind`] or [`FrameFault::Length`] if the header is invalid.
pub fn body_bytes(header: &[u8; FRAME_HEADER_BYTES]) -> Result<usize, FrameFault> {
    read_header(header).check().map(|(_, bytes)| bytes)
}

/// Returns the length in bytes of the frame that begins at the start of `input`. If `input` is
/// shorter than a header, returns the length of a header.
///
/// # Errors
///
/// [`FrameFault::Kind`] or [`FrameFault::Length`] if the header is invalid.
pub fn whole_bytes(input: &[u8]) -> Result<usize, FrameFault> {
    let Some(header) = input.first_chunk() else { return Ok(FRAME_HEADER_BYTES) };
    Ok(FRAME_HEADER_BYTES + body_bytes(header)?)
}

/// Decodes a whole frame, header and body.
///
/// # Errors
///
/// [`FrameFault`] if `bytes` is shorter than a header, or for the first broken rule (SPEC 15.4).
pub fn read(bytes: &[u8]) -> Result<Frame, FrameFault> {
    let Some((header, body)) = bytes.split_first_chunk() else { return Err(UNCHECKED) };
    decode(header, body)
}

/// Decodes a frame whose header and body lie in separate memory.
///
/// # Errors
///
/// [`FrameFault`] that names the first broken rule (SPEC 15.4).
pub fn decode(header: &[u8; FRAME_HEADER_BYTES], body: &[u8]) -> Result<Frame, FrameFault> {
    Ok(match parse(&read_header(header), body)? {
        FrameBody::Attach { fields, names: [client, server, link], login } => Frame::Attach {
            attach: side(&fields.side)?,
            names: Names { client: client.into(), server: server.into(), link: link.into() },
            login: login.to_vec(),
        },
        FrameBody::Attached { fields, login } => Frame::Attached {
            attach: side(&fields.side)?,
            echo: Nonce(fields.echo.get()),
            decision: decision(&fields.decision)?,
            login: login.to_vec(),
        },
        FrameBody::Refuse { fields, text } => {
            Frame::Refuse { echo: Nonce(fields.echo.get()), refusal: refusal(fields, text)? }
        }
        FrameBody::Confirm(fields) => Frame::Confirm {
            echo: Nonce(fields.echo.get()),
            decision: decision(&fields.decision)?,
            tail: Position(fields.tail.get()),
        },
        FrameBody::Begin(fields) => Frame::Begin {
            stream: StreamId::new(fields.stream.get()),
            consumed: Position(fields.consumed.get()),
            tail: Position(fields.tail.get()),
        },
        FrameBody::Ack(fields) => Frame::Ack {
            stream: StreamId::new(fields.stream.get()).ok_or(UNCHECKED)?,
            consumed: Position(fields.consumed.get()),
        },
        FrameBody::Leave => Frame::Leave,
        FrameBody::Share => Frame::Share,
    })
}

/// Appends the bytes of a frame. A refusal's text is cut to [`REFUSAL_TEXT_MAX`] bytes.
///
/// # Panics
///
/// If a name is empty or longer than 255 bytes, which no [`Key`](crate::Key) allows; if a login is
/// longer than [`LOGIN_BYTES_MAX`] bytes; if the views of an [`Attach`] belong to another epoch
/// than its identity.
pub fn encode(frame: &Frame, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    let kind = match frame {
        Frame::Attach { attach, names, login } => {
            encode_attach(attach, names, login, out);
            FrameKind::Attach
        }
        Frame::Attached { attach, echo, decision, login } => {
            let fields = AttachedFields {
                version: U16::new(FRAME_VERSION_MAX),
                echo: U64::new(echo.0),
                side: side_fields(attach),
                decision: decision_fields(decision),
                login_bytes: login_bytes(login),
                ..AttachedFields::new_zeroed()
            };
            out.extend_from_slice(fields.as_bytes());
            out.extend_from_slice(login);
            FrameKind::Attached
        }
        Frame::Refuse { echo, refusal } => {
            encode_refuse(*echo, refusal, out);
            FrameKind::Refuse
        }
        Frame::Confirm { echo, decision, tail } => {
            let (echo, tail) = (U64::new(echo.0), U64::new(tail.0));
            let fields = ConfirmFields { echo, tail, decision: decision_fields(decision) };
            out.extend_from_slice(fields.as_bytes());
            FrameKind::Confirm
        }
        Frame::Begin { stream, consumed, tail } => {
            let stream = U64::new(stream_number(*stream));
            let (consumed, tail) = (U64::new(consumed.0), U64::new(tail.0));
            out.extend_from_slice(BeginFields { stream, consumed, tail }.as_bytes());
            FrameKind::Begin
        }
        Frame::Ack { stream, consumed } => {
            let (stream, consumed) = (U64::new(stream.0.get()), U64::new(consumed.0));
            out.extend_from_slice(AckFields { stream, consumed }.as_bytes());
            FrameKind::Ack
        }
        Frame::Leave => FrameKind::Leave,
        Frame::Share => FrameKind::Share,
    };
    let body = start + FRAME_HEADER_BYTES;
    let header = FrameHeader::new(kind, &out[body..]);
    out[start..body].copy_from_slice(header.as_bytes());
}

fn encode_attach(attach: &Attach, names: &Names, login: &[u8], out: &mut Vec<u8>) {
    let names = [&names.client, &names.server, &names.link];
    let fields = AttachFields {
        magic: FRAME_MAGIC,
        version_min: U16::new(FRAME_VERSION_MIN),
        version_max: U16::new(FRAME_VERSION_MAX),
        side: side_fields(attach),
        name_lengths: names.map(|name| {
            let bytes = u8::try_from(name.len()).unwrap_or(0);
            assert!(bytes != 0, "a name has 1 to 255 bytes: {name:?}");
            bytes
        }),
        login_bytes: login_bytes(login),
        ..AttachFields::new_zeroed()
    };
    out.extend_from_slice(fields.as_bytes());
    names.into_iter().for_each(|name| out.extend_from_slice(name.as_bytes()));
    out.extend_from_slice(login);
}

fn login_bytes(login: &[u8]) -> U32 {
    assert!(login.len() <= LOGIN_BYTES_MAX, "a login of {} bytes", login.len());
    length(login)
}

/// Returns the length of `bytes` as a 32-bit field. The caller must have checked that `bytes` is
/// short enough for such a field.
fn length(bytes: &[u8]) -> U32 {
    U32::new(u32::try_from(bytes.len()).unwrap_or(u32::MAX))
}

fn encode_refuse(echo: Nonce, refusal: &Refusal, out: &mut Vec<u8>) {
    let (code, number, text) = match refusal {
        Refusal::Stale(connection_number) => (REFUSE_STALE, connection_number.0, ""),
        Refusal::Fenced(incarnation) => (REFUSE_FENCED, incarnation.0, ""),
        Refusal::Quarantined => (REFUSE_QUARANTINED, 0, ""),
        Refusal::Unknown(text) => (REFUSE_UNKNOWN, 0, text.as_str()),
        Refusal::Rejected(text) => (REFUSE_REJECTED, 0, text.as_str()),
        Refusal::TooLarge(text) => (REFUSE_TOO_LARGE, 0, text.as_str()),
        Refusal::Busy(text) => (REFUSE_BUSY, 0, text.as_str()),
        Refusal::Version(min, max) => (REFUSE_VERSION, u64::from(*min) | u64::from(*max) << 16, ""),
    };
    let text = cut(text).as_bytes();
    let fields = RefuseFields {
        echo: U64::new(echo.0),
        code: U32::new(code),
        text_bytes: length(text),
        number: U64::new(number),
    };
    out.extend_from_slice(fields.as_bytes());
    out.extend_from_slice(text);
}

/// Cuts the text of a refusal to at most [`REFUSAL_TEXT_MAX`] bytes, between two characters.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(REFUSAL_TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1; // ends at 0, which is a character boundary
    }
    &text[..end]
}

fn refusal(fields: &RefuseFields, text: &str) -> Result<Refusal, FrameFault> {
    let number = fields.number.get();
    let low = |number: u64| u16::try_from(number & 0xffff).unwrap_or(0);
    Ok(match fields.code.get() {
        REFUSE_STALE => Refusal::Stale(ConnectionNumber(number)),
        REFUSE_FENCED => Refusal::Fenced(Incarnation(number)),
        REFUSE_QUARANTINED => Refusal::Quarantined,
        REFUSE_UNKNOWN => Refusal::Unknown(text.into()),
        REFUSE_REJECTED => Refusal::Rejected(text.into()),
        REFUSE_TOO_LARGE => Refusal::TooLarge(text.into()),
        REFUSE_BUSY => Refusal::Busy(text.into()),
        REFUSE_VERSION => Refusal::Version(low(number), low(number >> 16)),
        _ => return Err(UNCHECKED),
    })
}

fn side_fields(attach: &Attach) -> SideFields {
    let Attach { nonce, identity, sending, receiving, past, window, shares } = attach;
    let is_one_epoch = sending.epoch() == identity.epoch && receiving.epoch() == identity.epoch;
    assert!(is_one_epoch, "views of another epoch: {attach:?}");
    let acked_offset = receiving.consumed();
    SideFields {
        nonce: U64::new(nonce.0),
        incarnation: U64::new(identity.incarnation.0),
        store_id: identity.store_id.0.to_le_bytes(),
        connection_number: U64::new(identity.connection_number.0),
        epoch: U64::new(identity.epoch.0),
        sending_stream: U64::new(sending.stream().0.get()),
        base: U64::new(sending.base().0),
        tail: U64::new(sending.tail().0),
        receiving_stream: U64::new(stream_number(
            acked_offset.map(|acked_offset| acked_offset.stream),
        )),
        consumed: U64::new(acked_offset.map_or(0, |acked_offset| acked_offset.position.0)),
        received: U64::new(receiving.received().0),
        digest: U32::new(acked_offset.map_or(0, |acked_offset| acked_offset.digest.0)),
        flags: U32::new(if *shares { SIDE_SHARES_MEMORY } else { 0 }),
        past: past_fields(past.as_ref()),
        skip: skip_fields(receiving.skip().as_ref()),
        ring_bytes: U64::new(window.ring_bytes),
        slab_bytes: U64::new(window.slab_bytes),
    }
}

fn side(fields: &SideFields) -> Result<Attach, FrameFault> {
    let epoch = Epoch(fields.epoch.get());
    let stream = StreamId::new(fields.sending_stream.get()).ok_or(UNCHECKED)?;
    let (base, tail) = (Position(fields.base.get()), Position(fields.tail.get()));
    let acked_offset = StreamId::new(fields.receiving_stream.get()).map(|stream| AckedOffset {
        stream,
        position: Position(fields.consumed.get()),
        digest: RecordDigest(fields.digest.get()),
    });
    let (received, skip) = (Position(fields.received.get()), skip(&fields.skip));
    Ok(Attach {
        nonce: Nonce(fields.nonce.get()),
        identity: Identity {
            store_id: StoreId(u128::from_le_bytes(fields.store_id)),
            incarnation: Incarnation(fields.incarnation.get()),
            connection_number: ConnectionNumber(fields.connection_number.get()),
            epoch,
        },
        sending: SenderView::new(epoch, stream, base, tail).map_err(malformed)?,
        receiving: ReceiverView::new(epoch, acked_offset, received, skip).map_err(malformed)?,
        past: past(&fields.past),
        window: Window { ring_bytes: fields.ring_bytes.get(), slab_bytes: fields.slab_bytes.get() },
        shares: fields.flags.get() & SIDE_SHARES_MEMORY != 0,
    })
}

fn malformed(malformed: Malformed) -> FrameFault {
    let (what, found) = match malformed {
        Malformed::BaseBeyondTail => ("a base beyond the tail", 0),
        Malformed::ConsumedBeyondReceived => ("more consumed than received", 0),
        Malformed::DigestAtStart => ("a record digest at the start of a stream", 0),
    };
    FrameFault::Field { what, found }
}

fn decision_fields(decision: &Decision) -> DecisionFields {
    let fields = DecisionFields::new_zeroed();
    let kind = |number| U32::new(number);
    let (from, to) = match decision {
        Decision::Gap { range, .. } | Decision::Lost { range, .. } => (range.from(), range.to()),
        _ => (Position::START, Position::START),
    };
    let fields = DecisionFields { from: U64::new(from.0), to: U64::new(to.0), ..fields };
    match *decision {
        Decision::Resume(position) => {
            DecisionFields { kind: kind(DECISION_RESUME), at: U64::new(position.0), ..fields }
        }
        Decision::Gap { digest, .. } => {
            DecisionFields { kind: kind(DECISION_GAP), digest: U32::new(digest.0), ..fields }
        }
        Decision::Lost { of, resume, digest, .. } => DecisionFields {
            kind: kind(DECISION_LOST),
            digest: U32::new(digest.0),
            of: U64::new(of.0.get()),
            at: U64::new(resume.0),
            ..fields
        },
        Decision::Impossible(why) => DecisionFields {
            kind: kind(DECISION_IMPOSSIBLE),
            at: U64::new(impossible_number(why).into()),
            ..fields
        },
        Decision::NewEpoch(epoch) => {
            DecisionFields { kind: kind(DECISION_NEW_EPOCH), at: U64::new(epoch.0), ..fields }
        }
    }
}

fn decision(fields: &DecisionFields) -> Result<Decision, FrameFault> {
    let (at, digest) = (fields.at.get(), RecordDigest(fields.digest.get()));
    let (from, to) = (Position(fields.from.get()), Position(fields.to.get()));
    let range = Range::new(from, to).ok_or(UNCHECKED)?;
    Ok(match fields.kind.get() {
        DECISION_RESUME => Decision::Resume(Position(at)),
        DECISION_GAP => Decision::Gap { range, digest },
        DECISION_LOST => {
            let of = StreamId::new(fields.of.get()).ok_or(UNCHECKED)?;
            Decision::Lost { of, range, resume: Position(at), digest }
        }
        DECISION_IMPOSSIBLE => Decision::Impossible(impossible(at).ok_or(UNCHECKED)?),
        DECISION_NEW_EPOCH => Decision::NewEpoch(Epoch(at)),
        _ => return Err(UNCHECKED),
    })
}

/// The number that stands for `stream` in a field of a frame or file: the stream's id, or 0 for
/// `None`.
pub(crate) fn stream_number(stream: Option<StreamId>) -> u64 {
    stream.map_or(0, |stream| stream.0.get())
}

/// Decodes the summary of a past epoch: its streams and their positions. Returns `None` if there is
/// no past epoch. The crate `partywall_layout` must have checked the fields; unchecked fields with
/// impossible values also give `None`.
pub(crate) fn past(fields: &Previous) -> Option<Past> {
    if !fields.is_there() {
        return None;
    }
    let sending = StreamId::new(fields.sending_stream.get()).map(|stream| SentPast {
        stream,
        acked: Position(fields.acked.get()),
        tail: Position(fields.tail.get()),
    });
    let receiving = StreamId::new(fields.receiving_stream.get())
        .map(|stream| ReceivedPast { stream, consumed: Position(fields.consumed.get()) });
    let epoch = Epoch(fields.epoch.get());
    Some(Past { epoch, sending, receiving, settled: fields.is_settled() })
}

pub(crate) fn past_fields(past: Option<&Past>) -> Previous {
    let mut fields = Previous::new_zeroed();
    let Some(past) = past else { return fields };
    fields.flags = U64::new(PREVIOUS_THERE | if past.settled { PREVIOUS_SETTLED } else { 0 });
    fields.epoch = U64::new(past.epoch.0);
    if let Some(sent) = past.sending {
        fields.sending_stream = U64::new(sent.stream.0.get());
        fields.base = U64::new(sent.acked.0);
        fields.acked = U64::new(sent.acked.0);
        fields.tail = U64::new(sent.tail.0);
    }
    if let Some(received) = past.receiving {
        fields.receiving_stream = U64::new(received.stream.0.get());
        fields.consumed = U64::new(received.consumed.0);
    }
    fields
}

pub(crate) fn skip(fields: &SkipFields) -> Option<Skip> {
    Some(Skip {
        epoch: Epoch(fields.epoch.get()),
        of: StreamId::new(fields.of.get())?,
        into: StreamId::new(fields.into.get())?,
        range: Range::new(Position(fields.from.get()), Position(fields.to.get()))?,
        resume: Position(fields.resume.get()),
    })
}

pub(crate) fn skip_fields(skip: Option<&Skip>) -> SkipFields {
    let Some(skip) = skip else { return SkipFields::new_zeroed() };
    SkipFields {
        epoch: U64::new(skip.epoch.0),
        of: U64::new(skip.of.0.get()),
        into: U64::new(skip.into.0.get()),
        from: U64::new(skip.range.from().0),
        to: U64::new(skip.range.to().0),
        resume: U64::new(skip.resume.0),
    }
}

/// Returns the contradiction between the stores of two ends (such as a receiver ahead of its
/// sender) that `number` encodes (SPEC 13.4, 15.3). Returns `None` if `number` encodes no
/// contradiction.
pub(crate) fn impossible(number: u64) -> Option<Impossible> {
    match number {
        1 => Some(Impossible::ReceiverAhead),
        2 => Some(Impossible::NoBoundary),
        3 => Some(Impossible::OtherRecord),
        _ => None,
    }
}

pub(crate) const fn impossible_number(why: Impossible) -> u32 {
    match why {
        Impossible::ReceiverAhead => 1,
        Impossible::NoBoundary => 2,
        Impossible::OtherRecord => 3,
    }
}

fn read_header(bytes: &[u8; FRAME_HEADER_BYTES]) -> FrameHeader {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
    FrameHeader {
        word: U64::from_bytes([a, b, c, d, e, f, g, h]),
        body_bytes: U32::from_bytes([i, j, k, l]),
        crc: U32::from_bytes([m, n, o, p]),
    }
}

/// The fault for a field whose value the crate `partywall_layout` should already have refused when
/// it parsed the frame.
const UNCHECKED: FrameFault = FrameFault::Field { what: "a number that was not checked", found: 0 };

#[cfg(test)]
mod tests;
