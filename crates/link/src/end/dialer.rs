// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dialer of a link's client: it decides when the next connection to the server is made, and to
//! which address.
//!
//! ```text
//!   Waiting(until) ── due ──▶ Connecting ── writable ──▶ attaching ──▶ attached
//!        ▲                        │ failed, too late        │ ended       │ ended
//!        └──── back-off ──────────┴─────────────────────────┴─────────────┘
//!   Stopped   fenced, or in quarantine
//! ```
//!
//! `switch_to` takes the same path while the link is attached. The present connection stays until
//! the next connection is attached:
//!
//! ```text
//!   attached to A ─ switch_to(B) ─▶ dialing B, attached to A ─ attached to B ─▶ A ends, replaced
//!                                       └ fails: tries again, still attached to A
//! ```
//!
//! For the protocol the connection to the new address is like any other. It has a higher connection
//! number, carries the same streams, and begins at a position on which both ends agree.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use partywall::{Address, Peer, Trust};
use partywall_sys::epoll::EventFlags;
use partywall_sys::{Begun, Socket, begin_tcp, begin_unix_abstract, begin_unix_path};
use partywall_wait::deadline_after;

use super::connections::Connections;
use super::wire::{Doorbells, Wire};
use super::{Endpoint, Locked, State};

use crate::config::Config;
use crate::drive::Before;
use crate::error::{Stopped, SwitchError};
use crate::link_state::{Conn, End, LinkState};
use crate::protocol::frame::{Names, Refusal};

/// The address to which a client connects, and the state of its attempts to make the next
/// connection, as drawn at the beginning of this file.
pub(super) struct Dialer {
    pub(super) address: Address,
    pub(super) names: Names,
    pub(super) phase: Phase,
    /// Number of address changes so far. A wire that has a lower number goes to a former address.
    pub(super) aim: u64,
    resolved: Vec<SocketAddr>,
    failures: u32,
    at_once: u32,
    /// Number of consecutive connections that ended because both ends had to attach again, as in a
    /// new epoch.
    expected: u32,
    last_success: Option<Instant>,
}

/// The progress of a client's next connection to its server.
pub(super) enum Phase {
    Waiting(Instant),
    Connecting {
        begun: Begun,
        token: u64,
        deadline: Instant,
    },
    /// The connection to the server was made: it is now in the list of the link's connections, and
    /// no longer the dialer's.
    Reached,
    Stopped,
}

impl Dialer {
    pub(super) fn new(address: Address, names: Names) -> Self {
        let phase = Phase::Waiting(Instant::now());
        let resolved = Vec::new();
        Self {
            address,
            names,
            phase,
            aim: 0,
            resolved,
            failures: 0,
            at_once: 0,
            expected: 0,
            last_success: None,
        }
    }

    /// Begins one connection attempt. If the address is a host name, each attempt tries one of its
    /// IP addresses. The name is resolved again after all of them were tried.
    pub(super) fn begin(&mut self) -> Result<Begun, String> {
        let begun = match &self.address {
            Address::Path(path) => begin_unix_path(path),
            Address::Abstract(name) => begin_unix_abstract(name),
            Address::Tcp { .. } => {
                if self.resolved.is_empty() {
                    self.resolved = self.address.resolve_all().map_err(|e| e.to_string())?;
                    // Addresses are taken from the back of the list. Reversing the list makes the
                    // first address of the resolver the one that is tried first.
                    self.resolved.reverse();
                }
                match self.resolved.pop() {
                    Some(next) => begin_tcp(next),
                    None => return Err("no address".to_owned()),
                }
            }
            other => return Err(format!("a link cannot connect to {other}")),
        };
        begun.map_err(|error| error.to_string())
    }

    /// Changes the address to which all later connections are made.
    pub(super) fn turn_to(&mut self, address: Address) {
        self.address = address;
        self.aim += 1;
        self.resolved.clear();
        (self.failures, self.at_once, self.expected) = (0, 0, 0);
    }

    /// Records that the client's connection was attached. The next attempt resolves the host name
    /// again.
    pub(super) fn succeeded(&mut self) {
        self.last_success = Some(Instant::now());
        self.resolved.clear();
    }

    /// Records that a connection attempt failed, and schedules the next attempt after a pause.
    /// `is_pressing` says whether sent messages are unacknowledged: if so, the pause must be short.
    pub(super) fn failed(&mut self, config: &Config, is_pressing: bool) {
        self.phase = Phase::Waiting(Instant::now() + self.back_off(config, is_pressing));
    }

