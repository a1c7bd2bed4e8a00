// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of one end of a link, without its sockets: its store, both streams, and its
//! connections (SPEC 12). It decides what is sent, received and acknowledged.
//!
//! ```text
//!   application ─ send ──▶ retained ─▶ record ring, slab    ┐
//!               ◀─ offer ─ inbox                            ├ LinkState ◀─ frames, records ─▶ Conn
//!               ─ ack ───▶ store ────▶ consumed slots       │               (one a connection)
//!               ◀─ events  store ────▶ state page           ┘
//!
//!   mod.rs          LinkState: messages out and in, sleeping for records or room
//!   attach.rs       what two ends agree on: connections, epochs, skips, quarantine
//!   fast_path.rs    short messages over shared memory, while no other work is pending
//!   conn.rs         one connection: its handshake, and the bytes to be written
//!   inbox.rs        messages that arrived, until they are acknowledged
//!   peer_memory.rs  the peer's memory, as the present connection reads it (SPEC 16)
//!   events.rs       events for the application;  end.rs  why a connection ends
//! ```
//!
//! `LinkState` has no socket, no clock and no thread. Its driver (`end/`) passes bytes in both
//! directions; over shared memory `LinkState` also reads the peer's memory. `partywall_reconcile`
//! makes every decision; the order of calls in this folder is that of the model in its tests.
//!
//! # Over shared memory
//!
//! The driver owns the socket and the doorbells, and makes these calls:
//!
//! ```text
//!   client                                          server
//!   attach_shm, if the socket is Unix and the       ATTACH with `shares`, and two descriptors
//!   peer of our user; with the first byte, while    with its first byte: PeerMapping::map
//!   there is conn.descriptor(): it, and the own     ─▶ answer_attach; keep the doorbell
//!   doorbell                                        while conn.descriptor(): as the client
//!   descriptors with ATTACHED's first byte:
//!     PeerMapping::map ─▶ conn.set_peer_mapping, before receive_into
//!
//!   activated, and is_shared()?  If not: as over a socket; the descriptors are closed
//!     read    nothing in the inbox? ─▶ pull_present ─ true ─▶ offer, one message at a time;
//!             each Err goes to ended(conn, end).  offer_short does both at once
//!     write   send, publish; ack_to, reply: nothing goes to the socket; acknowledge does nothing
//!             then is_doorbell_due ─ true ─▶ ring the peer's doorbell, before any wait
//!     full    send checks by itself whether the peer has freed room
//!     acked?  poll_acked; all is acknowledged if then acked() ≥ tail()
//!     spin    pull_present; poll_acked: each loads one word as long as nothing is new
//!     sleep   prepare_sleep ─ false ─▶ pull_present, send again
//!                           └ true ──▶ wait for own doorbell and socket ─▶ notified: drain it,
//!                                      cancel_sleep ─▶ pull_present, send again
//!     socket readable ─▶ receive_into: BEGIN, LEAVE. Progress: poll pull_present once more
//!     socket closed   ─▶ ended(conn, Broken): the inbox now has what the peer left in its memory
//! ```
//!
//! Several threads may sleep for the link at a time. Together they form one sleeper for records,
//! and one for room or acknowledgements; each thread that is woken polls for all of them. A sleeper
//! stays armed until it is notified, which happens once for each time it is armed. If descriptors
//! do not arrive, or [`PeerMapping::map`] refuses them, the connection simply uses the socket. A
//! notification of the doorbell only means that the driver has to poll again.
//!
//! # Invariants
//!
//! - State that a later owner needs is written to the store before the application or the peer
//!   learns of it.
//! - Only the present connection changes the positions `acked`, up to which the peer has
//!   acknowledged, and `received`, up to which the peer's stream has arrived.

mod attach;
mod conn;
mod end;
mod events;
mod fast_path;
mod inbox;
mod peer_memory;
#[cfg(all(test, not(shuttle)))] // the tests use files
mod shm;
#[cfg(all(test, not(shuttle)))] // the tests use files
mod simulation;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};

use bytes::BytesMut;
use partywall_layout::link::record::{self, Ack};
use partywall_layout::link::{Closing, FileFault};
use partywall_layout::seeded_fault;
use partywall_reconcile::{
    AckedOffset, Outgoing, Position, ReceiverView, RecordDigest, Report, SenderView, StreamId,
    is_ack_due, recover,
};

use self::attach::{Attachment, Handled, new_stream};
use self::events::Events;
use self::inbox::{HEADER, Inbox, Next, Taken, header_words};
use self::peer_memory::{PeerMemory, Pulled, ShortCompact};
use crate::protocol::codec;
use crate::protocol::frame::Frame;
use crate::retained::{
    Boundary, Damage as RingDamage, Refused, Retained, SendCursor, join, len_of,
};
use crate::store::sync::SyncScope;
use crate::store::{DurableState, FileHandle, Provenance, Store, StoreParts};

pub(crate) use self::attach::Answer;
pub use self::attach::StaleEpoch;
pub(crate) use self::conn::Conn;
pub(crate) use self::end::{End, Violation};
pub use self::events::Event;
pub(crate) use self::fast_path::{FastPath, Opening};
pub(crate) use self::inbox::Payload;
pub(crate) use self::peer_memory::PeerMapping;

#[derive(Debug)]
pub(crate) struct LinkState {
    store: Store,
    retained: Retained,
    inbox: Inbox,
    attachment: Attachment,
    events: Events,
    /// The peer's memory, if the present connection is over shared memory.
    peer_memory: Option<PeerMemory>,
    fast_path: FastPath,
}

