// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress without a thread: whoever waits drives.
//!
//! ```text
//!   a thread that must wait, at its spot             the hub of its group
//!     look ── true ───────────────▶ done              epoll set ◀── sockets, listeners, the bell
//!      └ false ─▶ nobody leads? ─ yes ─▶ leads ─────▶ turn: owed, wait, ready sources, due timers; then look again
//!                       └ no ─▶ follows: sleeps at its spot until something changes there, or it is told to lead
//! ```
//!
//! `monitor.rs` has a value under a lock and who waits for it to change, `reactor.rs` the epoll set, the sources and who leads.
//! Neither knows what a link is.
//!
//! # No wake-up is lost
//!
//! Locks are taken in the order spot, then hub; never two spots of the same kind at a time.
//!
//! ```text
//!   follower F                                     leader L
//!   lock spot                                      … its own look is true …
//!   look: false                                    lock hub: nobody leads; picks a waiting spot; unlock
//!   lock hub: somebody leads? ─ no ─▶ F leads      lock that spot, notify all there, unlock
//!             yes: entered as waiting; unlock
//!   sleep, which unlocks the spot
//! ```
//!
//! (The first time F leaves again instead of sleeping, and looks once more with the lock's mutex, which it needs to sleep: who
//! leads never does.)
//!
//! F enters its spot before L leaves, or sees that nobody leads: both are under the lock of the hub. If it entered, L (or who
//! came after it) picks some spot, and comes into it only when its followers sleep, because F holds the spot from its
//! look until it sleeps. Whoever is woken and does not want to lead, because what it waits for is there or its
//! time is up, leaves the hub's list and does as L does: so as long as somebody waits, somebody leads or is being told to.
//!
//! A source that is read without a system call, memory that another process writes, is rung only if it has said so. It is on the
//! hub's list until it has: a leader lets all on the list say so before it sleeps, and who comes to the list while one sleeps is
//! told to do it at once.
//!
//! A leader sleeps in `epoll_wait`. What changes at *its* spot by another thread rings the bell: the spot was marked in the
//! same hold of the lock as the look that was false. A timer that is earlier than all others rings it, too.

mod monitor;
mod reactor;

pub(super) use monitor::{Monitor, MonitorGuard};
pub(super) use reactor::{Before, Reactor, Source};
