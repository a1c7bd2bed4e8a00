// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection of a link without its socket: the state of its handshake, and the bytes to be
//! sent.
//!
//! ```text
//!  client:  Asked ── ATTACHED ──▶ Active           server:  Answered ── CONFIRM ──▶ Active
//!              └── anything unfit ──▶ Over                   └── anything unfit ──▶ Over
//!
//!  to write, between two records:  control frames ▶ record ▶ record ▶ …   from ring and slab
//!  to write, within a record:      the rest of the record alone; then the control frames
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

/// Identifies a connection among all connections that one process has made for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnId(pub u64);

#[derive(Debug)]
pub(crate) struct Conn {
    id: ConnId,
    pub(super) connection_number: ConnectionNumber,
    /// The random number that this end drew for the connection. The peer repeats it to prove that
    /// it is alive on this connection.
    pub(super) nonce: Nonce,
    pub(super) stage: Stage,
    /// The sizes of the peer's ring and slab, which its ATTACH or ATTACHED stated; `None` until
    /// that frame has arrived.
    pub(super) window: Option<Window>,
    /// The bytes of the queued control frames. The first `control_sent` of them are already
    /// written.
    pub(super) control: Vec<u8>,
    /// The offset in `control` of the last queued frame, if that frame is an ACK; a newer ACK
    /// replaces it.
    pub(super) last_ack: Option<usize>,
    /// Number of bytes of the queued control frames (`control`) that are already written to the
    /// socket.
    pub(super) control_sent: usize,
    /// The place of the next byte of a record to write. `None` while the socket carries no records:
    /// before the connection is attached, and always if it has shared memory.
    pub(super) cursor: Option<SendCursor>,
    /// Whether this end is closing the connection in good order. The record in progress and the
    /// control frames are still written, but no further record.
    pub(super) is_leaving: bool,
    /// Whether an acknowledgement has to be sent in the frame ACK. This end may delay the frame,
    /// because a record may carry the acknowledgement.
    pub(super) is_ack_due: bool,
    /// Whether this end's ATTACH or ATTACHED says that descriptors of its memory and doorbell come
    /// with the frame.
    pub(super) shares: bool,
    /// The descriptor of this end's memory, which is sent with the first byte that is written;
    /// `None` afterwards.
    pub(super) descriptor: Option<OwnedFd>,
    /// The mapped memory of the peer, whose header is not checked yet.
    pub(super) peer_mapping: Option<PeerMapping>,
    /// The checked memory of the peer. When the connection becomes the present one, the link takes
    /// this memory.
    pub(super) peer_memory: Option<PeerMemory>,
    /// Whether each end reads the other's memory, so that no record goes over the socket.
    pub(super) is_shared: bool,
}

/// The progress of the handshake on a connection.
#[derive(Debug)]
pub(super) enum Stage {
    /// This end is a client, and has sent ATTACH, its first frame. The field is the view in that
    /// frame: how far the client has received the server's stream.
    Asked(ReceiverView),
    /// This end is a server, and has answered ATTACH with ATTACHED.
    Answered(Box<Answered>),
    Active,
    /// The connection has ended: this end still writes the rest of the queued control frames, but
    /// reads nothing any more.
    Over,
}

