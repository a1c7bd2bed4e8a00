// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group of links whose sockets and timers one thread handles: any thread that blocks on one of
//! the links, or one that polls the group.
//!
//! ```text
//!   links, servers ──▶ group: one epoll set, one set of timers
//!      ├─ any thread in recv, send, accept, wait_acked … drives all of them while it waits
//!      ├─ poll, try_poll                                 drive, and count the links with events
//!      └─ descriptor, next_timer                         for an external event loop with try_poll
//!   a link with events: it has messages, or something else changed ──▶ ready()
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::drive::{Before, Entered, Monitor, MonitorGuard, Reactor};
use super::end::{Endpoint, Shutdown};
use super::error::WaitError;
use partywall_wait::has_passed;
use partywall_wait::{SpinOutcome, Spinner, Wait};

/// The id of a link within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub(super) u64);

/// A group of links whose sockets and timers one thread handles for all of them. Clones refer to
/// the same group.
///
/// The library starts no thread: connections are made, bytes read and acknowledgements sent only
/// while some thread blocks on a link of the group or polls the group.
///
/// ```
/// use partywall_link::{Client, Config, Group, Storage};
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/links.sock", directory.path().display());
///
/// let group = Group::new()?;
/// let config = Config::default().group(&group);
/// let client = Client::new(Storage::Memory, "alice", config)?;
/// let link = client.connect(&address, "bob", "orders")?;
/// let with_events = group.try_poll()?;
/// # let _ = (link, with_events);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Group {
    pub(super) inner: Arc<GroupInner>,
}

pub(super) struct GroupInner {
    pub(super) reactor: Arc<Reactor>,
    events: Arc<Monitor<EventList>>,
    wait: Wait,
    spinner: Mutex<Spinner>,
    members: Mutex<Members>,
}

struct Members {
    next_id: u64,
    links: BTreeMap<MemberId, Weak<Endpoint>>,
}

/// A link as its group sees it: the group asks it for its id and its events.
pub(super) trait Member: Send + Sync {
    fn id(&self) -> MemberId;
    /// Whether the link has events, so that the application should check it. If `is_reported`, the
    /// caller passes the result to the application. Events other than messages are then not
    /// reported again.
    fn has_events(&self, is_reported: bool) -> bool;
}

#[derive(Default)]
struct EventList {
    links: VecDeque<Weak<dyn Member>>,
    /// Number of threads that have taken all links out of this list of links with events, to check
    /// them. Each such thread puts back the links that still have events.
    readers: u32,
    /// Whether a thread found this list of links with events empty while other threads had taken
    /// the links out of it.
    has_missed: bool,
}

impl Entered for EventList {}

impl Group {
    /// Makes a group without links, whose [`poll`](Self::poll) waits by the strategy
    /// `Wait::Adaptive`.
    ///
    /// # Errors
    /// Fails if the process has too few free descriptors. A group takes two, and two more when its
    /// own descriptor is first requested.
    pub fn new() -> io::Result<Self> {
        Self::with_wait(Wait::Adaptive)
    }

    /// Makes a group without links, whose [`poll`](Self::poll) waits by the strategy `wait`.
    ///
    /// # Errors
    /// Fails if the process has too few free descriptors, as for [`new`](Self::new).
    pub fn with_wait(wait: Wait) -> io::Result<Self> {
        let reactor = Reactor::new()?;
        let events = Monitor::new(Arc::clone(&reactor), EventList::default());
        let spinner = Mutex::new(Spinner::new(SPIN_BUDGET));
        let members = Mutex::new(Members { next_id: 1, links: BTreeMap::new() });
        Ok(Self { inner: Arc::new(GroupInner { reactor, events, wait, spinner, members }) })
    }

    /// Handles the sockets and timers of all links of the group until a link has events, at most
    /// until `deadline`. Returns the number of links with events. A link has events if it has
    /// unreceived messages, or if its room, its events or its connection changed since
    /// [`ready`](Self::ready) last returned it.
    ///
    /// # Errors
    /// [`Forked`](partywall::event::Forked) in a forked child, and the error of epoll, which a
    /// sound system never reports.
    pub fn poll(&self, deadline: Option<Instant>) -> io::Result<usize> {
        let inner = &self.inner;
        inner.reactor.check_owner()?;
        let mut is_spinning = true;
        loop {
            inner.reactor.try_turn(Before::Sleeping)?;
            let count = inner.count_events();
            if count > 0 || has_passed(deadline) {
                return Ok(count);
            }
            is_spinning = is_spinning && inner.spin()? != SpinOutcome::Exhausted;
            if !is_spinning {
                inner
                    .events
                    .wait_for(deadline, |events| (!events.links.is_empty()).then_some(()))?;
            }
        }
    }

    /// Handles the ready sockets and due timers of all links of the group, without blocking.
    /// Returns the number of links with events.
    ///
    /// # Errors
    /// [`Forked`](partywall::event::Forked) in a forked child, and the error of epoll, which a
    /// sound system never reports.
    pub fn try_poll(&self) -> io::Result<usize> {
        self.inner.reactor.check_owner()?;
        self.inner.reactor.try_turn(Before::SleepingExternally)?;
        Ok(self.inner.count_events())
    }

