// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a link in this process: its state, its connections, and the threads that block on it.
//! The handles of `handle/`, which an application has, call it.
//!
//! ```text
//!   handle/ ──▶ Endpoint ◀── reactor: ready sockets, due timers, acknowledgements to settle
//!                   │ locks its monitor
//!                   ▼
//!               State { LinkState, Connections, Wakeups, Pacing, … }
//!
//!   mod.rs              short messages while no other work is pending
//!   send_driver.rs      messages out, wait_acked    connections.rs   ready sockets, timers
//!   receive_driver.rs   messages in, ack, reply     wire.rs          one connection and its bytes
//!   exchange.rs         to and from the peer        dialer.rs        a client's next connection
//!   wakeups.rs          sleeping and doorbells      shutdown.rs      closing
//!   waiter.rs           a thread that waits
//! ```
//!
//! # Invariants
//!
//! - `core`, the state of the link, exists until the link is closed. After that every call on the
//!   link fails or does nothing, and another owner may open the link file.
//! - Locks are taken in this order: endpoint, then group, then reactor. The server's lock is never
//!   taken while an endpoint is locked.
//! - Only the fast path takes the lock without the monitor. All other code locks the monitor, which
//!   closes the fast path first.
//! - Before a thread releases the lock, it has notified all threads that may wait for its changes.

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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use partywall::Address;
use partywall_reconcile::Position;
use partywall_sys::biased::locking_nothing;
use partywall_sys::{BiasedGuard, ForkGuard};
use partywall_wait::{Pacer, Spinner};

use self::connections::{ConnectionDriver, Connections};
use self::dialer::{DialDriver, Dialer, Phase};
use self::exchange::{Exchange, notify_doorbell};
use self::receive_driver::ReceiveDriver;
use self::send_driver::SendDriver;
use self::waiter::{Pacing, Waiter};
use self::wakeups::{WakeupDriver, Wakeups};
use super::config::{Config, Delivery};
use super::drive::{Entered, Monitor, MonitorGuard, Monitored};
use super::error::{RecvError, SendError, Stopped, TryRecvError, TrySendError};
use super::group::{GroupInner, Member, MemberId};
use super::link_state::{FastPath, LinkState, Opening};
use super::protocol::frame::Names;
use super::status::{Stats, Status};
use super::store::Key;

pub(super) use self::connections::{Adopted, is_of_our_user};
pub(super) use self::receive_driver::{MessageInfo, OwnedSink, Sink};
pub(super) use self::send_driver::Load;
pub(super) use self::shutdown::Shutdown;
pub(super) use self::wire::{read_some, refuse};

/// One end of a link in this process. Its methods lock the state of the end. Each task, such as
/// sending, has an object of its own (a driver) that borrows the endpoint.
pub(super) struct Endpoint {
    me: Weak<Endpoint>,
    id: MemberId,
    key: Key,
    group: Arc<GroupInner>,
    config: Config,
    guard: ForkGuard,
    /// The word of the fork guard `guard`, which the kernel sets to 0 in a forked child. Each check
    /// for a fork loads this word.
    fork_word: &'static AtomicU64,
    /// The value that `fork_word` has in this process; a forked child finds 0 instead.
    fork_value: u64,
    timer_token: u64,
    monitor: Arc<Monitor<State>>,
    /// The server that made this end; it is notified when a client has attached. `None` at a
    /// client.
    home: Option<Weak<dyn Home>>,
}

/// A server, as its ends of links see it: they call these methods when a client attaches or a link
/// is closed.
pub(super) trait Home: Send + Sync {
    /// The end `link` calls this method when a client has attached to the link and the application
    /// has no handle of it.
    fn attached(&self, link: Arc<Endpoint>);
    fn closed(&self, link: &Endpoint);
}

pub(super) struct State {
    /// The state of the link; `None` once the link is closed.
    core: Option<Box<LinkState>>,
    connections: Connections,
    wakeups: Wakeups,
    pacing: Pacing,
    stats: Stats,
    claim: Claim,
    /// Whether this link is in its group's list of links with events.
    is_listed: bool,
    /// Whether anything but messages has changed since the application last got this link from its
    /// group's list.
    has_change: bool,
}

/// Whether the application has a handle of the link, or is about to get one.
#[derive(Default)]
struct Claim {
    is_claimed: bool,
    /// Whether the server offers the link to the application, which has not taken it yet.
    is_offered: bool,
}

type Locked<'a> = MonitorGuard<'a, State>;

/// The guard of the state's lock, taken without the monitor, so that the fast path stays open.
type FastLocked<'a> = BiasedGuard<'a, Monitored<State>>;

/// A message that the fast path could not send, and the locked state of the link, with which the
/// slow path sends the message.
struct SlowSend<'a, F> {
    state: Result<Locked<'a>, Stopped>,
    fill: F,
}

