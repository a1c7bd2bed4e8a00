// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events for which futures of one link wait, and which object notifies those futures.
//!
//! ```text
//!   who calls                              method      which notice   futures that wait for it
//!   the group's task, for a listed link ─▶ arrived ─┬─▶ messages      recv
//!   an operation, when it is done ───────▶ acted ───┼─▶ changes       send, wait_acked, close, …
//!                                                   └─▶ events        next_event
//!   ack, reply, rewind ─────────────────────────────▶ acks            reply, whose request may
//!                                                                     be acknowledged by now
//! ```
//!
//! The group lists a link with unreceived messages at each turn, and only an operation knows what
//! it changes. So `changes` is notified only if the `Snapshot` of the link (the part of its state
//! for which futures wait) differs from the last reported one. Messages and events are not
//! compared: a future that is notified checks them.
//!
//! # Invariants
//!
//! - A check that finds nothing notifies no future. Otherwise two waiting futures would wake each
//!   other endlessly.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::task::coop::consume_budget;

use super::group::GroupShared;
use crate::{Observation, Observer, Snapshot, Stopped, WaitError};

/// The notifications of one link: futures of the link wait for them, and are woken when the link
/// has messages, events or other changes.
pub(super) struct Notices {
    pub(super) observer: Observer,
    pub(super) shared: Arc<GroupShared>,
    pub(super) messages: Notify,
    pub(super) changes: Notify,
    pub(super) events: Notify,
    acks: Notify,
    /// The `Snapshot` of the link (the part of its state for which futures wait) with which the
    /// last check compared; `None` once the link is closed.
    reported: Mutex<Option<Snapshot>>,
}

impl Notices {
    pub(super) fn new(observer: Observer, shared: Arc<GroupShared>) -> Self {
        let reported = Mutex::new(observer.observe().ok().map(|seen| seen.snapshot));
        let [messages, changes, events, acks] = [const { Notify::const_new() }; 4];
        Self { observer, shared, messages, changes, events, acks, reported }
    }

    /// Notifies the futures of this link, after the group has listed the link as one with events.
    /// Returns true if the link's connection changed.
    pub(super) fn arrived(&self) -> bool {
        self.messages.notify_waiters();
        self.events.notify_waiters();
        let (change, _) = self.take_change();
        if change != Change::None {
            self.changes.notify_waiters();
        }
        change == Change::Connection
    }

    /// Notifies futures after an operation that may have changed the link. `before` is the state of
    /// the link that was observed before the operation.
    pub(super) fn acted(&self, before: Option<&Observation>) {
        let (change, after) = self.take_change();
        if change != Change::None {
            self.over();
        } else if after.is_some_and(|after| after.has_next) {
            self.messages.notify_waiters();
        }
        let was_attached = before.is_none_or(|seen| seen.snapshot.is_attached);
        let is_attached = after.is_none_or(|seen| seen.snapshot.is_attached);
        if !was_attached || !is_attached || change == Change::Connection {
            // The operation may have made a turn of the whole group, and found new links of a
            // server. The nudged driver task checks for them.
            self.shared.nudge.notify_one();
        }
    }

    /// Calls `act`, an operation on the link, and then notifies the futures that wait for the
    /// changes that it made.
    pub(super) fn act<R>(&self, act: impl FnOnce() -> R) -> R {
        // This guard, when dropped, notifies the link's futures, even if the application's code
        // panics.
        let _acting = Acting { notices: self, before: self.observer.observe().ok() };
        act()
    }

    /// Wakes all futures of the link, because the driver task has ended: each then returns an
    /// error.
    pub(super) fn over(&self) {
        for notify in [&self.messages, &self.changes, &self.events] {
            notify.notify_waiters();
        }
    }

    /// Waits until `act` returns a value; `act` is called again after each change of the link.
    pub(super) async fn until_done<R>(
        &self,
        mut act: impl FnMut() -> Option<R>,
    ) -> Result<R, Stopped> {
        consume_budget().await;
        loop {
            // The future registers for notices before it calls `act`, so that it misses no change
            // of the link between that call and the await.
            let changed = self.changes.notified();
            if let Some(done) = self.act(&mut act) {
                return Ok(done);
            }
            self.shared.goes_on()?;
            changed.await;
        }
    }

    /// Calls `act`, which acknowledges or redelivers received messages. Then notifies the futures
    /// of the link, including those that send replies.
    pub(super) fn act_on_received<R>(&self, act: impl FnOnce() -> R) -> R {
        let done = self.act(act);
        self.acked();
        done
    }

    /// Notifies futures that wait for room for a reply: another task may have acknowledged the
    /// request that the reply answers, and the future then fails.
    pub(super) fn acked(&self) {
        self.acks.notify_waiters();
    }

    /// Waits until `act`, which sends a reply, returns a value. Calls `act` again after each change
    /// of the link, and after each acknowledgement: another task may acknowledge the request, and
    /// the reply then fails.
    pub(super) async fn until_replied<R>(
        &self,
        mut act: impl FnMut() -> Option<R>,
    ) -> Result<R, Stopped> {
        loop {
            let acked = self.acks.notified();
            tokio::select! {
                biased;
                done = self.until_done(&mut act) => {
                    self.acks.notify_waiters();
                    return done;
                }
                () = acked => {}
            }
        }
    }

    /// Waits until `is_so` returns true for an observed state of the link. The future neither
    /// receives nor sends anything.
    pub(super) async fn until(
        &self,
        is_so: impl Fn(&Observation) -> bool,
    ) -> Result<(), WaitError> {
        consume_budget().await;
        loop {
            let changed = self.changes.notified();
            if is_so(&self.observer.observe()?) {
                return Ok(());
            }
            self.observer.await_acks()?;
            let seen = self.observer.observe()?;
            if is_so(&seen) {
                return Ok(());
            }
            if let Some(stopped) = seen.snapshot.stopped() {
                return Err(stopped.into());
            }
            self.shared.goes_on()?;
            changed.await;
        }
    }

    /// Replaces the last reported `Snapshot` of the link (the part of its state for which futures
    /// wait) by the present one. Returns the difference, and the present observation unless the
    /// link is closed.
    fn take_change(&self) -> (Change, Option<Observation>) {
        // The lock of the last reported `Snapshot` of the link is held while the link is observed,
        // so that a later caller never records an older state of the link.
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = self.observer.observe().ok();
        let now = seen.map(|seen| seen.snapshot);
        let before = std::mem::replace(&mut *reported, now);
        let connections = |snapshot: Option<Snapshot>| snapshot.map(|s| s.connections);
        let change = if before == now {
            Change::None
        } else if connections(before) == connections(now) {
            Change::Some
        } else {
            Change::Connection
        };
        (change, seen)
    }
}

/// The difference between the last reported `Snapshot` of a link (the part of its state for which
/// futures wait) and the present one, by which [`Notices`] decides which futures to notify.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Some,
    /// The connection was replaced or lost, or the link was closed.
    Connection,
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.shared.forget(self.observer.id());
    }
}

/// Guard of an operation on a link: dropping the guard notifies the futures that wait for the
/// changes that the operation made.
struct Acting<'a> {
    notices: &'a Notices,
    before: Option<Observation>,
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        self.notices.acted(self.before.as_ref());
    }
}
