// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that count descriptors, mappings and resident bytes of channels and sessions, which only
//! one test at a time can do.

mod limits;
mod many_openings;
mod many_streams;
