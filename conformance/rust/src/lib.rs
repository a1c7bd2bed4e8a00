// SPDX-License-Identifier: MIT OR Apache-2.0
//! The harness of the conformance tests: two programs, a socket between them, and the required
//! results.
//!
//! ```text
//! roster ── programs ──▶ Exchange { server, client, transport }
//!                            │  serve …  "ready ADDRESS"
//!                            │  run …    one line of JSON, exit code
//!                            └─ end of the server's stdin ── one line of JSON, exit code
//! ```
//!
//! The harness does *not* depend on any library: each entry of the [`roster`] is a program with the
//! same two subcommands. Testing another library means adding its program to the roster. A test in
//! which a single send must fail uses the crate `partywall-shmipc` in its own process, and no
//! program.
//!
//! Invariants: each wait has a deadline. A test kills only processes that it started, by their id.
//! No file remains in the directory for shared memory.

pub mod exchange;
pub mod forwarder;
pub mod known_faults;
pub mod process;
pub mod roster;
