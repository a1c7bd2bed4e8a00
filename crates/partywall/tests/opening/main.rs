// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening a connection: what it costs, and whom the kernel names as the peer. Its tests start and
//! trace further processes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod activation;
mod descriptor_limit;
mod identity;
mod namespaces;
mod system_calls;
