// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of accesses to shared memory: record ring, slab, release ring, and parking (sleep and
//! wake-up).
//!
//! ```text
//!        own region                                           peer's region (read-only)
//!  Producer ── records ─────────▶ record ring   ░░░ maps ░░░▶ Consumer
//!     ▲  └ Slab: which memory is free, private                   │
//!     │                                                          │ last view of a block dropped
//!  Reclaimer ◀── block ids ────── release ring  ◀░░ maps ░░░── Releaser
//!  Sleeper  "asleep, epoch n" ──▶ control page  ░░░ maps ░░░▶ Waker ── notify? once per epoch
//! ```
//!
//! The crate uses no operating system, no clock and no thread, and allocates nothing after set-up.
//! Its user maps the memory, notifies doorbells and waits for them. All `unsafe` code is in
//! `mem.rs`.
//!
//! The types enforce the single-writer rule: an [`OwnMem`] is written through `&mut`, a [`PeerMem`]
//! cannot be written. The peer is hostile: a check and the use after it share one load of a word
//! of its region. A bad word is a [`Violation`](partywall_layout::Violation), never a panic.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![cfg_attr(not(any(test, loom)), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

pub mod bias;
mod bins;
pub mod consumer;
pub mod lane;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "the one file that touches shared memory")]
pub mod mem;
#[cfg(loom)]
#[path = "mem_loom.rs"]
pub mod mem;
pub mod mutex_word;
pub mod park;
pub mod producer;
mod recent;
pub mod release;
pub mod slab;
mod sync;

pub use bias::Bias;
pub use consumer::Consumer;
pub use mem::{OwnMem, PeerMem};
#[cfg(not(loom))]
pub use mem::{Readable, Writable};
pub use mutex_word::MutexWord;
pub use park::{Sleeper, Wake, Waker};
pub use producer::{AppendError, Producer};
pub use release::{Reclaimer, Releaser};
pub use slab::{Block, Place, Slab};
