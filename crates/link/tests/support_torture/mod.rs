// SPDX-License-Identifier: MIT OR Apache-2.0
//! The torture test of links: a director kills, stops and restarts the two ends of a link, a relay
//! cuts the network between them, and an oracle checks every message.
//!
//! ```text
//!   this process                                              second processes
//!   director ── SIGKILL, SIGSTOP, start ──────────────────▶   client, server     (end.rs)
//!      │  ▲                                                     │        │
//!      │  └── oracle ◀── journal: one file, appended ◀──────────┴────────┤  "sent 7", "got 7" …
//!      └──── relay: cuts, delays, delivers late ◀────────── link ────────┘
//! ```
//!
//! The journal is a file to which both ends append notes of 64 bytes. The notes of a killed process
//! stay, in the order in which they were written. A note "About to …" precedes an operation, and a
//! second note follows it. A kill between the two leaves a doubt, which later notes resolve in one
//! way or the other, never both.
//!
//! The torture does not lose or damage memory. So no end may report a gap: any such report is a
//! violation.
#![allow(dead_code, reason = "the two processes use different parts")]

pub mod content;
pub mod cuts;
pub mod director;
#[path = "../support_directory/mod.rs"]
mod directory;
pub mod end;
pub mod figures;
pub mod journal;
pub mod ledger;
pub mod oracle;
pub mod relay;
pub mod reports;
pub mod round;
pub mod settings;
