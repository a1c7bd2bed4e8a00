// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a link in this process: its link state, its connections, and the threads that wait for it.
//!
//! ```text
//!   handle/ ──▶ Endpoint ◀── reactor: sockets are ready, timers are due, acknowledgements are to be settled
//!                   │ locks its monitor
//!                   ▼
//!               State { LinkState, Connections, Wakeups, Pacing, … }
//!
//!   send_driver.rs      messages out, waiting for acks   connections.rs   a ready socket, a timer, a new connection
//!   receive_driver.rs   messages in, acks                wire.rs          one connection and its bytes
//!   exchange.rs         records to and from the peer     dialer.rs        a client's next connection
//!   wakeups.rs          sleeping and doorbells           shutdown.rs      closing
//!   waiter.rs           checking, and then sleeping
//! ```
//!
//! # Invariants
//!
//! - `core` is there until the link is closed. What still refers to the link then does nothing, and the file is free.
//! - Locks are taken in this order: endpoint, then group, reactor. The server's lock is never taken while an endpoint is
//!   locked.
//! - A thread that releases the lock has notified all that may wait for what it changed.

mod connections;
mod dialer;
mod exchange;
mod receive_driver;
mod send_driver;
mod shutdown;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod waiter;
mod wakeups;
mod wire;

use std::fmt;
use std::sync::{Arc, Weak};

use partywall::Address;
use partywall_reconcile::Position;
use partywall_sys::ForkGuard;
use partywall_wait::{Pacer, Spinner};

use self::connections::{ConnectionDriver, Connections};
use self::dialer::{DialDriver, Dialer, Phase};
use self::exchange::Exchange;
use self::receive_driver::ReceiveDriver;
use self::send_driver::SendDriver;
use self::shutdown::Shutdown;
use self::waiter::{Pacing, Waiter};
use self::wakeups::{WakeupDriver, Wakeups};
use super::config::Config;
use super::drive::{Monitor, MonitorGuard};
use super::error::Stopped;
use super::group::{GroupInner, Member, MemberId};
use super::link_state::LinkState;
use super::protocol::frame::Names;
use super::status::{Stats, Status};
use super::store::Key;

pub(super) use self::connections::{Adopted, is_of_our_user};
pub(super) use self::receive_driver::{MessageInfo, Sink};
pub(super) use self::send_driver::Load;
pub(super) use self::wire::{read_some, refuse};

/// See the module.
pub(super) struct Endpoint {
    me: Weak<Endpoint>,
    id: MemberId,
    key: Key,
    group: Arc<GroupInner>,
    config: Config,
    guard: ForkGuard,
    /// Of its timers in the reactor.
    timer_token: u64,
    monitor: Arc<Monitor<State>>,
    /// The server that learns when a client has attached.
    home: Option<Weak<dyn Home>>,
}

/// The server of an end.
pub(super) trait Home: Send + Sync {
    /// A client has attached to a link for which the application has no handle.
    fn attached(&self, link: Arc<Endpoint>);
    /// The application has closed this link.
    fn closed(&self, link: &Endpoint);
}

/// What the lock protects.
pub(super) struct State {
    /// `None`: closed.
    core: Option<Box<LinkState>>,
    connections: Connections,
    wakeups: Wakeups,
    pacing: Pacing,
    stats: Stats,
    claim: Claim,
    /// On the group's list of links with events.
    is_listed: bool,
    /// Something but messages changed since the application learned of a change.
    has_change: bool,
}

/// Whether the application has a handle of the link.
#[derive(Default)]
struct Claim {
    is_claimed: bool,
    /// The server is about to hand it to the application.
    is_offered: bool,
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
        state.claim.is_claimed = true;
        endpoint.dial().dial(&mut state);
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
        let spinner = Some(Spinner::new(config.spin_budget));
        let state = State {
            core: Some(Box::new(core)),
            connections: Connections::new(dialer),
            wakeups: Wakeups::default(),
            pacing: Pacing { pacer: Pacer::default(), spinner },
            stats: Stats::default(),
            claim: Claim::default(),
            is_listed: false,
            has_change: false,
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

    /// Sends messages.
    #[inline(always)]
    pub(super) const fn send_driver(&self) -> SendDriver<'_> {
        SendDriver { end: self }
    }