impl LinkState {
    /// Opens a store for its new owner: reads which records its ring holds, and up to which
    /// position earlier owners acknowledged the received stream.
    ///
    /// # Errors
    /// Fails if the store is damaged.
    pub(crate) fn open(parts: StoreParts) -> Result<Self, Damage> {
        let StoreParts { provenance, state, consumed, ring_size, ring, slab, .. } = parts;
        let StoreParts { inline_max, export, is_adopted, is_replaced, .. } = parts;
        let found = *state.state();
        let stream = StreamId::new(found.sending_stream.get());
        let retained = match stream {
            None => Retained::empty(ring, ring_size, slab, new_stream()),
            Some(stream) => {
                let base = Position(found.sending_base.get());
                let digest = RecordDigest(found.sending_digest.get());
                Retained::found(ring, ring_size, slab, stream, base, digest)?
            }
        };
        let mut retained = retained.with_inline_max(inline_max);
        let mut durable = DurableState::read(&found, retained.tail())?;
        durable.catch_up(consumed.found());
        let prepared =
            durable.acked_offset.and_then(|acked_offset| retained.prepared(acked_offset.stream));
        let prepared = prepared.filter(|_| !seeded_fault("link_reply_commits_nothing"));
        durable.acked_offset = recover(durable.acked_offset, prepared, |_| {
            prepared.map(|prepared| prepared.acked_offset.position)
        });
        if let Some(outgoing) = &durable.outgoing {
            // When the state was read from the store, it was checked that the acknowledged position
            // is not beyond the tail. So this call, which notes what the peer has acknowledged,
            // does not fail.
            let _ = retained.acknowledged(outgoing.acked());
        }
        let inbox = Inbox::new(durable.acked_offset);
        let store = Store::new(provenance, durable, state, consumed, export);
        let (attachment, events) = (Attachment::default(), Events::default());
        let (peer_memory, fast_path) = (None, FastPath::default());
        let mut link = Self { store, retained, inbox, attachment, events, peer_memory, fast_path };
        link.count_attempts();
        link.commit_state();
        // The delivered position of the previous owner is erased only after the update of the store
        // that counts its deliveries as attempts. If this process is killed in between, these
        // deliveries are counted twice, which is better than not at all.
        link.store.consumed.forget_delivered();
        link.store.publish_stream(link.retained.stream());
        if is_adopted {
            link.push_event(Event::LossPossible);
            link.push_event(Event::RepeatPossible);
        }
        if is_replaced {
            link.push_event(Event::FileReplaced);
        }
        Ok(link)
    }

    /// Returns the link file of this end, and the record that its owner stores in it when it closes
    /// the file. Nothing may change the file afterwards. Returns `None` if the end is kept in
    /// memory.
    fn closing(&mut self) -> Option<(&FileHandle, Closing)> {
        self.store.file()?;
        // From this update on the stored state contains the acked offset, even if only a reply's
        // record or the control page held it before.
        self.commit_state();
        let tail = self.retained.tail();
        let tail_digest = self.retained.digest_at(tail).unwrap_or_default();
        let acked = self.acked_offset();
        let closing = Closing {
            tail: tail.0.into(),
            consumed: acked.map_or(0, |acked| acked.position.0).into(),
            state_sequence: self.store.state_sequence().into(),
            tail_digest: tail_digest.0.into(),
            consumed_digest: acked.map_or(0, |acked| acked.digest.0).into(),
            closed: 1.into(),
            ..Closing::default()
        };
        Some((self.store.file()?, closing))
    }

    /// Closes the stores of several links, so that their files are trusted after a reboot. Each
    /// file is written to the disk, then marked as whole, and the mark is written to the disk, too.
    ///
    /// Many files of one file system are written together.
    ///
    /// # Errors
    /// Returns the first error. Files that could not be written are closed as if the process had
    /// been killed.
    pub(crate) fn close_all(mut links: Vec<Self>) -> io::Result<()> {
        let mut of_devices: BTreeMap<u64, Vec<(&FileHandle, Closing)>> = BTreeMap::new();
        let mut closed = Ok(());
        for found in links.iter_mut().filter_map(|link| link.closing()) {
            match found.0.device() {
                Ok(device) => of_devices.entry(device).or_default().push(found),
                Err(error) => closed = closed.and(Err(error)),
            }
        }
        for files in of_devices.values() {
            let whole = sync_files(files);
            let written = whole.and_then(|()| {
                files.iter().try_for_each(|(file, closing)| file.close(*closing))?;
                sync_files(files)
            });
            closed = closed.and(written);
        }
        closed
    }

    /// Counts one more attempt for each message that the previous owner delivered and did not
    /// acknowledge.
    fn count_attempts(&mut self) {
        let durable = &mut self.store.durable;
        let Some(acked_offset) = durable.acked_offset else { return durable.forget_delivered() };
        durable.forget_delivered_to(acked_offset.position);
        let before = self.store.delivered(acked_offset.stream);
        if let Some(delivered) = before.filter(|delivered| *delivered > acked_offset.position) {
            self.store.durable.note_delivered(delivered);
        }
    }

    /// Writes to the store, in one update, everything that a later owner must know.
    fn commit_state(&mut self) {
        self.commit_base(self.retained.base_boundary());
    }

    /// Writes to the store, in one update, everything that a later owner must know, with a higher
    /// base of the outgoing stream.
    fn commit_base(&mut self, base: Boundary) {
        self.store.durable.outgoing = Some(self.outgoing_from(base.position));
        self.store.durable.base_digest = base.digest;
        self.store.commit();
    }

    /// Returns the position `base`, and the acked position and tail of the outgoing stream, as the
    /// store keeps them.
    fn outgoing_from(&self, base: Position) -> Outgoing {
        let (stream, acked, tail) =
            (self.retained.stream(), self.retained.acked(), self.retained.tail());
        // `Retained`, which keeps the outgoing stream, ensures base ≤ acked ≤ tail. So these
        // positions are valid, and `Outgoing::found` returns a value.
        Outgoing::found(stream, base, acked, tail).unwrap_or_else(|| Outgoing::new(stream))
    }

    /// This end's view as the sender: how far its outgoing stream is kept, acknowledged and sent.
    /// From this view, and the peer's, follows where the stream continues on a new connection.
    fn sender_view(&self) -> SenderView {
        SenderView::of(self.store.durable.epoch, &self.outgoing_from(self.retained.base()))
    }

