// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of calls over one stream, and of lossy channels between processes.

mod blocking_calls;
mod call_vectors;
mod calls;
mod calls_across_processes;
mod lossy_agents;
