// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the event loop: channels, sessions and streams in one thread, which waits in the loop
//! or in an epoll set above it.

mod channels;
mod ends;
mod processes;
mod sessions;
mod sources;
