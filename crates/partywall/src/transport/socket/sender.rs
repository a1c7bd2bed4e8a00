// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender of the socket transport: makes records of messages, and writes as many bytes as the
//! kernel accepts.
//!
//! A message counts as sent once its first byte was written. If the kernel does not accept all
//! bytes, a caller that waits writes the other bytes later. For a caller that does not wait, the
//! other bytes are kept in `rest` and written before anything else.

use super::current_space::CurrentSpace;
use super::pending_move::PendingMove;
use super::streams::KEPT_BYTES_MAX;
use super::{DATA_BYTES_SHOULD, LINGER, SocketShared, is_gone};
use crate::config::Config;
use crate::error::{Closed, Fault, Limit, SendError, TooLarge};
use crate::stats::SenderStats;
use crate::transport::shm::ShmSender;
use crate::transport::{
    Memory, NotSent, Progress, SpaceWaiter, TransportSender, has_passed, waiting_failed,
};
use partywall_layout::record_ring::{BlobBody, HEADER_BYTES, Kind, footprint};
use partywall_layout::{Position, RecordHeader, seeded_fault};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// The sending end of a connection over a socket, which makes records of messages and writes the
/// records.
#[derive(Debug)]
pub(crate) struct SocketSender {
    pub(super) shared: Arc<SocketShared>,
    pub(super) position: Position,
    /// The number of the stream to which the next messages belong; 0 on a channel.
    pub(super) stream: u32,
    /// Bytes of messages that count as sent although the kernel has not accepted these bytes yet.
    pub(super) rest: Vec<u8>,
    /// Number of bytes at the start of `rest` that the kernel has accepted meanwhile.
    pub(super) rest_sent: usize,
    /// The bytes of the open batch: its messages, each after its record header.
    batch: Vec<u8>,
    /// The position at which the next record after the open batch begins. The two fields that
    /// follow count the messages of the batch, and their payload bytes.
    batch_end: Position,
    batch_messages: u64,
    batch_bytes: u64,
    batch_footprint_max: u64,
    batch_bytes_max: u64,
    /// The record header, and for a BLOB the body, of the message that is being sent in pieces.
    framing: Framing,
    /// Whether the caller has sent only some bytes of a message. The caller must still pass the
    /// other bytes, because the sender keeps none of them.
    in_pieces: bool,
    /// When the sender last checked whether the peer lives, after the socket had no room.
    death_checked: Option<Instant>,
    stats: SenderStats,
    end: Option<Closed>,
    /// Whether the record that ends this direction is written, or is the last record in `rest`, the
    /// bytes that the kernel has not accepted yet.
    is_closing: bool,
    /// The connection's pending move to shared memory. The field is `None` once this direction has
    /// switched, or if the connection does not move.
    pending_move: Option<Arc<PendingMove>>,
    /// Whether the sender has stored the position of its next record in `pending_move`. The sender
    /// takes the position back before it writes anything.
    is_at_boundary: bool,
    /// Whether the record SWITCH, the last of this direction on the socket, is written, or is in
    /// `rest`, the bytes that the kernel has not accepted yet.
    is_switching: bool,
    /// Whether the connection carries the streams of a session.
    has_streams: bool,
    /// The object on which threads wait for room, before and after the switch to shared memory.
    /// `None` if the connection never moves.
    space: Option<Arc<CurrentSpace>>,
}

/// The bytes that precede a message on the socket: the header of its record, and for a BLOB a body.
#[derive(Clone, Copy, Debug)]
struct Framing {
    bytes: [u8; FRAMING_MAX],
    len: usize,
    footprint: u64,
}

#[expect(clippy::cast_possible_truncation, reason = "16")]
const FRAMING_MAX: usize = HEADER_BYTES as usize + size_of::<BlobBody>();

/// Least time between two checks whether the peer lives, while the socket has no room.
const DEATH_CHECK_EVERY: Duration = Duration::from_millis(5);

