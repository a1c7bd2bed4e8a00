// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scaffolding of Partywall's tests. This crate is not published, and only dev-dependencies name
//! it.
//!
//! ```text
//! deadline    deadlines: instants, conditions, futures, a watchdog for tests that hang
//! directory   a directory for sockets and files, removed at the end of a test
//! echo_loop   a server over an event loop, which sends back every message
//! error_numbers  compares the tables of numbers in SPEC.md with the variants of error types
//! footprint   counts of a process's descriptors and memory, and the lock of the tests that count
//! fork        runs code in a forked child
//! hostile     a peer that makes the handshake frame by frame and then breaks rules, and its victim
//! pair        both ends of channels and sessions in one process, over every transport
//! pattern     payloads of which every byte is known
//! process     this test executable, started again as a second process
//! random      random numbers that are the same in every run
//! ```
//!
//! This crate checks no results: the tests do. Its functions panic where a test would fail.
#![deny(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its scaffolding too")]

pub mod deadline;
mod directory;
pub mod echo_loop;
pub mod error_numbers;
pub mod footprint;
pub mod fork;
pub mod hostile;
pub mod pair;
pub mod pattern;
pub mod process;
mod random;

pub use deadline::{
    TIMEOUT, Watchdog, give_up_after, in_time, millis, run, run_alone, soon, until, until_async,
    within,
};
pub use directory::Directory;
pub use footprint::{Footprint, alone, descriptors, together};
pub use pair::{Kind, pair, session_pair, session_pair_with};
pub use pattern::{fill, is_pattern, number_of, pattern, payload};
pub use process::{Second, argument, role, second_process, variable};
pub use random::Random;
