// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake of one connection, over its socket, without ever blocking.
//!
//! ```text
//!   progress ─▶ read ─▶ machine.rs: which frame? ─▶ act: check, create, answer (terms.rs: limits)
//!            ─▶ not yet │ Established │ an error
//! ```
//!
//! A listener drives many pending handshakes at a time, a connecting side one; both enforce the
//! deadline. Nothing is allocated for a peer before its credentials were admitted, and everything
//! it sends is checked (SPEC 2.2, 2.8, 3.1). If memory or descriptors for shared memory are
//! lacking, both sides learn the reason and use the socket.

use super::established::{Established, StreamTerms};
use super::machine::{Awaiting, Machine, Misread, Received};
use super::terms;
use crate::channel::{AnyReceiver, AnySender};
use crate::config::Config;
use crate::error::HandshakeError;
use crate::peer::{Peer, Trust, decide_trust};
use crate::protocol::{DriverWaker, Negotiation, Protocol};
use crate::transport::shm::{self, Doorbells, Limits, OwnRegion, PeerRegion, PeerRegionError};
use crate::transport::{Transport, socket};
use partywall_layout::hello::{
    Hello, OFFER_DOORBELLS, Offer, REJECT_TEXT_MAX, ROLE_ACCEPTOR, ROLE_CONNECTOR, Ready,
    RejectHead, SERVICE_SESSION, TRANSPORT_SHM, TRANSPORT_SOCKET, VERSION_MAX, VERSION_MIN,
};
use partywall_layout::{FallbackReason, Geometry, Refusal, Violation};
use partywall_sys::socket::Family;
use partywall_sys::{
    Credentials, Doorbell, DoorbellError, ForkGuard, MemfdError, PidFd, PidFdError, Socket,
};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The handshake of one connection, until it succeeds or fails.
pub(crate) struct Pending {
    pub(super) socket: Socket,
    pub(super) guard: ForkGuard,
    pub(super) config: Config,
    geometry: Geometry,
    pub(super) is_acceptor: bool,
    pub(super) label: String,
    machine: Machine,
    pub(super) own_hello: Hello,
    /// Descriptors that came with the bytes of the current frame.
    descriptors: Vec<OwnedFd>,
    /// Whether the kernel dropped descriptors of the peer, because this process could hold no more.
    is_truncated: bool,
    pub(super) credentials: Option<Credentials>,
    /// The process that the credentials name, from the kernel (Linux 6.5).
    pub(super) process: Option<PidFd>,
    /// Whether the kernel brings that descriptor with each read, until the first frame is read.
    passes_pidfd: bool,
    /// Whether it can: the same kernel then does so for the peer.
    kernel_has_pidfd: bool,
    /// Whether this side has sent READY. From then on the peer may be running.
    is_ready_sent: bool,
    known: Option<Known>,
    /// Other protocols: all that an acceptor serves, or the one that a connector speaks.
    pub(super) protocols: Vec<Arc<dyn Protocol>>,
    /// The handshake of another protocol, if the connection speaks one.
    pub(super) foreign: Option<Foreign>,
}

/// A handshake of another protocol under way.
pub(super) struct Foreign {
    pub protocol: &'static str,
    pub negotiation: Box<dyn Negotiation>,
    pub driver_waker: DriverWaker,
    pub peer: Peer,
}

/// The state of a handshake after the peer's HELLO was checked.
struct Known {
    hello: Hello,
    process: Option<PidFd>,
    peer: Peer,
    limits: Limits,
    session_id: [u8; 16],
    /// The region that this side offered, or why it offered none.
    offered: Result<Offered, FallbackReason>,
    /// Whether both sides offered shared memory.
    is_shm_offered: bool,
    /// The peer's accepted region and doorbells, or why they cannot be used.
    accepted: Result<(PeerRegion, Doorbells), FallbackReason>,
}

