// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all connections of a proxy share.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};

use super::counts::Counts;
use super::stage::Stages;

/// Limits, counters and the way to the end.
#[derive(Debug)]
pub struct Shared {
    /// What happened so far.
    pub counts: Counts,
    /// How far the proxy is on its way to its end.
    pub stages: Stages,
    /// One permit for each connection that may be open.
    pub places: Semaphore,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// Whether nothing is said.
    pub is_quiet: bool,
    /// Dropped with the last connection.
    alive: mpsc::WeakSender<()>,
    last_said: Mutex<String>,
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
        is_quiet: bool,
        alive: &mpsc::Sender<()>,
    ) -> Self {
        Self {
            counts: Counts::new(),
            stages,
            places: Semaphore::new(connections),
            connect_timeout,
            is_quiet,
            alive: alive.downgrade(),
            last_said: Mutex::default(),
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
        if self.is_quiet {
            return;
        }
        let mut last = self.last_said.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != what {
            what.clone_into(&mut last);
            // If nobody reads it, the connections go on all the same.
            let _ = writeln!(io::stderr(), "{what}");
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.counts.end();
    }
}
