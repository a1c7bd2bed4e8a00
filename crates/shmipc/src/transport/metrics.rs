// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters, under the names that users of shmipc know.
//!
//! ```text
//!   whoever sends, whoever reads ── add ──▶ Counters, one for each session ── snapshots ──▶ Monitor
//!   queues, streams, region ──────── how full they are now ──────────────────┘
//! ```
//!
//! The names are those of shmipc-go. Where its figures do not mean what they are called, ours do, and the figure says
//! so. Nothing here decides when a [`Monitor`] is told. The counters are of no use for synchronisation: each is
//! exact, and two read one after the other need not be of the same moment.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one session counts.
#[derive(Default)]
pub struct Counters {
    counts: [AtomicU64; Count::ALL.len()],
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Count {
    /// A `Polling` came.
    PollingReceived,
    /// A `Polling` was sent.
    PollingSent,
    /// The region had no room for a message.
    AllocationFailed,
    /// A message was sent by the socket.
    FallbackSent,
    /// A message came by the socket.
    FallbackReceived,
    /// The socket failed.
    SocketFailed,
    /// Sending failed because the queue stayed full.
    QueueStayedFull,
    /// The session moved to a new process.
    RestartSucceeded,
    /// The session was to move, and did not.
    RestartFailed,
}

impl Count {
    /// All of them, in order.
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
    /// Counts; on any thread.
    pub fn add(&self, what: Count, amount: u64) {
        // ORDER: Relaxed: nothing else is read on the strength of a counter.
        self.counts[what as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// What was counted.
    #[must_use]
    pub fn total(&self, what: Count) -> u64 {
        // ORDER: Relaxed: see `add`.
        self.counts[what as usize].load(Ordering::Relaxed)
    }

    /// Counters of what goes well, with how many bytes were sent and came, by either way, and how many elements lie in
    /// both queues now.
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

    /// Counters of what does not, with how many streams are open now.
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

/// How much a session did. All but the queues are totals since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PerformanceMetrics {
    /// How often the other side woke us, by a `Polling`.
    pub receive_sync_event_count: u64,
    /// How often we woke it.
    pub send_sync_event_count: u64,
    /// Bytes of messages that were sent. Peers also count what could not be sent.
    pub out_flow_bytes: u64,
    /// Bytes of messages that came, when they came. Peers count them when they are read.
    pub in_flow_bytes: u64,
    /// How many elements lie in the queue for the other side, now. What shmipc-go says here is the total of those
    /// that ever did.
    pub send_queue_count: u64,
    /// How many elements lie in the queue for us, now. As above.
    pub receive_queue_count: u64,
}

/// How often a session found something amiss, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StabilityMetrics {
    /// Messages for which the region had no room. The crate `shmipc` never counts them.
    pub alloc_shm_error_count: u64,
    /// Messages that were sent by the socket instead: for want of room, or because earlier ones of their stream were.
    pub fallback_write_count: u64,
    /// Messages that came by the socket.
    pub fallback_read_count: u64,
    /// How often reading or writing the socket failed. It ends the session, so that is 0 or 1, or 2 where both did.
    pub event_conn_error_count: u64,
    /// Messages that were not sent because the queue stayed full for as long as was chosen.
    pub queue_full_error_count: u64,
    /// How many streams are open, now.
    pub active_stream_count: u64,
    /// How often the session moved to a new process: its hot restarts that succeeded. Always 0 in what shmipc-go tells.
    pub hot_restart_success_count: u64,
    /// How often it was to move, and did not in time. Always 0 in what shmipc-go tells.
    pub hot_restart_error_count: u64,
}

/// How full a region of buffers is, now. Sessions that share a region say the same of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareMemoryMetrics {
    /// How large it is, in bytes.
    pub capacity_of_share_memory_in_bytes: u64,
    /// How much of it is lent out, on either side, in bytes. As with the peers it is the sum of what each class says,
    /// one after the other, while both sides take and give back; but never less than nothing. It need not be 0 at rest:
    /// as long as streams are open, the other side and other sessions keep slices ready for their next message: each side
    /// an eighth of each class at most, and each session no more than 64 of them.
    pub all_in_used_share_memory_in_bytes: u64,
}

impl ShareMemoryMetrics {
    /// Of a region with so many bytes, of which so many are lent out.
    #[must_use]
    pub const fn new(capacity_bytes: u64, used_bytes: u64) -> Self {
        Self {
            capacity_of_share_memory_in_bytes: capacity_bytes,
            all_in_used_share_memory_in_bytes: used_bytes,
        }
    }
}

/// Everything of one session, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionMetrics {
    /// How much it did.
    pub performance: PerformanceMetrics,
    /// What was amiss.
    pub stability: StabilityMetrics,
    /// Its region.
    pub share_memory: ShareMemoryMetrics,
}

impl SessionMetrics {
    /// Adds what another session counted, and, if `is_alive`, what is there of it now; not its region, which they may
    /// share.
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

    /// Adds a region.
    #[cfg(feature = "tokio")]
    pub(crate) const fn add_region(&mut self, region: &ShareMemoryMetrics) {
        let sum = &mut self.share_memory;
        sum.capacity_of_share_memory_in_bytes += region.capacity_of_share_memory_in_bytes;
        sum.all_in_used_share_memory_in_bytes += region.all_in_used_share_memory_in_bytes;
    }
}

/// Is told what sessions count.
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
    /// What one session has counted: when it comes to rest after traffic and the interval is over, when
    /// [`tell_monitor`](crate::Shmipc::tell_monitor) is called, and once when it ends. An idle session has no timer. It
    /// is called between messages, so what it does with them should be short.
    fn on_emit_session_metrics(
        &self,
        performance: &PerformanceMetrics,
        stability: &StabilityMetrics,
        share_memory: &ShareMemoryMetrics,
    );

    /// A session has ended, and its last figures were told. Does nothing unless it is written.
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