/// The closure with which the application would read a message, if the fast path found none for it,
/// and the locked state of the link, with which the slow path goes on.
struct SlowRead<'a, F> {
    state: Result<Locked<'a>, Stopped>,
    read: F,
    /// Whether the receiving thread has already polled for a message for a short time on the fast
    /// path.
    was_polled: bool,
}

impl Endpoint {
    /// Makes a server's end of a link. The application gets a handle of the link only by claiming
    /// it.
    pub(super) fn served(
        core: LinkState,
        key: Key,
        group: Arc<GroupInner>,
        config: Config,
        home: Weak<dyn Home>,
    ) -> Arc<Self> {
        Self::new(core, key, group, config, None, Some(home))
    }

    /// Makes a client's end of a link, and begins its first connection attempt.
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
        let guard = ForkGuard::current();
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
            id: group.join(me.clone()),
            key,
            guard,
            fork_word: guard.word(),
            fork_value: guard.value(),
            timer_token: group.reactor.enter(me.clone()),
            monitor: Monitor::new(Arc::clone(&group.reactor), state),
            group,
            config,
            home,
        })
    }

    /// Sends a message of `len` bytes that `fill` writes. If ring or slab has no room, waits for
    /// room until `deadline`.
    #[inline]
    pub(super) fn send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        match self.send_fast(len, fill) {
            Ok(()) => Ok(()),
            Err(slow) => self.send_driver().send_slow(len, slow, deadline),
        }
    }

    #[inline]
    pub(super) fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), TrySendError> {
        match self.send_fast(len, fill) {
            Ok(()) => Ok(()),
            Err(slow) => self.send_driver().try_send_slow(len, slow),
        }
    }

    /// Calls `read` with the next message, and acknowledges the message when `read` returns. Waits
    /// for a message until `deadline`. Returns `None` if the peer has finished its stream.
    pub(super) fn recv_with<R, F: FnOnce(&[u8], &MessageInfo) -> R>(
        &self,
        deadline: Option<Instant>,
        read: F,
    ) -> Result<Option<R>, RecvError> {
        match self.recv_fast(read) {
            Ok(result) => Ok(Some(result)),
            Err(slow) => self.receive_driver().recv_slow(slow, deadline),
        }
    }

    /// Calls `read` with the next message, if one has arrived, and acknowledges the message when
    /// `read` returns.
    pub(super) fn try_recv_with<R, F: FnOnce(&[u8], &MessageInfo) -> R>(
        &self,
        read: F,
    ) -> Result<Option<R>, TryRecvError> {
        self.receive_driver().try_recv_with(read)
    }

    /// Sends a message on the fast path. If that fails, the error contains `fill`, so that the
    /// caller can take the slow path.
    #[inline(always)]
    fn send_fast<F: FnOnce(&mut [u8])>(&self, len: usize, fill: F) -> Result<(), SlowSend<'_, F>> {
        if self.may_be_child() {
            return Err(SlowSend { state: self.lock(), fill });
        }
        let mut locked = self.monitor.biased().lock();
        let fill = match &mut locked.value.core {
            None => fill,
            Some(core) => match FastPath::send(core, len, fill) {
                Err(fill) => fill,
                Ok(is_due) => {
                    if is_due {
                        notify_doorbell(&locked.value);
                    }
                    locked.value.core.iter_mut().for_each(|core| core.prepare());
                    return Ok(());
                }
            },
        };
        Err(SlowSend { state: Ok(self.leave_fast_path(locked)), fill })
    }

    /// Receives a message on the fast path. If there is no message, polls for a short time. If that
    /// fails, the error contains `read`, so that the caller can take the slow path.
    #[inline(always)]
    fn recv_fast<R, F>(&self, read: F) -> Result<R, SlowRead<'_, F>>
    where
        F: FnOnce(&[u8], &MessageInfo) -> R,
    {
        if self.may_be_child() {
            return Err(SlowRead { state: self.lock(), read, was_polled: false });
        }
        // If the application's code panics, this guard is dropped after the lock is released,
        // because it is declared before the lock. A read within another read panics before it takes
        // the lock.
        let reading;
        let mut locked = self.monitor.biased().lock();
        let mut was_polled = false;
        loop {
            if let Some(core) = &mut locked.value.core {
                if let Some(record) = FastPath::copy_next(core) {
                    reading = Reading { end: self };
                    let read = FastPath::read(core, record, |bytes, token| {
                        let info = MessageInfo { token, attempt: 1, is_acked: false };
                        // The calling thread holds the lock of the link, so the application's code
                        // `read` must not use the link: it would wait for the lock endlessly.
                        locking_nothing(|| read(bytes, &info))
                    });
                    std::mem::forget(reading);
                    let Some((result, is_due)) = read else {
                        unreachable!("it was copied just now")
                    };
                    if is_due {
                        self.acknowledge(locked);
                    }
                    return Ok(result);
                }
            }
            match self.poll_briefly(locked, was_polled) {
                Ok(again) => (locked, was_polled) = (again, true),
                Err((state, was_polled)) => {
                    return Err(SlowRead { state: Ok(state), read, was_polled });
                }
            }
        }
    }

    /// Whether this process may be a forked child, which must not use the link. If it may be, the
    /// caller calls [`lock`](Self::lock), whose check is exact.
    #[inline(always)]
    fn may_be_child(&self) -> bool {
        // ORDER: Relaxed: the load reads only the fork word, which the kernel clears in a forked
        // child, and which guards no other memory.
        self.fork_word.load(Ordering::Relaxed) != self.fork_value
    }

    /// Closes the fast path. The link stays locked; the returned guard is one of its monitor, by
    /// which waiting threads can be woken.
    #[inline(never)]
    fn leave_fast_path<'a>(&'a self, locked: FastLocked<'a>) -> Locked<'a> {
        let mut state = self.monitor.guard(locked);
        state.entered();
        state
    }

    /// Reports to the peer that the application has acknowledged a message on the fast path, and
    /// closes that path first.
    #[cold]
    fn acknowledge(&self, locked: FastLocked<'_>) {
        let mut state = self.leave_fast_path(locked);
        self.exchange().acknowledge_later(&mut state);
    }

    /// Polls for the next record while the fast path stays open. Does not poll if the thread has
    /// already polled.
    ///
    /// # Errors
    /// No record came, or the fast path was not open. In either case the fast path is closed now.
    #[inline(never)]
    fn poll_briefly<'a>(
        &'a self,
        locked: FastLocked<'a>,
        was_polled: bool,
    ) -> Result<FastLocked<'a>, (Locked<'a>, bool)> {
        let mut state = self.monitor.guard(locked);
        let is_polled = !was_polled && state.is_fast_path_open();
        if is_polled {
            state.settle_fast_path();
            if self.waiter().poll_briefly(&mut state) {
                return Ok(state.into_biased());
            }
        }
        state.entered();
        Err((state, was_polled || is_polled))
    }

    pub(super) fn is_open(&self) -> bool {
        !self.guard.is_child() && self.monitor.lock().core.is_some()
    }

    #[inline(always)]
    pub(super) const fn send_driver(&self) -> SendDriver<'_> {
        SendDriver { end: self }
    }

    #[inline(always)]
    pub(super) const fn receive_driver(&self) -> ReceiveDriver<'_> {
        ReceiveDriver { end: self }
    }

    #[inline(always)]
    const fn exchange(&self) -> Exchange<'_> {
        Exchange { end: self }
    }

    #[inline(always)]
    const fn wakeups(&self) -> WakeupDriver<'_> {
        WakeupDriver { end: self }
    }

    #[inline(always)]
    pub(super) const fn waiter(&self) -> Waiter<'_> {
        Waiter { end: self }
    }

    pub(super) const fn connections(&self) -> ConnectionDriver<'_> {
        ConnectionDriver { end: self }
    }

    pub(super) const fn dial(&self) -> DialDriver<'_> {
        DialDriver { end: self }
    }

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

    #[inline(always)]
    fn lock(&self) -> Result<Locked<'_>, Stopped> {
        if self.guard.is_child() {
            return Err(Stopped::Forked);
        }
        Ok(self.monitor.lock())
    }

    /// Locks the link, calls `act` with the state of the link, and returns the result of `act`; an
    /// error if the link is closed.
    pub(super) fn with_core<R>(&self, act: impl FnOnce(&mut LinkState) -> R) -> Result<R, Stopped> {
        let mut state = self.lock()?;
        Ok(act(state.core()?))
    }

    /// Locks the link, and calls `act` with the state of the link and the number of connections
    /// attached so far; an error if the link is closed.
    #[cfg(feature = "tokio")]
    pub(super) fn observe<R>(&self, act: impl FnOnce(&LinkState, u64) -> R) -> Result<R, Stopped> {
        let mut state = self.lock()?;
        let connections = state.stats.connections;
        Ok(act(state.core()?, connections))
    }

    /// Claims the link for a new handle of the application; `false` if the link already has a
    /// handle or is closed.
    pub(super) fn claim(&self) -> bool {
        if self.guard.is_child() {
            return false;
        }
        let mut state = self.monitor.lock();
        state.claim.is_offered = false;
        // The application may have closed the link since the server offered it, and a closed link
        // cannot be claimed.
        state.core.is_some() && !std::mem::replace(&mut state.claim.is_claimed, true)
    }

    /// Releases the link when the application drops its last handle: the link stays open, and may
    /// be claimed again.
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

    /// Wakes all threads that wait for this link, and adds the link to the group's list of links
    /// with events. It is called when anything but messages has changed, such as the connection.
    fn report_change(&self, state: &mut Locked<'_>) {
        state.has_change = true;
        self.list_in_group(state);
    }

    /// Wakes all threads that wait for this link, and adds the link to the group's list of links
    /// with events. It is called when only messages have arrived.
    fn list_in_group(&self, state: &mut Locked<'_>) {
        if !state.is_listed {
            state.is_listed = true;
            self.group.tell(self.me.clone());
        }
        self.group.reactor.wake_external_loop();
        state.changed();
    }

    /// Wakes waiting threads if the peer has acknowledged beyond the position `acked`.
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

    /// Whether the link has events, so that the application should check it. If `is_reported`, the
    /// caller passes the result to the application; later calls then do not report the same change
    /// again.
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

