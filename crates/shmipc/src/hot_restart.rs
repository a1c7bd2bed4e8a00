// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handing over to a new process: the listener's side, and a pool's.
//!
//! ```text
//!   old server                        client                           new server, at the same address
//!    ── HotRestart epoch ─────────────▶ ── connects, epoch in its names ──▶
//!    ◀───────────── HotRestartAck epoch │   new streams go there from now on
//!    │ streams in use go on, until the application closes what is left
//! ```
//!
//! It moves sessions of shmipc only; those of Partywall's own protocol at the same address have `go_away`.
//!
//! [`Handover`] is the listener's: whom it told, who has moved, and when it stops waiting. [`Migrator`] is a pool's: which
//! connections are to be replaced, and whom to tell. Both are machines without socket or clock: the time is an
//! argument, sessions are numbers that their owner gives and does not use again, and the owner writes the messages
//! when it holds no lock. How the old and the new server share the address is not their business, and nobody
//! closes a session on their word.
//!
//! On the wire it is what shmipc-go does, which alone knows it; a client of the crate `shmipc` hangs up when it is
//! told, and connects anew by itself later. Different from shmipc-go:
//!
//! - A session that joins during a handover is told too, and one that ends is not waited for.
//! - Each connection is acknowledged when it has moved, not when all have: the server counts them one by one anyhow.
//! - What has moved stays moved, though others do not within the time.
//! - Nobody looks every 100 ms whether something happened. What happens is said at once, and
//!   [`next_deadline`](Mover::next_look) is when time alone changes something.
//!
//! Invariants: a handover ends, in 2 s; it ends well only if nobody who is still there has not moved.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A listener's side: who is told of the new process, and who has moved.
///
/// ```
/// use partywall_shmipc::wire::{Handover, HandoverState};
/// use std::time::Instant;
///
/// let now = Instant::now();
/// let mut handover = Handover::default();
/// handover.begin(7, [1, 2], now)?; // now send HotRestart 7 to sessions 1 and 2
/// assert!(handover.acknowledged(1, 7));
/// handover.left(2);
/// assert_eq!(handover.poll(now), HandoverState::Done { epoch: 7, moved: 1, left: 1 });
/// # Ok::<(), partywall_shmipc::wire::HandoverError>(())
/// ```
#[derive(Debug, Default)]
pub struct Handover {
    state: HandoverState,
    /// Told, and not moved yet; after a handover that timed out, those who had not.
    pending: BTreeSet<u64>,
    deadline: Option<Instant>,
}

/// How far a handover is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandoverState {
    /// There was none.
    #[default]
    Never,
    /// Some were told and have not moved.
    Pending {
        /// Which handover.
        epoch: u64,
        /// How many have moved.
        moved: usize,
        /// How many ended instead.
        left: usize,
    },
    /// All that were told have moved, or ended. That is said of sessions of shmipc only: clients that speak Partywall's
    /// own protocol at the same address are not told, nor counted.
    Done {
        /// Which handover.
        epoch: u64,
        /// How many have moved.
        moved: usize,
        /// How many ended instead.
        left: usize,
    },
    /// Some did neither in time. They can be told again, in another epoch.
    TimedOut {
        /// Which handover.
        epoch: u64,
        /// How many have moved.
        moved: usize,
        /// How many ended instead.
        left: usize,
        /// How many did neither.
        stayed: usize,
    },
}

/// Why no handover begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// One at a time.
    #[error("hot restart {epoch} is not over yet: wait until it is, {} ms at most", HANDOVER_TIMEOUT.as_millis())]
    Pending {
        /// Which one.
        epoch: u64,
    },
    /// Clients add nothing to their names in epoch 0, and would find them in use.
    #[error("hot restart 0 cannot be: choose an epoch from 1 on")]
    Zero,
    /// Nobody could tell it from the one before.
    #[error("the last hot restart was {epoch} as well: choose another epoch each time")]
    Repeated {
        /// Which one.
        epoch: u64,
    },
}

impl Handover {
    /// Begins. Each of these sessions is then sent `HotRestart` with this epoch.
    ///
    /// # Errors
    /// See [`HandoverError`]; nothing has changed then.
    pub fn begin(
        &mut self,
        epoch: u64,
        sessions: impl IntoIterator<Item = u64>,
        now: Instant,
    ) -> Result<(), HandoverError> {
        if let HandoverState::Pending { epoch, .. } = self.poll(now) {
            return Err(HandoverError::Pending { epoch });
        }
        if epoch == 0 {
            return Err(HandoverError::Zero);
        }
        if self.epoch() == Some(epoch) {
            return Err(HandoverError::Repeated { epoch });
        }
        self.pending = sessions.into_iter().collect();
        self.deadline = Some(now + HANDOVER_TIMEOUT);
        self.state = HandoverState::Pending { epoch, moved: 0, left: 0 };
        self.settle();
        Ok(())
    }

