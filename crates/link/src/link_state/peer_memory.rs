// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peer's memory of a link, mapped read-only. This end reads there the peer's records and
//! acknowledgements, and whether the peer sleeps (SPEC 16).
//!
//! ```text
//!   descriptor, ─▶ a sealed memfd: mapped                       ─▶ PeerMapping
//!   of our user └▶ a file: mapped, and guarded against SIGBUS ┘     │ if the header has the
//!                                                                   ▼ store id and sizes of ATTACH
//!   PeerMemory
//!   ring     word0 ─ load once ─▶ header ─ check ─▶ copy ─ check ─▶ if of our stream ─▶ inbox
//!   slab                          of a BLOB: copy ─ blob_crc ┘
//!   control  if `consumed` has changed: two slots, if sealed and of our stream ─▶ position
//!            asleep_records, asleep_room ─▶ whether to notify the peer
//! ```
//!
//! A record is copied and checked on one of the following paths. Nearly all messages take the first
//! path while two processes exchange them in step. An invalid compact record falls through to the
//! second path, which finds the fault. The log is that of the inbox.
//!
//! ```text
//!   header ─ check ─▶ compact, short ─▶ copy into the log, with the tag ─▶ check the crc
//!                  ├▶ short          ─▶ copy into the log               ─▶ LinkRecord::check
//!                  ├▶ long           ─▶ copy into memory of its own     ─▶ LinkRecord::check
//!                  └▶ BLOB           ─▶ copy record and slab bytes      ─▶ check both checksums
//! ```
//!
//! If an end cannot map the peer's memory, or that memory has another store id than ATTACH named,
//! the connection uses the socket: that is no violation. No function of this file blocks, or writes
//! to the peer's memory.
//!
//! # Invariants
//!
//! - Every word is loaded once, and checked before it is used; every payload is copied before it is
//!   checked.
//! - The result of a read is a record that the peer wrote, nothing, or the end of the connection.
//! - Nothing that the peer does to its file, such as truncating it, kills this process.

use std::cell::UnsafeCell;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use partywall_layout::link::compact;
use partywall_layout::link::record::{self, Ack, Body, LinkRecord};
use partywall_layout::link::{LINK_CONTROL_OFFSET, PARTS_OFFSET, SENDING_STREAM, header};
use partywall_layout::record_ring::{self, Kind, RingSize, SLOT_BYTES};
use partywall_layout::segment::{ASLEEP_RECORDS, ASLEEP_ROOM, CONSUMED, PAGE_BYTES};
use partywall_reconcile::{Position, RecordDigest, StreamId};
use partywall_ring::{PeerMem, Readable, Wake, Waker};
use partywall_sys::memory::map_memory;
use partywall_sys::peer::own_euid;
use partywall_sys::persistent_file::FileStat;
use partywall_sys::sigbus::TableFull;
use partywall_sys::{FileView, MapError};

use super::conn::ConnId;
use super::end::{End, Violation};
use super::inbox::{Arrived, Entry, HEADER, Inbox, LOGGED_MAX, Log, Stored, as_usize};
use crate::protocol::frame::{Attach, Window};
use crate::store::slots::consumed_of;

/// The mapped memory of a peer, whose contents are not checked yet.
pub(crate) struct PeerMapping {
    memory: PeerMem,
    bytes: u64,
    /// The guarded mapping of a file, which the peer could truncate; `None` for a sealed memfd.
    view: Option<Arc<View>>,
}

