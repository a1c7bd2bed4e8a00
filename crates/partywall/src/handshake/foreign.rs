// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshakes of protocols other than Partywall's own, such as shmipc. An acceptor recognises the
//! protocol by the peer's first bytes; the protocol then negotiates by itself.
//!
//! ```text
//!   first bytes of another protocol ─▶ recognise ─ yes ─▶ check admission ─▶ Protocol::accept ─┐
//!                                          └─ perhaps ─▶ read more bytes                       │
//!   connect_with_protocol ─▶ check admission ─▶ Protocol::connect ─────────────────────────────┤
//!                                                                            Established ◀─────┘
//! ```
//!
//! Admission, trust and deadline apply to other protocols as to Partywall's own. A peer of another
//! protocol sends no proof of its identity. So this side trusts the peer only if the kernel reports
//! its process and that process lives in the namespaces of this side.

use super::pending::{Foreign, Pending};
use super::{Established, StreamTerms};
use crate::channel::{AnyReceiver, AnySender};
use crate::error::HandshakeError;
use crate::peer::{Peer, decide_trust};
use crate::protocol::{DriverWaker, Handshake, Protocol, ProtocolError, Recognition};
use crate::transport::protocol::{ProtocolParts, WINDOW, assemble};
use crate::transport::{LiveTransport, Transport};
use partywall_layout::hello::SERVICE_SESSION;
use partywall_layout::link::frame::{FRAME_HEADER_BYTES, FRAME_MAGIC};
use partywall_sys::socket::Family;
use partywall_sys::{Credentials, PidFd};
use std::sync::Arc;

impl Pending {
    /// Whether `found`, the bytes that a peer has sent so far, may be the first bytes of a protocol
    /// that this listener serves.
    pub(super) fn may_be_foreign(&self, found: &[u8]) -> bool {
        self.is_acceptor && self.recognition(found).is_some()
    }

    /// Returns `Some(Some(protocol))` if `found`, the bytes that a peer has sent so far, begins a
    /// connection of that protocol, `Some(None)` if more bytes are needed to decide, and `None` if
    /// no served protocol begins so.
    fn recognition(&self, found: &[u8]) -> Option<Option<Arc<dyn Protocol>>> {
        let mut is_open = false;
        for protocol in &self.protocols {
            match protocol.recognise(found) {
                Recognition::Yes => return Some(Some(Arc::clone(protocol))),
                Recognition::Incomplete => is_open |= found.len() < RECOGNISED_BYTES,
                Recognition::No => {}
            }
        }
        is_open.then_some(None)
    }

    /// Begins the handshake of the protocol whose first bytes were received. If `found`, the bytes
    /// received so far, does not yet decide between protocols, `listen_on` does nothing, so that
    /// more bytes are read.
    pub(super) fn listen_on(&mut self, found: Vec<u8>) -> Result<(), HandshakeError> {
        let Some(Some(protocol)) = self.recognition(&found) else { return Ok(()) };
        self.begin_foreign(&*protocol, found)
    }

    /// Begins the handshake of another protocol on a connection that this side made.
    pub(super) fn connect_foreign(
        &mut self,
        protocol: &dyn Protocol,
    ) -> Result<(), HandshakeError> {
        self.credentials = self.socket.peer_credentials();
        self.begin_foreign(protocol, Vec::new())
    }

    fn begin_foreign(
        &mut self,
        protocol: &dyn Protocol,
        first: Vec<u8>,
    ) -> Result<(), HandshakeError> {
        let name = protocol.name();
        self.admit()?;
        self.stop_passing_pidfd();
        // The kernel may have given the peer's process number to another process. In that case the
        // peer has died and its connection is closed, so the other process gains no trust.
        let known = self.credentials.filter(|who| who.is_pid_visible());
        let by_number = |who: Credentials| PidFd::of_pid(who.pid).ok();
        let process = self.process.take().or_else(|| known.and_then(by_number));
        let judged = decide_trust(self.config.trust, self.credentials.as_ref(), process.as_ref());
        let peer = Peer::judged(self.credentials, judged, self.label.clone());
        let driver_waker =
            DriverWaker::new().map_err(|error| self.system("creating a doorbell", error))?;
        if self.socket.family() == Family::Tcp {
            // The wake-ups of a protocol are a few bytes each; Nagle's algorithm would delay each
            // wake-up until the peer has acknowledged the previous one.
            let _ = self.socket.set_nodelay(true);
        }
        let handshake = Handshake {
            socket: self.take_socket()?,
            first,
            credentials: self.credentials,
            trust: peer.trust,
            config: self.config.clone(),
            driver_waker: driver_waker.clone(),
        };
        let begun =
            if self.is_acceptor { protocol.accept(handshake) } else { protocol.connect(handshake) };
        let negotiation = begun.map_err(|error| self.foreign_failed(name, error))?;
        self.foreign = Some(Foreign { protocol: name, negotiation, driver_waker, peer });
        Ok(())
    }

