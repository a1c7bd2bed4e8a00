// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles and runs the examples of the guide as documentation tests; no other build includes this
//! module.
#![allow(dead_code, reason = "only the documentation of these items is used")]

#[doc = include_str!("../../../docs/guide/src/getting-started.md")]
struct GettingStarted;
#[doc = include_str!("../../../docs/guide/src/channels.md")]
struct Channels;
#[doc = include_str!("../../../docs/guide/src/waiting.md")]
struct Waiting;
#[doc = include_str!("../../../docs/guide/src/event-loop.md")]
struct EventLoop;
#[cfg(feature = "tokio")]
#[doc = include_str!("../../../docs/guide/src/async.md")]
struct Async;
#[cfg(all(feature = "hyper", feature = "axum", feature = "tonic"))]
#[doc = include_str!("../../../docs/guide/src/frameworks.md")]
struct Frameworks;
#[doc = include_str!("../../../docs/guide/src/memory.md")]
struct Memory;
#[doc = include_str!("../../../docs/guide/src/addresses.md")]
struct Addresses;
#[doc = include_str!("../../../docs/guide/src/trust.md")]
struct Trust;
#[doc = include_str!("../../../docs/guide/src/threads.md")]
struct Threads;
#[doc = include_str!("../../../docs/guide/src/errors.md")]
struct Errors;
#[doc = include_str!("../../../docs/guide/src/command-line.md")]
struct CommandLine;
#[doc = include_str!("../../../docs/guide/src/measuring.md")]
struct Measuring;
#[cfg(feature = "tokio")]
#[doc = include_str!("../../../docs/guide/src/streams.md")]
struct Streams;
#[cfg(feature = "tokio")]
#[doc = include_str!("../../../docs/guide/src/backpressure.md")]
struct BackPressure;
#[cfg(all(feature = "serde", feature = "zerocopy"))]
#[doc = include_str!("../../../docs/guide/src/typed.md")]
struct Typed;
