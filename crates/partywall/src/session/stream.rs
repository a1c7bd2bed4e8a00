// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream as its users and the driver share it.
//!
//! ```text
//!   driver ── arrives ──▶ queue ── recv ──▶ user        what is owed for it is noted here, and
//!   user ── charge ──▶ outbox ──▶ ring                  written from the outbox
//! ```
//!
//! # Invariants
//!
//! - The lock is private to this process and held for moments: never while waiting, and never while
//!   the outbox is being locked (the outbox comes first).
//! - A stream that owes something is listed in the outbox, once.

use super::credit::{RecvCredit, SendCredit};
use super::error::SessionError;
use super::lifecycle::{Lifecycle, PendingControl};
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};
use crate::message::Message;
use crate::transport::Assembly;
use std::collections::VecDeque;
use std::task::{Context, Waker};

/// A stream.
///
/// What a message passes comes first, in as few cache lines as may be: driver and user are often on
/// different processors, and each line that both write moves with every message.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct StreamShared {
    state: Mutex<StreamState>,
    /// Its number on the wire.
    pub(crate) number: u32,
    /// A hint for whoever does not need the lock: nothing can be sent any more.
    is_sending_over: AtomicBool,
    /// What it was opened with, if the other side opened it.
    pub(crate) metadata: Box<[u8]>,
}

/// What both sides agreed to, for all streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// What may lie unread of a stream: on the other side, on ours.
    pub(super) send_window: u64,
    pub(super) recv_window: u64,
    /// How many streams of the other side's we bear at a time.
    pub(super) accepts_max: u32,
}

/// What changes of a stream; in the order in which a message passes it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct StreamState {
    /// What arrived and was not taken; credit bounds it.
    pub(crate) queue: VecDeque<Message>,
    /// Who waits for a message.
    pub(crate) receiver: Option<Waker>,
    /// A message of which fragments came.
    pub(crate) assembly: Option<Box<Assembly>>,
    pub(crate) recv_credit: RecvCredit,
    pub(crate) lifecycle: Lifecycle,
    /// The other side must be told what was taken.
    pub(crate) credit_pending: bool,
    /// Opened by the other side, and neither accepted nor refused yet.
    pub(crate) is_waiting: bool,
    /// Listed in the outbox among those that owe something.
    pub(crate) is_listed: bool,
    pub(crate) send_credit: SendCredit,
    /// Who waits for credit.
    pub(crate) sender: Option<Waker>,
    /// The session is over.
    pub(crate) end: Option<SessionError>,
}

/// A record that a stream owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingRecord {
    Lifecycle(PendingControl),
    Credit(u64),
}

impl StreamShared {
    pub(crate) fn new(
        number: u32,
        is_opener: bool,
        metadata: Box<[u8]>,
        send_window: u64,
        recv_window: u64,
    ) -> Self {
        let state = StreamState {
            lifecycle: Lifecycle::new(is_opener),
            send_credit: SendCredit::new(send_window),
            recv_credit: RecvCredit::new(recv_window),
            queue: VecDeque::new(),
            assembly: None,
            credit_pending: false,
            is_waiting: !is_opener,
            is_listed: false,
            receiver: None,
            sender: None,
            end: None,
        };
        let is_sending_over = AtomicBool::new(false);
        Self { number, is_sending_over, metadata, state: Mutex::new(state) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether messages may be sent, as far as is known without the lock: whoever sends looks again.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        // ORDER: Relaxed: a hint.
        !self.is_sending_over.load(Ordering::Relaxed)
    }

    /// Nothing can be sent any more.
    pub(crate) fn note_sending_over(&self) {
        // ORDER: Relaxed: a hint.
        self.is_sending_over.store(true, Ordering::Relaxed);
    }

    /// The session is over: whoever waits is told.
    pub(crate) fn end(&self, error: &SessionError) {
        self.note_sending_over();
        let mut state = self.lock();
        state.end.get_or_insert_with(|| error.clone());
        let wakers = [state.receiver.take(), state.sender.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl StreamState {
    /// The next record to be written for this stream, if any.
    pub(crate) fn pending(&self) -> Option<PendingRecord> {
        match self.lifecycle.pending() {
            // The last of a direction waits for what was taken of the other to be told.
            Some(PendingControl::CloseWrite | PendingControl::End) | None
                if self.reports_credit() =>
            {
                Some(PendingRecord::Credit(self.recv_credit.due()))
            }
            // Else what lies unread of streams that have ended would be bounded by nothing (SPEC 11.5).
            Some(PendingControl::End) if self.is_waiting || !self.queue.is_empty() => None,
            other => other.map(PendingRecord::Lifecycle),
        }
    }

    /// The record was written.
    pub(crate) const fn wrote(&mut self, record: PendingRecord) {
        match record {
            PendingRecord::Lifecycle(pending) => self.lifecycle.wrote(pending),
            PendingRecord::Credit(credited) => {
                self.credit_pending = false;
                self.recv_credit.report(credited);
            }
        }
    }

    /// Credit to be told along with a message; it counts as told.
    #[inline]
    pub(crate) const fn take_credit(&mut self) -> Option<u64> {
        if !self.reports_credit() {
            return None;
        }
        let credited = self.recv_credit.due();
        self.wrote(PendingRecord::Credit(credited));
        Some(credited)
    }

    /// Whether anything is owed.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending().is_some()
    }

    const fn reports_credit(&self) -> bool {
        self.credit_pending && self.lifecycle.wants_credit() && !self.lifecycle.has_ended()
    }

    /// Notes who waits for a message.
    pub(crate) fn await_message(&mut self, context: &Context<'_>) {
        register(&mut self.receiver, context);
    }

    /// Notes who waits for credit.
    pub(crate) fn await_credit(&mut self, context: &Context<'_>) {
        register(&mut self.sender, context);
    }
}

fn register(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(context.waker()),
        None => *place = Some(context.waker().clone()),
    }
}