    /// Records that a connection ended, and schedules the next attempt. `active_since` is the time
    /// at which the connection was attached; `None` if it never was.
    pub(super) fn ended(
        &mut self,
        config: &Config,
        end: &End,
        active_since: Option<Instant>,
        is_pressing: bool,
    ) {
        let now = Instant::now();
        if let Some(since) = active_since.filter(|_| !is_hopeless(end)) {
            self.last_success = Some(now);
            let lasted = now.duration_since(since);
            if lasted >= LASTED {
                (self.at_once, self.expected) = (0, 0);
            }
            // If two processes take the same end from each other in turn, each attaches, but only
            // briefly. Brief connections therefore do not reset the back-off.
            if lasted >= BRIEF {
                self.failures = 0;
            }
        }
        let is_expected = matches!(end, End::EpochAdopted | End::Moved)
            || matches!(end, End::Refused { by_us: false, refusal: Refusal::Stale(_) });
        let is_orderly = active_since.is_some() && !is_hopeless(end);
        let (count, max) = match is_expected {
            true => (&mut self.expected, EXPECTED_MAX),
            false => (&mut self.at_once, AT_ONCE_MAX),
        };
        if (is_expected || is_orderly) && *count < max {
            *count += 1;
            self.phase = Phase::Waiting(now);
            return;
        }
        self.phase = Phase::Waiting(now + self.back_off(config, is_pressing));
    }

    /// Returns the pause before the next attempt, and doubles the back-off: the pause is a random
    /// duration between half of the back-off and all of it.
    fn back_off(&mut self, config: &Config, is_pressing: bool) -> Duration {
        let is_recent = self.last_success.is_some_and(|last| last.elapsed() < RECENT);
        let min = config.retry_min.max(RETRY_LEAST);
        let mut max = config.retry_max.max(min);
        if is_recent {
            max = max.min(RECENT_MAX.max(min));
        } else if is_pressing {
            max = max.min(PRESSING_MAX.max(min));
        }
        let whole = min.saturating_mul(1 << self.failures.min(20)).min(max);
        self.failures = self.failures.saturating_add(1);
        let chance = u32::try_from(RandomState::new().hash_one(0) >> 48).unwrap_or(0);
        whole / 2 + whole / 2 / (1 << 16) * chance
    }
}

#[derive(Clone, Copy)]
pub(crate) struct DialDriver<'a> {
    pub(super) end: &'a Endpoint,
}

