// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the event loop: channels, sessions and streams in one thread, which waits in the loop
//! itself, or in an epoll set of the application that contains the loop's descriptor.

mod channels;
mod ends;
mod processes;
mod sessions;
mod sources;
