// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wakes a session's driver, the task or thread that receives for the session, from another thread
//! of this process.
//!
//! ```text
//!   driver   store is_asleep ─▶ check for events ─▶ sleep
//!   waker    write the event ─▶ swap is_asleep to false ─ it was true ─▶ notify the driver
//! ```

use partywall_sys::Doorbell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes a session's driver from any thread of the process. A protocol calls `wake` when an event
/// can be received, or when memory was freed for which the driver waits.
#[derive(Clone, Debug)]
pub struct DriverWaker {
    inner: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    doorbell: Doorbell,
    is_asleep: AtomicBool,
}

impl DriverWaker {
    pub(crate) fn new() -> io::Result<Self> {
        let doorbell = Doorbell::new()?;
        Ok(Self { inner: Arc::new(Shared { doorbell, is_asleep: AtomicBool::new(false) }) })
    }

    /// Wakes the driver if it sleeps. The caller must have written the event before.
    pub fn wake(&self) {
        // ORDER: SeqCst in this swap and in the store in `arm`. Either this swap reads `true`, or
        // the driver, which checks for events after its store in `arm`, sees the event written
        // before this call.
        if self.inner.is_asleep.swap(false, Ordering::SeqCst) {
            // Only this process holds the eventfd, so no other process can fill its counter, and a
            // notification never fails.
            let _ = self.inner.doorbell.notify();
        }
    }

    /// Announces that the driver is about to sleep. The driver must check for events once more
    /// afterwards.
    pub(crate) fn arm(&self) {
        // ORDER: SeqCst: pairs with the swap in `wake`. Either that swap reads `true`, or the
        // driver's check for events after this store sees the event.
        self.inner.is_asleep.store(true, Ordering::SeqCst);
    }

    pub(crate) fn doorbell(&self) -> &Doorbell {
        &self.inner.doorbell
    }
}
