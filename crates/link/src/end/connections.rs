// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections of one end of a link: this file handles their ready sockets, due timers, and new
//! connections.
//!
//! ```text
//!   ready ─▶ an attempt: connected, attach; a wire: read ─▶ write ─▶ acknowledge
//!   due   ─▶ dial; end attempts and connections that take too long to attach
//!   ended ─▶ forget the wire of the connection; a client dials again
//!
//!   a connection that a server took:
//!     greeting ─▶ peer memory mapped ─▶ transport allowed? ─▶ LinkState ─ answered ─▶ attaches
//!                                           └ no: refused         └ refused ─▶ REFUSE, closed
//! ```

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::BytesMut;
use partywall::{Peer, TransportPolicy};
use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, Family, Socket, peer};
use partywall_wait::deadline_after;

use super::dialer::{Dialer, Phase};
use super::wire::{Doorbells, Wire, map_peer_memory, refuse};
use super::{Endpoint, Locked, State};
use crate::drive::Source;
use crate::error::Stopped;
use crate::link_state::Event;
use crate::link_state::{Answer, End, Received};
use crate::protocol::frame::Attach;

pub(super) struct Connections {
    pub(super) wires: Vec<Wire>,
    /// The dialer, which makes a client's next connection; `None` at a server.
    pub(super) dialer: Option<Dialer>,
    pub(super) timer: Option<Instant>,
    /// Whether a connection was attached, and the server, which offers new links to the
    /// application, has not been notified of that yet.
    pub(super) is_new: bool,
    /// Error text of the last failed attempt to attach; empty if an attempt has succeeded since.
    pub(super) last_attempt: String,
}

/// A connection that a server accepted. The client's first frame, ATTACH, names the link that takes
/// this connection over.
pub(crate) struct Adopted {
    pub(crate) socket: Socket,
    pub(crate) token: u64,
    /// Bytes that were read together with ATTACH, and come after it.
    pub(crate) input: BytesMut,
    /// Descriptors that arrived with the connection's first byte: the client's memory and its
    /// doorbell, if it shares memory.
    pub(crate) descriptors: Vec<OwnedFd>,
    pub(crate) peer: Peer,
}

#[derive(Clone, Copy)]
pub(crate) struct ConnectionDriver<'a> {
    pub(super) end: &'a Endpoint,
}

