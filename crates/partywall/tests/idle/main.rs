// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle channels and sessions wake no thread.

mod channels;
mod sessions;
