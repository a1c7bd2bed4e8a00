// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection of a link without its socket: what is agreed, and what goes out.
//!
//! ```text
//!  client:  Asked ── ATTACHED ──▶ Active           server:  Answered ── CONFIRM ──▶ Active
//!              └── anything unfit ──▶ Over                   └── anything unfit ──▶ Over
//!
//!  out:  at the end of a record    control frames ▶ record ▶ record ▶ …   from ring and slab
//!        within a record           its rest, alone; then the control frames
//! ```

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use partywall_reconcile::attach::Nonce;
use partywall_reconcile::{ConnectionNumber, Decision, Position, ReceiverView};

use super::end::End;
use super::peer_memory::{PeerMapping, PeerMemory};
use crate::protocol::codec;
use crate::protocol::frame::{Attach, Frame, Window};
use crate::retained::{Retained, SendCursor, Stuck};

/// Identifies a connection among those of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnId(pub u64);

/// One connection of a link, without its socket.
#[derive(Debug)]
pub(crate) struct Conn {
    id: ConnId,
    pub(super) connection_number: ConnectionNumber,
    /// The random number of this side.
    pub(super) nonce: Nonce,
    pub(super) stage: Stage,
    /// The most that the peer may have sent and not had acknowledged, once its frame said so.
    pub(super) window: Option<Window>,
    /// Control frames that are not yet written.
    pub(super) control: Vec<u8>,
    /// Where in `control` the last frame begins, if it is an ACK.
    pub(super) last_ack: Option<usize>,
    /// How many bytes of `control` are written.
    pub(super) control_sent: usize,
    /// The next record to write, while the connection is active and over a socket.
    pub(super) cursor: Option<SendCursor>,
    /// The record that was begun and the control frames are written, and no further record.
    pub(super) is_leaving: bool,
    /// An ACK is due, and may wait for a record that carries it.
    pub(super) is_ack_due: bool,
    /// ATTACH or ATTACHED says that descriptors come with it.
    pub(super) shares: bool,
    /// The descriptor of this side's memory, until the first byte is written.
    pub(super) descriptor: Option<OwnedFd>,
    /// The peer's mapped memory, not yet checked.
    pub(super) peer_mapping: Option<PeerMapping>,
    /// The peer's checked memory, until the connection becomes the present one.
    pub(super) peer_memory: Option<PeerMemory>,
    /// No record goes over the socket.
    pub(super) is_shared: bool,
}

/// How far the handshake is.
#[derive(Debug)]
pub(super) enum Stage {
    /// The client sent ATTACH with this view.
    Asked(ReceiverView),
    /// The server answered the ATTACH with ATTACHED.
    Answered(Box<Answered>),
    /// The handshake is complete, and records flow.
    Active,
    /// The rest of `control` is written; nothing is read any more.
    Over,
}

/// The state that a server remembers until CONFIRM.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) attach: Attach,
    pub(super) given: ReceiverView,
    pub(super) decision: Decision,
}

impl Conn {
    pub(super) fn new(
        id: ConnId,
        connection_number: ConnectionNumber,
        nonce: Nonce,
        stage: Stage,
    ) -> Self {
        Self {
            id,
            connection_number,
            nonce,
            stage,
            window: None,
            control: Vec::new(),
            control_sent: 0,
            last_ack: None,
            cursor: None,
            is_leaving: false,
            is_ack_due: false,
            shares: false,
            descriptor: None,
            peer_mapping: None,
            peer_memory: None,
            is_shared: false,
        }
    }

    /// The descriptor that has to go with the first byte, before the doorbell's.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// Gives up sharing memory, because the descriptor cannot be sent: the connection uses the
    /// socket.
    pub(crate) fn drop_descriptor(&mut self) {
        self.descriptor = None;
    }

    /// Takes the server's memory that came with the first byte of its answer, before that is
    /// received.
    pub(crate) fn set_peer_mapping(&mut self, mapping: PeerMapping) {
        self.peer_mapping = Some(mapping);
    }

