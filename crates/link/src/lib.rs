// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links: pairs of named streams of messages that outlive connections and, kept in files, processes.
//!
//! ```text
//!  directory (ours, for us alone)
//!   ├─ 3f2a…c1.link    alice ▶ bob, orders     ◀── alice's process alone writes it
//!   └─ 90be…07.link    bob ▶ alice, orders     ◀── bob's
//!
//!        header │ owner │ state │ control │ ring │ release ring │ slab    (SPEC 13)
//!
//!   store/      the file or memory of one end      retained/   the messages in its ring and slab
//!   protocol/   the frames of two ends             link_state/peer_memory.rs  the peer's memory, mapped
//! ```
//!
//! Each end of a link owns one file. It survives that either process, or both, are killed at any instant; it does not
//! survive that the machine loses power.
//!
//! ```text
//!   Server  Client      server.rs client.rs; greeting.rs login.rs: who may attach; place.rs: files or memory
//!        │          │
//!        ▼          ▼
//!   Link ─ Sender, Receiver, Message, Batch      handle.rs halves.rs message.rs lent.rs view.rs batch.rs
//!        │                                                 Group      group.rs: links driven together
//!        ▼                                                     │
//!   end/   one end: its core, connections, waiting threads ◀── drive/   who waits drives: epoll set, timers, one leader
//!        ▼
//!   core/  what is decided, sent and received, without a system call
//! ```
//!
//! `watched.rs` is what another front asks of a link: `crate::tokio` has the same names as futures, and drives a group as any
//! foreign event loop would.
//!
//! See [`Link`] for what it does, and the guide for how to use it. [`inspect()`] and [`inspect_link`] look into files.
//!
//! # Invariants
//!
//! - A file has one owner at a time, in whatever process. Only proof of death takes it from one that has not left.
//! - What is refused is not changed, by not a single byte.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod batch;
mod client;
mod config;
mod drive;
mod end;
mod fault;
mod greeting;
mod group;
#[cfg(doctest)]
mod guide;
mod halves;
mod handle;
mod lent;
mod link_state;
mod login;
mod message;
#[cfg(feature = "tokio")]
mod observer;
mod place;
mod positions;
pub mod protocol;
pub mod retained;
mod server;
mod status;
pub mod store;
mod switch;
#[cfg(feature = "tokio")]
pub mod tokio;
mod view;

pub use self::link_state::{Event, StaleEpoch};
pub use batch::Batch;
pub use client::Client;
pub use config::{Config, Delivery, Storage};
pub use fault::{
    AcceptError, AckError, BindError, ConfigError, OpenError, RecvError, ReplyError, SendError,
    Stopped, SwitchError, TryRecvError, TrySendError, WaitError,
};
pub use group::{Group, LinkId};
pub use halves::{Receiver, Sender};
pub use handle::{EpochError, Link};
pub use lent::MessageRef;
pub use login::{LoginAnswer, LoginRequest};
pub use message::{Message, Token};
#[cfg(feature = "tokio")]
pub(crate) use observer::{LinkSnapshot, Look, Observer};
pub use partywall_layout::link::FileFault;
pub use positions::StreamPosition;
pub use server::Server;
pub use status::{Stats, Status, Transport};
pub use store::{
    Adopted, Directory, Found, Inspection, Key, KeyError, MemorySizes, Owner, OwnerStatus,
    PreviousStream, QuarantineSnapshot, RepairError, ReportSnapshot, Reset, StorageError, adopt,
    inspect, inspect_link, reset,
};
pub use view::MessageView;