    /// This end's view as the receiver: how far it has consumed the peer's stream. From this view,
    /// and the peer's, follows where that stream continues on a new connection.
    fn receiver_view(&self) -> ReceiverView {
        let DurableState { epoch, acked_offset, skip, .. } = self.store.durable;
        ReceiverView::of(epoch, acked_offset, self.inbox.incoming(), skip)
    }

    /// Appends a message to the ring and publishes it. The message's record carries an
    /// acknowledgement, too, unless the peer reads our acked offset in shared memory.
    #[inline(always)]
    pub(crate) fn send(&mut self, parts: &[&[u8]]) -> Result<Position, SendFault> {
        self.send_with(len_of(parts), |room| join(parts, room))
    }

    /// Appends a message of `len` bytes to the ring and publishes it. `fill` must write all its
    /// bytes, and is called only if the link has room.
    #[inline(always)]
    pub(crate) fn send_with(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Position, SendFault> {
        let carries = self.ack_carrier();
        self.send_carrying(len, fill, carries)
    }

    #[inline(always)]
    fn send_carrying(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        carries: AckCarrier,
    ) -> Result<Position, SendFault> {
        let end = self.append(len, fill, carries)?;
        if !seeded_fault("link_unpublished_now_and_then") || end.0 % 4096 > 256 {
            self.publish();
        }
        Ok(end)
    }

    /// Appends a message to the open batch, which neither the peer nor a later owner sees before
    /// [`publish`](Self::publish).
    pub(crate) fn append_to_batch(&mut self, parts: &[&[u8]]) -> Result<Position, SendFault> {
        let carries = self.ack_carrier();
        self.append(len_of(parts), |room| join(parts, room), carries)
    }

    /// Publishes all messages of the open batch by one store, so that the peer and a later owner
    /// see all of them or none.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        self.retained.publish();
        if let Some(acked) = self.attachment.acked_by_batch.take() {
            self.attachment.acked = self.attachment.acked.max(acked);
            self.inbox.slab_acked();
        }
    }

    /// Prefetches and zeroes the ring memory into which the next message will be written. This only
    /// saves time, so callers notify the peer of the last message first.
    #[inline]
    pub(crate) fn prepare_ahead(&mut self) {
        self.retained.prepare_ahead();
    }

    /// Prepares ring memory for the next message, after one that took the fast path.
    #[inline]
    pub(crate) fn prepare(&mut self) {
        let has_waited = self.fast_path.take_wait();
        self.retained.prepare(has_waited);
    }

    pub(crate) fn abort(&mut self) {
        self.attachment.acked_by_batch = None;
        self.retained.abort();
    }

    /// Decides where this end's acknowledgement is stored when it sends a message that is no reply:
    /// in the message's record, or only in the consumed record.
    ///
    /// While the peer reads this end's memory, the consumed record contains the acked offset,
    /// whatever changed it (SPEC 16.5). Each acknowledgement stores the offset in that record
    /// first. Each reply stores the offset there before the call returns. [`flow`](Self::flow),
    /// which begins to send on a connection, stored the offset of a skip or a recovery before the
    /// connection became active.
    #[inline(always)]
    fn ack_carrier(&self) -> AckCarrier {
        if self.is_shared() {
            AckCarrier::ConsumedRecord
        } else {
            AckCarrier::Message(self.store.durable.acked_offset)
        }
    }

    #[inline(always)]
    fn append(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        carries: AckCarrier,
    ) -> Result<Position, SendFault> {
        if self.attachment.is_fenced || self.store.durable.quarantine.is_some() {
            return Err(SendFault::Stopped);
        }
        if let AckCarrier::ConsumedRecord = carries {
            if let Ok(Some(begin)) = self.retained.place_short_compact(len) {
                return Ok(self.retained.append_short_compact(begin, len, fill));
            }
        }
        self.append_any(len, fill, carries)
    }

    /// Appends a message to the open batch, as a record of whichever kind it needs. If there is no
    /// room, frees acknowledged records and tries again.
    #[inline(never)]
    fn append_any(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        carries: AckCarrier,
    ) -> Result<Position, SendFault> {
        let (ack, may_be_compact) = match carries {
            AckCarrier::Message(acked_offset) => (acked_offset, false),
            AckCarrier::ConsumedRecord => (self.store.durable.acked_offset, true),
        };
        loop {
            // When this loop runs a second time, records have been freed. A short message may then
            // get a compact record (one without acknowledgement), if `may_be_compact`.
            match self.retained.place(len, may_be_compact) {
                Ok(place) => {
                    let end = self.retained.append_placed(place, len, fill, ack);
                    if !may_be_compact {
                        // If the link is attached, the appended record carries this end's
                        // acknowledgement to the peer.
                        let acked = self.attachment.active.and(ack).map(|ack| ack.position);
                        self.attachment.acked_by_batch = acked.or(self.attachment.acked_by_batch);
                    }
                    return Ok(end);
                }
                Err(Refused::TooLarge { max, .. }) => return Err(SendFault::TooLarge { max }),
                Err(Refused::BatchFull) => return Err(SendFault::BatchFull),
                Err(Refused::Full) if self.trim() || self.poll_acked() && self.trim() => {}
                Err(Refused::Full) => return Err(SendFault::Full),
            }
        }
    }

    /// Frees all acknowledged records of the ring, in one update of the store; `false` if there are
    /// none.
    fn trim(&mut self) -> bool {
        let Some(base) = self.retained.trim_to() else { return false };
        // The store may hold the latest acked offset only in the record of a reply, which is now
        // freed. The state in memory (`durable.acked_offset`) has that offset too, so storing this
        // state keeps it.
        if !seeded_fault("link_base_not_committed") {
            self.commit_base(base);
        }
        self.retained.trimmed(base);
        true
    }

