// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thrift calls of Volo over the streams of a session, by Volo's own extension points.
//!
//! ```text
//! client   MakeTransport   Connector: one stream of a session for each connection of Volo's pool
//! server   pingpong::serve serve(): each stream of each session of a listener
//! both     AsyncExt        Reader, Writer: whether a pooled connection has ended
//! ```
//! Volo's `Server::run` accepts only its own kinds of connections, so a server passes each stream
//! to `pingpong::serve`, the function that `run` calls for each connection.

mod connector;
pub mod echo;
mod server;

pub use connector::{Connector, Reader, Writer};
pub use server::serve;
