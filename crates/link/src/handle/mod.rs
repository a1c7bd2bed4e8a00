// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects that an application uses: client, server, link, the two directions of a link, and
//! messages.
//!
//! ```text
//!   client.rs ─▶ link.rs ── split ──▶ halves.rs        batch.rs      messages sent all or none
//!   server.rs ─▶    │                                  observer.rs   a link for futures
//!                   └─▶ message.rs  message_ref.rs  view.rs
//!                       owned       borrowed        read in place
//!
//!   server.rs: accept_loop.rs accepts connections, greeting.rs reads to which link they belong
//! ```

mod accept_loop;
pub(crate) mod batch;
pub(crate) mod client;
mod greeting;
pub(crate) mod halves;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod message_ref;
#[cfg(feature = "tokio")]
pub(crate) mod observer;
pub(crate) mod server;
pub(crate) mod view;
