// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link over shared memory, as far as its driver is concerned: who is shown what, and who is rung (SPEC 16).
//!
//! ```text
//!   take_in ─▶ pull      records, one at a time         ring ─▶ the neighbour's bell, if it sleeps
//!   hear ────▶ how far the neighbour has consumed
//!
//!            ┌──────────── rung: look again ◀───────────┐
//!            ▼                                          │
//!          awake ── on the hub's list ── lie_down ──▶ declared: for records, for room if somebody wants it
//!            │                                          ▲
//!            └── a thread that waits looks in vain ─────┘
//! ```
//!
//! # Invariants
//!
//! - While a connection is shared, the link is declared asleep for records, or on the hub's list, or has a record that nobody took
//!   yet and of which the group was told; and whoever takes it puts the link on the list.
//! - Once declared it stays so until it is rung: there is one ring for each declaration.
//! - Whoever finds that the neighbour has consumed more tells: others may wait for that, and will not be rung for it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use partywall_reconcile::Position;
use partywall_sys::epoll::EventFlags;
use partywall_sys::{Doorbell, Family, Socket, clock, peer};

use super::wire::Doorbells;
use super::{Endpoint, Locked, State};
use crate::drive::Source;
use crate::link_state::PeerMapping;
use crate::link_state::{End, LinkState, NotifyDue};
use partywall::TransportPolicy;

/// By what a link is woken.
#[derive(Default)]
pub(super) struct Rest {
    /// Its own bell, and under which token it is watched.
    doorbell: Option<(Arc<Doorbell>, u64)>,
    for_records: bool,
    for_room: bool,
    /// As the method says.
    wants_room: bool,
    /// On the hub's list.
    is_listed: bool,
    /// It came to the hub's list of what is owed when somebody slept already.
    is_late: bool,
    /// When it was last looked whether the socket says anything, by the coarse clock.
    looked: std::time::Duration,
    /// So often was it asked for the time since that changed.
    asked: u32,
    /// So many calls go without asking.
    unasked: u32,
}

impl Endpoint {
    /// Whether the process at the other end may be shown this memory.
    pub(super) fn may_share(&self, socket: &Socket) -> bool {
        let is_near = socket.family() == Family::Unix;
        if !is_near || self.config.transport == TransportPolicy::Socket {
            return false;
        }
        is_of_our_user(socket)
    }

    /// The own bell, made and watched when it is first needed. `None` if there is no descriptor left.
    pub(super) fn own_doorbell(&self, state: &mut Locked<'_>) -> Option<Arc<Doorbell>> {
        if let Some((doorbell, _)) = &state.rest.doorbell {
            return Some(Arc::clone(doorbell));
        }
        let doorbell = Arc::new(Doorbell::new().ok()?);
        let token = self.group.reactor.enter(self.me.clone());
        if self.group.reactor.watch(&*doorbell, EventFlags::IN, token).is_err() {
            self.group.reactor.forget(token);
            return None;
        }
        state.rest.doorbell = Some((Arc::clone(&doorbell), token));
        Some(doorbell)
    }

    /// What a client shows, and its bell, if both are as they should be.
    pub(super) fn shown(&self, descriptors: Vec<OwnedFd>) -> Option<(PeerMapping, Doorbell)> {
        shown(descriptors, self.config.peer_bytes_max())
    }

    /// A server's bells, if it shows its memory to a client that has shown its own.
    pub(super) fn doorbells(&self, state: &mut Locked<'_>, peers: Doorbell) -> Option<Doorbells> {
        let own = self.own_doorbell(state)?;
        Some(Doorbells { own, peers: Some(peers), shown_max: 0 })
    }

    /// A client's, until it knows the server's.
    pub(super) fn doorbells_to_show(&self, state: &mut Locked<'_>) -> Option<Doorbells> {
        let own = self.own_doorbell(state)?;
        Some(Doorbells { own, peers: None, shown_max: self.config.peer_bytes_max() })
    }

    /// Whether the token is that of the own bell; if so, it was rung.
    pub(super) fn is_notified(&self, state: &mut Locked<'_>, token: u64) -> bool {
        let State { core, rest, .. } = &mut **state;
        let Some((doorbell, own)) = &rest.doorbell else { return false };
        if *own != token {
            return false;
        }
        // A sound eventfd does not fail; one that the peer spoilt was rung at least.
        let _ = doorbell.drain();
        (rest.for_records, rest.for_room) = (false, false);
        let acked = core.as_mut().map(|core| {
            core.cancel_sleep();
            core.acked()
        });
        self.hear(state);
        // Who waits for room may have heard of this before, and not be told again: then it still waits.
        let has_news = state.core.as_deref().map(LinkState::acked) != acked;
        state.rest.wants_room &= !has_news;
        self.tell(state);
        self.rest(state);
        true
    }

