// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wakes a session's driver from within this process.
//!
//! ```text
//!   driver   says that it sleeps ─▶ looks ─▶ sleeps      anybody   writes ─▶ does it sleep? ─▶ rings
//! ```

use partywall_sys::Doorbell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes a session's driver from any thread: there may be something to receive, or something was given back for
/// which the protocol waits.
#[derive(Clone, Debug)]
pub struct DriverWaker {
    inner: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    doorbell: Doorbell,
    /// The driver sleeps, or is about to.
    is_asleep: AtomicBool,
}

impl DriverWaker {
    pub(crate) fn new() -> io::Result<Self> {
        let doorbell = Doorbell::new()?;
        Ok(Self { inner: Arc::new(Shared { doorbell, is_asleep: AtomicBool::new(false) }) })
    }

    /// Wakes the driver if it sleeps. What it is to find must be written before.
    pub fn wake(&self) {
        // ORDER: SeqCst, on both sides: either we see that it sleeps, or it sees, looking after it said so, what
        // was written before the call.
        if self.inner.is_asleep.swap(false, Ordering::SeqCst) {
            // An eventfd that only we hold always takes a ring.
            let _ = self.inner.doorbell.notify();
        }
    }

    /// The driver is about to sleep: it looks again after this.
    pub(crate) fn arm(&self) {
        // ORDER: see `call`.
        self.inner.is_asleep.store(true, Ordering::SeqCst);
    }

    pub(crate) fn doorbell(&self) -> &Doorbell {
        &self.inner.doorbell
    }
}
