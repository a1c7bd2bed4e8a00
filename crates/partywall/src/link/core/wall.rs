// SPDX-License-Identifier: MIT OR Apache-2.0
//! The neighbour's memory as the present connection reads it (SPEC 16).
//!
//! ```text
//!   ring     word0 ─ load once ─▶ header ─ check ─▶ copy ─ check ─▶ still that stream? ─▶ Pulled
//!   slab                          of a BLOB: copy ─ blob_crc ┘
//!   control  consumed: news? ─▶ the two slots ─ sealed, of our stream? ─▶ position
//!            asleep_records, asleep_room ─▶ ring the bell?
//! ```
//!
//! It decides nothing, writes nothing, and does not wait.
//!
//! # Invariants
//!
//! - Every word is loaded once, and checked before it is used; every payload is copied before it is judged.
//! - Whatever lies there, what comes out is a record that its sender wrote, nothing, or the end of the connection.

use bytes::{Buf, Bytes, BytesMut};
use partywall_layout::link::record::{self, Ack, Body, LinkRecord};
use partywall_layout::link::{SENDING_STREAM, consumed};
use partywall_layout::record::Kind;
use partywall_layout::ring;
use partywall_layout::segment::{ASLEEP_RECORDS, ASLEEP_ROOM, CONSUMED, LINE_BYTES};
use partywall_reconcile::{Position, Proof, StreamId};
use partywall_ring::{Wake, Waker};

use super::arriving::{HEADER, Violation, as_usize, violation};
use super::conn::{ConnId, End};
use super::inbox::Arrived;
use crate::link::protocol::frame::Window;
use crate::link::shown::Neighbour;

/// See the module.
#[derive(Debug)]
pub(super) struct Wall {
    pub(super) conn: ConnId,
    /// The most the neighbour may have under way.
    pub(super) window: Window,
    /// A violation that was found where none could be told.
    pub(super) fault: Option<End>,
    /// Up to here the neighbour's sleeper was looked at after records of ours.
    pub(super) rung_tail: Position,
    /// Up to here after we had consumed.
    pub(super) rung_consumed: Position,
    neighbour: Neighbour,
    records: Waker,
    room: Waker,
    /// What the word `consumed` said when the slots were last read.
    seen: Option<u64>,
    room_for: Chunk,
}

/// Where messages are copied to: short ones side by side, so that few of them need an allocation.
#[derive(Debug, Default)]
struct Chunk(BytesMut);

impl Chunk {
    /// So many bytes, of which the values mean nothing; `None` if they are to have an allocation of their own.
    fn take(&mut self, len: usize) -> Option<BytesMut> {
        if len > SIDE_BY_SIDE_MAX {
            return None;
        }
        if self.0.capacity() < len {
            // The same memory again, if all that was in it is gone.
            self.0.reserve(CHUNK_BYTES);
        }
        self.0.resize(len, 0);
        Some(self.0.split())
    }
}

/// What lay there.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) at: Position,
    pub(super) footprint: u64,
    pub(super) ack: Ack,
    /// `None`: a PAD.
    pub(super) message: Option<Arrived>,
}

impl Wall {
    pub(super) fn new(conn: ConnId, neighbour: Neighbour, window: Window) -> Self {
        let records = Waker::new(neighbour.control.clone(), as_usize(ASLEEP_RECORDS));
        let room = Waker::new(neighbour.control.clone(), as_usize(ASLEEP_ROOM));
        let (rung_tail, rung_consumed) = (Position::START, Position::START);
        Self {
            conn,
            window,
            fault: None,
            rung_tail,
            rung_consumed,
            neighbour,
            records,
            room,
            seen: None,
            room_for: Chunk::default(),
        }
    }

    /// Whether there is something to be told at `at`: a record, or that there will be none.
    pub(super) fn is_ready(&self, at: Position) -> bool {
        self.fault.is_some()
            || self.neighbour.ring.peek(self.offset(at)) != 0
            || self.neighbour.is_damaged()
    }

    /// Whether the neighbour was seen to sleep for room.
    pub(super) fn is_room_awaited(&self) -> bool {
        self.neighbour.control.peek(as_usize(ASLEEP_ROOM)) != 0
    }

    /// The record of `stream` that begins at `at`, if it was published.
    pub(super) fn read(&mut self, at: Position, stream: StreamId) -> Result<Option<Pulled>, End> {
        let offset = self.offset(at);
        let first = self.neighbour.ring.load(offset);
        if first == 0 {
            return self.is_whole().map(|()| None);
        }
        let judged = self.copy(at, stream, first);
        // ORDER: the acquire fence in `load` keeps the copies before the look at the stream: a copy that holds a byte of
        // another stream is followed by a look that finds its name (SPEC 16.4).
        let _ = self.neighbour.ring.load(offset);
        if self.neighbour.control.peek(as_usize(SENDING_STREAM)) != stream.0.get() {
            self.is_whole()?;
            return Err(End::Moved);
        }
        self.is_whole()?;
        judged.map(Some)
    }

