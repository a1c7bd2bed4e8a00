// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark of `partywall bench` and `bench/peers`: it measures message patterns (scenarios)
//! over several transports, between two processes.
//!
//! ```text
//! command ─► plan (cells) ─► run: round by round, cell by cell ─► outcome ─► report
//!               │             │
//!               └── table ────┘  rows: name, scenarios, Runner      (data)
//!                     │
//!                 scenario/      ping throughput duplex rate oversubscribe parallel connect idle
//!                     │
//!                 framework/     grpc http    over byte streams, with feature `frameworks`
//!                 transport/     shm link uds tcp pipe baseline-spin baseline-eventfd
//!                     │
//!                 harness/       parent ◄─ control pipe ─► child     the program, started twice
//! ```
//! A cell is one combination of scenario, transport and size. The table has one row for each
//! transport; a `Runner` holds the functions that measure on it.
//!
//! To add a transport, implement [`transport::ChannelTransport`] or [`transport::StreamTransport`]
//! in a file of `transport/` and add a row to `table.rs`. To add a scenario, add a file to
//! `scenario/`.
//!
//! The crate does *not* depend on other libraries to compare with: these are in `bench/peers`.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]

mod arguments;
mod command;
pub mod figure;
pub mod former_names;
#[cfg(feature = "frameworks")]
mod framework;
pub mod harness;
pub mod machine;
pub mod outcome;
pub mod plan;
mod progress;
pub mod report;
pub mod run;
pub mod scenario;
pub mod table;
pub mod transport;

pub use arguments::{Arguments, UsageError};
pub use command::{ChildArguments, run, run_child};

/// The version of the package, and the git commit from which it was built.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PARTYWALL_COMMIT"), ")");
