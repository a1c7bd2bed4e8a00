// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiver of the socket transport: reads many records at a time, and large messages directly
//! into their own memory.
//!
//! ```text
//!   buffer  │ parsed │ DATA │ DATA │ BLOB header and body │ …   as long as the longest DATA record
//!   large   the bytes of the message that follows a BLOB; the memory for these bytes grows as they
//!           arrive, up to the length that the BLOB announces
//! ```

use super::pending_move::PendingMove;
use super::{DATA_BYTES_MAX, SocketShared, check_payload, is_gone};
use crate::error::{Closed, Fault};
use crate::message::Message;
use crate::stats::ReceiverStats;
use crate::transport::shm::ShmReceiver;
use crate::transport::{
    Found, TransportReceiver, Waited, has_passed, is_of_sessions, waiting_failed,
};
use partywall_layout::record_ring::{BlobBody, Kind, Position, WireHeader};
use partywall_layout::{RecordHeader, Violation};
use partywall_sys::socket::Family;
use partywall_wait::{SpinOutcome, Spinner, Wait};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;
use zerocopy::FromBytes;

/// The receiving end of a connection over a socket: reads bytes into a buffer and parses records.
#[derive(Debug)]
pub(crate) struct SocketReceiver {
    shared: Arc<SocketShared>,
    position: Position,
    buffer: Vec<u8>,
    /// Index of the first byte in `buffer` that was read and not parsed yet. The next field, `end`,
    /// is the index after the last such byte.
    start: usize,
    end: usize,
    large: Option<Large>,
    /// Length in bytes of the current message if it lies in the buffer, where it begins at `start`.
    current: Option<usize>,
    /// The current message, if it is a large one, which does not lie in the buffer.
    held: Option<Message>,
    /// Whether the current message was returned as a view, so that the next `find` consumes it.
    is_viewed: bool,
    /// Whether this is the receiver of a session; `stream` is then the stream of the current
    /// message.
    has_streams: bool,
    stream: u32,
    /// Whether the last read took every byte that had arrived. If so, the next `find` may block in
    /// its read.
    is_drained: bool,
    /// Whether the peer's process died. Bytes that the process sent before are delivered before the
    /// receiver reports the end of the direction.
    died: bool,
    ended: Option<Closed>,
    /// Number of calls of `try_recv` that found no message. After every `EMPTY_POLLS_MAX` of them,
    /// the receiver checks whether the peer lives.
    empty_polls: u32,
    stats: ReceiverStats,
    /// The connection's pending move to shared memory. The field is `None` once the receiver has
    /// switched, or if the connection does not move.
    pending_move: Option<Arc<PendingMove>>,
    /// Received descriptors of a record that is not parsed yet. Only the record MOVE has a
    /// descriptor.
    arrived: Vec<OwnedFd>,
    /// Index in `buffer` where the bytes end that arrived together with the descriptor. The index
    /// is 0 if these bytes belonged to a record other than MOVE.
    arrived_end: usize,
    /// Whether the kernel dropped descriptors that the peer sent, because this process could hold
    /// no more.
    is_truncated: bool,
    /// Whether this side is an acceptor that awaits the record MOVE. Only then does it receive
    /// descriptors together with bytes.
    awaits_move: bool,
    /// The receiver over shared memory, which continues this direction. The field is set when the
    /// record SWITCH was parsed.
    switched: Option<Box<ShmReceiver>>,
}

/// A large message of which not all bytes have arrived, with the memory into which they are read.
#[derive(Debug)]
struct Large {
    /// The received bytes of the large message, followed by zeroed memory for its further bytes.
    bytes: Vec<u8>,
    filled: usize,
    len: usize,
}

