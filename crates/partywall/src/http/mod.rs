// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP and gRPC over streams: adapters for hyper, axum and tonic, each behind its feature.
//!
//! ```text
//!   axum.rs    axum::serve with Incoming              tonic.rs   both ends of gRPC
//!   hyper/     serve, and a Connector for clients     all use    tokio/: Incoming, Pool, StreamIo
//! ```
//!
//! An adapter only connects a framework to streams; it implements nothing that a framework does.

#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tonic")]
pub mod tonic;
