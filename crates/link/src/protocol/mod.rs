// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control frames of a link, without system calls, clocks or sockets.
//!
//! ```text
//!  frame.rs   frames in the terms of `partywall_reconcile`
//!  codec.rs   conversion between these frames and their bytes (SPEC 15)
//! ```

pub mod codec;
pub mod frame;
#[cfg(test)]
pub(crate) mod samples;
