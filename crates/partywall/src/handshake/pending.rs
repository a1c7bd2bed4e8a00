// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake of one connection, over its socket, without ever blocking.
//!
//! ```text
//!   progress ─▶ read bytes ─▶ machine.rs returns a frame ─▶ act checks the frame, creates the
//!                                                          region, answers (terms.rs: limits)
//!   progress returns None while the handshake is under way, then Established or an error
//! ```
//!
//! A listener drives many pending handshakes at a time, a connecting side one; both enforce the
//! deadline. Nothing is allocated for a peer before its credentials were admitted, and everything
//! it sends is checked (SPEC 2.2, 2.8, 3.1). If memory or descriptors for shared memory are
//! lacking, both sides learn the reason and use the socket.

use super::descriptors::{Arrived, Claimed};
use super::established::{Established, StreamTerms};
use super::machine::{Awaiting, Machine, NotPartywall, Received};
use super::second_handshake::SecondHandshake;
use super::terms;
use crate::address::Address;
use crate::channel::{AnyReceiver, AnySender};
use crate::config::{Begin, Config, TransportPolicy, TrustPolicy};
use crate::error::HandshakeError;
use crate::peer::{Peer, PeerIdentity, Trust, may_be_trusted};
use crate::protocol::{DriverWaker, Negotiation, Protocol};
use crate::transport::shm::{
    self, BlankRegion, Doorbells, Limits, OwnRegion, PeerRegion, PeerRegionError, Purpose,
    SpareRegion,
};
use crate::transport::socket::{self, PendingMove};
use crate::transport::{LiveTransport, Transport};
use partywall_layout::hello::{
    DESCRIPTOR_PIDFD, Descriptors, FEATURE_MOVE, Hello, Offer, READY_DOORBELLS, REGION_ALONE,
    REGION_AND_DOORBELLS, REJECT_TEXT_MAX, ROLE_ACCEPTOR, ROLE_CONNECTOR, Ready, RejectHead,
    SERVICE_SESSION, TRANSPORT_SHM, TRANSPORT_SOCKET, VERSION_MAX, VERSION_MIN,
};
use partywall_layout::{FallbackReason, Geometry, Refusal, Violation, seeded_fault};
use partywall_sys::socket::Family;
use partywall_sys::{Credentials, Doorbell, DoorbellError, ForkGuard, PidFd, PidFdError, Socket};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// The handshake of one connection, until it succeeds or fails.
pub(crate) struct Pending {
    pub(super) socket: Arc<Socket>,
    pub(super) guard: ForkGuard,
    pub(super) config: Config,
    geometry: Geometry,
    pub(super) is_acceptor: bool,
    /// The address of the listener as text. This side writes the text into its region, for tools.
    address: String,
    pub(super) label: String,
    machine: Machine,
    pub(super) own_hello: Hello,
    arrived: Arrived,
    pub(super) credentials: Option<Credentials>,
    /// The pidfd of the process that the credentials name, if the kernel delivered one (Linux 6.5).
    pub(super) process: Option<PidFd>,
    /// Whether each read from the socket delivers a pidfd of the peer (`SO_PASSPIDFD`). The option
    /// is turned off once the first frame was read.
    passes_pidfd: bool,
    /// Whether the kernel can deliver pidfds. If so, the kernel also delivers a pidfd of this
    /// process to the peer, so this side need not send one.
    kernel_has_pidfd: bool,
    /// Whether this side has sent READY. From then on the peer may use the connection, so this side
    /// can send no refusal.
    is_ready_sent: bool,
    /// The region that this side offers, or why it offers none. An acceptor makes its region once
    /// it has accepted the peer's region.
    offered: Result<Offered, FallbackReason>,
    /// The region that the listener made in advance. An acceptor uses it as its own region.
    spare: Option<Arc<SpareRegion>>,
    known: Option<Known>,
    /// The protocols other than Partywall's own: all that an acceptor serves, or the one that a
    /// connector speaks.
    pub(super) protocols: Vec<Arc<dyn Protocol>>,
    /// Whether this side is a connector that begins on the socket, if the acceptor agrees.
    begins_on_socket: bool,
    /// Whether HELLO was sent already. OFFER is then sent without HELLO.
    is_hello_sent: bool,
    /// The HELLO of the same peer in the handshake with which the connection began, if this
    /// handshake moves the connection to shared memory.
    earlier: Option<Earlier>,
    pub(super) foreign: Option<Foreign>,
}

/// The values of the first handshake that the peer's HELLO in the second handshake of a connection
/// must repeat (SPEC 8.5).
#[derive(Clone, Copy, Debug)]
pub(super) struct Earlier {
    pub nonce: [u8; 16],
    pub credentials: Option<Credentials>,
}

/// The handshake of a protocol other than Partywall's own, which is under way.
pub(super) struct Foreign {
    pub protocol: &'static str,
    pub negotiation: Box<dyn Negotiation>,
    pub driver_waker: DriverWaker,
    pub peer: Peer,
}

/// The facts of a handshake that are known once the peer's HELLO was checked.
struct Known {
    hello: Hello,
    process: Option<Arc<PidFd>>,
    peer: PeerIdentity,
    limits: Limits,
    is_shm_offered: bool,
    /// The peer's region and doorbells, or the reason why this side cannot use them.
    accepted: Result<Accepted, FallbackReason>,
}

/// The region of the peer and, if both sides trust each other, the peer's doorbells.
struct Accepted {
    region: PeerRegion,
    doorbells: Option<(Doorbell, Doorbell)>,
}

