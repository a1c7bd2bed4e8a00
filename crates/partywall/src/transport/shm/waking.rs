// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a sender rings, how it declares that it sleeps, and how it learns that nobody listens.
//!
//! ```text
//!   worth it? look early ── asleep, not rung? ring ─▶ write, publish ─▶ fence ─▶ look ── asleep, not rung? ring
//!   no sign of life: rung and no answer for 5 ms, or 256 commits without progress ─▶ ask the system
//! ```
//!
//! The early ring only saves time, where it does (`early.rs`): the neighbour wakes up while the record is still being
//! written. The look after the publishing is what proves that no wake-up is lost (SPEC 6.3).

use super::sender::ShmSender;
use super::{SharedMemory, Sleeping};
use crate::error::{Closed, Fault};
use crate::transport::{Unsent, waiting_failed};
use partywall_layout::record_ring::Kind;
use partywall_layout::segment::sending;
use partywall_ring::Wake;
use std::time::{Duration, Instant};

/// After so many commits without a sign of life from an awake neighbour, ask the system.
const UNHEARD_MAX: u32 = 256;
/// After so long without an answer to a ring, ask the system; not more often.
const NOTIFIED_TIME_MAX: Duration = Duration::from_millis(5);

impl ShmSender {
    /// Wakes a sleeping receiver before there is anything to see: by the time it has woken up, there is.
    /// Where nobody will ever look again, nothing is sent.
    #[inline]
    pub(super) fn notify_early(&mut self) -> Result<(), Unsent> {
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

    /// The receiver has left.
    #[cold]
    fn left(&mut self) -> Unsent {
        self.end = Some(Closed::Finished);
        Unsent::Closed(Closed::Finished)
    }

    /// Makes the open batch visible and wakes the receiver if it sleeps.
    #[inline]
    pub(crate) fn publish(&mut self) -> Result<(), Unsent> {
        if self.records_waker.is_gone() {
            self.roll_back();
            return Err(self.left());
        }
        let was_notified = self.early.take();
        self.producer.publish();
        if !self.batch_blocks.is_empty() {
            self.counters.add(sending::BLOBS, self.batch_blocks.len() as u64);
            self.counters.set(sending::BLOCKS_OUT, self.slab.in_flight());
            self.batch_blocks.clear();
        }
        self.counters.set(sending::TAIL, self.producer.published().0);
        self.growth.told(self.producer.published());
        // What is learned from here on of the receiver's end is for the next call to tell: this message
        // may well have been received before.
        match self.records_waker.check() {
            Wake::No => {
                if was_notified {
                    self.early.was_enough();
                }
                self.unheard += 1;
                if self.unheard >= UNHEARD_MAX {
                    let _ = self.listen_for_life();
                }
            }
            asleep => self.wake(asleep, was_notified),
        }
        self.producer.prepare_ahead();
        Ok(())
    }

    #[cold]
    fn notify(&mut self) {
        self.shm.notify(Sleeping::ForRecords);
        self.unheard = 0;
        self.counters.add(sending::DOORBELLS, 1);
        self.notified_at = Some(Instant::now());
    }

    /// After something was published that it may have been rung for before.
    #[cold]
    fn wake(&mut self, wake: Wake, was_notified: bool) {
        match wake {
            Wake::Notify => {
                self.early.was_needed(was_notified);
                self.notify();
            }
            Wake::Notified if was_notified => self.early.was_enough(),
            // It was rung and has not come for the next message yet, or asked not to be rung: it may be
            // busy, stopped or dead.
            Wake::Notified | Wake::Quiet => {
                let _ = self.ask_in_time();
            }
            Wake::Gone => self.end = Some(Closed::Finished),
            Wake::No => {}
        }
    }

    /// Asks whether the neighbour lives, unless it was asked, or rung, a moment ago.
    pub(super) fn ask_in_time(&mut self) -> Result<(), Unsent> {
        if self.notified_at.is_some_and(|then| then.elapsed() < NOTIFIED_TIME_MAX) {
            return Ok(());
        }
        self.notified_at = Some(Instant::now());
        self.listen_for_life()
    }

    /// Whether the neighbour has consumed anything lately, or at least lives.
    #[cold]
    fn listen_for_life(&mut self) -> Result<(), Unsent> {
        let consumed = self.shm.snapshot().0[0];
        if consumed != self.heard_at {
            (self.heard_at, self.unheard) = (consumed, 0);
            return Ok(());
        }
        self.unheard %= UNHEARD_MAX;
        if self.shm.is_peer_gone() {
            self.note_hang_up();
            return self.end.map_or(Ok(()), |closed| Err(Unsent::Closed(closed)));
        }
        Ok(())
    }

    pub(crate) fn arm(&mut self, quiet: bool) -> Result<(), Fault> {
        self.shm.check()?;
        // Whoever is about to wait for the neighbour wakes it even if it asked not to be.
        if self.records_waker.check_before_wait() == Wake::Notify {
            self.shm.notify(Sleeping::ForRecords);
        }
        self.counters.add(sending::SLEEPS, 1);
        self.sleeper.arm(quiet);
        Ok(())
    }

    /// Takes rings that nobody waited for: a foreign event loop would find them again and again.
    pub(crate) fn drain(&mut self) -> Result<(), Fault> {
        self.shm.check()?;
        let is_gone = self.shm.sleep_for_room(Some(Instant::now()));
        if is_gone.map_err(waiting_failed)? {
            self.note_hang_up();
        }
        Ok(())
    }

    pub(crate) fn disarm(&mut self) {
        if self.shm.connection_state.guard.is_owner() {
            self.sleeper.disarm();
        }
    }

    pub(crate) fn note_hang_up(&mut self) {
        let has_left = self.records_waker.is_gone();
        self.end = Some(if has_left { Closed::Finished } else { SharedMemory::disconnected() });
    }

    /// Tells the receiver that no more will come. Done once, by whoever drops the end.
    pub(crate) fn close(&mut self) {
        if self.shm.connection_state.guard.is_child() {
            return;
        }
        if !self.shm.connection_state.is_violated() {
            self.roll_back();
            if self.abort_pending && self.append(Kind::FragmentAbort, &[]).is_ok() {
                self.producer.publish();
            }
            self.producer.close(Kind::CloseWrite, 0);
            if self.records_waker.check_before_wait() == Wake::Notify {
                self.shm.notify(Sleeping::ForRecords);
            }
        }
        self.shm.depart();
    }
}
