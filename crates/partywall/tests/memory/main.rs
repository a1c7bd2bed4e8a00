// SPDX-License-Identifier: MIT OR Apache-2.0
//! What channels and sessions hold: descriptors, mappings, resident bytes. One test runs at a time.

#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tokio")]
#[path = "../support_session/mod.rs"]
mod support_session;
#[path = "../support_two/mod.rs"]
mod support_two;

mod limits;
mod many_streams;