/// The region and the doorbells of this side, which it offers to the peer.
struct Offered {
    region: OwnRegion,
    doorbells: (Doorbell, Doorbell),
    doorbells_attached: bool,
    /// Doorbells that this side uses instead of the offered ones, if the two sides wake each other
    /// by bytes on the control socket. An acceptor that moves a connection makes these doorbells
    /// early: if making them failed after READY, the connection could not stay on the socket.
    replacement: Option<(Doorbell, Doorbell)>,
}

impl Pending {
    /// Begins the acceptor's handshake on a new connection, whose peer may also speak one of
    /// `protocols`. If `spare` has a region, it becomes that of this side.
    pub(crate) fn accepting(
        socket: Socket,
        address: &Address,
        config: &Config,
        geometry: Geometry,
        service: u32,
        protocols: Vec<Arc<dyn Protocol>>,
        spare: Arc<SpareRegion>,
    ) -> Self {
        let pending = Self::new(socket, config, geometry, true, service, protocols);
        Self { address: address.to_string(), spare: Some(spare), ..pending }
    }

    /// Begins the connector's handshake on a new connection: sends HELLO and OFFER, or starts
    /// `protocol`.
    pub(crate) fn connecting(
        socket: Socket,
        address: &Address,
        config: &Config,
        geometry: Geometry,
        service: u32,
        protocol: Option<Arc<dyn Protocol>>,
    ) -> Result<Self, HandshakeError> {
        let protocols = protocol.iter().cloned().collect();
        let mut pending = Self::new(socket, config, geometry, false, service, protocols);
        pending.address = address.to_string();
        let family = pending.socket.family();
        let may_begin =
            pending.protocols.is_empty() && terms::begins_on_socket(config, service, family);
        if may_begin && may_be_trusted(config.trust, pending.socket.peer_credentials().as_ref()) {
            pending.begins_on_socket = true;
            pending.machine.begin_on_socket();
            pending.add_feature(FEATURE_MOVE);
        }
        match protocol {
            Some(protocol) => pending.connect_foreign(&*protocol)?,
            None => pending.open()?,
        }
        Ok(pending)
    }

    /// Prepares the second handshake of a connection, which moves it to shared memory.
    pub(super) fn moving(socket: Socket, first: &SecondHandshake) -> Self {
        let service = first.service;
        let mut config = first.config.clone();
        config.begin = Begin::SharedMemory;
        let mut pending =
            Self::new(socket, &config, first.geometry, first.is_acceptor, service, Vec::new());
        pending.own_hello.nonce = first.own_nonce;
        pending.address.clone_from(&first.address);
        pending.label.clone_from(&first.label);
        pending.spare.clone_from(&first.spare);
        pending.earlier = Some(first.earlier);
        pending
    }

    fn add_feature(&mut self, feature: u64) {
        let features = self.own_hello.features.get() | feature;
        self.own_hello.features = U64::new(features);
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
        let kernel_has_pidfd =
            socket.family() == Family::Unix && socket.set_pass_pidfd(true).is_ok();
        Self {
            address: String::new(),
            label: socket.peer_label(),
            guard: ForkGuard::current(),
            config: config.clone(),
            geometry,
            is_acceptor,
            machine: Machine::new(is_acceptor),
            own_hello: terms::own_hello(config, service, obstacle),
            arrived: Arrived::default(),
            credentials: None,
            process: None,
            passes_pidfd: kernel_has_pidfd,
            kernel_has_pidfd,
            is_ready_sent: false,
            offered: Err(obstacle.unwrap_or(FallbackReason::Policy)),
            spare: None,
            known: None,
            protocols,
            begins_on_socket: false,
            is_hello_sent: false,
            earlier: None,
            foreign: None,
            socket: Arc::new(socket),
        }
    }

    /// Returns why this side does not offer a region, if it offers none.
    pub(super) fn own_fallback(&self) -> Option<FallbackReason> {
        self.offered.as_ref().err().copied()
    }

    pub(super) const fn begins_on_socket(&self) -> bool {
        self.begins_on_socket
    }

    /// Whether the peer has not sent a byte. A peer that sends none may only be checking that the
    /// listener lives.
    pub(crate) fn is_untouched(&self) -> bool {
        self.foreign.is_none() && self.machine.is_untouched()
    }

