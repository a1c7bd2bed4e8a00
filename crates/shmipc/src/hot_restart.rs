// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hot restart: the state of a listener that hands its sessions over to a new process, and of a
//! client's pool that moves to that process.
//!
//! ```text
//!   old server                        client                    new server, at the same address
//!    ── HotRestart epoch ─────────────▶ ── connects, epoch in its names ──▶
//!    ◀───────────── HotRestartAck epoch │   from now on new streams use the new server
//!    │ streams in use go on until the application closes the old sessions
//! ```
//!
//! Only sessions of shmipc move. Sessions of Partywall's own protocol at the same address use
//! `go_away`.
//!
//! [`Handover`] is the state of a listener: which sessions were notified, which have moved, and
//! when the wait ends. [`Migrator`] is the state of a pool: which connections to replace, and which
//! to acknowledge. Both are state machines without socket or clock. The caller passes the time,
//! numbers sessions without reuse, and writes the messages while it holds no lock. The machines do
//! not decide how the two servers share the address, and they close no session.
//!
//! The messages are those of shmipc-go, the only other implementation that knows them. A client of
//! the crate `shmipc` hangs up when it receives `HotRestart`, and connects anew later. Differences
//! from shmipc-go:
//!
//! - A session that joins during a handover is notified too, and the handover does not wait for a
//!   session that ends.
//! - A client acknowledges each connection when it has moved, not when all have moved. The server
//!   counts them one by one in both cases.
//! - Sessions that have moved stay moved if others time out.
//! - There is no polling every 100 ms. Events are processed at once, and
//!   [`next_deadline`](Migrator::next_deadline) is the time of the next time-out.
//!
//! Invariants: a handover ends within 2 s. It ends as `Done` only if every session that is still
//! open has moved.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The handover of a listener: which sessions were notified, and which have moved.
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
    /// Sessions whose clients were notified of the handover, and have not moved to the new process.
    /// After a time-out of the handover they stay in this set.
    pending: BTreeSet<u64>,
    deadline: Option<Instant>,
}

/// State of a listener's handover of its sessions to a new process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandoverState {
    /// No handover has begun so far.
    #[default]
    Never,
    /// Some notified sessions have neither moved nor ended, and the time-out has not elapsed.
    Pending {
        /// Epoch of the pending handover: the number that the application chose.
        epoch: u64,
        /// Number of notified sessions that have moved to the new process so far.
        moved: usize,
        /// Number of notified sessions that have ended so far, instead of moving to the new
        /// process.
        left: usize,
    },
    /// All notified sessions have moved or ended. Clients of Partywall's own protocol at the same
    /// address are neither notified nor counted.
    Done {
        /// Epoch of the finished handover: the number that the application chose.
        epoch: u64,
        /// Number of notified sessions that have moved to the new process.
        moved: usize,
        /// Number of notified sessions that ended instead of moving.
        left: usize,
    },
    /// Some notified sessions neither moved nor ended in time. A handover with another epoch can
    /// notify them again.
    TimedOut {
        /// Epoch of the handover that timed out: the number that the application chose.
        epoch: u64,
        /// Number of notified sessions that have moved to the new process.
        moved: usize,
        /// Number of notified sessions that ended instead of moving.
        left: usize,
        /// Number of notified sessions that neither moved nor ended.
        stayed: usize,
    },
}

/// Why a listener's handover to a new process cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// Another handover is pending; only one runs at a time.
    #[error("hot restart {epoch} is not over yet: wait until it is, {} ms at most", HANDOVER_TIMEOUT.as_millis())]
    Pending {
        /// Epoch of the pending handover: the number that the application chose.
        epoch: u64,
    },
    /// The epoch is 0: clients would give their new regions the names of regions that are in use.
    #[error("hot restart 0 cannot be: choose an epoch from 1 on")]
    Zero,
    /// The epoch is that of the last handover: sessions could not distinguish the two handovers.
    #[error("the last hot restart was {epoch} as well: choose another epoch each time")]
    Repeated {
        /// The epoch of the refused handover, which is also that of the last handover.
        epoch: u64,
    },
}

impl Handover {
    /// Begins a handover. The caller then sends `HotRestart` with this epoch to each session.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`HandoverError`]; the state of the handover is then
    /// unchanged.
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

    /// The caller reports that a session has finished its handshake. If a handover is pending or
    /// done, returns its epoch; the caller then sends `HotRestart` with this epoch to the session.
    /// A session that joins after a finished handover is notified, too, because its client
    /// connected to the old process. But the handover does not wait for such a session.
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

    /// The caller reports that a session sent `HotRestartAck`. Returns whether the acknowledgement
    /// was expected. An unexpected acknowledgement is ignored, as shmipc-go does.
    pub fn acknowledged(&mut self, session: u64, acknowledged: u64) -> bool {
        let HandoverState::Pending { epoch, moved, .. } = &mut self.state else { return false };
        if *epoch != acknowledged || !self.pending.remove(&session) {
            return false;
        }
        *moved += 1;
        self.settle();
        true
    }

    /// The caller reports that a session ended, so the handover no longer waits for that session.
    pub fn left(&mut self, session: u64) {
        if let HandoverState::Pending { left, .. } = &mut self.state {
            if self.pending.remove(&session) {
                *left += 1;
                self.settle();
            }
        }
    }

