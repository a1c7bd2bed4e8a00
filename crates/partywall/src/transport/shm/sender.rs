// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender of the shared memory transport: chooses the form of each message, and notifies the
//! receiver.
//!
//! ```text
//!   length ≤ inline_max ───────────────▶ DATA      copied into the ring
//!   a block can be allocated ──────────▶ BLOB      the receiver sees the block (blob_memory.rs)
//!   no block, the policy is Overflow ──▶ FRAGMENT… copied through the ring (sender/slow_path.rs)
//!
//!   receiver awake, room known ────────▶ write the record, publish it ─▶ fence
//!                ─▶ check: notify the receiver if it sleeps now       (`send_plainly`)
//!   otherwise ──▶ early check: notify the receiver if it sleeps ─▶ the same (slow_path.rs)
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

mod early;
mod slow_path;

use self::early::EarlyNotify;
use super::blob_memory::BlobMemory;
use super::{SharedMemory, word};
use crate::config::{BackPressure, Config};
use crate::error::Closed;
use crate::transport::NotSent;
use partywall_layout::RingSize;
use partywall_layout::record_ring::Kind;
use partywall_layout::segment::{ASLEEP_RECORDS, sending};
use partywall_ring::{OwnMem, PeerMem, Producer, Sleeper, Wake, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
            records_waker: Waker::new(&peer_region, word(ASLEEP_RECORDS)),
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

    /// Sends an inline message of `len` bytes, which `fill` writes in the ring, if nothing else is
    /// to be done before: there is room, and the receiver is awake. Otherwise returns `fill`, and
    /// [`prepare_inline`](Self::prepare_inline) says what keeps the message.
    ///
    /// The result stays in registers, unlike that of other calls, which takes longer to pass in
    /// memory than a short message takes to write.
    #[inline(always)]
    pub(crate) fn send_plainly<F: FnOnce(&mut [u8])>(
        &mut self,
        len: usize,
        fill: F,
    ) -> Result<(), F> {
        let is_plain = self.is_owner()
            && !self.is_filling
            && self.end.is_none()
            && !self.has_pending
            && len <= self.inline_max
            && self.records_waker.is_awake()
            && self.producer.fits_plainly(len);
        if !is_plain {
            return Err(fill);
        }
        self.is_filling = true;
        self.producer.put_plainly(self.stream, len, fill);
        self.is_filling = false;
        #[cfg(shuttle)]
        super::switch_point();
        self.producer.publish_plainly(Kind::Data);
        self.count(len);
        self.finish_publishing(false);
        Ok(())
    }

    /// Counts the records that were just published, and notifies the receiver if it sleeps.
    /// `was_notified` says whether the receiver was notified before the publication.
    #[inline]
    fn finish_publishing(&mut self, was_notified: bool) {
        self.store_totals();
        self.counters.store(TAIL, self.producer.published().0);
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
        // ORDER: Relaxed, as in `SharedMemory::note_wait`: a hint, which this call takes.
        let has_waited = self.shm.has_waited.0.load(Ordering::Relaxed);
        if has_waited {
            self.shm.has_waited.0.store(false, Ordering::Relaxed);
        }
        self.producer.prepare(has_waited);
    }

    /// Checks that this process may send, and that the receiver has not left.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), NotSent> {
        if self.is_owner() && !self.is_filling && self.end.is_none() {
            return Ok(());
        }
        self.check_slowly()
    }

    /// Whether this process made the connection and no peer has broken a rule. `false` may also
    /// mean that only [`SharedMemory::check`] can tell.
    #[inline(always)]
    fn is_owner(&self) -> bool {
        #[cfg(shuttle)]
        super::switch_point();
        // ORDER: Relaxed for both loads: neither the word of the fork guard nor
        // `SharedMemory::owner` guards other memory.
        self.fork_word.load(Ordering::Relaxed) == self.shm.owner.load(Ordering::Relaxed)
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
}

/// After this many published batches without progress of an awake peer, the sender checks whether
/// the peer lives.
const SILENT_COMMITS_MAX: u32 = 256;
/// After this time without a reaction to a notification, the sender checks whether the peer lives.
const SILENT_TIME_MAX: Duration = Duration::from_millis(5);
const MESSAGES: usize = word(sending::MESSAGES * 8);
const BYTES: usize = word(sending::BYTES * 8);
const TAIL: usize = word(sending::TAIL * 8);