    /// Drives the handshake as far as possible without blocking. Returns the connection once both
    /// sides are ready.
    pub(crate) fn progress(&mut self) -> Result<Option<Established>, HandshakeError> {
        let mut buffer = [0; 1024];
        loop {
            if self.foreign.is_some() {
                return self.progress_foreign();
            }
            let frame = self.machine.next_frame().map_err(|violation| self.violation(violation))?;
            if let Some(frame) = frame {
                match self.act(frame)? {
                    Some(established) => return Ok(Some(established)),
                    // If this side has sent READY and its handshake is not complete, this side is
                    // an acceptor that has just sent its answer. The connector's READY arrives a
                    // round trip later, so nothing is read now.
                    None if self.is_ready_sent => return Ok(None),
                    None => continue,
                }
            }
            let wanted = self.machine.wanted(!self.protocols.is_empty()).min(buffer.len());
            let received = match self.socket.receive(&mut buffer[..wanted], true) {
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
            let added = self.arrived.add(received.fds, received.truncated);
            added.map_err(|violation| self.violation(violation))?;
            self.note_sender(received.credentials, received.process)?;
            match self.machine.feed(&buffer[..received.bytes]) {
                Ok(()) => {}
                Err(NotPartywall(found)) if self.may_be_foreign(&found) => self.listen_on(found)?,
                Err(NotPartywall(found)) => return Err(self.not_partywall(&found)),
            }
        }
    }

    /// Notes that the process which sent the first received bytes is the peer. The rest of HELLO
    /// must come from the same process (SPEC 2.2).
    fn note_sender(
        &mut self,
        who: Option<Credentials>,
        process: Option<PidFd>,
    ) -> Result<(), HandshakeError> {
        if self.machine.is_untouched() {
            (self.credentials, self.process) = (who, process);
        } else if self.machine.awaiting() == Awaiting::Hello && self.credentials != who {
            #[expect(clippy::cast_sign_loss, reason = "process ids are positive")]
            let found = who.map_or(0, |who| who.pid as u64);
            let what = "credentials of HELLO";
            return Err(self.violation(Violation::Frame { what, found }));
        }
        Ok(())
    }

    fn act(&mut self, received: Received) -> Result<Option<Established>, HandshakeError> {
        self.stop_passing_pidfd();
        match received {
            Received::Hello(hello) => self.on_hello(*hello),
            Received::Offer(offer) => self.on_offer(&offer).map(|()| None),
            Received::Ready(ready) => self.on_ready(&ready).map(Some),
            Received::Refused(refusal, text) => {
                Err(HandshakeError::Refused { peer: self.peer_name(), refusal, text })
            }
            Received::OtherVersion(theirs_min, theirs_max) => {
                let (ours_min, ours_max) = (VERSION_MIN, VERSION_MAX);
                let text = format!("this side speaks versions {ours_min} to {ours_max}");
                self.reject(Refusal::Version, &text);
                let peer = self.peer_name();
                Err(HandshakeError::Version { peer, theirs_min, theirs_max, ours_min, ours_max })
            }
        }
    }

    /// Sends the first frames of a connector: HELLO and OFFER, or HELLO alone if the connection is
    /// to begin on the socket.
    pub(super) fn open(&mut self) -> Result<(), HandshakeError> {
        if self.begins_on_socket { self.send_hello() } else { self.offer() }
    }

    /// Makes the region of a connector and sends OFFER. Sends HELLO before OFFER unless HELLO was
    /// sent already.
    fn offer(&mut self) -> Result<(), HandshakeError> {
        if terms::own_obstacle(&self.config, self.socket.family()).is_none() {
            // This side does not know yet whether it may trust the acceptor. Without that
            // trust, it uses none of the acceptor's doorbells, and replaces the doorbells that it
            // offers here.
            let may_trust = self.config.trust != TrustPolicy::Untrusted;
            self.offered = self.make_region(self.own_hello.nonce, may_trust);
        }
        if let (Err(reason), TransportPolicy::SharedMemory) = (&self.offered, self.config.transport)
        {
            return Err(HandshakeError::NoTransport { reason: *reason });
        }
        self.send_frames(None)
    }

    fn claim(&mut self, list: &Descriptors) -> Result<Claimed, HandshakeError> {
        self.arrived.claim(list).map_err(|violation| self.violation(violation))
    }

    /// Checks that the peer has sent neither a byte nor a descriptor that it may send only after
    /// the next answer of this side.
    fn check_nothing_more(&self) -> Result<(), HandshakeError> {
        let checked = self.arrived.check_none_left().and_then(|()| self.machine.check_no_rest());
        checked.map_err(|violation| self.violation(violation))
    }

    fn on_hello(&mut self, hello: Hello) -> Result<Option<Established>, HandshakeError> {
        let has_move =
            hello.features.get() & FEATURE_MOVE != 0 && (self.is_acceptor || self.begins_on_socket);
        // By the feature MOVE in its HELLO, the acceptor agrees to begin on the socket, and may
        // already send records there. So the connector sends no REJECT frame, and refuses the
        // acceptor by hanging up.
        self.is_ready_sent |= has_move && !self.is_acceptor;
        if hello.nonce == self.own_hello.nonce {
            let (peer, found) = (self.peer_name(), "our own words, sent back".to_owned());
            let advice = "is this the right address?";
            return Err(HandshakeError::NotPartywall { peer, found, advice });
        }
        let (asked, offered) = (hello.service.get(), self.own_hello.service.get());
        if asked != offered && !self.is_acceptor {
            // An acceptor that does not offer the requested service answers REJECT. So a HELLO of
            // the acceptor that names another service is a violation (SPEC 2.2).
            let (what, found) = ("service of HELLO", asked.into());
            return Err(self.violation(Violation::Frame { what, found }));
        }
        if asked != offered {
            let offers = if offered == SERVICE_SESSION { "sessions" } else { "channels" };
            self.reject(Refusal::Service, &format!("this listener offers {offers}"));
            return Err(HandshakeError::Service { peer: self.peer_name(), asked, offered });
        }
        terms::check(&hello).map_err(|violation| self.violation(violation))?;
        if has_move {
            let checked = terms::check_move(&hello, self.earlier.is_none());
            checked.map_err(|violation| self.violation(violation))?;
        }
        self.check_earlier(&hello)?;
        let claimed = self.claim(&hello.descriptors)?;
        let process = self.identify(claimed.pidfd)?.map(Arc::new);
        self.admit()?;
        let (credentials, label, trust) = (self.credentials, self.label.clone(), self.config.trust);
        let region_bytes = self.geometry.region_bytes;
        if let Some(reason) = terms::obstacle(&self.own_hello, &hello, region_bytes) {
            self.check_socket_suits(&hello, reason)?;
        }
        let known = Known {
            limits: terms::limits(&self.config, &hello, region_bytes),
            hello,
            peer: PeerIdentity::new(credentials, label, trust, process.as_ref()),
            process,
            is_shm_offered: false,
            accepted: Err(FallbackReason::Policy),
        };
        if self.begins_on_socket || has_move {
            return self.begin_on_socket(known);
        }
        self.known = Some(known);
        Ok(None)
    }

    /// Checks that the HELLO of a second handshake comes from the same peer as the HELLO of the
    /// first handshake (SPEC 8.5).
    fn check_earlier(&self, hello: &Hello) -> Result<(), HandshakeError> {
        let Some(earlier) = &self.earlier else { return Ok(()) };
        if seeded_fault("other_peer_moves") {
            return Ok(());
        }
        if hello.nonce != earlier.nonce {
            let what = "HELLO of another connection";
            return Err(self.violation(Violation::Frame { what, found: 0 }));
        }
        if self.credentials != earlier.credentials {
            // The peer has changed its user or group since the first handshake, as a service does
            // after it has bound its socket. The connection keeps the identity that was admitted,
            // and stays on the socket.
            return Err(HandshakeError::NoTransport { reason: FallbackReason::Abandoned });
        }
        Ok(())
    }

    /// Handles the peer's HELLO if the connector wants to begin on the socket. If both sides agree,
    /// the connection is complete; otherwise OFFER follows.
    fn begin_on_socket(&mut self, known: Known) -> Result<Option<Established>, HandshakeError> {
        let region_bytes = self.geometry.region_bytes;
        let obstacle = terms::obstacle(&self.own_hello, &known.hello, region_bytes);
        // The acceptor decides whether the connection begins on the socket. If the connector then
        // finds a reason why memory cannot be shared, it never begins the move to shared memory.
        let can_move = terms::can_move(&self.own_hello, &known.hello)
            && !(self.is_acceptor && (obstacle.is_some() || !may_take_pair_of(&known)));
        if self.is_acceptor {
            self.check_nothing_more()?;
            if can_move {
                self.add_feature(FEATURE_MOVE);
            }
            self.send_hello()?;
        }
        if can_move {
            return self.assemble_on_socket(known, obstacle).map(Some);
        }
        self.known = Some(known);
        if !self.is_acceptor {
            self.offer()?;
        }
        Ok(None)
    }

    /// Makes a connection that begins on the socket. `obstacle` is a reason why memory cannot be
    /// shared; if it is `None`, the connection may move to shared memory later.
    fn assemble_on_socket(
        &mut self,
        known: Known,
        obstacle: Option<FallbackReason>,
    ) -> Result<Established, HandshakeError> {
        self.check_nothing_more()?;
        let second = SecondHandshake {
            config: self.config.clone(),
            geometry: self.geometry,
            is_acceptor: self.is_acceptor,
            service: self.own_hello.service.get(),
            own_nonce: self.own_hello.nonce,
            address: self.address.clone(),
            label: self.label.clone(),
            spare: self.spare.clone(),
            earlier: Earlier { nonce: known.hello.nonce, credentials: self.credentials },
            peer: known.peer.clone(),
            pending: None,
        };
        let pending = PendingMove::new(Box::new(second), !self.is_acceptor, obstacle);
        let pending = Arc::new(pending);
        let transport = LiveTransport::Moving(Arc::clone(&pending) as _);
        Ok(self.established_on_socket(known, transport, Some(pending)))
    }

    /// Refuses the peer if the configuration of one side does not allow the socket as transport.
    /// `reason` says why memory cannot be shared.
    fn check_socket_suits(
        &self,
        theirs: &Hello,
        reason: FallbackReason,
    ) -> Result<(), HandshakeError> {
        if terms::socket_suits(&self.own_hello, theirs) {
            return Ok(());
        }
        self.reject(Refusal::Transport, &reason.to_string());
        Err(HandshakeError::NoTransport { reason })
    }

    /// Ends the delivery of pidfds: each further read would deliver one more pidfd of the peer's
    /// process.
    pub(super) fn stop_passing_pidfd(&mut self) {
        if std::mem::take(&mut self.passes_pidfd) {
            // Turning the option `SO_PASSPIDFD` off cannot fail, because turning it on succeeded.
            let _ = self.socket.set_pass_pidfd(false);
        }
    }

    /// Identifies the peer's process: by the pidfd from the kernel, or by the pidfd that the peer
    /// sent of itself. A sent pidfd is checked in any case.
    fn identify(&mut self, sent: Option<OwnedFd>) -> Result<Option<PidFd>, HandshakeError> {
        let sent = self.check_sent_process(sent)?;
        Ok(self.process.take().or(sent))
    }

    fn check_sent_process(&self, sent: Option<OwnedFd>) -> Result<Option<PidFd>, HandshakeError> {
        let (Some(descriptor), Some(who)) = (sent, self.credentials) else { return Ok(None) };
        if !who.is_pid_visible() {
            // The peer is in another pid namespace. So this process has no process number of the
            // peer that it could compare with the pidfd.
            return Ok(None);
        }
        match PidFd::from_peer(descriptor, who.pid) {
            Ok(process) => Ok(Some(process)),
            // The pidfd cannot be checked, or its process is not visible in this namespace. Then
            // only the socket reports the peer's death.
            Err(PidFdError::Unverifiable { .. }) => Ok(None),
            Err(PidFdError::OtherProcess { actual: 0, .. }) => Ok(None),
            Err(error) if error.is_violation() => Err(self.bad_descriptor(error.to_string())),
            Err(_) => Err(self.hung_up()),
        }
    }

    pub(super) fn admit(&self) -> Result<(), HandshakeError> {
        let Some(rule) = &self.config.admission else { return Ok(()) };
        rule.judge(self.credentials.as_ref()).map_err(|reason| {
            self.reject(Refusal::Admission, &reason);
            HandshakeError::NotAdmitted { peer: self.peer_name(), reason }
        })
    }

    fn make_region(
        &self,
        session_id: [u8; 16],
        doorbells_attached: bool,
    ) -> Result<Offered, FallbackReason> {
        let role = if self.is_acceptor { ROLE_ACCEPTOR } else { ROLE_CONNECTOR };
        let (service, address) = (self.own_hello.service.get(), &*self.address);
        let purpose = Purpose { session_id, role, service, address };
        let blank = match self.spare.as_ref().and_then(|spare| spare.take()) {
            Some(blank) => blank,
            None => BlankRegion::create(self.geometry)?,
        };
        let (region, doorbells) = blank.into_region(&purpose)?;
        let doorbell = || Doorbell::new().map_err(|_| FallbackReason::Descriptors);
        let may_replace = self.is_acceptor && self.earlier.is_some() && doorbells_attached;
        let replacement = if may_replace { Some((doorbell()?, doorbell()?)) } else { None };
        Ok(Offered { region, doorbells, doorbells_attached, replacement })
    }

    fn on_offer(&mut self, offer: &Offer) -> Result<(), HandshakeError> {
        let claimed = self.claim(&offer.descriptors)?;
        let Some(mut known) = self.known.take() else {
            return Err(self.violation(Violation::Frame { what: "order of frames", found: 0 }));
        };
        if self.is_acceptor {
            self.check_nothing_more()?;
        }
        known.is_shm_offered = offer.transport.get() == TRANSPORT_SHM;
        known.accepted = self.judge_offer(&known, offer, claimed)?;
        if self.is_acceptor {
            self.answer(&mut known)?;
        }
        self.known = Some(known);
        Ok(())
    }

    /// Makes the region of an acceptor, and sends its three frames: HELLO, OFFER and READY.
    fn answer(&mut self, known: &mut Known) -> Result<(), HandshakeError> {
        self.offered = match &known.accepted {
            Err(reason) => Err(*reason),
            Ok(accepted) => self.make_region(known.hello.nonce, accepted.doorbells.is_some()),
        };
        let ready = match &self.offered {
            Ok(_) => Ready::new(TRANSPORT_SHM, 0),
            Err(reason) => {
                let reason = *reason;
                self.check_socket_suits(&known.hello, reason)?;
                known.accepted = Err(reason);
                Ready::new(TRANSPORT_SOCKET, reason.number())
            }
        };
        self.send_frames(Some(&ready))?;
        self.is_ready_sent = true;
        Ok(())
    }

    fn on_ready(&mut self, ready: &Ready) -> Result<Established, HandshakeError> {
        self.claim(&ready.descriptors)?;
        self.check_nothing_more()?;
        let Some(known) = self.known.take() else {
            return Err(self.violation(Violation::Frame { what: "order of frames", found: 0 }));
        };
        let mut offered = std::mem::replace(&mut self.offered, Err(FallbackReason::Policy));
        let is_shared_memory = ready.transport.get() == TRANSPORT_SHM;
        if is_shared_memory && !(offered.is_ok() && known.is_shm_offered) {
            let (what, found) = ("transport of READY", TRANSPORT_SHM.into());
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let theirs = (!is_shared_memory).then(|| {
            FallbackReason::from_number(ready.reason.get()).unwrap_or(FallbackReason::Policy)
        });
        let own_attached = offered.as_ref().is_ok_and(|offered| offered.doorbells_attached);
        let theirs_attached =
            known.accepted.as_ref().is_ok_and(|accepted| accepted.doorbells.is_some());
        let can_notify = own_attached && theirs_attached;
        let says_so = ready.flags.get() & READY_DOORBELLS != 0;
        if self.is_acceptor && says_so && !can_notify {
            let (what, found) = ("doorbells of READY", ready.flags.get().into());
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let has_doorbells = can_notify && (says_so || !self.is_acceptor);
        self.replace_doorbells(&mut offered, has_doorbells)?;
        if !self.is_acceptor {
            self.conclude(&known, &offered, theirs, has_doorbells)?;
        }
        self.assemble(known, offered, theirs, has_doorbells)
    }

    /// Makes new doorbells for this side if the peer has received the old ones, but the two sides
    /// wake each other by bytes on the control socket. A peer that holds the old doorbells could
    /// make each notification of them block.
    fn replace_doorbells(
        &self,
        offered: &mut Result<Offered, FallbackReason>,
        has_doorbells: bool,
    ) -> Result<(), HandshakeError> {
        let Ok(offered) = offered else { return Ok(()) };
        if !offered.doorbells_attached || has_doorbells || offered.replacement.is_some() {
            return Ok(());
        }
        let doorbell = || Doorbell::new().map_err(|error| self.system("making a doorbell", error));
        offered.replacement = Some((doorbell()?, doorbell()?));
        Ok(())
    }

    /// Sends HELLO alone, because the connection is to begin on the socket.
    fn send_hello(&mut self) -> Result<(), HandshakeError> {
        let process = self.own_process();
        let mut hello = self.own_hello;
        let descriptors: Vec<BorrowedFd<'_>> = process.iter().map(AsFd::as_fd).collect();
        if process.is_some() {
            hello.descriptors = Descriptors::of(&[DESCRIPTOR_PIDFD]);
        }
        self.is_hello_sent = true;
        self.send(&[hello.as_bytes()], &descriptors, self.socket.family() == Family::Unix)
    }

    /// Makes a pidfd of this process for the peer. If the kernel delivers such a pidfd by itself,
    /// this side sends none. If this process cannot make a pidfd, the peer learns of its death from
    /// the socket.
    fn own_process(&self) -> Option<PidFd> {
        let is_unix = self.socket.family() == Family::Unix;
        if is_unix && !self.kernel_has_pidfd { PidFd::of_self().ok() } else { None }
    }

    /// Sends the connector's READY frame, which decides the transport and whether both sides use
    /// doorbells.
    fn conclude(
        &mut self,
        known: &Known,
        offered: &Result<Offered, FallbackReason>,
        theirs: Option<FallbackReason>,
        can_notify: bool,
    ) -> Result<(), HandshakeError> {
        let own = offered.as_ref().err().or(known.accepted.as_ref().err());
        let ready = match own.copied().or(theirs) {
            Some(reason) => {
                self.check_socket_suits(&known.hello, reason)?;
                Ready::new(TRANSPORT_SOCKET, reason.number())
            }
            None if can_notify => Ready::new(TRANSPORT_SHM, 0).with_doorbells(),
            None => Ready::new(TRANSPORT_SHM, 0),
        };
        self.send(&[ready.as_bytes()], &[], false)?;
        self.is_ready_sent = true;
        Ok(())
    }

    /// Returns a duplicate of the connection's socket. The negotiation of another protocol owns the
    /// duplicate.
    pub(super) fn take_socket(&self) -> Result<Socket, HandshakeError> {
        self.socket.try_clone().map_err(|error| self.system("duplicating the socket", error))
    }

    /// Sends HELLO and OFFER, and an acceptor's READY, in one message. All descriptors arrive with
    /// the first byte of the message.
    fn send_frames(&self, ready: Option<&Ready>) -> Result<(), HandshakeError> {
        let process = if self.is_hello_sent { None } else { self.own_process() };
        let mut hello = self.own_hello;
        let mut descriptors: Vec<BorrowedFd<'_>> = Vec::new();
        if let Some(process) = &process {
            hello.descriptors = Descriptors::of(&[DESCRIPTOR_PIDFD]);
            descriptors.push(process.as_fd());
        }
        let offer = match &self.offered {
            Err(reason) => Offer::socket(reason.number()),
            Ok(offered) => {
                descriptors.push(offered.region.descriptor.as_fd());
                if offered.doorbells_attached {
                    descriptors.extend([offered.doorbells.0.as_fd(), offered.doorbells.1.as_fd()]);
                }
                let with_doorbells = offered.doorbells_attached;
                let kinds = if with_doorbells { REGION_AND_DOORBELLS } else { REGION_ALONE };
                Offer::shm(self.geometry.region_bytes, kinds)
            }
        };
        let ready = ready.map_or(&[][..], IntoBytes::as_bytes);
        if self.is_hello_sent {
            return self.send(&[offer.as_bytes(), ready], &descriptors, false);
        }
        let is_unix = self.socket.family() == Family::Unix;
        self.send(&[hello.as_bytes(), offer.as_bytes(), ready], &descriptors, is_unix)
    }

    fn send(
        &self,
        frames: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
        credentials: bool,
    ) -> Result<(), HandshakeError> {
        let slices: Vec<IoSlice<'_>> = frames.iter().map(|frame| IoSlice::new(frame)).collect();
        let length: usize = frames.iter().map(|frame| frame.len()).sum();
        match self.socket.send(&slices, descriptors, credentials, true) {
            Ok(count) if count == length => Ok(()),
            // All frames of one side together are smaller than any socket buffer, so a partial
            // write is an error.
            Ok(_) => Err(self.system("sending", io::ErrorKind::WriteZero.into())),
            // The peer has hung up, which is not yet an error: it may have sent a refusal before,
            // which the next read returns.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(self.system("sending", error)),
        }
    }

    /// Sends the reason of the refusal. If this side has sent READY, the peer may be running, so
    /// this side hangs up instead (SPEC 2.2). Errors are ignored: the peer may be gone.
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

    /// Returns the peer as text: its process and user, as far as the kernel reports them, and its
    /// address.
    pub(super) fn peer_name(&self) -> String {
        // Before HELLO came, the kernel reports the credentials of the connecting process for an
        // acceptor's socket. For a connector's socket, it would report the process that called
        // `listen`.
        let of_socket = || self.socket.peer_credentials().filter(|_| self.is_acceptor);
        let credentials = self.credentials.or_else(of_socket);
        Peer::new(credentials, Trust::Untrusted, self.label.clone()).to_string()
    }

    fn violation(&self, violation: Violation) -> HandshakeError {
        self.reject(Refusal::Violation, &violation.to_string());
        HandshakeError::Violation { peer: self.peer_name(), violation }
    }

    fn bad_descriptor(&self, reason: String) -> HandshakeError {
        self.reject(Refusal::Violation, &reason);
        HandshakeError::Descriptor { peer: self.peer_name(), reason }
    }

    pub(super) fn system(&self, what: &'static str, source: io::Error) -> HandshakeError {
        HandshakeError::System { peer: self.peer_name(), what, source }
    }

    /// Refuses the peer, because the handshake did not finish in time (SPEC 2.7). The peer gets
    /// `text` as the reason.
    pub(super) fn time_out(&self, text: &str) -> HandshakeError {
        self.reject(Refusal::Busy, text);
        HandshakeError::TimedOut { peer: self.peer_name(), hint: self.hint() }
    }

    pub(super) fn hung_up(&self) -> HandshakeError {
        HandshakeError::HungUp { peer: self.peer_name(), hint: self.hint() }
    }

    /// Checks the peer's OFFER. An inner `Err` contains the reason why shared memory cannot be
    /// used.
    fn judge_offer(
        &self,
        known: &Known,
        offer: &Offer,
        claimed: Claimed,
    ) -> Result<Result<Accepted, FallbackReason>, HandshakeError> {
        let region_bytes = self.geometry.region_bytes;
        let obstacle = terms::obstacle(&self.own_hello, &known.hello, region_bytes);
        let own = self.offered.as_ref().err().copied().filter(|_| !self.is_acceptor);
        if let Some(reason) = obstacle.or(own) {
            return Ok(Err(reason));
        }
        if !known.is_shm_offered {
            let reason = FallbackReason::from_number(offer.reason.get());
            return Ok(Err(reason.unwrap_or(FallbackReason::Policy)));
        }
        if self.is_acceptor && offer.region_size.get() > self.config.map_max_effective() {
            // The connector made its region before it knew how much memory this side maps, so a
            // region above that limit is no violation.
            return Ok(Err(FallbackReason::Limits));
        }
        let region = match claimed.region {
            Some(region) if !claimed.is_truncated => region,
            _ if claimed.is_truncated => return Ok(Err(FallbackReason::Descriptors)),
            _ => {
                let what = "descriptors of OFFER without a region";
                return Err(self.violation(Violation::Frame { what, found: 0 }));
            }
        };
        let region = match self.accept_region(known, offer, region.as_fd())? {
            Ok(region) => region,
            Err(reason) => return Ok(Err(reason)),
        };
        let own_attached =
            self.is_acceptor || self.offered.as_ref().is_ok_and(|own| own.doorbells_attached);
        let doorbells = match (claimed.records, claimed.room) {
            (Some(records), Some(room))
                if own_attached && known.peer.get().trust == Trust::Trusted =>
            {
                Some((self.doorbell(records)?, self.doorbell(room)?))
            }
            // At least one side does not trust the other, so each wakes the other by bytes on the
            // control socket.
            _ => None,
        };
        Ok(Ok(Accepted { region, doorbells }))
    }

    fn accept_region(
        &self,
        known: &Known,
        offer: &Offer,
        descriptor: BorrowedFd<'_>,
    ) -> Result<Result<PeerRegion, FallbackReason>, HandshakeError> {
        let role = if self.is_acceptor { ROLE_CONNECTOR } else { ROLE_ACCEPTOR };
        let size = offer.region_size.get();
        let limit = self.config.map_max_effective();
        // The nonce in the connector's HELLO is the session id of the connection.
        let session_id = if self.is_acceptor { known.hello.nonce } else { self.own_hello.nonce };
        match PeerRegion::accept(descriptor, size, limit, &session_id, role) {
            Ok(region) => {
                let (found, said) =
                    (region.geometry.peer_blocks_max, known.hello.peer_blocks_max.get());
                if found >= said {
                    return Ok(Ok(region));
                }
                let field = "release entries";
                Err(self.violation(Violation::RegionHeader { field, found }))
            }
            Err(PeerRegionError::Violation(violation)) => Err(self.violation(violation)),
            Err(PeerRegionError::Map(error)) if error.is_violation() => {
                Err(self.bad_descriptor(error.to_string()))
            }
            Err(PeerRegionError::Map(_)) => Ok(Err(FallbackReason::Map)),
        }
    }

    fn doorbell(&self, descriptor: OwnedFd) -> Result<Doorbell, HandshakeError> {
        Doorbell::from_peer(descriptor).map_err(|error| match error {
            DoorbellError::Unverifiable { source } => self.system("checking a doorbell", source),
            other => self.bad_descriptor(other.to_string()),
        })
    }

    /// Builds the transport: shared memory if both sides can have it, else the socket if both allow
    /// it.
    fn assemble(
        &self,
        mut known: Known,
        offered: Result<Offered, FallbackReason>,
        theirs: Option<FallbackReason>,
        has_doorbells: bool,
    ) -> Result<Established, HandshakeError> {
        let accepted = std::mem::replace(&mut known.accepted, Err(FallbackReason::Policy));
        let fallback = match (offered, accepted, theirs) {
            (Ok(offered), Ok(accepted), None) => {
                let theirs = accepted.doorbells.filter(|_| has_doorbells);
                let Offered { region, doorbells, replacement, .. } = offered;
                // Both sides use eventfds as doorbells, or both use bytes on the control socket.
                let (own_doorbells, doorbells) = match theirs {
                    Some((records, space)) => (doorbells, Doorbells::Eventfd { records, space }),
                    None => (replacement.unwrap_or(doorbells), Doorbells::Byte),
                };
                let parts = shm::ShmParts {
                    socket: Arc::clone(&self.socket),
                    peer: known.peer.get().clone(),
                    process: known.process,
                    guard: self.guard,
                    limits: known.limits,
                    own: region,
                    peer_region: accepted.region,
                    own_doorbells,
                    doorbells,
                };
                let (sender, receiver) = shm::assemble(parts, &self.config);
                let (sender, receiver) =
                    (AnySender::SharedMemory(sender), AnyReceiver::SharedMemory(receiver));
                return Ok(Established {
                    sender,
                    receiver,
                    peer: known.peer,
                    transport: LiveTransport::Fixed(Transport::SharedMemory),
                    is_acceptor: self.is_acceptor,
                    peer_streams: stream_terms(&known.hello),
                });
            }
            (Err(reason), _, _) | (_, Err(reason), _) | (_, _, Some(reason)) => reason,
        };
        if !terms::socket_suits(&self.own_hello, &known.hello) {
            self.reject(Refusal::Transport, &fallback.to_string());
            return Err(HandshakeError::NoTransport { reason: fallback });
        }
        let transport = LiveTransport::Fixed(Transport::Socket(fallback));
        Ok(self.established_on_socket(known, transport, None))
    }

    fn established_on_socket(
        &self,
        known: Known,
        transport: LiveTransport,
        pending_move: Option<Arc<PendingMove>>,
    ) -> Established {
        let parts = socket::SocketParts {
            socket: Arc::clone(&self.socket),
            peer: known.peer.unjudged(),
            process: known.process,
            guard: self.guard,
            message_max: known.limits.message,
            peer_message_max: known.limits.peer_message,
            pending_move,
        };
        let (sender, receiver) = socket::assemble(parts, &self.config);
        Established {
            sender: AnySender::Socket(sender),
            receiver: AnyReceiver::Socket(receiver),
            peer: known.peer,
            transport,
            is_acceptor: self.is_acceptor,
            peer_streams: stream_terms(&known.hello),
        }
    }
}

/// Whether an acceptor may take the end of a socket pair from the connector whose HELLO it has read
/// (SPEC 8.5).
///
/// A connector may keep a copy of the end that it sends, and can then block every call of this side
/// on that end. The kernel locks the socket while it copies to the memory of the connector, which
/// may wait for a page for ever. So the connector must be trusted. A connector that is not trusted
/// gets a HELLO without MOVE, and shares memory in the handshake.
fn may_take_pair_of(known: &Known) -> bool {
    known.peer.get().trust == Trust::Trusted || seeded_fault("untrusted_peer_moves")
}

fn stream_terms(hello: &Hello) -> StreamTerms {
    StreamTerms {
        window: hello.stream_window.get(),
        streams_max: hello.streams_max.get(),
        opens: true,
    }
}

impl AsFd for Pending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::peer::Admission;
    use partywall_layout::hello::SERVICE_CHANNEL;

    /// Returns a connector that has sent its frames, and an acceptor that has read none of these
    /// frames.
    fn pair(acceptor: &Config) -> (Pending, Pending) {
        let address: Address = "unix:@pending".parse().unwrap();
        let (ours, theirs) = Socket::pair().unwrap();
        let config = Config::default().begin(Begin::SharedMemory);
        let geometry = config.geometry().unwrap();
        let connector =
            Pending::connecting(theirs, &address, &config, geometry, SERVICE_CHANNEL, None);
        let (spare, protocols) = (Arc::default(), Vec::new());
        let acceptor = Pending::accepting(
            ours,
            &address,
            acceptor,
            geometry,
            SERVICE_CHANNEL,
            protocols,
            spare,
        );
        (connector.unwrap(), acceptor)
    }

    /// Gives the connector's frames to the acceptor, as a socket that delivers no credentials
    /// would.
    fn read_without_credentials(acceptor: &mut Pending) {
        let mut buffer = [0; 1024];
        let received = acceptor.socket.receive(&mut buffer, true).unwrap();
        acceptor.arrived.add(received.fds, received.truncated).unwrap();
        acceptor.note_sender(None, None).unwrap();
        acceptor.machine.feed(&buffer[..received.bytes]).unwrap();
    }

    #[test]
    fn peer_without_credentials_is_admitted_and_not_trusted() {
        let (mut connector, mut acceptor) = pair(&Config::default());
        read_without_credentials(&mut acceptor);
        assert!(acceptor.progress().unwrap().is_none());
        let connected = connector.progress().unwrap().expect("READY came");
        let accepted = acceptor.progress().unwrap().expect("READY came");
        assert_eq!(accepted.peer.get().trust, Trust::Untrusted);
        assert!(accepted.peer.get().credentials.is_none());
        assert_eq!(accepted.transport.get(), Transport::SharedMemory);
        assert_eq!(connected.transport.get(), Transport::SharedMemory);
    }

    #[test]
    fn rule_of_admission_refuses_a_peer_without_credentials() {
        let rules = [Admission::own_user(), Admission::users([0]), Admission::groups([0])];
        for rule in rules {
            let (mut connector, mut acceptor) = pair(&Config::default().admit(rule));
            read_without_credentials(&mut acceptor);
            let refused = acceptor.progress().map(|_| ()).unwrap_err();
            assert!(matches!(refused, HandshakeError::NotAdmitted { .. }), "{refused}");
            let error = connector.progress().map(|_| ()).unwrap_err();
            let HandshakeError::Refused { refusal, .. } = error else { panic!("{error}") };
            assert_eq!(refusal, Refusal::Admission);
        }
    }

    /// Input: the kernel drops descriptors of the peer, which a hostile peer can cause. Expected:
    /// the acceptor does not use up the region that the listener made in advance for the next peer.
    #[test]
    fn region_made_in_advance_stays_if_descriptors_of_the_peer_are_dropped() {
        let (mut connector, mut acceptor) = pair(&Config::default());
        let spare = Arc::clone(acceptor.spare.as_ref().unwrap());
        assert!(spare.take().is_none());
        spare.replenish(acceptor.geometry);
        let mut buffer = [0; 1024];
        let received = acceptor.socket.receive(&mut buffer, true).unwrap();
        acceptor.arrived.add(Vec::new(), true).unwrap();
        acceptor.note_sender(received.credentials, None).unwrap();
        acceptor.machine.feed(&buffer[..received.bytes]).unwrap();
        assert!(acceptor.progress().unwrap().is_none());
        let connected = connector.progress().unwrap().expect("READY came");
        assert_eq!(connected.transport.get(), Transport::Socket(FallbackReason::Descriptors));
        assert!(acceptor.progress().unwrap().is_some());
        assert!(spare.give_up(), "the region is still there");
    }

    #[test]
    fn hello_with_the_own_nonce_ends_without_a_frame() {
        let (mut connector, mut acceptor) = pair(&Config::default());
        let own = acceptor.own_hello;
        acceptor.note_sender(None, None).unwrap();
        acceptor.machine.feed(own.as_bytes()).unwrap();
        let error = acceptor.progress().map(|_| ()).unwrap_err();
        assert!(matches!(error, HandshakeError::NotPartywall { .. }), "{error}");
        drop(acceptor);
        let error = connector.progress().map(|_| ()).unwrap_err();
        assert!(matches!(error, HandshakeError::HungUp { .. }), "{error}");
    }
}
