// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of peers that break the rules of shmipc, and of closing sessions. These tests count
//! descriptors and mappings of the process, so one test runs at a time.

#[path = "../support_foe/mod.rs"]
mod support_foe;

mod closing;
mod handshake;
mod server;
mod traffic;
