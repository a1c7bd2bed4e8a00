// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of forked children of processes with channels, sessions and loops. These tests have an
//! executable of their own, because a child inherits every descriptor of its process.

mod channels;
mod loops;
mod sessions;