/// Reason why the memory of a peer was not mapped. The connection then uses the socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerMappingError {
    /// Another user owns the memory, and could change it.
    #[error("the peer's memory belongs to user {owner}, this process runs as {user}")]
    NotOurs {
        /// The user id of the owner of the peer's memory.
        owner: u32,
        /// The effective user id of this process.
        user: u32,
    },
    /// The peer's descriptor is neither that of a file nor of a memfd, or the memory behind the
    /// descriptor is too small or too large for a link.
    #[error("the peer's memory has {size} bytes, where {PARTS_OFFSET} to {limit} are taken")]
    Size {
        /// The size of the memory in bytes; 0 if the descriptor is not that of a file or memfd.
        size: u64,
        /// The largest size in bytes that this end accepts.
        limit: u64,
    },
    /// The system refused to map the memory, for the reason given.
    #[error("the peer's memory cannot be mapped: {0}")]
    Map(#[from] std::io::Error),
    /// The memfd lacks a property, such as a seal, that the rules for memfds require; the error
    /// says which.
    #[error(transparent)]
    Memfd(#[from] MapError),
    /// The table of guarded mappings, which protect this process against a truncated file, is full.
    /// So the file is not mapped.
    #[error(transparent)]
    Unguarded(#[from] TableFull),
}

impl PeerMapping {
    /// Maps the memory behind a peer's `descriptor` if it has at most `limit` bytes. The caller may
    /// close the descriptor afterwards.
    pub(crate) fn map(descriptor: BorrowedFd<'_>, limit: u64) -> Result<Self, PeerMappingError> {
        let FileStat { owner, is_regular, size, .. } = FileStat::of(descriptor)?;
        if owner != own_euid() {
            return Err(PeerMappingError::NotOurs { owner, user: own_euid() });
        }
        if !is_regular || size < PARTS_OFFSET || size > limit {
            let size = if is_regular { size } else { 0 };
            return Err(PeerMappingError::Size { size, limit });
        }
        match map_memory(descriptor, size, limit) {
            Ok(memory) => return Ok(Self { memory, bytes: size, view: None }),
            // The descriptor is not a memfd, or the memfd lacks seals. So the memory is mapped
            // below as that of a file, which its owner could truncate.
            Err(MapError::NotMemfd { .. } | MapError::MissingSeals { .. }) => {}
            Err(fault) => return Err(fault.into()),
        }
        let len = usize::try_from(size).map_err(std::io::Error::other)?;
        let view = FileView::read_only(descriptor.as_fd(), len)?.guarded()?;
        let view = Arc::new(View(view));
        let memory = PeerMem::new(Arc::<View>::clone(&view));
        Ok(Self { memory, bytes: size, view: Some(view) })
    }

    /// Splits the mapping into the parts (ring, slab, control page) that the connection `conn`
    /// reads. Returns `None` unless the memory has the store id and sizes that `attach` names.
    pub(super) fn parts(self, attach: &Attach, conn: ConnId) -> Option<PeerMemory> {
        // The header of the peer's memory is copied once, and the copy is checked and used, because
        // the peer may change the original.
        let mut page = vec![0; usize::try_from(PAGE_BYTES).ok()?];
        self.memory.copy(0, &mut page);
        let (header, geometry) = header::check(&page, self.bytes, None).ok()?;
        let is_named = header.store_id == attach.identity.store_id.0.to_le_bytes()
            && geometry.ring.bytes() == attach.window.ring_bytes
            && geometry.slab_bytes == attach.window.slab_bytes;
        if !is_named {
            return None;
        }
        let control = self.memory.part(LINK_CONTROL_OFFSET, PAGE_BYTES)?;
        Some(PeerMemory {
            conn,
            window: attach.window,
            fault: None,
            notified_tail: Position::START,
            notified_consumed: Position::START,
            records: Waker::new(&control, as_usize(ASLEEP_RECORDS)),
            room: Waker::new(&control, as_usize(ASLEEP_ROOM)),
            consumed_seen: None,
            control,
            ring: self.memory.part(geometry.ring_offset, geometry.ring.bytes())?,
            slab: self.memory.part(geometry.slab_offset, geometry.slab_bytes)?,
            ring_size: geometry.ring,
            damage: self.view.as_ref().map_or(&UNDAMAGED, |view| view.0.damage()),
            _view: self.view,
        })
    }
}

impl fmt::Debug for PeerMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerMapping({} bytes)", self.bytes)
    }
}