impl SocketSender {
    pub(super) fn new(shared: Arc<SocketShared>, config: &Config) -> Self {
        let pending_move = shared.pending_move.clone();
        let offered = pending_move.as_ref().map(|pending| pending.offer_boundary(Position(0)));
        Self {
            space: pending_move.is_some().then(|| Arc::new(CurrentSpace::new(&shared))),
            is_at_boundary: offered.unwrap_or(false),
            pending_move,
            is_switching: false,
            has_streams: false,
            shared,
            position: Position(0),
            stream: 0,
            rest: Vec::new(),
            rest_sent: 0,
            batch: Vec::new(),
            batch_end: Position(0),
            batch_messages: 0,
            batch_bytes: 0,
            batch_footprint_max: config.ring_bytes / 2,
            batch_bytes_max: config.memory_max,
            framing: Framing { bytes: [0; FRAMING_MAX], len: 0, footprint: 0 },
            in_pieces: false,
            death_checked: None,
            stats: SenderStats::default(),
            end: None,
            is_closing: false,
        }
    }

    /// Advances the connection's move to shared memory; `len` is the length of the next message in
    /// bytes. Returns the sender over shared memory if the direction has just switched to it.
    pub(crate) fn switch(&mut self, len: usize) -> Result<Option<ShmSender>, NotSent> {
        let Some(pending) = self.pending_move.clone() else { return Ok(None) };
        self.check()?;
        if self.in_pieces || !self.batch.is_empty() || self.is_closing {
            return Ok(None);
        }
        if !self.is_switching {
            if self.has_unsent() {
                // `rest` contains bytes that the kernel has not accepted yet. The record MOVE is
                // written directly to the socket, so it must wait until the kernel has accepted
                // these bytes.
                return Ok(None);
            }
            let advanced = pending.advance_sender(&self.shared.socket, self.position, len);
            let violated = |violation| NotSent::from(self.shared.violated(violation));
            self.position = advanced.map_err(violated)?;
            if pending.stays() {
                self.pending_move = None;
            }
            if !pending.is_sender_ready() {
                return Ok(None);
            }
            let position = self.position;
            let header = RecordHeader { position, kind: Kind::Switch, len: 0, stream: 0 };
            self.rest.extend_from_slice(header.to_wire().as_bytes());
            self.is_switching = true;
        }
        self.write_rest()?;
        Ok(self.become_shared(&pending))
    }

    /// Completes the switch to shared memory if the record SWITCH was written or is in `rest`,
    /// because no other may follow it on the socket. Returns the sender over shared memory.
    pub(crate) fn finish_switch(&mut self) -> Result<Option<ShmSender>, NotSent> {
        if !self.is_switching {
            return Ok(None);
        }
        self.switch(0)
    }

    /// Takes the sender over shared memory, which continues this direction. The receiver may still
    /// use the socket.
    fn become_shared(&mut self, pending: &PendingMove) -> Option<ShmSender> {
        let mut sender = *pending.take_sender()?;
        self.pending_move = None;
        sender.continue_from(&self.stats, self.stream, self.has_streams);
        let origin = Arc::downgrade(&self.shared);
        sender.shared().began_on(origin);
        if let Some(space) = &self.space {
            space.switch(&self.shared, sender.shared());
        }
        self.shared.depart();
        Some(sender)
    }

    /// Stores the position of the next record in `pending_move`, if this sender is between two
    /// records and has written all bytes. The receiver may then begin the move there.
    pub(super) fn offer_boundary(&mut self) {
        let is_between = !self.in_pieces && !self.is_closing && self.batch.is_empty();
        if let (Some(pending), true) = (&self.pending_move, is_between && !self.has_unsent()) {
            self.is_at_boundary = pending.offer_boundary(self.position);
        }
    }

    /// Takes the position of the next record back from `pending_move`, so that the receiver does
    /// not send the record MOVE there while this sender writes.
    fn leave_boundary(&mut self) {
        if std::mem::take(&mut self.is_at_boundary) && !seeded_fault("stale_boundary") {
            let taken = self.pending_move.as_ref().and_then(|pending| pending.take_boundary());
            self.position = taken.unwrap_or(self.position);
        }
    }

    pub(super) fn write_rest(&mut self) -> Result<(), NotSent> {
        if self.in_pieces {
            // The caller failed between two pieces. The peer would take bytes of another message
            // for the missing pieces, so the connection ends.
            return Err(self.break_off());
        }
        while self.rest_sent < self.rest.len() {
            let bytes = IoSlice::new(&self.rest[self.rest_sent..]);
            let written = self.shared.socket.write(&[bytes], true);
            match self.judge(written) {
                Ok(count) => self.rest_sent += count,
                Err(unsent) => {
                    self.forget_sent();
                    return Err(unsent);
                }
            }
        }
        self.rest.clear();
        self.rest_sent = 0;
        Ok(())
    }

