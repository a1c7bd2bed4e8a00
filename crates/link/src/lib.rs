// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links: pairs of named streams of messages that outlive connections and, kept in files, processes.
//!
//! ```text
//!  directory (ours, for us alone)
//!   ├─ 3f2a…c1.link    alice ▶ bob, orders     ◀── alice's process writes it, alone      key.rs       three names
//!   └─ 90be…07.link    bob ▶ alice, orders     ◀── bob's                                 directory.rs where
//!                                                                                        file.rs      made whole, opened, cut into parts
//!        header │ owner │ state │ control │ ring │ release ring │ slab    (SPEC 13)      owner.rs     one at a time
//!                                                                                        state.rs     images that replace each other whole
//!                                                                                        inspect.rs   to look without touching
//!        image.rs   the state, in the terms of what is agreed      protocol/   what two ends say to each other
//!        parts.rs   what state and frames have in common            shown.rs   the neighbour's memory, mapped
//! ```
//!
//! In ring and slab lies what one side sends, until the other has consumed it: `retained/` (SPEC 14).
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
mod directory;
mod drive;
mod end;
mod error;
mod event;
mod fault;
pub mod file;
mod greeting;
mod group;
#[cfg(doctest)]
mod guide;
mod halves;
mod handle;
pub mod image;
mod inspect;
mod key;
mod lent;
mod link_state;
mod login;
mod message;
#[cfg(feature = "tokio")]
mod observer;
mod owner;
mod parts;
mod place;
mod positions;
pub mod protocol;
mod repair;
pub mod retained;
#[cfg(test)]
mod samples;
mod server;
mod shown;
pub mod state;
mod status;
mod switch;
#[cfg(feature = "tokio")]
pub mod tokio;
mod view;

pub use self::link_state::StaleEpoch;
pub use batch::Batch;
pub use client::Client;
pub use config::{Config, Delivery, Storage};
pub use directory::Directory;
pub use error::StorageError;
pub use event::Event;
pub use fault::{
    AcceptError, AckError, BindError, ConfigError, OpenError, RecvError, ReplyError, SendError,
    Stopped, SwitchError, TryRecvError, TrySendError, WaitError,
};
pub use group::{Group, LinkId};
pub use halves::{Receiver, Sender};
pub use handle::{EpochError, Link};
pub use inspect::{
    Found, Inspection, MemorySizes, Owner, OwnerStatus, PreviousStream, QuarantineSnapshot,
    ReportSnapshot, inspect, inspect_link,
};
pub use key::{Key, KeyError};
pub use lent::MessageRef;
pub use login::{LoginAnswer, LoginRequest};
pub use message::{Message, Token};
#[cfg(feature = "tokio")]
pub(crate) use observer::{LinkSnapshot, Look, Observer};
pub use partywall_layout::link::FileFault;
pub use positions::StreamPosition;
pub use repair::{Adopted, RepairError, Reset, adopt, reset};
pub use server::Server;
pub use status::{Stats, Status, Transport};
pub use view::MessageView;
