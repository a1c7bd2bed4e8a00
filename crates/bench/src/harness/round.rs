// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of one measurement of one cell (`Round`). The results of several rounds of a cell can
//! be added up.
//!
//! A cell is one combination of scenario, transport and size. Latencies are recorded in an
//! HdrHistogram (three significant digits, 1 ns to 100 s). CPU time is that of all threads of both
//! processes over exactly the measured operations.
//!
//! Percentiles are *not* averaged: the distributions of several rounds are added up.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The measurements of one cell in one round.
#[derive(Clone, Debug)]
pub struct Round {
    /// Latencies of the operations of this round, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Number of operations that were measured in this round.
    pub ops: u64,
    /// Elapsed time of all operations of this round together, in nanoseconds.
    pub elapsed_ns: u64,
    /// Payload bytes that crossed between the processes in this round, both directions together.
    pub bytes: u64,
    /// CPU time of the parent process (the sender) in this round, in nanoseconds.
    pub cpu_parent_ns: u64,
    /// CPU time of the child process (the receiver) in this round, in nanoseconds.
    pub cpu_child_ns: u64,
    /// Memory, descriptors and CPU time that an open session without messages costs (`connect` and
    /// `idle` only).
    pub session: Option<SessionCost>,
    /// Memory of a session with many streams (`parallel` over Partywall only).
    pub memory: Option<StreamMemory>,
    /// Messages that a shared-memory transport sent through its socket for lack of memory, if it
    /// counts them.
    pub over_socket: Option<u64>,
    /// The transport of the last message of each connection, as the connections report it
    /// (`connect` only).
    pub carrier: Option<Carrier>,
}

/// The transport that carried a message, read from the connection and not from its configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Carrier {
    /// The message was in memory that both processes map.
    #[serde(rename = "shm")]
    SharedMemory,
    /// A Unix or TCP socket carried the message.
    #[serde(rename = "socket")]
    Socket,
    /// Shared memory carried the messages of some connections, and a socket those of others.
    #[serde(rename = "mixed")]
    Mixed,
}

impl Carrier {
    /// Returns the carrier of two groups of connections together, of which one group may be empty.
    pub fn of_both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) if one != other => Some(Self::Mixed),
            _ => one.or(other),
        }
    }

    /// The carrier of a message in words, for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shm",
            Self::Socket => "socket",
            Self::Mixed => "mixed",
        }
    }
}

/// Memory of a session with many streams on its sending side, right after the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct StreamMemory {
    /// Size of the session's shared memory for large messages, in bytes.
    pub memory_bytes: u64,
    /// The configured maximum of `memory_bytes`, the shared memory for large messages.
    pub memory_bytes_max: u64,
    /// Growth of `memory_bytes`, the shared memory for large messages, while the clock ran; if it
    /// is not 0, the time of growing is part of the measured time.
    pub grown_bytes: u64,
    /// Number of large messages whose memory the receiver has not released yet.
    pub blocks_in_flight: u64,
    /// Number of sent messages on the streams that are never read.
    pub unread_messages: u64,
    /// Payload bytes of the messages on the streams that are never read.
    pub unread_bytes: u64,
    /// The maximum of `unread_bytes`: the sum of the configured windows of the streams or, if
    /// messages are longer than a window, one message on each stream.
    pub unread_bytes_max: u64,
}

impl StreamMemory {
    /// Combines two rounds: each field is the larger value of that field in `self` and `other`.
    pub fn worse(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            memory_bytes_max: self.memory_bytes_max.max(other.memory_bytes_max),
            grown_bytes: self.grown_bytes.max(other.grown_bytes),
            blocks_in_flight: self.blocks_in_flight.max(other.blocks_in_flight),
            unread_messages: self.unread_messages.max(other.unread_messages),
            unread_bytes: self.unread_bytes.max(other.unread_bytes),
            unread_bytes_max: self.unread_bytes_max.max(other.unread_bytes_max),
        }
    }
}

