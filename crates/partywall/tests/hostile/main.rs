// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that break the rules of channels and sessions.
//!
//! Some of these tests count descriptors and memory: they take `support::alone`.

#[cfg(feature = "tokio")]
#[path = "../support_session/foe.rs"]
mod foe;
#[cfg(feature = "tokio")]
#[path = "../support_session/hostile_home.rs"]
mod hostile_home;
#[path = "../support/mod.rs"]
mod support;

mod busy_peer;
mod handshake;
mod handshake_floods;
mod images;
mod peer;
mod session;
mod session_blob_credit;
mod session_floods;
mod socket;
