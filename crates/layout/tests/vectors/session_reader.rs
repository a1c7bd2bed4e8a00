// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader of session images: the receiving rules of SPEC 11 for one direction, applied to plain
//! bytes.
//!
//! The reader plays the acceptor that SPEC 10 describes. Its application has opened stream 2 and
//! sent one message of cost 128 on that stream. The application accepts every stream of the peer,
//! and receives no message. So the acceptor itself writes no record on which the reader's rules
//! depend.

use super::reader::{SOCKET_PAYLOAD_MAX, bad, text_or_sum, unexpected, word};
use partywall_layout::record_ring::footprint;
use partywall_layout::stream::{
    CreditBody, GoAwayBody, OpenHead, PingBody, RECEIVING, ResetBody, SENDING, index,
};
use partywall_layout::{BlobBody, Kind, Position, RecordHeader, RingSize, Violation};
use std::collections::BTreeMap;
use zerocopy::FromBytes;

/// The longest message, in bytes, that the reader of session images accepts.
const MESSAGE_MAX: u64 = 1 << 20;
/// The credit in bytes that the sender of each stream has when the stream is opened.
const WINDOW: u64 = 1000;
/// Maximum number of streams of the peer that the reader of session images allows at the same time.
const STREAMS_MAX: u32 = 4;
/// The number of the stream that the reader's own application has opened, and the cost of the
/// message that the application has sent on that stream.
const OWN: (u32, u64) = (2, 128);

/// Reads the records of a session from the bytes that the peer sent on a socket. Returns one line
/// that states their content.
pub fn socket(stream: &[u8]) -> Result<String, Violation> {
    let mut session = Session::new();
    let mut position = Position(0);
    let mut rest = stream;
    while let Some((first, behind)) = rest.split_first_chunk::<16>() {
        let header = RecordHeader::check_words(position, word(first, 0), word(first, 8), false)?;
        if header.len > SOCKET_PAYLOAD_MAX {
            let max = SOCKET_PAYLOAD_MAX.into();
            return Err(Violation::RecordLength { position: position.0, len: header.len, max });
        }
        let Some((payload, behind)) = behind.split_at_checked(header.len as usize) else { break };
        rest = behind;
        if header.kind == Kind::Blob {
            let body = BlobBody::read_from_bytes(payload);
            let body = body.map_err(|_| bad(&header, "length", header.len.into()))?;
            let length = body.length.get();
            session.message(&header, length)?;
            let (message, behind) = rest.split_at(usize::try_from(length).unwrap());
            rest = behind;
            session.line(&header, &text_or_sum(message));
        } else {
            session.record(&header, payload)?;
        }
        position = position.plus(header.footprint());
    }
    Ok(session.lines.join("; "))
}

/// Reads the records of a session from a ring, up to the CLOSE_WRITE record that ends this
/// direction (SPEC 7.1). Returns one line that states their content.
pub fn ring(image: &[u8], from: u64) -> Result<String, Violation> {
    let size = RingSize::new(image.len() as u64).unwrap();
    let mut session = Session::new();
    let mut position = Position(from);
    while !session.is_over {
        let offset = usize::try_from(size.offset(position)).unwrap();
        let (first, second) = (word(image, offset), word(image, offset + 8));
        let Some(header) = RecordHeader::check(position, size, first, second)? else { break };
        let payload = &image[offset + 16..][..header.len as usize];
        session.record(&header, payload)?;
        position = position.plus(header.footprint());
    }
    Ok(session.lines.join("; "))
}

struct Stream {
    is_peers: bool,
    is_receiving: bool,
    is_sending: bool,
    /// Cost, in bytes of credit, of the messages that this side sent on the stream. The field
    /// `credited` says how much of that cost the peer has returned as credit.
    sent: u64,
    credited: u64,
    /// Cost, in bytes of credit, of the messages that arrived on the stream.
    arrived: u64,
    /// The message of the stream that arrives in fragments: its announced length, and its bytes
    /// received so far. `None` if no such message is unfinished.
    parts: Option<(u64, u64)>,
}

struct Session {
    lines: Vec<String>,
    streams: BTreeMap<u32, Stream>,
    is_over: bool,
}

impl Session {
    fn new() -> Self {
        let own = Stream { is_peers: false, sent: OWN.1, ..Stream::new() };
        Self { lines: Vec::new(), streams: BTreeMap::from([(OWN.0, own)]), is_over: false }
    }

    fn line(&mut self, header: &RecordHeader, text: &str) {
        let line =
            format!("{} {:?} stream={} {text}", header.position.0, header.kind, header.stream);
        self.lines.push(line.trim_end().to_owned());
    }