impl ConnectionDriver<'_> {
    pub(super) fn read(&self, state: &mut Locked<'_>, index: usize) {
        let State { core: Some(core), connections: Connections { wires, .. }, .. } = &mut **state
        else {
            return;
        };
        let (wire, mut received) = (&mut wires[index], Received::default());
        let (read, token) = (wire.read(core, &mut received), wire.token);
        self.received(state, token, received);
        if let (Err(end), Some(index)) = (read, state.connections.index(token)) {
            self.end(state, index, end);
        }
    }

    fn received(&self, state: &mut Locked<'_>, token: u64, received: Received) {
        if received.activated {
            self.activated(state, token);
            self.judge_conn(state, token);
        }
        if received.activated || received.has_progress {
            // The frames read now may have caused bytes to send: a reply to a handshake frame, an
            // acknowledgement, or records that had to wait until the connection was attached.
            state.connections.index(token).into_iter().for_each(|index| self.write(state, index));
            // The application may have acknowledged messages before the server's BEGIN, the last
            // frame of the handshake, arrived. The peer has not received these acknowledgements
            // yet.
            let is_shared = state.is_shared();
            self.end.exchange().acknowledge(state, is_shared);
            if is_shared {
                // Since BEGIN, the last frame of the handshake, has arrived, this end may read in
                // shared memory how far the peer has acknowledged (its acked offset). The peer
                // sends no notification for an offset that it stored before.
                self.end.exchange().poll_acks(state);
            }
            self.end.report_change(state);
        }
    }

    /// Ends a connection whose transport or window this end does not accept. A server has checked
    /// the client's window before the connection was attached; a client learns the server's window
    /// only by attaching. Neither end knows before attaching whether memory is shared.
    fn judge_conn(&self, state: &mut Locked<'_>, token: u64) {
        let Some(index) = state.connections.index(token) else { return };
        let conn = &state.connections.wires[index].conn;
        let Some(window) = conn.window() else { return };
        let judged = self.end.config.judge_transport(conn.is_shared());
        if let Err(refusal) = judged.and_then(|()| self.end.config.judge_window(window)) {
            self.end(state, index, End::Refused { by_us: true, refusal });
        }
    }

    /// Makes the connection with this `token` the present one, which carries all records, and ends
    /// the one that was present before.
    fn activated(&self, state: &mut Locked<'_>, token: u64) {
        state.stats.connections += 1;
        state.connections.is_new = true;
        state.connections.last_attempt.clear();
        if let Some(dialer) = &mut state.connections.dialer {
            dialer.succeeded();
        }
        let is_old = |wire: &Wire| wire.token != token && wire.active_since.is_some();
        while let Some(index) = state.connections.wires.iter().position(is_old) {
            self.end(state, index, End::Replaced);
        }
        self.end.wakeups().rearm(state);
        self.set_timer(state);
    }

    pub(super) fn write(&self, state: &mut Locked<'_>, index: usize) {
        let is_awaited = state.wakeups.awaiting_writes > 0;
        let State { core: Some(core), connections: Connections { wires, .. }, .. } = &mut **state
        else {
            return;
        };
        let wire = &mut wires[index];
        let is_shared = wire.conn.is_shared();
        let before = is_awaited.then(|| core.next_outgoing(&wire.conn));
        let written = if is_shared && !wire.conn.has_control() {
            Ok(())
        } else {
            wire.flush(core, &self.end.group.reactor)
        };
        let has_written = before.is_some_and(|before| core.next_outgoing(&wire.conn) != before);
        let Err(why) = written else {
            if is_shared {
                self.end.exchange().notify(state);
            }
            if has_written {
                state.changed();
            }
            return;
        };
        let (mut received, token) = (Received::default(), wire.token);
        let end = wire.drain(core, &mut received, why);
        if received.activated {
            self.activated(state, token);
        }
        // The messages and acknowledgements that were read last need no notification of their own:
        // the end of the connection wakes all waiting threads, which then find them.
        state
            .connections
            .index(token)
            .into_iter()
            .for_each(|index| self.end(state, index, end.clone()));
    }

    /// Ends the connection with this `index`. Frames that are still queued are sent if the kernel
    /// takes them, such as REFUSE (the refusal of a client) or LEAVE (which says that this end has
    /// sent all its messages).
    pub(super) fn end(&self, state: &mut Locked<'_>, index: usize, end: End) {
        let is_pressing = state.has_unacked();
        let mut wire = state.connections.wires.remove(index);
        let mut end = end;
        if let Some(core) = &mut state.core {
            end = core.ended(&mut wire.conn, end);
            let _ = wire.flush(core, &self.end.group.reactor);
        }
        self.end.group.reactor.unwatch(&wire.socket, wire.token);
        let Connections { dialer, wires, .. } = &mut state.connections;
        if let Some(dialer) = dialer {
            let goes_on = wires.iter().any(|other| other.aim == dialer.aim);
            if matches!(dialer.phase, Phase::Reached) && !goes_on {
                dialer.ended(&self.end.config, &end, wire.active_since, is_pressing);
            }
        }
        if state.stopped().is_some() {
            state.connections.dialer.iter_mut().for_each(|dialer| dialer.phase = Phase::Stopped);
        }
        if wire.active_since.is_none() {
            self.attempt_failed(state, end.to_string());
        }
        self.set_timer(state);
        self.end.report_change(state);
    }

    /// Reports to the application that an attempt to attach failed, unless the last report gave the
    /// same reason.
    pub(super) fn attempt_failed(&self, state: &mut Locked<'_>, reason: String) {
        if state.connections.last_attempt == reason {
            return;
        }
        if let Some(core) = &mut state.core {
            core.push_event(Event::Refused { reason: reason.clone() });
        }
        state.connections.last_attempt = reason;
        self.end.report_change(state);
    }

    pub(super) fn set_timer(&self, state: &mut Locked<'_>) {
        let wires = state.connections.wires.iter().filter(|wire| wire.active_since.is_none());
        let dialing = state.connections.dialer.as_ref().and_then(|dialer| match &dialer.phase {
            Phase::Waiting(until) => Some(*until),
            Phase::Connecting { deadline, .. } => Some(*deadline),
            Phase::Reached | Phase::Stopped => None,
        });
        let new = wires.map(|wire| wire.deadline).chain(dialing).min();
        self.end.group.reactor.set_timer(self.end.timer_token, state.connections.timer, new);
        state.connections.timer = new;
    }

    /// Takes over, for this link, a client's connection on which the server has read ATTACH. The
    /// answer, the frame ATTACHED, carries `login`, the reply of the server's application.
    pub(crate) fn adopt(&self, adopted: Adopted, attach: Attach, login: Vec<u8>) {
        let Adopted { socket, token, input, descriptors, peer } = adopted;
        // The client's memory is mapped before the link is locked. Memory that exceeds the limit of
        // the configuration is not mapped.
        let found = attach.shares.then_some(descriptors).filter(|_| self.may_share(&socket));
        let found = found
            .and_then(|descriptors| map_peer_memory(descriptors, self.end.config.peer_bytes_max()));
        if let Err(refusal) = self.end.config.judge_transport(found.is_some()) {
            // Refusing a client's new connection leaves the present connection of the link as it
            // is.
            refuse(&socket, attach.nonce, refusal);
            return self.end.group.reactor.unwatch(&socket, token);
        }
        let mut state = self.end.monitor.lock();
        if state.core.is_none() {
            return self.end.group.reactor.unwatch(&socket, token);
        }
        let candidates =
            state.connections.wires.iter().filter(|wire| !wire.conn.is_active()).count();
        if candidates >= CANDIDATES_MAX {
            // The wires are in the order of their arrival, so the first one that is not attached
            // has been silent for the longest time.
            let oldest = state.connections.wires.iter().position(|wire| !wire.conn.is_active());
            let end = End::Broken("too many attach at once".to_owned());
            oldest.into_iter().for_each(|index| self.end(&mut state, index, end.clone()));
        }
        let (mapping, doorbells) = found
            .and_then(|(mapping, doorbell)| {
                Some((mapping, self.doorbells_of_server(&mut state, doorbell)?))
            })
            .map_or((None, None), |(mapping, doorbells)| (Some(mapping), Some(doorbells)));
        let Ok(core) = state.core() else {
            self.end.group.reactor.unwatch(&socket, token);
            return;
        };
        let deadline = deadline_after(self.end.config.handshake_timeout);
        let (conn, refused) = match core.answer_attach(attach, login, mapping) {
            Answer::Attached(conn) => (conn, None),
            Answer::Refused(conn, end) => (conn, Some(end)),
        };
        let mut wire = Wire::new(socket, token, conn, input, peer, deadline);
        wire.doorbells = doorbells;
        state.connections.wires.push(wire);
        let index = state.connections.wires.len() - 1;
        match refused {
            Some(end) => self.end(&mut state, index, end),
            None => {
                self.end.group.reactor.reassign(token, self.end.me.clone());
                self.write(&mut state, index);
            }
        }
        self.set_timer(&mut state);
    }

    /// Begins the given epoch at this end, and ends every connection of the link, because both ends
    /// have to attach again in the new epoch.
    pub(crate) fn begin_epoch(
        &self,
        epoch: u64,
    ) -> Result<Result<(), crate::link_state::StaleEpoch>, Stopped> {
        let mut state = self.end.lock()?;
        let begun = state.core()?.begin_epoch(partywall_reconcile::Epoch(epoch));
        if begun.is_ok() {
            while !state.connections.wires.is_empty() {
                self.end(&mut state, 0, End::EpochAdopted);
            }
            self.end.report_change(&mut state);
        }
        Ok(begun)
    }

    pub(super) fn may_share(&self, socket: &Socket) -> bool {
        let is_near = socket.family() == Family::Unix;
        if !is_near || self.end.config.transport == TransportPolicy::Socket {
            return false;
        }
        is_of_our_user(socket)
    }

    /// Returns the two doorbells, the server's and the client's, for a connection over which both
    /// have shared their memory.
    pub(super) fn doorbells_of_server(
        &self,
        state: &mut Locked<'_>,
        peers: Doorbell,
    ) -> Option<Doorbells> {
        let own = self.end.wakeups().own_doorbell(state)?;
        Some(Doorbells { own, peers: Some(peers), peer_bytes_max: 0 })
    }
}