    /// A handshake ended: the epoch that the session is to be told. After a handover is done too, since who still comes
    /// to the old process had connected before; but then nobody waits for it.
    pub fn joined(&mut self, session: u64) -> Option<u64> {
        match self.state {
            HandoverState::Pending { epoch, .. } => {
                self.pending.insert(session);
                Some(epoch)
            }
            HandoverState::Done { epoch, .. } => Some(epoch),
            HandoverState::Never | HandoverState::TimedOut { .. } => None,
        }
    }

    /// A session sent `HotRestartAck`: whether that was waited for. If not it means nothing, as with the peers.
    pub fn acknowledged(&mut self, session: u64, acknowledged: u64) -> bool {
        let HandoverState::Pending { epoch, moved, .. } = &mut self.state else { return false };
        if *epoch != acknowledged || !self.pending.remove(&session) {
            return false;
        }
        *moved += 1;
        self.settle();
        true
    }

    /// A session ended.
    pub fn left(&mut self, session: u64) {
        if let HandoverState::Pending { left, .. } = &mut self.state {
            if self.pending.remove(&session) {
                *left += 1;
                self.settle();
            }
        }
    }

    /// How far it is now.
    pub fn poll(&mut self, now: Instant) -> HandoverState {
        if let HandoverState::Pending { epoch, moved, left } = self.state {
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                let stayed = self.pending.len();
                self.state = HandoverState::TimedOut { epoch, moved, left, stayed };
            }
        }
        self.state
    }

    /// Those who were told and have neither moved nor ended: at the end of a handover that timed out, who stayed.
    pub fn staying(&self) -> impl Iterator<Item = u64> {
        self.pending.iter().copied()
    }

    /// When to [`look`](Self::look) though nothing happened.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let is_pending = matches!(self.state, HandoverState::Pending { .. });
        self.deadline.filter(|_| is_pending)
    }

    fn settle(&mut self) {
        if let HandoverState::Pending { epoch, moved, left } = self.state {
            if self.pending.is_empty() {
                self.state = HandoverState::Done { epoch, moved, left };
            }
        }
    }

    const fn epoch(&self) -> Option<u64> {
        match self.state {
            HandoverState::Never => None,
            HandoverState::Pending { epoch, .. }
            | HandoverState::Done { epoch, .. }
            | HandoverState::TimedOut { epoch, .. } => Some(epoch),
        }
    }
}

/// A pool's side: which of its connections are to be replaced.
///
/// ```
/// use partywall_shmipc::wire::{Migrator, RestartAction};
/// use std::time::Instant;
///
/// let mut migrator = Migrator::default();
/// assert_eq!(migrator.on_hot_restart(4, 7, Instant::now()), RestartAction::Connect);
/// // … connected anew, with names of `Naming::in_epoch(7)`: session 4 gets no new streams, and this acknowledgement.
/// assert_eq!(migrator.moved(4), Some(7));
/// ```
#[derive(Debug, Default)]
pub struct Migrator {
    epoch: u64,
    /// To be replaced.
    moves: BTreeMap<u64, Move>,
    /// Replaced, and still open for the streams in use.
    replaced: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Move {
    deadline: Instant,
    /// When to connect again; `None` while that is under way.
    again: Option<Instant>,
}

/// What to do about a `HotRestart`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartAction {
    /// Connect anew to the same address, then say [`moved`](Mover::moved) or [`failed`](Mover::failed).
    Connect,
    /// Send `HotRestartAck` with this epoch: the session was replaced before.
    Acknowledge(u64),
    /// Nothing: it is under way, or another one is, or its epoch is 0. The server stops waiting by itself.
    Ignore,
}

/// What time brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Connect again in place of this session.
    Connect(u64),
    /// It took too long. The session stays in use until the server closes it.
    GiveUp(u64),
}

impl Migrator {
    /// A session was sent `HotRestart`.
    pub fn on_hot_restart(&mut self, session: u64, epoch: u64, now: Instant) -> RestartAction {
        if self.replaced.contains(&session) && epoch != 0 {
            return RestartAction::Acknowledge(epoch);
        }
        let is_other = !self.moves.is_empty() && self.epoch != epoch;
        if epoch == 0 || is_other || self.moves.contains_key(&session) {
            return RestartAction::Ignore;
        }
        self.epoch = epoch;
        self.moves.insert(session, Move { deadline: now + HANDOVER_TIMEOUT, again: None });
        RestartAction::Connect
    }