    fn record(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<(), Violation> {
        if self.is_over {
            return Err(unexpected(header));
        }
        let text = match (header.kind, header.stream) {
            (Kind::Data, _) => {
                self.message(header, header.len.into())?;
                text_or_sum(payload)
            }
            (Kind::CloseWrite, 0) => {
                empty(header)?;
                self.is_over = true;
                String::new()
            }
            (Kind::GoAway, 0) => {
                let (body, reason) = GoAwayBody::read(header, payload)?;
                let reason = String::from_utf8_lossy(reason);
                format!("code={} flags={} {reason:?}", body.code, body.flags)
            }
            (Kind::Ping, 0) => {
                let body = PingBody::read(header, payload)?;
                format!("answer={} token={}", body.answer, body.token)
            }
            (Kind::GoAway | Kind::Ping, _)
            | (Kind::Open | Kind::Reset | Kind::Credit | Kind::End, 0)
            | (Kind::Segment | Kind::SegmentRetire | Kind::Pad | Kind::CompactRecord, _) => {
                return Err(unexpected(header));
            }
            (Kind::Open, _) => self.open(header, payload)?,
            (Kind::End, _) => self.end(header)?,
            _ => self.of_stream(header, payload)?,
        };
        self.line(header, &text);
        Ok(())
    }

    fn open(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<String, Violation> {
        let (at, by_acceptor) = index(header.stream).unwrap();
        if by_acceptor || at >= STREAMS_MAX || self.streams.contains_key(&header.stream) {
            return Err(wrong(header, "cannot be opened"));
        }
        OpenHead::metadata_len(header)?;
        let (head, metadata) = OpenHead::read_from_prefix(payload).unwrap();
        self.streams.insert(header.stream, Stream::new());
        Ok(format!("content={} {}", head.content, text_or_sum(metadata)))
    }

    fn end(&mut self, header: &RecordHeader) -> Result<String, Violation> {
        let stream = self.stream(header)?;
        let is_over = !stream.is_peers && !stream.is_receiving && !stream.is_sending;
        empty(header)?;
        if !is_over {
            return Err(wrong(header, "cannot end"));
        }
        self.streams.remove(&header.stream);
        Ok(String::new())
    }

    /// Handles a message of `length` bytes on the stream of `header`: the whole message, or the
    /// first of its fragments.
    fn message(&mut self, header: &RecordHeader, length: u64) -> Result<(), Violation> {
        let stream = self.stream(header)?;
        if !stream.is_receiving || stream.parts.is_some() {
            return Err(wrong(header, "takes no message"));
        }
        if length > MESSAGE_MAX {
            return Err(Violation::MessageLength { len: length, max: MESSAGE_MAX });
        }
        let cost = footprint(length);
        if stream.arrived + cost > WINDOW && stream.arrived > WINDOW / 2 {
            let found = stream.arrived + cost;
            return Err(Violation::Credit { stream: header.stream, found, max: WINDOW });
        }
        stream.arrived += cost;
        Ok(())
    }

    fn of_stream(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<String, Violation> {
        match header.kind {
            Kind::CloseWrite => {
                empty(header)?;
                self.stop_receiving(header)?;
                Ok(String::new())
            }
            Kind::Reset => {
                self.stream(header)?;
                let body = ResetBody::read(header, payload)?;
                if body.directions.get() & SENDING != 0 {
                    self.stop_receiving(header)?;
                }
                if body.directions.get() & RECEIVING != 0 {
                    self.stream(header)?.is_sending = false;
                }
                Ok(format!("code={} directions={}", body.code, body.directions))
            }
            Kind::Credit => {
                let stream = self.stream(header)?;
                let credited = CreditBody::read(header, payload)?.credited.get();
                if !stream.is_sending {
                    return Err(wrong(header, "is credited after it was stopped"));
                }
                if !(stream.credited..=stream.sent).contains(&credited) {
                    let (found, max) = (credited, stream.sent);
                    return Err(Violation::Credit { stream: header.stream, found, max });
                }
                stream.credited = credited;
                Ok(format!("credited={credited}"))
            }
            _ => self.part(header, payload),
        }
    }

    fn part(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<String, Violation> {
        let position = header.position.0;
        let bad_part = |what| Violation::Fragment { position, what };
        if header.kind == Kind::FragmentFirst {
            if self.stream(header)?.parts.is_some() {
                return Err(bad_part("begins a message within another"));
            }
            let Some((total, bytes)) = payload.split_first_chunk::<8>() else {
                return Err(bad(header, "length of a first part", header.len.into()));
            };
            let (total, got) = (u64::from_le_bytes(*total), bytes.len() as u64);
            self.message(header, total)?;
            if got > total {
                return Err(bad_part("exceeds the announced length"));
            }
            self.stream(header)?.parts = Some((total, got));
            return Ok(format!("{got}/{total}"));
        }
        if header.kind == Kind::FragmentAbort {
            empty(header)?;
        }
        let stream = self.stream(header)?;
        if !stream.is_receiving {
            return Err(wrong(header, "takes no message"));
        }
        let (total, got) = stream.parts.ok_or_else(|| bad_part("continues no message"))?;
        let got = got + payload.len() as u64;
        let is_last = header.kind == Kind::FragmentLast;
        if got > total || (is_last && got < total) {
            return Err(bad_part("has another length than announced"));
        }
        stream.parts = (header.kind == Kind::FragmentMid).then_some((total, got));
        Ok(format!("{got}/{total}"))
    }

    fn stop_receiving(&mut self, header: &RecordHeader) -> Result<(), Violation> {
        let stream = self.stream(header)?;
        if !stream.is_receiving {
            return Err(wrong(header, "ends a direction twice"));
        }
        (stream.is_receiving, stream.parts) = (false, None);
        Ok(())
    }

    fn stream(&mut self, header: &RecordHeader) -> Result<&mut Stream, Violation> {
        self.streams.get_mut(&header.stream).ok_or_else(|| wrong(header, "is not open"))
    }
}

impl Stream {
    fn new() -> Self {
        Self {
            is_peers: true,
            is_receiving: true,
            is_sending: true,
            sent: 0,
            credited: 0,
            arrived: 0,
            parts: None,
        }
    }
}

fn wrong(header: &RecordHeader, what: &'static str) -> Violation {
    Violation::Stream { stream: header.stream, what }
}

fn empty(header: &RecordHeader) -> Result<(), Violation> {
    if header.len == 0 { Ok(()) } else { Err(bad(header, "length", header.len.into())) }
}