/// Guard of a message that the application's code reads on the fast path. The guard must not be
/// dropped while the link is locked. If that code panics, the guard counts the message as
/// delivered, and the next thread that receives gets the same message again.
struct Reading<'a> {
    end: &'a Endpoint,
}

impl Drop for Reading<'_> {
    #[cold]
    fn drop(&mut self) {
        if let Ok(mut state) = self.end.lock() {
            self.end.report_change(&mut state);
        }
    }
}

impl Entered for State {
    /// Closes the fast path if it is open, and updates the state of the link with the messages that
    /// were sent and received on that path.
    #[inline]
    fn entered(&mut self) {
        if self.core.as_deref().is_some_and(FastPath::is_in_use) {
            self.close_fast_path();
        }
    }
}

impl Claim {
    /// Records that the server offers the link to the application through `accept`. `false` if the
    /// application already has a handle of the link, or the link is already offered.
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

    fn is_fast_path_open(&self) -> bool {
        self.core.as_deref().is_some_and(FastPath::is_open)
    }

    /// Opens the fast path if this end has no other work than messages.
    #[inline]
    fn open_fast_path(&mut self, config: &Config) {
        let messages = self.wakeups.unpolled();
        if messages > 0 {
            self.open_fast_path_for(messages, config);
        }
    }

