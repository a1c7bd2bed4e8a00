// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C interface: every function of `bindings/c/include/partywall.h`.
//!
//! ```text
//!   C ─▶ export ─▶ boundary: panics ─▶ argument: pointers ─▶ table: handles ─▶ partywall
//!   C ◀─ status ◀─ Failure ─▶ partywall_error, if the caller passed a place for it
//! ```
//!
//! A handle is a number in the shape of a pointer, and the library never follows it. So a handle
//! that was freed, belongs to another type, or was never made has a defined result: a status.
//!
//! # Invariants
//!
//! - No panic leaves a function: it becomes the status 903, and the object in use is poisoned,
//!   so that its handle can only be freed.
//! - Every status is a number of SPEC 17; 0 is success.
//! - Pointers are followed in `argument.rs` alone, and only within one call.
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

#[allow(unsafe_code, reason = "follows the pointers that C programs pass")]
mod argument;
mod calls;
mod channel;
mod config;
mod error;
mod event_loop;
mod export;
mod failure;
mod library;
mod link;
mod link_config;
mod link_event;
mod link_group;
mod link_message;
mod listener;
mod lossy;
mod lossy_config;
mod message;
mod peer;
mod reservation;
mod session;
mod shmipc;
mod spare;
mod status_text;
mod stream;
#[allow(unsafe_code, reason = "a lane hands its value to the one call that has locked it")]
mod table;
mod thread;
mod timeout;
