// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that all connections of a proxy share: limits, counters, log and stage.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};

use super::counters::Counters;
use super::log::Log;
use super::stage::Stages;

/// Limits, counters and stage of a proxy.
#[derive(Debug)]
pub struct Shared {
    /// The counters of all connections.
    pub counters: Counters,
    /// A handle to wait for a stage of the proxy: running, draining or ending.
    pub stages: Stages,
    /// One permit for each connection that may be open, as many as `--connections` says.
    pub places: Arc<Semaphore>,
    /// Longest time to connect a plain socket to the target, or to open a stream for an accepted
    /// socket.
    pub connect_timeout: Duration,
    /// The log, which prints lines on stderr.
    pub log: Log,
    /// Whether events are not printed, because of `--quiet`.
    is_quiet: bool,
    /// A channel that closes when the last open connection is dropped, for which the ending proxy
    /// waits.
    alive: mpsc::WeakSender<()>,
}

/// A handle of one connection, which counts as open until the handle is dropped.
#[derive(Debug)]
pub struct Open {
    shared: Arc<Shared>,
    _alive: Option<mpsc::Sender<()>>,
}

impl Shared {
    /// Makes the shared state of a proxy that carries at most `connections` connections at once.
    pub fn new(
        stages: Stages,
        connections: usize,
        connect_timeout: Duration,
        (log, is_quiet): (Log, bool),
        alive: &mpsc::Sender<()>,
    ) -> Self {
        Self {
            counters: Counters::new(),
            stages,
            places: Arc::new(Semaphore::new(connections)),
            connect_timeout,
            log,
            is_quiet,
            alive: alive.downgrade(),
        }
    }

    /// Counts a connection as open until the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> Open {
        self.counters.begin();
        Open { shared: Arc::clone(self), _alive: self.alive.upgrade() }
    }

    /// Counts a connection that could not be established, and prints the reason.
    pub fn failed(&self, why: &str) {
        self.counters.lock().failures += 1;
        self.print(why);
    }

    /// Prints an event on stderr, unless it equals the last printed line.
    pub fn print(&self, line: &str) {
        if !self.is_quiet {
            self.log.print(line);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.counters.end();
    }
}