impl Large {
    /// Adds bytes of the large message that were read into the buffer together with other records.
    fn put(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.bytes.truncate(self.filled);
            self.bytes.extend_from_slice(bytes);
            self.filled = self.bytes.len();
        }
    }

    /// Returns the memory for the next bytes of the large message, empty if no byte is missing.
    /// Also returns the count of received bytes, which the caller raises after reading.
    fn room(&mut self) -> (&mut [u8], &mut usize) {
        if self.filled == self.bytes.len() {
            let step = self.filled.max(LARGE_STEP).min(self.len - self.filled);
            self.bytes.reserve_exact(step);
            // The memory is zeroed, because safe code reads only into initialised memory. Each byte
            // is zeroed once.
            self.bytes.resize(self.filled + step, 0);
        }
        (&mut self.bytes[self.filled..], &mut self.filled)
    }
}

/// The violation of a peer that sends a descriptor with a record other than MOVE.
const STRAY: Violation = Violation::Frame { what: "descriptor without MOVE", found: 1 };
const HEADER: usize = size_of::<WireHeader>();
const BODY: usize = size_of::<BlobBody>();
/// Size of the receiver's buffer in bytes, so that it holds the longest DATA record.
const BUFFER_BYTES: usize = HEADER + DATA_BYTES_MAX as usize;
/// Least number of bytes by which the memory of a large message grows. Each later growth at most
/// doubles that memory, so a peer that announces many bytes and sends few costs little memory.
const LARGE_STEP: usize = 1 << 20;
/// A receiver that never blocks checks for the peer's death once per this many polls that find no
/// message. Each check is a system call.
const EMPTY_POLLS_MAX: u32 = 256;
/// Most reads in one call, so that `try_recv` returns even if the sender never stops.
const READS_MAX: usize = 64;

enum Read {
    Some,
    Nothing,
    End,
}

impl SocketReceiver {
    pub(super) fn new(shared: Arc<SocketShared>) -> Self {
        let pending_move = shared.pending_move.clone();
        Self {
            awaits_move: pending_move.as_ref().is_some_and(|pending| pending.awaits_move()),
            pending_move,
            arrived: Vec::new(),
            arrived_end: 0,
            is_truncated: false,
            switched: None,
            shared,
            position: Position(0),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            large: None,
            current: None,
            held: None,
            is_viewed: false,
            has_streams: false,
            stream: 0,
            is_drained: false,
            died: false,
            ended: None,
            empty_polls: 0,
            stats: ReceiverStats::default(),
        }
    }

    /// Returns the receiver over shared memory if the record SWITCH was parsed. The receiver on the
    /// socket has then left the socket.
    pub(crate) fn take_switched(&mut self) -> Option<ShmReceiver> {
        let mut receiver = *self.switched.take()?;
        receiver.continue_from(&self.stats, self.has_streams);
        let origin = Arc::downgrade(&self.shared);
        receiver.shared().began_on(origin);
        receiver.adopt_records_set(self.shared.hand_over_records_set());
        self.shared.depart();
        Some(receiver)
    }

    /// Handles a record MOVE or SWITCH, the two kinds of a move to shared memory (SPEC 8.5). Parses
    /// the next record after MOVE.
    #[cold]
    fn on_move(
        &mut self,
        record: &RecordHeader,
        bytes_after: usize,
    ) -> Result<Option<Found>, Violation> {
        let (position, kind) = (record.position.0, record.kind as u8);
        let Some(pending) = self.pending_move.clone() else {
            return Err(Violation::Unexpected { position, kind });
        };
        // A read returns no bytes after those that arrived together with a descriptor. So if the
        // descriptor belongs to this record, the end of that read lies within the record.
        let end = self.start + HEADER + record.len as usize;
        let is_of_move = (self.start + 1..=end).contains(&self.arrived_end);
        self.start += HEADER;
        self.position = self.position.plus(record.footprint());
        if record.kind == Kind::Move {
            self.awaits_move = false;
            if !is_of_move && !self.arrived.is_empty() {
                return Err(STRAY);
            }
            let descriptors = std::mem::take(&mut self.arrived);
            pending.received(record, descriptors, self.is_truncated)?;
            return self.parse();
        }
        if bytes_after > 0 {
            // The record SWITCH must be the last one on the socket, so any byte after it is a
            // violation.
            let (position, kind) = (self.position.0, self.buffer[self.start] >> 1 & 31);
            return Err(Violation::Unexpected { position, kind });
        }
        self.switched = Some(pending.switch_receiver(record)?);
        self.pending_move = None;
        Ok(Some(Found::Nothing))
    }

