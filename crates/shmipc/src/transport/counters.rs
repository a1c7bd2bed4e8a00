// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of one shmipc connection. The session reports them under Partywall's names, and a
//! metrics monitor gets them under the names of shmipc-go.

use super::streams::Streams;
use crate::region::BufferRegion;
use crate::transport::metrics::{
    Count, Counters, Monitor, PerformanceMetrics, ShareMemoryMetrics, StabilityMetrics,
};
use partywall::{ReceiverStats, SenderStats};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(super) struct ConnectionCounters {
    counts: Counters,
    more: [AtomicU64; RareCount::COUNT],
    sent: Flow,
    received: Flow,
    region: Arc<BufferRegion>,
    streams: Arc<Streams>,
    monitor: Option<Monitoring>,
}

/// The application's metrics monitor for a connection, and the time of the next report to it.
struct Monitoring {
    monitor: Arc<dyn Monitor>,
    interval: Duration,
    due: Mutex<Instant>,
}

/// The counters of one direction of a connection. They change with every message, so they have
/// cache lines of their own. Only one thread at a time adds to them, so they need no locked
/// instructions.
#[derive(Default)]
#[repr(align(128))]
struct Flow {
    messages: AtomicU64,
    bytes: AtomicU64,
    /// Number of messages that were not copied, because they were written or read in shared memory.
    in_place: AtomicU64,
}

impl Flow {
    fn count(&self, bytes: usize, in_place: bool) {
        let add = |figure: &AtomicU64, amount: u64| {
            // ORDER: Relaxed: only one thread at a time writes the counter `figure`, and no other
            // access depends on the counter.
            figure.store(figure.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
        };
        add(&self.messages, 1);
        add(&self.bytes, bytes as u64);
        if in_place {
            add(&self.in_place, 1);
        }
    }

    fn totals(&self) -> [u64; 3] {
        // ORDER: Relaxed: no other access depends on a counter.
        [&self.messages, &self.bytes, &self.in_place].map(|figure| figure.load(Ordering::Relaxed))
    }
}

/// Rare events of a connection that the other implementations do not count.
#[derive(Clone, Copy)]
pub(super) enum RareCount {
    Discarded,
    RoomSleeps,
    Rests,
}

impl RareCount {
    const COUNT: usize = Self::Rests as usize + 1;
}

impl ConnectionCounters {
    pub(super) fn new(
        region: Arc<BufferRegion>,
        streams: Arc<Streams>,
        monitor: Option<(Arc<dyn Monitor>, Duration)>,
    ) -> Self {
        let monitor = monitor.map(|(monitor, interval)| {
            let due = Mutex::new(Instant::now() + interval);
            Monitoring { monitor, interval, due }
        });
        Self {
            counts: Counters::default(),
            more: Default::default(),
            sent: Flow::default(),
            received: Flow::default(),
            region,
            streams,
            monitor,
        }
    }

    pub(super) fn add(&self, what: Count, amount: u64) {
        self.counts.add(what, amount);
    }

    pub(super) fn note(&self, what: RareCount) {
        // ORDER: Relaxed: no other access depends on a counter.
        self.more[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn total(&self, what: RareCount) -> u64 {
        // ORDER: Relaxed: no other access depends on a counter.
        self.more[what as usize].load(Ordering::Relaxed)
    }

    /// Counts a message that this side sent. Only the thread that holds the connection's sender
    /// calls this function.
    pub(super) fn sent(&self, bytes: usize, in_place: bool) {
        self.sent.count(bytes, in_place);
    }

    /// Counts a message that this side received. Only the session's driver calls this function.
    pub(super) fn received(&self, bytes: usize, viewed: bool) {
        self.received.count(bytes, viewed);
    }

    pub(super) fn sender_stats(&self) -> SenderStats {
        let mut stats = SenderStats::default();
        [stats.messages, stats.bytes, stats.zero_copy] = self.sent.totals();
        stats.overflows = self.counts.total(Count::FallbackSent);
        stats.wakeups_sent = self.counts.total(Count::PollingSent);
        stats.sleeps = self.total(RareCount::RoomSleeps);
        let memory = self.memory();
        stats.memory_bytes = memory.capacity_of_share_memory_in_bytes;
        stats.memory_used_bytes = memory.all_in_used_share_memory_in_bytes;
        stats
    }

    pub(super) fn receiver_stats(&self) -> ReceiverStats {
        let mut stats = ReceiverStats::default();
        [stats.messages, stats.bytes, stats.zero_copy] = self.received.totals();
        stats.sleeps = self.total(RareCount::Rests);
        stats
    }

    pub(super) fn performance(&self, pending: (u64, u64)) -> PerformanceMetrics {
        let ([_, sent, _], [_, received, _]) = (self.sent.totals(), self.received.totals());
        self.counts.performance([sent, received], [pending.0, pending.1])
    }

    pub(super) fn stability(&self) -> StabilityMetrics {
        self.counts.stability(self.streams.lock().count() as u64)
    }

    pub(super) fn memory(&self) -> ShareMemoryMetrics {
        let counts = self.region.counts();
        let used = counts.iter().map(|list| {
            let out = i64::from(list.slices) - i64::from(list.free);
            u64::try_from(out).unwrap_or(0) * u64::from(list.capacity)
        });
        ShareMemoryMetrics::new(self.region.size_bytes() as u64, used.sum())
    }

    #[cfg(feature = "tokio")]
    pub(super) fn fallbacks(&self) -> u64 {
        let counters = &self.counts;
        counters.total(Count::FallbackSent) + counters.total(Count::FallbackReceived)
    }

    #[cfg(feature = "tokio")]
    pub(super) fn region(&self) -> usize {
        Arc::as_ptr(self.region.shared()) as usize
    }

    #[cfg(feature = "tokio")]
    pub(super) fn monitor_due(&self) -> Option<Instant> {
        let monitoring = self.monitor.as_ref()?;
        Some(*monitoring.due.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reports the counters of the connection to the application's metrics monitor, if a report is
    /// due or `is_last` is set. `pending` returns the number of elements in this side's queue and
    /// in the peer's.
    pub(super) fn tell_monitor(&self, is_last: bool, pending: impl FnOnce() -> (u64, u64)) {
        let Some(monitoring) = &self.monitor else { return };
        let now = Instant::now();
        let mut due = monitoring.due.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_last && now < *due {
            return;
        }
        *due = now + monitoring.interval;
        drop(due);
        let (performance, stability) = (self.performance(pending()), self.stability());
        monitoring.monitor.on_emit_session_metrics(&performance, &stability, &self.memory());
        if is_last {
            monitoring.monitor.flush();
        }
    }
}

impl fmt::Debug for ConnectionCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.fmt(f)
    }
}
