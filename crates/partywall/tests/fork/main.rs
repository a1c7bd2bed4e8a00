// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forked children of processes with channels and sessions. They have an executable of their own
//! because a child inherits every descriptor.

mod channels;
mod sessions;
