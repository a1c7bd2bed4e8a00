// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with peers that break the rules of channels and sessions.
//!
//! Tests that count descriptors or memory run alone, by `partywall_testkit::alone`.

mod busy_peer;
mod handshake;
mod handshake_floods;
mod handshake_random;
mod images;
mod moves;
mod peer;
mod reserved;
mod session;
mod session_blob_credit;
mod session_floods;
mod session_images;
mod socket;
mod transcripts;
mod while_polling;
