// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a proxy counts, as a line while it runs and as a table at its end.

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use partywall_bench::figure::quantity::{bandwidth_name, counted, size_name, time_name};

/// The counters of one proxy.
#[derive(Debug)]
pub struct Counts {
    started: Instant,
    counted: Mutex<Counted>,
}

/// The numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Connections that began: plain sockets accepted, or streams.
    pub connections: u64,
    /// Those that both sides still use, or that wait for the other side.
    pub open: u64,
    /// The most that were open at a time.
    pub open_max: u64,
    /// Bytes read from plain sockets.
    pub from_plain_bytes: u64,
    /// Bytes written to plain sockets.
    pub to_plain_bytes: u64,
    /// Those that a plain socket's program reset.
    pub resets_here: u64,
    /// Those that the other side reset.
    pub resets_there: u64,
    /// Those that never came about.
    pub failures: u64,
    /// Those that were cut off when the proxy ended, or the session with the other one did.
    pub cut_off: u64,
    /// Sessions that came about.
    pub sessions: u64,
}

impl Counts {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { started: Instant::now(), counted: Mutex::default() }
    }

    /// To be counted up.
    pub fn lock(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection begins; it is open until what is returned is dropped.
    pub fn begin(&self) {
        let mut counted = self.lock();
        counted.connections += 1;
        counted.open += 1;
        counted.open_max = counted.open_max.max(counted.open);
    }

    /// A connection is over.
    pub fn end(&self) {
        self.lock().open -= 1;
    }

    /// One line, for `--stats-every`.
    pub fn line(&self) -> String {
        let now = *self.lock();
        format!(
            "{} open, {}, {} from plain, {} to plain, {}, {}",
            now.open,
            counted(now.connections, "connection"),
            size_name(now.from_plain_bytes),
            size_name(now.to_plain_bytes),
            counted(now.resets_here + now.resets_there, "reset"),
            counted(now.failures, "failure"),
        )
    }

    /// The table, for `--stats`.
    pub fn table(&self) -> String {
        table(&self.lock(), self.started.elapsed())
    }
}

fn table(total: &Counted, time: Duration) -> String {
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
    let (here, there) = (total.resets_here, total.resets_there);
    row("resets", format!("{} ({here} by the plain side, {there} by the other)", here + there));
    row("failures", format!("{} (no connection came about)", total.failures));
    row("cut off", format!("{} (a session or a proxy ended)", total.cut_off));
    row("sessions", total.sessions.to_string());
    row("time", time_name(time));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_connections_are_counted_and_their_most_is_kept() {
        let counts = Counts::new();
        counts.begin();
        counts.begin();
        counts.end();
        counts.lock().from_plain_bytes += 2048;
        assert!(counts.line().starts_with("1 open, 2 connections, 2.00 KiB from plain"));
        let table = counts.table();
        assert!(table.contains("connections    2 (1 still open, 2 at most)"), "{table}");
        assert!(table.contains("from plain     2.00 KiB (2048 bytes)"), "{table}");
    }
}
