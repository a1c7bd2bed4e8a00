// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of the public API that every other part of the crate uses.
//!
//! ```text
//!   address  address of a listener   config  settings of one side    peer   admission and trust
//!   message  received messages       error   an enum per operation   stats  counters of a channel
//!   cache_padded  a value in cache lines of its own
//! ```
//!
//! No file of this folder imports another folder of the crate.

pub(crate) mod address;
pub(crate) mod cache_padded;
pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod message;
pub(crate) mod peer;
pub(crate) mod stats;
