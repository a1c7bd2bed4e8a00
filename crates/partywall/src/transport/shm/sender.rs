// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of shared memory: decides how a message travels, and wakes the receiver.
//!
//! ```text
//!   length ≤ inline_max ───────────────▶ DATA      copied into the ring
//!   a block can be allocated ──────────▶ BLOB      the receiver sees the block (blob_memory.rs)
//!   none, and the policy is Overflow ──▶ FRAGMENT… copied through the ring (sender/slow_path.rs)
//!
//!   early check ── receiver asleep? notify ─▶ write, publish ─▶ fence ─▶ check ── asleep? notify
//!   no sign of life: 5 ms after a wake-up, or 256 commits without progress ─▶ ask the system
//! ```
//!
//! No method blocks. The early notification only saves time ([`EarlyNotify`]); the check after the
//! publication is what proves that no wake-up is lost (SPEC 6.3). Announcements of memory (a
//! segment was added, a segment is retired) precede every record that refers to it. In a session a
//! message may carry credit of the other direction: a BLOB contains it, any other message has it
//! written as a record before it.
//!
//! A batch takes at most half the ring. It may wait for space while it is open, because the records
//! before it are the receiver's to consume. It may not wait for memory that only it holds.

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

/// The sending end of a connection.
#[derive(Debug)]
pub(crate) struct ShmSender {
    pub(super) shm: Arc<SharedMemory>,
    /// The word that the kernel clears in a forked child.
    fork_word: &'static AtomicU64,
    pub(super) producer: Producer,
    records_waker: Waker,
    early: EarlyNotify,
    /// Something must be appended before the next record: an announcement, or FRAGMENT_ABORT.
    has_pending: bool,
    /// The open batch refers to memory, or announces some.
    batch_has_memory: bool,
    /// The caller's code is writing a message in place.
    is_filling: bool,
    pub(super) inline_max: usize,
    /// The stream of the messages that are sent; 0 on a channel.
    stream: u32,
    /// Commits since the last sign of life from the peer.
    silent_commits: u32,
    /// Credit of the other direction that the next message carries.
    pub(super) credit: Option<u64>,
    pub(super) counters: OwnMem,
    messages: u64,
    bytes: u64,
    end: Option<Closed>,
    pub(super) policy: BackPressure,
    /// A message was given up after fragments of it went: the receiver must learn of it.
    abort_pending: bool,
    pub(super) memory: BlobMemory,
    /// The buffer of the last small reservation.
    spare: Vec<u8>,
    sleeper: Sleeper,
    /// The peer's `consumed` at the last sign of life.
    consumed_when_alive: u64,
    /// When the peer was last notified, or its process checked.
    notified_at: Option<Instant>,
}