/// The parts of a peer's memory (ring, slab, control page), as one connection reads them. The peer
/// may change any byte at any time.
#[derive(Debug)]
pub(super) struct PeerMemory {
    pub(super) conn: ConnId,
    /// The sizes of the peer's ring and slab, which bound what the peer may have sent without an
    /// acknowledgement.
    pub(super) window: Window,
    /// A violation by the peer that was found where no error could be returned. The next call of
    /// [`pull`](Self::pull) returns the violation.
    pub(super) fault: Option<End>,
    /// The position at which our published records ended when we last checked whether the peer
    /// sleeps. The check is made again once records beyond this position are published.
    notified_tail: Position,
    /// The position up to which we had acknowledged when we last checked whether the peer sleeps.
    pub(super) notified_consumed: Position,
    records: Waker,
    room: Waker,
    /// The value of the peer's word `consumed` when this end last read the two slots with the
    /// peer's acked offset.
    consumed_seen: Option<u64>,
    control: PeerMem,
    ring: PeerMem,
    slab: PeerMem,
    ring_size: RingSize,
    /// The flag that is set once the peer's file was truncated and zeros replaced the missing part.
    /// For a sealed memfd, which cannot be truncated, it is never set.
    damage: &'static AtomicBool,
    /// Keeps the guarded mapping, and thereby the flag `damage`, as long as this memory is used.
    _view: Option<Arc<View>>,
}

/// A valid short compact record that was copied into the inbox's log.
#[derive(Clone, Copy)]
pub(super) struct ShortCompact {
    pub(super) end: Position,
    pub(super) footprint: u64,
    pub(super) digest: RecordDigest,
    pub(super) entry: Entry,
}

/// A valid compact record of the peer that was copied into memory of the fast path.
#[derive(Clone, Copy)]
pub(crate) struct Sealed {
    pub(super) end: Position,
    pub(super) footprint: u64,
    pub(super) digest: RecordDigest,
}

/// The result of one attempt to take a record out of the peer's ring.
#[derive(Debug)]
pub(super) enum Pulled {
    /// No message was taken: the peer has not published its next record, or the record was a PAD.
    Nothing,
    /// A message was taken, and is now in the inbox. Its record carries no acknowledgement.
    Message,
    /// A message was taken, and is now in the inbox. Its record begins at this position, and
    /// carries this acknowledgement.
    WithAck(Position, Ack),
}

/// A valid record that was copied out of the peer's ring.
#[derive(Debug)]
struct Copied {
    ack: Ack,
    footprint: u64,
    /// The message of the record; `None` if the record is a PAD.
    message: Option<Arrived>,
}

impl PeerMemory {
    /// Takes the next message of `stream` out of the peer's ring and into the inbox.
    ///
    /// # Errors
    /// Fails if the connection has to be closed. The inbox keeps nothing of a refused record,
    /// because a peer may repeat such records endlessly.
    #[inline(always)]
    pub(super) fn pull(&mut self, stream: StreamId, inbox: &mut Inbox) -> Result<Pulled, End> {
        if self.fault.is_some() {
            return self.fault.take().map_or(Ok(Pulled::Nothing), Err);
        }
        let end = inbox.log().end();
        let pulled = self.pull_next(stream, inbox);
        if pulled.is_err() {
            inbox.log().cut(end);
        }
        pulled
    }

    #[inline(always)]
    fn pull_next(&self, stream: StreamId, inbox: &mut Inbox) -> Result<Pulled, End> {
        let tag = record::tag(stream.0.get());
        // At most two records are read. If the first record is a PAD, the second record is at the
        // beginning of the ring, where no PAD can be.
        for _ in 0..2 {
            let at = inbox.received();
            let Some(words) = self.words(at) else {
                return self.check_whole().map(|()| Pulled::Nothing);
            };
            if let Some(compact) = self.take_short_compact(at, stream, words, inbox.log()) {
                inbox.arrive_next(at, compact.footprint)?;
                let ShortCompact { end, digest, entry, .. } = compact;
                inbox.keep_logged(at, end, digest, entry, &self.window)?;
                return Ok(Pulled::Message);
            }
            match self.pull_other(stream, tag, words, inbox)? {
                Pulled::Nothing => {}
                pulled => return Ok(pulled),
            }
        }
        Ok(Pulled::Nothing)
    }

    /// Takes the peer's next record, which is no valid short compact record, into the inbox.
    /// Returns `Nothing` if the record was a PAD.
    #[inline(never)]
    fn pull_other(
        &self,
        stream: StreamId,
        tag: u32,
        words: (u64, u64),
        inbox: &mut Inbox,
    ) -> Result<Pulled, End> {
        let at = inbox.received();
        let copied = self.copy(at, tag, words, inbox.log());
        self.check_still(stream)?;
        let Copied { ack, footprint, message } = copied?;
        inbox.arrive_next(at, footprint)?;
        let Some(message) = message else { return Ok(Pulled::Nothing) };
        inbox.keep(message, &self.window)?;
        Ok(Pulled::WithAck(at, ack))
    }

