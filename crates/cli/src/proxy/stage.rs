// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far the proxy is on its way to its end.
//!
//! ```text
//!   Running ── signal ──▶ Draining ── nothing open, or --drain is over ──▶ Ending ──▶ exit 0
//!                             └────── second signal ──▶ exit at once, 128 and the signal
//! ```

use std::io;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Where the proxy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Connections are accepted.
    Running,
    /// No more are; those that are open go on.
    Draining,
    /// Those that are still open are cut off.
    Ending,
}

/// For those who have to know.
#[derive(Clone, Debug)]
pub struct Stages(watch::Receiver<Stage>);

impl Stages {
    /// The first stage, and how to go on to the next.
    pub fn new() -> (watch::Sender<Stage>, Self) {
        let (sender, receiver) = watch::channel(Stage::Running);
        (sender, Self(receiver))
    }

    /// Waits until nothing is to be accepted any more.
    pub async fn draining(&self) {
        self.reached(Stage::Draining).await;
    }

    /// Waits until everything is to end.
    pub async fn ending(&self) {
        self.reached(Stage::Ending).await;
    }

    async fn reached(&self, stage: Stage) {
        // If nobody can tell any more, the proxy is ending, too.
        let _ = self.0.clone().wait_for(|now| *now >= stage).await;
    }
}

/// SIGINT and SIGTERM, from now on.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Takes them over.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next; its number.
    pub async fn next(&mut self) -> u8 {
        select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
        }
    }
}
