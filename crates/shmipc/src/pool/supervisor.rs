// SPDX-License-Identifier: MIT OR Apache-2.0
//! The supervisor of a pool: a task that connects the pool's sessions and replaces sessions that
//! break. In a hot restart it replaces each session by one to the new server process.
//!
//! ```text
//!   place   connected ── ended ─▶ empty ── rebuild_interval, or a caller waits ─▶ connecting
//!              │ HotRestart
//!              └─▶ connecting, still in use ─┬─ done ─▶ replaced; old session sends HotRestartAck
//!                                            └─ for 2 s no success ─▶ connected, as before
//! ```
//!
//! The supervisor opens no streams: callers choose a session in the [`View`].
//!
//! # Invariants
//!
//! - The supervisor holds an old session until its server has had time to read the acknowledgement,
//!   because the server may not read it after a hang-up. After that only the streams of the old
//!   session hold that session.
//! - All sessions connected in one epoch share a region. The region is freed with its last session,
//!   and later sessions have another region: no process frees the slices that a dead server held.
//! - If a server announces a hot restart to new clients again and again, the pool connects every
//!   100 ms, and in one epoch for at most 2 s.

use super::notices::{Notices, ObservedShmipc, PoolObserver};
use super::place::Place;
use crate::hot_restart::{Due, HANDOVER_TIMEOUT, Migrator, RestartAction};
use crate::memory::names::Naming;
use crate::transport::Control;
use crate::transport::metrics::{Count, SessionMetrics};
use crate::{Config, Shmipc};
use partywall::tokio::{Session, connect_with_protocol};
use partywall::{Address, ConnectError, HandshakeError};
use std::collections::BTreeMap;
use std::future::pending;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// State that the pool's supervisor shares with the callers that request streams.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: Address,
    pub(super) config: Config,
    pub(super) session: partywall::Config,
    pub(super) view: watch::Sender<View>,
    pub(super) notices: Arc<Notices>,
    pub(super) ledger: Mutex<Ledger>,
}

impl Shared {
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the pool that callers read when they open streams.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) live: Vec<Option<Arc<Place>>>,
    /// Number of attempts to connect that have begun so far. A caller remembers the number at its
    /// request, and ignores failures of these attempts.
    pub(super) begun: u64,
    /// Number and error of the last failed attempt to connect; `None` after a successful attempt.
    pub(super) failure: Option<(u64, Arc<ConnectError>)>,
    /// Whether a caller waits for a session because there is none. In that case the supervisor
    /// connects at once, not after `rebuild_interval`.
    pub(super) is_wanted: bool,
    pub(super) is_closed: bool,
    /// Whether the pool's supervisor has ended.
    pub(super) is_over: bool,
}

/// Metrics of the pool: its open connections, and the totals of those that have ended.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) connections: BTreeMap<u64, Arc<Control>>,
    pub(super) past: SessionMetrics,
}

#[derive(Debug)]
pub(super) struct Supervisor {
    shared: Arc<Shared>,
    /// The value through which the supervisor connects sessions. All sessions that it connects
    /// share its region of buffers.
    shmipc: Shmipc,
    naming: Naming,
    epoch: u64,
    /// The time until which the pool reacts to announced hot restarts with the current epoch. Later
    /// announcements with that epoch are ignored.
    followed_until: Option<Instant>,
    migrator: Migrator,
    attempts: JoinSet<(u64, Result<Connected, ConnectError>)>,
    under_way: BTreeMap<u64, Attempt>,
    numbers: u64,
    rebuild: Option<Instant>,
    /// Sessions that were replaced in a hot restart, each with the time until which the supervisor
    /// holds it: its server must have time to read the acknowledgement.
    replaced: Vec<(Instant, Arc<Place>)>,
}

type Connected = (Session, Arc<Control>);

#[derive(Clone, Copy, Debug)]
struct Attempt {
    index: usize,
    epoch: u64,
    /// Number of the session that this attempt to connect replaces; `None` if it fills an empty
    /// place of the pool.
    replaces: Option<u64>,
}

impl Supervisor {
    pub(super) fn new(shared: Arc<Shared>, naming: Naming) -> Self {
        Self {
            shmipc: Shmipc::named(shared.config.clone(), naming.clone()),
            shared,
            naming,
            epoch: 0,
            followed_until: None,
            migrator: Migrator::default(),
            attempts: JoinSet::new(),
            under_way: BTreeMap::new(),
            numbers: 0,
            rebuild: None,
            replaced: Vec::new(),
        }
    }

    /// Connects all sessions of the pool. If one attempt fails, no session stays connected.
    pub(super) async fn fill(&mut self) -> Result<(), Arc<ConnectError>> {
        self.connect_missing();
        while let Some(finished) = self.attempts.join_next().await {
            self.finished(finished);
            if let Some((_, failure)) = &self.shared.view.borrow().failure {
                return Err(Arc::clone(failure));
            }
        }
        Ok(())
    }

