// SPDX-License-Identifier: MIT OR Apache-2.0
//! Coming to terms with whoever connected: the handshake over a socket, without ever waiting.
//!
//! ```text
//!   Pending::progress   reads what is there ─▶ machine.rs: which frame? ─▶ act: check, make, answer
//!                                                         terms.rs: limits · offer.rs: the peer's half
//!                       ─▶ not yet │ Established │ why not
//! ```
//!
//! Whoever speaks another protocol goes to its protocol (`foreign.rs`), if there is one for it.
//!
//! The listener drives many of these at a time, a connecting side one; both add the deadline. Nothing is
//! allocated for a peer before its credentials were admitted, and nothing it sends is believed.

mod connect;
mod established;
mod foreign;
mod listener;
mod machine;
mod offer;
mod terms;

pub(crate) use connect::establish;
pub use connect::{connect, connect_with};
pub(crate) use established::{Established, StreamTerms};
pub use listener::Listener;

use crate::config::Config;
use crate::error::HandshakeError;
use crate::peer::{Peer, Trust, decide_trust};
use crate::protocol::{DriverWaker, Negotiation, Protocol};
use crate::transport::shm::{Doorbells, Limits, OwnRegion, PeerRegion};
use machine::{Awaiting, Heard, Machine, Misheard};
use partywall_layout::hello::{
    Hello, OFFER_DOORBELLS, Offer, REJECT_TEXT_MAX, ROLE_ACCEPTOR, ROLE_CONNECTOR, Ready,
    RejectHead, SERVICE_SESSION, TRANSPORT_SHM, TRANSPORT_SOCKET, VERSION_MAX, VERSION_MIN,
};
use partywall_layout::{FallbackReason, Geometry, Refusal, Violation};
use partywall_sys::socket::Family;
use partywall_sys::{Credentials, Doorbell, ForkGuard, MemfdError, PidFd, PidFdError, Socket};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A handshake under way.
pub(crate) struct Pending {
    socket: Socket,
    guard: ForkGuard,
    config: Config,
    geometry: Geometry,
    is_acceptor: bool,
    label: String,
    machine: Machine,
    own_hello: Hello,
    /// Descriptors that came with the frame being read.
    descriptors: Vec<OwnedFd>,
    /// Descriptors were lost on the way.
    is_truncated: bool,
    credentials: Option<Credentials>,
    /// We have sent READY and owe no frame: the peer may be running.
    is_ready_sent: bool,
    known: Option<Known>,
    /// Other protocols: those that an acceptor serves, or the one that a connector speaks.
    protocols: Vec<Arc<dyn Protocol>>,
    /// Another protocol is spoken.
    foreign: Option<Foreign>,
}

/// A handshake of another protocol.
struct Foreign {
    protocol: &'static str,
    negotiation: Box<dyn Negotiation>,
    driver_waker: DriverWaker,
    peer: Peer,
}

/// What is known of the peer after its HELLO.
struct Known {
    hello: Hello,
    process: Option<PidFd>,
    trust: Trust,
    limits: Limits,
    session_id: [u8; 16],
    /// What we offered.
    offered: Result<Offered, FallbackReason>,
    /// Both offers are a wall.
    is_shm_offered: bool,
    /// What came of the peer's offer.
    accepted: Result<(PeerRegion, Doorbells), FallbackReason>,
}

/// Our half, ready to be used.
struct Offered {
    region: OwnRegion,
    doorbells: (Doorbell, Doorbell),
    doorbells_attached: bool,
}

/// No frame brings more descriptors: a half and two bells (SPEC 2.2).
const DESCRIPTORS_MAX: usize = 3;

impl Pending {
    /// Begins the acceptor's handshake on a fresh connection. Peers may also speak one of `protocols`.
    pub(crate) fn accepting(
        socket: Socket,
        config: &Config,
        geometry: Geometry,
        service: u32,
        protocols: Vec<Arc<dyn Protocol>>,
    ) -> Self {
        Self::new(socket, config, geometry, true, service, protocols)
    }

    /// Begins the connector's handshake on a fresh connection, and sends first.
    pub(crate) fn connecting(
        socket: Socket,
        config: &Config,
        geometry: Geometry,
        service: u32,
        protocol: Option<Arc<dyn Protocol>>,
    ) -> Result<Self, HandshakeError> {
        let protocols = protocol.iter().cloned().collect();
        let mut pending = Self::new(socket, config, geometry, false, service, protocols);
        match protocol {
            Some(protocol) => pending.connect_foreign(&*protocol)?,
            None => pending.send_hello()?,
        }
        Ok(pending)
    }

