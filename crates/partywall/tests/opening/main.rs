// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of opening a connection: system calls, descriptor limits, namespaces, users, and the
//! process that the kernel names as the peer; and of the system calls of a session that is woken.
//! The tests start and trace further processes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod activation;
mod descriptor_limit;
mod identity;
mod namespaces;
mod system_calls;
mod users;
mod woken_session;
