// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a ready socket, a timer and a new connection do to a link.
//!
//! ```text
//!   ready ─▶ connected? attach : read ─▶ acknowledge ─▶ write        ended ─▶ forget the wire, a client dials again
//!   due   ─▶ dial, give up what takes too long
//! ```

use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::BytesMut;
use partywall_sys::epoll::EventFlags;
use partywall_sys::{Begun, Socket};

use super::dialer::Phase;
use super::wire::Wire;
use super::{Endpoint, Locked, State};
use crate::drive::Source;
use crate::link_state::Event;
use crate::link_state::{Conn, End, NotifyDue, Received};
use partywall::Address;
use partywall::{Peer, Trust};
use partywall_wait::deadline_after;

impl Source for Endpoint {
    fn ready(self: Arc<Self>, token: u64, flags: EventFlags) {
        if self.guard.is_child() {
            return;
        }
        let mut state = self.monitor.lock();
        if self.is_notified(&mut state, token) {
            return;
        }
        if let Some(index) = state.index(token) {
            if flags.contains(EventFlags::OUT) {
                self.write(&mut state, index);
            }
            if flags.intersects(!EventFlags::OUT) {
                // The write may have ended it.
                state.index(token).into_iter().for_each(|index| self.read(&mut state, index));
            }
        } else {
            self.reached(&mut state, token);
        }
        let is_new = std::mem::take(&mut state.is_new) && !state.is_out && !state.is_offered;
        state.is_offered |= is_new;
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
        // The hub has taken it out.
        state.timer = None;
        let now = Instant::now();
        while let Some(index) = state.wires.iter().position(|wire| wire.is_late(now)) {
            let end = End::Broken("attaching took too long".to_owned());
            self.end(&mut state, index, end);
        }
        let (mut is_time, mut is_late) = (false, false);
        match state.dialer.as_ref().map(|dialer| &dialer.phase) {
            Some(Phase::Waiting(until)) => is_time = *until <= now,
            Some(Phase::Connecting { deadline, .. }) => is_late = *deadline <= now,
            _ => {}
        }
        if is_time {
            self.dial(&mut state);
        } else if is_late {
            self.dialing_failed(&mut state, "connecting took too long".to_owned());
        }
        self.set_timer(&mut state);
    }

    fn settle(self: Arc<Self>) {
        if self.guard.is_child() {
            return;
        }
        let mut state = self.monitor.lock();
        state.is_owing = false;
        self.acknowledge(&mut state, true);
    }

    fn lie_down(self: Arc<Self>) {
        if !self.guard.is_child() {
            self.lie_down_listed(&mut self.monitor.lock());
        }
    }
}

impl Endpoint {
    /// Tells the neighbour of what is new: rings it, or writes to the present connection what the kernel takes.
    #[inline]
    pub(super) fn push(&self, state: &mut Locked<'_>) {
        let Some(index) = state.active() else { return };
        if state.is_shared() && !state.wires[index].conn.has_control() {
            return self.notify(state);
        }
        self.write(state, index);
    }

    /// Tells the neighbour how far was consumed, if that is due. `is_idle`: somebody is about to wait.
    #[inline]
    pub(super) fn acknowledge(&self, state: &mut Locked<'_>, is_idle: bool) {
        if state.is_shared() {
            // It reads that itself; it may be asleep.
            let due = state.core.as_ref().map_or(NotifyDue::Never, |core| core.notify_due());
            if due == NotifyDue::Now || is_idle && due != NotifyDue::Never {
                self.notify(state);
            }
            return;
        }
        let Some(index) = state.active() else { return };
        let State { core: Some(core), wires, stats, .. } = &mut **state else { return };
        let wire = &mut wires[index];
        if core.is_ack_due(&wire.conn, is_idle) {
            stats.acknowledgements += 1;
            core.acknowledge(&mut wire.conn, is_idle);
            self.write(state, index);
        }
    }

    /// There may be something to acknowledge: now if somebody waits already, else when somebody does. Until then a
    /// message may carry it.
    #[inline(always)]
    pub(super) fn owe(&self, state: &mut Locked<'_>) {
        if state.is_shared() { self.owe_a_look(state) } else { self.owe_an_acknowledgement(state) }
    }

    #[inline(never)]
    fn owe_an_acknowledgement(&self, state: &mut Locked<'_>) {
        self.acknowledge(state, false);
        if state.is_detached() {
            return;
        }
        let is_listed = std::mem::replace(&mut state.is_owing, true);
        let me: Weak<dyn Source> = self.me.clone();
        let is_leader_asleep = self.group.reactor.owe((!is_listed).then_some(me));
        // This thread may not come back for long, and the leader sleeps until something else happens.
        if is_leader_asleep && state.core.as_ref().is_some_and(|core| !core.has_next()) {
            self.acknowledge(state, true);
        }
    }

