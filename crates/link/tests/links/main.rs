// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links between two ends in one process, blocking and async: messages, connections, epochs, shared
//! memory.

#[path = "../support_ends/mod.rs"]
mod support_ends;
#[cfg(feature = "tokio")]
#[path = "../support_link_async/mod.rs"]
mod support_link_async;

mod async_address_change;
mod async_dropped_futures;
mod async_links;
mod async_replies;
mod borrowed_messages;
mod closing_together;
mod epochs_and_logins;
mod event_loop;
mod filled_messages;
mod many_links;
mod messages_arrive;
mod messages_leave;
mod read_in_place;
mod readers;
mod reconnection;
mod shared_memory;
