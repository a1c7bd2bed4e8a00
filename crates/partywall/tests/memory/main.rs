// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that count descriptors, mappings and resident bytes of channels and sessions, one at a
//! time.

mod limits;
mod many_openings;
mod many_streams;
