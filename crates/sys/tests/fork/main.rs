// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of forked children, and of memory that is truncated while a process reads it. They have an
//! executable of their own because a child inherits every descriptor, and a SIGBUS handler serves
//! all threads.

#[path = "../support/mod.rs"]
mod support;

mod forked_child;
mod truncated_memory;
