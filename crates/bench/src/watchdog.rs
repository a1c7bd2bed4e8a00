// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends the program when a measurement hangs: a lost wake-up is a finding, and a benchmark must stop by itself.
//!
//! It does *not* end the child: that ends when its stdin does.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A thread that looks once a second whether the deadline has passed.
pub struct Watchdog {
    deadline: Arc<Mutex<Option<Instant>>>,
}

impl Watchdog {
    /// Starts it, disarmed; the directories are removed before the program is ended.
    pub fn start(directories: Vec<PathBuf>) -> Self {
        let deadline = Arc::new(Mutex::new(None));
        let watched = Arc::clone(&deadline);
        thread::spawn(move || {
            loop {
                thread::sleep(LOOK_PERIOD);
                let deadline = *watched.lock().unwrap_or_else(PoisonError::into_inner);
                if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                    eprintln!("partywall: a measurement made no progress; giving up");
                    for directory in &directories {
                        let _ = std::fs::remove_dir_all(directory);
                    }
                    std::process::exit(EXIT_HUNG);
                }
            }
        });
        Self { deadline }
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

/// How often it looks.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// The exit code that says so.
const EXIT_HUNG: i32 = 3;
