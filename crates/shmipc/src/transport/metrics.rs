// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics of sessions over shmipc, under the names that users of shmipc know.
//!
//! ```text
//!   senders, receivers ──── add ──▶ Counters, one for each session ── snapshots ──▶ Monitor
//!   queues, streams, region ─────── current fill levels ──────────────┘
//! ```
//!
//! The names are those of shmipc-go. Where a figure of shmipc-go does not count what its name says,
//! the figure of this crate does, and its documentation mentions the difference. This file does not
//! decide when a [`Monitor`] gets a report. Counters do not synchronise: each is exact, but two
//! loads need not be of the same moment.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of one session.
#[derive(Default)]
pub struct Counters {
    counts: [AtomicU64; Count::ALL.len()],
}

/// An event that [`Counters`] count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Count {
    /// This side received a `Polling` message.
    PollingReceived,
    /// This side sent a `Polling` message.
    PollingSent,
    /// The region had no room for a message of this side.
    AllocationFailed,
    /// This side sent a message over the socket.
    FallbackSent,
    /// This side received a message over the socket.
    FallbackReceived,
    /// Reading or writing the socket of the session failed.
    SocketFailed,
    /// Sending a message failed because the queue stayed full.
    QueueStayedFull,
    /// The session moved to a new process in a hot restart.
    RestartSucceeded,
    /// The session should have moved to a new process in a hot restart, and did not in time.
    RestartFailed,
}

impl Count {
    /// All events that [`Counters`] count, in the order of their declaration.
    pub const ALL: [Self; 9] = [
        Self::PollingReceived,
        Self::PollingSent,
        Self::AllocationFailed,
        Self::FallbackSent,
        Self::FallbackReceived,
        Self::SocketFailed,
        Self::QueueStayedFull,
        Self::RestartSucceeded,
        Self::RestartFailed,
    ];
}

impl Counters {
    /// Adds `amount` to the counter of the event `what`. Any thread may call this function.
    pub fn add(&self, what: Count, amount: u64) {
        // ORDER: Relaxed: no other access depends on a counter.
        self.counts[what as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// The total of the counter of the event `what`.
    #[must_use]
    pub fn total(&self, what: Count) -> u64 {
        // ORDER: Relaxed: no other access depends on a counter.
        self.counts[what as usize].load(Ordering::Relaxed)
    }

    /// Returns the metrics of normal operation. The caller passes the bytes sent and received over
    /// rings and socket, and the current number of elements in both queues.
    #[must_use]
    pub fn performance(
        &self,
        [out_flow_bytes, in_flow_bytes]: [u64; 2],
        [send_queue_count, receive_queue_count]: [u64; 2],
    ) -> PerformanceMetrics {
        PerformanceMetrics {
            receive_sync_event_count: self.total(Count::PollingReceived),
            send_sync_event_count: self.total(Count::PollingSent),
            out_flow_bytes,
            in_flow_bytes,
            send_queue_count,
            receive_queue_count,
        }
    }

    /// Returns the metrics of faults. The caller passes the current number of open streams.
    #[must_use]
    pub fn stability(&self, active_stream_count: u64) -> StabilityMetrics {
        StabilityMetrics {
            alloc_shm_error_count: self.total(Count::AllocationFailed),
            fallback_write_count: self.total(Count::FallbackSent),
            fallback_read_count: self.total(Count::FallbackReceived),
            event_conn_error_count: self.total(Count::SocketFailed),
            queue_full_error_count: self.total(Count::QueueStayedFull),
            active_stream_count,
            hot_restart_success_count: self.total(Count::RestartSucceeded),
            hot_restart_error_count: self.total(Count::RestartFailed),
        }
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(Count::ALL.map(|what| (what, self.total(what)))).finish()
    }
}

/// Metrics of a session's work. All figures but those of the queues are totals since the session
/// began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PerformanceMetrics {
    /// Number of `Polling` messages that this side received.
    pub receive_sync_event_count: u64,
    /// Number of `Polling` messages that this side sent.
    pub send_sync_event_count: u64,
    /// Bytes of the messages that this side sent. Other implementations also count messages that
    /// could not be sent.
    pub out_flow_bytes: u64,
    /// Bytes of the messages that this side received, counted on arrival. Other implementations
    /// count them when the application reads them.
    pub in_flow_bytes: u64,
    /// Current number of elements in the queue from which the peer receives. shmipc-go reports the
    /// total of all elements so far.
    pub send_queue_count: u64,
    /// Current number of elements in the queue from which this side receives. shmipc-go reports the
    /// total of all elements so far.
    pub receive_queue_count: u64,
}

/// Metrics of a session's faults since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StabilityMetrics {
    /// Number of messages for which the region had no room; the crate `shmipc` never counts such
    /// messages.
    pub alloc_shm_error_count: u64,
    /// Messages sent over the socket: because the region had no room, or because earlier messages
    /// of the stream used the socket.
    pub fallback_write_count: u64,
    /// Messages received over the socket.
    pub fallback_read_count: u64,
    /// Number of failed reads and writes of the socket. A failure ends the session, so the number
    /// is at most two: one read and one write.
    pub event_conn_error_count: u64,
    /// Messages that were not sent because the queue stayed full for the configured time.
    pub queue_full_error_count: u64,
    /// Current number of open streams.
    pub active_stream_count: u64,
    /// Hot restarts in which the session moved to a new process. Always 0 in reports of shmipc-go.
    pub hot_restart_success_count: u64,
    /// Hot restarts in which the session did not move in time. Always 0 in reports of shmipc-go.
    pub hot_restart_error_count: u64,
}