    /// Copies the record at `at`, which begins with `words`, into the inbox's log if it is a valid
    /// short compact record.
    ///
    /// If this function returns `None`, the log is unchanged. [`copy`](Self::copy) then finds a
    /// record of another kind, or the fault in this record.
    #[inline(always)]
    pub(super) fn take_short_compact(
        &self,
        at: Position,
        stream: StreamId,
        words: (u64, u64),
        log: &mut Log,
    ) -> Option<ShortCompact> {
        let from = log.end();
        let tag = record::tag(stream.0.get());
        let Sealed { end, footprint, digest } =
            self.copy_short_compact(at, stream, tag, words, log.room())?;
        Some(ShortCompact { end, footprint, digest, entry: log.since(from).behind(HEADER) })
    }

    /// Appends the peer's record at `at`, which begins with `words`, to the buffer `room` if it is
    /// a valid short compact record. The appended bytes are the record's header with `tag` (the tag
    /// of its stream), and its message. If the function returns `None`, `room` is unchanged.
    #[inline(always)]
    pub(super) fn copy_short_compact(
        &self,
        at: Position,
        stream: StreamId,
        tag: u32,
        words: (u64, u64),
        room: &mut Vec<u8>,
    ) -> Option<Sealed> {
        let (position, size) = (record_ring::Position(at.0), self.ring_size);
        let (len, crc) = compact::short_header(position, size, words, LOGGED_MAX)?;
        let footprint = record_ring::footprint(u64::from(len));
        let end = at.plus(footprint)?;
        let from = room.len();
        let head = compact::sealed_words(position, tag, len);
        self.ring.copy_headed_onto(head, self.offset(at) + HEADER, len as usize, room);
        if compact::crc_of(&room[from..]) != crc || !self.is_still(stream) {
            room.truncate(from);
            return None;
        }
        Some(Sealed { end, footprint, digest: RecordDigest(crc) })
    }

    /// Copies and checks the peer's record at `at`, whose first two words the caller has loaded. On
    /// an error, the caller truncates the inbox's log to its former end.
    fn copy(
        &self,
        at: Position,
        tag: u32,
        (first, second): (u64, u64),
        log: &mut Log,
    ) -> Result<Copied, End> {
        let (position, offset) = (record_ring::Position(at.0), self.offset(at));
        let (ring, size) = (&self.ring, self.ring_size);
        let checked = LinkRecord::check_header(position, tag, size, first, second);
        let header = checked.map_err(End::violation)?.ok_or_else(nothing)?;
        // A PAD has no bytes but its header. Any other record lies within the ring, as the check of
        // its header has ensured.
        let is_pad = header.kind == Kind::Pad;
        let len = HEADER + if is_pad { 0 } else { header.len as usize };
        let mut words = [0; HEADER];
        words[..8].copy_from_slice(&first.to_le_bytes());
        words[8..].copy_from_slice(&second.to_le_bytes());
        let fill = |room: &mut Vec<u8>| {
            room.extend_from_slice(&words);
            ring.copy_onto(offset + HEADER, len - HEADER, room);
        };
        let check = |bytes: &[u8]| {
            let checked = LinkRecord::check(position, tag, size, bytes);
            let record = checked.map_err(End::violation)?.ok_or_else(nothing)?;
            Ok(Checked::of(&record))
        };
        let (stored, checked) = if len <= LOGGED_MAX as usize {
            let end = log.end();
            let entry = log.append(fill);
            let checked = check(log.get(entry))?;
            if !matches!(checked.place, Place::Here(_)) {
                log.cut(end);
            }
            (Stored::Logged(entry), checked)
        } else {
            let mut room = Vec::with_capacity(len);
            fill(&mut room);
            let checked = check(&room)?;
            (Stored::Own(Bytes::from(room)), checked)
        };
        let Checked { ack, digest, place } = checked;
        let footprint = header.footprint();
        let (bytes, in_slab) = match place {
            Place::Nowhere => return Ok(Copied { ack, footprint, message: None }),
            Place::Here(prefix) => (stored.behind(prefix), false),
            Place::InSlab { offset, length, crc } => {
                (Stored::Own(self.blob(at, offset, length, crc)?), true)
            }
        };
        let end = at.plus(footprint);
        let end = end.ok_or_else(|| End::violation(Violation::OutOfOrder(at.0)))?;
        let message = Arrived { start: at, end, digest: RecordDigest(digest), bytes, in_slab };
        Ok(Copied { ack, footprint, message: Some(message) })
    }

