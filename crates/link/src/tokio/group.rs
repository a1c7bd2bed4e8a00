// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links that one task drives, and what their futures share with it.
//!
//! ```text
//!   Group, Client, Server, handles of links ── Hold ──▶ GroupShared ◀── the task (drive.rs)
//!   messages, links that are looked up ────────────────────────────▶  │  group    of threads, that nobody else has
//!                                                                      │  links    news of each, while somebody has it
//!                                                                      └─ nudge    look at everything again
//! ```
//!
//! # Invariants
//!
//! - No thread waits for a link of the group or polls it, but the task and links that are being closed (`closing.rs`): what another
//!   found ready, the descriptor would not tell the task.
//! - The task ends when nobody holds.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::drive;
use super::notices::Notices;
use crate::{Config, MemberId, Observer, Stopped};
use partywall_wait::Wait;

/// Links that are driven by one task. Clones are the same group.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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

/// Keeps the task running. Whatever its holder did before it let go is looked at.
pub(super) struct Hold {
    pub(super) shared: Arc<GroupShared>,
}

/// See the module.
pub(super) struct GroupShared {
    pub(super) group: crate::Group,
    /// Somebody did what the descriptor may not tell of.
    pub(super) nudge: Notify,
    /// Servers may have links that nobody has.
    pub(super) offered: Notify,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    holds: usize,
    /// Links that are being closed by threads of the runtime, which drive meanwhile.
    closings: usize,
    links: HashMap<MemberId, Weak<Notices>>,
    /// Why nobody drives any more.
    fault: Option<Arc<io::Error>>,
}

impl Group {
    /// A group without links, and its task.
    ///
    /// # Errors
    /// No descriptor is left: a group takes seven.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
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

impl GroupShared {
    /// The configuration of a link or server of this group.
    pub(super) fn adopt(&self, config: Config) -> Config {
        // What is asked here with a deadline that has passed would spin first.
        config.wait(Wait::Park).group(&self.group)
    }

    /// # Errors
    /// Nobody drives the group any more, so that nobody would be woken.
    pub(super) fn is_driven(&self) -> Result<(), Arc<io::Error>> {
        self.registry().fault.clone().map_or(Ok(()), Err)
    }

    /// As [`is_driven`](Self::is_driven), for links.
    pub(super) fn goes_on(&self) -> Result<(), Stopped> {
        self.is_driven().map_err(Stopped::System)
    }

    /// What the futures of this link wait for: the same for all its handles.
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
        // There may be news of the same link again.
        if registry.links.get(&id).is_some_and(|notices| notices.strong_count() == 0) {
            registry.links.remove(&id);
        }
    }

    /// Hands on what the group knows. `is_nudged`: others may know more.
    pub(super) fn deliver(&self, is_nudged: bool) {
        let mut is_anyone_s = is_nudged;
        for id in self.group.ready() {
            let notices = self.registry().links.get(&id).and_then(Weak::upgrade);
            match notices {
                // One that a message still refers to may be nobody's, too.
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

    pub(super) fn begin_closing(&self) {
        self.registry().closings += 1;
        self.nudge.notify_one();
    }

    pub(super) fn end_closing(&self) {
        self.registry().closings -= 1;
        self.nudge.notify_one();
    }

    /// From here on nobody drives: all who wait are told.
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
