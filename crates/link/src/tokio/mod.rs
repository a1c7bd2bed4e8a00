// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links as futures. [`crate`] has the same names without tokio, and says what a link is.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
//!   descriptor, timers ─▶ the group's task ─ try_poll, ready ─▶ news of a link ─▶ its futures look again
//!   an operation of another task ──────────── changed a link ──────────┘
//! ```
//!
//! Each [`Group`] has one task, which makes connections, takes bytes and sends acknowledgements for
//! all its links, whether a future waits or not. It ends with the last client, server, link and
//! group that belongs to it. A group of links that are idle does nothing at all. All links of a
//! client, and all of a server, are in one group, unless `new_in` and `bind_in` say which; the
//! group that a [`Config`](crate::Config) names is for threads, and so are its `wait` and
//! `spin_budget`: they mean nothing here.
//!
//! The task asks [`on_login`](crate::Config::on_login), opens files and looks up host names where
//! it runs: a callback that takes long, or a name that does, keeps a thread of the runtime. Write
//! IP addresses.
//!
//! # Ending
//!
//! Dropping the last handle of a client's link closes it without waiting, as with threads. A
//! runtime that shuts down drops the task: what waits elsewhere for a link of the group fails with
//! [`Stopped::System`](crate::Stopped::System). What was sent and not consumed is kept or not as
//! [`Storage`](crate::Storage) says.
//!
//! # Sharing a thread
//!
//! Every future here takes part in tokio's budget. The `try_` forms do not.
//!
//! # Cancelling
//!
//! Every future here may be dropped at any time. A `send` or a `commit` that was dropped has sent
//! all of it or nothing; a `recv`, an `accept` or a `next_event` that was dropped took nothing; a
//! `reply` has sent and committed, or neither.

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
