// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links with futures. [`crate`] has the same names for threads, and says what a link is.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/links.sock", directory.path().display());
//! use partywall_link::{Config, Storage};
//! use partywall_link::tokio::{Client, Server};
//!
//! let server = Server::bind(&address, Storage::Memory, "bob", Config::default())?;
//! let served = tokio::spawn(async move {
//!     let link = server.accept().await?;
//!     let request = link.recv().await?.ok_or("alice has finished")?;
//!     let answer = [b"hello, ", &request[..]].concat();
//!     request.reply(&answer).await?;
//!     link.wait_acked().await?;
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//! });
//!
//! let client = Client::new(Storage::Memory, "alice", Config::default())?;
//! let link = client.connect(&address, "bob", "greetings")?;
//! link.send(b"alice").await?;
//! let answer = link.recv().await?.ok_or("bob has finished")?;
//! assert_eq!(answer, b"hello, alice");
//! answer.ack()?;
//! link.close().await?;
//! # served.await?.map_err(|error| error.to_string())?;
//! # Ok(())
//! # }
//! ```
//!
//! # What runs
//!
//! ```text
//!   descriptor, timers ─▶ the group's task ─ try_poll, ready ─▶ notices ─▶ futures check again
//!   an operation of another task ───────── changed a link ───────┘
//! ```
//!
//! Each [`Group`] has one task, which makes connections, reads bytes and sends acknowledgements for
//! all its links, even while no future waits. The task ends with the last client, server, link and
//! group that belongs to it. A group of idle links uses no processor time. All links of a client,
//! and all links of a server, are in one group, unless `new_in` and `bind_in` choose one. The
//! group, the wait strategy and the spin budget of a [`Config`](crate::Config) are for threads, and
//! have no effect on async links.
//!
//! The driver task calls [`on_login`](crate::Config::on_login), opens files and resolves host
//! names, so a slow callback or a slow name blocks a thread of the runtime. Use IP addresses.
//!
//! # Ending
//!
//! Dropping the last handle of a client's link closes the link without waiting. A runtime that
//! shuts down drops the driver task: futures of other runtimes that wait for a link of the group
//! fail with [`Stopped::System`](crate::Stopped::System). Unacknowledged messages are kept as
//! [`Storage`](crate::Storage) says.
//!
//! # Sharing a thread
//!
//! Every future of this module takes part in tokio's cooperative budget. The `try_` methods do not.
//!
//! # Cancelling
//!
//! Every future of this module may be dropped at any time. A dropped `send` or `commit` has sent
//! everything or nothing. A dropped `recv`, `accept` or `next_event` took nothing. A dropped
//! `reply` has sent the reply and acknowledged the request, or neither.

mod batch;
mod client;
mod drive;
mod group;
mod halves;
mod link;
mod message;
mod notices;
mod server;
mod shutdown;

pub use batch::Batch;
pub use client::Client;
pub use group::Group;
pub use halves::{Receiver, Sender};
pub use link::Link;
pub use message::Message;
pub use server::Server;
