// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two protocols over [`partywall`]: calls with answers, and records that may be dropped. Both are
//! built on its public API alone.
//!
//! ```text
//!   calls   requests and responses over one stream, many in flight; on tokio with feature `calls`
//!   lossy   log records and samples that a full channel may drop
//! ```
//!
//! A program that uses neither protocol does not need this crate. `spec/CALLS.md` and
//! `spec/RECORDS.md` specify the wire formats.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod calls;
mod error_code;
pub mod lossy;

/// Compiles and runs the examples of the guide as documentation tests; no other build includes this
/// module.
#[cfg(doctest)]
mod guide {
    #[cfg(feature = "calls")]
    #[doc = include_str!("../../../docs/guide/src/calls.md")]
    struct Calls;
    #[doc = include_str!("../../../docs/guide/src/agents.md")]
    struct Agents;
}