impl DialDriver<'_> {
    pub(super) fn dial(&self, state: &mut Locked<'_>) {
        if state.stopped().is_some() {
            state.connections.dialer.iter_mut().for_each(|dialer| dialer.phase = Phase::Stopped);
            return;
        }
        let Some(dialer) = &mut state.connections.dialer else { return };
        match dialer.begin() {
            Err(reason) => self.dialing_failed(state, reason),
            Ok(begun) if begun.is_connected() => self.connected(state, begun),
            Ok(begun) => {
                let token = self.end.group.reactor.enter(self.end.me.clone());
                let deadline = deadline_after(self.end.config.handshake_timeout);
                if let Err(error) = self.end.group.reactor.watch(&begun, EventFlags::OUT, token) {
                    self.end.group.reactor.forget(token);
                    return self.dialing_failed(state, format!("epoll: {error}"));
                }
                dialer.phase = Phase::Connecting { begun, token, deadline };
                self.end.connections().set_timer(state);
            }
        }
    }

    /// Continues with a connection attempt whose descriptor became ready.
    pub(super) fn reached(&self, state: &mut Locked<'_>, token: u64) {
        let Some(dialer) = &mut state.connections.dialer else { return };
        match std::mem::replace(&mut dialer.phase, Phase::Reached) {
            Phase::Connecting { begun, token: expected, .. } if expected == token => {
                self.end.group.reactor.unwatch(&begun, token);
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
        let (peer, is_abstract) = match &state.connections.dialer {
            Some(dialer) => {
                let (credentials, label) = (socket.peer_credentials(), dialer.address.to_string());
                let peer = Peer::new(credentials, Trust::Untrusted, label);
                (peer, matches!(dialer.address, Address::Abstract(_)))
            }
            None => return,
        };
        let rule = self.end.config.admission(is_abstract);
        if let Some(Err(reason)) = rule.map(|rule| rule.judge(peer.credentials.as_ref())) {
            return self.dialing_failed(state, format!("{peer} is not admitted: {reason}"));
        }
        // Setting the time-out, after which the system ends a TCP connection without answers, fails
        // only if the peer has closed the connection. Then the first read fails, too, so the result
        // is ignored here.
        let _ = socket.set_dead_after(self.end.config.dead_after);
        match self.begin_attaching(state, socket, peer) {
            Ok(()) => self.end.connections().set_timer(state),
            Err(reason) => self.dialing_failed(state, reason),
        }
    }

    fn begin_attaching(
        &self,
        state: &mut Locked<'_>,
        socket: Socket,
        peer: Peer,
    ) -> Result<(), String> {
        let doorbells = self
            .end
            .connections()
            .may_share(&socket)
            .then(|| self.doorbells_of_client(state))
            .flatten();
        // The transport of the new connection is checked before the client attaches. So the present
        // connection is replaced only by one over a transport that the configuration allows.
        self.end
            .config
            .judge_transport(doorbells.is_some())
            .map_err(|refusal| refusal.to_string())?;
        let State {
            core: Some(core),
            connections: Connections { dialer: Some(dialer), wires, .. },
            ..
        } = &mut **state
        else {
            return Ok(());
        };
        let (names, login) = (dialer.names.clone(), self.end.config.login.clone());
        let conn = match doorbells {
            Some(_) => core.attach_shm(names, login),
            None => core.attach(names, login),
        };
        let Some(conn) = conn else {
            dialer.phase = Phase::Stopped;
            return Ok(());
        };
        let token = self.end.group.reactor.enter(self.end.me.clone());
        if let Err(error) = self.end.group.reactor.watch(&socket, EventFlags::IN, token) {
            self.end.group.reactor.forget(token);
            drop_conn(core, conn);
            return Err(format!("epoll: {error}"));
        }
        let deadline = deadline_after(self.end.config.handshake_timeout);
        let mut wire = Wire::new(socket, token, conn, BytesMut::new(), peer, deadline);
        wire.doorbells = doorbells.filter(|_| wire.conn.descriptor().is_some());
        wire.aim = dialer.aim;
        wires.push(wire);
        dialer.phase = Phase::Reached;
        let index = wires.len() - 1;
        self.end.connections().write(state, index);
        Ok(())
    }

    pub(super) fn dialing_failed(&self, state: &mut Locked<'_>, reason: String) {
        let is_pressing = state.has_unacked();
        if let Some(dialer) = &mut state.connections.dialer {
            if let Phase::Connecting { begun, token, .. } = &dialer.phase {
                self.end.group.reactor.unwatch(begun, *token);
            }
            dialer.failed(&self.end.config, is_pressing);
        }
        self.end.connections().attempt_failed(state, reason);
        self.end.connections().set_timer(state);
    }

    /// Changes the server's address to `address` for all later connections, and begins the first of
    /// these connections.
    pub(crate) fn switch_to(&self, address: Address) -> Result<(), SwitchError> {
        let mut state = self.end.lock()?;
        if let Some(stopped) = state.stopped() {
            return Err(stopped.into());
        }
        if state.connections.dialer.is_none() {
            return Err(SwitchError::Served);
        }
        self.abandon_attempts(&mut state);
        if let Some(dialer) = &mut state.connections.dialer {
            dialer.turn_to(address);
        }
        self.dial(&mut state);
        self.end.connections().set_timer(&mut state);
        drop(state);
        // If no thread blocks on the link's group, no other thread continues the attempt. So this
        // thread handles the sockets that are ready now.
        self.end.group.reactor.try_turn(Before::Polling).map_err(Stopped::from)?;
        Ok(())
    }

    /// Aborts all connection attempts to the previous address, including connections that are not
    /// attached yet.
    fn abandon_attempts(&self, state: &mut Locked<'_>) {
        let phase = state.connections.dialer.as_mut().map(|dialer| &mut dialer.phase);
        let phase = phase.map(|phase| std::mem::replace(phase, Phase::Reached));
        if let Some(Phase::Connecting { begun, token, .. }) = phase {
            self.end.group.reactor.unwatch(&begun, token);
        }
        while let Some(index) =
            state.connections.wires.iter().position(|wire| !wire.conn.is_active())
        {
            self.end.connections().end(
                state,
                index,
                End::Broken("the link goes to another address".to_owned()),
            );
        }
    }

    /// Returns the doorbells for a client's connection: only the client's own one, because the
    /// server sends its doorbell later.
    pub(super) fn doorbells_of_client(&self, state: &mut Locked<'_>) -> Option<Doorbells> {
        let own = self.end.wakeups().own_doorbell(state)?;
        Some(Doorbells { own, peers: None, peer_bytes_max: self.end.config.peer_bytes_max() })
    }
}

/// Ends a connection on which no byte was sent, because its socket could not be registered or
/// written.
fn drop_conn(core: &mut LinkState, mut conn: Conn) {
    core.ended(&mut conn, End::Broken("no connection".to_owned()));
}

/// Whether the next connection would probably end for the same reason `end` as the last one: the
/// peer broke a rule, or this end refused the connection.
const fn is_hopeless(end: &End) -> bool {
    matches!(end, End::Violation(_) | End::Refused { by_us: true, .. })
}

/// Minimum duration of a connection that resets the back-off, so that the next pause is the
/// shortest. If two processes own the same end in turn and each fences the other, each loses its
/// connection sooner than that.
const BRIEF: Duration = Duration::from_millis(5);
/// Minimum duration of a connection that resets both counts of connections made without a pause:
/// those after a connection that had been attached (limit `AT_ONCE_MAX`), and those after one that
/// ended because both ends had to attach again (limit `EXPECTED_MAX`).
const LASTED: Duration = Duration::from_millis(100);
/// Maximum number of consecutive connections that are made without a pause, each after a connection
/// that had been attached, and that ended for another reason than a violation. Further ones wait
/// for the back-off.
const AT_ONCE_MAX: u32 = 3;
/// Maximum number of consecutive connections that are made without a pause, each after a connection
/// that ended because both ends had to attach again, as in a new epoch. Further ones wait for the
/// back-off.
const EXPECTED_MAX: u32 = 16;
/// Time after the last attached connection during which no pause between two attempts is longer
/// than 10 ms (`RECENT_MAX`).
const RECENT: Duration = Duration::from_secs(10);
/// The longest pause between two attempts within 10 s (`RECENT`) after the last attached
/// connection. Several such pauses together still take less than the 50 ms after which messages
/// have to flow again.
const RECENT_MAX: Duration = Duration::from_millis(10);
/// The longest pause between two attempts while sent messages are unacknowledged.
const PRESSING_MAX: Duration = Duration::from_millis(50);
/// Lower bound of the configured shortest pause between two attempts, so that a configured 0 does
/// not make the client connect in a busy loop.
const RETRY_LEAST: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_state::Violation;

    fn dialer() -> Dialer {
        let names = Names { client: "a".into(), server: "b".into(), link: "c".into() };
        Dialer::new(Address::Abstract("nobody".into()), names)
    }

    fn wait(dialer: &Dialer) -> Duration {
        wait_since(dialer, Instant::now())
    }

    /// Returns the time from the instant `then` until the dialer makes its next attempt. The result
    /// does not depend on when the test calls this function.
    fn wait_since(dialer: &Dialer, then: Instant) -> Duration {
        match dialer.phase {
            Phase::Waiting(until) => until.saturating_duration_since(then),
            _ => panic!("it does not wait"),
        }
    }

    #[test]
    fn waits_grow_up_to_their_bound_and_stay_short_while_it_presses() {
        let (mut idle, mut pressing) = (dialer(), dialer());
        let config = Config::default();
        for _ in 0..40 {
            idle.failed(&config, false);
            pressing.failed(&config, true);
            assert!(wait(&idle) <= Duration::from_secs(1) && wait(&pressing) <= PRESSING_MAX);
        }
        let then = Instant::now();
        idle.failed(&config, false);
        pressing.failed(&config, true);
        assert!(wait_since(&idle, then) > Duration::from_millis(100));
        assert!(wait_since(&pressing, then) > Duration::from_millis(5));
        let mut first = dialer();
        first.failed(&config, false);
        assert!(wait(&first) <= Duration::from_millis(1));
    }

    #[test]
    fn a_good_end_is_followed_at_once_three_times_and_a_violation_never() {
        let (config, now) = (Config::default(), Instant::now());
        let mut good = dialer();
        for _ in 0..AT_ONCE_MAX {
            good.ended(&config, &End::Left, Some(now), false);
            assert_eq!(wait(&good), Duration::ZERO);
        }
        for _ in 0..20 {
            good.failed(&config, false);
        }
        assert!(wait(&good) <= RECENT_MAX, "the last success was just now");
        for _ in 0..EXPECTED_MAX {
            good.ended(&config, &End::Moved, None, false);
            assert_eq!(wait(&good), Duration::ZERO, "they agree anew at once");
        }
        good.ended(&config, &End::Moved, None, false);
        assert!(wait(&good) > Duration::ZERO, "but not for ever");
        let (mut bad, fault) = (dialer(), End::Violation(Violation::Decision));
        for _ in 0..20 {
            bad.ended(&config, &fault, Some(now), false);
        }
        let then = Instant::now();
        bad.ended(&config, &fault, Some(now), false);
        assert!(
            wait_since(&bad, then) > Duration::from_millis(5),
            "a peer that breaks the rules is no success"
        );
    }
}
