// SPDX-License-Identifier: MIT OR Apache-2.0
//! The barrier that one thread makes all threads of its process execute: membarrier(2), expedited.

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
use std::io;
use std::sync::OnceLock;

/// Whether this process can make all its threads execute a memory barrier. The first call registers
/// the process with the system, as membarrier(2) demands.
#[must_use]
pub fn is_available() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    })
}

/// Makes every thread of this process execute a full memory barrier between the start and the end
/// of the call.
///
/// # Errors
/// If the system refuses, as it does unless the barrier [is available](is_available).
pub fn in_all_threads() -> io::Result<()> {
    Ok(membarrier(MembarrierCommand::PrivateExpedited)?)
}
