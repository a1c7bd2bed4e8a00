// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that break the rules of channels and sessions.
//!
//! Some of these tests count descriptors and memory: they take `partywall_testkit::alone`.

mod busy_peer;
mod handshake;
mod handshake_floods;
mod images;
mod peer;
mod session;
mod session_blob_credit;
mod session_floods;
mod socket;