    fn open_fast_path_for(&mut self, messages: u32, config: &Config) {
        let Some(index) = self.active() else { return };
        let opening = Opening {
            messages,
            // Control frames reach the peer only through the socket, to which the fast path writes
            // nothing. So no message is sent on the fast path while this end still has queued
            // control frames to write.
            may_send: !self.connections.wires[index].conn.has_control(),
            may_receive: config.delivery == Delivery::AtLeastOnce
                && !self.wakeups.are_pending_for_receiver(),
            is_behind: self.pacing.pacer.is_behind(),
        };
        let is_open = self.core.as_deref_mut().is_some_and(|core| FastPath::open(core, opening));
        if is_open {
            self.wakeups.set_unpolled(0);
        }
    }

    /// Updates the state of this end with the messages that were sent and received on the fast
    /// path. The path stays open.
    fn settle_fast_path(&mut self) {
        let Some(core) = &mut self.core else { return };
        let traffic = FastPath::settle(core);
        self.stats.messages_sent += traffic.messages_sent;
        self.stats.bytes_sent += traffic.bytes_sent;
        self.stats.messages_received += traffic.messages_received;
        self.stats.bytes_received += traffic.bytes_received;
        let records = u32::try_from(traffic.messages_received).unwrap_or(u32::MAX);
        self.pacing.pacer.count_records(records);
    }

    #[inline(never)]
    fn close_fast_path(&mut self) {
        self.settle_fast_path();
        let Some(core) = &mut self.core else { return };
        self.wakeups.set_unpolled(FastPath::close(core));
    }

    #[inline]
    fn active(&self) -> Option<usize> {
        self.connections.active()
    }

    #[inline]
    fn is_detached(&self) -> bool {
        !self.core.as_deref().is_some_and(LinkState::is_active)
    }

    /// Whether the present connection is over shared memory, so that this end reads records from
    /// the peer's memory.
    #[inline]
    fn is_shared(&self) -> bool {
        self.core.as_deref().is_some_and(LinkState::is_shared)
    }

    /// Whether this end has declared itself awake to the peer, so that the peer does not notify it
    /// of the next record.
    fn is_awake_for_records(&self) -> bool {
        self.is_shared() && !self.wakeups.is_armed_for_records()
    }

    fn is_all_acked(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.acked() >= core.tail())
    }

    fn has_unacked(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.acked() < core.tail())
    }

    /// Whether bytes still have to be written to the socket of the active connection.
    fn has_outgoing(&self) -> bool {
        let (Some(core), Some(index)) = (&self.core, self.active()) else { return false };
        core.has_outgoing(&self.connections.wires[index].conn)
    }

    /// Reason why the link no longer sends or delivers messages; `None` while it still does.
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
        self.group.leave(self.id);
    }
}
