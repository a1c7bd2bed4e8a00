// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adapters, which connect other IPC libraries to the transport interface of the benchmark
//! (`partywall_bench::transport`).

pub mod announced;
pub mod iceoryx;
pub mod iceoryx_pubsub;
pub mod iceoryx_reqres;
pub mod own_shmipc;
pub mod shmipc;
