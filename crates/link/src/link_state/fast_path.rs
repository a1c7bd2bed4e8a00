// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast path of a link over shared memory: the short code by which most short messages are sent
//! and received, while no other work is pending.
//!
//! ```text
//!   closed ── open: no work but messages is pending, and the path allows N messages ──▶ open
//!     ▲                                                                                  │
//!     └── close: the link's monitor locks the link for other work, or N messages passed ─┘
//!
//!   send      if there is room: write the record into our ring, publish ─▶ notify a sleeping peer
//!   receive   if word0 begins a compact record: copy it ─▶ check its crc and stream
//!             ─▶ note the delivery ─▶ the application reads the message ─▶ acknowledge
//! ```
//!
//! Many conditions decide whether a message needs no other work, and they change rarely. `open`
//! checks them, and they hold while the path is open: code that changes one of them locks the link
//! by its monitor, which closes the path first.
//!
//! Words that the peer or a later owner reads are stored for each message. Values that only this
//! process reads (the received position, the counts) are kept here. [`settle`](FastPath::settle)
//! copies them to the inbox and the state before other code reads them.
//!
//! # Invariants
//!
//! - Every record between the inbox's received position and `Reader::next` (the position of the
//!   peer's next record) was delivered and acknowledged.
//! - A message whose reader panics is still the next one in the peer's ring.

use partywall_layout::link::record;
use partywall_layout::seeded_fault;
use partywall_reconcile::{AckedOffset, Position, RecordDigest, StreamId, ack_due_at};

use super::inbox::HEADER;
use super::peer_memory::Sealed;
use super::{DeliveryId, LinkState, NotifyDue, attempt};

/// The state of a link's fast path: whether it is open, and the messages that took it and are not
/// yet counted in the link's other state.
#[derive(Debug, Default)]
pub(crate) struct FastPath {
    /// Number of messages that may still take the fast path; 0 while the path is closed.
    left: u32,
    may_send: bool,
    /// The place of the peer's next record; `None` if messages of the peer may not be received on
    /// the fast path.
    reader: Option<Reader>,
    /// The position in the peer's stream up to which messages were received and acknowledged.
    consumed: Position,
    traffic: Traffic,
    /// Whether this end has waited for a record since it last sent one on the fast path.
    has_waited: bool,
    /// A copy of the record that is being received: its header, then its message.
    copied: Vec<u8>,
}

/// The place of the peer's next record, with the values by which the receiver checks it.
#[derive(Clone, Copy, Debug)]
struct Reader {
    stream: StreamId,
    /// The tag of the peer's stream, which the checksum of each compact record of that stream
    /// covers.
    tag: u32,
    next: Position,
    /// The digest of the peer's record that was received last; that record ends at the position
    /// `next`.
    digest: RecordDigest,
    /// When the consumed position reaches this position, the peer must be notified, because it may
    /// wait for room.
    notify_at: Position,
    /// Whether the receiver is behind its sender, so that more records are likely to follow the
    /// next one.
    is_behind: bool,
}

/// Numbers of messages, and of their bytes, that took the fast path and are not yet added to the
/// link's counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) messages_sent: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) messages_received: u64,
    pub(crate) bytes_received: u64,
}

/// Conditions for opening the fast path: those that only the caller, which has the sockets, can
/// check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Maximum number of messages that may take the fast path before it closes.
    pub(crate) messages: u32,
    /// Whether messages may be sent on the fast path. They may if the caller has no control frame
    /// to send first.
    pub(crate) may_send: bool,
    /// Whether messages may be received on the fast path. They may if a message that is received
    /// and acknowledged gives the caller no other work.
    pub(crate) may_receive: bool,
    /// Whether the receiver is behind the peer, so that the peer's ring probably holds more
    /// messages.
    pub(crate) is_behind: bool,
}

impl FastPath {
    /// Opens the fast path for sending, receiving or both, as the state of the link allows. Returns
    /// `false` if the state allows neither, and leaves the path closed.
    pub(crate) fn open(link: &mut LinkState, opening: Opening) -> bool {
        if link.is_fenced() || link.is_quarantined() || !link.is_shared() || link.has_fault() {
            return false;
        }
        // The fast path never sends an acknowledgement. So no message is sent on it while this end
        // has an acknowledgement to send: one in an open batch, or one for consumed bytes of the
        // peer's slab.
        let may_send = opening.may_send
            && link.attachment.acked_by_batch.is_none()
            && link.inbox.slab_unacked() == 0;
        let reader = if opening.may_receive { Reader::of(link, opening.is_behind) } else { None };
        let is_open = may_send || reader.is_some();
        if is_open {
            let consumed = link.inbox.consumed();
            let path = &mut link.fast_path;
            (path.left, path.may_send, path.reader) = (opening.messages, may_send, reader);
            path.consumed = consumed;
        }
        is_open
    }

    /// Closes the fast path, after the caller has added the messages that took it to the link's
    /// other state ([`settle`](Self::settle)). Returns how many more messages might have taken the
    /// path.
    pub(crate) fn close(link: &mut LinkState) -> u32 {
        let path = &mut link.fast_path;
        (path.may_send, path.reader) = (false, None);
        std::mem::take(&mut path.left)
    }

    /// Whether the fast path is open, so that a message may take it.
    pub(crate) fn is_open(link: &LinkState) -> bool {
        link.fast_path.left > 0
    }

    /// Whether the fast path is open, or [`settle`](Self::settle) has not yet counted all messages
    /// that took it.
    #[inline]
    pub(crate) fn is_in_use(link: &LinkState) -> bool {
        let Self { left, traffic, .. } = &link.fast_path;
        *left > 0 || traffic.messages_sent > 0 || traffic.messages_received > 0
    }

