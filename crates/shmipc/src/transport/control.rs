// SPDX-License-Identifier: MIT OR Apache-2.0
//! What concerns a line as a whole: hot restarts, its counters, and its end.
//!
//! ```text
//!   receiver ── HotRestart, HotRestartAck, end ──▶ Control ──▶ Observer: a protocol's lines, or a pool
//!   outlet   ◀─ HotRestart, HotRestartAck ──────── Control ◀── announce, acknowledge
//!   tally, rings ── how it stands ───────────────▶ Control ──▶ metrics
//! ```
//!
//! It keeps neither the socket nor the session alive: whoever holds one of a line that has ended reads its last
//! figures, and writes nothing.
//!
//! # Invariants
//!
//! - An observer is called without any lock of the line, so that it may write.
//! - What is written here is in order with everything else that the line writes on the socket.

use super::counters::ConnectionCounters;
use super::outlet::{Outlet, SharedOutlet};
use crate::memory::queue::FillWatch;
use crate::transport::metrics::{Count, SessionMetrics};
use partywall::protocol::{DriverWaker, TrySendError};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
#[cfg(feature = "tokio")]
use std::time::Instant;

/// A line, for those who look after many.
pub(crate) struct Control {
    number: u64,
    is_client: bool,
    outlet: Weak<SharedOutlet>,
    counters: Arc<ConnectionCounters>,
    /// The ring that we send by, and the other.
    rings: (FillWatch, FillWatch),
    driver_waker: DriverWaker,
    observer: Arc<dyn Observer>,
    /// The other side has woken us once: it is past whatever it does behind a handshake.
    has_polled: AtomicBool,
    is_ended: AtomicBool,
}

/// Who looks after lines.
pub(crate) trait Observer: fmt::Debug + Send + Sync {
    /// What the next line is called.
    fn number(&self) -> u64;

    /// There is a line, of which nothing was read yet.
    fn joined(&self, connection: &Arc<Control>);

    /// The other side wakes us for the first time.
    fn polled(&self, _connection: &Control) {}

    /// The other side hands over to a new process.
    fn restart_announced(&self, _connection: &Control, _epoch: u64) {}

    /// The other side has moved to the new process.
    fn restart_acknowledged(&self, _connection: &Control, _epoch: u64) {}

    /// The line has ended.
    fn ended(&self, connection: &Control);
}

/// What a control is made of.
pub(super) struct ControlParts {
    pub(super) is_client: bool,
    pub(super) outlet: Weak<SharedOutlet>,
    pub(super) counters: Arc<ConnectionCounters>,
    pub(super) rings: (FillWatch, FillWatch),
    pub(super) driver_waker: DriverWaker,
    pub(super) observer: Arc<dyn Observer>,
}

impl Control {
    pub(super) fn new(parts: ControlParts) -> Self {
        let ControlParts { is_client, outlet, counters, rings, driver_waker, observer } = parts;
        let (has_polled, is_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let number = observer.number();
        Self {
            number,
            is_client,
            outlet,
            counters,
            rings,
            driver_waker,
            observer,
            has_polled,
            is_ended,
        }
    }

    /// The number that its observer gave.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) const fn is_client(&self) -> bool {
        self.is_client
    }

    /// Whether the other side has woken us once.
    pub(crate) fn has_polled(&self) -> bool {
        // ORDER: Relaxed: whoever is told late is told by the observer's `polled`, under its lock.
        self.has_polled.load(Ordering::Relaxed)
    }

    pub(crate) fn is_ended(&self) -> bool {
        // ORDER: Relaxed: what is written to a line that has ended goes nowhere.
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Tells the other side that a new process takes over.
    pub(crate) fn announce(&self, epoch: u64) {
        self.write(|outlet| outlet.restart(epoch));
    }

    /// Tells the other side that we have moved.
    #[cfg(feature = "tokio")]
    pub(crate) fn acknowledge(&self, epoch: u64) {
        self.write(|outlet| outlet.acknowledge_restart(epoch));
    }

    /// Whether something is left to be written.
    #[cfg(feature = "tokio")]
    pub(crate) fn keeps(&self) -> bool {
        self.outlet.upgrade().is_some_and(|outlet| outlet.keeps())
    }

    /// A line that cannot write has ended, or is about to, which its observer is told.
    fn write(&self, write: impl FnOnce(&mut Outlet) -> Result<(), TrySendError>) {
        let Some(outlet) = self.outlet.upgrade() else { return };
        let written = outlet.with(write);
        if written.is_ok() && outlet.keeps() {
            // The driver writes the rest when there is room.
            self.driver_waker.wake();
        }
    }

    pub(crate) fn count(&self, what: Count) {
        self.counters.add(what, 1);
    }

    /// How many messages went by the socket, either way.
    #[cfg(feature = "tokio")]
    pub(crate) fn fallbacks(&self) -> u64 {
        self.counters.fallbacks()
    }

    /// How it stands.
    pub(crate) fn metrics(&self) -> SessionMetrics {
        SessionMetrics {
            performance: self.counters.performance(self.pending()),
            stability: self.counters.stability(),
            share_memory: self.counters.memory(),
        }
    }

    /// What tells regions apart: lines of one pool share one.
    #[cfg(feature = "tokio")]
    pub(crate) fn region(&self) -> usize {
        self.counters.region()
    }

    /// Tells the monitor if it is time.
    pub(crate) fn tell_monitor(&self) {
        self.counters.tell_monitor(false, || self.pending());
    }

    /// When it is time to tell the monitor.
    #[cfg(feature = "tokio")]
    pub(crate) fn monitor_due(&self) -> Option<Instant> {
        self.counters.monitor_due()
    }

    fn pending(&self) -> (u64, u64) {
        if self.is_ended() {
            return (0, 0);
        }
        (self.rings.0.count().into(), self.rings.1.count().into())
    }
}

/// What the receiver says.
impl Control {
    pub(super) fn polled(&self) {
        // ORDER: Relaxed: see `has_polled`.
        if !self.has_polled.swap(true, Ordering::Relaxed) {
            self.observer.polled(self);
        }
    }

    pub(super) fn restart_announced(&self, epoch: u64) {
        self.observer.restart_announced(self, epoch);
    }

    pub(super) fn restart_acknowledged(&self, epoch: u64) {
        self.observer.restart_acknowledged(self, epoch);
    }

    /// The line is over; said once.
    pub(super) fn end(&self) {
        // ORDER: Relaxed: only one finds that it was not so.
        if !self.is_ended.swap(true, Ordering::Relaxed) {
            self.counters.tell_monitor(true, || (0, 0));
            self.observer.ended(self);
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("number", &self.number)
            .field("is_client", &self.is_client)
            .field("is_ended", &self.is_ended())
            .finish_non_exhaustive()
    }
}
