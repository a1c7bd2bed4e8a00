// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader of test images: the receiving rules of SPEC 2, 3.2, 4, 5 and 8 for a channel, applied
//! to plain bytes.
//!
//! ```text
//!  bytes ──▶ check each value once ──▶ one line that says what was read, or a Violation
//! ```
//!
//! The reader maps no memory: [`DESCRIPTORS`] states which segments' descriptors arrived.

use super::{PEER_BLOCKS_MAX, REGION_BYTES, RING_BYTES, SESSION, identity, session_reader};
use partywall_layout::control::{
    CONTROL_DOORBELL, CONTROL_HEAD_BYTES, CONTROL_SEGMENT, ControlHead, ControlSegment,
};
use partywall_layout::hello::{self, Frame, PREAMBLE_BYTES, ROLE_ACCEPTOR};
use partywall_layout::record_ring::{BlobCredit, SegmentBody};
use partywall_layout::segment::GRAIN_BYTES;
use partywall_layout::{
    BlobBody, Geometry, Kind, Position, RecordHeader, RegionHeader, RingSize, Violation,
};
use zerocopy::FromBytes;

/// The longest message, in bytes, that the reader of test images accepts.
pub const MESSAGE_MAX: u64 = 64 << 10;
/// Maximum memory that the reader counts as mapped, in bytes: the region and two segments of
/// `GRAIN_BYTES`, the unit of segment sizes. A peer that announces more breaks a rule.
pub const MAP_MAX: u64 = REGION_BYTES + 2 * GRAIN_BYTES;
/// Maximum number of segments that the reader counts as mapped at the same time.
pub const SEGMENTS_MAX: usize = 2;
/// Numbers of the segments whose descriptors the reader counts as arrived. An image is only bytes,
/// so it can contain no descriptor.
pub const DESCRIPTORS: [u32; 2] = [1, 2];
/// The longest payload of a record on a socket in bytes (SPEC 8.2).
pub const SOCKET_PAYLOAD_MAX: u32 = 65_536;

/// Reads `bytes`, the content of a test file of any `kind`, and returns one line that states its
/// content. If the bytes end within a frame or record, the line says so at its end.
pub fn read(kind: &str, from: u64, bytes: &[u8]) -> Result<String, Violation> {
    match kind {
        "frame" => frame(bytes),
        "identity" => identity::read(bytes),
        "region" => region(bytes),
        "ring" => ring(bytes, from),
        "session" => session(bytes, from),
        "socket" => socket(bytes, false),
        "move" => socket(bytes, true),
        "session-ring" => session_reader::ring(bytes, from),
        "session-socket" => session_reader::socket(bytes),
        "control" => control(bytes),
        other => panic!("no images of kind {other}"),
    }
}

fn frame(bytes: &[u8]) -> Result<String, Violation> {
    // The frame is read as a receiver reads it from a socket: first the preamble, which states the
    // length, then exactly that many bytes.
    if let Some(preamble) = bytes.first_chunk::<PREAMBLE_BYTES>() {
        hello::frame_length(preamble)?;
    }
    Ok(match hello::parse(bytes)? {
        Frame::Hello(h) => format!(
            "HELLO versions={}..{} features={} service={} fallback_reason={} map_max={} message_max={} \
             peer_blocks_max={} segments_max={} pid={} nonce={} descriptors={:?}",
            h.version_min,
            h.version_max,
            h.features,
            h.service,
            h.fallback_reason,
            h.map_max,
            h.message_max,
            h.peer_blocks_max,
            h.segments_max,
            h.pid,
            String::from_utf8_lossy(&h.nonce),
            h.descriptors.kinds(),
        ),
        Frame::Offer(o) => format!(
            "OFFER transport={} reason={} region_size={} descriptors={:?}",
            o.transport,
            o.reason,
            o.region_size,
            o.descriptors.kinds(),
        ),
        Frame::Ready(r) => {
            format!("READY transport={} reason={} flags={}", r.transport, r.reason, r.flags)
        }
        Frame::Reject(code, text) => {
            format!("REJECT code={code} text={:?}", String::from_utf8_lossy(text))
        }
        Frame::OtherVersion(min, max) => format!("HELLO other versions={min}..{max}"),
    })
}

