// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sessions over shmipc with peers that follow the rules, and of the protocol's files,
//! regions and queues.

#[cfg(feature = "tokio")]
#[path = "../support_async/mod.rs"]
mod support_async;
#[path = "../support_foe/mod.rs"]
mod support_foe;
#[path = "../support_golden/mod.rs"]
mod support_golden;
#[path = "../support_hostile/mod.rs"]
mod support_hostile;

mod allowed_files;
mod dump;
mod files;
mod golden_handshakes;
mod hanging_up;
mod hostile_memory;
mod hot_restart;
mod metrics;
mod order;
mod refusals;
mod region_layout;
mod session_manager;
mod sessions;
mod slices;
