// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link as one sees it who waits for it by other means than a thread: it is looked at, and never waited for.
//!
//! ```text
//!   Link ─ handle ─▶ Endpoint ◀─ Watched    is no handle: the link is closed while there still is one
//! ```
//!
//! # Invariants
//!
//! - Two standings that are the same have nothing between them that anybody could wait for, but messages and events: no part of
//!   one comes back once it has changed, unless `connections` has risen.

use std::sync::Arc;
use std::time::Instant;

use crate::end::Endpoint;
use crate::error::{Stopped, WaitError};
use crate::group::LinkId;
use crate::handle::link::Link;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    end: Arc<Endpoint>,
}

/// What changes for those who wait for room, for consumption, or for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) epoch: u64,
    /// How far the neighbour has consumed what is sent.
    pub(crate) acked: u64,
    /// Records flow.
    pub(crate) is_attached: bool,
    pub(crate) connections: u64,
    is_fenced: bool,
    is_quarantined: bool,
}

/// How a link stands, and what else is asked with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    pub(crate) snapshot: Snapshot,
    /// The end of what was sent.
    pub(crate) tail: u64,
    /// There is a message that was not handed out.
    pub(crate) has_next: bool,
    /// The peer closed its end in good order, of which the application has not learned.
    pub(crate) has_finished: bool,
}

impl Observer {
    pub(crate) fn new(link: &Link) -> Self {
        Self { end: link.shared_end() }
    }

    pub(crate) fn id(&self) -> LinkId {
        self.end.id()
    }

    /// # Errors
    /// It is closed.
    pub(crate) fn observe(&self) -> Result<Observed, Stopped> {
        self.end.observe(|core, connections| Observed {
            snapshot: Snapshot {
                epoch: core.epoch(),
                acked: core.acked().0,
                is_attached: core.is_active(),
                connections,
                is_fenced: core.is_fenced(),
                is_quarantined: core.is_quarantined(),
            },
            tail: core.tail().0,
            has_next: core.has_next() || core.is_pull_ready(),
            has_finished: core.has_finished(),
        })
    }

    /// Learns how far the neighbour has consumed; if that is not all, the group is told when there is more to learn.
    ///
    /// # Errors
    /// It is closed.
    pub(crate) fn await_consumption(&self) -> Result<(), Stopped> {
        self.end.send_driver().unconsumed_bytes().map(drop)
    }

    /// Closes it as [`Link::close`] does.
    pub(crate) fn close(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        self.end.shutdown().close(deadline)
    }

    /// Closes it at once; whoever is in [`close`](Self::close) stops waiting.
    pub(crate) fn abandon(&self) {
        self.end.shutdown().abandon();
    }
}

impl Snapshot {
    /// Why the link takes or gives nothing more, if so.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        if self.is_fenced {
            return Some(Stopped::Fenced);
        }
        self.is_quarantined.then_some(Stopped::Quarantined)
    }
}
