// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links leave no descriptor behind. These tests count the descriptors of the process, so only one
//! of them runs at a time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../support_ends/mod.rs"]
mod support_ends;
#[cfg(feature = "tokio")]
#[path = "../support_link_async/mod.rs"]
mod support_link_async;

mod async_links;
mod hostile_memory;

use std::sync::{Mutex, MutexGuard, PoisonError};

fn descriptors() -> usize {
    partywall_testkit::Footprint::now().descriptors
}

/// Locks out the other tests of this executable while one test counts descriptors, because they
/// open and close descriptors too.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