/// Current use of a region of buffers. Sessions that share a region report the same values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareMemoryMetrics {
    /// Size of the region of buffers in bytes.
    pub capacity_of_share_memory_in_bytes: u64,
    /// Bytes of the slices that both sides have allocated. As in other implementations, the value
    /// is a sum over classes, which are read one after the other while both sides allocate and
    /// free; but it is never negative. It may exceed 0 even if no message is in flight, because the
    /// peer and other sessions with open streams cache slices. Each side caches at most an eighth
    /// of each class, and each session at most 64 slices of a class.
    pub all_in_used_share_memory_in_bytes: u64,
}

impl ShareMemoryMetrics {
    /// Makes the metrics of a region from its capacity and its used bytes.
    #[must_use]
    pub const fn new(capacity_bytes: u64, used_bytes: u64) -> Self {
        Self {
            capacity_of_share_memory_in_bytes: capacity_bytes,
            all_in_used_share_memory_in_bytes: used_bytes,
        }
    }
}

/// All metrics of one session, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionMetrics {
    /// Metrics of the session's work.
    pub performance: PerformanceMetrics,
    /// Metrics of the session's faults.
    pub stability: StabilityMetrics,
    /// Metrics of the region of buffers that the session uses.
    pub share_memory: ShareMemoryMetrics,
}

impl SessionMetrics {
    /// Adds the counters of another session, and its current figures if `is_alive`. The metrics of
    /// its region are left out, because several sessions may share one region.
    #[cfg(feature = "tokio")]
    pub(crate) fn add(&mut self, other: &Self, is_alive: bool) {
        let now = u64::from(is_alive);
        let (sum, other_one) = (&mut self.performance, &other.performance);
        sum.receive_sync_event_count += other_one.receive_sync_event_count;
        sum.send_sync_event_count += other_one.send_sync_event_count;
        sum.out_flow_bytes += other_one.out_flow_bytes;
        sum.in_flow_bytes += other_one.in_flow_bytes;
        sum.send_queue_count += other_one.send_queue_count * now;
        sum.receive_queue_count += other_one.receive_queue_count * now;
        let (sum, other_one) = (&mut self.stability, &other.stability);
        sum.alloc_shm_error_count += other_one.alloc_shm_error_count;
        sum.fallback_write_count += other_one.fallback_write_count;
        sum.fallback_read_count += other_one.fallback_read_count;
        sum.event_conn_error_count += other_one.event_conn_error_count;
        sum.queue_full_error_count += other_one.queue_full_error_count;
        sum.active_stream_count += other_one.active_stream_count * now;
        sum.hot_restart_success_count += other_one.hot_restart_success_count;
        sum.hot_restart_error_count += other_one.hot_restart_error_count;
    }

    #[cfg(feature = "tokio")]
    pub(crate) const fn add_region(&mut self, region: &ShareMemoryMetrics) {
        let sum = &mut self.share_memory;
        sum.capacity_of_share_memory_in_bytes += region.capacity_of_share_memory_in_bytes;
        sum.all_in_used_share_memory_in_bytes += region.all_in_used_share_memory_in_bytes;
    }
}

/// Receives the metrics of sessions.
///
/// ```
/// use partywall_shmipc::{Monitor, PerformanceMetrics, ShareMemoryMetrics, StabilityMetrics};
///
/// struct Print;
///
/// impl Monitor for Print {
///     fn on_emit_session_metrics(
///         &self,
///         performance: &PerformanceMetrics,
///         stability: &StabilityMetrics,
///         share_memory: &ShareMemoryMetrics,
///     ) {
///         println!("{performance:?} {stability:?} {share_memory:?}");
///     }
/// }
/// ```
pub trait Monitor: Send + Sync {
    /// Receives a report of one session: when it becomes idle and the interval is over, when
    /// [`tell_monitor`](crate::Shmipc::tell_monitor) is called, and once at the session's end. An
    /// idle session has no timer. The session calls this function between two messages, so the
    /// function should return quickly.
    fn on_emit_session_metrics(
        &self,
        performance: &PerformanceMetrics,
        stability: &StabilityMetrics,
        share_memory: &ShareMemoryMetrics,
    );

    /// Called when a session has ended, after its last report. The default implementation does
    /// nothing.
    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_counted_for_itself() {
        let counters = Counters::default();
        for (index, what) in (1..).zip(Count::ALL) {
            assert_eq!(what as usize + 1, index, "ALL is in order");
            counters.add(what, index as u64);
            counters.add(what, 100);
        }
        assert_eq!(
            counters.performance([5, 6], [7, 8]),
            PerformanceMetrics {
                receive_sync_event_count: 101,
                send_sync_event_count: 102,
                out_flow_bytes: 5,
                in_flow_bytes: 6,
                send_queue_count: 7,
                receive_queue_count: 8,
            }
        );
        assert_eq!(
            counters.stability(9),
            StabilityMetrics {
                alloc_shm_error_count: 103,
                fallback_write_count: 104,
                fallback_read_count: 105,
                event_conn_error_count: 106,
                queue_full_error_count: 107,
                active_stream_count: 9,
                hot_restart_success_count: 108,
                hot_restart_error_count: 109,
            }
        );
        assert!(format!("{counters:?}").contains("AllocationFailed: 103"));
    }
}
