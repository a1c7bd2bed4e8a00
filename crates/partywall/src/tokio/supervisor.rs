// SPDX-License-Identifier: MIT OR Apache-2.0
//! The task that keeps one place of a pool filled.
//!
//! ```text
//!   connect ── failed ─▶ wait (backoff) ─▶ connect
//!      └─ live ─┬─ lost ───────────────▶ wait ─▶ connect
//!               └─ asked to go ─▶ drain ▶ wait ─▶ connect
//!   closed, at any time: every session is closed, and the task ends
//! ```
//!
//! It opens no stream. Callers of `open` read the state that it writes.

use super::backoff::Backoff;
use super::listener::connect_session;
use super::pool_config::{PoolConfig, PoolEvent};
use super::session::Session;
use crate::address::Address;
use crate::error::ConnectError;
use crate::session::SessionError;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// The state that the supervisors of a pool share with the callers of `open`.
#[derive(Debug)]
pub(super) struct PoolState {
    /// A session for each place, while there is one that takes streams.
    pub(super) live: Vec<Option<Session>>,
    /// Why the last attempt to connect failed; `None` after one that succeeded.
    pub(super) failure: Option<Arc<ConnectError>>,
    pub(super) is_closed: bool,
    /// Number of supervisors that have not ended.
    pub(super) supervisors: usize,
}

/// Keeps one place of a pool filled.
pub(super) struct Supervisor {
    pub(super) place: usize,
    pub(super) address: Address,
    pub(super) config: PoolConfig,
    pub(super) state: Arc<watch::Sender<PoolState>>,
}

/// Sessions of one place that are drained at a time. The oldest is closed when there are more.
const DRAINING_MAX: usize = 4;
/// Reasons with which the pool closes its sessions.
const CLOSED: &str = "the pool was closed";
const DRAINED: &str = "the session was drained after the peer's go_away";

/// How a session ended for the pool.
enum Ending {
    Lost(SessionError),
    GoneAway(u32),
}

impl Supervisor {
    /// Keeps the place filled until the pool is closed.
    pub(super) async fn run(self) {
        let mut backoff = Backoff::new(self.config.backoff_min, self.config.backoff_max);
        let mut draining = Draining::default();
        let mut closed = self.state.subscribe();
        tokio::select! {
            biased;
            // An error means that the pool was dropped.
            _ = closed.wait_for(|state| state.is_closed) => {}
            () = self.keep(&mut backoff, &mut draining) => {}
        }
        draining.close();
        let live = self.place(None);
        if let Some(session) = live {
            session.close(0, CLOSED);
        }
    }

    async fn keep(&self, backoff: &mut Backoff, draining: &mut Draining) {
        loop {
            let protocol = self.config.protocol.clone();
            let connecting = connect_session(self.address.clone(), &self.config.session, protocol);
            let wait = match draining.during(connecting).await {
                Ok(session) => self.use_up(session, backoff, draining).await,
                Err(error) => self.failed(error, backoff),
            };
            draining.during(sleep(wait)).await;
        }
    }

    fn failed(&self, error: ConnectError, backoff: &mut Backoff) -> Duration {
        let (place, error, next_attempt) = (self.place, Arc::new(error), backoff.after_failure());
        self.state.send_modify(|state| state.failure = Some(Arc::clone(&error)));
        self.config.report(&PoolEvent::Failed { place, error, next_attempt });
        next_attempt
    }

    /// Offers a session while it takes streams. Returns the wait before the next attempt.
    async fn use_up(
        &self,
        session: Session,
        backoff: &mut Backoff,
        draining: &mut Draining,
    ) -> Duration {
        let (place, since) = (self.place, Instant::now());
        self.place(Some(session.clone()));
        self.config.report(&PoolEvent::Connected { place, peer: (&session).into() });
        let ending = draining.during(ending(&session)).await;
        self.place(None);
        backoff.after(since.elapsed());
        let next_attempt = backoff.after_failure();
        self.config.report(&match ending {
            Ending::Lost(error) => PoolEvent::Lost { place, error, next_attempt },
            Ending::GoneAway(code) => {
                draining.add(session, Instant::now() + self.config.drain_timeout);
                PoolEvent::GoneAway { place, code, next_attempt }
            }
        });
        next_attempt
    }

    /// Puts a session into the place, or empties it. Returns the previous one.
    fn place(&self, session: Option<Session>) -> Option<Session> {
        let mut replaced = session;
        self.state.send_modify(|state| {
            if replaced.is_some() {
                state.failure = None;
            }
            std::mem::swap(&mut state.live[self.place], &mut replaced);
        });
        replaced
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.state.send_modify(|state| {
            state.live[self.place] = None;
            state.supervisors -= 1;
        });
    }
}

/// Waits until a session takes no more streams.
async fn ending(session: &Session) -> Ending {
    match session.going_away().await {
        Ok(code) => Ending::GoneAway(code),
        Err(error) => Ending::Lost(error),
    }
}

/// Sessions that take no more streams, and their deadlines. The first is the oldest.
#[derive(Default)]
struct Draining {
    sessions: VecDeque<(Session, Instant)>,
}

impl Draining {
    fn add(&mut self, session: Session, until: Instant) {
        if self.sessions.len() == DRAINING_MAX {
            if let Some((oldest, _)) = self.sessions.pop_front() {
                oldest.close(0, DRAINED);
            }
        }
        self.sessions.push_back((session, until));
    }

    /// Waits for `future`, and closes sessions that are drained or overdue meanwhile.
    async fn during<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            // One at a time, the oldest first: they are few, and later ones have later deadlines.
            let Some((oldest, until)) = self.sessions.front() else { return future.await };
            tokio::select! {
                output = &mut future => return output,
                _ = oldest.drained() => {}
                () = sleep_until(*until) => {}
            }
            if let Some((over, _)) = self.sessions.pop_front() {
                over.close(0, DRAINED);
            }
        }
    }

    fn close(&mut self) {
        self.sessions.drain(..).for_each(|(session, _)| session.close(0, CLOSED));
    }
}