    /// The position in our stream up to which the peer has acknowledged, as far as this end knows.
    #[inline]
    pub(crate) fn acked(&self) -> Position {
        self.retained.acked()
    }

    #[inline]
    pub(crate) fn tail(&self) -> Position {
        self.retained.tail()
    }

    /// The id of our outgoing stream, and the position at which the sent messages end.
    pub(crate) fn sent_to(&self) -> (StreamId, Position) {
        (self.retained.stream(), self.retained.tail())
    }

    /// The acked offset of this end; `None` before it has received a stream in this epoch.
    pub(crate) fn acked_offset(&self) -> Option<AckedOffset> {
        self.store.durable.acked_offset
    }

    /// Delivers the next message of the inbox, if there is one: calls `take` with its bytes, its id
    /// and its delivery count.
    ///
    /// The delivery count is 1, plus one for each earlier owner that was delivered the message and
    /// did not acknowledge it.
    #[inline(always)]
    pub(crate) fn offer<B>(
        &mut self,
        take: impl FnOnce(Payload<'_>, DeliveryId, u32) -> B,
    ) -> Option<B> {
        let stream = self.inbox.stream()?;
        let Next { start, end, payload } = self.inbox.next()?;
        // The delivery is recorded in the store before `take`, which passes the message on to the
        // application, runs, because the message may crash its receiver. The seeded fault records
        // the delivery too late.
        let is_late = seeded_fault("link_read_before_noted");
        if !is_late {
            self.store.consumed.note_delivered(stream.0.get(), end.0);
        }
        let id = DeliveryId { start, stream, end };
        let taken = take(payload, id, attempt(&self.store.durable, start));
        if is_late {
            self.store.consumed.note_delivered(stream.0.get(), end.0);
        }
        Some(taken)
    }

    /// Delivers the next message straight from the peer's memory, if it is short and in a compact
    /// record. If the call returns `None`, nothing has changed. The two calls
    /// [`pull_present`](Self::pull_present), which takes a record into the inbox, and
    /// [`offer`](Self::offer), which delivers from the inbox, may still find a message.
    ///
    /// `is_behind`: more messages are likely to follow in the peer's memory, so
    /// [`prefetch`](Self::prefetch) pays.
    ///
    /// ```text
    ///   inbox empty ─ a short compact record ─ copied ─ crc ─ same stream? ─▶ delivered
    ///          └ no           └ no                       └ no       └ no
    ///                          pull_present and offer then find the message, or its fault
    /// ```
    #[inline(always)]
    pub(crate) fn offer_short(&mut self, is_behind: bool) -> Option<Delivered<'_>> {
        let stream = self.inbox.stream()?;
        let memory = present(&mut self.peer_memory, &self.attachment)?;
        let may_read = self.attachment.acks_from.is_some() && memory.fault.is_none();
        if !may_read || !self.inbox.is_empty() {
            return None;
        }
        let start = self.inbox.received();
        let words = memory.words(start)?;
        let compact = memory.take_short_compact(start, stream, words, self.inbox.log())?;
        if self.inbox.arrive(start, compact.footprint).is_err() {
            self.inbox.log().clear();
            return None;
        }
        let ShortCompact { end, digest, entry, .. } = compact;
        if is_behind {
            memory.prefetch(end);
        }
        self.store.consumed.note_delivered(stream.0.get(), end.0);
        let attempt = attempt(&self.store.durable, start);
        let bytes = self.inbox.deliver(start, end, digest, entry);
        Some(Delivered { bytes, token: DeliveryId { start, stream, end }, attempt })
    }

