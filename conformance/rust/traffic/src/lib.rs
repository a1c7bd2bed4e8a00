// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traffic of the conformance tests: the code of client and server that every Rust program of
//! these tests runs, whichever shmipc library it uses.
//!
//! ```text
//!  client program                                     server program
//!  run ──┐                                            ┌── serve
//!        │  Client ── Conversation ═══ shmipc ═══ Conversation ── Server
//!        └─ plan, requests ──────────────────────────▶ checks, answers
//!           checks ◀────────────────────────────────── the same bytes
//! ```
//!
//! A program implements [`Client`], [`Server`] and [`Conversation`] for its library; this crate
//! does the rest. The Go peer (`conformance/go`) has its own code for the same traffic.
//!
//! This crate does *not* know any library, and tolerates no fault of one: a byte that is wrong,
//! missing or surplus fails the run.
//!
//! Invariant: the bytes of a request depend only on the plan's seed and the request's number.

mod options;
mod pattern;
mod plan;
mod report;
mod run;
mod serve;
mod start;
mod stream;

pub use options::{Command, Mapping, ModeName, Network, Options, Program};
pub use pattern::Pattern;
pub use plan::{Mode, Plan};
pub use report::{Report, SharedReport};
pub use run::run;
pub use serve::serve;
pub use start::start;
pub use stream::{Client, Conversation, Receiver, Sender, Server};

/// Removes files of shared memory whose path begins with `prefix`.
pub fn remove_leftovers(prefix: &str) {
    let path = std::path::Path::new(prefix);
    let (Some(directory), Some(start)) = (path.parent(), path.file_name()) else { return };
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(start.as_encoded_bytes()) {
            // An error of the removal is ignored: another process of the same run may have removed
            // the file.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
