// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which order: the record ring, the slab, the release ring and parking of a wall.
//!
//! ```text
//!        own half                                             neighbour's half (read-only)
//!  Producer ── records ─────────▶ record ring   ░░░ maps ░░░▶ Consumer
//!     ▲  └ Slab: which memory is free, private                   │
//!     │                                                          │ last view of a block dropped
//!  Reclaimer ◀── block ids ────── release ring  ◀░░ maps ░░░── Releaser
//!  Sleeper  "asleep, epoch n" ──▶ control page  ░░░ maps ░░░▶ Waker ── ring the bell? once
//! ```
//!
//! The crate has no operating system, no clock and no thread, and allocates nothing after set-up:
//! what maps the memory, rings a bell or waits for one is its user. All `unsafe` is in `mem.rs`.
//!
//! The single-writer rule is in the types: an [`OwnMem`] is written through `&mut`, a
//! [`PeerMem`] cannot be written. The neighbour is hostile: every word of its half is
//! loaded once, checked and only then used, and a bad one is a
//! [`Violation`](partywall_layout::Violation), never a panic.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![cfg_attr(not(any(test, loom)), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

pub mod bias;
mod bins;
pub mod consumer;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "the one file that touches shared memory")]
pub mod mem;
#[cfg(loom)]
#[path = "mem_loom.rs"]
pub mod mem;
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
pub use park::{Sleeper, Wake, Waker};
pub use producer::{AppendError, Producer};
pub use release::{Reclaimer, Releaser};
pub use slab::{Block, Place, Slab};
