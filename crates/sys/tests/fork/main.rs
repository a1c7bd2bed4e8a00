// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forked children, and memory that is truncated under its reader. They have an executable of their
//! own because a child inherits every descriptor, and a handler of SIGBUS serves all threads.

#[path = "../support/mod.rs"]
mod support;

mod forked_child;
mod truncated_memory;