    /// Receives messages.
    #[inline(always)]
    pub(super) const fn receive_driver(&self) -> ReceiveDriver<'_> {
        ReceiveDriver { end: self }
    }

    /// Moves records and acknowledgements.
    #[inline(always)]
    const fn exchange(&self) -> Exchange<'_> {
        Exchange { end: self }
    }

    /// Arms and checks wake-ups.
    #[inline(always)]
    const fn wakeups(&self) -> WakeupDriver<'_> {
        WakeupDriver { end: self }
    }

    /// Waits.
    #[inline(always)]
    pub(super) const fn waiter(&self) -> Waiter<'_> {
        Waiter { end: self }
    }

    /// Drives connections that there are.
    pub(super) const fn connections(&self) -> ConnectionDriver<'_> {
        ConnectionDriver { end: self }
    }

    /// Makes a client's connections.
    pub(super) const fn dial(&self) -> DialDriver<'_> {
        DialDriver { end: self }
    }

    /// Closes.
    pub(super) const fn shutdown(&self) -> Shutdown<'_> {
        Shutdown { end: self }
    }

    pub(super) const fn id(&self) -> MemberId {
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
        state.claim.is_offered = false;
        // One that was closed meanwhile is nobody's.
        state.core.is_some() && !std::mem::replace(&mut state.claim.is_claimed, true)
    }

    /// The handle is gone, and the link stays.
    pub(super) fn unclaim(&self) {
        if !self.guard.is_child() {
            self.monitor.lock().claim.is_claimed = false;
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
        if let Some(wire) = state.connections.wires.iter().find(|wire| wire.conn.is_active()) {
            let transport = wire.transport();
            return Status::Attached { transport, peer: wire.peer.clone() };
        }
        let is_connecting = matches!(
            &state.connections.dialer,
            Some(Dialer { phase: Phase::Connecting { .. }, .. })
        );
        if is_connecting || !state.connections.wires.is_empty() {
            Status::Attaching
        } else {
            Status::Detached
        }
    }

    pub(super) fn stats(&self) -> Stats {
        self.monitor.lock().stats
    }

    /// Something changed: whoever waits looks again, and the group lists the link.
    fn report_change(&self, state: &mut Locked<'_>) {
        state.has_change = true;
        self.list_in_group(state);
    }

    /// As [`tell`](Self::tell), of nothing but messages.
    fn list_in_group(&self, state: &mut Locked<'_>) {
        if !state.is_listed {
            state.is_listed = true;
            self.group.tell(self.me.clone());
        }
        self.group.reactor.wake_external_loop();
        state.changed();
    }

    /// Tells, if more was found to be consumed than before: as room was looked for, perhaps.
    #[inline(always)]
    pub(super) fn report_acks(&self, state: &mut Locked<'_>, acked: Option<Position>) {
        if state.core.as_deref().map(LinkState::acked) != acked {
            self.report_change(state);
        }
    }
}

impl Member for Endpoint {
    fn id(&self) -> MemberId {
        self.id
    }

    /// Whether the application should look at it; `is_reported`: it is being told.
    fn has_events(&self, is_reported: bool) -> bool {
        let mut state = self.monitor.lock();
        let has_message = |core: &LinkState| core.has_next() || core.is_pull_ready();
        let has_messages = state.core.as_deref().is_some_and(has_message);
        let has_events = has_messages || state.has_change;
        if is_reported {
            state.has_change = false;
        }
        state.is_listed = has_events;
        has_events
    }
}

impl Claim {
    /// Offers a link to the application; `false` if it has the link, or is being offered it.
    fn offer(&mut self) -> bool {
        let is_free = !self.is_claimed && !self.is_offered;
        self.is_offered |= is_free;
        is_free
    }
}

impl State {
    #[inline]
    fn core(&mut self) -> Result<&mut LinkState, Stopped> {
        self.core.as_deref_mut().ok_or(Stopped::Closed)
    }

    /// Index of the connection over which records flow.
    #[inline]
    fn active(&self) -> Option<usize> {
        self.connections.active()
    }

    /// Whether no records flow.
    #[inline]
    fn is_detached(&self) -> bool {
        !self.core.as_deref().is_some_and(LinkState::is_active)
    }

    /// Whether records of the present connection are read from the peer's memory.
    #[inline]
    fn is_shared(&self) -> bool {
        self.core.as_deref().is_some_and(LinkState::is_shared)
    }

    /// Whether a thread that waits for records would not be notified of the next.
    fn is_awake_for_records(&self) -> bool {
        self.is_shared() && !self.wakeups.is_armed_for_records()
    }

    /// Whether the peer has acknowledged everything, so that there will never be more room than now.
    fn is_all_acked(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.acked() >= core.tail())
    }

    /// Whether a message waits for a connection.
    fn has_unacked(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.acked() < core.tail())
    }

    /// Whether the active connection has bytes to write.
    fn has_outgoing(&self) -> bool {
        let (Some(core), Some(index)) = (&self.core, self.active()) else { return false };
        core.has_outgoing(&self.connections.wires[index].conn)
    }

    /// Why the link takes or gives nothing more, if so.
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
            self.wakeups().forget_doorbell(&mut self.monitor.lock());
        }
        self.group.reactor.forget(self.timer_token);
    }
}
