// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that break the rules of shmipc, and closing. Resources of the process are counted, so one
//! test runs at a time.

#[path = "../support_foe/mod.rs"]
mod support_foe;

mod closing;
mod handshake;
mod server;
mod traffic;
