// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whoever speaks another protocol: handed to its dialect, and what that comes to.
//!
//! ```text
//!   not our first bytes ─▶ recognise ── yes ──▶ admitted? ─▶ Dialect::accept  ┐
//!                                  └─ perhaps ─▶ read on                      ├▶ progress ─▶ Established
//!   Config::speak ────────────────────────────▶ admitted? ─▶ Dialect::connect ┘
//! ```
//!
//! The same rules hold as for our own protocol: who may come in, how far they are trusted, and by when they must
//! be ready. A dialect's peer proves nothing about itself, so it counts as trusted only where the kernel says
//! who it is, and that process lives in our namespaces.

use super::{Established, Foreign, Pending, StreamTerms};
use crate::dialect::{Caller, Dialect, DialectError, Meeting, Recognition};
use crate::error::HandshakeError;
use crate::peer::{Peer, decide_trust};
use crate::transport::dialect::{Parts, WINDOW, assemble};
use crate::transport::{RecvWire, SendWire, Transport};
use partywall_layout::hello::SERVICE_SESSION;
use partywall_sys::PidFd;
use partywall_sys::socket::Family;
use std::sync::Arc;

impl Pending {
    /// Whether these may be the first bytes of a dialect that this listener speaks.
    pub(super) fn may_be_foreign(&self, found: &[u8]) -> bool {
        self.is_acceptor && self.recognition(found).is_some()
    }

    /// The dialect of these bytes; `Some(None)` if more of them are needed.
    fn recognition(&self, found: &[u8]) -> Option<Option<Arc<dyn Dialect>>> {
        let mut is_open = false;
        for dialect in &self.config.dialects {
            match dialect.recognise(found) {
                Recognition::Yes => return Some(Some(Arc::clone(dialect))),
                Recognition::Perhaps => is_open |= found.len() < RECOGNISED_BYTES,
                Recognition::No => {}
            }
        }
        is_open.then_some(None)
    }

    /// These are the first bytes of a dialect, or may be: then more will tell.
    pub(super) fn listen_on(&mut self, found: Vec<u8>) -> Result<(), HandshakeError> {
        let Some(Some(dialect)) = self.recognition(&found) else { return Ok(()) };
        self.begin_foreign(&*dialect, found)
    }

    /// Speaks another protocol on a connection that we made.
    pub(super) fn speak(
        &mut self,
        dialect: &dyn Dialect,
        service: u32,
    ) -> Result<(), HandshakeError> {
        if service != SERVICE_SESSION {
            let what = "it has sessions only: open one, or leave out Config::speak".to_owned();
            return Err(self.foreign_failed(dialect.name(), DialectError::Refused { what }));
        }
        self.credentials = self.socket.peer_credentials();
        self.begin_foreign(dialect, Vec::new())
    }

    fn begin_foreign(
        &mut self,
        dialect: &dyn Dialect,
        first: Vec<u8>,
    ) -> Result<(), HandshakeError> {
        let name = dialect.name();
        if self.own_hello.service.get() != SERVICE_SESSION {
            let what = "it has sessions only, and this listener serves channels".to_owned();
            return Err(self.foreign_failed(name, DialectError::Refused { what }));
        }
        self.admit()?;
        // Its process is known by number only, and may be gone: then the connection is, too.
        let known = self.credentials.filter(|who| who.is_pid_visible());
        let process = known.and_then(|who| PidFd::of_pid(who.pid).ok());
        let trust = decide_trust(self.config.trust, self.credentials.as_ref(), process.as_ref());
        let caller = Caller::new().map_err(|error| self.system("making a bell", error))?;
        if self.socket.family() == Family::Tcp {
            // A dialect's wake-ups are few bytes each, and must not wait for one another.
            let _ = self.socket.set_nodelay(true);
        }
        let meeting = Meeting {
            socket: self.take_socket()?,
            first,
            credentials: self.credentials,
            trust,
            config: self.config.clone(),
            caller: caller.clone(),
        };
        let begun =
            if self.is_acceptor { dialect.accept(meeting) } else { dialect.connect(meeting) };
        let negotiation = begun.map_err(|error| self.foreign_failed(name, error))?;
        let peer = Peer { credentials: self.credentials, trust, label: self.label.clone() };
        self.foreign = Some(Foreign { dialect: name, negotiation, caller, peer });
        Ok(())
    }

