// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of link files: the state and the messages that a file preserves through sequences of calls
//! and kills, and the files that an opener refuses.

#[path = "../support_link/mod.rs"]
mod support_link;
#[path = "../support_retained/mod.rs"]
mod support_retained;

mod compact_records;
mod refusals;
mod state_survives_kills;
mod stream_is_kept;
mod stream_survives_kills;
