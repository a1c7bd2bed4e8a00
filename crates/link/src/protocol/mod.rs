// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control frames of a link: no system, no clock, no socket.
//!
//! ```text
//!  frame.rs   frames in the terms of `partywall_reconcile`
//!  codec.rs   between these and their bytes (SPEC 15)
//! ```

pub mod codec;
pub mod frame;
#[cfg(test)]
pub(crate) mod samples;
