// SPDX-License-Identifier: MIT OR Apache-2.0
//! The supervisor of a pool: a task that keeps one place of the pool filled with a live session.
//!
//! ```text
//!   connect ── failed ─▶ wait (backoff) ─▶ connect
//!      └─ live ─┬─ the session is lost ──────────▶ wait ─▶ connect
//!               └─ the peer sends go_away ─▶ drain ▶ wait ─▶ connect
//!   when the pool is closed, at any time: every session is closed, and the task ends
//! ```
//!
//! A supervisor opens no stream itself. Callers of `Pool::open` read the state that it writes.

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

/// The state of a pool, which its supervisors write, and which callers of `Pool::open` read to find
/// a session.
#[derive(Debug)]
pub(super) struct PoolState {
    /// For each place of the pool, the session that accepts new streams, if there is one.
    pub(super) live: Vec<Option<Session>>,
    /// The error of the last attempt to connect; `None` after an attempt that succeeded.
    pub(super) failure: Option<Arc<ConnectError>>,
    pub(super) is_closed: bool,
    pub(super) supervisors: usize,
}

pub(super) struct Supervisor {
    pub(super) place: usize,
    pub(super) address: Address,
    pub(super) config: PoolConfig,
    pub(super) state: Arc<watch::Sender<PoolState>>,
}

/// Most drained sessions of one place of the pool. A drained session accepts no more streams, and
/// its open streams continue. If one more session is drained, the oldest is closed.
const DRAINING_MAX: usize = 4;
/// Reason text with which a closed pool closes its sessions. `DRAINED` is the text with which the
/// pool closes a session that was drained after the peer's `go_away`.
const CLOSED: &str = "the pool was closed";
const DRAINED: &str = "the session was drained after the peer's go_away";

/// The reason why a session of the pool accepts no more streams: it was lost, or its peer sent
/// `go_away`.
enum Ending {
    Lost(SessionError),
    GoneAway(u32),
}

impl Supervisor {
    /// Keeps this supervisor's place of the pool filled with a session until the pool is closed.
    pub(super) async fn run(self) {
        let mut backoff = Backoff::new(self.config.backoff_min, self.config.backoff_max);
        let mut draining = Draining::default();
        let mut closed = self.state.subscribe();
        tokio::select! {
            biased;
            // `wait_for` fails only if the pool was dropped. The task then ends as after a close.
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

    /// Offers a session to callers of `Pool::open` while the session accepts streams. Returns the
    /// wait before the next attempt to connect.
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

    /// Puts `session` into this supervisor's place of the pool; `None` empties the place. Returns
    /// the session that was in the place before.
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

/// Waits until a session accepts no more streams.
async fn ending(session: &Session) -> Ending {
    match session.going_away().await {
        Ok(code) => Ending::GoneAway(code),
        Err(error) => Ending::Lost(error),
    }
}

/// Sessions that accept no more streams, and the deadlines of their streams, oldest first.
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

    /// Waits for `future`. While it waits, closes the drained sessions whose streams have ended or
    /// whose deadline has passed.
    async fn during<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            // Waiting for the oldest session is enough: later sessions have later deadlines, and at
            // most `DRAINING_MAX` are drained at a time.
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
