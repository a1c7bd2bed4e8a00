// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the process's resource limits. One test runs at a time, because a limit holds for all
//! threads.

#[path = "../support/mod.rs"]
mod support;

mod file_size;
mod lost_descriptor;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Prevents the other tests of this executable from running, because a limit holds for the whole
/// process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
