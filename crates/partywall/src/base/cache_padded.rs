// SPDX-License-Identifier: MIT OR Apache-2.0
//! Alignment that keeps values which different threads write out of each other's cache lines.

/// A value in cache lines of its own. A thread that writes it does not slow down readers of
/// adjacent values.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);