    /// A session has its replacement: the epoch to acknowledge on the *old* connection; `None` if that has ended, or
    /// was given up. The replacement is to be used in any case.
    pub fn moved(&mut self, session: u64) -> Option<u64> {
        self.moves.remove(&session)?;
        self.replaced.insert(session);
        Some(self.epoch)
    }

    /// Connecting anew failed. It is tried again: the new process may not listen yet.
    pub fn failed(&mut self, session: u64, now: Instant) {
        if let Some(attempt) = self.moves.get_mut(&session) {
            attempt.again = Some(now + RETRY_INTERVAL);
        }
    }

    /// A session ended, replaced or not. What replaces one that broke is the pool's own matter.
    pub fn left(&mut self, session: u64) {
        self.moves.remove(&session);
        self.replaced.remove(&session);
    }

    /// What has become due. To be asked until there is nothing.
    pub fn poll(&mut self, now: Instant) -> Option<Due> {
        let late = self.moves.iter().find(|(_, attempt)| now >= attempt.deadline);
        if let Some((&session, _)) = late {
            self.moves.remove(&session);
            return Some(Due::GiveUp(session));
        }
        let is_due = |attempt: &Move| attempt.again.is_some_and(|again| now >= again);
        let (session, attempt) = self.moves.iter_mut().find(|(_, attempt)| is_due(attempt))?;
        attempt.again = None;
        Some(Due::Connect(*session))
    }

    /// When to [`look`](Self::look) though nothing happened.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let due =
            |attempt: &Move| attempt.again.map_or(attempt.deadline, |at| at.min(attempt.deadline));
        self.moves.values().map(due).min()
    }

    /// Whether some session is to be replaced.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        !self.moves.is_empty()
    }
}