    fn new(
        socket: Socket,
        config: &Config,
        geometry: Geometry,
        is_acceptor: bool,
        service: u32,
        protocols: Vec<Arc<dyn Protocol>>,
    ) -> Self {
        let obstacle = terms::own_obstacle(config, socket.family());
        Self {
            label: socket.peer_label(),
            guard: ForkGuard::current(),
            config: config.clone(),
            geometry,
            is_acceptor,
            machine: Machine::new(),
            own_hello: terms::own_hello(config, service, obstacle),
            descriptors: Vec::new(),
            is_truncated: false,
            credentials: None,
            is_ready_sent: false,
            known: None,
            protocols,
            foreign: None,
            socket,
        }
    }

    /// Whether the peer has not said a word: perhaps somebody only looked whether we live.
    pub(crate) fn is_untouched(&self) -> bool {
        self.foreign.is_none() && self.machine.is_untouched()
    }

    /// Goes on as far as the socket allows without waiting; something when both sides are ready.
    pub(crate) fn progress(&mut self) -> Result<Option<Established>, HandshakeError> {
        let mut buffer = [0; 256];
        loop {
            if self.foreign.is_some() {
                return self.progress_foreign();
            }
            let missing = self.machine.missing().min(buffer.len());
            let received = match self.socket.receive(&mut buffer[..missing], true) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(self.hung_up());
                }
                Err(error) => return Err(self.system("receiving", error)),
            };
            if received.bytes == 0 {
                return Err(self.hung_up());
            }
            self.descriptors.extend(received.fds);
            if self.descriptors.len() > DESCRIPTORS_MAX {
                // Each byte of a frame could bring some.
                let (what, found) = ("number of descriptors", self.descriptors.len() as u64);
                return Err(self.violation(Violation::Frame { what, found }));
            }
            self.is_truncated |= received.truncated;
            self.note_sender(received.credentials)?;
            let heard = match self.machine.feed(&buffer[..received.bytes]) {
                Ok(None) => continue,
                Ok(Some(heard)) => heard,
                Err(Misheard::NotPartywall(found)) if self.may_be_foreign(&found) => {
                    self.listen_on(found)?;
                    continue;
                }
                Err(Misheard::NotPartywall(found)) => {
                    return Err(self.not_partywall(&found));
                }
                Err(Misheard::Violation(violation)) => return Err(self.violation(violation)),
            };
            if let Some(established) = self.act(heard)? {
                return Ok(Some(established));
            }
        }
    }

    /// The first piece of HELLO says who speaks; somebody else cannot finish the sentence (SPEC 2.2).
    fn note_sender(&mut self, who: Option<Credentials>) -> Result<(), HandshakeError> {
        if self.machine.is_untouched() {
            self.credentials = who;
        } else if self.machine.awaiting() == Awaiting::Hello && self.credentials != who {
            #[expect(clippy::cast_sign_loss, reason = "process ids are positive")]
            let found = who.map_or(0, |who| who.pid as u64);
            let what = "credentials of HELLO";
            return Err(self.violation(Violation::Frame { what, found }));
        }
        Ok(())
    }

    fn act(&mut self, heard: Heard) -> Result<Option<Established>, HandshakeError> {
        let descriptors = std::mem::take(&mut self.descriptors);
        match heard {
            Heard::Hello(hello) => self.on_hello(*hello, descriptors).map(|()| None),
            Heard::Offer(offer) => self.on_offer(&offer, descriptors).map(|()| None),
            Heard::Ready(ready) => self.on_ready(&ready, &descriptors).map(Some),
            Heard::Refused(refusal, text) => {
                Err(HandshakeError::Refused { peer: self.label.clone(), refusal, text })
            }
            Heard::OtherVersion(theirs_min, theirs_max) => {
                let (ours_min, ours_max) = (VERSION_MIN, VERSION_MAX);
                let text = format!("this side speaks versions {ours_min} to {ours_max}");
                self.reject(Refusal::Version, &text);
                let peer = self.label.clone();
                Err(HandshakeError::Version { peer, theirs_min, theirs_max, ours_min, ours_max })
            }
        }
    }

    fn on_hello(&mut self, hello: Hello, descriptors: Vec<OwnedFd>) -> Result<(), HandshakeError> {
        if hello.nonce == self.own_hello.nonce {
            let (peer, found) = (self.label.clone(), "our own words, sent back".to_owned());
            let advice = "is this the right address?";
            return Err(HandshakeError::NotPartywall { peer, found, advice });
        }
        let (asked, offered) = (hello.service.get(), self.own_hello.service.get());
        if asked != offered {
            let offers = if offered == SERVICE_SESSION { "sessions" } else { "channels" };
            self.reject(Refusal::Service, &format!("this listener offers {offers}"));
            return Err(HandshakeError::Service { peer: self.label.clone(), asked, offered });
        }
        terms::check(&hello).map_err(|violation| self.violation(violation))?;
        let process = self.identify(descriptors)?;
        self.admit()?;
        let trust = decide_trust(self.config.trust, self.credentials.as_ref(), process.as_ref());
        let region_bytes = self.geometry.region_bytes;
        let session_id = if self.is_acceptor { self.own_hello.nonce } else { hello.nonce };
        let offered = match terms::obstacle(&self.own_hello, &hello, region_bytes) {
            Some(reason) => Err(reason),
            None => self.make_region(session_id, trust),
        };
        if let Err(reason) = offered {
            if !terms::socket_suits(&self.own_hello, &hello) {
                self.reject(Refusal::Transport, &reason.to_string());
                return Err(HandshakeError::NoTransport { reason });
            }
        }
        if self.is_acceptor {
            self.send_hello()?;
        }
        self.send_offer(&offered)?;
        self.known = Some(Known {
            limits: terms::limits(&self.config, &hello, region_bytes),
            hello,
            process,
            trust,
            session_id,
            offered,
            is_shm_offered: false,
            accepted: Err(FallbackReason::Policy),
        });
        Ok(())
    }

    /// Finds out which process it is, from the descriptor it sent of itself.
    fn identify(&self, mut descriptors: Vec<OwnedFd>) -> Result<Option<PidFd>, HandshakeError> {
        if descriptors.len() > 1 {
            let found = descriptors.len() as u64;
            let what = "number of descriptors with HELLO";
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let (Some(descriptor), Some(who)) = (descriptors.pop(), self.credentials) else {
            return Ok(None);
        };
        if !who.is_pid_visible() {
            // Another pid namespace: nothing to compare with.
            return Ok(None);
        }
        match PidFd::from_peer(descriptor, who.pid) {
            Ok(process) => Ok(Some(process)),
            // Not to be checked, or of a process we cannot see: the socket tells of death alone.
            Err(PidFdError::Unverifiable { .. }) => Ok(None),
            Err(PidFdError::OtherProcess { actual: 0, .. }) => Ok(None),
            Err(error) if error.is_violation() => Err(self.bad_descriptor(error.to_string())),
            Err(_) => Err(self.hung_up()),
        }
    }

    fn admit(&self) -> Result<(), HandshakeError> {
        let Some(rule) = &self.config.admission else { return Ok(()) };
        rule.judge(self.credentials.as_ref()).map_err(|reason| {
            self.reject(Refusal::Admission, &reason);
            HandshakeError::NotAdmitted { peer: self.label.clone(), reason }
        })
    }

    fn make_region(&self, session_id: [u8; 16], trust: Trust) -> Result<Offered, FallbackReason> {
        let role = if self.is_acceptor { ROLE_ACCEPTOR } else { ROLE_CONNECTOR };
        let region =
            OwnRegion::create(self.geometry, session_id, role).map_err(|error| match error {
                MemfdError::OutOfMemory { .. } | MemfdError::FileSizeLimit { .. } => {
                    FallbackReason::Memory
                }
                MemfdError::DescriptorLimit { .. } => FallbackReason::Descriptors,
                _ => FallbackReason::Memfd,
            })?;
        let doorbell = || Doorbell::new().map_err(|_| FallbackReason::Descriptors);
        Ok(Offered {
            region,
            doorbells: (doorbell()?, doorbell()?),
            doorbells_attached: trust == Trust::Trusted,
        })
    }

    fn on_offer(&mut self, offer: &Offer, descriptors: Vec<OwnedFd>) -> Result<(), HandshakeError> {
        let accepted = self.judge_offer(offer, descriptors)?;
        let reason = accepted.as_ref().err().copied();
        if let Some(reason) = reason {
            let suits = self
                .known
                .as_ref()
                .is_some_and(|known| terms::socket_suits(&self.own_hello, &known.hello));
            if !suits {
                self.reject(Refusal::Transport, &reason.to_string());
                return Err(HandshakeError::NoTransport { reason });
            }
        }
        if let Some(known) = &mut self.known {
            known.accepted = accepted;
            known.is_shm_offered = known.offered.is_ok() && offer.transport.get() == TRANSPORT_SHM;
        }
        self.is_ready_sent = true;
        let transport = if reason.is_some() { TRANSPORT_SOCKET } else { TRANSPORT_SHM };
        let ready = Ready::new(transport, reason.map_or(0, FallbackReason::number));
        self.send(ready.as_bytes(), &[], false)
    }

    fn on_ready(
        &mut self,
        ready: &Ready,
        descriptors: &[OwnedFd],
    ) -> Result<Established, HandshakeError> {
        if !descriptors.is_empty() {
            let found = descriptors.len() as u64;
            let what = "number of descriptors with READY";
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let Some(known) = self.known.take() else {
            return Err(self.violation(Violation::Frame { what: "order of frames", found: 0 }));
        };
        let is_shared_memory = ready.transport.get() == TRANSPORT_SHM;
        if is_shared_memory && !known.is_shm_offered {
            let (what, found) = ("transport of READY", TRANSPORT_SHM.into());
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let theirs = (!is_shared_memory).then(|| {
            FallbackReason::from_number(ready.reason.get()).unwrap_or(FallbackReason::Policy)
        });
        let peer =
            Peer { credentials: self.credentials, trust: known.trust, label: self.label.clone() };
        self.assemble(known, peer, theirs)
    }

    /// The socket goes to the transport; a duplicate descriptor stays with us until we are dropped.
    fn take_socket(&self) -> Result<Socket, HandshakeError> {
        self.socket.try_clone().map_err(|error| self.system("duplicating the socket", error))
    }

    fn send_hello(&self) -> Result<(), HandshakeError> {
        let is_unix = self.socket.family() == Family::Unix;
        // Without a pidfd the socket tells of our death alone.
        let process = if is_unix { PidFd::of_self().ok() } else { None };
        let descriptors: Vec<_> = process.iter().map(AsFd::as_fd).collect();
        self.send(self.own_hello.as_bytes(), &descriptors, is_unix)
    }

    fn send_offer(&self, offered: &Result<Offered, FallbackReason>) -> Result<(), HandshakeError> {
        let offered = match offered {
            Ok(offered) => offered,
            Err(reason) => {
                let offer = Offer::new(TRANSPORT_SOCKET, reason.number(), 0, 0);
                return self.send(offer.as_bytes(), &[], false);
            }
        };
        let flags = if offered.doorbells_attached { OFFER_DOORBELLS } else { 0 };
        let offer = Offer::new(TRANSPORT_SHM, 0, flags, self.geometry.region_bytes);
        let region = offered.region.descriptor.as_fd();
        let (records, room) = (offered.doorbells.0.as_fd(), offered.doorbells.1.as_fd());
        if offered.doorbells_attached {
            self.send(offer.as_bytes(), &[region, records, room], false)
        } else {
            self.send(offer.as_bytes(), &[region], false)
        }
    }

    fn send(
        &self,
        frame: &[u8],
        descriptors: &[BorrowedFd<'_>],
        credentials: bool,
    ) -> Result<(), HandshakeError> {
        match self.socket.send(&[IoSlice::new(frame)], descriptors, credentials, true) {
            Ok(count) if count == frame.len() => Ok(()),
            // All frames of a side together are smaller than any socket buffer.
            Ok(_) => Err(self.system("sending", io::ErrorKind::WriteZero.into())),
            // The peer may have refused before it hung up: reading will tell.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(self.system("sending", error)),
        }
    }

    /// Tells the peer why not, unless it may be running already: then we hang up (SPEC 2.2). It may be
    /// gone, which is no matter.
    pub(crate) fn reject(&self, refusal: Refusal, text: &str) {
        if self.is_ready_sent || self.foreign.is_some() {
            let _ = self.socket.shutdown_both();
            return;
        }
        let mut end = text.len().min(REJECT_TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let head = RejectHead::new(refusal.number(), end);
        let parts = [IoSlice::new(head.as_bytes()), IoSlice::new(&text.as_bytes()[..end])];
        let _ = self.socket.write(&parts, true);
    }

    fn violation(&self, violation: Violation) -> HandshakeError {
        self.reject(Refusal::Violation, &violation.to_string());
        HandshakeError::Violation { peer: self.label.clone(), violation }
    }

    fn bad_descriptor(&self, reason: String) -> HandshakeError {
        self.reject(Refusal::Violation, &reason);
        HandshakeError::Descriptor { peer: self.label.clone(), reason }
    }

    fn system(&self, what: &'static str, source: io::Error) -> HandshakeError {
        HandshakeError::System { peer: self.label.clone(), what, source }
    }

    pub(crate) fn timed_out(&self) -> HandshakeError {
        HandshakeError::TimedOut { peer: self.label.clone(), hint: self.hint() }
    }

    fn hung_up(&self) -> HandshakeError {
        HandshakeError::HungUp { peer: self.label.clone(), hint: self.hint() }
    }
}

impl AsFd for Pending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
