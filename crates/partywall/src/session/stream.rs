// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream, as its users and the driver share it.
//!
//! ```text
//!   driver ── arrives ──▶ queue ── recv ──▶ user        pending records are noted here,
//!   user ── charge ──▶ outbox ──▶ ring                  and written from the outbox
//! ```
//!
//! # Invariants
//!
//! - The lock is private to this process and held for moments: never while blocked, and never while
//!   the outbox is being locked (the outbox comes first).
//! - A stream with a pending record is listed in the outbox, once.

use super::credit::{RecvCredit, SendCredit};
use super::error::SessionError;
use super::lifecycle::{Lifecycle, PendingControl};
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};
use crate::message::Message;
use crate::transport::Assembly;
use std::collections::VecDeque;
use std::task::{Context, Waker};

/// One stream.
///
/// The fields that a message passes come first, in as few cache lines as possible: driver and user
/// often run on different processors, and each line that both write moves with every message.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct StreamShared {
    state: Mutex<StreamState>,
    /// Its number on the wire.
    pub(crate) number: u32,
    /// Hint for readers without the lock: nothing can be sent any more.
    is_sending_over: AtomicBool,
    /// Metadata of OPEN, if the peer opened the stream.
    pub(crate) metadata: Box<[u8]>,
}

/// The limits that both sides agreed on, for all streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Bytes of a stream that may be unread: at the peer, and here.
    pub(super) send_window: u64,
    pub(super) recv_window: u64,
    /// Streams of the peer that may be open at a time.
    pub(super) accepts_max: u32,
}

/// The mutable part of a stream, in the order in which a message passes it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct StreamState {
    /// Received messages that were not taken yet; credit bounds them.
    pub(crate) queue: VecDeque<Message>,
    /// Waiter for a message.
    pub(crate) receiver: Option<Waker>,
    /// A message of which fragments came.
    pub(crate) assembly: Option<Box<Assembly>>,
    pub(crate) recv_credit: RecvCredit,
    pub(crate) lifecycle: Lifecycle,
    /// Whether CREDIT is pending.
    pub(crate) credit_pending: bool,
    /// Whether the peer opened it, and it was neither accepted nor refused yet.
    pub(crate) is_waiting: bool,
    /// Whether it is listed in the outbox.
    pub(crate) is_listed: bool,
    pub(crate) send_credit: SendCredit,
    /// Waiter for credit.
    pub(crate) sender: Option<Waker>,
    /// Why the session is over.
    pub(crate) end: Option<SessionError>,
}

/// A pending record of a stream.
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

    /// Whether messages may be sent, as far as is known without the lock. Senders check again under
    /// it.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        // ORDER: Relaxed: a hint. Senders check the state under the lock.
        !self.is_sending_over.load(Ordering::Relaxed)
    }

    /// Notes that nothing can be sent any more.
    pub(crate) fn note_sending_over(&self) {
        // ORDER: Relaxed: a hint. Senders check the state under the lock.
        self.is_sending_over.store(true, Ordering::Relaxed);
    }

    /// Ends the stream with the session, and wakes its waiters.
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
            // The last record of a direction waits until CREDIT of the other direction was sent.
            Some(PendingControl::CloseWrite | PendingControl::End) | None
                if self.reports_credit() =>
            {
                Some(PendingRecord::Credit(self.recv_credit.due()))
            }
            // Otherwise the unread data of streams that have ended would have no bound (SPEC 11.5).
            Some(PendingControl::End) if self.is_waiting || !self.queue.is_empty() => None,
            other => other.map(PendingRecord::Lifecycle),
        }
    }

    /// Notes that the record was written.
    pub(crate) const fn wrote(&mut self, record: PendingRecord) {
        match record {
            PendingRecord::Lifecycle(pending) => self.lifecycle.wrote(pending),
            PendingRecord::Credit(credited) => {
                self.credit_pending = false;
                self.recv_credit.report(credited);
            }
        }
    }

    /// Takes the credit that a message carries along; it counts as reported.
    #[inline]
    pub(crate) const fn take_credit(&mut self) -> Option<u64> {
        if !self.reports_credit() {
            return None;
        }
        let credited = self.recv_credit.due();
        self.wrote(PendingRecord::Credit(credited));
        Some(credited)
    }

    /// Whether a record is pending.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending().is_some()
    }

    const fn reports_credit(&self) -> bool {
        self.credit_pending && self.lifecycle.wants_credit() && !self.lifecycle.has_ended()
    }

    /// Registers the waiter for a message.
    pub(crate) fn await_message(&mut self, context: &Context<'_>) {
        register(&mut self.receiver, context);
    }

    /// Registers the waiter for credit.
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
