// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of a connection: frames, and records with what follows them.
//!
//! ```text
//!   word0 bit 0 clear   control frame    header, body
//!   word0 bit 0 set     record           header, payload (prefix, message)            [ bytes of the slab, if a BLOB ]
//!                       BARE             header, message
//!                       PAD              header
//! ```
//!
//! Nothing is taken before it is whole; nothing is believed before it is checked.

use bytes::{Buf, BytesMut};
use partywall_layout::link::record::{self, Ack, Body, LinkRecord, RecordFault};
use partywall_layout::record_ring::{self, HEADER_BYTES, Kind, RingSize};
use partywall_layout::seeded_fault;
use partywall_reconcile::{Arrival, Position, RecordDigest, StreamId};

use super::LinkState;
use super::attach::Heard;
use super::conn::{Conn, End};
use super::inbox::{Arrived, Stored};
use super::log::LOGGED_MAX;
use crate::protocol::codec::{self, FrameFault};
use crate::protocol::frame::Frame;

/// What the neighbour did that no honest one does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A control frame cannot be read.
    #[error("a frame cannot be read: {0}")]
    Frame(#[from] FrameFault),
    /// A record is not what it says.
    #[error("a record cannot be: {0}")]
    Record(#[from] RecordFault),
    /// The bytes of a BLOB are not what was sent.
    #[error("the message whose record is at position {0} has another checksum")]
    BlobCrc(u64),
    /// A record leaves out others, or overlaps them.
    #[error("a record at position {0} is not the next one")]
    OutOfOrder(u64),
    /// It consumed what was never sent.
    #[error("it acknowledged position {0}, which was never sent")]
    AckBeyondTail(u64),
    /// More is under way than it said there could be.
    #[error("more lies here unread than its ring and slab hold")]
    Overfull,
    /// Its decision does not follow from the views.
    #[error("its decision does not follow from what both sides said")]
    Decision,
    /// A frame in a place where none of its kind may be.
    #[error("{0} is out of place")]
    OutOfPlace(&'static str),
}

/// What became of the bytes that had arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// The connection became the present one.
    pub(crate) activated: bool,
    /// There are new messages, or room.
    pub(crate) news: bool,
    /// So many bytes are needed for what lies there in part.
    pub(crate) needed: usize,
}

impl LinkState {
    /// [`receive_into`](Self::receive_into), for whom what came before the end is no news.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn receive(
        &mut self,
        conn: &mut Conn,
        input: &mut BytesMut,
    ) -> Result<Received, End> {
        let mut received = Received::default();
        self.receive_into(conn, input, &mut received).map(|()| received)
    }

    /// Takes all that is whole from `input`, and adds to `received` what became of it.
    ///
    /// # Errors
    /// The connection is over: what is in it may still be sent, then it is to be closed. Anything that it had brought is kept, and
    /// in `received`.
    pub(crate) fn receive_into(
        &mut self,
        conn: &mut Conn,
        input: &mut BytesMut,
        received: &mut Received,
    ) -> Result<(), End> {
        received.needed = 0;
        while !conn.is_over() {
            match self.receive_one(conn, input, received) {
                Ok(true) => {}
                Ok(false) => break,
                Err(end) => {
                    return Err(self.over(conn, end));
                }
            }
        }
        Ok(())
    }

    /// The connection broke off, or is to be closed.
    pub(crate) fn ended(&mut self, conn: &mut Conn, end: End) {
        self.over(conn, end);
    }

    pub(crate) fn over(&mut self, conn: &mut Conn, end: End) -> End {
        if matches!(end, End::Left | End::Broken(_)) {
            // Whatever lies whole in its memory was sent, and what is marked there was consumed.
            self.drain(conn.id());
            if self.life.active == Some(conn.id()) {
                self.hear_consumed();
            }
        }
        let end = conn.end(end);
        if end == End::Left && self.life.active == Some(conn.id()) {
            self.life.finished_at = Some((self.inbox.stream(), self.inbox.received()));
        }
        self.life.end(conn.id(), &end);
        if self.life.active.is_none() {
            self.shm = None;
        }
        end
    }

    /// One frame or record; `false` if there is none that is whole.
    fn receive_one(
        &mut self,
        conn: &mut Conn,
        input: &mut BytesMut,
        received: &mut Received,
    ) -> Result<bool, End> {
        let Some((first, _)) = header_words(input) else {
            received.needed = HEADER;
            return Ok(false);
        };
        if first & COMMITTED != 0 {
            return self.receive_record(conn, input, received, first);
        }
        let whole = codec::whole_bytes(input).map_err(violation)?;
        if input.len() < whole {
            received.needed = whole;
            return Ok(false);
        }
        let frame = codec::read(&input.split_to(whole)).map_err(violation)?;
        let heard = self.heard(conn, frame)?;
        received.activated |= matches!(heard, Heard::Active);
        received.news = true;
        Ok(true)
    }

    fn heard(&mut self, conn: &mut Conn, frame: Frame) -> Result<Heard, End> {
        match frame {
            Frame::Attached { attach, echo, decision, login } => {
                let heard = self.answered(conn, &attach, echo, decision)?;
                self.life.login = login;
                Ok(heard)
            }
            Frame::Share => self.shared(conn),
            Frame::Confirm { echo, decision, tail } => self.confirmed(conn, echo, decision, tail),
            Frame::Refuse { echo, refusal } => Err(self.refused(conn, echo, refusal)),
            Frame::Attach { .. } => Err(violation(Violation::OutOfPlace("ATTACH"))),
            Frame::Leave if conn.is_active() => Err(End::Left),
            Frame::Leave => Err(violation(Violation::OutOfPlace("LEAVE"))),
            // Only the present connection moves anything.
            _ if self.life.active != Some(conn.id()) => Err(End::Replaced),
            Frame::Begin { stream, consumed, tail } => self.begun(stream, consumed, tail),
            Frame::Ack { stream, consumed } => {
                self.hear_ack(stream, consumed)?;
                Ok(Heard::Nothing)
            }
        }
    }

    fn receive_record(
        &mut self,
        conn: &Conn,
        input: &mut BytesMut,
        received: &mut Received,
        first: u64,
    ) -> Result<bool, End> {
        let (Some(window), true) = (conn.window, conn.is_active() && !conn.is_shared) else {
            return Err(violation(Violation::OutOfPlace("a record")));
        };
        if self.life.active != Some(conn.id()) {
            // Only the present connection moves anything.
            return Err(End::Replaced);
        }
        let at = record_ring::Position(first & !POSITION_LOW);
        let size = RingSize::new(window.ring_bytes);
        let (Some(size), Some(stream)) = (size, self.inbox.stream()) else {
            return Err(violation(Violation::OutOfPlace("a record")));
        };
        let tag = record::tag(stream.0.get());
        let checked = match LinkRecord::check(at, tag, size, input) {
            Err(RecordFault::Cut) => {
                received.needed = needed(input);
                return Ok(false);
            }
            Err(fault) => return Err(violation(fault)),
            // Bit 0 is set: there is something.
            Ok(None) => return Err(violation(Violation::OutOfPlace("nothing"))),
            Ok(Some(checked)) => checked,
        };
        let record = as_usize(checked.wire_bytes());
        let (slab, crc) = match checked.body {
            Body::Blob { length, .. } if length > window.slab_bytes => {
                return Err(violation(Violation::Overfull));
            }
            Body::Blob { length, crc, .. } => (as_usize(length), Some(crc)),
            _ => (0, None),
        };
        if input.len() < record + slab {
            received.needed = record + slab;
            return Ok(false);
        }
        if crc.is_some_and(|crc| crc != record::blob_crc(&input[record..record + slab])) {
            return Err(violation(Violation::BlobCrc(at.0)));
        }
        let (header, digest, ack) = (checked.header, checked.digest, checked.ack);
        let arrived = self.inbox.arrive(Position(at.0), header.footprint());
        let arrived = arrived.map_err(|_| violation(Violation::OutOfOrder(at.0)))?;
        let is_known = arrived == Arrival::Known && !seeded_fault("link_known_taken_again");
        if header.kind == Kind::Pad || is_known {
            input.advance(record + slab);
            return Ok(true);
        }
        let end = self.inbox.log().end();
        let message = Arrived {
            start: Position(at.0),
            end: Position(at.0 + header.footprint()),
            digest: RecordDigest(digest),
            bytes: self.store(input, header.kind, record, slab),
            in_slab: slab > 0,
        };
        if self.inbox.keep(message, &window).is_err() {
            // As one that is pulled.
            self.inbox.log().cut(end);
            return Err(violation(Violation::Overfull));
        }
        received.news = true;
        self.hear_record(at.0, ack)?;
        Ok(true)
    }

    /// Takes a record and what follows it out of `input`, and keeps its message.
    fn store(&mut self, input: &mut BytesMut, kind: Kind, record: usize, slab: usize) -> Stored {
        let whole = record + slab;
        let before = if slab > 0 { record } else { as_usize(record::body_offset(kind)) };
        // What lay in the slab is counted by the length of its own bytes.
        if whole <= LOGGED_MAX as usize && slab == 0 {
            let entry = self.inbox.log().append(|room| {
                room.extend_from_slice(&input[before..whole]);
            });
            input.advance(whole);
            return Stored::Logged(entry);
        }
        let mut bytes = input.split_to(whole);
        bytes.advance(before);
        Stored::Own(bytes.freeze())
    }

    /// What a record says of the other direction.
    #[inline]
    pub(super) fn hear_record(&mut self, at: u64, ack: Ack) -> Result<(), End> {
        let stream = self.retained.stream();
        let speaks_of_it = ack.tag == record::tag(stream.0.get());
        if speaks_of_it && self.life.acks_from.is_some_and(|from| at >= from.0) {
            return self.hear_ack(stream, Position(ack.position));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn hear_ack(&mut self, stream: StreamId, position: Position) -> Result<(), End> {
        if stream != self.retained.stream() {
            // From before an epoch or a loss.
            return Ok(());
        }
        let heard = self.retained.acknowledged(position);
        heard.map_err(|_| violation(Violation::AckBeyondTail(position.0)))
    }
}

pub(super) fn violation(violation: impl Into<Violation>) -> End {
    End::Violation(violation.into())
}

fn header_words(input: &[u8]) -> Option<(u64, u64)> {
    let (first, rest) = input.split_first_chunk::<8>()?;
    let (second, _) = rest.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*first), u64::from_le_bytes(*second)))
}

/// How many bytes the record has that begins in `input`, as far as can be told.
fn needed(input: &[u8]) -> usize {
    let len = header_words(input).map_or(0, |(_, second)| second & 0xffff_ffff);
    HEADER + as_usize(len)
}

pub(super) fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "16")]
pub(super) const HEADER: usize = HEADER_BYTES as usize;
/// Set in the first word of every record, and of no frame.
const COMMITTED: u64 = 1;
/// The bits of `word0` that are not of the position.
const POSITION_LOW: u64 = 63;
