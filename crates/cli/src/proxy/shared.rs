// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Shared`: the state of all connections of a proxy.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};

use super::counters::Counters;
use super::log::Log;
use super::stage::Stages;

/// Limits, counters and the stage.
#[derive(Debug)]
pub struct Shared {
    /// The counters of all connections.
    pub counters: Counters,
    /// The stage of the proxy.
    pub stages: Stages,
    /// One permit per connection.
    pub places: Arc<Semaphore>,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// The lines for stderr.
    pub log: Log,
    /// Whether events are not printed.
    is_quiet: bool,
    /// Dropped with the last connection.
    alive: mpsc::WeakSender<()>,
}

/// A connection that counts as open until it is dropped.
#[derive(Debug)]
pub struct Open {
    shared: Arc<Shared>,
    _alive: Option<mpsc::Sender<()>>,
}

impl Shared {
    /// The state for at most `connections`.
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

    /// Counts a connection for as long as the result lives.
    pub fn begin(self: &Arc<Self>) -> Open {
        self.counters.begin();
        Open { shared: Arc::clone(self), _alive: self.alive.upgrade() }
    }

    /// Counts a connection that could not be made, and prints the reason.
    pub fn failed(&self, why: &str) {
        self.counters.lock().failures += 1;
        self.print(why);
    }

    /// Prints an event on stderr, unless it equals the last line.
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