    #[cold]
    fn advance_move(&mut self) -> Result<(), Violation> {
        let Some(pending) = &self.pending_move else { return Ok(()) };
        pending.advance_receiver(&self.shared.socket)?;
        if pending.stays() {
            self.pending_move = None;
            self.awaits_move = false;
        }
        Ok(())
    }

    /// Reads bytes from the socket, and the descriptors that arrive with these bytes. More than one
    /// descriptor is a violation, because only the record MOVE has a descriptor.
    fn receive(&mut self, nonblocking: bool) -> io::Result<Result<usize, Violation>> {
        if !self.arrived.is_empty() && self.arrived_end == 0 {
            return Ok(Err(STRAY));
        }
        let received = self.shared.socket.receive(&mut self.buffer[self.end..], nonblocking)?;
        self.is_truncated |= received.truncated;
        if !received.fds.is_empty() {
            self.arrived_end = self.end + received.bytes;
        }
        self.arrived.extend(received.fds);
        let found = self.arrived.len() as u64;
        if found > 1 {
            let what = "descriptors on the socket";
            return Ok(Err(Violation::Frame { what, found }));
        }
        Ok(Ok(received.bytes))
    }

    /// Reads and discards the bytes that have arrived. A peer that waits for room in the socket
    /// does not notice that this side shut down. Room wakes the peer, and its next write fails.
    fn make_room(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.buffer.resize(BUFFER_BYTES, 0);
        for _ in 0..READS_MAX {
            // A Unix socket that was shut down receives no more bytes, so the reads end. On TCP,
            // the peer would never notice the shutdown, and the number of reads is limited.
            if !matches!(self.shared.socket.read(&mut self.buffer, true), Ok(1..)) {
                break;
            }
        }
    }

    /// Whether the received bytes complete a message, or begin with a record for which `find`
    /// returns without reading more.
    fn is_ready(&self) -> bool {
        let unread = &self.buffer[self.start..self.end];
        if let Some(large) = &self.large {
            return large.filled + unread.len() >= large.len;
        }
        let Ok((wire, after)) = WireHeader::read_from_prefix(unread) else { return false };
        let second = u64::from(wire.len.get());
        let moves = self.shared.pending_move.is_some();
        match RecordHeader::check_words(self.position, wire.word0.get(), second, moves) {
            Ok(record) if self.has_streams || matches!(record.kind, Kind::Data | Kind::Blob) => {
                after.len() >= record.len as usize
            }
            // The record is no message of the channel, such as a record CLOSE_WRITE, or it breaks a
            // rule of the protocol: `find` returns without blocking in both cases.
            _ => true,
        }
    }

    fn sleep(&mut self, wait: Wait, deadline: Option<Instant>) -> Result<(), Fault> {
        if let Wait::Poll(period) = wait {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            std::thread::sleep(left.map_or(period, |left| left.min(period)));
            self.is_drained = false;
            return Ok(());
        }
        if deadline.is_none() && self.shared.process.is_none() {
            // Without a pidfd and a deadline, only the socket can wake this thread, so the read
            // itself blocks.
            if matches!(self.read(false)?, Read::End) {
                self.ended = Some(Closed::Disconnected);
            }
            return Ok(());
        }
        self.died |= self.shared.sleep_for_records(deadline).map_err(waiting_failed)?.died;
        self.is_drained = false;
        Ok(())
    }

