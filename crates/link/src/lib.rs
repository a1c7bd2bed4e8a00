// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links: pairs of named streams of messages that outlive connections and, when kept in files,
//! processes.
//!
//! A [`Client`] opens a link by name, and a [`Server`] serves links at an address. Each end keeps a
//! message that it sends until the peer acknowledges it, across lost connections and restarts.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/links.sock", directory.path().display());
//! use partywall_link::{Client, Config, Server, Storage};
//! use std::time::{Duration, Instant};
//!
//! // The client sends before a server runs, and ends.
//! let files = Storage::directory(directory.path());
//! let client = Client::new(files.clone(), "alice", Config::default())?;
//! client.connect(&address, "bob", "orders")?.send(b"buy 5")?;
//!
//! // The server, usually in another process, receives until the client finishes.
//! let server = Server::bind(&address, files, "bob", Config::default())?;
//! let bob = std::thread::spawn(move || {
//!     let link = server.accept()?;
//!     while let Some(message) = link.recv()? {
//!         println!("{} bytes, attempt {}", message.len(), message.attempt());
//!         message.ack()?;
//!     }
//!     link.close(Instant::now() + Duration::from_secs(5))?;
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//! });
//!
//! // The client starts again: the link of the same names still has the first message.
//! let link = client.connect(&address, "bob", "orders")?;
//! let mut batch = link.batch();
//! batch.send(b"buy 6").send(b"sell 7");
//! batch.commit()?;
//! let soon = Instant::now() + Duration::from_secs(5);
//! link.wait_acked(soon)?;
//! link.close(soon)?;
//! # bob.join().unwrap().map_err(|error| error.to_string())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A lost connection is no error: [`SendError`] and [`RecvError`] have no variant for it, and the
//! link waits for the peer. [`Link::recv`] returns `None` when the peer has closed its end. The
//! settings `Wait`, `TransportPolicy` and `Admission`, and `Address`, are types of the crate
//! `partywall`. The feature `tokio` adds the same types as futures, in `partywall_link::tokio`.
//!
//! # Files
//!
//! ```text
//!  directory (of this user alone)
//!   ├─ 3f2a…c1.link    alice ▶ bob, orders     ◀── written by alice's process alone
//!   └─ 90be…07.link    bob ▶ alice, orders     ◀── by bob's
//!        header │ owner │ state │ control │ ring │ release ring │ slab    (SPEC 13)
//! ```
//!
//! Each end of a link owns one file. Ring and slab hold the messages that this end sends, until the
//! peer has acknowledged them (SPEC 14). The file remains intact if either process, or both, are
//! killed at any instant. It does not survive a power failure of the machine.
//!
//! # Parts of the source
//!
//! ```text
//!   Server  Client         handle/server.rs client.rs    storage.rs: files or memory
//!        │    │
//!        ▼    ▼
//!   Link ─ Sender, Receiver, Message, Batch     handle/
//!        │                                               Group     group.rs: links driven together
//!        ▼                                                   │
//!   end/   one end: connections, wake-ups, threads ◀─── drive/   epoll set, timers, one leader
//!        ▼
//!   link_state/  decides what is sent, received and agreed, without a system call
//!        ▼
//!   retained/ kept messages     store/ files and what they have in force     protocol/ frames
//! ```
//!
//! `tokio/` offers the same types with futures. Its task drives a group as any external event loop
//! would.
//!
//! [`Link`] describes what a link does, and `docs/guide` shows how to use it. [`inspect()`] and
//! [`inspect_link`] read link files without changing them.
//!
//! # Invariants
//!
//! - A file has one owner at a time, in whatever process. A new owner needs the previous owner's
//!   record that it left, or proof that the previous owner is dead.
//! - A file that is refused stays unchanged, to the last byte.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod config;
mod drive;
mod end;
mod error;
mod error_code;
mod group;
mod handle;
mod link_state;
pub mod protocol;
pub mod retained;
mod status;
mod storage;
pub mod store;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use self::link_state::{Event, StaleEpoch};
pub use config::{Config, Delivery, LoginAnswer, LoginRequest};
pub use error::{
    AcceptError, AckError, Awaited, BindError, ConfigError, OpenError, RecvError, ReplyError,
    SendError, Stopped, SwitchError, TryRecvError, TrySendError, WaitError,
};
pub use group::{Group, MemberId};
pub use handle::batch::Batch;
pub use handle::client::Client;
pub use handle::halves::{Receiver, Sender};
pub use handle::link::{EpochError, Link, StreamPosition};
pub use handle::message::{Message, Token};
pub use handle::message_ref::MessageRef;
#[cfg(feature = "tokio")]
pub(crate) use handle::observer::{Observation, Observer, Snapshot};
pub use handle::server::Server;
pub use handle::view::MessageView;
pub use partywall_layout::link::FileFault;
pub use status::{Stats, Status, Transport};
pub use storage::Storage;
pub use store::{
    Adopted, AfterReboot, Directory, Evidence, Found, Inspection, Key, KeyError, MemorySizes,
    Owner, OwnerStatus, PreviousStream, QuarantineSnapshot, RepairError, ReportSnapshot, Reset,
    StorageError, adopt, inspect, inspect_file, inspect_link, missing_files, reset,
};

/// Compiles and runs the examples of README.md as documentation tests; no build contains this type.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles and runs the examples of the guide's chapter on links as documentation tests; no build
/// contains this type.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/guide/src/links.md")]
struct Links;
