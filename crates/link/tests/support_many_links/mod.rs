// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers that make thousands of links between two processes with one thread each, and measure the
//! cost of idle and active links.
//!
//! ```text
//!   this process: many.rs                          second process: client.rs
//!   server ── one group, one thread ◀── N links ── client, one group, one thread
//!          ── one control socket: "rest", "send", "hear", "cost" ─▶
//! ```
//!
//! Each process reports its own counts: turns of its group, voluntary context switches of its
//! thread, memory, descriptors.
#![allow(dead_code, reason = "the two processes use different parts")]

pub mod client;
pub mod cost;
#[path = "../support_directory/mod.rs"]
mod directory;
pub mod figures;
pub mod many;
