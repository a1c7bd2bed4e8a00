// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where atomics come from: the language's own, or loom's when `--cfg loom` is given.
//!
//! Nothing else in this crate imports atomics, so every interleaving that matters is one that loom
//! sees.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