    /// Whether a message has arrived that was not delivered to the application.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        !self.inbox.is_drained()
    }

    pub(crate) fn rewind(&mut self) {
        self.inbox.rewind();
    }

    pub(crate) fn undeliver(&mut self) {
        self.inbox.undeliver();
    }

    /// Acknowledges the message that `token` names, and all messages before it in the same stream.
    #[inline(always)]
    pub(crate) fn ack_to(&mut self, token: &DeliveryId) -> Result<(), AckFault> {
        // The fields of the token are passed one by one, so that the compiler need not assemble
        // them in memory.
        let Some(digest) = self.inbox.digest_at(token.stream, token.end) else {
            return Err(self.not_acked(token));
        };
        self.store_acked(AckedOffset { stream: token.stream, position: token.end, digest });
        Ok(())
    }

    pub(crate) fn ack_last_delivered(&mut self) {
        if let Some(acked_offset) = self.inbox.last_delivered() {
            self.store_acked(acked_offset);
        }
    }

    /// Acknowledges the message that was just delivered straight from the peer's memory, without
    /// the queue of the inbox, and all messages before it.
    #[inline(always)]
    pub(crate) fn ack_in_flight(&mut self) {
        if let Some(acked_offset) = self.inbox.in_flight() {
            self.store_acked(acked_offset);
        }
    }

    #[inline(always)]
    fn store_acked(&mut self, acked_offset: AckedOffset) {
        if !seeded_fault("link_consumed_now_and_then") || acked_offset.position.0 % 128 == 0 {
            let AckedOffset { stream, position, digest } = acked_offset;
            self.store.consumed.commit(stream.0.get(), position.0, digest.0);
        }
        self.consumed(acked_offset);
    }

    /// Sends a reply to the message that `token` names, and acknowledges that message. Both take
    /// effect by one store.
    pub(crate) fn reply(
        &mut self,
        token: DeliveryId,
        parts: &[&[u8]],
    ) -> Result<Position, ReplyFault> {
        let Some(digest) = self.inbox.digest_at(token.stream, token.end) else {
            return Err(ReplyFault::Ack(self.not_acked(&token)));
        };
        let acked_offset = AckedOffset { stream: token.stream, position: token.end, digest };
        if seeded_fault("link_reply_in_two_steps") {
            self.store.consume(acked_offset);
        }
        // The record of a reply must itself contain the acknowledgement of the request, so it is
        // never a compact record.
        let carries = match seeded_fault("link_compact_of_reply") {
            true => AckCarrier::ConsumedRecord,
            false => AckCarrier::Message(Some(acked_offset)),
        };
        let end = self
            .send_carrying(len_of(parts), |room| join(parts, room), carries)
            .map_err(ReplyFault::Send)?;
        self.consumed(acked_offset);
        if self.peer_memory.is_some() {
            // The peer may wait for room without reading the reply. So the acknowledgement is also
            // stored in the control page of this end's memory, which the peer reads while it waits.
            self.store.consume(acked_offset);
        }
        Ok(end)
    }

    /// Returns the reason why the message that `token` names cannot be acknowledged. The message is
    /// not in the inbox.
    #[cold]
    fn not_acked(&self, token: &DeliveryId) -> AckFault {
        let is_consumed =
            self.inbox.stream() == Some(token.stream) && token.end <= self.inbox.consumed();
        if is_consumed { AckFault::Consumed } else { AckFault::Stale }
    }

    #[inline(always)]
    fn consumed(&mut self, acked_offset: AckedOffset) {
        self.store.durable.acked_offset = Some(acked_offset);
        self.inbox.consume(acked_offset);
    }

    /// Takes the next message of the present connection out of the peer's memory into the inbox, if
    /// memory is shared.
    ///
    /// Returns `false` if no message has arrived, or the connection uses the socket.
    ///
    /// # Errors
    /// Fails if the connection has to end: the caller passes the error to [`ended`](Self::ended).
    #[inline(always)]
    pub(crate) fn pull_present(&mut self) -> Result<bool, End> {
        let Some(stream) = self.inbox.stream() else { return Ok(false) };
        let Some(memory) = present(&mut self.peer_memory, &self.attachment) else {
            return Ok(false);
        };
        if self.attachment.acks_from.is_none() {
            return Ok(false);
        }
        match memory.pull(stream, &mut self.inbox)? {
            Pulled::Nothing => Ok(false),
            Pulled::Message => Ok(true),
            Pulled::WithAck(at, ack) => self.on_record_ack(at, ack).map(|()| true),
        }
    }

    /// Prefetches the peer's next records from its memory, for a receiver that is behind its
    /// sender.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some((memory, at)) = self.next_pulled() {
            memory.prefetch(at);
        }
    }

    /// Reads from the peer's memory up to which position the peer has acknowledged. Returns `true`
    /// if that position has risen, so that the link may have room.
    #[inline]
    pub(crate) fn poll_acked(&mut self) -> bool {
        let (stream, acked) = (self.retained.stream(), self.retained.acked());
        let Some(memory) = present(&mut self.peer_memory, &self.attachment) else { return false };
        if self.attachment.acks_from.is_none() {
            return false;
        }
        let Some(position) = memory.consumed(stream) else { return false };
        if self.retained.acknowledged(position).is_err() {
            memory.fault = Some(End::violation(Violation::AckBeyondTail(position.0)));
        }
        self.retained.acked() > acked
    }

    /// Applies the acknowledgement in the record at `at`, if it refers to our present stream and to
    /// the present connection.
    #[inline]
    fn on_record_ack(&mut self, at: Position, ack: Ack) -> Result<(), End> {
        let stream = self.retained.stream();
        let is_ours = ack.tag == record::tag(stream.0.get());
        if is_ours && self.attachment.acks_from.is_some_and(|from| at >= from) {
            return self.on_ack(stream, Position(ack.position));
        }
        Ok(())
    }

    #[inline]
    fn on_ack(&mut self, stream: StreamId, position: Position) -> Result<(), End> {
        if stream != self.retained.stream() {
            // The acknowledgement refers to an earlier stream of this end, which a new epoch or a
            // lost file has ended, so it is ignored.
            return Ok(());
        }
        let acked = self.retained.acknowledged(position);
        acked.map_err(|_| End::violation(Violation::AckBeyondTail(position.0)))
    }

    /// The peer's memory, as mapped for the present connection, and the position of the peer's next
    /// record in that memory. Returns `None` if the memory must not be read.
    #[inline]
    fn next_pulled(&self) -> Option<(&PeerMemory, Position)> {
        self.attachment.acks_from?;
        let active = self.attachment.active;
        let memory = self.peer_memory.as_ref().filter(|memory| active == Some(memory.conn))?;
        Some((memory, self.inbox.received()))
    }

    /// Announces to the peer that this end is about to sleep until there is a record
    /// (`for_records`), room (`for_room`) or either, and polls once more.
    ///
    /// Returns `false` if there is a record or room: this end is then announced awake for both. If
    /// it returns `true`, the peer notifies this end once for each announcement.
    pub(crate) fn prepare_sleep(&mut self, for_records: bool, for_room: bool) -> bool {
        if self.peer_memory.is_none() {
            return true;
        }
        self.store.arm(for_records, for_room);
        let has_record = for_records && self.is_pull_ready();
        let is_ready = has_record || for_room && self.poll_acked();
        if is_ready || self.has_fault() {
            self.cancel_sleep();
            return false;
        }
        true
    }

    /// Announces to the peer that this end is awake, so that the peer does not notify this end.
    pub(crate) fn cancel_sleep(&mut self) {
        if self.peer_memory.is_some() {
            self.store.disarm();
        }
    }

    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        let active = self.attachment.active;
        self.peer_memory.as_ref().is_some_and(|memory| active == Some(memory.conn))
    }

    /// Whether the peer's memory was found to break the protocol, so that the next read of a record
    /// from it ends the connection.
    #[inline]
    pub(crate) fn has_fault(&self) -> bool {
        self.peer_memory.as_ref().is_some_and(|memory| memory.fault.is_some())
    }

    /// Whether the peer's memory has a next record, or the connection has to end. The check loads
    /// one word. [`pull_present`](Self::pull_present) then takes the record, or returns the reason.
    #[inline]
    pub(crate) fn is_pull_ready(&self) -> bool {
        self.next_pulled().is_some_and(|(memory, at)| memory.is_ready(at))
    }

    /// Polls the peer's memory for the next record while `goes_on` returns true. Returns whether
    /// there is a record, or the connection has to end.
    #[inline]
    pub(crate) fn watch(&self, mut goes_on: impl FnMut() -> bool) -> bool {
        let Some((memory, at)) = self.next_pulled() else { return false };
        while goes_on() {
            if memory.is_ready(at) {
                return true;
            }
        }
        false
    }

    /// Whether the peer sleeps, and must be notified of what this end has published or acknowledged
    /// since the last call.
    ///
    /// If true, the caller MUST notify the peer: true is returned only once for each sleep.
    #[inline]
    pub(crate) fn is_doorbell_due(&mut self) -> bool {
        let (tail, consumed) = (self.retained.tail(), self.inbox.consumed());
        let Some(memory) = present(&mut self.peer_memory, &self.attachment) else { return false };
        self.inbox.slab_acked();
        memory.is_notify_due(tail, consumed)
    }

    /// Whether this end has only to wait for the next record: records are read from the peer's
    /// memory, none has arrived, and the peer knows this end's acked offset.
    ///
    /// A thread may then poll for the next record, without other work.
    #[inline]
    pub(crate) fn is_caught_up(&self) -> bool {
        let Some((memory, at)) = self.next_pulled() else { return false };
        let is_notified = memory.notified_consumed >= self.inbox.consumed();
        !self.has_next() && is_notified && !memory.is_ready(at)
    }

    /// The time at which this end's acknowledgements require a call of
    /// [`is_doorbell_due`](Self::is_doorbell_due), which says whether to notify the peer. Over a
    /// socket, the frame ACK would be due at the same time.
    #[inline]
    pub(crate) fn notify_due(&self) -> NotifyDue {
        let Some((memory, _)) = self.next_pulled() else { return NotifyDue::Never };
        let (ring, notified) = (memory.window.ring_bytes, memory.notified_consumed);
        let consumed = self.inbox.consumed();
        if !is_ack_due(ring, notified, consumed, true) {
            return NotifyDue::Never;
        }
        let slab = self.inbox.slab_unacked() > memory.window.slab_bytes / 4;
        if is_ack_due(ring, notified, consumed, slab) {
            return NotifyDue::Now;
        }
        if memory.is_room_awaited() { NotifyDue::Drained } else { NotifyDue::Idle }
    }

    /// Handles every complete frame and record in the `input` of the connection, and adds the
    /// results to `received`.
    ///
    /// # Errors
    /// Fails if the connection has ended: the caller, which has the socket, sends the connection's
    /// last frames if possible, and closes it. Everything that arrived before the end is kept, and
    /// counted in `received`.
    pub(crate) fn receive_into(
        &mut self,
        conn: &mut Conn,
        input: &mut BytesMut,
        received: &mut Received,
    ) -> Result<(), End> {
        received.needed = 0;
        while !conn.is_over() {
            match self.receive_one(conn, input, received) {
                Ok(true) => {}
                Ok(false) => break,
                Err(end) => return Err(self.ended(conn, end)),
            }
        }
        Ok(())
    }

    /// Handles the frame or record at the front of `input`, the bytes read from a socket. Returns
    /// `false` if that frame or record has not arrived completely.
    fn receive_one(
        &mut self,
        conn: &mut Conn,
        input: &mut BytesMut,
        received: &mut Received,
    ) -> Result<bool, End> {
        let Some((first, _)) = header_words(input) else {
            received.needed = HEADER;
            return Ok(false);
        };
        if first & COMMITTED != 0 {
            return self.receive_record(conn, input, received, first);
        }
        let whole = codec::whole_bytes(input).map_err(End::violation)?;
        if input.len() < whole {
            received.needed = whole;
            return Ok(false);
        }
        let frame = codec::read(&input.split_to(whole)).map_err(End::violation)?;
        let handled = self.on_frame(conn, frame)?;
        received.activated |= handled == Handled::Activated;
        received.has_progress = true;
        Ok(true)
    }

    fn receive_record(
        &mut self,
        conn: &Conn,
        input: &mut BytesMut,
        received: &mut Received,
        first: u64,
    ) -> Result<bool, End> {
        let (Some(window), true) = (conn.window(), conn.is_active() && !conn.is_shared()) else {
            return Err(End::violation(Violation::OutOfPlace("a record")));
        };
        if self.attachment.active != Some(conn.id()) {
            // A record may arrive only on the present connection. A record on any other connection
            // ends that other connection.
            return Err(End::Replaced);
        }
        match self.inbox.take_record(input, &window, first)? {
            Taken::Incomplete(needed) => {
                received.needed = needed;
                return Ok(false);
            }
            Taken::Dropped => {}
            Taken::Message(at, ack) => {
                received.has_progress = true;
                self.on_record_ack(at, ack)?;
            }
        }
        Ok(true)
    }

    /// Ends a connection that broke, or that the driver (the code that has the socket) closes.
    /// Returns the reason why the connection has ended.
    ///
    /// The reason differs from `end` if the peer's memory breaks the protocol. In that case the
    /// peer may have sent more than was received, and has not finished in good order.
    pub(crate) fn ended(&mut self, conn: &mut Conn, end: End) -> End {
        let is_present = self.attachment.active == Some(conn.id());
        let end = match end {
            End::Left | End::Broken(_) if is_present => self.pull_rest().err().unwrap_or(end),
            end => end,
        };
        if is_present && end == End::Left {
            self.attachment.finished_at = Some((self.inbox.stream(), self.inbox.received()));
        }
        let end = conn.end(end);
        if self.attachment.end(conn.id()) {
            self.push_event(Event::Detached { reason: end.to_string() });
        }
        if self.attachment.active.is_none() {
            self.peer_memory = None;
        }
        end
    }

    /// Takes all records that are left in the peer's memory when the connection ends, because every
    /// complete record there was sent. Also reads the peer's acked offset once more. The peer's
    /// window bounds the number of records.
    fn pull_rest(&mut self) -> Result<(), End> {
        while self.pull_present()? {}
        self.poll_acked();
        let fault = self.peer_memory.as_mut().and_then(|memory| memory.fault.take());
        fault.map_or(Ok(()), Err)
    }

    /// Whether an ACK frame has to be sent on the connection. `idle` says that the application is
    /// about to wait.
    pub(crate) fn is_ack_due(&self, conn: &Conn, idle: bool) -> bool {
        let is_present = self.attachment.active == Some(conn.id());
        if !is_present || self.acked_offset().is_none() || conn.is_shared() {
            // Over shared memory the peer reads acknowledgements in this end's memory, so no ACK
            // frame is sent.
            return false;
        }
        let Some(window) = conn.window() else { return false };
        let drained = (idle || conn.is_ack_due) && !seeded_fault("link_ack_waits");
        // A long message in the slab takes only one slot of the ring. So an ACK frame is also due
        // once a quarter of the peer's slab is consumed.
        let slab =
            self.inbox.slab_unacked() > window.slab_bytes / 4 && !seeded_fault("link_ack_waits");
        let (acked, consumed) = (self.attachment.acked, self.inbox.consumed());
        is_ack_due(window.ring_bytes, acked, consumed, drained || slab)
    }

    /// Queues an ACK frame if one is due. `idle` says that the application is about to wait, so
    /// that no record will carry the acknowledgement.
    pub(crate) fn acknowledge(&mut self, conn: &mut Conn, idle: bool) {
        if !self.is_ack_due(conn, idle) {
            return;
        }
        let Some(acked_offset) = self.acked_offset() else { return };
        conn.is_ack_due = false;
        self.attachment.acked = acked_offset.position;
        self.inbox.slab_acked();
        let is_faulty = seeded_fault("link_ack_of_received");
        let consumed = if is_faulty { self.inbox.received() } else { acked_offset.position };
        conn.push_frame(&Frame::Ack { stream: acked_offset.stream, consumed });
    }

    /// Begins to close the connection in good order: queues the frame LEAVE. Both ends keep their
    /// unacknowledged messages. Once everything is written, the driver, which has the socket, can
    /// close the connection.
    ///
    /// LEAVE says that all records were sent. While some records are unsent, LEAVE is not queued.
    /// If the connection is then closed, the peer waits for this end to return.
    pub(crate) fn leave(&mut self, conn: &mut Conn) {
        if conn.is_active() && !conn.is_leaving {
            self.acknowledge(conn, true);
            if self.unsent_bytes(conn) == 0 {
                conn.push_frame(&Frame::Leave);
            }
            conn.is_leaving = true;
        }
    }

    #[inline]
    pub(crate) fn has_outgoing(&self, conn: &Conn) -> bool {
        conn.has_outgoing(&self.retained)
    }

    /// Whether the connection is no longer the present one, because another connection replaced it
    /// or an epoch ended it.
    ///
    /// The driver, which has the socket, must then end the connection, because nothing more may be
    /// sent on it.
    #[inline]
    pub(crate) fn is_replaced(&self, conn: &Conn) -> bool {
        conn.cursor.is_some() && self.attachment.active != Some(conn.id())
    }

    /// Number of bytes of this end's ring that still have to be written to the connection's socket.
    /// A BLOB (a message in the slab) counts only with its ring record, however long its message
    /// is.
    #[inline]
    pub(crate) fn unsent_bytes(&self, conn: &Conn) -> u64 {
        conn.unsent_bytes(&self.retained)
    }

    /// Whether all records up to the position `tail` are written to the connection. Over shared
    /// memory: whether the peer can read these records, and this end has written the frames that
    /// say so.
    pub(crate) fn has_sent(&self, conn: &Conn, tail: Position) -> bool {
        conn.has_sent(&self.retained, tail)
    }

    /// Identifies the next byte to write on the connection. The value changes with each byte
    /// written.
    pub(crate) fn next_outgoing(&self, conn: &Conn) -> (usize, usize, Option<SendCursor>) {
        conn.next_outgoing(&self.retained)
    }

    /// Points `slices`, the entries of one vectored write, to the next bytes to write on the
    /// connection, at most about `bytes_max`. Returns the number of entries used.
    ///
    /// # Errors
    /// Fails if the connection has to be closed, for the reason in the error.
    pub(crate) fn outgoing<'a>(
        &'a self,
        conn: &'a Conn,
        bytes_max: usize,
        slices: &mut [IoSlice<'a>],
    ) -> Result<usize, End> {
        conn.outgoing(&self.retained, self.is_replaced(conn), bytes_max, slices)
    }

    /// Records that the next `bytes` bytes were written to the connection.
    ///
    /// # Errors
    /// Fails if the connection has to be closed, for the reason in the error.
    pub(crate) fn sent(&self, conn: &mut Conn, bytes: usize) -> Result<(), End> {
        conn.sent(&self.retained, bytes)
    }

    /// The number of this end's epoch, which the peer will take over if its own is lower.
    pub(crate) fn epoch(&self) -> u64 {
        self.store.durable.epoch.0
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.attachment.active.is_some()
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.attachment.is_fenced
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        self.store.durable.quarantine.is_some()
    }

    /// The id of this end's store, and the number of processes that have owned it.
    pub(crate) fn provenance(&self) -> Provenance {
        self.store.provenance()
    }

    pub(crate) fn login(&self) -> &[u8] {
        &self.attachment.login
    }

    /// Whether the peer closed its end in good order, and every message that it had sent was
    /// delivered.
    ///
    /// If a later connection has brought more messages, the peer has not finished.
    pub(crate) fn has_finished(&self) -> bool {
        let received = (self.inbox.stream(), self.inbox.received());
        self.attachment.finished_at == Some(received) && !self.has_next()
    }

    /// Whether the peer closed its end in good order, and every message that it had sent was
    /// delivered. For each time that the peer closed its end, only one call returns true.
    pub(crate) fn take_finished(&mut self) -> bool {
        let has_finished = self.has_finished();
        if has_finished {
            self.attachment.finished_at = None;
        }
        has_finished
    }

    /// Takes the oldest event, such as a lost connection, that the application has not taken yet.
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        let event = self.events.pop();
        // The events are queued as `LossPossible`, then `RepeatPossible`. An application that takes
        // the second has both, so no later owner has to report them again.
        if event == Some(Event::RepeatPossible) {
            self.set_notified(true);
        }
        event
    }

    /// Records whether the application has taken the events about the adoption of the file after
    /// another boot. If not, the next owner gets these events again.
    pub(crate) fn set_notified(&mut self, is_notified: bool) {
        self.store.file().into_iter().for_each(|file| file.set_notified(is_notified));
    }

    pub(crate) fn push_event(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(crate) fn reports(&self) -> &[Report] {
        self.store.durable.reports()
    }

    /// Number of reports that were dropped because the state had no room for more reports.
    pub(crate) fn reports_dropped(&self) -> u64 {
        self.store.durable.reports_dropped
    }

    /// Removes from this end's stored state the reports that `is_seen` selects, and subtracts
    /// `dropped` from the number of dropped reports.
    pub(crate) fn reports_seen(&mut self, is_seen: impl FnMut(&Report) -> bool, dropped: u64) {
        let before = (self.reports().len(), self.reports_dropped());
        self.store.durable.forget_reports(is_seen, dropped);
        if before != (self.reports().len(), self.reports_dropped()) {
            self.commit_state();
        }
    }
}