/// How long a handover takes at most, on either side.
pub const HANDOVER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait before connecting again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_handover_is_done_when_all_have_moved() {
        let start = Instant::now();
        let mut handover = Handover::default();
        assert_eq!((handover.poll(start), handover.next_deadline()), (HandoverState::Never, None));
        handover.begin(7, [1, 2], start).unwrap();
        assert_eq!(handover.next_deadline(), Some(after(start, 2000)));
        assert!(handover.acknowledged(2, 7));
        let pending = HandoverState::Pending { epoch: 7, moved: 1, left: 0 };
        assert_eq!(handover.poll(after(start, 1999)), pending);
        assert!(handover.acknowledged(1, 7));
        let done = HandoverState::Done { epoch: 7, moved: 2, left: 0 };
        assert_eq!(handover.poll(after(start, 9999)), done);
        assert_eq!(handover.next_deadline(), None);
    }

    #[test]
    fn nobody_to_tell_is_nobody_to_wait_for() {
        let start = Instant::now();
        let mut handover = Handover::default();
        handover.begin(7, [], start).unwrap();
        assert_eq!(handover.poll(start), HandoverState::Done { epoch: 7, moved: 0, left: 0 });
        assert_eq!(handover.joined(1), Some(7), "but who was on the way is told");
        assert!(!handover.acknowledged(1, 7), "and not waited for");
    }

    #[test]
    fn acknowledgements_that_nobody_waits_for_mean_nothing() {
        let start = Instant::now();
        let mut handover = Handover::default();
        assert_eq!(handover.joined(1), None);
        assert!(!handover.acknowledged(1, 7));
        handover.begin(7, [1], start).unwrap();
        assert!(!handover.acknowledged(1, 6), "of another epoch");
        assert!(!handover.acknowledged(2, 7), "of one who was not told");
        assert_eq!(handover.joined(2), Some(7));
        assert!(handover.acknowledged(1, 7));
        assert!(!handover.acknowledged(1, 7), "the second of one session");
        let pending = HandoverState::Pending { epoch: 7, moved: 1, left: 0 };
        assert_eq!(handover.poll(start), pending, "it counts for nobody else");
    }

    #[test]
    fn who_joins_is_told_and_who_leaves_is_not_waited_for() {
        let start = Instant::now();
        let mut handover = Handover::default();
        handover.begin(7, [1, 2], start).unwrap();
        assert_eq!(handover.joined(3), Some(7));
        handover.left(1);
        handover.left(9);
        assert!(handover.acknowledged(2, 7));
        assert!(handover.acknowledged(3, 7));
        let done = HandoverState::Done { epoch: 7, moved: 2, left: 1 };
        assert_eq!(handover.poll(start), done);
    }

    #[test]
    fn after_two_seconds_it_is_over_and_another_can_begin() {
        let start = Instant::now();
        let mut handover = Handover::default();
        handover.begin(7, [1, 2, 3], start).unwrap();
        handover.acknowledged(1, 7);
        assert_eq!(
            handover.begin(8, [], after(start, 1999)),
            Err(HandoverError::Pending { epoch: 7 })
        );
        let over = HandoverState::TimedOut { epoch: 7, moved: 1, left: 0, stayed: 2 };
        assert_eq!(handover.poll(after(start, 2000)), over);
        assert!(!handover.acknowledged(2, 7), "too late");
        assert_eq!(handover.joined(4), None);
        let now = after(start, 2001);
        assert_eq!(handover.begin(7, [2], now), Err(HandoverError::Repeated { epoch: 7 }));
        assert_eq!(handover.begin(0, [2], now), Err(HandoverError::Zero));
        assert_eq!(handover.poll(now), over, "a refusal changes nothing");
        handover.begin(8, [2, 3], now).unwrap();
        assert_eq!(handover.next_deadline(), Some(after(start, 4001)));
    }

    #[test]
    fn a_handover_whose_time_is_over_does_not_stand_in_the_way() {
        let start = Instant::now();
        let mut handover = Handover::default();
        handover.begin(7, [1], start).unwrap();
        handover.begin(8, [1], after(start, 2000)).unwrap();
    }

    #[test]
    fn each_connection_is_acknowledged_when_it_has_moved() {
        let start = Instant::now();
        let mut migrator = Migrator::default();
        assert_eq!(migrator.on_hot_restart(1, 7, start), RestartAction::Connect);
        assert_eq!(migrator.on_hot_restart(2, 7, after(start, 50)), RestartAction::Connect);
        assert_eq!(migrator.next_deadline(), Some(after(start, 2000)));
        assert_eq!(migrator.moved(2), Some(7));
        assert!(migrator.is_moving());
        assert_eq!(migrator.moved(1), Some(7));
        assert_eq!(migrator.moved(1), None, "only once");
        assert!(!migrator.is_moving());
        assert_eq!((migrator.poll(after(start, 9999)), migrator.next_deadline()), (None, None));
    }

    #[test]
    fn what_is_told_twice_is_done_once() {
        let start = Instant::now();
        let mut migrator = Migrator::default();
        assert_eq!(migrator.on_hot_restart(1, 0, start), RestartAction::Ignore, "epoch 0 is none");
        assert_eq!(migrator.on_hot_restart(1, 7, start), RestartAction::Connect);
        assert_eq!(migrator.on_hot_restart(1, 7, start), RestartAction::Ignore);
        assert_eq!(
            migrator.on_hot_restart(2, 8, start),
            RestartAction::Ignore,
            "one epoch at a time"
        );
        assert_eq!(migrator.moved(1), Some(7));
        assert_eq!(
            migrator.on_hot_restart(1, 8, start),
            RestartAction::Acknowledge(8),
            "it has moved already"
        );
        assert_eq!(
            migrator.on_hot_restart(2, 8, start),
            RestartAction::Connect,
            "the first is over"
        );
        migrator.left(1);
        migrator.left(2);
        assert_eq!(migrator.moved(2), None, "there is nobody to tell");
        assert!(!migrator.is_moving());
    }

    #[test]
    fn connecting_is_tried_again_until_the_time_is_over() {
        let start = Instant::now();
        let mut migrator = Migrator::default();
        migrator.on_hot_restart(1, 7, start);
        migrator.on_hot_restart(2, 7, start);
        assert_eq!(migrator.moved(2), Some(7));
        let mut now = start;
        let mut attempts = 1;
        loop {
            migrator.failed(1, now);
            now = migrator.next_deadline().unwrap();
            match migrator.poll(now) {
                Some(Due::Connect(1)) => attempts += 1,
                Some(Due::GiveUp(1)) => break,
                other => panic!("{other:?}"),
            }
            assert_eq!(migrator.poll(now), None);
        }
        assert_eq!((attempts, now), (20, after(start, 2000)));
        assert_eq!(migrator.moved(1), None, "given up, so the server is told nothing");
        assert_eq!(
            migrator.on_hot_restart(1, 8, now),
            RestartAction::Connect,
            "and told again it tries again"
        );
    }

    #[test]
    fn an_attempt_that_never_ends_is_given_up() {
        let start = Instant::now();
        let mut migrator = Migrator::default();
        migrator.on_hot_restart(1, 7, start);
        assert_eq!(migrator.poll(after(start, 1999)), None);
        assert_eq!(migrator.poll(after(start, 2000)), Some(Due::GiveUp(1)));
    }
}
