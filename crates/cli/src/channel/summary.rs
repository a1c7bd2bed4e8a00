// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text that `--stats` prints at the end of `listen` and `connect`.
//!
//! ```text
//! sent         5.00 GiB (5368709120 bytes) in 81920 messages, 81920 without a copy, 1.78 GiB/s
//! received          0 B (0 bytes) in 0 messages, 0 without a copy, 0 B/s
//! time           2.81 s
//! …
//! ```

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use partywall::{Channel, Peer, ReceiverStats, SenderStats, Transport};

use partywall_bench::figure::quantity::{bandwidth_name, counted, size_name, time_name};

/// The statistics of one connection, which `--stats` prints.
pub struct Summary {
    /// The peer's process, as text for the operator.
    peer: String,
    trust: String,
    transport: Transport,
    /// Counters of the channel's sending end.
    pub sent: SenderStats,
    /// Counters of the channel's receiving end.
    pub received: ReceiverStats,
}

impl Summary {
    /// Makes a summary of `channel` whose counters are all 0.
    pub fn new(channel: &Channel) -> Self {
        Self {
            peer: channel.peer().to_string(),
            trust: trust_of(channel.peer()),
            transport: channel.transport(),
            sent: SenderStats::default(),
            received: ReceiverStats::default(),
        }
    }

    /// The statistics of the connection as lines of text, with rates over `time`.
    pub fn text(&self, time: Duration) -> String {
        let (sent, received) = (&self.sent, &self.received);
        let mut text = String::new();
        let mut way = |name: &str, bytes, messages: u64, zero_copy: u64| {
            let (size, rate) = (size_name(bytes), bandwidth_name(bytes, time));
            let _ = writeln!(
                text,
                "{name:<10} {size:>10} ({}) in {}, {zero_copy} without a copy, {rate}",
                counted(bytes, "byte"),
                counted(messages, "message"),
            );
        };
        way("sent", sent.bytes, sent.messages, sent.zero_copy);
        way("received", received.bytes, received.messages, received.zero_copy);
        let _ = writeln!(text, "time       {:>10}", time_name(time));
        let _ = writeln!(text, "transport  {}", self.transport);
        let _ = writeln!(text, "peer       {}, trust: {}", self.peer, self.trust);
        let _ = writeln!(
            text,
            "waiting    woke the receiver {}, the sender {}; slept {} for room, {} for messages; \
             spinning avoided a sleep {}",
            counted(sent.wakeups_sent, "time"),
            counted(received.wakeups_sent, "time"),
            counted(sent.sleeps, "time"),
            counted(received.sleeps, "time"),
            counted(received.spin_hits, "time")
        );
        let peak = resident_peak().map_or_else(|| "unknown".to_owned(), size_name);
        let _ = writeln!(
            text,
            "memory     {} of shared memory to send, {}; at most {peak} resident",
            size_name(sent.memory_bytes),
            counted(sent.overflows, "overflow"),
        );
        text
    }
}

/// Returns as text whether the library trusts the peer and, if it does not, the reason.
pub fn trust_of(peer: &Peer) -> String {
    let trust = format!("{:?}", peer.trust).to_lowercase();
    peer.distrust.map_or_else(|| trust.clone(), |why| format!("{trust} ({why})"))
}

/// The peak resident memory of this process in bytes, shared memory included.
fn resident_peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}
