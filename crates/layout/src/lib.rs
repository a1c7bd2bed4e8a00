// SPDX-License-Identifier: MIT OR Apache-2.0
//! The byte layout of Partywall's shared memory and of its handshake.
//!
//! ```text
//!  segment.rs      the region: header page, control page, positions of ring, release ring and slab
//!  identity.rs     who owns a region and how its connection fares, for tools
//!  record_ring.rs  positions and slots, the 16-byte record header, the kinds and their bodies
//!  hello.rs        the frames of the handshake
//!  control.rs      doorbells and frames of the control socket
//!  reason.rs       why a connection fell back to the socket or was refused: numbers, sentences
//!  link.rs         a link's file: header, owner, state, consumed position; and a link's records
//!  fnv.rs          the hash of layouts and names
//!  stream.rs       numbers of streams, and the bodies of their records
//!  check.rs        every violation of a peer, as one error type
//! ```
//!
//! This crate has no `unsafe`, accesses no memory but its arguments and makes no system call. Each
//! structure has a picture, a `repr(C)` type, and compile-time assertions on its size and on every
//! offset. `spec/SPEC.md` is normative; golden vectors keep code and specification equal.
//!
//! All integers are little-endian. Every word in shared memory has exactly one writing process,
//! which the documentation of the word names.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod check;
pub mod control;
mod fnv;
pub mod hello;
pub mod identity;
pub mod link;
pub mod reason;
pub mod record_ring;
mod seeded;
pub mod segment;
pub mod stream;

#[cfg(test)]
#[allow(dead_code, reason = "the test scaffolding, which uses this crate, owns the file")]
#[path = "../../testkit/src/error_numbers.rs"]
mod error_numbers;

pub use check::Violation;
pub use reason::{FallbackReason, Refusal};
pub use record_ring::{BlobBody, Kind, Position, RecordHeader, RingSize, SLOT_BYTES};
pub use seeded::seeded_fault;
pub use segment::{Geometry, RegionHeader};
