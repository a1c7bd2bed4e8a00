// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes for a connection: control frames, then records, straight from ring and slab.
//!
//! ```text
//!   at the end of a record    control ▶ record ▶ record ▶ …
//!   within one                its rest, alone; then the control frames
//! ```

use partywall_layout::seeded_fault;
use std::io::IoSlice;

use partywall_reconcile::Position;

use super::LinkState;
use super::conn::{Conn, End};
use crate::protocol::frame::Frame;
use crate::retained::{Stuck, Unsent};

impl LinkState {
    /// Acknowledges, if that is due. `idle`: the application is about to wait, so nothing else will say it.
    pub(crate) fn acknowledge(&mut self, conn: &mut Conn, idle: bool) {
        if !self.is_ack_due(conn, idle) {
            return;
        }
        let Some(acked_offset) = self.durable.acked_offset else { return };
        conn.is_ack_due = false;
        self.life.told = acked_offset.position;
        self.inbox.slab_told();
        let is_faulty = seeded_fault("link_ack_of_received");
        let consumed = if is_faulty { self.inbox.received() } else { acked_offset.position };
        conn.say(&Frame::Ack { stream: acked_offset.stream, consumed });
    }

    /// Says good-bye: nothing of what is kept is lost. Once nothing is to be sent any more, the connection can be closed.
    pub(crate) fn leave(&mut self, conn: &mut Conn) {
        if conn.is_active() && !conn.is_leaving {
            self.acknowledge(conn, true);
            conn.say(&Frame::Leave);
            conn.is_leaving = true;
        }
    }

    /// Whether there is anything to send.
    #[inline]
    pub(crate) fn has_outgoing(&self, conn: &Conn) -> bool {
        let goes_on = !conn.is_leaving || conn.is_within_record();
        conn.has_control()
            || (goes_on && self.cursor(conn).is_some_and(|at| at.next() < self.retained.tail()))
    }

    /// Whether records went over this connection, and another has taken its place, or an epoch ended it: whoever has it is to end it. What
    /// there is to send is then not for it.
    #[inline]
    pub(crate) fn is_replaced(&self, conn: &Conn) -> bool {
        conn.cursor.is_some() && self.life.active != Some(conn.id())
    }

    /// How many bytes of the ring were not sent yet. A BLOB takes few of them, however long it is.
    #[inline]
    pub(crate) fn unsent_bytes(&self, conn: &Conn) -> u64 {
        self.cursor(conn).map_or(0, |at| self.retained.tail().since(at.next()))
    }

    /// Whether what was sent up to `tail` is with the system, or where the neighbour reads it itself: and knows that it may.
    pub(crate) fn has_sent(&self, conn: &Conn, tail: Position) -> bool {
        let is_read_there = conn.is_shared && !conn.has_control();
        is_read_there || self.cursor(conn).is_some_and(|at| at.next() >= tail)
    }

    /// Where what is to be sent next begins: another place, once anything was sent.
    pub(crate) fn next_outgoing(&self, conn: &Conn) -> (usize, usize, Option<Unsent>) {
        (conn.control.len(), conn.control_sent, self.cursor(conn))
    }

    /// The next record to go. The receiver may have consumed on when it took the decision to resume somewhere (SPEC 12.2),
    /// and has said so.
    fn cursor(&self, conn: &Conn) -> Option<Unsent> {
        let cursor = conn.cursor?;
        let base = self.retained.base();
        if cursor.next() < base && cursor.is_at_start() {
            return self.retained.unsent(base);
        }
        Some(cursor)
    }

    /// What is to be sent next, at most about `bytes_max`; how many of the slices are used.
    ///
    /// # Errors
    /// The connection is over.
    pub(crate) fn outgoing<'a>(
        &'a self,
        conn: &'a Conn,
        bytes_max: usize,
        slices: &mut [IoSlice<'a>],
    ) -> Result<usize, End> {
        let control = &conn.control[conn.control_sent..];
        let within = conn.is_within_record();
        let mut used = 0;
        if let (false, false, Some(slot)) = (control.is_empty(), within, slices.first_mut()) {
            *slot = IoSlice::new(control);
            used = 1;
        }
        let Some(cursor) = self.cursor(conn) else { return Ok(used) };
        if self.is_replaced(conn) {
            return Err(End::Replaced);
        }
        if conn.is_leaving && !within {
            return Ok(used);
        }
        // With frames waiting, only the record that was begun goes on: at most two slices.
        let rest = &mut slices[used..];
        let count = rest.len().min(if within && !control.is_empty() { 1 } else { usize::MAX });
        let records = self.retained.slices(&cursor, bytes_max, &mut rest[..count]);
        records.map(|records| used + records).map_err(|stuck| match stuck {
            // As above, in the middle of a record: its room may be used again.
            Stuck::Passed => End::Moved,
            stuck => End::Broken(stuck.to_string()),
        })
    }

    /// So many bytes of that are out.
    ///
    /// # Errors
    /// The connection is over.
    pub(crate) fn sent(&self, conn: &mut Conn, mut bytes: usize) -> Result<(), End> {
        if bytes > 0 {
            conn.descriptor = None;
        }
        let within = conn.is_within_record();
        if !within {
            let control = bytes.min(conn.control.len() - conn.control_sent);
            conn.control_sent += control;
            bytes -= control;
            if conn.control_sent == conn.control.len() {
                conn.control.clear();
                conn.control_sent = 0;
                conn.last_ack = None;
            }
        }
        let (Some(mut cursor), true) = (self.cursor(conn), bytes > 0) else { return Ok(()) };
        let moved = self.retained.advance(&mut cursor, bytes);
        conn.cursor = Some(cursor);
        moved.map_err(|stuck| End::Broken(stuck.to_string()))
    }
}