    /// Parses the next whole record in the buffer, if there is one.
    fn parse(&mut self) -> Result<Option<Found>, Violation> {
        if let Some(large) = &mut self.large {
            // The buffer may already contain the first bytes of a large message.
            let taken = (self.end - self.start).min(large.len - large.filled);
            large.put(&self.buffer[self.start..self.start + taken]);
            self.start += taken;
            if large.filled < large.len {
                return Ok(None);
            }
            let bytes = self.large.take().map(|large| large.bytes).unwrap_or_default();
            self.count(bytes.len());
            self.held = Some(Message::from_vec(bytes));
            return Ok(Some(Found::Message));
        }
        let unread = &self.buffer[self.start..self.end];
        let Ok((wire, after)) = WireHeader::read_from_prefix(unread) else { return Ok(None) };
        let second = u64::from(wire.len.get()) | u64::from(wire.stream.get()) << 32;
        let moves = self.shared.pending_move.is_some();
        let record = RecordHeader::check_words(self.position, wire.word0.get(), second, moves)?;
        match record.kind {
            _ if self.has_streams && is_of_sessions(&record) => {
                check_payload(&record)?;
                if after.len() < record.len as usize {
                    return Ok(None);
                }
                self.start += HEADER;
                self.position = self.position.plus(record.footprint());
                Ok(Some(Found::Control(record)))
            }
            Kind::Data => {
                check_payload(&record)?;
                if u64::from(record.len) > self.shared.message_max {
                    let (len, max) = (record.len.into(), self.shared.message_max);
                    return Err(Violation::MessageLength { len, max });
                }
                if after.len() < record.len as usize {
                    return Ok(None);
                }
                self.start += HEADER;
                self.position = self.position.plus(record.footprint());
                self.stream = record.stream;
                self.current = Some(record.len as usize);
                Ok(Some(Found::Message))
            }
            Kind::Blob => self.begin_large(&record),
            Kind::Move | Kind::Switch => {
                let bytes_after = after.len();
                self.on_move(&record, bytes_after)
            }
            Kind::CloseWrite if record.len > 0 => {
                let (position, found) = (self.position.0, record.len.into());
                let what = "body where none may be";
                Err(Violation::Body { position, what, found })
            }
            Kind::CloseWrite if !after.is_empty() => {
                // Bytes after a CLOSE_WRITE record are a violation, because no record may follow
                // it.
                let (position, kind) = (self.position.plus(record.footprint()).0, after[0] >> 1);
                Err(Violation::Unexpected { position, kind: kind & 31 })
            }
            Kind::CloseWrite => {
                self.ended = Some(Closed::Finished);
                Ok(Some(Found::End(Closed::Finished)))
            }
            other => {
                let (position, kind) = (self.position.0, other as u8);
                Err(Violation::Unexpected { position, kind })
            }
        }
    }

    fn begin_large(&mut self, record: &RecordHeader) -> Result<Option<Found>, Violation> {
        let bad = |what, found| Violation::Body { position: record.position.0, what, found };
        if record.len as usize != BODY {
            return Err(bad("blob length", record.len.into()));
        }
        let after = &self.buffer[self.start + HEADER..self.end];
        let Ok((body, _)) = BlobBody::read_from_prefix(after) else { return Ok(None) };
        let others =
            body.block.get() | body.offset.get() | u64::from(body.segment.get() | body.zero.get());
        if others != 0 {
            return Err(bad("blob body on a socket", others));
        }
        let (len, max) = (body.length.get(), self.shared.message_max);
        if len > max {
            return Err(Violation::MessageLength { len, max });
        }
        let Ok(len) = usize::try_from(len) else {
            return Err(Violation::MessageLength { len, max });
        };
        self.start += HEADER + BODY;
        self.position = self.position.plus(record.footprint());
        self.stream = record.stream;
        self.large = Some(Large { bytes: Vec::new(), filled: 0, len });
        // The buffer may already contain all bytes of the large message that was just begun.
        self.parse()
    }

