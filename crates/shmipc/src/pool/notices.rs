// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notices that a pool's connections leave for the pool's supervisor: announced hot restarts, and
//! ended connections.
//!
//! ```text
//!   connection ─▶ PoolObserver ─▶ Notices: one entry for each connection ─▶ supervisor
//! ```
//!
//! The table has one entry for each connection, however often the peer announces a hot restart. An
//! entry holds the epoch of the last announced hot restart, and whether the connection has ended.

use crate::Shmipc;
use crate::transport::{Control, Observer};
use partywall::protocol::{Handshake, Negotiation, Protocol, ProtocolError, Recognition};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Notices {
    table: Mutex<BTreeMap<u64, Notice>>,
    came: Notify,
}

/// Entry of [`Notices`]: the events of one connection that the pool's supervisor has not taken yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notice {
    /// Epoch (number) of a hot restart that the server announced on the connection; `None` if it
    /// announced none.
    pub(super) restart_epoch: Option<u64>,
    pub(super) is_ended: bool,
}

impl Notices {
    /// Waits until a connection of the pool has left a notice in the table. Cancel-safe.
    pub(super) async fn came(&self) {
        self.came.notified().await;
    }

    /// Takes the notices of all connections out of the table, by connection number.
    pub(super) fn take(&self) -> BTreeMap<u64, Notice> {
        std::mem::take(&mut self.lock())
    }

    /// Puts the notices `early` of connection `number` back into the table. The pool's supervisor
    /// does so if it does not know that connection yet, and takes them again later.
    pub(super) fn put_back(&self, number: u64, early: Notice) {
        let mut table = self.lock();
        let notice = table.entry(number).or_default();
        notice.restart_epoch = notice.restart_epoch.or(early.restart_epoch);
        notice.is_ended |= early.is_ended;
    }

    /// Wakes the pool's supervisor, which then takes the notices of all connections out of the
    /// table.
    pub(super) fn call(&self) {
        self.came.notify_one();
    }

    fn note(&self, number: u64, change: impl FnOnce(&mut Notice)) {
        change(self.lock().entry(number).or_default());
        self.call();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Notice>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The protocol object with which a pool opens one connection. It gives the connection `observer`,
/// which passes the connection's events to the supervisor.
#[derive(Debug)]
pub(super) struct ObservedShmipc {
    pub(super) shmipc: Shmipc,
    pub(super) observer: Arc<PoolObserver>,
}

impl Protocol for ObservedShmipc {
    fn name(&self) -> &'static str {
        self.shmipc.name()
    }

    fn recognise(&self, _: &[u8]) -> Recognition {
        Recognition::No
    }

    fn accept(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError> {
        self.shmipc.accept(handshake)
    }

    fn connect(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError> {
        self.shmipc.connect_for(handshake, Arc::clone(&self.observer) as Arc<dyn Observer>)
    }
}

/// Observer of one connection of a pool. It notes a hot restart that the server announces, and the
/// connection's end, in [`Notices`] for the supervisor.
#[derive(Debug)]
pub(super) struct PoolObserver {
    number: u64,
    notices: Arc<Notices>,
    connection: Mutex<Weak<Control>>,
}

impl PoolObserver {
    pub(super) fn new(number: u64, notices: Arc<Notices>) -> Self {
        Self { number, notices, connection: Mutex::default() }
    }

    /// Returns the observed connection; `None` before it is established, and after it has ended.
    pub(super) fn connection(&self) -> Option<Arc<Control>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

impl Observer for PoolObserver {
    fn number(&self) -> u64 {
        self.number
    }

    fn joined(&self, connection: &Arc<Control>) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) =
            Arc::downgrade(connection);
    }

    fn restart_announced(&self, _: &Control, epoch: u64) {
        self.notices.note(self.number, |notice| notice.restart_epoch = Some(epoch));
    }

    fn ended(&self, _: &Control) {
        self.notices.note(self.number, |notice| notice.is_ended = true);
    }
}
