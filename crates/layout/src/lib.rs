// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which bytes: every field of Partywall's shared memory and of its handshake.
//!
//! ```text
//!  segment.rs   the half: header page, control page, where ring, release ring and slab lie
//!  record_ring.rs  positions and slots, the 16-byte record header, the kinds and their bodies
//!  hello.rs     the frames of the handshake and of the socket beside a wall
//!  reason.rs    why there is no wall, why a connection was refused: numbers and sentences
//!  link.rs      the file of a link: header, owner, state, what was consumed; and the records of links
//!  fnv.rs       the hash of layouts and names
//!  stream.rs    numbers of streams, and the bodies of their records
//!  check.rs     everything a neighbour can say that is not true, as one error type
//! ```
//!
//! This crate has no `unsafe`, touches no memory but its arguments and asks nothing of an operating
//! system. Each structure has a picture, a `repr(C)` type, and compile-time assertions on its size
//! and on every offset; `spec/SPEC.md` is normative and the two are kept equal by golden vectors.
//!
//! All integers are little-endian. Every word in shared memory has exactly one writing process; the
//! documentation of the word names it.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![no_std]
#![forbid(unsafe_code)]

pub mod check;
mod fnv;
pub mod hello;
pub mod link;
pub mod reason;
pub mod record_ring;
mod seeded;
pub mod segment;
pub mod stream;

pub use check::Violation;
pub use reason::{FallbackReason, Refusal};
pub use record_ring::{BlobBody, Kind, Position, RecordHeader, RingSize, SLOT_BYTES};
#[doc(hidden)]
pub use seeded::seeded_fault;
pub use segment::{Geometry, RegionHeader};
