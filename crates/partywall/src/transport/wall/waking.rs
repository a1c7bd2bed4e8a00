// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a sender rings, how it declares that it sleeps, and how it learns that nobody listens.
//!
//! ```text
//!   look early ── asleep, not rung? ring ─▶ publish ─▶ fence ─▶ look ── asleep, not rung? ring
//!   no sign of life: rung and no answer for 5 ms, or 256 commits without progress ─▶ ask the system
//! ```
//!
//! The early ring only saves time: the neighbour wakes up while the record is still being written. The
//! look after the publishing is what proves that no wake-up is lost (SPEC 6.3).

use super::sender::WallSender;
use super::{Sleeping, Wall};
use crate::error::{Closed, Fault};
use crate::transport::{Unsent, waiting_failed};
use partywall_layout::record::Kind;
use partywall_layout::segment::sending;
use partywall_ring::Wake;
use std::time::{Duration, Instant};

/// After so many commits without a sign of life from an awake neighbour, ask the system.
const UNHEARD_MAX: u32 = 256;
/// After so long without an answer to a ring, ask the system; not more often.
const RUNG_TIME_MAX: Duration = Duration::from_millis(5);

impl WallSender {
    /// Makes the open batch visible and wakes the receiver if it sleeps.
    #[inline]
    pub(super) fn publish(&mut self) -> Result<(), Unsent> {
        let was_rung = self.records_waker.look_early();
        if was_rung {
            self.ring();
        }
        self.producer.publish();
        if !self.batch_blocks.is_empty() {
            self.counters.add(sending::BLOBS, self.batch_blocks.len() as u64);
            self.counters.set(sending::BLOCKS_OUT, self.slab.out());
            self.batch_blocks.clear();
        }
        self.counters.set(sending::TAIL, self.producer.published().0);
        self.growth.told(self.producer.published());
        let woken = match self.records_waker.look() {
            Wake::No => {
                self.unheard += 1;
                if self.unheard >= UNHEARD_MAX { self.listen_for_life() } else { Ok(()) }
            }
            Wake::Rung if was_rung => Ok(()),
            other => self.wake(other),
        };
        self.producer.prepare_ahead();
        woken
    }

    #[cold]
    fn ring(&mut self) {
        self.wall.ring(Sleeping::ForRecords);
        self.unheard = 0;
        self.counters.add(sending::BELLS, 1);
        self.rung_at = Some(Instant::now());
    }

    #[cold]
    fn wake(&mut self, wake: Wake) -> Result<(), Unsent> {
        match wake {
            Wake::Ring => self.ring(),
            // It was rung and has not come for the next message yet, or asked not to be rung: it may be
            // busy, stopped or dead.
            Wake::Rung | Wake::Quiet => return self.ask_in_time(),
            Wake::Gone => {
                self.end = Some(Closed::Finished);
                return Err(Unsent::Closed(Closed::Finished));
            }
            Wake::No => {}
        }
        Ok(())
    }

    /// Asks whether the neighbour lives, unless it was asked, or rung, a moment ago.
    pub(super) fn ask_in_time(&mut self) -> Result<(), Unsent> {
        if self.rung_at.is_some_and(|then| then.elapsed() < RUNG_TIME_MAX) {
            return Ok(());
        }
        self.rung_at = Some(Instant::now());
        self.listen_for_life()
    }

    /// Whether the neighbour has consumed anything lately, or at least lives.
    #[cold]
    fn listen_for_life(&mut self) -> Result<(), Unsent> {
        let consumed = self.wall.glance().0[0];
        if consumed != self.heard_at {
            (self.heard_at, self.unheard) = (consumed, 0);
            return Ok(());
        }
        self.unheard %= UNHEARD_MAX;
        if self.wall.is_neighbour_gone() {
            self.note_hang_up();
            return self.end.map_or(Ok(()), |closed| Err(Unsent::Closed(closed)));
        }
        Ok(())
    }

    pub(crate) fn arm(&mut self, quiet: bool) -> Result<(), Fault> {
        self.wall.check()?;
        // Whoever is about to wait for the neighbour wakes it even if it asked not to be.
        if self.records_waker.look_insistently() == Wake::Ring {
            self.wall.ring(Sleeping::ForRecords);
        }
        self.counters.add(sending::SLEEPS, 1);
        self.sleeper.arm(quiet);
        Ok(())
    }

    /// Takes rings that nobody waited for: a foreign event loop would find them again and again.
    pub(crate) fn drain(&mut self) -> Result<(), Fault> {
        self.wall.check()?;
        let is_gone = self.wall.sleep_for_room(Some(Instant::now()));
        if is_gone.map_err(waiting_failed)? {
            self.note_hang_up();
        }
        Ok(())
    }

    pub(crate) fn disarm(&mut self) {
        if self.wall.standing.guard.is_owner() {
            self.sleeper.disarm();
        }
    }

    pub(crate) fn note_hang_up(&mut self) {
        let has_left = self.records_waker.is_gone();
        self.end = Some(if has_left { Closed::Finished } else { Wall::disconnected() });
    }

    /// Tells the receiver that no more will come. Done once, by whoever drops the end.
    pub(crate) fn close(&mut self) {
        if self.wall.standing.guard.is_child() {
            return;
        }
        if !self.wall.standing.is_violated() {
            self.roll_back();
            if self.owes_abort && self.append(Kind::FragmentAbort, &[]).is_ok() {
                self.producer.publish();
            }
            self.producer.close(Kind::CloseWrite, 0);
            if self.records_waker.look_insistently() == Wake::Ring {
                self.wall.ring(Sleeping::ForRecords);
            }
        }
        self.wall.depart();
    }
}
