// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender of the shared memory transport: chooses the form of each message, and notifies the
//! receiver.
//!
//! ```text
//!   length ≤ inline_max ───────────────▶ DATA      copied into the ring
//!   a block can be allocated ──────────▶ BLOB      the receiver sees the block (blob_memory.rs)
//!   no block, the policy is Overflow ──▶ FRAGMENT… copied through the ring (sender/slow_path.rs)
//!
//!   early check: notify the receiver if it sleeps ─▶ write the record, publish it ─▶ fence
//!                ─▶ check: notify the receiver if it sleeps now
//!   receiver without progress 5 ms after a wake-up, or in 256 batches ─▶ check its process
//! ```
//!
//! No method blocks. The early notification only saves time ([`EarlyNotify`]); the check after the
//! publication is what proves that no wake-up is lost (SPEC 6.3). SEGMENT and SEGMENT_RETIRE
//! records precede every record that refers to their memory. In a session a message may carry
//! credit of the other direction: a BLOB contains the credit, and before any other message a record
//! with the credit is written.
//!
//! A batch takes at most half the ring. While a batch is open, the sender may wait for room,
//! because the receiver can consume the records before the batch. The sender must not wait for
//! memory of which the batch holds all blocks.

mod slow_path;

use super::blob_memory::BlobMemory;
use super::{SharedMemory, word};
use crate::config::{BackPressure, Config};
use crate::error::Closed;
use crate::transport::{NotSent, Progress};
use partywall_layout::RingSize;
use partywall_layout::record_ring::Kind;
use partywall_layout::segment::{ASLEEP_RECORDS, sending};
use partywall_ring::{OwnMem, PeerMem, Producer, Sleeper, Wake, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// The sending end of a connection over shared memory: writes records to this side's ring.
#[derive(Debug)]
pub(crate) struct ShmSender {
    pub(super) shm: Arc<SharedMemory>,
    /// The word of the fork guard, which the kernel clears in a forked child.
    fork_word: &'static AtomicU64,
    pub(super) producer: Producer,
    records_waker: Waker,
    early: EarlyNotify,
    /// Whether an announcement of memory (SEGMENT, SEGMENT_RETIRE) or a record FRAGMENT_ABORT must
    /// be appended before the next record.
    has_pending: bool,
    /// Whether the open batch refers to blocks or announces segments.
    batch_has_memory: bool,
    /// Whether code of the caller is writing a message in place. If that code panics, the flag
    /// stays set, and the next call discards the unfinished message.
    is_filling: bool,
    pub(super) inline_max: usize,
    /// The number of the stream to which the next messages belong; 0 on a channel.
    stream: u32,
    /// Number of batches that the sender has published since it last saw the peer make progress.
    /// After `SILENT_COMMITS_MAX` of them, the sender checks whether the peer lives.
    silent_commits: u32,
    /// Credit for messages of the other direction, which the next message carries to the peer.
    pub(super) credit: Option<u64>,
    pub(super) counters: OwnMem,
    messages: u64,
    bytes: u64,
    end: Option<Closed>,
    pub(super) policy: BackPressure,
    /// Whether the sender has given up a message after some of its fragments were sent. The record
    /// FRAGMENT_ABORT is then pending.
    abort_pending: bool,
    pub(super) memory: BlobMemory,
    /// The private buffer of the last small reservation, kept for the next small reservation.
    spare: Vec<u8>,
    sleeper: Sleeper,
    /// The ring position up to which the peer had read when the sender last saw the peer make
    /// progress.
    consumed_when_alive: u64,
    /// When the sender last notified the peer, or checked whether the peer's process lives.
    notified_at: Option<Instant>,
}

pub(super) struct ShmSenderParts {
    pub ring: OwnMem,
    pub ring_size: RingSize,
    pub asleep: OwnMem,
    pub counters: OwnMem,
    pub slab: OwnMem,
    pub release_ring: PeerMem,
}

impl ShmSender {
    pub(super) fn new(shm: Arc<SharedMemory>, parts: ShmSenderParts, config: &Config) -> Self {
        let peer_region = shm.peer_region.clone();
        let peer_message = usize::try_from(shm.limits.peer_message).unwrap_or(usize::MAX);
        let memory = BlobMemory::new(&shm, parts.slab, parts.release_ring, config);
        let mut sender = Self {
            fork_word: shm.connection_state.guard.word(),
            producer: Producer::new(parts.ring, parts.ring_size, peer_region.clone()),
            records_waker: Waker::new(peer_region, word(ASLEEP_RECORDS)),
            early: EarlyNotify::default(),
            has_pending: false,
            batch_has_memory: false,
            is_filling: false,
            // A message longer than the peer accepts is never inline, so the code for long messages
            // checks its length. One byte is always inline, because a message in fragments has at
            // least two bytes.
            inline_max: config.inline_max.min(peer_message).max(1),
            stream: 0,
            silent_commits: 0,
            credit: None,
            counters: parts.counters,
            messages: 0,
            bytes: 0,
            end: None,
            policy: config.back_pressure,
            abort_pending: false,
            memory,
            spare: Vec::new(),
            sleeper: Sleeper::new(parts.asleep),
            consumed_when_alive: 0,
            notified_at: None,
            shm,
        };
        sender.note_memory();
        sender
    }

    #[inline]
    pub(crate) fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        if payload.len() <= self.inline_max {
            self.notify_early()?;
        }
        let sent = self.add(payload);
        self.finish(sent, payload.len())
    }

    /// Sends a message: inline, in a block, or in pieces of which a call sends as many as fit.
    /// `progress` counts the sent bytes.
    #[inline]
    pub(crate) fn send_on(
        &mut self,
        payload: &[u8],
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        if payload.len() <= self.inline_max {
            return self.try_send(payload);
        }
        self.send_long(payload, progress)
    }

    /// Publishes the open batch, and notifies the receiver if it sleeps.
    #[inline]
    pub(crate) fn publish(&mut self) -> Result<(), NotSent> {
        if self.records_waker.is_gone() {
            self.roll_back();
            return Err(self.left());
        }
        let was_notified = self.early.take();
        #[cfg(shuttle)]
        super::switch_point();
        self.producer.publish();
        let tail = self.producer.published();
        self.store_totals();
        self.counters.store(TAIL, tail.0);
        if self.batch_has_memory {
            self.batch_has_memory = false;
            let blobs = self.memory.published(tail);
            self.add_to_counter(sending::BLOBS, blobs);
            self.note_memory();
        }
        // From this point on, the receiver may already have the message. If the receiver turns out
        // to be gone, the next call reports it.
        #[cfg(shuttle)]
        super::switch_point();
        match self.records_waker.check() {
            Wake::No => {
                if was_notified {
                    self.early.was_enough();
                }
                self.silent_commits += 1;
                if self.silent_commits >= SILENT_COMMITS_MAX {
                    let _ = self.check_peer();
                }
            }
            asleep => self.wake(asleep, was_notified),
        }
        self.producer.prepare_ahead();
        Ok(())
    }

    /// Whether a message of `len` bytes is short enough to be inline. Fails if the ring has no
    /// room for it.
    #[inline]
    pub(crate) fn prepare_inline(&mut self, len: usize) -> Result<bool, NotSent> {
        self.check()?;
        if len > self.inline_max {
            return Ok(false);
        }
        self.append_pending()?;
        match self.producer.has_room(len) {
            Ok(true) => Ok(true),
            Ok(false) => Err(self.no_space()),
            Err(violation) => Err(self.violated(violation)),
        }
    }

    /// Sends an inline message that `fill` writes in the ring. The caller must have called
    /// [`prepare_inline`](Self::prepare_inline) before.
    #[inline]
    pub(crate) fn send_inline(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), NotSent> {
        self.notify_early()?;
        self.is_filling = true;
        let added = self.producer.append_with(Kind::Data, self.stream, len, fill);
        self.is_filling = false;
        let added = added.map_err(|error| self.not_appended(error));
        self.finish(added, len)
    }

    /// Checks that this process may send, and that the receiver has not left.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), NotSent> {
        #[cfg(shuttle)]
        super::switch_point();
        // ORDER: Relaxed for both loads: neither the word of the fork guard nor
        // `SharedMemory::owner` guards other memory.
        let is_owner =
            self.fork_word.load(Ordering::Relaxed) == self.shm.owner.load(Ordering::Relaxed);
        if is_owner && !self.is_filling && self.end.is_none() {
            return Ok(());
        }
        self.check_slowly()
    }

    /// Appends a message to the open batch: inline if it is short, otherwise in a block or in
    /// fragments.
    #[inline]
    fn add(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        if payload.len() > self.inline_max {
            return self.add_long(payload);
        }
        self.append_pending()?;
        self.append_credit()?;
        self.append(Kind::Data, &[payload])
    }

    /// Appends a CREDIT record, for a message that cannot carry the credit itself.
    #[inline]
    pub(super) fn append_credit(&mut self) -> Result<(), NotSent> {
        match self.credit.take() {
            None => Ok(()),
            Some(credited) => self.append(Kind::Credit, &[U64::new(credited).as_bytes()]),
        }
    }

    #[inline]
    pub(super) fn append(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), NotSent> {
        let appended = self.producer.append_parts(kind, self.stream, parts);
        appended.map_err(|error| self.not_appended(error))
    }

    /// Appends the pending records about segments and about an aborted message to the open batch,
    /// before any other record.
    #[inline]
    pub(super) fn append_pending(&mut self) -> Result<(), NotSent> {
        if self.has_pending { self.append_pending_now() } else { Ok(()) }
    }

    /// Publishes the appended records if `sent` is a success, and discards these records otherwise.
    #[inline]
    pub(super) fn finish(&mut self, sent: Result<(), NotSent>, len: usize) -> Result<(), NotSent> {
        match sent {
            Ok(()) => {
                debug_assert!(self.credit.is_none(), "credit that was taken is always sent");
                self.count(len);
                self.publish()
            }
            Err(unsent) => {
                self.roll_back();
                Err(unsent)
            }
        }
    }

    #[inline]
    pub(super) const fn count(&mut self, len: usize) {
        self.messages += 1;
        self.bytes += len as u64;
    }

    /// Writes the numbers of sent messages and bytes to the counters in the region, which other
    /// processes may read.
    #[inline]
    pub(super) fn store_totals(&mut self) {
        self.counters.store(MESSAGES, self.messages);
        self.counters.store(BYTES, self.bytes);
    }

    /// Notifies a sleeping receiver before the record is written, so that the receiver wakes up
    /// while the sender writes. Fails if the receiver has left.
    #[inline]
    fn notify_early(&mut self) -> Result<(), NotSent> {
        if !self.early.is_worth_it() {
            return if self.records_waker.is_gone() { Err(self.left()) } else { Ok(()) };
        }
        match self.records_waker.check_early() {
            Wake::Notify => {
                self.notify();
                self.early.notified();
                Ok(())
            }
            Wake::Gone => Err(self.left()),
            Wake::No | Wake::Notified | Wake::Quiet => Ok(()),
        }
    }
}

