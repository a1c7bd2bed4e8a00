// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that ends the benchmark when a measurement hangs, and on SIGINT and SIGTERM. Before the
//! end it removes the run's files.
//!
//! A hang is a finding, such as a lost wake-up, so a benchmark must end by itself. The watchdog
//! does *not* kill the child: the child exits at the end of its stdin.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use super::workspace;

/// The handle of a thread that checks once a second whether the deadline of the present measurement
/// has passed.
pub struct Watchdog {
    deadline: Arc<Mutex<Option<Instant>>>,
}

impl Watchdog {
    /// Starts the watchdog's thread, without a deadline. From this call on, the watchdog handles
    /// SIGINT and SIGTERM.
    pub fn start(program: &'static str) -> Result<Self> {
        let deadline = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&deadline);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the watchdog")?;
        thread::spawn(move || {
            let exit_code = runtime.block_on(watch(program, &shared));
            workspace::remove_own(program);
            std::process::exit(exit_code);
        });
        Ok(Self { deadline })
    }

    /// Sets the deadline of the present measurement to `time` from now.
    pub fn arm(&self, time: Duration) {
        self.set(Some(Instant::now() + time));
    }

    /// Removes the deadline of the present measurement; the caller does so once the measurement is
    /// done.
    pub fn disarm(&self) {
        self.set(None);
    }

    fn set(&self, deadline: Option<Instant>) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}

/// Waits until SIGINT or SIGTERM arrives, or the deadline of the present measurement has passed.
/// Returns the exit code with which the program must end.
async fn watch(program: &str, deadline: &Mutex<Option<Instant>>) -> i32 {
    let Ok((mut interrupt, mut terminate)) = signal(SignalKind::interrupt())
        .and_then(|interrupt| Ok((interrupt, signal(SignalKind::terminate())?)))
    else {
        eprintln!("{program}: signals cannot be handled here");
        return EXIT_HUNG;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => return EXIT_SIGNAL + SignalKind::interrupt().as_raw_value(),
            _ = terminate.recv() => return EXIT_SIGNAL + SignalKind::terminate().as_raw_value(),
            () = tokio::time::sleep(CHECK_PERIOD) => {}
        }
        let deadline = *deadline.lock().unwrap_or_else(PoisonError::into_inner);
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            eprintln!("{program}: a measurement made no progress and was ended");
            return EXIT_HUNG;
        }
    }
}

/// Time between two checks of the watchdog whether the deadline has passed.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// The exit code of the program if the watchdog ended it because a measurement hung.
const EXIT_HUNG: i32 = 3;

/// The exit code after a signal is this number plus the signal's number, as in shells.
const EXIT_SIGNAL: i32 = 128;