    /// Begins the next connection of a client.
    pub(super) fn dial(&self, state: &mut Locked<'_>) {
        if state.stopped().is_some() {
            state.dialer.iter_mut().for_each(|dialer| dialer.phase = Phase::Stopped);
            return;
        }
        let Some(dialer) = &mut state.dialer else { return };
        match dialer.begin() {
            Err(reason) => self.dialing_failed(state, reason),
            Ok(begun) if begun.is_connected() => self.connected(state, begun),
            Ok(begun) => {
                let token = self.group.reactor.enter(self.me.clone());
                let deadline = deadline_after(self.config.handshake_timeout);
                if let Err(error) = self.group.reactor.watch(&begun, EventFlags::OUT, token) {
                    self.group.reactor.forget(token);
                    return self.dialing_failed(state, format!("epoll: {error}"));
                }
                dialer.phase = Phase::Connecting { begun, token, deadline };
                self.set_timer(state);
            }
        }
    }

    /// The descriptor of a connection that was begun is ready.
    fn reached(&self, state: &mut Locked<'_>, token: u64) {
        let Some(dialer) = &mut state.dialer else { return };
        match std::mem::replace(&mut dialer.phase, Phase::Reached) {
            Phase::Connecting { begun, token: expected, .. } if expected == token => {
                self.group.reactor.unwatch(&begun, token);
                self.connected(state, begun);
            }
            other => dialer.phase = other,
        }
    }

    fn connected(&self, state: &mut Locked<'_>, begun: Begun) {
        let socket = match begun.finish() {
            Ok(socket) => socket,
            Err(error) => return self.dialing_failed(state, error.to_string()),
        };
        let (peer, is_abstract) = match &state.dialer {
            Some(dialer) => {
                let (credentials, label) = (socket.peer_credentials(), dialer.address.to_string());
                let peer = Peer::new(credentials, Trust::Untrusted, label);
                (peer, matches!(dialer.address, Address::Abstract(_)))
            }
            None => return,
        };
        let rule = admission(&self.config, is_abstract);
        if let Some(Err(reason)) = rule.map(|rule| rule.judge(peer.credentials.as_ref())) {
            return self.dialing_failed(state, format!("{peer} is not admitted: {reason}"));
        }
        // It fails only where the peer has gone, as the first read will tell.
        let _ = socket.set_dead_after(self.config.dead_after);
        match self.begin_attaching(state, socket, peer) {
            Ok(()) => self.set_timer(state),
            Err(reason) => self.dialing_failed(state, reason),
        }
    }

    fn begin_attaching(
        &self,
        state: &mut Locked<'_>,
        socket: Socket,
        peer: Peer,
    ) -> Result<(), String> {
        let doorbells = self.may_share(&socket).then(|| self.doorbells_to_show(state)).flatten();
        // Before the connection that there is gives way.
        self.config.judge_transport(doorbells.is_some()).map_err(|refusal| refusal.to_string())?;
        let State { core: Some(core), dialer: Some(dialer), wires, .. } = &mut **state else {
            return Ok(());
        };
        let (names, login) = (dialer.names.clone(), self.config.login.clone());
        let conn = match doorbells {
            Some(_) => core.attach_shm(names, login),
            None => core.attach(names, login),
        };
        let Some(conn) = conn else {
            dialer.phase = Phase::Stopped;
            return Ok(());
        };
        let token = self.group.reactor.enter(self.me.clone());
        if let Err(error) = self.group.reactor.watch(&socket, EventFlags::IN, token) {
            self.group.reactor.forget(token);
            drop_conn(core, conn);
            return Err(format!("epoll: {error}"));
        }
        let deadline = deadline_after(self.config.handshake_timeout);
        let mut wire = Wire::new(socket, token, conn, BytesMut::new(), peer, deadline);
        wire.doorbells = doorbells.filter(|_| wire.conn.descriptor().is_some());
        wire.aim = dialer.aim;
        wires.push(wire);
        dialer.phase = Phase::Reached;
        let index = wires.len() - 1;
        self.write(state, index);
        Ok(())
    }

    fn dialing_failed(&self, state: &mut Locked<'_>, reason: String) {
        let is_pressing = state.is_pressing();
        if let Some(dialer) = &mut state.dialer {
            if let Phase::Connecting { begun, token, .. } = &dialer.phase {
                self.group.reactor.unwatch(begun, *token);
            }
            dialer.failed(&self.config, is_pressing);
        }
        self.attempt_failed(state, reason);
        self.set_timer(state);
    }

    pub(super) fn read(&self, state: &mut Locked<'_>, index: usize) {
        let State { core: Some(core), wires, .. } = &mut **state else { return };
        let (wire, mut received) = (&mut wires[index], Received::default());
        let (read, token) = (wire.read(core, &mut received), wire.token);
        self.took(state, token, received);
        if let (Err(end), Some(index)) = (read, state.index(token)) {
            self.end(state, index, end);
        }
    }

    fn took(&self, state: &mut Locked<'_>, token: u64, received: Received) {
        if received.activated {
            self.activated(state, token);
            self.judge_conn(state, token);
        }
        if received.activated || received.has_progress {
            // An answer, an acknowledgement, records that had to wait for the end of attaching.
            state.index(token).into_iter().for_each(|index| self.write(state, index));
            // What was committed before BEGIN was owed to nobody yet.
            let is_shared = state.is_shared();
            self.acknowledge(state, is_shared);
            if is_shared {
                // From BEGIN on the mark may be read, and what it says already nobody will ring for.
                self.hear(state);
            }
            self.tell(state);
        }
    }

