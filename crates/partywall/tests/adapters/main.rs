// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the unmodified frameworks hyper, axum and tonic over streams of sessions, and of
//! `Pool`, which keeps several sessions with one server.
#![cfg(feature = "tokio")]

#[path = "../support_adapters/mod.rs"]
mod support_adapters;

mod axum;
mod hyper;
mod pool;
mod tonic;