    /// Reads once: into the large message that is arriving, or into the buffer. If the buffer has
    /// no room, it contains unparsed bytes, and nothing is read. A read of 0 bytes would be taken
    /// for end-of-file.
    fn read(&mut self, nonblocking: bool) -> Result<Read, Fault> {
        let is_large = self.large.is_some();
        let (place, filled) = match &mut self.large {
            Some(large) if self.start == self.end => large.room(),
            _ => {
                if self.buffer.is_empty() {
                    self.buffer.resize(BUFFER_BYTES, 0);
                }
                if self.start > 0 {
                    self.buffer.copy_within(self.start..self.end, 0);
                    self.arrived_end = self.arrived_end.saturating_sub(self.start);
                    (self.start, self.end) = (0, self.end - self.start);
                }
                (&mut self.buffer[self.end..], &mut self.end)
            }
        };
        let room = place.len();
        if room == 0 {
            return Ok(Read::Some);
        }
        if self.awaits_move && !is_large {
            let read = match self.receive(nonblocking) {
                Ok(Err(violation)) => return Err(self.shared.violated(violation)),
                Ok(Ok(count)) => Ok(count),
                Err(error) => Err(error),
            };
            self.end += read.as_ref().map_or(0, |count| *count);
            return self.judge(read, room);
        }
        let read = self.shared.socket.read(place, nonblocking);
        *filled += read.as_ref().map_or(0, |count| *count);
        self.judge(read, room)
    }

    fn judge(&mut self, read: io::Result<usize>, room: usize) -> Result<Read, Fault> {
        match read {
            Ok(0) => Ok(Read::End),
            Ok(count) => {
                self.is_drained = count < room;
                Ok(Read::Some)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Read::Nothing),
            Err(error) if is_gone(&error) => Ok(Read::End),
            Err(error) => Err(Fault::system("reading from the socket", error)),
        }
    }

    fn count(&mut self, len: usize) {
        self.stats.messages += 1;
        self.stats.bytes += len as u64;
        if let Some(pending) = &self.pending_move {
            pending.count_received();
        }
    }

    /// Appends the current message to `queue`, for the caller to consume it by `done`.
    pub(crate) fn append_to(&mut self, queue: &mut VecDeque<Message>) {
        match self.held.take() {
            Some(message) => queue.push_back(message),
            None => Message::push_copied(queue, self.current()),
        }
    }
}

impl TransportReceiver for SocketReceiver {
    fn find(&mut self, may_wait: bool) -> Result<Found, Fault> {
        self.shared.check()?;
        if self.current.is_some() || self.held.is_some() {
            if !std::mem::take(&mut self.is_viewed) {
                return Ok(Found::Message);
            }
            self.done();
        }
        for _ in 0..READS_MAX {
            if let Some(closed) = self.ended {
                return Ok(Found::End(closed));
            }
            let parsed = self.parse().and_then(|found| {
                if found.is_some() && self.pending_move.is_some() {
                    self.advance_move()?;
                }
                Ok(found)
            });
            if let Some(found) = parsed.map_err(|violation| self.shared.violated(violation))? {
                return Ok(found);
            }
            if may_wait && std::mem::take(&mut self.is_drained) {
                return Ok(Found::Nothing);
            }
            match self.read(true)? {
                Read::Some => {}
                Read::Nothing if self.died => self.ended = Some(Closed::Disconnected),
                Read::Nothing => return Ok(Found::Nothing),
                Read::End => self.ended = Some(Closed::Disconnected),
            }
        }
        Ok(Found::Nothing)
    }

    fn enable_streams(&mut self) {
        self.has_streams = true;
        // Notes that the connection carries the streams of a session. The ignored error only means
        // that this was noted before.
        let _ = self.shared.carries_streams.set(());
    }

    fn stream(&self) -> u32 {
        self.stream
    }

    fn body(&self, record: &RecordHeader, from: usize, into: &mut [u8]) {
        let payload = &self.buffer[self.start..self.start + record.len as usize];
        into.copy_from_slice(&payload[from..from + into.len()]);
    }

    fn pass(&mut self, record: &RecordHeader) {
        self.start += record.len as usize;
    }

    fn current(&self) -> &[u8] {
        match (&self.held, self.current) {
            (Some(message), _) => message,
            (None, Some(len)) => &self.buffer[self.start..self.start + len],
            (None, None) => &[],
        }
    }