/// Writes the given link files, all of one file system, to the disk: one by one, or the whole file
/// system if they are many.
fn sync_files(files: &[(&FileHandle, Closing)]) -> io::Result<()> {
    match files {
        [(first, _), ..] if files.len() >= SYNCED_TOGETHER_MIN => first.sync(SyncScope::FileSystem),
        _ => files.iter().try_for_each(|(file, _)| file.sync(SyncScope::File)),
    }
}

/// Returns the peer's memory if the present connection reads records from it; `None` if records
/// come over the socket.
#[inline]
fn present<'a>(
    memory: &'a mut Option<PeerMemory>,
    attachment: &Attachment,
) -> Option<&'a mut PeerMemory> {
    memory.as_mut().filter(|memory| attachment.active == Some(memory.conn))
}

/// The delivery count of the message whose record begins at `start`.
#[inline(always)]
fn attempt(durable: &DurableState, start: Position) -> u32 {
    let before = durable.delivered().iter().filter(|delivered| **delivered > start).count();
    u32::try_from(1 + before).unwrap_or(u32::MAX)
}

/// The place into which this end writes its acknowledgement when it sends a message.
#[derive(Clone, Copy, Debug)]
enum AckCarrier {
    /// The record of the message that is sent carries this end's acknowledgement. A later owner of
    /// this end also recovers its last acknowledgement from the record of a reply (SPEC 12.5).
    Message(Option<AckedOffset>),
    /// The control page of this end's memory, which the peer reads, has the acknowledgement. So the
    /// message's own record can be compact.
    ConsumedRecord,
}