impl Source for Endpoint {
    fn ready(self: Arc<Self>, token: u64, flags: EventFlags) {
        if self.guard.is_child() {
            return;
        }
        let mut state = self.monitor.lock();
        if self.wakeups().is_notified(&mut state, token) {
            return;
        }
        if let Some(index) = state.connections.index(token) {
            if flags.contains(EventFlags::OUT) {
                self.connections().write(&mut state, index);
            }
            if flags.intersects(!EventFlags::OUT) {
                // Writing may have ended the connection and removed it from the list of
                // connections, so the index of the connection is looked up again by its token.
                state
                    .connections
                    .index(token)
                    .into_iter()
                    .for_each(|index| self.connections().read(&mut state, index));
            }
        } else {
            self.dial().reached(&mut state, token);
        }
        let is_new = std::mem::take(&mut state.connections.is_new) && state.claim.offer();
        drop(state);
        if let (true, Some(home)) = (is_new, self.home.as_ref().and_then(Weak::upgrade)) {
            home.attached(self);
        }
    }

    fn due(self: Arc<Self>, _token: u64) {
        if self.guard.is_child() {
            return;
        }
        let mut state = self.monitor.lock();
        // The reactor has removed the timer that is due, before it called this function. So this
        // end has no timer now.
        state.connections.timer = None;
        let now = Instant::now();
        while let Some(index) = state.connections.wires.iter().position(|wire| wire.is_late(now)) {
            let end = End::Broken("attaching took too long".to_owned());
            self.connections().end(&mut state, index, end);
        }
        let (mut is_time, mut is_late) = (false, false);
        match state.connections.dialer.as_ref().map(|dialer| &dialer.phase) {
            Some(Phase::Waiting(until)) => is_time = *until <= now,
            Some(Phase::Connecting { deadline, .. }) => is_late = *deadline <= now,
            _ => {}
        }
        if is_time {
            self.dial().dial(&mut state);
        } else if is_late {
            self.dial().dialing_failed(&mut state, "connecting took too long".to_owned());
        }
        self.connections().set_timer(&mut state);
    }

