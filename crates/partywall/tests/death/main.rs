// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that are killed at any instant. Descriptors and mappings are counted, so one test runs at a time.

#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tokio")]
#[path = "../support_session/mod.rs"]
mod support_session;
#[path = "../support_two/mod.rs"]
mod support_two;

mod both_directions;
mod channels;
mod sessions;
