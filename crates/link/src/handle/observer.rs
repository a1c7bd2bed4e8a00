// SPDX-License-Identifier: MIT OR Apache-2.0
//! An observer of a link, for futures (feature `tokio`): it reads the link's state and never
//! blocks.
//!
//! ```text
//!   Link ─ handle ─▶ Endpoint ◀─ Observer    an observer is no handle: the link may be closed
//! ```
//!
//! # Invariants
//!
//! - If two values of `Snapshot` (the part of a link's state for which futures wait) are equal,
//!   nothing happened between them for which a future could wait, except messages and events. A
//!   field of a `Snapshot` may take a former value again only after `connections` has risen.

use std::sync::Arc;
use std::time::Instant;

use crate::end::Endpoint;
use crate::error::{Stopped, WaitError};
use crate::group::MemberId;
use crate::handle::link::Link;

#[derive(Clone, Debug)]
pub(crate) struct Observer {
    end: Arc<Endpoint>,
}

/// The part of a link's state for which futures wait: room, acknowledgements, or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) epoch: u64,
    /// Position up to which the peer has acknowledged the sent messages.
    pub(crate) acked: u64,
    pub(crate) is_attached: bool,
    pub(crate) connections: u64,
    is_fenced: bool,
    is_quarantined: bool,
}

/// A `Snapshot` of a link, with further values that were read at the same moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    pub(crate) snapshot: Snapshot,
    pub(crate) tail: u64,
    /// Whether a message has arrived that was not delivered to the application.
    pub(crate) has_next: bool,
    /// Whether the peer closed its end in good order, and the next call of `recv` has to report
    /// that by `None`.
    pub(crate) has_finished: bool,
}

impl Observer {
    pub(crate) fn new(link: &Link) -> Self {
        Self { end: link.shared_end() }
    }

    pub(crate) fn id(&self) -> MemberId {
        self.end.id()
    }

    /// Returns the present state of the link.
    ///
    /// # Errors
    /// Fails if the link is closed.
    pub(crate) fn observe(&self) -> Result<Observation, Stopped> {
        self.end.observe(|core, connections| Observation {
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

    /// Reads up to which position the peer has acknowledged. If a sent message is unacknowledged,
    /// the group lists the link as one with events as soon as the peer acknowledges more.
    ///
    /// # Errors
    /// Fails if the link is closed.
    pub(crate) fn await_acks(&self) -> Result<(), Stopped> {
        self.end.send_driver().unacked_bytes().map(drop)
    }

    /// Sends all messages, closes the link and writes its file to the disk, like [`Link::close`].
    pub(crate) fn close(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        self.end.shutdown().close(deadline)
    }

    /// Closes the link without LEAVE, as [`Link::detach`] does: the peer waits for this end to
    /// return.
    pub(crate) fn detach(&self) -> Result<(), Stopped> {
        self.end.shutdown().detach()
    }

    /// Sends all messages and closes the link, but does not write its file to the disk.
    pub(crate) fn close_unsynced(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        self.end.shutdown().close_unsynced(deadline)
    }

    /// Closes the link without waiting. If another thread blocks in [`close`](Self::close), its
    /// call returns.
    pub(crate) fn abandon(&self) {
        self.end.shutdown().abandon();
    }
}

impl Snapshot {
    /// Reason why the link no longer sends or delivers messages, other than that it is closed;
    /// `None` while it still does.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        if self.is_fenced {
            return Some(Stopped::Fenced);
        }
        self.is_quarantined.then_some(Stopped::Quarantined)
    }
}