    /// Frees the bytes of the buffer `rest` that the kernel has accepted, once they are more than
    /// half of the buffer. Otherwise `rest` would grow without bound if the kernel never accepted
    /// all of it.
    fn forget_sent(&mut self) {
        if self.rest_sent > self.rest.len() / 2 {
            self.rest.drain(..self.rest_sent);
            self.rest_sent = 0;
        }
    }

    /// Checks that this sender may write. Takes the position of its next record back from
    /// `pending_move`, so that the receiver sends no record MOVE meanwhile.
    pub(super) fn check(&mut self) -> Result<(), NotSent> {
        self.shared.check()?;
        self.leave_boundary();
        self.end.map_or(Ok(()), |closed| Err(closed.into()))
    }

    pub(super) fn check_length(&self, len: u64) -> Result<(), NotSent> {
        let max = self.shared.peer_message_max;
        if len <= max {
            return Ok(());
        }
        Err(NotSent::from(TooLarge { len, max, limit: Limit::PeerMessage }))
    }

    /// Keeps the bytes of a message that the kernel did not accept. They are written before any
    /// later message.
    fn keep(&mut self, payload: &[u8], progress: &Progress) {
        self.in_pieces = false;
        let framing = &self.framing.bytes[progress.sent.min(self.framing.len)..self.framing.len];
        self.rest.extend_from_slice(framing);
        self.rest.extend_from_slice(&payload[progress.sent.saturating_sub(self.framing.len)..]);
        self.count(payload.len());
    }

    pub(super) fn count(&mut self, len: usize) {
        self.stats.messages += 1;
        self.stats.bytes += len as u64;
        if let Some(pending) = &self.pending_move {
            pending.count_sent();
        }
    }

    /// Interprets the result of a write to the socket: returns the number of accepted bytes, or the
    /// reason why none was accepted.
    pub(super) fn judge(&mut self, written: io::Result<usize>) -> Result<usize, NotSent> {
        match written {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.finds_death() {
                    return Err(self.break_off());
                }
                Err(NotSent::Full)
            }
            Err(error) if is_gone(&error) => Err(self.break_off()),
            Err(error) => {
                self.break_off();
                Err(NotSent::from(Fault::system("writing to the socket", error)))
            }
        }
    }

    /// Ends this direction of the connection at once: this side can send nothing more, and the peer
    /// reads end-of-file.
    fn break_off(&mut self) -> NotSent {
        self.end = Some(Closed::Disconnected);
        let _ = self.shared.socket.shutdown_write();
        NotSent::Disconnected
    }

    /// Writes the record that ends this direction, after all kept bytes. Returns whether the kernel
    /// has not accepted all of it, so that the caller may wait for room and call again.
    pub(crate) fn begin_close(&mut self) -> bool {
        let is_cut_off = self.end.is_some() || self.in_pieces;
        if is_cut_off
            || self.shared.connection_state.guard.is_child()
            || self.shared.connection_state.is_violated()
        {
            return false;
        }
        self.leave_boundary();
        // A sender that has moved to shared memory has written the record SWITCH as its last one
        // on the socket. So it writes no record CLOSE_WRITE there, but ends its direction in shared
        // memory.
        if !std::mem::replace(&mut self.is_closing, true) && !self.is_switching {
            let header =
                RecordHeader { position: self.position, kind: Kind::CloseWrite, len: 0, stream: 0 };
            self.rest.extend_from_slice(header.to_wire().as_bytes());
        }
        matches!(self.write_rest(), Err(NotSent::Full))
    }

    /// Discards bytes that the peer sent and nobody has read, without waiting; see
    /// [`SocketShared::discard_step`].
    pub(crate) fn discard_step(&self) -> Option<BorrowedFd<'_>> {
        self.shared.discard_step()
    }

    /// Makes a later `close` of this sender not wait for the peer.
    pub(crate) fn give_up_end(&self) {
        let _ = self.shared.end_given_up.set(());
    }

    /// Checks at intervals whether the peer's process died. A forked child of the dead peer may
    /// keep the socket open. Then a sender that never blocks would find the socket full for ever.
    fn finds_death(&mut self) -> bool {
        if self.shared.process.is_none() {
            return false;
        }
        let now = Instant::now();
        if self.death_checked.is_some_and(|last| now - last < DEATH_CHECK_EVERY) {
            return false;
        }
        self.death_checked = Some(now);
        self.shared.has_died()
    }
}

