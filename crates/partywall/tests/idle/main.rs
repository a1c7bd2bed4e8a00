// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that idle channels and sessions wake no thread.

mod channels;
mod sessions;
