// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages straight from the neighbour's memory, one at a time, and how far it has consumed (SPEC 16.4, 16.5).
//!
//! ```text
//!   the application asks ─▶ has_next? ─ no ─▶ pull ─▶ inbox ─▶ next
//!   send: Full ─▶ hear_consumed ─▶ trim ─▶ again
//! ```
//!
//! # Invariants
//!
//! - Nothing is read before CONFIRM or BEGIN was: until then the neighbour may decide anew.
//! - The inbox holds what was asked for and not consumed; more only when the connection ends, and then what its window allows.

use partywall_reconcile::Position;

use super::Core;
use super::arriving::{Violation, violation};
use super::conn::{Conn, ConnId, End};
use super::wall::Wall;
use crate::link::protocol::frame::Window;
use crate::link::shown::Neighbour;

impl Core {
    /// Takes the next message out of the neighbour's memory; `false` if there is none, or the connection is over a socket.
    ///
    /// # Errors
    /// The connection is over, as in [`receive`](Self::receive).
    pub(crate) fn pull(&mut self, conn: &mut Conn) -> Result<bool, End> {
        self.pull_one(conn.id()).map_err(|end| self.over(conn, end))
    }

    /// Looks how far the neighbour has consumed; `true` if that is news, and there may be room.
    pub(crate) fn hear_consumed(&mut self) -> bool {
        let (stream, acked) = (self.retained.stream(), self.retained.acked());
        let Some(wall) = present(&mut self.wall, self.life.active) else { return false };
        if self.life.acks_from.is_none() {
            return false;
        }
        let Some(position) = wall.consumed(stream) else { return false };
        if self.retained.acknowledged(position).is_err() {
            wall.fault = Some(violation(Violation::AckBeyondTail(position.0)));
        }
        self.retained.acked() > acked
    }

    /// From here on records are read from the neighbour's memory.
    pub(super) fn build_wall(&mut self, conn: ConnId, neighbour: Neighbour, window: Window) {
        self.wall = Some(Wall::new(conn, neighbour, window));
        if let Some(mark) = self.books.mark {
            // A reply or a skip may have consumed without it.
            self.memory.consume(mark);
        }
    }

    /// Takes all that lies there: nobody will write more. As much as the neighbour said it could have under way, at most.
    pub(super) fn drain(&mut self, conn: ConnId) {
        while let Ok(true) = self.pull_one(conn) {}
    }

    fn pull_one(&mut self, conn: ConnId) -> Result<bool, End> {
        let Some(stream) = self.inbox.stream() else { return Ok(false) };
        let wall = present(&mut self.wall, self.life.active).filter(|wall| wall.conn == conn);
        let (Some(wall), Some(_)) = (wall, self.life.acks_from) else { return Ok(false) };
        if let Some(fault) = wall.fault.take() {
            return Err(fault);
        }
        // A PAD, then a record at the ring's beginning, where no PAD may be.
        for _ in 0..2 {
            let found = wall.read(self.inbox.received(), stream)?;
            let Some(pulled) = found else { return Ok(false) };
            let arrived = self.inbox.arrive(pulled.at, pulled.footprint);
            arrived.map_err(|_| violation(Violation::OutOfOrder(pulled.at.0)))?;
            let Some(message) = pulled.message else { continue };
            let kept = self.inbox.keep(message, &wall.window);
            kept.map_err(|_| violation(Violation::Overfull))?;
            self.hear_record(pulled.at.0, pulled.ack)?;
            self.life.is_in_step = true;
            return Ok(true);
        }
        Ok(false)
    }

    /// Where the next record will lie, if it may be read.
    pub(super) fn next_pulled(&self) -> Option<(&Wall, Position)> {
        self.life.acks_from?;
        let wall = self.wall.as_ref().filter(|wall| self.life.active == Some(wall.conn))?;
        Some((wall, self.inbox.received()))
    }
}

/// The wall, if its connection is the present one.
pub(super) fn present(wall: &mut Option<Wall>, active: Option<ConnId>) -> Option<&mut Wall> {
    wall.as_mut().filter(|wall| active == Some(wall.conn))
}
