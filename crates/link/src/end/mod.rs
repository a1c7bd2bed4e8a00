// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a link in this process: its link state, its connections, and the threads that block
//! on it.
//!
//! ```text
//!   handle/ ──▶ Endpoint ◀── reactor: ready sockets, due timers, acknowledgements to settle
//!                   │ locks its monitor
//!                   ▼
//!               State { LinkState, Connections, Wakeups, Pacing, … }
//!
//!   send_driver.rs      messages out, wait_acked    connections.rs   ready sockets, timers
//!   receive_driver.rs   messages in, ack, reply     wire.rs          one connection and its bytes
//!   exchange.rs         to and from the peer        dialer.rs        a client's next connection
//!   wakeups.rs          sleeping and doorbells      shutdown.rs      closing
//!   waiter.rs           a thread that waits
//! ```
//!
//! # Invariants
//!
//! - `core` exists until the link is closed. After that every call on the link does nothing, and
//!   the file is free.
//! - Locks are taken in this order: endpoint, then group, then reactor. The server's lock is never
//!   taken while an endpoint is locked.
//! - Before a thread releases the lock it has notified all that may wait for its changes.

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

/// One end of a link. Its methods lock the state; a driver object for each task borrows the
/// endpoint.
pub(super) struct Endpoint {
    me: Weak<Endpoint>,
    id: MemberId,
    key: Key,
    group: Arc<GroupInner>,
    config: Config,
    guard: ForkGuard,
    /// Token of its timer in the reactor.
    timer_token: u64,
    monitor: Arc<Monitor<State>>,
    /// The server of this end, which is notified when a client has attached; `None` at a client.
    home: Option<Weak<dyn Home>>,
}

/// The server, as its ends of links use it.
pub(super) trait Home: Send + Sync {
    /// Called when a client has attached to a link for which the application has no handle.
    fn attached(&self, link: Arc<Endpoint>);
    /// Called when the application has closed this link.
    fn closed(&self, link: &Endpoint);
}

/// The state of an end that its lock protects.
pub(super) struct State {
    /// `None` once the link is closed.
    core: Option<Box<LinkState>>,
    connections: Connections,
    wakeups: Wakeups,
    pacing: Pacing,
    stats: Stats,
    claim: Claim,
    /// Whether the group lists this link as one with events.
    is_listed: bool,
    /// Whether anything other than messages has changed since the group last reported the link to
    /// the application.
    has_change: bool,
}

/// Whether the application has a handle of the link.
#[derive(Default)]
struct Claim {
    is_claimed: bool,
    /// Whether the server is about to hand the link to the application.
    is_offered: bool,
}

type Locked<'a> = MonitorGuard<'a, State>;

impl Endpoint {
    /// Makes the server's end of a link.
    pub(super) fn served(
        core: LinkState,
        key: Key,
        group: Arc<GroupInner>,
        config: Config,
        home: Weak<dyn Home>,
    ) -> Arc<Self> {
        Self::new(core, key, group, config, None, Some(home))
    }

    /// Makes a client's end, which begins to connect.
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

    /// Driver of operations that send.
    #[inline(always)]
    pub(super) const fn send_driver(&self) -> SendDriver<'_> {
        SendDriver { end: self }
    }

    /// The driver for operations that receive.
    #[inline(always)]
    pub(super) const fn receive_driver(&self) -> ReceiveDriver<'_> {
        ReceiveDriver { end: self }
    }

    /// The driver that moves records and acknowledgements to and from the peer.
    #[inline(always)]
    const fn exchange(&self) -> Exchange<'_> {
        Exchange { end: self }
    }

    /// The driver for sleeping and waking.
    #[inline(always)]
    const fn wakeups(&self) -> WakeupDriver<'_> {
        WakeupDriver { end: self }
    }

    /// The driver for threads that block on the link.
    #[inline(always)]
    pub(super) const fn waiter(&self) -> Waiter<'_> {
        Waiter { end: self }
    }

    /// The driver for the connections that exist.
    pub(super) const fn connections(&self) -> ConnectionDriver<'_> {
        ConnectionDriver { end: self }
    }

    /// The driver for a client's next connection.
    pub(super) const fn dial(&self) -> DialDriver<'_> {
        DialDriver { end: self }
    }

    /// The driver for closing the link.
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

    /// Locks the state; an error if this process is a forked child.
    #[inline(always)]
    fn lock(&self) -> Result<Locked<'_>, Stopped> {
        if self.guard.is_child() {
            return Err(Stopped::Forked);
        }
        Ok(self.monitor.lock())
    }

    /// Calls `act` with the link state; an error if the link is closed.
    pub(super) fn with_core<R>(&self, act: impl FnOnce(&mut LinkState) -> R) -> Result<R, Stopped> {
        let mut state = self.lock()?;
        Ok(act(state.core()?))
    }

    /// Calls `act` with the link state and the number of connections so far.
    #[cfg(feature = "tokio")]
    pub(super) fn observe<R>(&self, act: impl FnOnce(&LinkState, u64) -> R) -> Result<R, Stopped> {
        let mut state = self.lock()?;
        let connections = state.stats.connections;
        Ok(act(state.core()?, connections))
    }

    /// Claims the link for a handle; `false` if it already has a handle.
    pub(super) fn claim(&self) -> bool {
        if self.guard.is_child() {
            return false;
        }
        let mut state = self.monitor.lock();
        state.claim.is_offered = false;
        // A link that was closed in the meantime cannot be claimed.
        state.core.is_some() && !std::mem::replace(&mut state.claim.is_claimed, true)
    }

    /// Releases the claim of a handle; the link stays open.
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

    /// Wakes all threads that wait for this link, and makes the group list the link as one with
    /// events.
    fn report_change(&self, state: &mut Locked<'_>) {
        state.has_change = true;
        self.list_in_group(state);
    }

    /// Makes the group list the link as one with events, because of messages alone.
    fn list_in_group(&self, state: &mut Locked<'_>) {
        if !state.is_listed {
            state.is_listed = true;
            self.group.tell(self.me.clone());
        }
        self.group.reactor.wake_external_loop();
        state.changed();
    }

    /// Reports a change if the acknowledged position differs from `acked`.
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

    /// Whether the application should check the link. If `is_reported`, the result is passed to the
    /// application, and the change counts as returned.
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
    /// Offers the link to the application; `false` if the application has a handle, or is already
    /// being offered the link.
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

    /// Whether no connection carries records.
    #[inline]
    fn is_detached(&self) -> bool {
        !self.core.as_deref().is_some_and(LinkState::is_active)
    }

    /// Whether this end reads the records of the present connection in the peer's memory.
    #[inline]
    fn is_shared(&self) -> bool {
        self.core.as_deref().is_some_and(LinkState::is_shared)
    }

    /// Whether this end is awake, so that the peer does not notify it of the next record.
    fn is_awake_for_records(&self) -> bool {
        self.is_shared() && !self.wakeups.is_armed_for_records()
    }

    /// Whether the peer has acknowledged everything, so that no acknowledgement can free more room.
    fn is_all_acked(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.acked() >= core.tail())
    }

    /// Whether a sent message is unacknowledged.
    fn has_unacked(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.acked() < core.tail())
    }

    /// Whether bytes wait to be written to the active connection.
    fn has_outgoing(&self) -> bool {
        let (Some(core), Some(index)) = (&self.core, self.active()) else { return false };
        core.has_outgoing(&self.connections.wires[index].conn)
    }

    /// Reason why the link no longer sends or delivers messages; `None` while it does.
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