/// Reads the bytes of a control socket. The descriptors of a frame count as arriving with its first
/// byte.
fn control(bytes: &[u8]) -> Result<String, Violation> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    while let Some((kind, behind)) = rest.split_first() {
        if *kind == CONTROL_DOORBELL {
            lines.push("doorbell".to_owned());
            rest = behind;
            continue;
        }
        ControlHead::check_kind(*kind)?;
        let Some(head) = rest.first_chunk::<CONTROL_HEAD_BYTES>() else { return Ok("cut".into()) };
        let head = ControlHead::read(head)?;
        let Some((frame, behind)) = rest.split_at_checked(head.length.get().into()) else {
            return Ok("cut".into());
        };
        rest = behind;
        lines.push(if head.kind == CONTROL_SEGMENT {
            let (segment, _) = ControlSegment::read_from_prefix(frame).unwrap();
            format!("segment {}", segment.number)
        } else {
            format!("skipped type={} descriptors={}", head.kind, head.descriptors)
        });
    }
    Ok(lines.join("; "))
}

fn region(bytes: &[u8]) -> Result<String, Violation> {
    let (header, _) = RegionHeader::read_from_prefix(bytes).unwrap();
    let g = Geometry::check(&header, REGION_BYTES, &SESSION, ROLE_ACCEPTOR)?;
    if g.peer_blocks_max < PEER_BLOCKS_MAX {
        let found = g.peer_blocks_max;
        return Err(Violation::RegionHeader { field: "release entries", found });
    }
    Ok(format!(
        "region={} ring={}+{} release={}+{}*8 slab={}+{}",
        g.region_bytes,
        g.ring_offset,
        g.ring.bytes(),
        g.release_offset,
        g.peer_blocks_max,
        g.slab_offset,
        g.slab_bytes
    ))
}

fn ring(image: &[u8], from: u64) -> Result<String, Violation> {
    let size = RingSize::new(image.len() as u64).unwrap();
    let mut channel = Channel::new();
    let mut position = Position(from);
    loop {
        let offset = usize::try_from(size.offset(position)).unwrap();
        let (first, second) = (word(image, offset), word(image, offset + 8));
        let Some(header) = RecordHeader::check(position, size, first, second)? else {
            return Ok(channel.lines.join("; "));
        };
        let payload = &image[offset + 16..][..header.len as usize];
        channel.record(&header, payload)?;
        position = position.plus(header.footprint());
    }
}

/// Reads a ring of a session. Only `session_reader` knows which record a stream allows when, so
/// this function checks only headers and the bodies of BLOBs.
fn session(image: &[u8], from: u64) -> Result<String, Violation> {
    let size = RingSize::new(image.len() as u64).unwrap();
    let mut channel = Channel::new();
    let mut position = Position(from);
    loop {
        let offset = usize::try_from(size.offset(position)).unwrap();
        let (first, second) = (word(image, offset), word(image, offset + 8));
        let Some(header) = RecordHeader::check(position, size, first, second)? else {
            return Ok(channel.lines.join("; "));
        };
        let payload = &image[offset + 16..][..header.len as usize];
        match header.kind {
            Kind::Blob => channel.session_blob(&header, payload)?,
            _ => channel.session_line(&header, &text_or_sum(payload)),
        }
        position = position.plus(header.footprint());
    }
}

/// Reads `stream`, the bytes that one side wrote to a socket, and returns its records as text.
/// `moves` says that the connection may move to shared memory. A test file has neither the
/// descriptor of a pair nor the handshake over it, so each MOVE counts as if both had arrived.
fn socket(stream: &[u8], moves: bool) -> Result<String, Violation> {
    let mut channel = Channel::new();
    let mut has_moved = false;
    let mut position = Position(0);
    let mut rest = stream;
    while !rest.is_empty() {
        let Some((first, behind)) = rest.split_first_chunk::<16>() else { return Ok(cut(channel)) };
        let header = RecordHeader::check_words(position, word(first, 0), word(first, 8), moves)?;
        if matches!(header.kind, Kind::Move | Kind::Switch) && !channel.closed {
            let is_switch = header.kind == Kind::Switch;
            if has_moved != is_switch {
                return Err(unexpected(&header));
            }
            empty(&header)?;
            (has_moved, channel.closed, rest) = (true, is_switch, behind);
            channel.line(&header, "");
            position = position.plus(header.footprint());
            continue;
        }
        if channel.closed || !matches!(header.kind, Kind::Data | Kind::Blob | Kind::CloseWrite) {
            return Err(unexpected(&header));
        }
        if header.len > SOCKET_PAYLOAD_MAX {
            let (position, len) = (header.position.0, header.len);
            return Err(Violation::RecordLength { position, len, max: SOCKET_PAYLOAD_MAX.into() });
        }
        let Some((payload, behind)) = behind.split_at_checked(header.len as usize) else {
            return Ok(cut(channel));
        };
        rest = behind;
        if header.kind == Kind::Blob {
            let length = usize::try_from(blob_body(&header, payload)?.length.get()).unwrap();
            let Some((message, behind)) = rest.split_at_checked(length) else {
                return Ok(cut(channel));
            };
            channel.line(&header, &text_or_sum(message));
            rest = behind;
        } else {
            channel.record(&header, payload)?;
        }
        position = position.plus(header.footprint());
    }
    Ok(channel.lines.join("; "))
}