    /// Opens the pool's sessions, and replaces those that end, until the pool is closed.
    pub(super) async fn run(mut self) {
        while !self.shared.view.borrow().is_closed {
            let next_deadline = self.next_deadline();
            let deadline = async {
                match next_deadline {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = self.shared.notices.came() => self.handle_notices(),
                Some(finished) = self.attempts.join_next() => self.finished(finished),
                () = deadline => {}
            }
            self.poll();
        }
        self.close().await;
    }

    /// The time at which the supervisor acts next, if no connection leaves a notice before.
    fn next_deadline(&self) -> Option<Instant> {
        let over = self.replaced.iter().map(|(until, _)| *until).min();
        let monitor = self
            .shared
            .ledger()
            .connections
            .values()
            .filter_map(|connection| connection.monitor_due())
            .min();
        [self.migrator.next_deadline(), self.rebuild, over, monitor].into_iter().flatten().min()
    }

    /// Performs the actions that are due: retries after hot restarts, the end of replaced sessions,
    /// and connecting empty places. Connects at once if a caller waits for a session.
    fn poll(&mut self) {
        let now = Instant::now();
        while let Some(due) = self.migrator.poll(now) {
            match due {
                Due::Connect(number) => self.move_on(number),
                Due::GiveUp(number) => {
                    if let Some(connection) = self.shared.ledger().connections.get(&number) {
                        connection.count(Count::RestartFailed);
                    }
                }
            }
        }
        self.replaced.retain(|(until, place)| now < *until && place.is_open());
        if self.rebuild.is_some_and(|at| now >= at) {
            self.rebuild = None;
            self.connect_missing();
        }
        let wants = self.shared.view.borrow().is_wanted;
        if wants {
            self.sweep();
            self.shared.view.send_if_modified(|view| {
                view.is_wanted = false;
                false
            });
            if self.shared.view.borrow().live.iter().all(Option::is_none) {
                self.connect_missing();
            }
        }
        let connections: Vec<_> = self.shared.ledger().connections.values().cloned().collect();
        connections.iter().for_each(|connection| connection.tell_monitor());
    }

    fn handle_notices(&mut self) {
        for (number, notice) in self.shared.notices.take() {
            if self.under_way.contains_key(&number) {
                // The connection that left the notice is still being established, so the notice is
                // put back into the table and processed later.
                self.shared.notices.put_back(number, notice);
                continue;
            }
            if let Some(epoch) = notice.restart_epoch {
                self.follow_restart(number, epoch);
            }
            if notice.is_ended {
                self.ended(number);
            }
        }
    }

    /// Reacts to a hot restart with `epoch`, which the server announced on connection `number`.
    fn follow_restart(&mut self, number: u64, epoch: u64) {
        let Some(connection) = self.shared.ledger().connections.get(&number).cloned() else {
            return;
        };
        let now = Instant::now();
        let is_same = self.epoch == epoch;
        let is_following = self.followed_until.is_some_and(|until| now < until);
        if is_same && !is_following {
            return;
        }
        match self.migrator.on_hot_restart(number, epoch, now) {
            RestartAction::Ignore => {}
            // The acknowledgement of the hot restart is sent again only if no bytes are buffered
            // for the socket: a server that repeats the announcement and reads nothing must not
            // fill the buffer.
            RestartAction::Acknowledge(epoch) if !connection.keeps() => {
                connection.acknowledge(epoch)
            }
            RestartAction::Acknowledge(_) => {}
            RestartAction::Connect => {
                if !is_same {
                    self.begin_epoch(epoch, now);
                }
                let is_of_epoch = self.place(number).is_some_and(|place| place.epoch == epoch);
                if is_of_epoch || (!is_same && is_following) {
                    // The pool connects again only after a delay. Either the old process has
                    // accepted a new connection and announced the same hot restart on it, or one
                    // hot restart follows another at a short interval.
                    self.migrator.failed(number, now);
                } else {
                    self.move_on(number);
                }
            }
        }
    }

    fn begin_epoch(&mut self, epoch: u64, now: Instant) {
        self.epoch = epoch;
        self.followed_until = Some(now + HANDOVER_TIMEOUT);
        self.shmipc = Shmipc::named(self.shared.config.clone(), self.naming.in_epoch(epoch));
    }

    /// Begins an attempt to connect that replaces the session with this number.
    fn move_on(&mut self, number: u64) {
        match self.place(number) {
            Some(place) => self.connect(place.index, Some(number)),
            None => self.migrator.left(number),
        }
    }

    fn ended(&mut self, number: u64) {
        self.migrator.left(number);
        let mut ledger = self.shared.ledger();
        if let Some(connection) = ledger.connections.remove(&number) {
            ledger.past.add(&connection.metrics(), false);
        }
        drop(ledger);
        self.sweep();
    }

    /// Empties the places of the pool whose sessions can open no more streams.
    fn sweep(&mut self) {
        let mut gone = Vec::new();
        self.shared.view.send_if_modified(|view| {
            let broken = view
                .live
                .iter_mut()
                .filter(|place| place.as_ref().is_some_and(|place| !place.is_open()));
            gone.extend(broken.filter_map(Option::take));
            !gone.is_empty()
        });
        for place in gone {
            place.replace();
            self.rebuild
                .get_or_insert_with(|| Instant::now() + self.shared.config.rebuild_interval);
        }
    }

    fn place(&self, number: u64) -> Option<Arc<Place>> {
        let view = self.shared.view.borrow();
        view.live.iter().flatten().find(|place| place.number() == number).cloned()
    }

    /// Begins to connect for each empty place for which no attempt is in progress.
    fn connect_missing(&mut self) {
        let is_empty: Vec<_> = self.shared.view.borrow().live.iter().map(Option::is_none).collect();
        if is_empty.iter().all(|is_empty| *is_empty)
            && self.under_way.is_empty()
            && self.numbers > 0
        {
            // No session uses the present buffer region any more. The next sessions share a new
            // region, because slices that the dead server held were never freed in the old one.
            self.shmipc =
                Shmipc::named(self.shared.config.clone(), self.naming.in_epoch(self.numbers));
        }
        for (index, is_empty) in is_empty.into_iter().enumerate() {
            if is_empty && !self.under_way.values().any(|attempt| attempt.index == index) {
                self.connect(index, None);
            }
        }
    }

    fn connect(&mut self, index: usize, replaces: Option<u64>) {
        let number = self.numbers;
        self.numbers += 1;
        self.shared.view.send_if_modified(|view| {
            view.begun = self.numbers;
            false
        });
        self.under_way.insert(number, Attempt { index, epoch: self.epoch, replaces });
        let observer = Arc::new(PoolObserver::new(number, Arc::clone(&self.shared.notices)));
        let protocol =
            ObservedShmipc { shmipc: self.shmipc.clone(), observer: Arc::clone(&observer) };
        let config = self.shared.session.clone();
        let address = self.shared.address.clone();
        self.attempts.spawn(async move {
            let connected =
                match connect_with_protocol(address.clone(), &config, Arc::new(protocol)).await {
                    Ok(session) => observer
                        .connection()
                        .map(|connection| (session, connection))
                        .ok_or_else(|| {
                            let (peer, what) = (address.to_string(), "starting the session");
                            let source = ErrorKind::ConnectionReset.into();
                            HandshakeError::System { peer, what, source }.into()
                        }),
                    Err(error) => Err(error),
                };
            (number, connected)
        });
    }

    fn finished(
        &mut self,
        finished: Result<(u64, Result<Connected, ConnectError>), tokio::task::JoinError>,
    ) {
        let Ok((number, connected)) = finished else {
            // The runtime shuts down and has cancelled the task that was connecting a session.
            return;
        };
        let Some(attempt) = self.under_way.remove(&number) else { return };
        match (connected, attempt.replaces) {
            (Ok(connected), _) => self.fill_place(attempt, connected),
            // The old session still serves streams, so callers get no error of this attempt to
            // replace it.
            (Err(_), Some(replaces)) if self.place(replaces).is_some() => {
                self.migrator.failed(replaces, Instant::now());
            }
            (Err(error), _) => {
                let at = Instant::now() + self.shared.config.rebuild_interval;
                self.rebuild = Some(self.rebuild.map_or(at, |before| before.min(at)));
                self.shared.view.send_modify(|view| {
                    let before = view.failure.as_ref().map_or(0, |(number, _)| *number);
                    view.failure = Some((number.max(before), Arc::new(error)));
                });
            }
        }
        // Notices that the connection left during the attempt to connect were put back into the
        // table; the supervisor is woken to process them now.
        self.shared.notices.call();
    }

    fn fill_place(&mut self, attempt: Attempt, (session, connection): Connected) {
        let Attempt { index, epoch, replaces } = attempt;
        let idle_max = self.shared.config.max_stream_num;
        self.shared.ledger().connections.insert(connection.number(), Arc::clone(&connection));
        let place = Arc::new(Place::new(session, connection, (index, epoch), idle_max));
        let mut before = None;
        self.shared.view.send_modify(|view| {
            view.failure = None;
            before = view.live[index].replace(place);
        });
        // Callers no longer choose the old session, so no new stream is opened on it.
        let Some(old) = before else { return };
        old.replace();
        if let Some(epoch) = replaces.and_then(|replaced| self.migrator.moved(replaced)) {
            old.control.count(Count::RestartSucceeded);
            old.control.acknowledge(epoch);
        }
        self.replaced.push((Instant::now() + HANDOVER_TIMEOUT, old));
    }

    async fn close(&mut self) {
        self.attempts.shutdown().await;
        let mut places: Vec<_> = self.replaced.drain(..).map(|(_, place)| place).collect();
        self.shared.view.send_modify(|view| {
            places.extend(view.live.iter_mut().filter_map(Option::take));
        });
        for place in &places {
            place.replace();
            place.session.close(0, "");
        }
        for place in &places {
            place.session.finished().await;
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.handle_notices();
        self.shared.view.send_modify(|view| {
            view.live.iter_mut().for_each(|place| *place = None);
            view.is_over = true;
        });
    }
}
