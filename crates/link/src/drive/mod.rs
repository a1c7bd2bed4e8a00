// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress without a thread of the library: a thread that blocks on a link drives the link's group
//! meanwhile.
//!
//! ```text
//!   a thread that must block, at its monitor        the reactor of its group
//!     check ── true ──────────────▶ done            epoll set ◀── sockets, listeners, doorbell
//!      └ false ─▶ a leader? ─ no ─▶ it leads ─────▶ turn: settle, wait, ready sources, timers;
//!                    └ yes ─▶ it follows: sleeps          then check again
//!                             at its monitor until
//!                             the value changes, or
//!                             it is chosen to lead
//! ```
//!
//! `monitor.rs` has a value under a lock, and the threads that wait for the value to change.
//! `reactor.rs` has the epoll set and the sources, and chooses the leader: the thread that polls
//! for the whole group. Neither file knows what a link is.
//!
//! # No wake-up is lost
//!
//! Locks are taken in the order monitor, then reactor. No thread holds two monitors of the same
//! kind at a time.
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
//! (At its first false check, F does not sleep. It leaves again, and checks once more with the
//! lock's mutex, which it needs in order to sleep. A thread that leads never needs the mutex.)
//!
//! F enters its monitor in the reactor's list before L leaves, or sees that there is no leader:
//! both happen under the lock of the reactor. If F entered, L (or a later leader) picks a monitor
//! of the list. L can lock that monitor only when its followers sleep, because F holds the monitor
//! from its check until it sleeps. A woken thread need not lead if its event has happened or its
//! deadline has passed. It then leaves the list, and picks a monitor as L does. So as long as a
//! thread waits, there is a leader, or one is being chosen.
//!
//! Some sources are read without a system call, from memory that another process writes. The peer
//! notifies such a source only after the source was armed. Until then the source is on the
//! reactor's list: a leader arms every source on the list before it sleeps. A thread that adds a
//! source while a leader sleeps arms the source itself, without delay.
//!
//! An external event loop polls only if no thread leads. Otherwise it drains its doorbell and
//! sleeps, although the leader may have made its last turn and armed nothing since. So a leader
//! that leaves notifies the doorbell of a loop that wanted to poll meanwhile.
//!
//! A leader sleeps in `epoll_wait`. A thread that changes the value of the *leader's* monitor
//! notifies the doorbell: the leader marked its monitor under the same lock as its false check. A
//! thread that sets a timer earlier than all others notifies the doorbell, too.

mod monitor;
mod reactor;

pub(super) use monitor::{Entered, Monitor, MonitorGuard, Monitored};
pub(super) use reactor::{Before, Reactor, Source};