/// Decides whether to notify a sleeping receiver before the record is published.
///
/// ```text
///   receiver on another CPU    the sender notifies, writes and publishes while the receiver wakes
///                              up; then the receiver polls and finds the record
///   receiver on the same CPU   the sender notifies; the receiver runs at once, finds no record and
///                              sleeps; the sender writes, publishes and has to notify again
/// ```
///
/// The sender cannot know on which CPU the receiver will run. An early notification that has to be
/// repeated shows that the receiver runs on the sender's CPU. A number of later notifications then
/// come after the publication of their record. Each further early notification that has to be
/// repeated doubles that number.
#[derive(Debug, Default)]
struct EarlyNotify {
    /// Whether the sender has notified the receiver for a record that is not published yet.
    has_notified: bool,
    /// Number of further notifications that the sender gives only after it has published the
    /// record. While the number is not 0, the sender gives no early notification.
    held_off: u32,
    /// The number of notifications after the publication to which `held_off` was last set; 0 after
    /// an early notification that sufficed.
    hold_off: u32,
}

impl EarlyNotify {
    /// Whether the sender should notify a sleeping receiver before it publishes the record. The
    /// answer is `true` at most once for each publication.
    #[inline]
    const fn is_worth_it(&self) -> bool {
        self.held_off == 0 && !self.has_notified
    }

