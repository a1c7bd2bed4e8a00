// SPDX-License-Identifier: MIT OR Apache-2.0
//! The harness of the conformance tests: two programs, a socket between them, and what must come of it.
//!
//! ```text
//! roster ── who takes part ──▶ Exchange { server, client, network, map, arguments }
//!                                  │  serve …  "ready ADDRESS"
//!                                  │  run …    one line of JSON, exit code
//!                                  └─ end of the server's stdin ── one line of JSON, exit code
//! ```
//! It does *not* know what a library is: everyone in the [`roster`] is a program with the same two subcommands, and
//! to test another one is to add it there. A test that has to see single sends fail uses ours itself.
//!
//! Invariants: each wait has a deadline; a process is killed by its id, by who started it; nothing stays behind in
//! the directory for shared memory.

pub mod exchange;
pub mod forwarder;
pub mod known_faults;
pub mod process;
pub mod roster;
