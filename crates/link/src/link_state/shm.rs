// SPDX-License-Identifier: MIT OR Apache-2.0
//! The neighbour's memory as the present connection reads it (SPEC 16).
//!
//! ```text
//!   ring     word0 ─ load once ─▶ header ─ check ─▶ copy ─ check ─▶ still that stream? ─▶ Pulled
//!   slab                          of a BLOB: copy ─ blob_crc ┘
//!   control  consumed: news? ─▶ the two slots, the word ─ sealed, of our stream? ─▶ position
//!            asleep_records, asleep_room ─▶ ring the bell?
//! ```
//!
//! It decides nothing, writes nothing, and does not wait.
//!
//! # Invariants
//!
//! - Every word is loaded once, and checked before it is used; every payload is copied before it is judged.
//! - Whatever lies there, what comes out is a record that its sender wrote, nothing, or the end of the connection.

use partywall_layout::link::SENDING_STREAM;
use partywall_layout::record_ring::{self, SLOT_BYTES};
use partywall_layout::segment::{ASLEEP_RECORDS, ASLEEP_ROOM, CONSUMED};
use partywall_reconcile::{Position, StreamId};
use partywall_ring::{Wake, Waker};

use super::arriving::as_usize;
use super::conn::{ConnId, End};
use crate::protocol::frame::Window;
use crate::shown::PeerMemory;
use crate::store::slots::consumed_of;

/// See the module.
#[derive(Debug)]
pub(super) struct SharedMemory {
    pub(super) conn: ConnId,
    /// The most the neighbour may have under way.
    pub(super) window: Window,
    /// A violation that was found where none could be told.
    pub(super) fault: Option<End>,
    /// Up to here the neighbour's sleeper was looked at after records of ours.
    pub(super) notified_tail: Position,
    /// Up to here after we had consumed.
    pub(super) notified_consumed: Position,
    pub(super) peer_memory: PeerMemory,
    records: Waker,
    room: Waker,
    /// What the word `consumed` said when the slots were last read.
    seen: Option<u64>,
}

impl SharedMemory {
    pub(super) fn new(conn: ConnId, peer_memory: PeerMemory, window: Window) -> Self {
        let records = Waker::new(peer_memory.control.clone(), as_usize(ASLEEP_RECORDS));
        let room = Waker::new(peer_memory.control.clone(), as_usize(ASLEEP_ROOM));
        let (notified_tail, notified_consumed) = (Position::START, Position::START);
        Self {
            conn,
            window,
            fault: None,
            notified_tail,
            notified_consumed,
            peer_memory,
            records,
            room,
            seen: None,
        }
    }

    /// Whether there is something to be told at `at`: a record, or that there will be none.
    #[inline]
    pub(super) fn is_ready(&self, at: Position) -> bool {
        self.fault.is_some()
            || self.peer_memory.ring.peek(self.offset(at)) != 0
            || self.peer_memory.is_damaged()
    }

    /// Whether the neighbour was seen to sleep for room.
    #[inline]
    pub(super) fn is_room_awaited(&self) -> bool {
        self.peer_memory.control.peek(as_usize(ASLEEP_ROOM)) != 0
    }

    /// The first two words of the record that begins at `at`, if it was published and the file is [whole](Self::is_whole).
    #[inline(always)]
    pub(super) fn words(&self, at: Position) -> Option<(u64, u64)> {
        let words = self.peer_memory.ring.load_two(self.offset(at));
        (words.0 != 0).then_some(words)
    }

    /// Lets the processor fetch what lies a few records behind `at`. Only for who is behind: in step with the neighbour it would take away
    /// the lines that are being written.
    #[inline]
    pub(super) fn prefetch(&self, at: Position) {
        self.peer_memory.ring.prefetch(self.offset(Position(at.0.wrapping_add(AHEAD_BYTES))));
    }

    /// Whether what was copied before is of `stream`, and of a file that is whole.
    #[inline(always)]
    pub(super) fn is_still(&self, stream: StreamId) -> bool {
        // ORDER: the fence keeps the copies before the look at the stream: a copy that holds a byte of another stream is followed
        // by a look that finds its name (SPEC 16.4).
        self.peer_memory.ring.order_loads();
        let is_same = self.peer_memory.control.peek(as_usize(SENDING_STREAM)) == stream.0.get();
        is_same && !self.peer_memory.is_damaged()
    }

    /// The same, where it matters what it is instead.
    ///
    /// # Errors
    /// The connection is over.
    #[inline]
    pub(super) fn check_still(&self, stream: StreamId) -> Result<(), End> {
        if self.is_still(stream) {
            return Ok(());
        }
        self.is_whole()?;
        Err(End::Moved)
    }

    /// Up to where the neighbour has consumed `stream`, if that may be news.
    #[inline]
    pub(super) fn consumed(&mut self, stream: StreamId) -> Option<Position> {
        let control = &self.peer_memory.control;
        let word = control.load(as_usize(CONSUMED));
        if self.seen == Some(word) {
            return None;
        }
        for _ in 0..LOOKS_MAX {
            // None: it is just being written, and then told.
            if let Some(found) = consumed_of(control) {
                self.seen = Some(word);
                let is_ours = found.record.stream.get() == stream.0.get();
                return is_ours.then_some(Position(found.position));
            }
        }
        None
    }

    /// Whether to ring, after records of ours were published up to `tail` and we consumed up to `consumed`.
    #[inline]
    pub(super) fn rings(&mut self, tail: Position, consumed: Position) -> bool {
        let (has_records, has_room) =
            (self.notified_tail < tail, self.notified_consumed < consumed);
        (self.notified_tail, self.notified_consumed) = (tail, consumed);
        let [records, room] = match (has_records, has_room) {
            (false, false) => return false,
            (true, false) => [self.records.check(), Wake::No],
            (false, true) => [Wake::No, self.room.check()],
            // One fence is before both loads.
            (true, true) => [self.records.check(), self.room.check_early()],
        };
        records == Wake::Notify || room == Wake::Notify
    }

    /// Whether what was read of the neighbour's file was there.
    ///
    /// # Errors
    /// The connection is over: it was truncated.
    #[inline]
    pub(super) fn is_whole(&self) -> Result<(), End> {
        if self.peer_memory.is_damaged() { Err(truncated()) } else { Ok(()) }
    }

    #[inline]
    pub(super) fn offset(&self, at: Position) -> usize {
        as_usize(self.peer_memory.ring_size.offset(record_ring::Position(at.0)))
    }
}

#[cold]
fn truncated() -> End {
    End::Broken("the peer's file was truncated".to_owned())
}

/// As far ahead as channels fetch.
const AHEAD_BYTES: u64 = 8 * SLOT_BYTES;
/// So often slots are read that are just being written; whoever writes them rings afterwards.
const LOOKS_MAX: u32 = 4;
