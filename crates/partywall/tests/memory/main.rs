// SPDX-License-Identifier: MIT OR Apache-2.0
//! What channels and sessions hold: descriptors, mappings, resident bytes. One test runs at a time.

mod limits;
mod many_streams;
