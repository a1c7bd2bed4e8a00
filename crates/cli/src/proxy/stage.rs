// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stages of a proxy's life: running, draining (open connections continue, new ones are not
//! accepted), ending.
//!
//! ```text
//!   Running ── signal ──▶ Draining ── no open connection, or --drain over ──▶ Ending ──▶ exit 0
//!                             └────── second signal ──▶ immediate exit, code 128 + signal
//! ```

use std::io;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// The stage of a proxy's life; the stages follow each other in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The proxy accepts connections.
    Running,
    /// The proxy accepts no more connections; open ones continue.
    Draining,
    /// The proxy resets the connections that are still open.
    Ending,
}

/// A handle to wait until the proxy has reached a stage.
#[derive(Clone, Debug)]
pub struct Stages(watch::Receiver<Stage>);

impl Stages {
    /// Makes a handle at the first stage, and the sender that sets the later stages.
    pub fn new() -> (watch::Sender<Stage>, Self) {
        let (sender, receiver) = watch::channel(Stage::Running);
        (sender, Self(receiver))
    }

    /// Waits until the proxy no longer accepts connections ([`Stage::Draining`]).
    pub async fn draining(&self) {
        self.reached(Stage::Draining).await;
    }

    /// Waits until the proxy resets the connections that are still open ([`Stage::Ending`]).
    pub async fn ending(&self) {
        self.reached(Stage::Ending).await;
    }

    async fn reached(&self, stage: Stage) {
        // An error of waiting is ignored: it means that the sender of stages was dropped, and so
        // that the proxy ends.
        let _ = self.0.clone().wait_for(|now| *now >= stage).await;
    }
}

/// The signals SIGINT and SIGTERM, which tasks can await.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Catches SIGINT and SIGTERM from now on.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next SIGINT or SIGTERM; returns the number of the signal.
    pub async fn next(&mut self) -> u8 {
        select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
        }
    }
}
