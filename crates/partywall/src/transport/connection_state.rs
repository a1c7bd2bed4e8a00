// SPDX-License-Identifier: MIT OR Apache-2.0
//! States whether a connection may still be used: this process must own it (no forked child), and
//! the peer must not have broken a rule.
//!
//! Every transport checks the state first in every call.

use crate::error::Fault;
use crate::peer::Peer;
use partywall_layout::Violation;
use partywall_sys::{ForkGuard, Socket};
use std::fmt;
use std::sync::OnceLock;

/// The transport that a connection had before it moved to shared memory. One direction of the
/// connection may still use it.
pub(crate) trait FormerTransport: fmt::Debug + Send + Sync {
    /// Ends the former transport, because the peer broke a rule on the transport to which the
    /// connection has moved.
    fn violated_elsewhere(&self, violation: Violation);
}

/// State of a connection that its sending and its receiving end check first in every call.
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

    /// Fails in a forked child, or if the peer has broken a rule.
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

    pub(super) fn is_violated(&self) -> bool {
        self.violation.get().is_some()
    }

    /// Ends the connection because the peer broke a rule. The violation of the first call is kept;
    /// later calls do not replace it.
    #[cold]
    pub(super) fn violated(&self, violation: Violation, socket: &Socket) -> Fault {
        let first = *self.violation.get_or_init(|| violation);
        // An error of shutting the socket down is ignored: the peer may have closed it already.
        let _ = socket.shutdown_both();
        self.fault(first)
    }

    fn fault(&self, violation: Violation) -> Fault {
        Fault::Violation { peer: self.peer.to_string(), violation }
    }
}