    /// Up to where the neighbour has consumed `stream`, if that may be news.
    pub(super) fn consumed(&mut self, stream: StreamId) -> Option<Position> {
        let control = &self.neighbour.control;
        let word = control.load(as_usize(CONSUMED));
        if self.seen == Some(word) {
            return None;
        }
        for _ in 0..LOOKS_MAX {
            let mut line = [0; LINE];
            control.copy(as_usize(CONSUMED), &mut line);
            // Damaged: it is just being written, and then told.
            if let Ok(record) = consumed::check(&line) {
                self.seen = Some(word);
                let is_ours = record.stream.get() == stream.0.get();
                return is_ours.then(|| Position(record.consumed.get()));
            }
        }
        None
    }

    /// Whether to ring, after records of ours were published up to `tail` and we consumed up to `consumed`.
    pub(super) fn rings(&mut self, tail: Position, consumed: Position) -> bool {
        let (has_records, has_room) = (self.rung_tail < tail, self.rung_consumed < consumed);
        (self.rung_tail, self.rung_consumed) = (tail, consumed);
        let [records, room] = match (has_records, has_room) {
            (false, false) => return false,
            (true, false) => [self.records.look(), Wake::No],
            (false, true) => [Wake::No, self.room.look()],
            // One fence is before both loads.
            (true, true) => [self.records.look(), self.room.look_early()],
        };
        records == Wake::Ring || room == Wake::Ring
    }

    fn copy(&mut self, at: Position, stream: StreamId, first: u64) -> Result<Pulled, End> {
        let (position, tag) = (ring::Position(at.0), record::tag(stream.0.get()));
        let offset = self.offset(at);
        let (ring, size) = (&self.neighbour.ring, self.neighbour.ring_size);
        let second = ring.peek(offset + 8);
        let nothing = || violation(Violation::OutOfPlace("nothing"));
        let checked = LinkRecord::check_header(position, tag, size, first, second);
        let header = checked.map_err(violation)?.ok_or_else(nothing)?;
        // A PAD is its header. Any other lies within the ring, as was checked.
        let is_pad = header.kind == Kind::Pad;
        let len = HEADER + if is_pad { 0 } else { header.len as usize };
        let mut words = [0; HEADER];
        words[..8].copy_from_slice(&first.to_le_bytes());
        words[8..].copy_from_slice(&second.to_le_bytes());
        let mut bytes = if let Some(mut room) = self.room_for.take(len) {
            room[..HEADER].copy_from_slice(&words);
            ring.copy(offset + HEADER, &mut room[HEADER..]);
            room.freeze()
        } else {
            let mut room = Vec::with_capacity(len);
            room.extend_from_slice(&words);
            ring.copy_onto(offset + HEADER, len - HEADER, &mut room);
            Bytes::from(room)
        };
        let checked = LinkRecord::check(position, tag, size, &bytes);
        let record = checked.map_err(violation)?.ok_or_else(nothing)?;
        let (footprint, ack, proof) = (header.footprint(), record.ack, record.proof);
        let (message, in_slab) = match record.body {
            Body::Pad => return Ok(Pulled { at, footprint, ack, message: None }),
            Body::Message(_) => {
                bytes.advance(as_usize(record::body_offset(header.kind)));
                (bytes, false)
            }
            Body::Blob { offset, length, crc } => (self.blob(at, offset, length, crc)?, true),
        };
        let end = at.plus(footprint).ok_or_else(|| violation(Violation::OutOfOrder(at.0)))?;
        let message = Arrived { start: at, end, proof: Proof(proof), bytes: message, in_slab };
        Ok(Pulled { at, footprint, ack, message: Some(message) })
    }

    fn blob(&self, at: Position, offset: u64, length: u64, crc: u32) -> Result<Bytes, End> {
        let slab = &self.neighbour.slab;
        let range = slab.range(offset, length).ok_or_else(|| violation(Violation::Overfull))?;
        let mut bytes = Vec::with_capacity(range.len());
        slab.copy_onto(range.start, range.len(), &mut bytes);
        if record::blob_crc(&bytes) != crc {
            return Err(violation(Violation::BlobCrc(at.0)));
        }
        Ok(bytes.into())
    }

    fn is_whole(&self) -> Result<(), End> {
        if self.neighbour.is_damaged() {
            return Err(End::Broken("the peer's file was truncated".to_owned()));
        }
        Ok(())
    }

    fn offset(&self, at: Position) -> usize {
        as_usize(self.neighbour.ring_size.offset(ring::Position(at.0)))
    }
}

/// As long as one message of these is kept, so much memory is.
const CHUNK_BYTES: usize = 16 << 10;
/// Beyond this, giving the room values before costs more than an allocation.
const SIDE_BY_SIDE_MAX: usize = 1 << 10;
#[expect(clippy::cast_possible_truncation, reason = "128")]
const LINE: usize = LINE_BYTES as usize;
/// So often slots are read that are just being written; whoever writes them rings afterwards.
const LOOKS_MAX: u32 = 4;