/// The memory of a sending end.
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
            // Longer messages go where lengths are checked. At least one byte goes inline, because
            // a message in fragments has at least two.
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

    /// Sends a whole message at once or not at all.
    #[inline]
    pub(crate) fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        if payload.len() <= self.inline_max {
            self.notify_early()?;
        }
        let sent = self.add(payload);
        self.finish(sent, payload.len())
    }

    /// Sends a message, in pieces if need be.
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

    /// Makes the open batch visible, and wakes the receiver if it sleeps.
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
        // If the receiver turns out to be gone from here on, the next call reports it: this message
        // may have been received before.
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

    /// Whether a message of `len` bytes goes inline, once there is space for it.
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

    /// Sends an inline message that `fill` writes in place, after
    /// [`prepare_inline`](Self::prepare_inline).
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
        // ORDER: Relaxed, both: the words guard no other memory (see `SharedMemory::owner`).
        let is_owner =
            self.fork_word.load(Ordering::Relaxed) == self.shm.owner.load(Ordering::Relaxed);
        if is_owner && !self.is_filling && self.end.is_none() {
            return Ok(());
        }
        self.check_slowly()
    }

    /// Appends a message to the open batch, in the way that its length requires.
    #[inline]
    fn add(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        if payload.len() > self.inline_max {
            return self.add_long(payload);
        }
        self.append_pending()?;
        self.append_credit()?;
        self.append(Kind::Data, &[payload])
    }

    /// Appends the credit that a message cannot carry itself.
    #[inline]
    pub(super) fn append_credit(&mut self) -> Result<(), NotSent> {
        match self.credit.take() {
            None => Ok(()),
            Some(credited) => self.append(Kind::Credit, &[U64::new(credited).as_bytes()]),
        }
    }

    /// Appends one record to the open batch.
    #[inline]
    pub(super) fn append(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), NotSent> {
        let appended = self.producer.append_parts(kind, self.stream, parts);
        appended.map_err(|error| self.not_appended(error))
    }

    /// Appends pending announcements to the open batch, before any other record.
    #[inline]
    pub(super) fn append_pending(&mut self) -> Result<(), NotSent> {
        if self.has_pending { self.append_pending_now() } else { Ok(()) }
    }

    /// Publishes the appended records if `sent` is a success, discards them otherwise.
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

    /// Writes the totals to the counters that others may read.
    #[inline]
    pub(super) fn store_totals(&mut self) {
        self.counters.store(MESSAGES, self.messages);
        self.counters.store(BYTES, self.bytes);
    }

    /// Notifies a sleeping receiver before the record is written, so that it wakes up meanwhile.
    /// Fails if the receiver has left.
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

/// Whether a notification before the record is published saves time or costs it.
///
/// ```text
///   two CPUs   notify ─▶ (it wakes up) ─▶ polls: the record is there   write, publish meanwhile
///   one CPU    notify ─▶ it runs at once ─▶ polls in vain, sleeps ─▶ write, publish, notify again
/// ```
///
/// The sender cannot know on which CPU the sleeper will run. An early notification that has to be
/// repeated shows it. The next notifications then come after the record, and twice as many after
/// each further trial that fails.
#[derive(Debug, Default)]
struct EarlyNotify {
    /// The receiver was notified for a record that is not published yet.
    has_notified: bool,
    /// Notifications left that come after the record.
    held_off: u32,
    /// Value that `held_off` started from the last time.
    hold_off: u32,
}

impl EarlyNotify {
    /// Whether a sleeper is to be notified before the record: once for each publication.
    #[inline]
    const fn is_worth_it(&self) -> bool {
        self.held_off == 0 && !self.has_notified
    }

    /// The receiver was notified early.
    const fn notified(&mut self) {
        self.has_notified = true;
    }

    /// A record is published; whether the receiver was notified for it before.
    #[inline]
    const fn take(&mut self) -> bool {
        core::mem::replace(&mut self.has_notified, false)
    }

    /// The early notification was enough.
    const fn was_enough(&mut self) {
        self.hold_off = 0;
    }

    /// A notification was needed after the record; `again`: in spite of an early one.
    fn was_needed(&mut self, again: bool) {
        if again {
            self.hold_off = (self.hold_off * 2).clamp(HOLD_OFF_FIRST, HOLD_OFF_MAX);
            self.held_off = self.hold_off;
        } else {
            self.held_off = self.held_off.saturating_sub(1);
        }
    }
}

/// After this many commits without a sign of life from an awake peer, the sender asks the system.
const SILENT_COMMITS_MAX: u32 = 256;
/// After this time without an answer to a notification, the sender asks the system.
const SILENT_TIME_MAX: Duration = Duration::from_millis(5);
/// Notifications held off after the first useless early one; twice as many after each further one.
const HOLD_OFF_FIRST: u32 = 16;
const HOLD_OFF_MAX: u32 = 4096;
const MESSAGES: usize = word(sending::MESSAGES * 8);
const BYTES: usize = word(sending::BYTES * 8);
const TAIL: usize = word(sending::TAIL * 8);

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts notifications until the next that would be early.
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