    fn blob(&self, at: Position, offset: u64, length: u64, crc: u32) -> Result<Bytes, End> {
        let range = self.slab.range(offset, length);
        let range = range.ok_or_else(|| End::violation(Violation::Overfull))?;
        let mut bytes = Vec::with_capacity(range.len());
        self.slab.copy_onto(range.start, range.len(), &mut bytes);
        if record::blob_crc(&bytes) != crc {
            return Err(End::violation(Violation::BlobCrc(at.0)));
        }
        Ok(bytes.into())
    }

    /// Whether the next call of [`pull`](Self::pull) has something to return: a record is published
    /// at `at`, or the connection has to end.
    #[inline]
    pub(super) fn is_ready(&self, at: Position) -> bool {
        self.fault.is_some() || self.ring.peek(self.offset(at)) != 0 || self.is_damaged()
    }

    /// Whether the peer's word `asleep_room` says that the peer sleeps until there is room in its
    /// ring.
    #[inline]
    pub(super) fn is_room_awaited(&self) -> bool {
        self.control.peek(as_usize(ASLEEP_ROOM)) != 0
    }

    /// The first two words of the peer's record at `at`, if a record is published there.
    #[inline(always)]
    pub(super) fn words(&self, at: Position) -> Option<(u64, u64)> {
        let words = self.ring.load_two(self.offset(at));
        (words.0 != 0).then_some(words)
    }

    /// Prefetches the cache lines of the peer's ring a few records after `at`.
    ///
    /// Only a receiver that is behind its sender should call this function: a receiver in step with
    /// the peer would take away the lines that the peer writes.
    #[inline]
    pub(super) fn prefetch(&self, at: Position) {
        self.ring.prefetch(self.offset(Position(at.0.wrapping_add(AHEAD_BYTES))));
    }

    /// Whether the peer's ring still belongs to `stream`, and its file was not truncated. If so,
    /// everything copied before this call belongs to that stream and was in the file.
    #[inline(always)]
    fn is_still(&self, stream: StreamId) -> bool {
        // ORDER: the fence keeps the copies of the peer's records before the load that follows:
        // that of the word with the id of the stream in the peer's ring. If a copy has a byte of
        // another stream, the load finds the other stream's id (SPEC 16.4): the fence pairs with
        // the one of the peer between its store of that id and the stream's first byte.
        self.ring.order_loads();
        let is_same = self.control.peek(as_usize(SENDING_STREAM)) == stream.0.get();
        is_same && !self.is_damaged()
    }

    /// Checks that the bytes copied so far from the peer's ring are of `stream`, and were in the
    /// peer's file. Returns the reason if not.
    ///
    /// # Errors
    /// An error means that the connection has to be closed.
    #[inline]
    fn check_still(&self, stream: StreamId) -> Result<(), End> {
        if self.is_still(stream) {
            return Ok(());
        }
        self.check_whole()?;
        Err(End::Moved)
    }

    /// The position up to which the peer has acknowledged `stream`. Returns `None` if the peer's
    /// word `consumed` has not changed since the last call, or the position is not known.
    #[inline]
    pub(super) fn consumed(&mut self, stream: StreamId) -> Option<Position> {
        let word = self.control.load(as_usize(CONSUMED));
        if self.consumed_seen == Some(word) {
            return None;
        }
        for _ in 0..CONSUMED_READS_MAX {
            // While the peer writes its acked offset into one of the two slots for it,
            // `consumed_of` returns `None`. The peer notifies this end afterwards, and this end
            // then reads the offset.
            if let Some(found) = consumed_of(&self.control) {
                self.consumed_seen = Some(word);
                let is_ours = found.record.stream.get() == stream.0.get();
                return is_ours.then_some(Position(found.position));
            }
        }
        None
    }