/// A message that was delivered to the application, and is still in the inbox, because it is not
/// acknowledged yet.
pub(crate) struct Delivered<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) token: DeliveryId,
    /// The delivery count of the message: 1, plus one for each earlier owner that was delivered the
    /// message and did not acknowledge it.
    pub(crate) attempt: u32,
}

/// Identifies a delivered message by its stream, and by the positions at which its record begins
/// and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryId {
    pub(crate) start: Position,
    pub(crate) stream: StreamId,
    pub(crate) end: Position,
}

/// The effect of the bytes that arrived on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) activated: bool,
    /// Whether the bytes brought new messages, or a control frame that was handled.
    pub(crate) has_progress: bool,
    /// Total length in bytes of the incomplete frame or record at the end of the bytes that were
    /// read from the socket; 0 if there is none.
    pub(crate) needed: usize,
}

/// Time at which this end has to notify a sleeping peer of acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotifyDue {
    /// Never: this end need not notify the peer, which was already notified of every
    /// acknowledgement.
    Never,
    /// This end notifies the peer of acknowledgements when its own application is about to wait.
    Idle,
    /// This end notifies the peer of acknowledgements once all received messages are delivered,
    /// because the peer waits for room or acknowledgements.
    Drained,
    Now,
}

/// Reason why a message was not sent. The link is then unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendFault {
    /// The ring or slab is full of unacknowledged messages.
    Full,
    TooLarge {
        /// The length in bytes of the longest message that ring and slab can hold.
        max: usize,
    },
    /// The open batch would take more than half the ring with this message.
    BatchFull,
    /// The link accepts no messages: it is fenced or in quarantine.
    Stopped,
}

/// Reason why a message was not acknowledged. If the link still has the message, it delivers it
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckFault {
    /// A later message was already acknowledged, which acknowledged this message too.
    Consumed,
    /// The message's epoch is over. Or the link has attached to another process of the peer since,
    /// and the message will arrive and be delivered again.
    Stale,
}

/// Reason why a reply was not sent. The message to which it replies was then not acknowledged
/// either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFault {
    Ack(AckFault),
    Send(SendFault),
}

/// Reason why a store cannot be used: its contents contradict each other.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    /// The state of the store contradicts itself, or contradicts the ring.
    #[error(transparent)]
    State(#[from] FileFault),
    /// A published record in the ring is damaged.
    #[error(transparent)]
    Ring(#[from] RingDamage),
}

/// The bit that is set in the first word of every record, and clear in the first word of every
/// control frame.
const COMMITTED: u64 = 1;
/// If at least this number of files of one file system are closed together, one system call writes
/// the whole file system to the disk. For fewer files, separate calls write less.
const SYNCED_TOGETHER_MIN: usize = 64;
