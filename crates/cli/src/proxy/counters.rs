// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a proxy, printed as a line while it runs and as a table at its end.

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use partywall_bench::figure::quantity::{bandwidth_name, counted, size_name, time_name};

/// The counters of one proxy, and the time of its start.
#[derive(Debug)]
pub struct Counters {
    started: Instant,
    values: Mutex<Values>,
}

/// The values of a proxy's counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Values {
    /// Number of connections that began: accepted plain sockets or streams.
    pub connections: u64,
    /// Number of open connections, including connections for which the proxy still waits for a
    /// stream or a plain socket.
    pub open: u64,
    /// Largest number of connections that were open at the same time.
    pub open_max: u64,
    /// Number of bytes read from plain sockets.
    pub from_plain_bytes: u64,
    /// Number of bytes written to plain sockets.
    pub to_plain_bytes: u64,
    /// Number of connections that the program at a plain socket reset.
    pub resets_by_plain: u64,
    /// Number of streams that the proxy at the other end of a session reset.
    pub resets_by_peer: u64,
    /// Number of connections that the proxy could not accept, or could not establish.
    pub failures: u64,
    /// Number of connections that were cut off, because the proxy or their session ended.
    pub cut_off: u64,
    /// Number of sessions that were connected or accepted.
    pub sessions: u64,
}

impl Counters {
    /// Makes the counters of a proxy that starts now: all are 0.
    pub fn new() -> Self {
        Self { started: Instant::now(), values: Mutex::default() }
    }

    /// Locks the values of the counters, so that the caller can change them.
    pub fn lock(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the beginning of one connection of the proxy.
    pub fn begin(&self) {
        let mut values = self.lock();
        values.connections += 1;
        values.open += 1;
        values.open_max = values.open_max.max(values.open);
    }

    /// Counts the end of one connection of the proxy.
    pub fn end(&self) {
        self.lock().open -= 1;
    }

    /// Writes the counters as one line of text, for `--stats-every`.
    pub fn line(&self) -> String {
        let now = *self.lock();
        format!(
            "{} open, {}, {} from plain, {} to plain, {}, {}",
            now.open,
            counted(now.connections, "connection"),
            size_name(now.from_plain_bytes),
            size_name(now.to_plain_bytes),
            counted(now.resets_by_plain + now.resets_by_peer, "reset"),
            counted(now.failures, "failure"),
        )
    }

    /// Writes the counters as a table of text, for `--stats`.
    pub fn table(&self) -> String {
        table(&self.lock(), self.started.elapsed())
    }
}

fn table(total: &Values, time: Duration) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<14} {value}");
    };
    let open = format!("{} still open, {} at most", total.open, total.open_max);
    row("connections", format!("{} ({open})", total.connections));
    for (name, bytes) in
        [("from plain", total.from_plain_bytes), ("to plain", total.to_plain_bytes)]
    {
        let (size, rate) = (size_name(bytes), bandwidth_name(bytes, time));
        row(name, format!("{size} ({}), {rate}", counted(bytes, "byte")));
    }
    let (plain, peer) = (total.resets_by_plain, total.resets_by_peer);
    row("resets", format!("{} ({plain} by the plain side, {peer} by the peer)", plain + peer));
    row("failures", format!("{} (connections that could not be made)", total.failures));
    row("cut off", format!("{} (a session or a proxy ended)", total.cut_off));
    row("sessions", total.sessions.to_string());
    row("time", time_name(time));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_connections_are_counted_with_their_maximum() {
        let counters = Counters::new();
        counters.begin();
        counters.begin();
        counters.end();
        counters.lock().from_plain_bytes += 2048;
        assert!(counters.line().starts_with("1 open, 2 connections, 2.00 KiB from plain"));
        let table = counters.table();
        assert!(table.contains("connections    2 (1 still open, 2 at most)"), "{table}");
        assert!(table.contains("from plain     2.00 KiB (2048 bytes)"), "{table}");
    }
}
