// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the subcommand `proxy` with real programs.

#[path = "../program/mod.rs"]
mod program;
#[path = "../proxied/mod.rs"]
mod proxied;

mod back_pressure;
mod carries;
mod ends_and_returns;
mod redis;
mod resets;
mod unread_stderr;