    fn current_len(&self) -> usize {
        self.held.as_ref().map(Message::len).or(self.current).unwrap_or_default()
    }

    fn take(&mut self) -> Message {
        if let Some(message) = self.held.take() {
            return message;
        }
        let message = Message::copied(self.current());
        self.done();
        message
    }

    fn done(&mut self) {
        self.held = None;
        if let Some(len) = self.current.take() {
            self.start += len;
            self.count(len);
        }
    }

    fn begin_view(&mut self) {
        self.is_viewed = true;
    }

    fn end_view(&mut self) -> bool {
        std::mem::take(&mut self.is_viewed)
    }

    fn wait(
        &mut self,
        wait: Wait,
        spinner: &mut Spinner,
        deadline: Option<Instant>,
    ) -> Result<Waited, Fault> {
        if self.is_ready() {
            return Ok(Waited::Again);
        }
        let mut failed = None;
        loop {
            let spun = spinner.spin(wait, || match self.read(true) {
                Ok(Read::Nothing) => false,
                Ok(Read::Some) => true,
                Ok(Read::End) => {
                    self.ended = Some(Closed::Disconnected);
                    true
                }
                Err(fault) => {
                    failed = Some(fault);
                    true
                }
            });
            match (spun, failed.take()) {
                (_, Some(fault)) => return Err(fault),
                (SpinOutcome::Ready, None) => {
                    self.stats.spin_hits += 1;
                    return Ok(Waited::Again);
                }
                (SpinOutcome::Exhausted, None) => break,
                (SpinOutcome::CheckDue, None) => {
                    let woken = self.shared.sleep_for_records(Some(Instant::now()));
                    self.died |= woken.map_err(waiting_failed)?.died;
                    if self.died {
                        return Ok(Waited::Again);
                    }
                }
            }
            if has_passed(deadline) {
                return Ok(Waited::TimedOut);
            }
        }
        if has_passed(deadline) {
            return Ok(Waited::TimedOut);
        }
        self.stats.sleeps += 1;
        self.sleep(wait, deadline)?;
        Ok(Waited::Again)
    }

    fn arm(&mut self, _quiet: bool) -> Result<bool, Fault> {
        self.shared.check()?;
        if self.ended.is_some() || self.died || self.current.is_some() || self.held.is_some() {
            return Ok(true);
        }
        if self.is_ready() {
            return Ok(true);
        }
        self.shared.records.check_descriptor().map_err(waiting_failed)?;
        let woken = self.shared.sleep_for_records(Some(Instant::now())).map_err(waiting_failed)?;
        self.is_drained = false;
        Ok(woken.socket || woken.died)
    }

    fn notice_end(&mut self) -> Result<bool, Fault> {
        self.empty_polls = (self.empty_polls + 1) % EMPTY_POLLS_MAX;
        if self.empty_polls == 0 && self.shared.process.is_some() {
            let woken = self.shared.sleep_for_records(Some(Instant::now()));
            self.died |= woken.map_err(waiting_failed)?.died;
        }
        Ok(self.died)
    }

    fn awaits_end(&self) -> bool {
        let is_open = self.has_streams && self.ended.is_none();
        is_open
            && self.shared.end_given_up.get().is_none()
            && self.shared.socket.family() == Family::Tcp
    }

    fn give_up_end(&self) {
        let _ = self.shared.end_given_up.set(());
    }

    fn close(&mut self) {
        if self.shared.connection_state.guard.is_owner() {
            self.shared.stop_receiving();
            self.make_room();
            if let Some(pending) = &self.shared.pending_move {
                pending.close_receiver();
            }
            self.shared.depart();
        }
    }

    fn stats(&self) -> ReceiverStats {
        self.stats
    }

    fn violated(&self, violation: Violation) -> Fault {
        self.shared.violated(violation)
    }

    fn message_max(&self) -> u64 {
        self.shared.message_max
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.records_descriptor()
    }
}