    /// Whether no record goes over the socket; final once the connection is active.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether control frames are not yet written.
    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        self.control_sent < self.control.len()
    }

    #[inline]
    pub(crate) fn id(&self) -> ConnId {
        self.id
    }

    /// The most that the peer may have sent and not had acknowledged, once its frame said so.
    pub(crate) fn window(&self) -> Option<Window> {
        self.window
    }

    /// Whether records flow.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Active)
    }

    /// Whether nothing more is read from the connection.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Queues a frame to be written.
    ///
    /// An ACK replaces the one before it that is not yet written, so a peer that reads nothing
    /// makes the queue no longer.
    pub(super) fn push_frame(&mut self, frame: &Frame) {
        let is_ack = matches!(frame, Frame::Ack { .. });
        match self.last_ack.filter(|at| is_ack && *at >= self.control_sent) {
            Some(at) => self.control.truncate(at),
            None => self.last_ack = is_ack.then_some(self.control.len()),
        }
        codec::encode(frame, &mut self.control);
    }

    pub(super) fn end(&mut self, end: End) -> End {
        self.stage = Stage::Over;
        if self.is_within_record() {
            // No frame can follow in the middle of a record.
            self.control.clear();
            self.control_sent = 0;
            self.last_ack = None;
        }
        self.cursor = None;
        self.is_ack_due = false;
        self.peer_mapping = None;
        self.peer_memory = None;
        end
    }

    /// Whether a record is written in part.
    fn is_within_record(&self) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| !cursor.is_at_start())
    }

    /// Becomes active: records are written from `cursor` on; `None` if no record goes over the
    /// socket.
    pub(super) fn begin(&mut self, cursor: Option<SendCursor>) {
        self.stage = Stage::Active;
        self.cursor = cursor;
    }

    /// Whether a frame or record waits to be written.
    #[inline]
    pub(super) fn has_outgoing(&self, retained: &Retained) -> bool {
        let writes_records = !self.is_leaving || self.is_within_record();
        let has_record = || self.cursor(retained).is_some_and(|at| at.next() < retained.tail());
        self.has_control() || (writes_records && has_record())
    }

    /// How many bytes of the ring are not written yet. A BLOB takes few of them, however long it
    /// is.
    #[inline]
    pub(super) fn unsent_bytes(&self, retained: &Retained) -> u64 {
        self.cursor(retained).map_or(0, |at| retained.tail().since(at.next()))
    }

    /// Whether everything up to `tail` is written, or the peer reads it in memory and knows that it
    /// may.
    pub(super) fn has_sent(&self, retained: &Retained, tail: Position) -> bool {
        let is_read_in_memory = self.is_shared && !self.has_control();
        is_read_in_memory || self.cursor(retained).is_some_and(|at| at.next() >= tail)
    }

    /// The place of the next byte to write; it is another place once anything was written.
    pub(super) fn next_outgoing(&self, retained: &Retained) -> (usize, usize, Option<SendCursor>) {
        (self.control.len(), self.control_sent, self.cursor(retained))
    }

    /// The next record to write.
    ///
    /// The receiver may have acknowledged more while it decided where to resume (SPEC 12.2), and
    /// its frame says so.
    fn cursor(&self, retained: &Retained) -> Option<SendCursor> {
        let cursor = self.cursor?;
        let base = retained.base();
        if cursor.next() < base && cursor.is_at_start() {
            return retained.cursor(base);
        }
        Some(cursor)
    }

    /// Fills `slices` with the next bytes to write, at most about `bytes_max`; returns how many
    /// are used.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn outgoing<'a>(
        &'a self,
        retained: &'a Retained,
        is_replaced: bool,
        bytes_max: usize,
        slices: &mut [IoSlice<'a>],
    ) -> Result<usize, End> {
        let control = &self.control[self.control_sent..];
        let within = self.is_within_record();
        let mut used = 0;
        if let (false, false, Some(slot)) = (control.is_empty(), within, slices.first_mut()) {
            *slot = IoSlice::new(control);
            used = 1;
        }
        let Some(cursor) = self.cursor(retained) else { return Ok(used) };
        if is_replaced {
            return Err(End::Replaced);
        }
        if self.is_leaving && !within {
            return Ok(used);
        }
        // With frames waiting, only the record that was begun is continued: at most two slices.
        let rest = &mut slices[used..];
        let count = rest.len().min(if within && !control.is_empty() { 1 } else { usize::MAX });
        let records = cursor.slices(retained, bytes_max, &mut rest[..count]);
        records.map(|records| used + records).map_err(|stuck| match stuck {
            // As in `cursor`, but in the middle of a record: its room may be used again.
            Stuck::Passed => End::Moved,
            stuck => End::Broken(stuck.to_string()),
        })
    }

    /// Moves on by `bytes` that were written.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn sent(&mut self, retained: &Retained, mut bytes: usize) -> Result<(), End> {
        if bytes > 0 {
            self.descriptor = None;
        }
        if !self.is_within_record() {
            let control = bytes.min(self.control.len() - self.control_sent);
            self.control_sent += control;
            bytes -= control;
            if self.control_sent == self.control.len() {
                self.control.clear();
                self.control_sent = 0;
                self.last_ack = None;
            }
        }
        let (Some(mut cursor), true) = (self.cursor(retained), bytes > 0) else { return Ok(()) };
        let moved = cursor.advance(retained, bytes);
        self.cursor = Some(cursor);
        moved.map_err(|stuck| End::Broken(stuck.to_string()))
    }
}