fn cut(mut channel: Channel) -> String {
    channel.lines.push("cut".to_owned());
    channel.lines.join("; ")
}

/// The state of a channel's receiver between two records.
struct Channel {
    lines: Vec<String>,
    /// Number and size of each mapped segment; number 0 is the slab of the region.
    segments: Vec<(u32, u64)>,
    segment_last: u32,
    /// The message that arrives in fragments: its announced length, and its bytes received so far.
    /// `None` if no such message is unfinished.
    fragments: Option<(u64, u64)>,
    closed: bool,
}

impl Channel {
    fn new() -> Self {
        let slab = Geometry::new(RING_BYTES, PEER_BLOCKS_MAX, 64 << 10).unwrap().slab_bytes;
        let segments = vec![(0, slab)];
        Self { lines: Vec::new(), segments, segment_last: 0, fragments: None, closed: false }
    }

    fn line(&mut self, header: &RecordHeader, text: &str) {
        let line = format!("{} {:?} {text}", header.position.0, header.kind);
        self.lines.push(line.trim_end().to_owned());
    }

    fn record(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<(), Violation> {
        if self.closed {
            return Err(unexpected(header));
        }
        match header.kind {
            Kind::Pad => self.line(header, &format!("len={}", header.len)),
            Kind::Data => self.data(header, payload)?,
            Kind::Blob => self.blob(header, payload)?,
            Kind::FragmentFirst | Kind::FragmentMid | Kind::FragmentLast | Kind::FragmentAbort => {
                self.fragment(header, payload)?;
            }
            Kind::Segment => self.segment(header, payload)?,
            Kind::SegmentRetire => self.retire(header, payload)?,
            Kind::CloseWrite => {
                // A CLOSE_WRITE discards a message whose fragments have not all arrived, as an
                // abort by its sender would.
                empty(header)?;
                self.fragments = None;
                self.closed = true;
                self.line(header, "");
            }
            _ => return Err(unexpected(header)),
        }
        Ok(())
    }

    fn data(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<(), Violation> {
        self.not_in_fragments(header)?;
        message_length(header.len.into())?;
        self.line(header, &text_or_sum(payload));
        Ok(())
    }

    fn session_line(&mut self, header: &RecordHeader, text: &str) {
        self.line(header, &format!("stream={} {text}", header.stream));
    }

    fn session_blob(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<(), Violation> {
        let (payload, credit) = match payload.split_at_checked(size_of::<BlobBody>()) {
            Some((blob, credit)) if credit.len() == size_of::<BlobCredit>() => (blob, Some(credit)),
            _ => (payload, None),
        };
        let mut text = self.blob_text(header, payload)?;
        if let Some(credit) = credit {
            text += &format!(" credited={}", word(credit, 0));
        }
        self.session_line(header, &text);
        Ok(())
    }

    fn blob(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<(), Violation> {
        self.not_in_fragments(header)?;
        let text = self.blob_text(header, payload)?;
        self.line(header, &text);
        Ok(())
    }

    fn blob_text(&self, header: &RecordHeader, payload: &[u8]) -> Result<String, Violation> {
        let body = blob_body(header, payload)?;
        let number = body.segment.get();
        let Some((_, size)) = self.segments.iter().find(|known| known.0 == number) else {
            return Err(bad(header, "segment", number.into()));
        };
        let (offset, length) = (body.offset.get(), body.length.get());
        if offset.checked_add(length).is_none_or(|end| end > *size) {
            return Err(bad(header, "offset", offset));
        }
        let block = body.block.get();
        Ok(format!("block={block} segment={number} offset={offset} length={length}"))
    }

    fn fragment(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<(), Violation> {
        let refuse = |what| Err(Violation::Fragment { position: header.position.0, what });
        let (total, got) = match (header.kind, self.fragments) {
            (Kind::FragmentFirst, None) => {
                let Some((total, bytes)) = payload.split_first_chunk() else {
                    return Err(bad(header, "length", header.len.into()));
                };
                let total = u64::from_le_bytes(*total);
                message_length(total)?;
                (total, bytes.len() as u64)
            }
            (Kind::FragmentFirst, Some(_)) => return refuse("begins within another message"),
            (_, None) => return refuse("has no beginning"),
            (_, Some((total, got))) => (total, got + u64::from(header.len)),
        };
        if header.kind == Kind::FragmentAbort {
            empty(header)?;
        } else if got > total || (header.kind == Kind::FragmentLast && got < total) {
            return refuse("has the wrong total length");
        }
        let is_open = matches!(header.kind, Kind::FragmentFirst | Kind::FragmentMid);
        self.fragments = is_open.then_some((total, got));
        self.line(header, &format!("{got}/{total}"));
        Ok(())
    }

    fn segment(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<(), Violation> {
        let body = segment_body(header, payload)?;
        let (number, size) = (body.number.get(), body.size.get());
        if number <= self.segment_last {
            return Err(bad(header, "segment", number.into()));
        }
        if size == 0 || size % GRAIN_BYTES != 0 {
            return Err(bad(header, "size", size));
        }
        let mapped: u64 = self.segments[1..].iter().map(|known| known.1).sum();
        let wanted = (REGION_BYTES + mapped).saturating_add(size);
        if wanted > MAP_MAX || self.segments.len() > SEGMENTS_MAX {
            return Err(Violation::Memory { wanted, max: MAP_MAX });
        }
        if !DESCRIPTORS.contains(&number) {
            return Err(Violation::SegmentMissing { number });
        }
        self.segment_last = number;
        self.segments.push((number, size));
        self.line(header, &format!("number={number} size={size}"));
        Ok(())
    }

    fn retire(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<(), Violation> {
        let body = segment_body(header, payload)?;
        let (number, size) = (body.number.get(), body.size.get());
        let known = self.segments.iter().position(|known| *known == (number, size));
        match known {
            Some(index) if index > 0 => self.segments.remove(index),
            _ => return Err(bad(header, "segment", number.into())),
        };
        self.line(header, &format!("number={number} size={size}"));
        Ok(())
    }

    fn not_in_fragments(&self, header: &RecordHeader) -> Result<(), Violation> {
        if self.fragments.is_none() {
            return Ok(());
        }
        let what = "is not followed by the rest of its message";
        Err(Violation::Fragment { position: header.position.0, what })
    }
}

fn blob_body(header: &RecordHeader, payload: &[u8]) -> Result<BlobBody, Violation> {
    let Ok(body) = BlobBody::read_from_bytes(payload) else {
        return Err(bad(header, "length", header.len.into()));
    };
    message_length(body.length.get())?;
    Ok(body)
}

fn segment_body(header: &RecordHeader, payload: &[u8]) -> Result<SegmentBody, Violation> {
    SegmentBody::read_from_bytes(payload).map_err(|_| bad(header, "length", header.len.into()))
}

fn empty(header: &RecordHeader) -> Result<(), Violation> {
    if header.len == 0 { Ok(()) } else { Err(bad(header, "length", header.len.into())) }
}

fn message_length(len: u64) -> Result<(), Violation> {
    if len <= MESSAGE_MAX {
        return Ok(());
    }
    Err(Violation::MessageLength { len, max: MESSAGE_MAX })
}

pub(super) fn bad(header: &RecordHeader, what: &'static str, found: u64) -> Violation {
    Violation::Body { position: header.position.0, what, found }
}

pub(super) fn unexpected(header: &RecordHeader) -> Violation {
    Violation::Unexpected { position: header.position.0, kind: header.kind as u8 }
}

/// Returns the text that stands for a payload in the printed line: a short text as it is, any other
/// payload as its length and the sum of its bytes.
pub(super) fn text_or_sum(payload: &[u8]) -> String {
    let is_text = payload.len() <= 16 && payload.iter().all(u8::is_ascii_graphic);
    if is_text {
        return format!("{:?}", String::from_utf8_lossy(payload));
    }
    let sum: u64 = payload.iter().map(|byte| u64::from(*byte)).sum();
    format!("len={} sum={sum}", payload.len())
}

pub(super) fn word(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}