    /// Returns the links with events. Each call returns a link with messages until all its messages
    /// are received. A link with any other change is returned by one call only.
    #[must_use]
    pub fn ready(&self) -> Vec<MemberId> {
        let links = self.inner.links_with_events(true);
        links.iter().map(|link| link.id()).collect()
    }

    /// Closes all links of the group like [`Link::close`](crate::Link::close), even those with a
    /// handle. The link files are then written to the disk together, which may last beyond
    /// `deadline`: many files cost hardly more than one.
    ///
    /// A client that attaches to a server of the group afterwards opens its link anew. So close the
    /// servers before, by [`Server::close`](crate::Server::close).
    ///
    /// # Errors
    /// The first error of [`Link::close`](crate::Link::close). All links are closed even then.
    pub fn close(&self, deadline: Instant) -> Result<(), WaitError> {
        // The lock of the group's list of links is released before any link is closed, because a
        // link that is dropped takes this lock.
        let links: Vec<_> = self.inner.members().links.values().filter_map(Weak::upgrade).collect();
        let open: Vec<_> = links.into_iter().filter(|link| link.is_open()).collect();
        Shutdown::close_all(&open, Some(deadline))
    }

    /// Time at which the application should call [`try_poll`](Self::try_poll) even if the group's
    /// descriptor is not readable; `None` if no timer is set.
    #[must_use]
    pub fn next_timer(&self) -> Option<Instant> {
        self.inner.reactor.next_timer()
    }

    /// Number of times that some thread polled the sockets of this group, or blocked on them.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.inner.reactor.turns()
    }
}

impl AsFd for Group {
    /// Returns a descriptor that becomes readable when [`try_poll`](Group::try_poll) has work to
    /// do, or [`ready`](Group::ready) has links to return. One call of `try_poll` may not handle
    /// everything, so an edge-triggered loop has to poll the descriptor again before it sleeps.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.reactor.as_fd()
    }
}

/// A loop of [`partywall::event`] reports a group as readable as long as a link has events, which
/// [`ready`](Group::ready) returns.
impl partywall::event::Source for Group {
    fn try_poll(&self) -> io::Result<bool> {
        Self::try_poll(self).map(|count| count > 0)
    }

    fn next_timer(&self) -> Option<Instant> {
        Self::next_timer(self)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("wait", &self.inner.wait).finish_non_exhaustive()
    }
}

impl GroupInner {
    pub(super) fn join(&self, link: Weak<Endpoint>) -> MemberId {
        let mut members = self.members();
        let id = MemberId(members.next_id);
        members.next_id += 1;
        members.links.insert(id, link);
        id
    }

    pub(super) fn leave(&self, id: MemberId) {
        self.members().links.remove(&id);
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a link to the list of links with events; the caller ensures that the list does not
    /// contain it.
    pub(super) fn tell(&self, link: Weak<dyn Member>) {
        let mut events = self.events.lock();
        events.links.push_back(link);
        events.changed();
    }

    fn count_events(&self) -> usize {
        self.links_with_events(false).len()
    }

    /// Returns the links of the group's list that still have events, and removes all others from
    /// it. If `is_reported`, the caller passes the links to the application, and later calls return
    /// the same links only for messages.
    fn links_with_events(&self, is_reported: bool) -> Vec<Arc<dyn Member>> {
        // A thread that reports an event locks the link first, and then the group's list of links
        // with events. No thread may lock them in reverse order, so the list's lock is released
        // here before any link is locked.
        let listed = {
            let mut events = self.events.lock();
            events.has_missed |= events.readers > 0;
            events.readers += 1;
            std::mem::take(&mut events.links)
        };
        let links: Vec<_> = listed
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|link| link.has_events(is_reported))
            .collect();
        let mut events: MonitorGuard<'_, EventList> = self.events.lock();
        for link in links.iter().rev() {
            events.links.push_front(Arc::downgrade(link));
        }
        events.readers -= 1;
        let has_missed = events.has_missed;
        events.has_missed &= events.readers > 0;
        if !links.is_empty() {
            // Another thread may have found the list of links with events empty while this thread
            // checked the links, and may now sleep in `poll` or in an external event loop. That
            // thread is woken, because the list has links again.
            events.changed();
            if has_missed {
                self.reactor.wake_external_loop();
            }
        }
        links
    }

    fn spin(&self) -> io::Result<SpinOutcome> {
        let Ok(mut spinner) = self.spinner.try_lock() else { return Ok(SpinOutcome::Exhausted) };
        let mut failed = Ok(());
        let spun = spinner.spin(self.wait, || {
            failed = self.reactor.try_turn(Before::Sleeping);
            failed.is_err() || !self.events.lock().links.is_empty()
        });
        failed.map(|()| spun)
    }
}

/// The longest time for which a thread spins in `Group::poll` before it sleeps; it equals the
/// default of `Config::spin_budget`.
const SPIN_BUDGET: Duration = Duration::from_micros(50);
