// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of unmodified frameworks over sessions: hyper, axum, tonic; and of the pool.
#![cfg(feature = "tokio")]

#[path = "../support_adapters/mod.rs"]
mod support_adapters;

mod axum;
mod hyper;
mod pool;
mod tonic;
