// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the two ends of a link say to each other: no system, no clock, no socket.
//!
//! ```text
//!  frame.rs   frames in the terms of partywall_reconcile
//!  codec.rs   their bytes (SPEC 15)
//! ```

pub mod codec;
pub(crate) mod fields;
pub mod frame;
#[cfg(test)]
pub(crate) mod samples;
