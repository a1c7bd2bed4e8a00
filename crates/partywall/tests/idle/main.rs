// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle channels and sessions wake nobody.

#[cfg(feature = "tokio")]
#[path = "../support_session/mod.rs"]
mod support_session;
#[path = "../support_two/mod.rs"]
mod support_two;

mod channels;
mod sessions;
