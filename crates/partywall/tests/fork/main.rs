// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forked children. They have an executable of their own because a child inherits every descriptor.

#[path = "../support_fork/mod.rs"]
mod support_fork;
#[cfg(feature = "tokio")]
#[path = "../support_session/mod.rs"]
mod support_session;
#[path = "../support_two/mod.rs"]
mod support_two;

mod channels;
mod sessions;