/// The region and the doorbells that this side offers.
struct Offered {
    region: OwnRegion,
    doorbells: (Doorbell, Doorbell),
    doorbells_attached: bool,
}

/// Most descriptors that one frame may bring: a region and two doorbells (SPEC 2.2).
const DESCRIPTORS_MAX: usize = 3;

impl Pending {
    /// Begins the acceptor's handshake on a new connection, whose peer may also speak one of
    /// `protocols`.
    pub(crate) fn accepting(
        socket: Socket,
        config: &Config,
        geometry: Geometry,
        service: u32,
        protocols: Vec<Arc<dyn Protocol>>,
    ) -> Self {
        Self::new(socket, config, geometry, true, service, protocols)
    }

    /// Begins the connector's handshake on a new connection: sends HELLO, or starts `protocol`.
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
        let kernel_has_pidfd =
            socket.family() == Family::Unix && socket.set_pass_pidfd(true).is_ok();
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
            process: None,
            passes_pidfd: kernel_has_pidfd,
            kernel_has_pidfd,
            is_ready_sent: false,
            known: None,
            protocols,
            foreign: None,
            socket,
        }
    }

    /// Whether the peer has not sent a byte. Such a peer may only be checking that the listener
    /// lives.
    pub(crate) fn is_untouched(&self) -> bool {
        self.foreign.is_none() && self.machine.is_untouched()
    }

    /// Drives the handshake as far as possible without blocking. Returns the connection once both
    /// sides are ready.
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
                // A hostile peer could attach descriptors to each byte of a frame.
                let (what, found) = ("number of descriptors", self.descriptors.len() as u64);
                return Err(self.violation(Violation::Frame { what, found }));
            }
            self.is_truncated |= received.truncated;
            self.note_sender(received.credentials, received.process)?;
            let frame = match self.machine.feed(&buffer[..received.bytes]) {
                Ok(None) => continue,
                Ok(Some(frame)) => frame,
                Err(Misread::NotPartywall(found)) if self.may_be_foreign(&found) => {
                    self.listen_on(found)?;
                    continue;
                }
                Err(Misread::NotPartywall(found)) => {
                    return Err(self.not_partywall(&found));
                }
                Err(Misread::Violation(violation)) => return Err(self.violation(violation)),
            };
            if let Some(established) = self.act(frame)? {
                return Ok(Some(established));
            }
        }
    }

    /// Takes the sender of the first received bytes for the peer. The rest of HELLO must come from
    /// the same process (SPEC 2.2).
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
        let descriptors = std::mem::take(&mut self.descriptors);
        self.stop_passing_pidfd();
        match received {
            Received::Hello(hello) => self.on_hello(*hello, descriptors).map(|()| None),
            Received::Offer(offer) => self.on_offer(&offer, descriptors).map(|()| None),
            Received::Ready(ready) => self.on_ready(&ready, &descriptors).map(Some),
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

    fn on_hello(&mut self, hello: Hello, descriptors: Vec<OwnedFd>) -> Result<(), HandshakeError> {
        if hello.nonce == self.own_hello.nonce {
            let (peer, found) = (self.peer_name(), "our own words, sent back".to_owned());
            let advice = "is this the right address?";
            return Err(HandshakeError::NotPartywall { peer, found, advice });
        }
        let (asked, offered) = (hello.service.get(), self.own_hello.service.get());
        if asked != offered {
            let offers = if offered == SERVICE_SESSION { "sessions" } else { "channels" };
            self.reject(Refusal::Service, &format!("this listener offers {offers}"));
            return Err(HandshakeError::Service { peer: self.peer_name(), asked, offered });
        }
        terms::check(&hello).map_err(|violation| self.violation(violation))?;
        let process = self.identify(descriptors)?;
        self.admit()?;
        let judged = decide_trust(self.config.trust, self.credentials.as_ref(), process.as_ref());
        let peer = Peer::judged(self.credentials, judged, self.label.clone());
        let region_bytes = self.geometry.region_bytes;
        let session_id = if self.is_acceptor { self.own_hello.nonce } else { hello.nonce };
        let offered = match terms::obstacle(&self.own_hello, &hello, region_bytes) {
            Some(reason) => Err(reason),
            None => self.make_region(session_id, peer.trust),
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
            peer,
            session_id,
            offered,
            is_shm_offered: false,
            accepted: Err(FallbackReason::Policy),
        });
        Ok(())
    }

    /// Each further read would bring one more descriptor of the peer's process.
    pub(super) fn stop_passing_pidfd(&mut self) {
        if std::mem::take(&mut self.passes_pidfd) {
            // It cannot fail, because it could be turned on.
            let _ = self.socket.set_pass_pidfd(false);
        }
    }

    /// Identifies the peer's process: by the kernel's descriptor, or by the one that the peer sent
    /// of itself, which is checked in any case.
    fn identify(&mut self, descriptors: Vec<OwnedFd>) -> Result<Option<PidFd>, HandshakeError> {
        let sent = self.check_sent_process(descriptors)?;
        Ok(self.process.take().or(sent))
    }

    fn check_sent_process(
        &self,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<Option<PidFd>, HandshakeError> {
        if descriptors.len() > 1 {
            let found = descriptors.len() as u64;
            let what = "number of descriptors with HELLO";
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let (Some(descriptor), Some(who)) = (descriptors.pop(), self.credentials) else {
            return Ok(None);
        };
        if !who.is_pid_visible() {
            // The peer is in another pid namespace, so this process knows no process number to
            // compare with the pidfd.
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
        self.assemble(known, theirs)
    }

    /// Duplicates the socket for the transport. The original descriptor stays open until `self` is
    /// dropped.
    pub(super) fn take_socket(&self) -> Result<Socket, HandshakeError> {
        self.socket.try_clone().map_err(|error| self.system("duplicating the socket", error))
    }

    fn send_hello(&self) -> Result<(), HandshakeError> {
        let is_unix = self.socket.family() == Family::Unix;
        // Where the kernel brings the peer a pidfd, none is sent. Without any, only the socket
        // reports our death.
        let process = if is_unix && !self.kernel_has_pidfd { PidFd::of_self().ok() } else { None };
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
            // All frames of one side together are smaller than any socket buffer, so a partial
            // write is an error.
            Ok(_) => Err(self.system("sending", io::ErrorKind::WriteZero.into())),
            // The peer may have sent a refusal before it hung up; the next read shows it.
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
        // Before HELLO came, the socket of an acceptor knows the credentials of the connecting
        // process. The socket of a connector would name the process that called `listen`.
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

    pub(crate) fn timed_out(&self) -> HandshakeError {
        HandshakeError::TimedOut { peer: self.peer_name(), hint: self.hint() }
    }

    pub(super) fn hung_up(&self) -> HandshakeError {
        HandshakeError::HungUp { peer: self.peer_name(), hint: self.hint() }
    }

    /// Checks the peer's offer. The inner `Err` is the reason why shared memory cannot be used.
    fn judge_offer(
        &self,
        offer: &Offer,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Result<(PeerRegion, Doorbells), FallbackReason>, HandshakeError> {
        let is_shared_memory = offer.transport.get() == TRANSPORT_SHM;
        let has_doorbells = offer.flags.get() & OFFER_DOORBELLS != 0;
        let expected = match (is_shared_memory, has_doorbells) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 3,
        };
        if descriptors.len() > expected {
            let found = descriptors.len() as u64;
            let what = "number of descriptors with OFFER";
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let Some(known) = &self.known else {
            return Err(self.violation(Violation::Frame { what: "order of frames", found: 0 }));
        };
        let offered = match &known.offered {
            Err(reason) => return Ok(Err(*reason)),
            Ok(_) if !is_shared_memory => {
                return Ok(Err(FallbackReason::from_number(offer.reason.get())
                    .unwrap_or(FallbackReason::Policy)));
            }
            Ok(offered) => offered,
        };
        if descriptors.len() < expected {
            if self.is_truncated {
                return Ok(Err(FallbackReason::Descriptors));
            }
            let found = descriptors.len() as u64;
            let what = "number of descriptors with OFFER";
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let mut descriptors = descriptors.into_iter();
        let (region, records, space) = (descriptors.next(), descriptors.next(), descriptors.next());
        let Some(region) = region else { return Ok(Err(FallbackReason::Descriptors)) };
        let peer_region = match self.accept_region(known, offer, region.as_fd())? {
            Ok(peer_region) => peer_region,
            Err(reason) => return Ok(Err(reason)),
        };
        let doorbells = match (records, space) {
            (Some(records), Some(space)) if offered.doorbells_attached => Doorbells::Eventfd {
                records: self.doorbell(records)?,
                space: self.doorbell(space)?,
            },
            // At least one side does not trust the other, so each notifies the other over the
            // socket.
            _ => Doorbells::Byte,
        };
        Ok(Ok((peer_region, doorbells)))
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
        match PeerRegion::accept(descriptor, size, limit, &known.session_id, role) {
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
        known: Known,
        theirs: Option<FallbackReason>,
    ) -> Result<Established, HandshakeError> {
        let (is_acceptor, peer) = (self.is_acceptor, known.peer);
        let peer_streams = StreamTerms {
            window: known.hello.stream_window.get(),
            streams_max: known.hello.streams_max.get(),
            opens: true,
        };
        let fallback = match (known.offered, known.accepted, theirs) {
            (Ok(mut offered), Ok((peer_region, doorbells)), None) => {
                if offered.doorbells_attached && matches!(doorbells, Doorbells::Byte) {
                    // The peer has this side's doorbells but they will not be used. The peer could
                    // make notifying them block, so new ones replace them.
                    let doorbell =
                        || Doorbell::new().map_err(|error| self.system("making a doorbell", error));
                    offered.doorbells = (doorbell()?, doorbell()?);
                }
                let parts = shm::ShmParts {
                    socket: self.take_socket()?,
                    peer: peer.clone(),
                    process: known.process,
                    guard: self.guard,
                    limits: known.limits,
                    own: offered.region,
                    peer_region,
                    own_doorbells: offered.doorbells,
                    doorbells,
                };
                let (sender, receiver) = shm::assemble(parts, &self.config)
                    .map_err(|error| self.system("setting up shared memory", error))?;
                let (sender, receiver) =
                    (AnySender::SharedMemory(sender), AnyReceiver::SharedMemory(receiver));
                let transport = Transport::SharedMemory;
                return Ok(Established {
                    sender,
                    receiver,
                    peer,
                    transport,
                    is_acceptor,
                    peer_streams,
                });
            }
            (Err(reason), _, _) | (_, Err(reason), _) | (_, _, Some(reason)) => reason,
        };
        if !terms::socket_suits(&self.own_hello, &known.hello) {
            self.reject(Refusal::Transport, &fallback.to_string());
            return Err(HandshakeError::NoTransport { reason: fallback });
        }
        let parts = socket::SocketParts {
            socket: self.take_socket()?,
            peer: peer.clone(),
            process: known.process,
            guard: self.guard,
            message_max: known.limits.message,
            peer_message_max: known.limits.peer_message,
        };
        let (sender, receiver) = socket::assemble(parts, &self.config)
            .map_err(|error| self.system("setting up the socket", error))?;
        let (sender, receiver) = (AnySender::Socket(sender), AnyReceiver::Socket(receiver));
        let transport = Transport::Socket(fallback);
        Ok(Established { sender, receiver, peer, transport, is_acceptor, peer_streams })
    }
}

impl AsFd for Pending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