    /// Notes that this end waits for a record.
    pub(crate) fn note_wait(link: &mut LinkState) {
        link.fast_path.has_waited = true;
    }

    /// Returns whether this end has waited for a record since the last call.
    #[inline]
    pub(super) fn take_wait(&mut self) -> bool {
        std::mem::take(&mut self.has_waited)
    }

    /// Stores the position up to which messages were received and acknowledged in the inbox and in
    /// the state for a later owner, whose values are out of date while messages take the fast path.
    /// Returns the numbers of messages and bytes since the last call.
    pub(crate) fn settle(link: &mut LinkState) -> Traffic {
        let path = &mut link.fast_path;
        if let Some(reader) = &mut path.reader {
            let Reader { stream, next: position, digest, .. } = *reader;
            if link.inbox.received() != position {
                link.inbox.passed(position);
                link.store.durable.acked_offset = Some(AckedOffset { stream, position, digest });
            }
            // A caller that leaves the fast path open polls for the next record, because the
            // receiver has caught up with its sender. So no more records are expected to follow.
            reader.is_behind = false;
        }
        std::mem::take(&mut path.traffic)
    }

    /// Appends and publishes a message of `len` bytes that `fill` writes, and returns whether the
    /// peer must be notified.
    ///
    /// # Errors
    /// Returns `fill` as the error if the message cannot take the fast path; the link is then
    /// unchanged.
    #[inline(always)]
    pub(crate) fn send<F: FnOnce(&mut [u8])>(
        link: &mut LinkState,
        len: usize,
        fill: F,
    ) -> Result<bool, F> {
        let LinkState { fast_path: path, retained, peer_memory, .. } = link;
        let (true, Some(memory)) = (path.left > 0 && path.may_send, peer_memory) else {
            return Err(fill);
        };
        let Ok(Some(begin)) = retained.place_short_compact(len) else { return Err(fill) };
        let tail = retained.append_short_compact(begin, len, fill);
        if !seeded_fault("link_unpublished_now_and_then") || tail.0 % 4096 > 256 {
            retained.publish();
        }
        path.left -= 1;
        path.traffic.messages_sent += 1;
        path.traffic.bytes_sent += len as u64;
        Ok(memory.is_notify_due_for_record(tail, path.consumed))
    }

    /// Copies the next record from the peer's memory and checks it. Returns `None` if there is no
    /// record, or if the record cannot be received on the fast path, such as a long one.
    #[inline(always)]
    pub(crate) fn copy_next(link: &mut LinkState) -> Option<Sealed> {
        let LinkState { fast_path: path, peer_memory, .. } = link;
        if path.left == 0 {
            return None;
        }
        let (reader, memory) = (path.reader.as_ref()?, peer_memory.as_ref()?);
        let Reader { stream, tag, next, .. } = *reader;
        let words = memory.words(next)?;
        path.copied.clear();
        let record = memory.copy_short_compact(next, stream, tag, words, &mut path.copied)?;
        if reader.is_behind {
            memory.prefetch(record.end);
        }
        Some(record)
    }

    /// Calls `read` with the message that was just copied from the peer's memory, and acknowledges
    /// the message after `read` has returned. Returns the result of `read`, and whether the peer
    /// may have to be notified. Returns `None` if the fast path is not open for receiving.
    #[inline(always)]
    pub(crate) fn read<R>(
        link: &mut LinkState,
        record: Sealed,
        read: impl FnOnce(&[u8], DeliveryId) -> R,
    ) -> Option<(R, bool)> {
        let LinkState { fast_path: path, peer_memory, store, .. } = link;
        let (reader, memory) = (path.reader.as_mut()?, peer_memory.as_ref()?);
        let Sealed { end, digest, .. } = record;
        let Reader { stream, next: start, .. } = *reader;
        // The delivery is recorded before the application's code `read` runs: the message may crash
        // its receiver, and the next owner must then count one attempt more.
        store.consumed.note_delivered(stream.0.get(), end.0);
        let message = &path.copied[HEADER..];
        path.traffic.messages_received += 1;
        path.traffic.bytes_received += message.len() as u64;
        let result = read(message, DeliveryId { start, stream, end });
        if !seeded_fault("link_consumed_now_and_then") || end.0 % 128 == 0 {
            store.consumed.commit(stream.0.get(), end.0, digest.0);
        }
        path.left -= 1;
        (reader.next, reader.digest, path.consumed) = (end, digest, end);
        Some((result, end.0 >= reader.notify_at.0 || memory.is_room_awaited()))
    }
}

impl Reader {
    /// Returns a reader (the place of the peer's next record) at the position up to which the link
    /// has received; `None` if the link's next message must take the slow path.
    fn of(link: &LinkState, is_behind: bool) -> Option<Self> {
        let (memory, next) = link.next_pulled()?;
        let AckedOffset { stream, digest, .. } = link.acked_offset()?;
        let is_next = link.inbox.is_empty() && link.inbox.stream() == Some(stream);
        let is_first_attempt = attempt(&link.store.durable, next) == 1;
        let has_time = matches!(link.notify_due(), NotifyDue::Never | NotifyDue::Idle);
        let notify_at = ack_due_at(memory.window.ring_bytes, memory.notified_consumed);
        let tag = record::tag(stream.0.get());
        let may_read = is_next && is_first_attempt && has_time;
        may_read.then_some(Self { stream, tag, next, digest, notify_at, is_behind })
    }
}
