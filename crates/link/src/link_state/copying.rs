// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the neighbour's memory, copied and then judged (SPEC 14.3, 16.4).
//!
//! ```text
//!   header ─ check ─▶ BARE, short ─▶ into the log, with the tag where the crc stands: sealed like that ─▶ crc
//!                  ├▶ short       ─▶ into the log                                                      ─▶ LinkRecord::check
//!                  ├▶ long        ─▶ memory of its own                                                 ─▶ as above
//!                  └▶ BLOB        ─▶ the record, then its bytes out of the slab                        ─▶ blob_crc
//! ```
//!
//! The first way is that of nearly all messages where two processes are in step, and is written out for that; a BARE record that is not
//! sound goes the second one, which says what is wrong.
//!
//! # Invariants
//!
//! - What is judged is the copy, and nothing of a record is used that was not judged.

use bytes::Bytes;
use partywall_layout::link::compact;
use partywall_layout::link::record::{self, Ack, Body, LinkRecord};
use partywall_layout::record_ring;
use partywall_layout::record_ring::Kind;
use partywall_reconcile::{Position, RecordDigest, StreamId};

use super::arriving::{HEADER, Violation, as_usize, violation};
use super::conn::End;
use super::inbox::{Arrived, Stored};
use super::log::{Entry, LOGGED_MAX, Log};
use super::shm::SharedMemory;

/// What lay there.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) ack: Ack,
    pub(super) footprint: u64,
    /// `None`: a PAD.
    pub(super) message: Option<Arrived>,
}

/// A BARE record whose message is in the log.
#[derive(Clone, Copy)]
pub(super) struct ShortCompact {
    pub(super) end: Position,
    pub(super) footprint: u64,
    pub(super) digest: RecordDigest,
    /// The message.
    pub(super) entry: Entry,
}

impl SharedMemory {
    /// The short BARE record that begins with these words, copied into the log, if that is sound. `None`: the log is as it was, and
    /// [`copy`](Self::copy) says what is there, or is wrong with it.
    #[inline(always)]
    pub(super) fn take_short_compact(
        &self,
        at: Position,
        stream: StreamId,
        words: (u64, u64),
        log: &mut Log,
    ) -> Option<ShortCompact> {
        let (position, size) = (record_ring::Position(at.0), self.peer_memory.ring_size);
        let (len, crc) = compact::short_header(position, size, words, LOGGED_MAX)?;
        let footprint = record_ring::footprint(u64::from(len));
        let end = at.plus(footprint)?;
        let (from, room) = (log.end(), log.room());
        let head = compact::sealed_words(position, record::tag(stream.0.get()), len);
        self.peer_memory.ring.copy_headed_onto(head, self.offset(at) + HEADER, len as usize, room);
        let sealed = log.since(from);
        if compact::crc_of(log.get(sealed)) != crc || !self.is_still(stream) {
            log.cut(from);
            return None;
        }
        Some(ShortCompact {
            end,
            footprint,
            digest: RecordDigest(crc),
            entry: sealed.behind(HEADER),
        })
    }

    /// The record that begins with these words. If it is none, or is not kept for another reason, the caller cuts the log.
    pub(super) fn copy(
        &self,
        at: Position,
        tag: u32,
        (first, second): (u64, u64),
        log: &mut Log,
    ) -> Result<Pulled, End> {
        let (position, offset) = (record_ring::Position(at.0), self.offset(at));
        let (ring, size) = (&self.peer_memory.ring, self.peer_memory.ring_size);
        let checked = LinkRecord::check_header(position, tag, size, first, second);
        let header = checked.map_err(violation)?.ok_or_else(nothing)?;
        // A PAD is its header. Any other lies within the ring, as was checked.
        let is_pad = header.kind == Kind::Pad;
        let len = HEADER + if is_pad { 0 } else { header.len as usize };
        let mut words = [0; HEADER];
        words[..8].copy_from_slice(&first.to_le_bytes());
        words[8..].copy_from_slice(&second.to_le_bytes());
        let fill = |room: &mut Vec<u8>| {
            room.extend_from_slice(&words);
            ring.copy_onto(offset + HEADER, len - HEADER, room);
        };
        let judge = |bytes: &[u8]| {
            let checked = LinkRecord::check(position, tag, size, bytes);
            let record = checked.map_err(violation)?.ok_or_else(nothing)?;
            Ok(Judged::of(&record))
        };
        let (stored, judged) = if len <= LOGGED_MAX as usize {
            let end = log.end();
            let entry = log.append(fill);
            let judged = judge(log.get(entry))?;
            if !matches!(judged.place, Lies::Here(_)) {
                log.cut(end);
            }
            (Stored::Logged(entry), judged)
        } else {
            let mut room = Vec::with_capacity(len);
            fill(&mut room);
            let judged = judge(&room)?;
            (Stored::Own(Bytes::from(room)), judged)
        };
        let Judged { ack, digest, place } = judged;
        let (bytes, in_slab) = match place {
            Lies::Nowhere => {
                return Ok(Pulled { ack, footprint: header.footprint(), message: None });
            }
            Lies::Here(prefix) => (stored.behind(prefix), false),
            Lies::InSlab { offset, length, crc } => {
                (Stored::Own(self.blob(at, offset, length, crc)?), true)
            }
        };
        let message = Arrived {
            start: at,
            end: end_of(at, header.footprint())?,
            digest: RecordDigest(digest),
            bytes,
            in_slab,
        };
        Ok(Pulled { ack, footprint: header.footprint(), message: Some(message) })
    }

    fn blob(&self, at: Position, offset: u64, length: u64, crc: u32) -> Result<Bytes, End> {
        let slab = &self.peer_memory.slab;
        let range = slab.range(offset, length).ok_or_else(|| violation(Violation::Overfull))?;
        let mut bytes = Vec::with_capacity(range.len());
        slab.copy_onto(range.start, range.len(), &mut bytes);
        if record::blob_crc(&bytes) != crc {
            return Err(violation(Violation::BlobCrc(at.0)));
        }
        Ok(bytes.into())
    }
}

/// Where the record behind begins.
#[inline]
pub(super) fn end_of(at: Position, footprint: u64) -> Result<Position, End> {
    at.plus(footprint).ok_or_else(|| violation(Violation::OutOfOrder(at.0)))
}

#[cold]
fn nothing() -> End {
    violation(Violation::OutOfPlace("nothing"))
}

/// What is left of a record that is whole, without its bytes.
#[derive(Clone, Copy)]
struct Judged {
    ack: Ack,
    digest: u32,
    place: Lies,
}

/// Where the message of a record lies.
#[derive(Clone, Copy)]
enum Lies {
    /// In the record, behind so many bytes.
    Here(usize),
    InSlab {
        offset: u64,
        length: u64,
        crc: u32,
    },
    /// There is none.
    Nowhere,
}

impl Judged {
    #[inline]
    fn of(record: &LinkRecord<'_>) -> Self {
        let place = match record.body {
            Body::Pad => Lies::Nowhere,
            Body::Message(_) => Lies::Here(as_usize(record::body_offset(record.header.kind))),
            Body::Blob { offset, length, crc } => Lies::InSlab { offset, length, crc },
        };
        Self { ack: record.ack, digest: record.digest, place }
    }
}