    /// Takes the next record, or reads the socket.
    #[inline(always)]
    pub(super) fn take_in(&self, state: &mut Locked<'_>) {
        if state.is_shared() {
            self.pull(state);
        } else if let Some(index) = state.active() {
            self.read(state, index);
        }
    }

    /// Learns how far the neighbour has consumed, or reads the socket.
    pub(super) fn hear(&self, state: &mut Locked<'_>) {
        if !state.is_shared() {
            return state.active().into_iter().for_each(|index| self.read(state, index));
        }
        let Some(core) = &mut state.core else { return };
        let (has_news, has_fault) = (core.poll_acked(), core.has_fault());
        if has_news {
            self.tell(state);
        }
        if has_fault {
            self.pull(state);
        }
    }

    #[inline(always)]
    fn pull(&self, state: &mut Locked<'_>) {
        let Some(core) = &mut state.core else { return };
        let acked = Some(core.acked());
        let pulled = core.pull_present();
        if let Err(end) = pulled {
            return self.pulled_the_last(state, acked, end);
        }
        // A record says how far was consumed, too.
        self.tell_if_heard(state, acked);
    }

    #[cold]
    fn pulled_the_last(&self, state: &mut Locked<'_>, acked: Option<Position>, end: End) {
        // It is shared, so there is one.
        let Some(index) = state.active() else { return };
        let State { core: Some(core), wires, .. } = &mut **state else { return };
        let end = core.ended(&mut wires[index].conn, end);
        self.tell_if_heard(state, acked);
        self.end(state, index, end);
    }

    /// Rings the neighbour, if it sleeps and something is new for it.
    #[inline]
    pub(super) fn notify(&self, state: &mut Locked<'_>) {
        let Some(core) = &mut state.core else { return };
        if core.is_doorbell_due() {
            notify_doorbell(state);
        }
        state.core.iter_mut().for_each(|core| core.prepare_ahead());
    }

    /// The neighbour may wait for what was consumed: it is rung when somebody here waits, if not before; now if somebody waits already,
    /// and this thread may not come back for long.
    #[inline(always)]
    pub(super) fn owe_a_look(&self, state: &mut Locked<'_>) {
        let due = state.core.as_ref().map_or(NotifyDue::Never, |core| core.notify_due());
        match due {
            NotifyDue::Never => {}
            NotifyDue::Idle if state.is_owing_in_time() => {}
            due => self.owe_a_look_as(state, due),
        }
    }

    #[inline(never)]
    fn owe_a_look_as(&self, state: &mut Locked<'_>, due: NotifyDue) {
        // The next record is looked for only if that matters: the neighbour is about to write there, and would have to
        // fetch the line back.
        let is_last = |core: &LinkState| !core.has_next() && !core.is_pull_ready();
        match due {
            NotifyDue::Now => return self.notify(state),
            NotifyDue::Drained if state.core.as_deref().is_some_and(is_last) => {
                return self.notify(state);
            }
            _ => {}
        }
        if state.is_owing_in_time() {
            return;
        }
        let me: Weak<dyn Source> = self.me.clone();
        let is_late = self.group.reactor.owe((!state.is_owing).then_some(me));
        (state.is_owing, state.rest.is_late) = (true, is_late);
        if is_late && state.core.as_deref().is_some_and(is_last) {
            self.notify(state);
        }
    }

    /// Somebody is to be woken when there is room, or an acknowledgement.
    pub(super) fn want_room(&self, state: &mut Locked<'_>) {
        state.rest.wants_room();
        self.rest(state);
    }

    /// The link is to be rung if something comes, before anybody sleeps.
    #[inline]
    pub(super) fn rest(&self, state: &mut Locked<'_>) {
        let rest = &state.rest;
        let is_declared = rest.for_records && (rest.for_room || !rest.wants_room);
        if rest.is_listed || is_declared || !state.is_shared() {
            return;
        }
        let me: Weak<dyn Source> = self.me.clone();
        if self.group.reactor.rest(me) {
            self.lie_down_now(state);
        } else {
            state.rest.is_listed = true;
        }
    }

    /// Declares the link asleep, whatever has come meanwhile: whoever waits for it is told.
    pub(super) fn lie_down_now(&self, state: &mut Locked<'_>) {
        while !self.doze(state) {
            self.hear(state);
        }
    }

    /// As a leader says: it is about to sleep.
    pub(super) fn lie_down_listed(&self, state: &mut Locked<'_>) {
        state.rest.is_listed = false;
        self.lie_down_now(state);
    }