    pub(super) fn progress_foreign(&mut self) -> Result<Option<Established>, HandshakeError> {
        let Some(mut foreign) = self.foreign.take() else { return Ok(None) };
        let progressed = foreign.negotiation.progress();
        let line = match progressed {
            Ok(Some(line)) => line,
            Ok(None) => {
                self.foreign = Some(foreign);
                return Ok(None);
            }
            Err(DialectError::HungUp) => {
                return Err(self.hung_up());
            }
            Err(error) => return Err(self.foreign_failed(foreign.dialect, error)),
        };
        let Foreign { dialect, caller, peer, .. } = foreign;
        let transport = Transport::Dialect(line.description);
        let opens = line.peer_opens;
        let streams_max = line.streams_max.min(self.config.streams_max_effective());
        let (is_acceptor, guard) = (self.is_acceptor, self.guard);
        let parts = Parts { line, caller, dialect, peer: peer.to_string(), guard, is_acceptor };
        let (sender, receiver) =
            assemble(parts).map_err(|error| self.system("setting up the line", error))?;
        Ok(Some(Established {
            sender: SendWire::Dialect(sender),
            receiver: RecvWire::Dialect(receiver),
            peer,
            transport,
            is_acceptor,
            // It says nothing of streams: as many as we would bear ourselves.
            peer_streams: StreamTerms { window: WINDOW, streams_max, opens },
        }))
    }

    #[cold]
    fn foreign_failed(&self, dialect: &'static str, reason: DialectError) -> HandshakeError {
        HandshakeError::Dialect { peer: self.label.clone(), dialect, reason }
    }

    /// The other side began with these bytes, and nobody here speaks that.
    #[cold]
    pub(super) fn not_partywall(&self, found: &[u8]) -> HandshakeError {
        let advice = match (is_shmipc(found), self.is_acceptor) {
            // One that is spoken here does not know them either.
            (true, true) if self.config.dialects.is_empty() => SHMIPC_CAME,
            (true, false) => SHMIPC_ANSWERED,
            _ => "is this the right address?",
        };
        let (peer, found) = (self.label.clone(), printable(found));
        HandshakeError::NotPartywall { peer, found, advice }
    }

    /// What may be the matter if the other side says nothing, or hangs up.
    pub(super) fn hint(&self) -> &'static str {
        let is_session = self.own_hello.service.get() == SERVICE_SESSION;
        match (self.is_acceptor, self.config.speaks.is_some()) {
            (false, true) => NO_DIALECT,
            (false, false) if is_session => PERHAPS_SHMIPC,
            _ => "",
        }
    }
}

/// Whether these are the first bytes of a message of shmipc: a length that is none too great, and its magic.
fn is_shmipc(found: &[u8]) -> bool {
    found.starts_with(&[0, 0]) && found.get(4..6) == Some(SHMIPC_MAGIC)
}

/// The first bytes of a stranger, for people.
fn printable(bytes: &[u8]) -> String {
    let text: String =
        bytes.iter().take(16).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
    format!("\"{text}\"")
}

/// In each message of shmipc, behind its length.
const SHMIPC_MAGIC: &[u8] = &[0x77, 0x58];
const SHMIPC_CAME: &str = "it speaks shmipc: give the listener Config::dialect";
const SHMIPC_ANSWERED: &str = "it speaks shmipc: reach it with Config::speak";
const PERHAPS_SHMIPC: &str = "; if it is a server of shmipc, reach it with Config::speak";
const NO_DIALECT: &str = "; if it is a listener of Partywall, give it Config::dialect";
/// So many bytes must be enough to recognise a dialect.
const RECOGNISED_BYTES: usize = 8;
