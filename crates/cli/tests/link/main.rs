// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the subcommand `link` and its own subcommands.

#[path = "../linked/mod.rs"]
mod linked;
#[path = "../program/mod.rs"]
mod program;

mod inspect;
mod kills;
mod reboot;
mod repair;
mod send_recv;
