// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of atomics: those of `core`, or those of loom under `--cfg loom`.
//!
//! No other file of this crate imports atomics, so loom explores every access to them.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Keeps the compiler from moving accesses across it. Another thread's membarrier(2) makes it a
/// full barrier.
#[cfg(not(loom))]
#[inline]
pub(crate) fn light_barrier() {
    // ORDER: for the compiler alone; `bias.rs` names the heavy barrier that it pairs with.
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Loom has no barrier that one thread executes for another, so each thread executes its own.
#[cfg(loom)]
pub(crate) fn light_barrier() {
    // ORDER: as above.
    fence(Ordering::SeqCst);
}
