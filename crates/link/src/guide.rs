// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples of README.md and of the guide's chapter on links, compiled and run as documentation tests; in no build.
#![allow(dead_code, reason = "only the documentation of these items is used")]

#[doc = include_str!("../../../README.md")]
struct Readme;
#[cfg(feature = "tokio")]
#[doc = include_str!("../../../docs/guide/src/links.md")]
struct Links;
