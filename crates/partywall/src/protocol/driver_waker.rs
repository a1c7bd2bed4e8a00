// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wakes a session's driver from within this process.
//!
//! ```text
//!   driver   store is_asleep ─▶ check for events ─▶ sleep
//!   waker    write the event ─▶ is_asleep? ─▶ notify
//! ```

use partywall_sys::Doorbell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes a session's driver from any thread: there may be an event to receive, or memory was freed
/// that the protocol waits for.
#[derive(Clone, Debug)]
pub struct DriverWaker {
    inner: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    doorbell: Doorbell,
    /// The driver sleeps, or is about to sleep.
    is_asleep: AtomicBool,
}

impl DriverWaker {
    pub(crate) fn new() -> io::Result<Self> {
        let doorbell = Doorbell::new()?;
        Ok(Self { inner: Arc::new(Shared { doorbell, is_asleep: AtomicBool::new(false) }) })
    }

    /// Wakes the driver if it sleeps. The caller has written the event before.
    pub fn wake(&self) {
        // ORDER: SeqCst on both sides. Either this swap reads `true`, or the driver, which checks
        // for events after its store in `arm`, sees the event written before this call.
        if self.inner.is_asleep.swap(false, Ordering::SeqCst) {
            // An eventfd that only this process holds always accepts a notification.
            let _ = self.inner.doorbell.notify();
        }
    }

    /// The driver is about to sleep: it checks for events once more after this.
    pub(crate) fn arm(&self) {
        // ORDER: see `call`.
        self.inner.is_asleep.store(true, Ordering::SeqCst);
    }

    pub(crate) fn doorbell(&self) -> &Doorbell {
        &self.inner.doorbell
    }
}