    pub(super) fn progress_foreign(&mut self) -> Result<Option<Established>, HandshakeError> {
        let Some(mut foreign) = self.foreign.take() else { return Ok(None) };
        let progressed = foreign.negotiation.progress();
        let connection = match progressed {
            Ok(Some(connection)) => connection,
            Ok(None) => {
                self.foreign = Some(foreign);
                return Ok(None);
            }
            Err(ProtocolError::HungUp) => {
                return Err(self.hung_up());
            }
            Err(error) => return Err(self.foreign_failed(foreign.protocol, error)),
        };
        let Foreign { protocol, driver_waker, peer, .. } = foreign;
        let transport = Transport::Protocol(connection.description);
        let opens = connection.peer_opens;
        let streams_max = connection.streams_max.min(self.config.streams_max_effective());
        let (is_acceptor, guard) = (self.is_acceptor, self.guard);
        let parts = ProtocolParts {
            connection,
            driver_waker,
            protocol,
            peer: peer.to_string(),
            guard,
            is_acceptor,
        };
        let (sender, receiver) =
            assemble(parts).map_err(|error| self.system("setting up the connection", error))?;
        Ok(Some(Established {
            sender: AnySender::Protocol(sender),
            receiver: AnyReceiver::Protocol(receiver),
            peer: peer.into(),
            transport: LiveTransport::Fixed(transport),
            is_acceptor,
            // The protocol states no limit for the streams that this side accepts, so this side's
            // own limit is used in place of the peer's.
            peer_streams: StreamTerms { window: WINDOW, streams_max, opens },
        }))
    }

    #[cold]
    fn foreign_failed(&self, protocol: &'static str, reason: ProtocolError) -> HandshakeError {
        HandshakeError::Protocol { peer: self.peer_name(), protocol, reason }
    }

    /// Makes the error for a peer whose first bytes belong to no protocol that this side serves.
    #[cold]
    pub(super) fn not_partywall(&self, found: &[u8]) -> HandshakeError {
        let serves_sessions = self.own_hello.service.get() == SERVICE_SESSION;
        let advice = match (is_shmipc(found), self.is_acceptor) {
            (false, true) if is_link(found) && serves_sessions => LINK_CAME_TO_SESSIONS,
            (false, true) if is_link(found) => LINK_CAME_TO_CHANNELS,
            // The connecting peer sent the first bytes of shmipc, and this listener serves only
            // Partywall's own protocol.
            (true, true) if self.protocols.is_empty() => SHMIPC_CAME,
            (true, false) => SHMIPC_ANSWERED,
            _ => "is this the right address?",
        };
        let (peer, found) = (self.peer_name(), printable(found));
        HandshakeError::NotPartywall { peer, found, advice }
    }

    /// Returns a possible reason why the peer sent nothing or hung up, for the error text.
    pub(super) fn hint(&self) -> &'static str {
        let is_session = self.own_hello.service.get() == SERVICE_SESSION;
        match (self.is_acceptor, !self.protocols.is_empty()) {
            (false, true) => NO_PROTOCOL,
            (false, false) if is_session => PERHAPS_SHMIPC,
            _ => "",
        }
    }
}

/// Whether `found` are the first bytes of a shmipc message: a possible length, then the magic
/// number.
fn is_shmipc(found: &[u8]) -> bool {
    found.starts_with(&[0, 0]) && found.get(4..6) == Some(SHMIPC_MAGIC)
}

/// Whether `found` are the first bytes of ATTACH, with which the client of a link begins: a header,
/// then the magic number.
fn is_link(found: &[u8]) -> bool {
    found.get(FRAME_HEADER_BYTES..).is_some_and(|body| body.starts_with(&FRAME_MAGIC))
}

/// Returns the first 16 bytes that an unknown peer sent, as printable text.
fn printable(bytes: &[u8]) -> String {
    let text: String =
        bytes.iter().take(16).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
    format!("\"{text}\"")
}

/// The magic number that follows the length in each shmipc message.
const SHMIPC_MAGIC: &[u8] = &[0x77, 0x58];
const LINK_CAME_TO_CHANNELS: &str = "it asks for a link; this listener serves channels";
const LINK_CAME_TO_SESSIONS: &str = "it asks for a link; this listener serves sessions";
const SHMIPC_CAME: &str =
    "it uses shmipc: give the listener of sessions that protocol (with_protocol)";
const SHMIPC_ANSWERED: &str = "it uses shmipc: use connect_with_protocol";
const PERHAPS_SHMIPC: &str = "; if it is a server of shmipc, use connect_with_protocol";
const NO_PROTOCOL: &str = "; if it is a listener of Partywall, connect without the protocol (connect_with), or give the \
     listener the protocol (with_protocol)";
/// Number of first bytes of a connection within which a protocol must recognise itself. The
/// listener refuses a peer that has sent more bytes without being recognised.
const RECOGNISED_BYTES: usize = 8;