    /// Whether the peer sleeps and must be notified. Our records are now published up to `tail`,
    /// and we have acknowledged up to `consumed`.
    #[inline]
    pub(super) fn is_notify_due(&mut self, tail: Position, consumed: Position) -> bool {
        let (has_records, has_room) =
            (self.notified_tail < tail, self.notified_consumed < consumed);
        (self.notified_tail, self.notified_consumed) = (tail, consumed);
        let [records, room] = match (has_records, has_room) {
            (false, false) => return false,
            (true, false) => [self.records.check(), Wake::No],
            (false, true) => [Wake::No, self.room.check()],
            // The check whether the peer sleeps for records has a fence before it loads the sleeper
            // word. The check whether the peer sleeps for room comes after the same fence, so it
            // needs no other one.
            (true, true) => [self.records.check(), self.room.check_early()],
        };
        records == Wake::Notify || room == Wake::Notify
    }

    /// Whether the peer sleeps and must be notified. The caller has just published a record that
    /// ends at `tail`.
    #[inline(always)]
    pub(super) fn is_notify_due_for_record(&mut self, tail: Position, consumed: Position) -> bool {
        let has_room = self.notified_consumed.0 < consumed.0;
        (self.notified_tail, self.notified_consumed) = (tail, consumed);
        let records = self.records.check();
        // The check whether the peer sleeps for records has a fence before it loads the sleeper
        // word. The check whether the peer sleeps for room comes after the same fence, so it needs
        // no other one.
        let room = if has_room { self.room.check_early() } else { Wake::No };
        records == Wake::Notify || room == Wake::Notify
    }

    /// Checks that all bytes that were read so far lay within the peer's file.
    ///
    /// # Errors
    /// Fails if the connection has to be closed, because the peer truncated its file.
    #[inline]
    fn check_whole(&self) -> Result<(), End> {
        if self.is_damaged() { Err(truncated()) } else { Ok(()) }
    }

    /// Whether the peer truncated its file, so that zeros replace the missing part. Bytes that were
    /// copied before this call may be such zeros.
    #[inline]
    fn is_damaged(&self) -> bool {
        // ORDER: Acquire pairs with the signal handler that replaced missing pages of the file by
        // zeros and then set the flag; the handler may have run on another thread.
        self.damage.load(Ordering::Acquire)
    }

    #[inline]
    fn offset(&self, at: Position) -> usize {
        as_usize(self.ring_size.offset(record_ring::Position(at.0)))
    }
}

#[derive(Debug)]
struct View(FileView);

impl Readable for View {
    fn cells(&self) -> &[UnsafeCell<u8>] {
        self.0.cells()
    }
}

/// The values that the check of a copied record returns: its acknowledgement, its digest, and the
/// place of its message.
#[derive(Clone, Copy)]
struct Checked {
    ack: Ack,
    digest: u32,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    /// The message is in the record, after the given number of bytes.
    Here(usize),
    InSlab {
        offset: u64,
        length: u64,
        crc: u32,
    },
    /// The record has no message: it is a PAD.
    Nowhere,
}

impl Checked {
    #[inline]
    fn of(record: &LinkRecord<'_>) -> Self {
        let place = match record.body {
            Body::Pad => Place::Nowhere,
            Body::Message(_) => Place::Here(as_usize(record::body_offset(record.header.kind))),
            Body::Blob { offset, length, crc } => Place::InSlab { offset, length, crc },
        };
        Self { ack: record.ack, digest: record.digest, place }
    }
}

#[cold]
fn nothing() -> End {
    End::violation(Violation::OutOfPlace("nothing"))
}

#[cold]
fn truncated() -> End {
    End::Broken("the peer's file was truncated".to_owned())
}

/// The flag that says that the peer truncated its memory, for a sealed memfd: such memory cannot be
/// truncated, so the flag is never set.
static UNDAMAGED: AtomicBool = AtomicBool::new(false);
/// Distance in bytes from the next record to the cache line that is prefetched: 8 slots. Channels
/// use the same distance.
const AHEAD_BYTES: u64 = 8 * SLOT_BYTES;
/// Maximum number of reads of the two slots with the peer's acked offset while the peer is writing
/// them. More are not needed, because the peer notifies this end afterwards.
const CONSUMED_READS_MAX: u32 = 4;
