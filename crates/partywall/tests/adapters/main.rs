// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frameworks over sessions, unmodified: hyper, axum, tonic, and the pool.
#![cfg(feature = "tokio")]

#[path = "../support_adapters/mod.rs"]
mod support_adapters;

mod axum;
mod hyper;
mod pool;
mod tonic;
