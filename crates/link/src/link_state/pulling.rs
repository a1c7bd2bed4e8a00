// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages straight from the neighbour's memory, one at a time, and how far it has consumed (SPEC 16.4, 16.5).
//!
//! ```text
//!   the application asks ─▶ has_next? ─ no ─▶ pull_present ─▶ inbox ─▶ next
//!   send: Full ─▶ hear_consumed ─▶ trim ─▶ again
//! ```
//!
//! # Invariants
//!
//! - Nothing is read before CONFIRM or BEGIN was: until then the neighbour may decide anew.
//! - The inbox holds what was asked for and not consumed; more only when the connection ends, and then what its window allows.

use partywall_layout::link::record;
use partywall_reconcile::{Position, StreamId};

use super::LinkState;
use super::arriving::{Violation, violation};
#[cfg(all(test, not(shuttle)))]
use super::conn::Conn;
use super::conn::{ConnId, End};
use super::copying::Pulled;
use super::inbox::Inbox;
use super::shm::SharedMemory;
use crate::protocol::frame::Window;
use crate::shown::PeerMemory;

impl LinkState {
    /// Takes the next message out of the neighbour's memory, of the present connection; `false` if there is none, or the connection is
    /// over a socket.
    ///
    /// # Errors
    /// The connection is to end: it is for the caller to say so, with [`over`](Self::over).
    #[inline(always)]
    pub(crate) fn pull_present(&mut self) -> Result<bool, End> {
        self.life.active.map_or(Ok(false), |conn| self.pull_one(conn))
    }

    /// The same of this connection, which is over if that fails, as in [`receive`](Self::receive).
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn pull(&mut self, conn: &mut Conn) -> Result<bool, End> {
        self.pull_one(conn.id()).map_err(|end| self.over(conn, end))
    }

    /// More is likely to lie there than was taken: a moment to prepare for it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some((shm, at)) = self.next_pulled() {
            shm.prefetch(at);
        }
    }

    /// Looks how far the neighbour has consumed; `true` if that is news, and there may be room.
    #[inline]
    pub(crate) fn hear_consumed(&mut self) -> bool {
        let (stream, acked) = (self.retained.stream(), self.retained.acked());
        let Some(shm) = present(&mut self.shm, self.life.active) else { return false };
        if self.life.acks_from.is_none() {
            return false;
        }
        let Some(position) = shm.consumed(stream) else { return false };
        if self.retained.acknowledged(position).is_err() {
            shm.fault = Some(violation(Violation::AckBeyondTail(position.0)));
        }
        self.retained.acked() > acked
    }

    /// From here on records are read from the neighbour's memory.
    pub(super) fn build_shm(&mut self, conn: ConnId, peer_memory: PeerMemory, window: Window) {
        self.shm = Some(SharedMemory::new(conn, peer_memory, window));
        if let Some(acked_offset) = self.durable.acked_offset {
            // A reply or a skip may have consumed without it.
            self.memory.consume(acked_offset);
        }
    }

    /// Takes all that lies there: nobody will write more. As much as the neighbour said it could have under way, at most.
    pub(super) fn drain(&mut self, conn: ConnId) {
        while let Ok(true) = self.pull_one(conn) {}
    }

    #[inline(always)]
    fn pull_one(&mut self, conn: ConnId) -> Result<bool, End> {
        let end = self.inbox.log().end();
        let pulled = self.pull_next(conn);
        if pulled.is_err() {
            // What was refused is not kept: a neighbour may try again and again.
            self.inbox.log().cut(end);
        }
        pulled
    }

    #[inline(always)]
    fn pull_next(&mut self, conn: ConnId) -> Result<bool, End> {
        let Some(stream) = self.inbox.stream() else { return Ok(false) };
        let shm = present(&mut self.shm, self.life.active).filter(|shm| shm.conn == conn);
        let (Some(shm), Some(_)) = (shm, self.life.acks_from) else { return Ok(false) };
        if shm.fault.is_some() {
            return shm.fault.take().map_or(Ok(false), Err);
        }
        let tag = record::tag(stream.0.get());
        // A PAD, then a record at the ring's beginning, where no PAD may be.
        for _ in 0..2 {
            let Some(shm) = &self.shm else { return Ok(false) };
            let at = self.inbox.received();
            let Some(words) = shm.words(at) else { return shm.is_whole().map(|()| false) };
            if let Some(compact) = shm.take_short_compact(at, stream, words, self.inbox.log()) {
                arrive(&mut self.inbox, at, compact.footprint)?;
                let kept = self.inbox.keep_logged(
                    at,
                    compact.end,
                    compact.digest,
                    compact.entry,
                    &shm.window,
                );
                kept.map_err(|_| violation(Violation::Overfull))?;
                return Ok(true);
            }
            if self.pull_other(stream, tag, words)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes a record that begins with these words, and is none that the [short](SharedMemory::take_short_compact) look suits; `false`: it was a PAD.
    #[inline(never)]
    fn pull_other(&mut self, stream: StreamId, tag: u32, words: (u64, u64)) -> Result<bool, End> {
        let Some(shm) = present(&mut self.shm, self.life.active) else { return Ok(false) };
        let at = self.inbox.received();
        let copied = shm.copy(at, tag, words, self.inbox.log());
        shm.check_still(stream)?;
        let Pulled { ack, footprint, message } = copied?;
        arrive(&mut self.inbox, at, footprint)?;
        let Some(message) = message else { return Ok(false) };
        let kept = self.inbox.keep(message, &shm.window);
        kept.map_err(|_| violation(Violation::Overfull))?;
        self.hear_record(at.0, ack)?;
        Ok(true)
    }

    /// Where the next record will lie, if it may be read.
    #[inline]
    pub(super) fn next_pulled(&self) -> Option<(&SharedMemory, Position)> {
        self.life.acks_from?;
        let shm = self.shm.as_ref().filter(|shm| self.life.active == Some(shm.conn))?;
        Some((shm, self.inbox.received()))
    }
}

/// The wall, if its connection is the present one.
#[inline]
pub(super) fn present(
    shm: &mut Option<SharedMemory>,
    active: Option<ConnId>,
) -> Option<&mut SharedMemory> {
    shm.as_mut().filter(|shm| active == Some(shm.conn))
}

#[inline]
fn arrive(inbox: &mut Inbox, at: Position, footprint: u64) -> Result<(), End> {
    match inbox.arrive(at, footprint) {
        Ok(_) => Ok(()),
        Err(_) => Err(violation(Violation::OutOfOrder(at.0))),
    }
}
