// SPDX-License-Identifier: MIT OR Apache-2.0
//! The atomics and barriers of this crate: those of `core`, or those of the model checker loom
//! under `--cfg loom`.
//!
//! No other file of this crate imports atomics, so loom explores every access to them.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A barrier that only keeps the compiler from moving accesses across it. A membarrier(2) of
/// another thread turns it into a full barrier.
#[cfg(not(loom))]
#[inline]
pub(crate) fn light_barrier() {
    // ORDER: SeqCst, but for the compiler alone. Another thread that needs the processor's accesses
    // in order makes this thread execute a full barrier (membarrier), wherever it is.
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The light barrier under loom is a full barrier. Loom has no barrier that one thread executes for
/// another, so under loom each thread executes its own.
#[cfg(loom)]
pub(crate) fn light_barrier() {
    // ORDER: SeqCst: this thread's own fence replaces the heavy barrier that another thread would
    // execute for it.
    fence(Ordering::SeqCst);
}