    /// Notes that the sender notified the receiver before the record was published.
    const fn notified(&mut self) {
        self.has_notified = true;
    }

    /// Notes that the record was published. Returns whether the receiver was notified before the
    /// publication.
    #[inline]
    const fn take(&mut self) -> bool {
        core::mem::replace(&mut self.has_notified, false)
    }

    /// Notes that an early notification sufficed: the receiver needed no notification after the
    /// publication of the record.
    const fn was_enough(&mut self) {
        self.hold_off = 0;
    }

    /// Notes that the sender notified the receiver after the publication of the record. `again` is
    /// whether the receiver had also been notified before the publication, which did not suffice.
    fn was_needed(&mut self, again: bool) {
        if again {
            self.hold_off = (self.hold_off * 2).clamp(HOLD_OFF_FIRST, HOLD_OFF_MAX);
            self.held_off = self.hold_off;
        } else {
            self.held_off = self.held_off.saturating_sub(1);
        }
    }
}

/// After this many published batches without progress of an awake peer, the sender checks whether
/// the peer lives.
const SILENT_COMMITS_MAX: u32 = 256;
/// After this time without a reaction to a notification, the sender checks whether the peer lives.
const SILENT_TIME_MAX: Duration = Duration::from_millis(5);
/// Number of notifications to the receiver that the sender gives only after it has published their
/// record, once a notification before the publication had to be repeated. Each further repetition
/// doubles this number.
const HOLD_OFF_FIRST: u32 = 16;
const HOLD_OFF_MAX: u32 = 4096;
const MESSAGES: usize = word(sending::MESSAGES * 8);
const BYTES: usize = word(sending::BYTES * 8);
const TAIL: usize = word(sending::TAIL * 8);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns after how many notifications `EarlyNotify` allows an early notification again. Each
    /// counted notification comes after the publication of its record.
    fn notifies_until_early(early: &mut EarlyNotify) -> u32 {
        let mut count = 0;
        while !early.is_worth_it() {
            early.was_needed(false);
            count += 1;
        }
        count
    }

    #[test]
    fn early_notify_in_vain_again_is_held_off_twice_as_long() {
        let mut early = EarlyNotify::default();
        assert!(early.is_worth_it());
        let held_off: Vec<_> = (0..10)
            .map(|_| {
                early.was_needed(true);
                notifies_until_early(&mut early)
            })
            .collect();
        assert_eq!(held_off, [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096]);
    }

    #[test]
    fn early_notify_that_was_enough_is_tried_again() {
        let mut early = EarlyNotify::default();
        for _ in 0..5 {
            early.was_needed(true);
            notifies_until_early(&mut early);
        }
        early.was_enough();
        assert!(early.is_worth_it());
        early.was_needed(true);
        assert_eq!(notifies_until_early(&mut early), HOLD_OFF_FIRST);
    }

    #[test]
    fn early_notify_counts_for_one_record() {
        let mut early = EarlyNotify::default();
        assert!(!early.take());
        early.notified();
        assert!(!early.is_worth_it(), "again before anything was published");
        assert!(early.take() && !early.take());
        assert!(early.is_worth_it());
    }
}
