// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections of one `Shmipc`, the protocol object of a listener or client, and the handover
//! of its accepted connections to a new process (hot restart).
//!
//! ```text
//!   begin ──▶ each accepted connection: settled? ── yes ─▶ HotRestart
//!                                            └─ no ──▶ pending until its first Polling, ≤ 500 ms
//!   a new connection becomes pending, during a handover and after one that is done
//!   HotRestartAck, end of a connection, time-out ──▶ Handover ──▶ wakes those who wait for its end
//! ```
//!
//! For a moment after its handshake a client of shmipc-go has no session manager. A `HotRestart`
//! message that arrives during that moment kills the client's process. A connection counts as
//! settled after its first Polling message (a wake-up), or 500 ms after its handshake. A connection
//! that has not settled is notified later.
//!
//! # Invariants
//!
//! - No thread writes to a connection while it holds the lock of the table of connections: a write
//!   may end a connection, and its end takes that lock.

use crate::hot_restart::{Handover, HandoverError, HandoverState};
use crate::transport::metrics::{Count, SessionMetrics};
use crate::transport::{Control, Observer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The open connections of one `Shmipc`, and the state of their handover to a new process.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    table: Mutex<Table>,
    numbers: AtomicU64,
    /// Wakes the tasks that wait for the end of a handover, whenever its state may have changed.
    #[cfg(feature = "tokio")]
    changed: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct Table {
    live: BTreeMap<u64, Live>,
    handover: Handover,
    /// Accepted connections that are notified of the handover later, because their clients may not
    /// have set up a session manager yet. By connection number: the epoch of the handover, and the
    /// time from which the connection counts as settled.
    pending: BTreeMap<u64, (u64, Instant)>,
}

#[derive(Debug)]
struct Live {
    connection: Weak<Control>,
    since: Instant,
}

/// Connections to notify of a handover once the lock of the connection table is released, each with
/// the epoch of its handover.
type Announcements = Vec<(Arc<Control>, u64)>;

impl Connections {
    /// Begins a hot restart: sends HotRestart with `epoch` to the accepted connections whose
    /// clients are ready to handle it, and to the others later.
    pub(crate) fn begin(&self, epoch: u64, now: Instant) -> Result<(), HandoverError> {
        let mut table = self.lock();
        let accepted = table.live.iter().filter_map(|(&number, live)| {
            let connection = live
                .connection
                .upgrade()
                .filter(|connection| !connection.is_client() && !connection.is_ended())?;
            Some((number, connection, live.since + SETTLED))
        });
        let accepted: Vec<_> = accepted.collect();
        table.handover.begin(epoch, accepted.iter().map(|(number, ..)| *number), now)?;
        table.pending.clear();
        let mut announcements = Announcements::new();
        for (number, connection, settled) in accepted {
            if connection.has_polled() || now >= settled {
                announcements.push((connection, epoch));
            } else {
                table.pending.insert(number, (epoch, settled));
            }
        }
        drop(table);
        announce(announcements);
        self.note_change();
        Ok(())
    }

    /// Returns the state of the handover at time `now`. Also notifies the pending connections whose
    /// clients are ready to handle that by then.
    pub(crate) fn poll(&self, now: Instant) -> HandoverState {
        let mut table = self.lock();
        let was_pending = table.handover.next_deadline().is_some();
        let state = table.handover.poll(now);
        if was_pending && matches!(state, HandoverState::TimedOut { .. }) {
            for number in table.handover.staying() {
                if let Some(connection) =
                    table.live.get(&number).and_then(|live| live.connection.upgrade())
                {
                    connection.count(Count::RestartFailed);
                }
            }
            table.pending.clear();
        }
        let is_due = |(number, (_, at)): (&u64, &(u64, Instant))| (now >= *at).then_some(*number);
        let due: Vec<u64> = table.pending.iter().filter_map(is_due).collect();
        let announcements =
            due.into_iter().filter_map(|number| table.take_pending(number)).collect();
        drop(table);
        announce(announcements);
        state
    }

    /// Waits until the handover with epoch `awaited` is over. Returns how that handover ended, or
    /// the state of a later handover if one has begun meanwhile.
    #[cfg(feature = "tokio")]
    pub(crate) async fn over(&self, awaited: u64) -> HandoverState {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // This task registers for changes of the handover before it reads the handover's state,
            // so it misses none.
            changed.as_mut().enable();
            let state = self.poll(Instant::now());
            let is_pending =
                matches!(state, HandoverState::Pending { epoch, .. } if epoch == awaited);
            if !is_pending {
                return state;
            }
            // Without a further deadline, the handover has ended since this loop last read its
            // state; the next iteration finds that end.
            let Some(next) = self.lock().next_deadline() else { continue };
            let _ = tokio::time::timeout_at(next.into(), changed).await;
        }
    }

    /// Metrics of all open connections, the oldest first.
    pub(crate) fn metrics(&self) -> Vec<SessionMetrics> {
        self.alive().iter().map(|connection| connection.metrics()).collect()
    }

    /// Reports to the application's metrics monitor: the counters of each connection whose report
    /// interval has elapsed.
    pub(crate) fn tell_monitor(&self) {
        self.alive().iter().for_each(|connection| connection.tell_monitor());
    }

    fn alive(&self) -> Vec<Arc<Control>> {
        self.lock().live.values().filter_map(|live| live.connection.upgrade()).collect()
    }

    fn note_change(&self) {
        #[cfg(feature = "tokio")]
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Removes connection `number` from those that are still to be notified of a hot restart.
    /// Returns the connection, and the epoch of the hot restart to notify its client of.
    fn take_pending(&mut self, number: u64) -> Option<(Arc<Control>, u64)> {
        let (epoch, _) = self.pending.remove(&number)?;
        Some((self.live.get(&number)?.connection.upgrade()?, epoch))
    }

    #[cfg(feature = "tokio")]
    fn next_deadline(&self) -> Option<Instant> {
        let settled = self.pending.values().map(|(_, at)| *at).min();
        let over = self.handover.next_deadline()?;
        Some(settled.map_or(over, |settled| settled.min(over)))
    }
}

impl Observer for Connections {
    fn number(&self) -> u64 {
        // ORDER: Relaxed: only the uniqueness of a connection's number matters.
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn joined(&self, connection: &Arc<Control>) {
        let (number, since) = (connection.number(), Instant::now());
        let mut table = self.lock();
        table.live.insert(number, Live { connection: Arc::downgrade(connection), since });
        if !connection.is_client() {
            if let Some(epoch) = table.handover.joined(number) {
                table.pending.insert(number, (epoch, since + SETTLED));
            }
        }
        drop(table);
        self.note_change();
    }

    fn polled(&self, connection: &Control) {
        let pending = self.lock().take_pending(connection.number());
        announce(pending.into_iter().collect());
    }

    fn restart_acknowledged(&self, connection: &Control, epoch: u64) {
        if self.lock().handover.acknowledged(connection.number(), epoch) {
            connection.count(Count::RestartSucceeded);
            self.note_change();
        }
    }

    fn ended(&self, connection: &Control) {
        let mut table = self.lock();
        table.live.remove(&connection.number());
        table.pending.remove(&connection.number());
        table.handover.left(connection.number());
        drop(table);
        self.note_change();
    }
}

fn announce(announcements: Announcements) {
    for (connection, epoch) in announcements {
        connection.announce(epoch);
    }
}

/// Time after the handshake of a connection by which a client of shmipc-go has set up its session
/// manager. Before that, a `HotRestart` message would kill the client's process.
const SETTLED: Duration = Duration::from_millis(500);

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use super::*;
    use crate::Shmipc;
    use partywall::tokio::{Listener, Session, connect_with_protocol};

    struct Pair {
        client: Shmipc,
        server: Shmipc,
        session: Session,
        accepted: Session,
        _listener: Listener,
        _directory: tempfile::TempDir,
    }

    async fn pair() -> Pair {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("unix:{}/s.sock", directory.path().display());
        let (client, server) = (Shmipc::default(), Shmipc::default());
        let listener = Listener::bind(&*address).unwrap();
        let listener = listener.with_protocol(Arc::new(server.clone()));
        let config = partywall::Config::default();
        let connecting = connect_with_protocol(&*address, &config, Arc::new(client.clone()));
        let (session, accepted) = tokio::join!(connecting, listener.accept());
        let (session, accepted) = (session.unwrap(), accepted.unwrap());
        Pair { client, server, session, accepted, _listener: listener, _directory: directory }
    }

    impl Pair {
        /// Sends a message and receives its echo, after which both sides have read everything
        /// written before.
        async fn exchange(&self) {
            let mut stream = self.session.open(&[]).await.unwrap();
            stream.send(b"question").await.unwrap();
            let mut there = self.accepted.accept().await.unwrap().unwrap();
            assert_eq!(there.recv().await.unwrap().unwrap(), b"question");
            there.send(b"answer").await.unwrap();
            assert_eq!(stream.recv().await.unwrap().unwrap(), b"answer");
        }

        fn connection(of: &Shmipc) -> Arc<Control> {
            Arc::clone(&of.connections().alive()[0])
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn acknowledgements_that_nobody_asked_for_mean_nothing() {
        let pair = pair().await;
        for epoch in [0, 7, u64::MAX] {
            Pair::connection(&pair.client).acknowledge(epoch);
            // The client announces a hot restart, and the server acknowledges it. Only a server may
            // announce one, and only a client acknowledge one, so both messages must have no
            // effect.
            Pair::connection(&pair.client).announce(epoch);
            Pair::connection(&pair.server).acknowledge(epoch);
        }
        pair.exchange().await;
        assert_eq!(pair.server.hot_restart_state(), HandoverState::Never);
        let metrics = pair.server.metrics();
        assert_eq!(metrics[0].stability.hot_restart_success_count, 0);
        assert!(pair.session.close_reason().is_none());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_acknowledgement_counts_for_its_own_line_and_epoch() {
        let pair = pair().await;
        pair.exchange().await;
        pair.server.hot_restart(7).unwrap();
        Pair::connection(&pair.client).acknowledge(6);
        pair.exchange().await;
        let pending = HandoverState::Pending { epoch: 7, moved: 0, left: 0 };
        assert_eq!(pair.server.hot_restart_state(), pending);
        Pair::connection(&pair.client).acknowledge(7);
        let done = HandoverState::Done { epoch: 7, moved: 1, left: 0 };
        assert_eq!(pair.server.hot_restarted(7).await, done);
        assert_eq!(pair.server.metrics()[0].stability.hot_restart_success_count, 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn new_connection_is_notified_once_settled() {
        let pair = pair().await;
        let now = Instant::now();
        pair.server.connections().begin(7, now).unwrap();
        assert_eq!(pair.server.connections().lock().pending.len(), 1);
        pair.server.connections().poll(now);
        assert_eq!(pair.server.connections().lock().pending.len(), 1);
        pair.exchange().await;
        // The server may take the echoed message from the ring before it reads the Polling message
        // that announces it. The connection settles only with the Polling message, so the test
        // waits for that.
        let deadline = Instant::now() + std::time::Duration::from_secs(20);
        while !pair.server.connections().lock().pending.is_empty() {
            assert!(Instant::now() < deadline, "it has woken us");
            tokio::task::yield_now().await;
        }

        let pair = self::pair().await;
        let now = Instant::now();
        pair.server.connections().begin(7, now).unwrap();
        pair.server.connections().poll(now + SETTLED);
        assert_eq!(pair.server.connections().lock().pending.len(), 0, "it is old enough");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ended_connection_is_forgotten_and_writes_nothing() {
        let pair = pair().await;
        let connection = Pair::connection(&pair.client);
        pair.session.close(0, "");
        pair.session.finished().await;
        pair.accepted.finished().await;
        assert!(connection.is_ended());
        connection.acknowledge(7);
        assert!(pair.client.metrics().is_empty() && pair.server.metrics().is_empty());
    }
}
