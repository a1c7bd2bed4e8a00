// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends the program when a measurement hangs or somebody interrupts it: a benchmark stops by itself and tidies up.
//!
//! It does *not* end the child: that ends when its stdin does.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use super::leftovers;

/// A thread that looks once a second whether the deadline has passed.
pub struct Watchdog {
    deadline: Arc<Mutex<Option<Instant>>>,
}

impl Watchdog {
    /// Starts it, disarmed; interruptions are watched for from now on.
    pub fn start() -> Result<Self> {
        let deadline = Arc::new(Mutex::new(None));
        let watched = Arc::clone(&deadline);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the watchdog")?;
        thread::spawn(move || {
            let exit_code = runtime.block_on(watch(&watched));
            leftovers::remove_own();
            std::process::exit(exit_code);
        });
        Ok(Self { deadline })
    }

    /// Allows `time` from now on.
    pub fn arm(&self, time: Duration) {
        self.set(Some(Instant::now() + time));
    }

    /// Allows any time.
    pub fn disarm(&self) {
        self.set(None);
    }

    fn set(&self, deadline: Option<Instant>) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}

/// Returns the exit code when it is time to end.
async fn watch(deadline: &Mutex<Option<Instant>>) -> i32 {
    let Ok((mut interrupt, mut terminate)) = signal(SignalKind::interrupt())
        .and_then(|interrupt| Ok((interrupt, signal(SignalKind::terminate())?)))
    else {
        eprintln!("bench-peers: cannot watch for signals");
        return EXIT_HUNG;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => return EXIT_INTERRUPTED,
            _ = terminate.recv() => return EXIT_INTERRUPTED,
            () = tokio::time::sleep(LOOK_PERIOD) => {}
        }
        let deadline = *deadline.lock().unwrap_or_else(PoisonError::into_inner);
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            eprintln!("bench-peers: a measurement made no progress; giving up");
            return EXIT_HUNG;
        }
    }
}

/// How often it looks.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// The exit code that says that a measurement hung.
const EXIT_HUNG: i32 = 3;

/// The exit code after an interruption, as shells write it.
const EXIT_INTERRUPTED: i32 = 130;
