// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group of links that one task drives, and the state that the links' futures share with the
//! task.
//!
//! ```text
//!   Group, Client, Server, handles of links ─ Hold ─▶ GroupShared ◀── the task (drive.rs)
//!   messages, observers ─────────────────────────▶      │  group   driven by the task alone
//!                                                       │  links   notices of each link in use
//!                                                       └─ nudge   check everything again
//! ```
//!
//! # Invariants
//!
//! - Only the driver task, and threads that close links (`shutdown.rs`), poll the group or block on
//!   its links. If another thread polled the group, the descriptor would not report to the task
//!   what that thread found ready.
//! - The task ends when the last hold (a reference that keeps it running) is dropped.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use tokio::sync::Notify;

use super::drive;
use super::notices::Notices;
use crate::{Config, MemberId, Observer, Stopped, WaitError};
use partywall_wait::Wait;

/// A group of links that one task drives. Clones refer to the same group.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/links.sock", directory.path().display());
/// use partywall_link::{Config, Storage};
/// use partywall_link::tokio::{Client, Group, Server};
///
/// let (group, config) = (Group::new()?, Config::default());
/// let server = Server::bind_in(&group, &address, Storage::Memory, "bob", config.clone())?;
/// let client = Client::new_in(&group, Storage::Memory, "alice", config)?;
/// let link = client.connect(&address, "bob", "orders")?;
/// let served = server.accept().await?;
/// # let _ = (link, served);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) hold: Hold,
}

/// A reference to a group that keeps the group's driver task running. When the reference is
/// dropped, the task first handles what its holder, such as a link, did before.
pub(super) struct Hold {
    pub(super) shared: Arc<GroupShared>,
}

/// State of a group of links, shared by the group's driver task and the futures of its links.
pub(super) struct GroupShared {
    pub(super) group: crate::Group,
    /// Wakes the driver task when there may be work that the group's descriptor does not report.
    pub(super) nudge: Notify,
    /// Wakes futures of `accept` when a server of the group may have attached links without a
    /// handle.
    pub(super) offered: Notify,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    holds: usize,
    /// Number of links that blocking threads are closing; those threads drive the group meanwhile.
    closings: usize,
    links: HashMap<MemberId, Weak<Notices>>,
    /// Reason why the driver task has ended; `None` while it runs.
    fault: Option<Arc<io::Error>>,
}

impl Group {
    /// Makes a group without links, and spawns the task that drives it.
    ///
    /// # Errors
    /// The process has no free descriptors. A group takes seven.
    ///
    /// # Panics
    /// If the caller is outside a tokio runtime with I/O enabled.
    pub fn new() -> io::Result<Self> {
        let group = crate::Group::with_wait(Wait::Park)?;
        let shared = Arc::new(GroupShared {
            group,
            nudge: Notify::new(),
            offered: Notify::new(),
            registry: Mutex::default(),
        });
        let hold = Hold::new(&shared);
        drive::start(shared)?;
        Ok(Self { hold })
    }

    /// Closes all links of the group like [`crate::Group::close`], on a blocking thread of the
    /// runtime. If the future is dropped, the thread closes them all the same.
    ///
    /// # Errors
    /// [`WaitError`] lists the reasons.
    pub async fn close(&self, deadline: Instant) -> Result<(), WaitError> {
        let group = self.hold.shared.group.clone();
        self.hold.shared.close_on_a_thread(move || group.close(deadline)).await
    }
}

impl Hold {
    fn new(shared: &Arc<GroupShared>) -> Self {
        shared.registry().holds += 1;
        Self { shared: Arc::clone(shared) }
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.registry().holds -= 1;
        self.shared.nudge.notify_one();
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

/// Guard of a thread that closes links, and drives the group meanwhile.
struct EndClosing(Arc<GroupShared>);

impl Drop for EndClosing {
    fn drop(&mut self) {
        self.0.end_closing();
    }
}

impl GroupShared {
    /// Returns the configuration of a link or server, changed so that the link or server belongs to
    /// this group of async links.
    pub(super) fn adopt(&self, config: Config) -> Config {
        // The wait strategy is always `Park`: with a spinning strategy, a call whose deadline has
        // passed would spin before it returns.
        config.wait(Wait::Park).group(&self.group)
    }

    /// Checks that the driver task runs.
    ///
    /// # Errors
    /// The reason why the task has ended, so that it would wake no future.
    pub(super) fn is_driven(&self) -> Result<(), Arc<io::Error>> {
        self.registry().fault.clone().map_or(Ok(()), Err)
    }

    /// Checks that the group's driver task runs; the error is that of a link that has stopped.
    pub(super) fn goes_on(&self) -> Result<(), Stopped> {
        self.is_driven().map_err(Stopped::System)
    }

    /// Returns the notices of a link, by which all futures of the link are woken, and which all its
    /// handles share. Makes them if there are none.
    pub(super) fn notices_of(self: &Arc<Self>, link: Observer) -> Arc<Notices> {
        let mut registry = self.registry();
        if let Some(notices) = registry.links.get(&link.id()).and_then(Weak::upgrade) {
            return notices;
        }
        let (id, notices) = (link.id(), Arc::new(Notices::new(link, Arc::clone(self))));
        registry.links.insert(id, Arc::downgrade(&notices));
        notices
    }

    pub(super) fn forget(&self, id: MemberId) {
        let mut registry = self.registry();
        // After the last handle of a link was dropped, a new handle may have made new notices for
        // the same link. These stay registered: only notices to which nothing refers are removed.
        if registry.links.get(&id).is_some_and(|notices| notices.strong_count() == 0) {
            registry.links.remove(&id);
        }
    }

    /// Notifies the futures of each link that the group lists as one with events. If `is_nudged`
    /// (another thread has woken the driver task to check everything), servers may also have new
    /// links that this list does not show.
    pub(super) fn deliver(&self, is_nudged: bool) {
        let mut is_anyone_s = is_nudged;
        for id in self.group.ready() {
            let notices = self.registry().links.get(&id).and_then(Weak::upgrade);
            match notices {
                // The link has notices as long as a handle or a received message refers to it. A
                // link without notices may be a new one, so futures of `accept` are woken.
                Some(notices) => is_anyone_s |= notices.arrived(),
                None => is_anyone_s = true,
            }
        }
        if is_anyone_s {
            self.offered.notify_waiters();
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.registry().holds > 0
    }

    pub(super) fn has_closings(&self) -> bool {
        self.registry().closings > 0
    }

    /// Calls `close` on a blocking thread, which drives the group until `close` returns.
    pub(super) async fn close_on_a_thread<E: From<Stopped> + Send + 'static>(
        self: &Arc<Self>,
        close: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> Result<(), E> {
        self.begin_closing();
        let closing = EndClosing(Arc::clone(self));
        let closed = tokio::task::spawn_blocking(move || {
            let _closing = closing;
            close()
        });
        closed.await.map_err(|error| Stopped::System(Arc::new(io::Error::other(error))))?
    }

    pub(super) fn begin_closing(&self) {
        self.registry().closings += 1;
        self.nudge.notify_one();
    }

    pub(super) fn end_closing(&self) {
        self.registry().closings -= 1;
        self.nudge.notify_one();
    }

    /// Records why the group's driver task has ended, and wakes all futures of the group's links.
    pub(super) fn over(&self, fault: io::Error) {
        let links: Vec<_> = {
            let mut registry = self.registry();
            registry.fault.get_or_insert_with(|| Arc::new(fault));
            registry.links.values().filter_map(Weak::upgrade).collect()
        };
        links.iter().for_each(|notices| notices.over());
        self.offered.notify_waiters();
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
