// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors, mappings and resident bytes of channels and sessions. One test runs at a time.

mod limits;
mod many_streams;
