// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress without a thread of the library: a thread that waits drives.
//!
//! ```text
//!   a thread that must wait, at its monitor         the reactor of its group
//!     check ── true ──────────────▶ done            epoll set ◀── sockets, listeners, doorbell
//!      └ false ─▶ a leader? ─ no ─▶ it leads ─────▶ turn: settle, wait, ready sources, timers;
//!                    └ yes ─▶ it follows: sleeps          then check again
//!                             at its monitor until
//!                             a change there, or until
//!                             it is chosen to lead
//! ```
//!
//! `monitor.rs` has a value under a lock and the threads that wait for it to change. `reactor.rs`
//! has the epoll set, the sources and the leader. Neither knows what a link is.
//!
//! # No wake-up is lost
//!
//! Locks are taken in the order monitor, then reactor; never two monitors of the same kind at a
//! time.
//!
//! ```text
//!   follower F                                  leader L
//!   lock monitor                                … its own check is true …
//!   check: false                                lock reactor: no leader; pick a monitor; unlock
//!   lock reactor: a leader? ─ no ─▶ F leads     lock that monitor, notify all there, unlock
//!           yes: F is entered as waiting; unlock
//!   sleep, which unlocks the monitor
//! ```
//!
//! (The first time F leaves again instead of sleeping, and checks once more with the lock's mutex,
//! which it needs to sleep. A thread that leads never needs it.)
//!
//! F enters its monitor before L leaves, or sees that there is no leader: both happen under the
//! lock of the reactor. If F entered, L (or a later leader) picks some monitor, and can lock it
//! only when its followers sleep, because F holds the monitor from its check until it sleeps. A
//! thread that is woken and does not want to lead, because its event has come or its time is up,
//! leaves the reactor's list and picks a monitor as L does. So as long as a thread waits, there is
//! a leader or one is being chosen.
//!
//! Some sources are read without a system call, from memory that another process writes. The peer
//! notifies such a source only after it was armed. Until then it is on the reactor's list: a leader
//! arms every source on the list before it sleeps. A thread that adds a source while a leader
//! sleeps arms it at once.
//!
//! A leader sleeps in `epoll_wait`. If another thread changes the value of *its* monitor, that
//! thread notifies the doorbell: the monitor was marked under the same lock as the check that was
//! false. A timer that is earlier than all others notifies it, too.

mod monitor;
mod reactor;

pub(super) use monitor::{Entered, Monitor, MonitorGuard, Monitored};
pub(super) use reactor::{Before, Reactor, Source};
