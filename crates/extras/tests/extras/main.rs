// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls over one stream, and lossy channels, between processes.

mod calls;
mod calls_across_processes;
mod lossy_agents;
