// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes that measure together, without knowledge of any scenario or transport.
//!
//! ```text
//! parent: Pair ── Child ◄── JSON lines ──► Control :child
//!           │                                 │
//!           └── Round (latency, CPU, bytes)   └── Done (the child's share)
//! ```
//! `Cell` says what is measured, `Workspace` where files may lie, and `Watchdog` ends a run that
//! hangs.

pub mod cell;
pub mod clock;
pub mod control;
pub mod footprint;
pub mod pair;
pub mod pattern;
pub mod round;
pub mod watchdog;
pub mod workspace;