/// Cost of one session without messages: the larger value of the two processes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SessionCost {
    /// Growth of a process's resident set per session, in bytes.
    pub resident_bytes: f64,
    /// Writable shared memory of a process per session, resident or not, in bytes.
    pub own_shared_bytes: f64,
    /// Number of open descriptors of a process per session.
    pub descriptors: f64,
    /// Number of times the scheduler ran an idle receiver (`idle` only).
    pub wakeups: Option<u64>,
    /// CPU time of an idle receiver, in nanoseconds (`idle` only).
    pub idle_cpu_ns: Option<u64>,
}

impl SessionCost {
    /// Combines the costs in two processes or rounds: each field is the larger value of that field
    /// in `self` and `other`. A limit that the result meets is therefore met by both `self` and
    /// `other`.
    pub fn worse(self, other: Self) -> Self {
        Self {
            resident_bytes: self.resident_bytes.max(other.resident_bytes),
            own_shared_bytes: self.own_shared_bytes.max(other.own_shared_bytes),
            descriptors: self.descriptors.max(other.descriptors),
            wakeups: self.wakeups.max(other.wakeups),
            idle_cpu_ns: self.idle_cpu_ns.max(other.idle_cpu_ns),
        }
    }
}

impl Round {
    /// CPU time of both processes per operation of the round, in nanoseconds.
    pub fn cpu_per_op(&self) -> f64 {
        ratio(self.cpu_parent_ns + self.cpu_child_ns, self.ops)
    }

    /// Time per operation (the inverse of throughput, *not* a latency), in nanoseconds.
    pub fn ns_per_op(&self) -> f64 {
        ratio(self.elapsed_ns, self.ops)
    }
}

/// Adds up several rounds of one cell into one `Round`; `None` if there are no rounds.
pub fn pool<'a>(mut rounds: impl Iterator<Item = &'a Round>) -> Option<Round> {
    let mut sum = rounds.next()?.clone();
    for round in rounds {
        // All histograms have the same bounds, so adding the latencies of `round` to those of `sum`
        // cannot fail.
        sum.latency.add(&round.latency).ok()?;
        sum.ops += round.ops;
        sum.elapsed_ns += round.elapsed_ns;
        sum.bytes += round.bytes;
        sum.cpu_parent_ns += round.cpu_parent_ns;
        sum.cpu_child_ns += round.cpu_child_ns;
        sum.session = match (sum.session, round.session) {
            (Some(a), Some(b)) => Some(a.worse(b)),
            (a, b) => a.or(b),
        };
        sum.memory = match (sum.memory, round.memory) {
            (Some(a), Some(b)) => Some(a.worse(b)),
            (a, b) => a.or(b),
        };
        sum.over_socket = match (sum.over_socket, round.over_socket) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        sum.carrier = Carrier::of_both(sum.carrier, round.carrier);
    }
    Some(sum)
}

/// An empty histogram for latencies; all histograms of the benchmark have the same bounds.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).context("making a histogram")
}

/// Packs a histogram for the control pipe: (value, count) of each bucket in use.
pub fn pack(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
}

/// Makes a histogram from `buckets`, its form for the control pipe, which [`pack`] made.
pub fn unpack(buckets: &[(u64, u64)]) -> Result<Histogram<u64>> {
    let mut histogram = histogram()?;
    for &(value, count) in buckets {
        histogram.saturating_record_n(value, count);
    }
    Ok(histogram)
}

/// Divides `a` by `b` as floats; the result is 0 if `b` is 0.
#[expect(clippy::cast_precision_loss, reason = "52 bits exceed the precision of any measurement")]
pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Maximum latency of the histogram, in nanoseconds; higher ones are recorded as this one.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_over_different_transports_are_mixed() {
        let (memory, socket) = (Some(Carrier::SharedMemory), Some(Carrier::Socket));
        assert_eq!(Carrier::of_both(None, memory), memory);
        assert_eq!(Carrier::of_both(socket, socket), socket);
        assert_eq!(Carrier::of_both(memory, socket), Some(Carrier::Mixed));
        assert_eq!(Carrier::of_both(Some(Carrier::Mixed), socket), Some(Carrier::Mixed));
    }

    #[test]
    fn histogram_packed_and_unpacked_is_equal() {
        let mut one = histogram().unwrap();
        for value in [1, 285, 285, 7_100, 1_000_000, LATENCY_NS_MAX * 2] {
            one.saturating_record(value);
        }
        assert_eq!(unpack(&pack(&one)).unwrap(), one);
    }
}
