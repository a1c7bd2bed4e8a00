// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stages of a proxy: running, draining, ending.
//!
//! ```text
//!   Running ── signal ──▶ Draining ── none open, or --drain has passed ──▶ Ending ──▶ exit 0
//!                             └────── second signal ──▶ exit at once, 128 + signal
//! ```

use std::io;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// How far the proxy has come towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Connections are accepted.
    Running,
    /// No more are accepted; open ones continue.
    Draining,
    /// Open ones are reset.
    Ending,
}

/// A receiver of the stage.
#[derive(Clone, Debug)]
pub struct Stages(watch::Receiver<Stage>);

impl Stages {
    /// The first stage, and a sender for the next ones.
    pub fn new() -> (watch::Sender<Stage>, Self) {
        let (sender, receiver) = watch::channel(Stage::Running);
        (sender, Self(receiver))
    }

    /// Waits until the proxy drains.
    pub async fn draining(&self) {
        self.reached(Stage::Draining).await;
    }

    /// Waits until the proxy ends.
    pub async fn ending(&self) {
        self.reached(Stage::Ending).await;
    }

    async fn reached(&self, stage: Stage) {
        // A dropped sender means that the proxy ends.
        let _ = self.0.clone().wait_for(|now| *now >= stage).await;
    }
}

/// The signals SIGINT and SIGTERM as futures.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Handles the signals from now on.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal; returns its number.
    pub async fn next(&mut self) -> u8 {
        select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
        }
    }
}
