// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls over one stream, without a runtime: frames and books (`spec/CALLS.md`).
//!
//! ```text
//!   frame.rs     header ◀─▶ bytes
//!   pending.rs   the client's book: which calls wait for an answer
//!   serving.rs   the server's book: which calls run, which wait to run, which are refused
//! ```
//!
//! Who sends, receives, waits and runs handlers is the front's affair.

pub(crate) mod frame;
pub(crate) mod pending;
pub(crate) mod serving;

pub use frame::{ABORTED, BUSY, CODES_RESERVED, DEADLINE, VIOLATION};
pub use serving::CallViolation;
