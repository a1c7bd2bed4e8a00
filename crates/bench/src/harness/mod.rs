// SPDX-License-Identifier: MIT OR Apache-2.0
//! The harness of the benchmark: it starts the second process, runs batches of operations in both
//! processes, and collects the results. It does not know any scenario or transport.
//!
//! ```text
//! parent: Pair ── Child ◄── JSON lines ──► Control :child
//!           │                                 │
//!           └── Round (latency, CPU, bytes)   └── Done (the child's share)
//! ```
//! A `Cell` is the combination of parameters to measure. `Workspace` holds the directories of the
//! run's files, and `Watchdog` ends a run that hangs.

pub mod allocator;
pub mod cell;
pub mod clock;
pub mod control;
pub mod footprint;
pub mod pair;
pub mod pattern;
pub mod round;
pub mod watchdog;
pub mod workspace;
