// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a link in this process: its core, its connections, and those who wait for it.
//!
//! ```text
//!   handle (Link, halves, messages) ──▶ Endpoint ◀── hub: sockets are ready, timers are due, acknowledgements are owed
//!                                          │ locks its spot
//!                                          ▼
//!                                        State { core, wires, dialer, … }
//!
//!   progress.rs   what a ready socket, a timer, a new connection does      sending.rs    messages out, flush
//!   wire.rs       one connection and its bytes                             receiving.rs  messages in, commits
//!   dialer.rs     a client's next connection                               leaving.rs    closing
//!   adopting.rs   a server's next connection                               waiting.rs    looking, and then sleeping
//!   sharing.rs    memory instead of bytes, and bells                       switching.rs  another address, while messages flow
//! ```
//!
//! # Invariants
//!
//! - `core` is there until the link is closed: what still refers to the link then does nothing, and the file is free.
//! - Locks are taken in this order: endpoint, then group, hub. The server's lock is never taken while an endpoint is locked.
//! - Who leaves the lock has told whoever may wait for what was changed.

mod adopting;
mod dialer;
mod leaving;
mod progress;
mod receiving;
mod sending;
mod sharing;
mod switching;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod waiting;
mod wire;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use partywall_sys::ForkGuard;

use self::dialer::{Dialer, Phase};
use self::sharing::Rest;
use self::wire::Wire;
use super::config::Config;
use super::drive::{Monitor, MonitorGuard};
use super::fault::Stopped;
use super::group::{GroupInner, LinkId};
use super::link_state::LinkState;
use super::protocol::frame::Names;
use super::status::{Stats, Status};
use super::store::Key;
use partywall::Address;
use partywall_wait::Pacer;
use partywall_wait::Spinner;

pub(super) use self::progress::admission;
pub(super) use self::receiving::{Facts, Taker};
pub(super) use self::sending::Load;
pub(super) use self::sharing::is_of_our_user;
pub(super) use self::wire::read_some;

/// See the module.
pub(super) struct Endpoint {
    me: Weak<Endpoint>,
    id: LinkId,
    key: Key,
    group: Arc<GroupInner>,
    config: Config,
    guard: ForkGuard,
    /// Of its timers in the hub.
    timer_token: u64,
    monitor: Arc<Monitor<State>>,
    /// A server, that is to be told when a client has attached.
    home: Option<Weak<dyn Home>>,
}

/// Who hands links to the application.
pub(super) trait Home: Send + Sync {
    /// A client has attached to a link that nobody has.
    fn attached(&self, link: Arc<Endpoint>);
    /// The application has closed this link.
    fn closed(&self, link: &Endpoint);
}

/// What changes.
pub(super) struct State {
    /// `None`: closed.
    core: Option<Box<LinkState>>,
    wires: Vec<Wire>,
    dialer: Option<Dialer>,
    stats: Stats,
    timer: Option<Instant>,
    rest: Rest,
    pacer: Pacer,
    /// `None`: some thread spins with it.
    spinner: Option<Spinner>,
    /// On the group's list of news.
    is_listed: bool,
    /// Something but messages changed since the application was told of it.
    is_fresh: bool,
    /// On the hub's list of those that owe an acknowledgement.
    is_owing: bool,
    /// Threads that wait for room for a reply, which a commit by another ends.
    replying: u32,
    /// Threads that wait until what was sent is with the system: each write tells them.
    awaiting_writes: u32,
    /// The application has it.
    is_out: bool,
    /// The server is about to hand it to the application.
    is_offered: bool,
    /// It was attached since the server was last told.
    is_new: bool,
    /// What came of the last attempt to attach; empty if it succeeded.
    last_attempt: String,
}

type Locked<'a> = MonitorGuard<'a, State>;

impl Endpoint {
    /// A server's end.
    pub(super) fn served(
        core: LinkState,
        key: Key,
        group: Arc<GroupInner>,
        config: Config,
        home: Weak<dyn Home>,
    ) -> Arc<Self> {
        Self::new(core, key, group, config, None, Some(home))
    }

    /// A client's end, which begins to connect.
    pub(super) fn dialing(
        core: LinkState,
        key: Key,
        group: Arc<GroupInner>,
        config: Config,
        address: Address,
    ) -> Arc<Self> {
        let names = Names {
            client: key.local().to_owned(),
            server: key.remote().to_owned(),
            link: key.link().to_owned(),
        };
        let dialer = Dialer::new(address, names);
        let endpoint = Self::new(core, key, group, config, Some(dialer), None);
        let mut state = endpoint.monitor.lock();
        state.is_out = true;
        endpoint.dial(&mut state);
        drop(state);
        endpoint
    }

