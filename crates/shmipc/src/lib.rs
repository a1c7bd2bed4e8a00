// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shmipc protocol, versions 2 and 3, spoken behind Partywall's sessions: one side can be migrated at a time.
//!
//! ```text
//!   transport/    a line for partywall's door: streams, fallback, wake-ups
//!   handshake/    client and server      frame.rs   messages on the socket
//!   region/       lists and chains       queue.rs   the rings            backing.rs  memfds and files
//!   config.rs  names.rs  stats.rs        dump.rs    a region seen from outside
//! ```
//!
//! What it knows of the protocol was read off shmipc-go v0.2.0 and the crate `shmipc` 0.2.1, and is proved against
//! them, unmodified, in `conformance/`.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod backing;
mod config;
mod dump;
mod frame;
mod handshake;
mod names;
mod queue;
mod region;
mod stats;
mod transport;

/// For `partywall dump`, the fuzzer and tests of this crate: no promise of any kind.
#[doc(hidden)]
pub mod inside {
    pub use crate::backing::*;
    pub use crate::dump::*;
    pub use crate::queue::*;
    pub use crate::region::*;
}