/// The state that a server keeps between two frames of the handshake: from the time it sends
/// ATTACHED, its answer, until the client's CONFIRM arrives.
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

    /// The descriptor of this end's memory, if it still has to be sent. It goes with the first
    /// byte, before the doorbell's descriptor.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// Withdraws the offer of this end's memory, because the system does not send its descriptor.
    /// The connection then uses the socket.
    pub(crate) fn drop_descriptor(&mut self) {
        self.descriptor = None;
    }

    /// Stores the mapped memory of the server, whose descriptor came with the first byte of its
    /// answer. The caller stores the mapping before it handles the answer.
    pub(crate) fn set_peer_mapping(&mut self, mapping: PeerMapping) {
        self.peer_mapping = Some(mapping);
    }

    /// Whether each end reads the other's memory, so that no record goes over the socket. The value
    /// is final once the connection is active.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        self.control_sent < self.control.len()
    }

    #[inline]
    pub(crate) fn id(&self) -> ConnId {
        self.id
    }

    pub(crate) fn window(&self) -> Option<Window> {
        self.window
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Active)
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Queues a control frame to be written.
    ///
    /// An ACK replaces an unwritten ACK before it. So the queue stays short even if the peer reads
    /// nothing.
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
            // A record was written in part, and no frame can follow in the middle of a record. So
            // the frames queued before the end of the connection are dropped.
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

    /// Whether the next record has been written to the socket in part.
    fn is_within_record(&self) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| !cursor.is_at_start())
    }

    /// Makes the connection active: its handshake is complete. Records are written to the socket
    /// from `cursor` on; `None` means that the ends share memory, so that no record goes over the
    /// socket.
    pub(super) fn begin(&mut self, cursor: Option<SendCursor>) {
        self.stage = Stage::Active;
        self.cursor = cursor;
    }

    #[inline]
    pub(super) fn has_outgoing(&self, retained: &Retained) -> bool {
        let writes_records = !self.is_leaving || self.is_within_record();
        let has_record = || self.cursor(retained).is_some_and(|at| at.next() < retained.tail());
        self.has_control() || (writes_records && has_record())
    }

    /// Number of bytes of the ring that still have to be written. A BLOB (a message in the slab)
    /// counts only with its ring record, however long its message is.
    #[inline]
    pub(super) fn unsent_bytes(&self, retained: &Retained) -> u64 {
        self.cursor(retained).map_or(0, |at| retained.tail().since(at.next()))
    }

    /// Whether all records up to the position `tail` are written to the socket. Over shared memory:
    /// whether the peer can read these records, and this end has written the frames that say so.
    pub(super) fn has_sent(&self, retained: &Retained, tail: Position) -> bool {
        let is_read_in_memory = self.is_shared && !self.has_control();
        is_read_in_memory || self.cursor(retained).is_some_and(|at| at.next() >= tail)
    }

    /// Identifies the next byte to write on the connection. The value changes with each byte
    /// written, so equal values show that nothing was written.
    pub(super) fn next_outgoing(&self, retained: &Retained) -> (usize, usize, Option<SendCursor>) {
        (self.control.len(), self.control_sent, self.cursor(retained))
    }

    /// Returns the place, in the records of our ring, of the next byte to write.
    ///
    /// The peer may have acknowledged more since it stated where to resume, and a later frame says
    /// so (SPEC 12.2). The records before that higher position may be freed, so the place moves
    /// forward to the base.
    fn cursor(&self, retained: &Retained) -> Option<SendCursor> {
        let cursor = self.cursor?;
        let base = retained.base();
        if cursor.next() < base && cursor.is_at_start() {
            return retained.cursor(base);
        }
        Some(cursor)
    }

    /// Points `slices`, the entries of one vectored write, to the next bytes to write on the
    /// connection, at most about `bytes_max`. Returns the number of entries used.
    ///
    /// # Errors
    /// Fails if the connection has to be closed, for the reason in the error.
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
        // If control frames wait because a record was written in part, only the rest of that record
        // is written before them, as one piece of memory.
        let rest = &mut slices[used..];
        let count = rest.len().min(if within && !control.is_empty() { 1 } else { usize::MAX });
        let records = cursor.slices(retained, bytes_max, &mut rest[..count]);
        records.map(|records| used + records).map_err(|stuck| match stuck {
            // The next byte to write lies in the middle of a record that was freed, so writing
            // cannot continue at the first record kept. Other records may already have overwritten
            // the freed one.
            Stuck::Passed => End::Moved,
            stuck => End::Broken(stuck.to_string()),
        })
    }

    /// Counts the next `bytes` bytes as written to the socket.
    ///
    /// # Errors
    /// Fails if the connection has to be closed, for the reason in the error.
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
