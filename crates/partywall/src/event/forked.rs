// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error of a forked child that uses an event loop, or a group of links, of its parent.
//!
//! A child inherits the descriptor of the epoll set, and shares the set with its parent. So a child
//! that waited would take events of its parent, and a descriptor that the child added would wake
//! the parent.

use std::io;

/// The calling process is a forked child, and the event loop, or a source in it, belongs to the
/// parent process.
///
/// `Forked` is the inner error of the [`io::Error`] that an event loop returns in a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this object belongs to the parent process: make another one after fork()")]
pub struct Forked;

impl From<Forked> for io::Error {
    fn from(forked: Forked) -> Self {
        Self::other(forked)
    }
}