    /// A server has judged its client's window before; a client hears of its server's only when it attaches. Neither knows before
    /// whether memory is shared.
    fn judge_conn(&self, state: &mut Locked<'_>, token: u64) {
        let Some(index) = state.index(token) else { return };
        let conn = &state.wires[index].conn;
        let Some(window) = conn.window() else { return };
        let judged = self.config.judge_transport(conn.is_shared());
        if let Err(refusal) = judged.and_then(|()| self.config.judge_window(window)) {
            self.end(state, index, End::Refused { by_us: true, refusal });
        }
    }

    /// The wire under this token is the present one.
    fn activated(&self, state: &mut Locked<'_>, token: u64) {
        state.stats.connections += 1;
        state.is_new = true;
        state.last_attempt.clear();
        if let Some(dialer) = &mut state.dialer {
            dialer.succeeded();
        }
        let is_old = |wire: &Wire| wire.token != token && wire.active_since.is_some();
        while let Some(index) = state.wires.iter().position(is_old) {
            self.end(state, index, End::Replaced);
        }
        self.rest_anew(state);
        self.set_timer(state);
    }

    pub(super) fn write(&self, state: &mut Locked<'_>, index: usize) {
        let is_awaited = state.awaiting_writes > 0;
        let State { core: Some(core), wires, .. } = &mut **state else { return };
        let wire = &mut wires[index];
        let is_shared = wire.conn.is_shared();
        let before = is_awaited.then(|| core.next_outgoing(&wire.conn));
        let written = if is_shared && !wire.conn.has_control() {
            Ok(())
        } else {
            wire.flush(core, &self.group.reactor)
        };
        let has_written = before.is_some_and(|before| core.next_outgoing(&wire.conn) != before);
        let Err(why) = written else {
            if is_shared {
                self.notify(state);
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
        // Telling of the end tells of what came before it, too.
        state.index(token).into_iter().for_each(|index| self.end(state, index, end.clone()));
    }

    /// A connection is over. What is still in it, a refusal or a good-bye, goes out if the kernel takes it.
    pub(super) fn end(&self, state: &mut Locked<'_>, index: usize, end: End) {
        let is_pressing = state.is_pressing();
        let mut wire = state.wires.remove(index);
        if let Some(core) = &mut state.core {
            core.ended(&mut wire.conn, end.clone());
            let _ = wire.flush(core, &self.group.reactor);
        }
        self.group.reactor.unwatch(&wire.socket, wire.token);
        let State { dialer, wires, .. } = &mut **state;
        if let Some(dialer) = dialer {
            let goes_on = wires.iter().any(|other| other.aim == dialer.aim);
            if matches!(dialer.phase, Phase::Reached) && !goes_on {
                dialer.ended(&self.config, &end, wire.active_since, is_pressing);
            }
        }
        if state.stopped().is_some() {
            state.dialer.iter_mut().for_each(|dialer| dialer.phase = Phase::Stopped);
        }
        if wire.active_since.is_none() {
            self.attempt_failed(state, end.to_string());
        }
        self.set_timer(state);
        self.tell(state);
    }

    /// Told once as long as it stays the same.
    fn attempt_failed(&self, state: &mut Locked<'_>, reason: String) {
        if state.last_attempt == reason {
            return;
        }
        if let Some(core) = &mut state.core {
            core.push_event(Event::Refused { reason: reason.clone() });
        }
        state.last_attempt = reason;
        self.tell(state);
    }

    pub(super) fn set_timer(&self, state: &mut Locked<'_>) {
        let wires = state.wires.iter().filter(|wire| wire.active_since.is_none());
        let dialing = state.dialer.as_ref().and_then(|dialer| match &dialer.phase {
            Phase::Waiting(until) => Some(*until),
            Phase::Connecting { deadline, .. } => Some(*deadline),
            Phase::Reached | Phase::Stopped => None,
        });
        let new = wires.map(|wire| wire.deadline).chain(dialing).min();
        self.group.reactor.set_timer(self.timer_token, state.timer, new);
        state.timer = new;
    }
}

impl Wire {
    fn is_late(&self, now: Instant) -> bool {
        self.active_since.is_none() && self.deadline <= now
    }
}

impl State {
    /// Where the wire is that has this token, if it still is.
    pub(super) fn index(&self, token: u64) -> Option<usize> {
        self.wires.iter().position(|wire| wire.token == token)
    }

    /// Whether something waits for a connection.
    fn is_pressing(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.acked() < core.tail())
    }
}

/// A connection that came to nothing before a byte went out.
fn drop_conn(core: &mut crate::link_state::LinkState, mut conn: Conn) {
    core.ended(&mut conn, End::Broken("no connection".to_owned()));
}

/// Who may be at the other end.
pub(crate) fn admission(
    config: &crate::config::Config,
    is_abstract: bool,
) -> Option<partywall::Admission> {
    let own = || is_abstract.then(partywall::Admission::own_user);
    config.admission.clone().or_else(own)
}
