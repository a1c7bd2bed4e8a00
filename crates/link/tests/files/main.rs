// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of links: what they keep through orders of calls and kills, and what is refused.

#[path = "../support_link/mod.rs"]
mod support_link;
#[path = "../support_retained/mod.rs"]
mod support_retained;

mod compact_records;
mod refusals;
mod state_survives_kills;
mod stream_is_kept;
mod stream_survives_kills;
