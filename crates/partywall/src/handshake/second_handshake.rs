// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second handshake of a connection that began on the socket: it runs over a socket pair of the
//! connector, and moves the connection to shared memory (SPEC 8.5).
//!
//! ```text
//!   connector  pair ─▶ HELLO, OFFER on its end ─▶ MOVE carries the other end to the acceptor
//!   acceptor   descriptor of MOVE ─▶ check ─▶ the handshake of SPEC 2.2, without waiting
//! ```
//!
//! The frames, checks and rules of trust are those of any handshake (pending.rs). Both HELLOs
//! repeat the nonces and the credentials of the first handshake. Nothing is refused to the user: a
//! handshake that fails leaves the connection on the socket.

use super::pending::{Earlier, Pending};
use crate::channel::{AnyReceiver, AnySender};
use crate::config::Config;
use crate::error::HandshakeError;
use crate::peer::PeerIdentity;
use crate::transport::shm::{ShmReceiver, ShmSender, SpareRegion};
use crate::transport::socket::{MoveFailed, MoveHandshake};
use crate::transport::{LiveTransport, Transport};
use partywall_layout::{FallbackReason, Geometry, Violation};
use partywall_sys::Socket;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The second handshake of one side, and the values that it takes from the first handshake.
pub(super) struct SecondHandshake {
    pub config: Config,
    pub geometry: Geometry,
    pub is_acceptor: bool,
    pub service: u32,
    pub own_nonce: [u8; 16],
    /// The address of the listener as text. This side writes the text into its region, for tools.
    pub address: String,
    pub label: String,
    /// The region that the listener made in advance. An acceptor uses it as its own region.
    pub spare: Option<Arc<SpareRegion>>,
    pub earlier: Earlier,
    pub peer: PeerIdentity,
    /// The second handshake over the socket pair; `None` until it has begun.
    pub pending: Option<Box<Pending>>,
}

impl MoveHandshake for SecondHandshake {
    fn begin(&mut self) -> Result<OwnedFd, MoveFailed> {
        let no_descriptor = |_| MoveFailed::Stays(FallbackReason::Descriptors);
        let (ours, theirs) = Socket::pair().map_err(no_descriptor)?;
        let mut pending = Box::new(Pending::moving(ours, self));
        pending.open().map_err(failed)?;
        if let Some(reason) = pending.own_fallback() {
            // Without a region of this side, memory cannot be shared, so the move is not begun and
            // the connection stays on the socket.
            return Err(MoveFailed::Stays(reason));
        }
        self.pending = Some(pending);
        Ok(theirs.into_fd())
    }

    fn accept(&mut self, descriptor: OwnedFd) -> Result<(), MoveFailed> {
        let what = "descriptor of MOVE";
        let socket = Socket::adopt_pair(descriptor);
        let socket =
            socket.map_err(|_| MoveFailed::Violation(Violation::Frame { what, found: 0 }))?;
        self.pending = Some(Box::new(Pending::moving(socket, self)));
        Ok(())
    }

    fn progress(&mut self) -> Result<Option<(ShmSender, ShmReceiver)>, MoveFailed> {
        let Some(pending) = &mut self.pending else { return Ok(None) };
        let Some(established) = pending.progress().map_err(failed)? else { return Ok(None) };
        self.peer.set(established.peer.get().clone());
        match (established.sender, established.receiver, established.transport) {
            (AnySender::SharedMemory(sender), AnyReceiver::SharedMemory(receiver), _) => {
                Ok(Some((sender, receiver)))
            }
            (_, _, LiveTransport::Fixed(Transport::Socket(reason))) => {
                Err(MoveFailed::Stays(reason))
            }
            _ => Err(MoveFailed::Stays(FallbackReason::Abandoned)),
        }
    }
}

/// Returns whether the connection stays on the socket or ends, after a failure of the second
/// handshake.
fn failed(error: HandshakeError) -> MoveFailed {
    match error {
        HandshakeError::Violation { violation, .. } => MoveFailed::Violation(violation),
        HandshakeError::Descriptor { .. } => {
            MoveFailed::Violation(Violation::Frame { what: "descriptor of a move", found: 0 })
        }
        HandshakeError::NoTransport { reason } => MoveFailed::Stays(reason),
        HandshakeError::System { .. } => MoveFailed::Stays(FallbackReason::Descriptors),
        _ => MoveFailed::Stays(FallbackReason::Abandoned),
    }
}

impl fmt::Debug for SecondHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecondHandshake")
            .field("is_acceptor", &self.is_acceptor)
            .field("has_begun", &self.pending.is_some())
            .finish_non_exhaustive()
    }
}