    /// Declares the link asleep, as far as it is not. `false`: something came just now, so that whoever waits is to look again.
    pub(super) fn doze(&self, state: &mut Locked<'_>) -> bool {
        if !state.is_shared() {
            return true;
        }
        let State { core: Some(core), rest, .. } = &mut **state else { return true };
        let has_record = core.has_next() || core.is_pull_ready();
        let for_records = !rest.for_records && !has_record;
        let for_room = !rest.for_room && rest.wants_room;
        if (for_records || for_room) && !core.prepare_sleep(for_records, for_room) {
            (rest.for_records, rest.for_room) = (false, false);
            self.tell(state);
            return false;
        }
        rest.for_records |= for_records;
        rest.for_room |= for_room;
        if !rest.for_records && !state.is_listed {
            // Nobody will ring for the record that is there.
            self.list(state);
        }
        true
    }

    /// A connection became shared, or is not any more.
    pub(super) fn rest_anew(&self, state: &mut Locked<'_>) {
        let State { core, rest, .. } = &mut **state;
        core.iter_mut().for_each(|core| core.cancel_sleep());
        (rest.for_records, rest.for_room, rest.wants_room) = (false, false, false);
        self.rest(state);
    }

    /// Whether it is time for a thread that finds all it wants in memory to look whether the socket says anything. `is_busy`: it will
    /// be back soon.
    #[inline(always)]
    pub(super) fn is_time_to_look(&self, state: &mut Locked<'_>, is_busy: bool) -> bool {
        if is_busy && state.rest.unasked > 0 {
            state.rest.unasked -= 1;
            return false;
        }
        Self::is_time(state)
    }

    #[inline(never)]
    fn is_time(state: &mut Locked<'_>) -> bool {
        if !state.is_shared() {
            return false;
        }
        let rest = &mut state.rest;
        let now = clock::coarse();
        let is_time = std::mem::replace(&mut rest.looked, now) != now;
        // Only one that came often within a tick will come again soon.
        rest.asked = if is_time { 0 } else { rest.asked.saturating_add(1) };
        rest.unasked = if rest.asked >= ASKED_MIN { UNASKED_MAX } else { 0 };
        is_time
    }

    /// The own bell is not needed any more. The neighbour has it, too: it would stay watched when this process closes it.
    pub(super) fn forget_doorbell(&self, state: &mut Locked<'_>) {
        if let Some((doorbell, token)) = state.rest.doorbell.take() {
            self.group.reactor.unwatch(&*doorbell, token);
        }
    }
}

impl State {
    /// Whether a look is owed, and nobody sleeps before it is settled.
    #[inline]
    fn is_owing_in_time(&self) -> bool {
        self.is_owing && !self.rest.is_late
    }
}

impl Rest {
    /// Somebody waits for room, or for acknowledgements.
    pub(super) const fn wants_room(&mut self) {
        self.wants_room = true;
    }
}

impl State {
    /// Whether a thread that waits for records would not be rung for the next.
    pub(super) fn is_awake_for_records(&self) -> bool {
        self.is_shared() && !self.rest.for_records
    }

    /// Whether records of the present connection are read from memory.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.core.as_deref().is_some_and(LinkState::is_shared)
    }
}

/// To ask for the time takes a tenth of what sending a short message does.
const UNASKED_MAX: u32 = 7;
/// Whoever asks so often within a tick of the clock has no need to each time.
const ASKED_MIN: u32 = 16;

#[cold]
fn notify_doorbell(state: &State) {
    let wire = state.active().map(|index| &state.wires[index]);
    let doorbell = wire.and_then(|wire| wire.doorbells.as_ref()?.peers.as_ref());
    // A sound eventfd does not fail; one that the peer spoilt is its own loss.
    doorbell.into_iter().for_each(|doorbell| drop(doorbell.notify()));
}

/// Whether the process at the other end of a Unix socket has the same effective user.
pub(crate) fn is_of_our_user(socket: &Socket) -> bool {
    let own = peer::own_euid();
    // In a user namespace all users without a number there look alike.
    own != peer::overflow_uid() && socket.peer_credentials().is_some_and(|found| found.uid == own)
}

/// The memory and the bell that came in two descriptors, if both are as they should be.
pub(super) fn shown(descriptors: Vec<OwnedFd>, bytes_max: u64) -> Option<(PeerMapping, Doorbell)> {
    let [memory, doorbell] = <[OwnedFd; 2]>::try_from(descriptors).ok()?;
    let shown = PeerMapping::map(memory.as_fd(), bytes_max).ok()?;
    Some((shown, Doorbell::from_peer(doorbell).ok()?))
}
