// SPDX-License-Identifier: MIT OR Apache-2.0
//! The accept loop of a server. It handles connections until it is known to which link they belong.
//!
//! ```text
//!   listener ─ accept ─▶ greeting ─ ATTACH ─▶ judged ─▶ given to its link, or refused
//!                           └ too late, malformed, or silent while others wait ─▶ closed
//! ```
//!
//! # Invariants
//!
//! - A greeting is a connection that has not sent its ATTACH. There are at most `handshakes_max`
//!   greetings. While all of them must be kept, further connections wait in the backlog.

use std::sync::Arc;
use std::time::{Duration, Instant};

use partywall_layout::link::frame::{FRAME_VERSION_MAX, FRAME_VERSION_MIN};
use partywall_sys::Socket;
use partywall_sys::epoll::EventFlags;

use super::server::{Listening, ServerShared, ServerState};
use crate::drive::{MonitorGuard, Source};
use crate::end::refuse;
use crate::handle::greeting::{Greeting, Unfit};
use crate::protocol::frame::Refusal;
use partywall::Address;
use partywall_wait::deadline_after;

impl Source for ServerShared {
    fn ready(self: Arc<Self>, token: u64, _flags: EventFlags) {
        if self.guard.is_child() {
            return;
        }
        let is_listener = self.monitor.lock().listeners.contains_key(&token);
        if is_listener {
            self.admit(token)
        } else {
            self.receive(token)
        }
        self.arrange();
    }

    fn due(self: Arc<Self>, _token: u64) {
        if self.guard.is_child() {
            return;
        }
        {
            let mut state = self.monitor.lock();
            // The reactor has removed the timer that is due, before it called this function. So the
            // server has no timer now.
            state.timer = None;
            let now = Instant::now();
            state.resting_until = state.resting_until.filter(|until| *until > now);
            let late = state.greetings.iter().filter(|(_, greeting)| greeting.deadline <= now);
            let late: Vec<u64> = late.map(|(token, _)| *token).collect();
            for token in late {
                self.drop_greeting(
                    &mut state,
                    token,
                    "a connection took too long to say which link it is for",
                );
            }
        }
        self.arrange();
    }

    fn settle(self: Arc<Self>) {}

    fn arm(self: Arc<Self>) {}
}

