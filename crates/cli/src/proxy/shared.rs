// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all connections of a proxy share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};

use super::counters::Counts;
use super::log::Log;
use super::stage::Stages;

/// Limits, counters and the way to the end.
#[derive(Debug)]
pub struct Shared {
    /// What happened so far.
    pub counts: Counts,
    /// How far the proxy is on its way to its end.
    pub stages: Stages,
    /// One permit for each connection that may be open.
    pub places: Arc<Semaphore>,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// What is said on stderr.
    pub log: Log,
    /// Whether that is only what was asked for.
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
    /// With this many places.
    pub fn new(
        stages: Stages,
        connections: usize,
        connect_timeout: Duration,
        (log, is_quiet): (Log, bool),
        alive: &mpsc::Sender<()>,
    ) -> Self {
        Self {
            counts: Counts::new(),
            stages,
            places: Arc::new(Semaphore::new(connections)),
            connect_timeout,
            log,
            is_quiet,
            alive: alive.downgrade(),
        }
    }

    /// A connection begins.
    pub fn begin(self: &Arc<Self>) -> Open {
        self.counts.begin();
        Open { shared: Arc::clone(self), _alive: self.alive.upgrade() }
    }

    /// A connection did not come about.
    pub fn failed(&self, why: &str) {
        self.counts.lock().failures += 1;
        self.say(why);
    }

    /// Tells it on stderr; what was just said is not said again.
    pub fn say(&self, what: &str) {
        if !self.is_quiet {
            self.log.say(what);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.counts.end();
    }
}
