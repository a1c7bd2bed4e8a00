// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shmipc protocol, versions 2 and 3, behind Partywall's sessions. Either side of a connection
//! can migrate to Partywall first.
//!
//! ```text
//!   shmipc.rs       the protocol as a listener or client uses it; hot restart and metrics
//!   connections.rs  the connections of one Shmipc      hot_restart.rs  rules of a handover
//!   pool/           a session manager                  negotiation.rs  handshakes over a socket
//!   transport/      one connection: streams, fallback, wake-ups, metrics
//!   handshake/      client and server as machines      frame/          messages on the socket
//!   memory/         memfds and files, queues, names    region/         lists of slices, and chains
//!   config.rs       all settings                       dump.rs         a report of a region
//! ```
//!
//! The protocol was derived from the source of shmipc-go v0.2.0 and of the crate `shmipc` 0.2.1.
//! Tests in `conformance/` run against both implementations, unmodified.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod config;
mod connections;
mod dump;
mod error_code;
mod frame;
mod handshake;
mod hot_restart;
mod memory;
mod negotiation;
#[cfg(feature = "tokio")]
mod pool;
mod region;
mod shmipc;
mod transport;

/// Regions, queues and their reports, for `partywall shmipc dump`, fuzzers and tests.
///
/// This module is outside semantic versioning.
pub mod regions {
    pub use crate::dump::*;
    pub use crate::memory::queue::*;
    pub use crate::memory::*;
    pub use crate::region::*;
}

pub use config::{Config, ConfigError, MemMapType, SizePercentPair};
pub use hot_restart::{HandoverError, HandoverState};
pub use memory::names::NameError;
#[cfg(feature = "tokio")]
pub use pool::{
    GetStreamError, ManagerMetrics, PooledIo, PooledStream, SessionManager, SessionManagerError,
};
pub use shmipc::Shmipc;
pub use transport::metrics::{
    Monitor, PerformanceMetrics, SessionMetrics, ShareMemoryMetrics, StabilityMetrics,
};

/// Frames, handshakes and hot restarts without sockets, for fuzzers and tests.
///
/// This module is outside semantic versioning.
pub mod wire {
    pub use crate::frame::{
        FALLBACK_HEADER_BYTES, Frame, FrameError, HEADER_BYTES, Header, Kind, MAGIC,
        PAYLOAD_BYTES_MAX, Parser, encode,
    };
    pub use crate::handshake::{
        ClientHandshake, HandshakeLimits, Mapping, NegotiationError, PATH_BYTES_MAX,
        ServerHandshake, Step, recognises,
    };
    pub use crate::hot_restart::{
        Due, HANDOVER_TIMEOUT, Handover, HandoverError, HandoverState, Migrator, RestartAction,
    };
    pub use crate::memory::names::{NameError, Names, Naming, PREFIX_BYTES_MAX};
    pub use crate::transport::metrics::{Count, Counters};
}

/// Compiles and runs the examples of the guide's page on shmipc as documentation tests; no other
/// build contains this type.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/shmipc.md")]
struct Migrating;
