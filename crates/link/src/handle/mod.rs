// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the application holds of a link.
//!
//! ```text
//!   client.rs ─▶ link.rs ── split ──▶ halves.rs        batch.rs    messages that are sent at once
//!   server.rs ─▶                        │
//!                  message.rs  message_ref.rs  view.rs    a message: owned, borrowed until the next, read in place
//!                                                        observer.rs   a link as the async front sees it
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
