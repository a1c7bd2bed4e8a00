// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the futures of one link wait for, and who tells them.
//!
//! ```text
//!   the group's task: the group lists the link ──▶ arrived ─┬─▶ messages   recv
//!   an operation, when it is done ───────────────▶ acted ───┼─▶ changes    send, flush, wait_attached, close, reply
//!                                                           └─▶ events     next_event
//!   commit, reply, rewind ─────────────────────────────────────▶ commits   reply, that may have nothing to answer any more
//! ```
//!
//! A link whose messages nobody takes is listed at each turn, and what an operation changes only it knows; so `changes` is told by
//! comparing how the link stands with how it stood when it was last told. Messages and events are not compared: who is told looks.
//!
//! # Invariants
//!
//! - A look that finds nothing tells nobody. Else two that wait would wake each other for ever.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::task::coop::consume_budget;

use super::group::GroupShared;
use crate::{Observed, Observer, Snapshot, Stopped, WaitError};

/// See the module.
pub(super) struct Notices {
    pub(super) observer: Observer,
    pub(super) shared: Arc<GroupShared>,
    pub(super) messages: Notify,
    pub(super) changes: Notify,
    pub(super) events: Notify,
    commits: Notify,
    /// How it stood when that was last told; `None`: closed.
    told: Mutex<Option<Snapshot>>,
}

impl Notices {
    pub(super) fn new(observer: Observer, shared: Arc<GroupShared>) -> Self {
        let told = Mutex::new(observer.observe().ok().map(|look| look.snapshot));
        let [messages, changes, events, commits] = [const { Notify::const_new() }; 4];
        Self { observer, shared, messages, changes, events, commits, told }
    }

    /// The group lists the link. Whether it has another connection.
    pub(super) fn arrived(&self) -> bool {
        self.messages.notify_waiters();
        self.events.notify_waiters();
        let (change, _) = self.take_change();
        if change != Change::None {
            self.changes.notify_waiters();
        }
        change == Change::Connection
    }

    /// Something was done with the link, which stood as in `before`, that may have changed it.
    pub(super) fn acted(&self, before: Option<&Observed>) {
        let (change, after) = self.take_change();
        if change != Change::None {
            self.over();
        } else if after.is_some_and(|after| after.has_next) {
            self.messages.notify_waiters();
        }
        let was_attached = before.is_none_or(|look| look.snapshot.is_attached);
        let is_attached = after.is_none_or(|look| look.snapshot.is_attached);
        if !was_attached || !is_attached || change == Change::Connection {
            // It may have made a turn of the whole group; or who offers links would not hear of this one.
            self.shared.nudge.notify_one();
        }
    }

    /// Does something with the link, and tells of it.
    pub(super) fn act<R>(&self, act: impl FnOnce() -> R) -> R {
        // Also if the application's code panics in it.
        let _acting = Acting { notices: self, before: self.observer.observe().ok() };
        act()
    }

    /// Has all who wait look again.
    pub(super) fn over(&self) {
        for notify in [&self.messages, &self.changes, &self.events] {
            notify.notify_waiters();
        }
    }

    /// Waits until `act` does something, which it is asked again after each change.
    pub(super) async fn until_done<R>(
        &self,
        mut act: impl FnMut() -> Option<R>,
    ) -> Result<R, Stopped> {
        consume_budget().await;
        loop {
            // It is told from here on, before it is looked for.
            let changed = self.changes.notified();
            if let Some(done) = self.act(&mut act) {
                return Ok(done);
            }
            self.shared.goes_on()?;
            changed.await;
        }
    }

    /// Consumes something that was received, or has it received again, and tells of it.
    pub(super) fn act_on_received<R>(&self, act: impl FnOnce() -> R) -> R {
        let done = self.act(act);
        self.committed();
        done
    }

    /// Tells that something was consumed: a reply may wait for what there is no more.
    pub(super) fn committed(&self) {
        self.commits.notify_waiters();
    }

    /// As [`until_done`](Self::until_done), and `act`, a reply, is asked again after each commit, too.
    pub(super) async fn until_replied<R>(
        &self,
        mut act: impl FnMut() -> Option<R>,
    ) -> Result<R, Stopped> {
        loop {
            let committed = self.commits.notified();
            tokio::select! {
                biased;
                done = self.until_done(&mut act) => {
                    self.commits.notify_waiters();
                    return done;
                }
                () = committed => {}
            }
        }
    }

    /// Waits until `is_so`, by looking only.
    pub(super) async fn until(&self, is_so: impl Fn(&Observed) -> bool) -> Result<(), WaitError> {
        consume_budget().await;
        loop {
            let changed = self.changes.notified();
            if is_so(&self.observer.observe()?) {
                return Ok(());
            }
            self.observer.await_consumption()?;
            let look = self.observer.observe()?;
            if is_so(&look) {
                return Ok(());
            }
            if let Some(stopped) = look.snapshot.stopped() {
                return Err(stopped.into());
            }
            self.shared.goes_on()?;
            changed.await;
        }
    }

    /// How it stands otherwise than was told last, which is told from now on; and how it stands, unless it is closed.
    fn take_change(&self) -> (Change, Option<Observed>) {
        // Held while it is looked: who comes later does not find what is older.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let look = self.observer.observe().ok();
        let now = look.map(|look| look.snapshot);
        let before = std::mem::replace(&mut *told, now);
        let connections = |snapshot: Option<Snapshot>| snapshot.map(|s| s.connections);
        let change = if before == now {
            Change::None
        } else if connections(before) == connections(now) {
            Change::Some
        } else {
            Change::Connection
        };
        (change, look)
    }
}

/// How a link stands otherwise than before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Some,
    /// There were others meanwhile, or it is closed.
    Connection,
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.shared.forget(self.observer.id());
    }
}

/// Something is being done with a link; it is told of when it was.
struct Acting<'a> {
    notices: &'a Notices,
    before: Option<Observed>,
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        self.notices.acted(self.before.as_ref());
    }
}