    /// Returns the state of the handover at time `now`.
    pub fn poll(&mut self, now: Instant) -> HandoverState {
        if let HandoverState::Pending { epoch, moved, left } = self.state {
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                let stayed = self.pending.len();
                self.state = HandoverState::TimedOut { epoch, moved, left, stayed };
            }
        }
        self.state
    }

    /// The notified sessions that have neither moved nor ended. After a time-out of the handover,
    /// these are the sessions that stayed.
    pub fn staying(&self) -> impl Iterator<Item = u64> {
        self.pending.iter().copied()
    }

    /// The time at which the caller calls [`poll`](Self::poll) again if there is no event before.
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

/// The migration of a pool: which of its connections to replace.
///
/// ```
/// use partywall_shmipc::wire::{Migrator, RestartAction};
/// use std::time::Instant;
///
/// let mut migrator = Migrator::default();
/// assert_eq!(migrator.on_hot_restart(4, 7, Instant::now()), RestartAction::Connect);
/// // … connected with names of `Naming::in_epoch(7)`. Session 4 gets no new streams, but this ack:
/// assert_eq!(migrator.moved(4), Some(7));
/// ```
#[derive(Debug, Default)]
pub struct Migrator {
    epoch: u64,
    /// Sessions that the pool has to replace by sessions to the new server process, by number.
    moves: BTreeMap<u64, Move>,
    /// Numbers of sessions that were replaced by sessions to the new server process. They stay open
    /// for their streams in use.
    replaced: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Move {
    deadline: Instant,
    /// The time of the next attempt to connect to the new server process; `None` while an attempt
    /// is in progress.
    again: Option<Instant>,
}

/// The reaction of a pool to a `HotRestart` message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartAction {
    /// Connect to the same address, then call [`moved`](Migrator::moved) or
    /// [`failed`](Migrator::failed).
    Connect,
    /// Send `HotRestartAck` with this epoch: the session has been replaced already.
    Acknowledge(u64),
    /// Do nothing: a migration is in progress, or the epoch is 0. The server then waits until its
    /// time-out.
    Ignore,
}

/// An action of a migrating pool that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Connect again to replace the session with this number.
    Connect(u64),
    /// The migration of the session with this number timed out. The session stays in use until the
    /// server closes it.
    GiveUp(u64),
}

impl Migrator {
    /// The caller reports that a session received `HotRestart`. Returns how the pool is to react.
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

    /// The caller reports that a session of the old process has been replaced by one to the new
    /// process. Returns the epoch to acknowledge on the *old* connection; `None` if the old session
    /// has ended, or its migration was given up. The pool uses the replacement in every case.
    pub fn moved(&mut self, session: u64) -> Option<u64> {
        self.moves.remove(&session)?;
        self.replaced.insert(session);
        Some(self.epoch)
    }

    /// The caller reports that an attempt to connect failed. The attempt is repeated, because the
    /// new process may not listen yet.
    pub fn failed(&mut self, session: u64, now: Instant) {
        if let Some(attempt) = self.moves.get_mut(&session) {
            attempt.again = Some(now + RETRY_INTERVAL);
        }
    }

    /// The caller reports that a session ended, whether it was replaced or not, so the migration
    /// forgets that session. The pool, not the migration, replaces sessions that broke.
    pub fn left(&mut self, session: u64) {
        self.moves.remove(&session);
        self.replaced.remove(&session);
    }

    /// The next action that is due. The caller repeats the call until it returns `None`.
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

    /// The time at which the caller calls [`poll`](Self::poll) again if there is no event before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let due =
            |attempt: &Move| attempt.again.map_or(attempt.deadline, |at| at.min(attempt.deadline));
        self.moves.values().map(due).min()
    }

    /// Whether the pool is replacing any session because of a hot restart.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        !self.moves.is_empty()
    }
}

/// Time limit of a handover, for the listener and for the pool. Sessions that have not moved when
/// the time has elapsed stay with the old process.
pub const HANDOVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay before a pool's next attempt to connect to the new process, which may not listen yet.
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
    fn handover_without_sessions_is_done_at_once() {
        let start = Instant::now();
        let mut handover = Handover::default();
        handover.begin(7, [], start).unwrap();
        assert_eq!(handover.poll(start), HandoverState::Done { epoch: 7, moved: 0, left: 0 });
        assert_eq!(handover.joined(1), Some(7), "but a session that joins late is notified");
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
        assert!(!handover.acknowledged(2, 7), "of a session that was not notified");
        assert_eq!(handover.joined(2), Some(7));
        assert!(handover.acknowledged(1, 7));
        assert!(!handover.acknowledged(1, 7), "the second of one session");
        let pending = HandoverState::Pending { epoch: 7, moved: 1, left: 0 };
        assert_eq!(handover.poll(start), pending, "it counts for nobody else");
    }

    #[test]
    fn joining_session_is_notified_and_ended_one_is_not_waited_for() {
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
    fn repeated_announcement_has_one_effect() {
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
        assert_eq!(migrator.moved(1), None, "given up, so the server gets no acknowledgement");
        assert_eq!(
            migrator.on_hot_restart(1, 8, now),
            RestartAction::Connect,
            "a new announcement is followed again"
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