impl ServerShared {
    /// Accepts new connections while fewer than the configured number (`handshakes_max`) of
    /// connections still have to send ATTACH.
    fn admit(&self, listener_token: u64) {
        let mut state = self.monitor.lock();
        for _ in 0..ADMITTED_MAX {
            let is_full = state.greetings.len() >= self.config.handshakes_max;
            let silent = if is_full { state.oldest_silent() } else { None };
            if is_full && silent.is_none() {
                return;
            }
            let Some(Listening { listener, address }) = state.listeners.get(&listener_token) else {
                return;
            };
            let is_abstract = matches!(address, Address::Abstract(_));
            let socket = match listener.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => {
                    state.last_refusal = Some(error.to_string());
                    state.resting_until = Some(Instant::now() + REST);
                    return;
                }
            };
            if let Some(token) = silent {
                self.drop_greeting(&mut state, token, "others were waiting, and it said nothing");
            }
            // Setting the time-out, after which the system ends a TCP connection without answers,
            // fails only if the peer has closed the connection. Then the first read fails, too, so
            // the result is ignored here.
            let _ = socket.set_dead_after(self.config.dead_after);
            self.greet(&mut state, socket, is_abstract);
        }
    }

    fn greet(&self, state: &mut MonitorGuard<'_, ServerState>, socket: Socket, is_abstract: bool) {
        let reactor = &self.group.inner.reactor;
        let token = reactor.enter(self.me.clone());
        if let Err(error) = reactor.watch(&socket, EventFlags::IN, token) {
            reactor.forget(token);
            state.last_refusal = Some(error.to_string());
            return;
        }
        let deadline = deadline_after(self.config.handshake_timeout);
        let greeting = Greeting::new(socket, is_abstract, deadline, Instant::now() + SILENCE_MIN);
        state.greetings.insert(token, greeting);
    }

    fn receive(&self, token: u64) {
        let (greeting, asked) = {
            let mut state = self.monitor.lock();
            let Some(greeting) = state.greetings.get_mut(&token) else { return };
            match greeting.receive() {
                Ok(None) => return,
                Ok(Some(asked)) => match state.greetings.remove(&token) {
                    Some(greeting) => (greeting, asked),
                    None => return,
                },
                Err(unfit) => {
                    if let Unfit::Version { nonce, .. } = unfit {
                        let ours = Refusal::Version(FRAME_VERSION_MIN, FRAME_VERSION_MAX);
                        refuse(&greeting.socket, nonce, ours);
                    }
                    self.drop_greeting(&mut state, token, &unfit.to_string());
                    return;
                }
            }
        };
        let nonce = asked.attach.nonce;
        match self.judge(&greeting, asked) {
            Ok((link, attach, login)) => {
                link.connections().adopt(greeting.into_adopted(token), attach, login);
            }
            Err(refusal) => {
                self.monitor.lock().note(refusal.to_string());
                let refusal = match refusal {
                    // The text of the refusal `Busy` names the link file and its owner, which
                    // concern only the server and its operator. So the client gets another text.
                    Refusal::Busy(_) => Refusal::Busy(BUSY.to_owned()),
                    refusal => refusal,
                };
                refuse(&greeting.socket, nonce, refusal);
                self.group.inner.reactor.unwatch(&greeting.socket, token);
            }
        }
    }

    fn drop_greeting(&self, state: &mut MonitorGuard<'_, ServerState>, token: u64, why: &str) {
        if let Some(greeting) = state.greetings.remove(&token) {
            self.group.inner.reactor.unwatch(&greeting.socket, token);
            state.note(why.to_owned());
        }
    }

    /// Pauses the listeners if no further connection may be accepted now, resumes them otherwise,
    /// and sets the server's timer.
    pub(super) fn arrange(&self) {
        let mut state = self.monitor.lock();
        let is_full = state.greetings.len() >= self.config.handshakes_max;
        let must_pause =
            state.resting_until.is_some() || (is_full && state.oldest_silent().is_none());
        let next_place = if must_pause && is_full { state.next_silent() } else { None };
        let deadlines = state.greetings.values().map(|greeting| greeting.deadline).min();
        let new = deadlines.into_iter().chain(next_place).chain(state.resting_until).min();
        self.group.inner.reactor.set_timer(self.timer_token, state.timer, new);
        state.timer = new;
        if state.is_paused == Some(must_pause) {
            return;
        }
        let interest = if must_pause { EventFlags::empty() } else { EventFlags::IN };
        let reactor = &self.group.inner.reactor;
        let watch = |(token, found): (&u64, &Listening)| {
            reactor.rewatch(&found.listener, interest, *token).is_ok()
        };
        let is_done = state.listeners.iter().all(watch);
        state.is_paused = is_done.then_some(must_pause);
    }
}

impl ServerState {
    fn note(&mut self, why: String) {
        self.refused += 1;
        self.last_refusal = Some(why);
    }

    /// Token of the oldest connection that has sent nothing and may be closed in favour of a new
    /// connection, if there is one. Tokens rise, so the first such connection is the oldest.
    fn oldest_silent(&self) -> Option<u64> {
        let now = Instant::now();
        let silent = |(_, greeting): &(&u64, &Greeting)| {
            greeting.is_silent() && greeting.spared_until <= now
        };
        self.greetings.iter().find(silent).map(|(token, _)| *token)
    }

    /// Time from which one of the connections that have sent nothing may be closed; `None` if there
    /// is no such connection.
    fn next_silent(&self) -> Option<Instant> {
        let silent = self.greetings.values().filter(|greeting| greeting.is_silent());
        silent.map(|greeting| greeting.spared_until).min()
    }
}

/// Text of the refusal for a client whose link cannot be opened. It names no file or process: those
/// are in the reason that the server keeps for its operator.
const BUSY: &str = "the server cannot open this link at the moment";
/// Maximum number of connections that a listener accepts at once, before other sockets of the group
/// are handled.
const ADMITTED_MAX: usize = 64;
/// Minimum time for which an accepted connection may send nothing. After that it may be closed if a
/// new connection needs its place.
const SILENCE_MIN: Duration = Duration::from_millis(100);
/// Time for which a listener accepts nothing after `accept` failed because descriptors or memory
/// were exhausted, so that the server does not fail again and again in a loop.
const REST: Duration = Duration::from_millis(100);
