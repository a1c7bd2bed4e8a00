// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection as a whole: hot restarts, metrics, and its end.
//!
//! ```text
//!   receiver ── HotRestart, HotRestartAck, end ──▶ Control ──▶ Observer: Connections, or a pool
//!   outlet   ◀─ HotRestart, HotRestartAck ──────── Control ◀── announce, acknowledge
//!   counters, rings ── current figures ──────────▶ Control ──▶ metrics
//! ```
//!
//! It keeps neither the socket nor the session alive. After the connection has ended it still
//! returns the last metrics, and writes nothing.
//!
//! # Invariants
//!
//! - An observer is called without any lock of the connection, because it may write.
//! - Messages written here are in order with all other messages of the connection on the socket.

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

/// A connection, for its observer.
pub(crate) struct Control {
    number: u64,
    is_client: bool,
    outlet: Weak<SharedOutlet>,
    counters: Arc<ConnectionCounters>,
    /// The ring that we send through, and the other one.
    rings: (FillWatch, FillWatch),
    driver_waker: DriverWaker,
    observer: Arc<dyn Observer>,
    /// The peer has sent its first Polling: it has done what it does right after a handshake.
    has_polled: AtomicBool,
    is_ended: AtomicBool,
}

/// Observes connections.
pub(crate) trait Observer: fmt::Debug + Send + Sync {
    /// Number of the next connection.
    fn number(&self) -> u64;

    /// A connection was established; nothing was read from it yet.
    fn joined(&self, connection: &Arc<Control>);

    /// The peer sent its first Polling.
    fn polled(&self, _connection: &Control) {}

    /// The peer hands over to a new process.
    fn restart_announced(&self, _connection: &Control, _epoch: u64) {}

    /// The peer has moved to the new process.
    fn restart_acknowledged(&self, _connection: &Control, _epoch: u64) {}

    /// The connection has ended.
    fn ended(&self, connection: &Control);
}

/// The parts of a [`Control`].
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

    /// The number that its observer gave it.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) const fn is_client(&self) -> bool {
        self.is_client
    }

    /// Whether the peer has sent a Polling.
    pub(crate) fn has_polled(&self) -> bool {
        // ORDER: Relaxed: a caller that reads a stale value is notified by the observer's `polled`,
        // under its lock.
        self.has_polled.load(Ordering::Relaxed)
    }

    pub(crate) fn is_ended(&self) -> bool {
        // ORDER: Relaxed: writing to a connection that has ended has no effect.
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Announces to the peer that a new process takes over.
    pub(crate) fn announce(&self, epoch: u64) {
        self.write(|outlet| outlet.restart(epoch));
    }

    /// Acknowledges to the peer that we have moved.
    #[cfg(feature = "tokio")]
    pub(crate) fn acknowledge(&self, epoch: u64) {
        self.write(|outlet| outlet.acknowledge_restart(epoch));
    }

    /// Whether bytes are buffered for the socket.
    #[cfg(feature = "tokio")]
    pub(crate) fn keeps(&self) -> bool {
        self.outlet.upgrade().is_some_and(|outlet| outlet.keeps())
    }

    /// A connection that cannot write has ended or is about to, which its observer will be notified
    /// of.
    fn write(&self, write: impl FnOnce(&mut Outlet) -> Result<(), TrySendError>) {
        let Some(outlet) = self.outlet.upgrade() else { return };
        let written = outlet.with(write);
        if written.is_ok() && outlet.keeps() {
            // The driver writes the rest once there is room.
            self.driver_waker.wake();
        }
    }

    pub(crate) fn count(&self, what: Count) {
        self.counters.add(what, 1);
    }

    /// Number of messages over the socket, in both directions.
    #[cfg(feature = "tokio")]
    pub(crate) fn fallbacks(&self) -> u64 {
        self.counters.fallbacks()
    }

    /// The metrics at this time.
    pub(crate) fn metrics(&self) -> SessionMetrics {
        SessionMetrics {
            performance: self.counters.performance(self.pending()),
            stability: self.counters.stability(),
            share_memory: self.counters.memory(),
        }
    }

    /// Identifies the region: the connections of one pool share one.
    #[cfg(feature = "tokio")]
    pub(crate) fn region(&self) -> usize {
        self.counters.region()
    }

    /// Reports to the monitor if the interval is over.
    pub(crate) fn tell_monitor(&self) {
        self.counters.tell_monitor(false, || self.pending());
    }

    /// When the next report to the monitor is due.
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

/// Calls of the receiver.
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

    /// The connection has ended. Only the first call has an effect.
    pub(super) fn end(&self) {
        // ORDER: Relaxed: only one caller reads `false`.
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