impl TransportSender for SocketSender {
    fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        if self.stream != 0 {
            return self.try_send_on_stream(payload);
        }
        let mut progress = Progress::default();
        match self.send_on(payload, &mut progress) {
            Err(NotSent::Full) if progress.started => {
                self.keep(payload, &progress);
                Ok(())
            }
            other => other,
        }
    }

    fn send_on(&mut self, payload: &[u8], progress: &mut Progress) -> Result<(), NotSent> {
        if self.stream != 0 {
            return self.send_on_stream(payload, progress);
        }
        self.check()?;
        if !progress.started {
            self.check_length(payload.len() as u64)?;
            self.write_rest()?;
            self.framing = framing(self.position, payload.len());
        }
        let total = self.framing.len + payload.len();
        while progress.sent < total {
            let framing =
                &self.framing.bytes[progress.sent.min(self.framing.len)..self.framing.len];
            let bytes = &payload[progress.sent.saturating_sub(self.framing.len)..];
            let written =
                self.shared.socket.write(&[IoSlice::new(framing), IoSlice::new(bytes)], true);
            let written = self.judge(written)?;
            if !progress.started {
                progress.started = true;
                self.in_pieces = true;
                self.position = self.position.plus(self.framing.footprint);
            }
            progress.sent += written;
        }
        self.in_pieces = false;
        self.count(payload.len());
        self.offer_boundary();
        Ok(())
    }

    fn give_up(&mut self, payload: &[u8], progress: &Progress) -> Result<(), SendError> {
        if !progress.started {
            return Err(SendError::TimedOut);
        }
        self.keep(payload, progress);
        Ok(())
    }

    fn reserve(&mut self, len: usize) -> Result<Memory, NotSent> {
        self.check()?;
        self.check_length(len as u64)?;
        self.offer_boundary();
        Ok(Memory::Private(vec![0; len]))
    }

    fn commit(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        let Some(taken) = memory.take() else { return Ok(()) };
        let sent = self.send_on(taken.as_slice(), progress);
        if sent.is_err() {
            *memory = Some(taken);
        }
        sent
    }

    fn release(&mut self, memory: Memory) {
        drop(memory);
    }

    fn add_to_batch(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        self.check_length(payload.len() as u64)?;
        if self.batch.is_empty() {
            self.batch_end = self.position;
        }
        let framing = framing(self.batch_end, payload.len());
        let open = self.batch_end.since(self.position);
        let is_full = open + framing.footprint > self.batch_footprint_max
            || (self.batch.len() + payload.len()) as u64 > self.batch_bytes_max.max(1 << 16);
        if is_full {
            let (len, max) = (payload.len() as u64, self.batch_footprint_max - open);
            return Err(NotSent::from(TooLarge { len, max, limit: Limit::Batch }));
        }
        self.batch.extend_from_slice(&framing.bytes[..framing.len]);
        self.batch.extend_from_slice(payload);
        self.batch_end = self.batch_end.plus(framing.footprint);
        self.batch_messages += 1;
        self.batch_bytes += payload.len() as u64;
        Ok(())
    }

    fn commit_batch(&mut self) -> Result<(), NotSent> {
        self.check()?;
        self.write_rest()?;
        if self.batch.is_empty() {
            return Ok(());
        }
        // The kernel has accepted all earlier bytes, so `rest` is empty, and the bytes of the batch
        // take its place.
        self.rest.clear();
        self.rest_sent = 0;
        std::mem::swap(&mut self.rest, &mut self.batch);
        self.position = self.batch_end;
        self.stats.messages += std::mem::take(&mut self.batch_messages);
        self.stats.bytes += std::mem::take(&mut self.batch_bytes);
        let written = self.write_rest();
        self.offer_boundary();
        match written {
            Err(NotSent::Full) => Ok(()),
            other => other,
        }
    }

    fn abort_batch(&mut self) {
        self.batch.clear();
        self.batch_messages = 0;
        self.batch_bytes = 0;
        self.offer_boundary();
    }

    fn trim(&mut self, all: bool) -> Result<(), NotSent> {
        self.check()?;
        if all && self.rest_sent == self.rest.len() {
            (self.rest, self.batch) = (Vec::new(), Vec::new());
            self.rest_sent = 0;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NotSent> {
        self.check()?;
        let written = self.write_rest();
        self.offer_boundary();
        written
    }

    fn arm(&mut self, _quiet: bool) -> Result<(), Fault> {
        self.stats.sleeps += 1;
        self.shared.space.check_descriptor().map_err(waiting_failed)?;
        self.shared.check()
    }

    fn disarm(&mut self) {}

    fn note_hang_up(&mut self) {
        self.end = Some(Closed::Disconnected);
    }

    fn close(&mut self) {
        if self.shared.connection_state.guard.is_child() {
            return;
        }
        // If the caller called `begin_close` before, it has waited for room already, so `close`
        // does not wait.
        let deadline = (!self.is_closing).then(|| Instant::now() + LINGER);
        while self.begin_close() && deadline.is_some() && !has_passed(deadline) {
            if self.shared.sleep(deadline).unwrap_or(true) {
                break;
            }
        }
        if self.is_switching && !self.has_unsent() {
            if let Some(pending) = self.pending_move.take() {
                if let Some(mut sender) = self.become_shared(&pending) {
                    sender.close();
                    return;
                }
            }
        }
        let _ = self.shared.socket.shutdown_write();
        if let Some(pending) = &self.shared.pending_move {
            pending.close_sender();
        }
        self.shared.depart();
    }

    fn stats(&self) -> SenderStats {
        let rest = (self.rest.len() - self.rest_sent) as u64;
        SenderStats {
            memory_bytes: self.rest.capacity() as u64,
            memory_used_bytes: rest,
            ..self.stats
        }
    }

    fn set_stream(&mut self, stream: u32, credit: Option<u64>) -> Result<(), NotSent> {
        if let Some(credited) = credit {
            self.control(Kind::Credit, stream, U64::new(credited).as_bytes())?;
        }
        self.stream = stream;
        Ok(())
    }

    fn control(&mut self, kind: Kind, stream: u32, body: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        if self.rest.len() - self.rest_sent >= KEPT_BYTES_MAX {
            self.write_rest()?;
        }
        self.stream = stream;
        let header = self.header(kind, body.len());
        self.rest.extend_from_slice(header.to_wire().as_bytes());
        self.rest.extend_from_slice(body);
        self.position = self.position.plus(header.footprint());
        Ok(())
    }

    fn publish(&mut self) -> Result<(), NotSent> {
        self.check()?;
        let written = self.write_rest();
        self.offer_boundary();
        match written {
            Err(NotSent::Full) => Ok(()),
            other => other,
        }
    }

    fn has_unsent(&self) -> bool {
        self.rest_sent < self.rest.len()
    }

    fn space(&self) -> Arc<dyn SpaceWaiter> {
        match &self.space {
            Some(space) => Arc::clone(space) as _,
            None => Arc::clone(&self.shared) as _,
        }
    }

    fn enable_streams(&mut self) {
        self.has_streams = true;
    }
}

fn framing(position: Position, len: usize) -> Framing {
    let mut bytes = [0; FRAMING_MAX];
    let (record, rest) = bytes.split_at_mut(FRAMING_MAX - size_of::<BlobBody>());
    if len <= DATA_BYTES_SHOULD {
        #[expect(clippy::cast_possible_truncation, reason = "less than 16 KiB")]
        let header = RecordHeader { position, kind: Kind::Data, len: len as u32, stream: 0 };
        record.copy_from_slice(header.to_wire().as_bytes());
        return Framing { bytes, len: record_len(), footprint: footprint(len as u64) };
    }
    #[expect(clippy::cast_possible_truncation, reason = "32")]
    let body_len = size_of::<BlobBody>() as u32;
    let header = RecordHeader { position, kind: Kind::Blob, len: body_len, stream: 0 };
    record.copy_from_slice(header.to_wire().as_bytes());
    let zero = U64::new(0);
    let body = BlobBody {
        block: zero,
        segment: U32::new(0),
        zero: U32::new(0),
        offset: zero,
        length: U64::new(len as u64),
    };
    rest.copy_from_slice(body.as_bytes());
    Framing { bytes, len: FRAMING_MAX, footprint: footprint(body_len.into()) }
}

const fn record_len() -> usize {
    FRAMING_MAX - size_of::<BlobBody>()
}