    fn settle(self: Arc<Self>) {
        if self.guard.is_child() {
            return;
        }
        let mut state = self.monitor.lock();
        state.wakeups.is_unsettled = false;
        self.exchange().acknowledge(&mut state, true);
    }

    fn arm(self: Arc<Self>) {
        if !self.guard.is_child() {
            self.wakeups().arm_listed(&mut self.monitor.lock());
        }
    }
}

impl Connections {
    pub(super) fn new(dialer: Option<Dialer>) -> Self {
        Self { wires: Vec::new(), dialer, timer: None, is_new: false, last_attempt: String::new() }
    }

    /// Index of the attached connection, on which records can flow, if there is one.
    #[inline]
    pub(super) fn active(&self) -> Option<usize> {
        self.wires.iter().position(|wire| wire.conn.is_active())
    }

    /// Index of the connection whose socket has this `token`, if the connection still exists.
    pub(super) fn index(&self, token: u64) -> Option<usize> {
        self.wires.iter().position(|wire| wire.token == token)
    }
}

/// Whether the process at the other end of a Unix socket has the same effective user as this
/// process.
pub(crate) fn is_of_our_user(socket: &Socket) -> bool {
    let own = peer::own_euid();
    // A user namespace shows all users that it does not map as one overflow number, so two
    // different users may have that number.
    own != peer::overflow_uid() && socket.peer_credentials().is_some_and(|found| found.uid == own)
}

/// Maximum number of connections of one link that may be attaching at the same time; a further one
/// ends the oldest of them.
const CANDIDATES_MAX: usize = 4;
