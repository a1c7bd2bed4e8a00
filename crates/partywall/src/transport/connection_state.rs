// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a channel may still be used: by this process, and after what was heard from the other side.
//!
//! Every transport asks this first, in every call.

use crate::error::Fault;
use crate::peer::Peer;
use partywall_layout::Violation;
use partywall_sys::{ForkGuard, Socket};
use std::sync::OnceLock;

/// What both ends of a side ask before anything else.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(super) guard: ForkGuard,
    pub(super) peer: Peer,
    violation: OnceLock<Violation>,
}

impl ConnectionState {
    pub(super) const fn new(guard: ForkGuard, peer: Peer) -> Self {
        Self { guard, peer, violation: OnceLock::new() }
    }

    /// Our own process, not a forked child of it, and nothing untrue was heard from the other side.
    #[inline]
    pub(super) fn check(&self) -> Result<(), Fault> {
        if self.guard.is_child() {
            return Err(Fault::Forked);
        }
        match self.violation.get() {
            None => Ok(()),
            Some(violation) => Err(self.fault(*violation)),
        }
    }

    /// Whether the other side broke a rule.
    pub(super) fn is_violated(&self) -> bool {
        self.violation.get().is_some()
    }

    /// Ends the connection because the other side broke a rule; the first one counts.
    #[cold]
    pub(super) fn violated(&self, violation: Violation, socket: &Socket) -> Fault {
        let first = *self.violation.get_or_init(|| violation);
        // The other side may be gone already.
        let _ = socket.shutdown_both();
        self.fault(first)
    }

    fn fault(&self, violation: Violation) -> Fault {
        Fault::Violation { peer: self.peer.to_string(), violation }
    }
}