    fn new(
        core: LinkState,
        key: Key,
        group: Arc<GroupInner>,
        config: Config,
        dialer: Option<Dialer>,
        home: Option<Weak<dyn Home>>,
    ) -> Arc<Self> {
        let state = State {
            core: Some(Box::new(core)),
            wires: Vec::new(),
            dialer,
            stats: Stats::default(),
            timer: None,
            rest: Rest::default(),
            pacer: Pacer::default(),
            spinner: Some(Spinner::new(config.spin_budget)),
            is_listed: false,
            is_fresh: false,
            is_owing: false,
            replying: 0,
            awaiting_writes: 0,
            is_out: false,
            is_offered: false,
            is_new: false,
            last_attempt: String::new(),
        };
        Arc::new_cyclic(|me: &Weak<Self>| Self {
            me: me.clone(),
            id: group.next_id(),
            key,
            guard: ForkGuard::current(),
            timer_token: group.reactor.enter(me.clone()),
            monitor: Monitor::new(Arc::clone(&group.reactor), state),
            group,
            config,
            home,
        })
    }

    pub(super) const fn id(&self) -> LinkId {
        self.id
    }

    pub(super) const fn key(&self) -> &Key {
        &self.key
    }

    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    /// The state, if this process may touch it.
    #[inline(always)]
    fn lock(&self) -> Result<Locked<'_>, Stopped> {
        if self.guard.is_child() {
            return Err(Stopped::Forked);
        }
        Ok(self.monitor.lock())
    }

    /// Looks at or changes the core; an error if there is none any more.
    pub(super) fn with_core<R>(&self, act: impl FnOnce(&mut LinkState) -> R) -> Result<R, Stopped> {
        let mut state = self.lock()?;
        Ok(act(state.core()?))
    }

    /// What `act` makes of the core, and of how many connections there were.
    #[cfg(feature = "tokio")]
    pub(super) fn observe<R>(&self, act: impl FnOnce(&LinkState, u64) -> R) -> Result<R, Stopped> {
        let mut state = self.lock()?;
        let connections = state.stats.connections;
        Ok(act(state.core()?, connections))
    }

    /// Claims the link for a handle; `false` if there is one.
    pub(super) fn claim(&self) -> bool {
        if self.guard.is_child() {
            return false;
        }
        let mut state = self.monitor.lock();
        state.is_offered = false;
        // One that was closed meanwhile is nobody's.
        state.core.is_some() && !std::mem::replace(&mut state.is_out, true)
    }

    /// The handle is gone, and the link stays.
    pub(super) fn unclaim(&self) {
        if !self.guard.is_child() {
            self.monitor.lock().is_out = false;
        }
    }

    pub(super) fn status(&self) -> Status {
        let Ok(state) = self.lock() else { return Status::Closed };
        let Some(core) = &state.core else { return Status::Closed };
        if core.is_fenced() {
            return Status::Fenced;
        }
        if core.is_quarantined() {
            return Status::Quarantined;
        }
        if let Some(wire) = state.wires.iter().find(|wire| wire.conn.is_active()) {
            let transport = wire.transport();
            return Status::Attached { transport, peer: wire.peer.clone() };
        }
        let is_connecting =
            matches!(&state.dialer, Some(Dialer { phase: Phase::Connecting { .. }, .. }));
        if is_connecting || !state.wires.is_empty() { Status::Attaching } else { Status::Detached }
    }

    pub(super) fn stats(&self) -> Stats {
        self.monitor.lock().stats
    }

    /// Whether the application should look at it; `is_told`: it is being told.
    pub(super) fn has_news(&self, is_told: bool) -> bool {
        let mut state = self.monitor.lock();
        let has_message = |core: &LinkState| core.has_next() || core.is_pull_ready();
        let has_messages = state.core.as_deref().is_some_and(has_message);
        let has_news = has_messages || state.is_fresh;
        if is_told {
            state.is_fresh = false;
        }
        state.is_listed = has_news;
        has_news
    }

    /// Something changed: whoever waits looks again, and the group lists the link.
    fn tell(&self, state: &mut Locked<'_>) {
        state.is_fresh = true;
        self.list(state);
    }

    /// As [`tell`](Self::tell), of nothing but messages.
    fn list(&self, state: &mut Locked<'_>) {
        if !state.is_listed {
            state.is_listed = true;
            self.group.tell(self.me.clone());
        }
        self.group.reactor.told();
        state.changed();
    }
}

impl State {
    #[inline]
    fn core(&mut self) -> Result<&mut LinkState, Stopped> {
        self.core.as_deref_mut().ok_or(Stopped::Closed)
    }

    #[inline]
    fn active(&self) -> Option<usize> {
        self.wires.iter().position(|wire| wire.conn.is_active())
    }

    /// Whether no records flow.
    #[inline]
    fn is_detached(&self) -> bool {
        !self.core.as_deref().is_some_and(LinkState::is_active)
    }

    /// Why it takes or gives nothing more, if so.
    #[inline]
    fn stopped(&self) -> Option<Stopped> {
        let Some(core) = &self.core else { return Some(Stopped::Closed) };
        if core.is_fenced() {
            return Some(Stopped::Fenced);
        }
        core.is_quarantined().then_some(Stopped::Quarantined)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.guard.is_child() {
            self.forget_doorbell(&mut self.monitor.lock());
        }
        self.group.reactor.forget(self.timer_token);
    }
}
