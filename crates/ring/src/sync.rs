// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where atomics come from: the language's own, or loom's when `--cfg loom` is given.
//!
//! Nothing else in this crate imports atomics, so every interleaving that matters is one that loom
//! sees.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Keeps the compiler from moving accesses across it. Another thread makes a barrier of it: membarrier(2).
#[cfg(not(loom))]
#[inline]
pub(crate) fn light_barrier() {
    // ORDER: for the compiler alone; what it pairs with is in `bias.rs`.
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Loom knows no barrier that one thread executes for another: here each has its own.
#[cfg(loom)]
pub(crate) fn light_barrier() {
    // ORDER: as above.
    fence(Ordering::SeqCst);
}
