// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handle to an established connection for its observer: announces hot restarts, reads metrics, and
//! reports the connection's end.
//!
//! ```text
//!   receiver ── HotRestart, HotRestartAck, end ──▶ Control ──▶ Observer: Connections, or a pool
//!   outlet   ◀─ HotRestart, HotRestartAck ──────── Control ◀── announce, acknowledge
//!   counters, rings ── current figures ──────────▶ Control ──▶ metrics
//! ```
//!
//! The receiver reads the connection's socket and ring, and the outlet writes to the socket. A
//! [`Control`] keeps neither the socket nor the session alive. After the connection has ended, it
//! still returns the last metrics, and writes nothing.
//!
//! # Invariants
//!
//! - No lock of the connection is held during a call of the observer, because the observer may
//!   write to the connection, which locks.
//! - Messages that a [`Control`] writes are in order with all other messages of the connection on
//!   the socket.

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

/// Handle to a connection, for the connection's observer: the table of connections, or a pool.
pub(crate) struct Control {
    number: u64,
    is_client: bool,
    outlet: Weak<SharedOutlet>,
    counters: Arc<ConnectionCounters>,
    /// The ring through which this side sends elements, and the ring through which it receives
    /// them.
    rings: (FillWatch, FillWatch),
    driver_waker: DriverWaker,
    observer: Arc<dyn Observer>,
    /// Whether the peer has sent its first Polling message. By then it has finished its setup after
    /// the handshake, and can handle the notification of a hot restart.
    has_polled: AtomicBool,
    is_ended: AtomicBool,
}

/// An observer of connections, which acts on hot restarts and on the ends of connections.
pub(crate) trait Observer: fmt::Debug + Send + Sync {
    /// Returns a number for the next connection, which no other connection of the observer gets.
    fn number(&self) -> u64;

    /// Called when a connection is established, before anything is read from its socket.
    fn joined(&self, connection: &Arc<Control>);

    /// Called when the peer has sent its first Polling message.
    fn polled(&self, _connection: &Control) {}

    /// Called when the peer announces that it hands over to a new process.
    fn restart_announced(&self, _connection: &Control, _epoch: u64) {}

    /// Called when the peer acknowledges that it has moved to the new process.
    fn restart_acknowledged(&self, _connection: &Control, _epoch: u64) {}

    fn ended(&self, connection: &Control);
}

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

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) const fn is_client(&self) -> bool {
        self.is_client
    }

    pub(crate) fn has_polled(&self) -> bool {
        // ORDER: Relaxed: a caller that reads a stale `false` misses nothing. When the peer's first
        // Polling message arrives, the connection's receiver calls `Observer::polled`, and the
        // observer handles the message there, under its own lock.
        self.has_polled.load(Ordering::Relaxed)
    }

    pub(crate) fn is_ended(&self) -> bool {
        // ORDER: Relaxed: a caller that does not see yet that the connection has ended may still
        // write to it, which has no effect.
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Announces a hot restart to the peer: a new process takes over.
    pub(crate) fn announce(&self, epoch: u64) {
        self.write(|outlet| outlet.restart(epoch));
    }

    /// Acknowledges a hot restart to the peer: this client has connected to the new server process.
    #[cfg(feature = "tokio")]
    pub(crate) fn acknowledge(&self, epoch: u64) {
        self.write(|outlet| outlet.acknowledge_restart(epoch));
    }

    /// Whether the connection has buffered bytes that the socket has not accepted.
    #[cfg(feature = "tokio")]
    pub(crate) fn keeps(&self) -> bool {
        self.outlet.upgrade().is_some_and(|outlet| outlet.keeps())
    }

    /// Writes a message to the socket of the connection. An error is ignored: a connection that
    /// cannot write has ended or is about to end, and its observer will be notified of that.
    fn write(&self, write: impl FnOnce(&mut Outlet) -> Result<(), TrySendError>) {
        let Some(outlet) = self.outlet.upgrade() else { return };
        let written = outlet.with(write);
        if written.is_ok() && outlet.keeps() {
            // The socket has not accepted all bytes: the session's driver writes the rest once it
            // has room.
            self.driver_waker.wake();
        }
    }

    pub(crate) fn count(&self, what: Count) {
        self.counters.add(what, 1);
    }

    /// Number of messages of this connection that used the socket instead of shared memory, in both
    /// directions.
    #[cfg(feature = "tokio")]
    pub(crate) fn fallbacks(&self) -> u64 {
        self.counters.fallbacks()
    }

    pub(crate) fn metrics(&self) -> SessionMetrics {
        SessionMetrics {
            performance: self.counters.performance(self.pending()),
            stability: self.counters.stability(),
            share_memory: self.counters.memory(),
        }
    }

    /// Returns a number that identifies the connection's region of buffers. The connections of one
    /// pool may share a region, which the pool's metrics then count once.
    #[cfg(feature = "tokio")]
    pub(crate) fn region(&self) -> usize {
        self.counters.region()
    }

    /// Reports the counters of the connection to the application's metrics monitor, if the report
    /// interval has elapsed.
    pub(crate) fn tell_monitor(&self) {
        self.counters.tell_monitor(false, || self.pending());
    }

    /// The time at which the next report to the application's metrics monitor is due.
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

/// Functions that the connection's receiver calls.
impl Control {
    pub(super) fn polled(&self) {
        // ORDER: Relaxed: the swap of `has_polled` only finds out whether this Polling message is
        // the first. If so, the observer is notified, and its lock orders that notification.
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

    /// Records that the connection has ended, and notifies the observer. Only the first call has an
    /// effect.
    pub(super) fn end(&self) {
        // ORDER: Relaxed: the swap returns `false` to only one caller, which notifies the observer.
        // No other access depends on the flag `is_ended`.
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
