// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of a lossy channel: the application logs from any thread, without waiting for
//! the log agent that receives the records.

use super::header::{HEADER_BYTES, Header};
use super::queue::{Entry, LossyQueue, LossyStats, OnFull};
use partywall::Sender;
use partywall::SharedSender;
use partywall::{SendError, TrySendError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// The settings of a [`LossySender`]. Each has a default.
#[derive(Clone, Debug)]
pub struct LossyConfig {
    on_full: OnFull,
    queue_records: usize,
    queue_bytes: usize,
    flush_on_drop: Duration,
}

impl LossyConfig {
    /// Makes the default settings, with `on_full` as the policy for log records without room.
    #[must_use]
    pub const fn new(on_full: OnFull) -> Self {
        Self {
            on_full,
            queue_records: 1024,
            queue_bytes: 1 << 20,
            flush_on_drop: Duration::from_millis(100),
        }
    }

    /// Sets the most log records in the queue of [`OnFull::DropOldest`]. Default: 1,024.
    #[must_use]
    pub const fn queue_records(mut self, count: usize) -> Self {
        self.queue_records = count;
        self
    }

    /// Sets the most bytes of log records in the queue of [`OnFull::DropOldest`]. Default: 1 MiB.
    #[must_use]
    pub const fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// Sets how long dropping the last sender waits until the queue and the count of losses are
    /// sent. Zero does not wait. Default: 100 ms.
    #[must_use]
    pub const fn flush_on_drop(mut self, at_most: Duration) -> Self {
        self.flush_on_drop = at_most;
        self
    }
}

/// The outcome of one call that logs a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The log record is in the channel. The receiver, if it lives, gets it even if this process
    /// dies.
    Sent,
    /// The log record is in the queue of this process. To make room, the queue may have dropped its
    /// oldest record.
    Queued,
    /// The log record was dropped; the value is the reason.
    Dropped(DropReason),
}

/// Why a log record was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The channel or the queue has no room.
    Full,
    /// The log record is longer than the channel, or the queue, can ever take.
    TooLarge,
    /// The receiver is gone, or the channel failed.
    Closed,
}

/// Sends records that may be lost, from any number of threads. Clones send through the same
/// channel.
///
/// `log` takes a lock of this process, holds it during a few attempts to send, and never blocks
/// while holding it. Dropping the last clone waits for the agent, at most for
/// [`LossyConfig::flush_on_drop`].
#[derive(Clone, Debug)]
pub struct LossySender {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sender: SharedSender,
    config: LossyConfig,
    state: Mutex<State>,
    /// Wakes the threads that wait to flush, when another thread has finished flushing the queue.
    flushed: Condvar,
}

#[derive(Debug)]
struct State {
    queue: LossyQueue,
    /// Buffer for header and payload of the log record that is being sent.
    scratch: Vec<u8>,
    /// Whether a thread flushes the queue, for which it does not hold the sender's lock. Other
    /// threads then only append to the queue.
    is_flushing: bool,
    /// Whether the receiver is gone, so that every log record is dropped.
    is_over: bool,
}

/// Longest wait: one year. A longer wait is cut to a year, because adding it to the present time
/// could exceed the range of `Instant` and panic.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum number of queued log records that one call of `log` sends, so that the call stays short.
const DRAIN_MAX: usize = 32;
/// Maximum number of attempts to send one log record while a flush by another thread uses the
/// channel. After them, the record is treated as if the channel had no room.
const BUSY_ATTEMPTS: u32 = 100;
/// Largest capacity in bytes that the buffer `scratch` keeps between two log records, so that one
/// long record does not occupy memory for ever.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

impl LossySender {
    /// Makes a lossy sender over `sender`, with the policy `on_full` and otherwise default
    /// settings.
    #[must_use]
    pub fn new(sender: Sender, on_full: OnFull) -> Self {
        Self::with(sender, LossyConfig::new(on_full))
    }

    /// Makes a lossy sender over `sender`, with the settings of `config`.
    #[must_use]
    pub fn with(sender: Sender, config: LossyConfig) -> Self {
        let queue = LossyQueue::new(config.queue_records, config.queue_bytes);
        let state = State { queue, scratch: Vec::new(), is_flushing: false, is_over: false };
        let state = Mutex::new(state);
        let shared = Shared { sender: sender.shared(), config, state, flushed: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Logs a record. The call waits for the agent only under [`OnFull::Block`].
    ///
    /// The sender counts the outcome, so the caller may ignore the result.
    pub fn log(&self, record: &[u8]) -> SendOutcome {
        if let OnFull::Block(at_most) = self.shared.config.on_full {
            return self.log_deadline(record, after(at_most));
        }
        let mut state = self.shared.lock();
        if state.is_over {
            return state.drop_newest(DropReason::Closed);
        }
        if !state.is_flushing {
            state.drain(&self.shared.sender, DRAIN_MAX);
        }
        if state.is_flushing || !state.queue.is_empty() {
            return state.enqueue(record);
        }
        match state.attempt(&self.shared.sender, record) {
            Err(DropReason::Full) if self.shared.config.on_full == OnFull::DropOldest => {
                state.enqueue(record)
            }
            Err(reason) => state.drop_newest(reason),
            Ok(()) => SendOutcome::Sent,
        }
    }

    /// Logs an important record: under any policy, the call waits for room until `deadline`.
    /// The record is sent after the queued ones.
    pub fn log_deadline(&self, record: &[u8], deadline: Instant) -> SendOutcome {
        if self.shared.flush_queue(deadline).is_err() {
            return self.shared.lock().drop_newest(DropReason::Full);
        }
        let mut state = self.shared.lock();
        if state.is_over {
            return state.drop_newest(DropReason::Closed);
        }
        let lost = state.queue.take_lost();
        drop(state);
        let bytes = [Header::record(lost).as_bytes(), record].concat();
        let sent = self.shared.sender.send_deadline(&bytes, deadline);
        let mut state = self.shared.lock();
        let Err(error) = sent else {
            state.queue.count_sent();
            return SendOutcome::Sent;
        };
        state.queue.return_lost(lost);
        let reason = state.reason_of(&error);
        state.drop_newest(reason)
    }

    /// Logs an important record, as [`log_deadline`](Self::log_deadline) does, if the call need
    /// not wait for room. If it would have to wait, returns `None`: nothing was logged or counted,
    /// and the caller may wait by `log_deadline`.
    pub fn log_without_wait(&self, record: &[u8]) -> Option<SendOutcome> {
        let mut state = self.shared.lock();
        if state.is_over {
            return Some(state.drop_newest(DropReason::Closed));
        }
        if state.is_flushing {
            return None;
        }
        state.drain(&self.shared.sender, usize::MAX);
        if !state.queue.is_empty() {
            return None;
        }
        match state.attempt(&self.shared.sender, record) {
            Ok(()) => Some(SendOutcome::Sent),
            Err(DropReason::Full) => None,
            Err(reason) => Some(state.drop_newest(reason)),
        }
    }

    /// Sends the queued records and the count of losses, as far as there is room now. Never waits.
    ///
    /// Call this function from a timer, so that the last records do not wait for the next call of
    /// `log`.
    pub fn try_flush(&self) {
        let mut state = self.shared.lock();
        if state.is_over || state.is_flushing {
            return;
        }
        state.drain(&self.shared.sender, usize::MAX);
        if state.queue.is_empty() && state.queue.lost() > 0 {
            let report = Header::report(state.queue.lost());
            if state.try_send(&self.shared.sender, report.as_bytes()).is_ok() {
                state.queue.take_lost();
            }
        }
    }

    /// Waits until every record logged before, and the count of losses, are in the channel. Other
    /// threads may log meanwhile.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] if the agent did not take enough records before `deadline`; queued
    /// records stay queued. [`SendError::Closed`] or [`SendError::Fault`] if the agent can never
    /// take them.
    pub fn flush(&self, deadline: Instant) -> Result<(), SendError> {
        self.shared.flush(deadline)
    }

    /// Returns the counters of this sender.
    #[must_use]
    pub fn stats(&self) -> LossyStats {
        self.shared.lock().queue.stats()
    }

    /// Whether the receiver is gone, so that every log record is dropped. To log again, connect
    /// again and make another sender.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_over
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(&self, deadline: Instant) -> Result<(), SendError> {
        self.flush_queue(deadline)?;
        let lost = self.lock().queue.take_lost();
        if lost == 0 {
            return Ok(());
        }
        let sent = self.sender.send_deadline(Header::report(lost).as_bytes(), deadline);
        if let Err(error) = &sent {
            let mut state = self.lock();
            state.queue.return_lost(lost);
            state.reason_of(error);
        }
        sent
    }

    /// Sends the log records that were queued before this call, one at a time and without holding
    /// the sender's lock; waits for room until `deadline`.
    fn flush_queue(&self, deadline: Instant) -> Result<(), SendError> {
        let mut state = self.await_other_flush(deadline)?;
        let count = state.queue.queued();
        for _ in 0..count {
            let Some(entry) = state.queue.take_front() else { break };
            state.is_flushing = true;
            drop(state);
            let bytes = entry_bytes(&entry);
            let sent = self.sender.send_deadline(&bytes, deadline);
            state = self.lock();
            state.is_flushing = false;
            self.flushed.notify_all();
            if let Err(error) = sent {
                match state.reason_of(&error) {
                    DropReason::Full => state.queue.put_back(entry),
                    DropReason::TooLarge => {
                        state.queue.count_taken_dropped(&entry, |drops| &mut drops.too_large);
                        continue;
                    }
                    DropReason::Closed => {
                        state.queue.count_taken_dropped(&entry, |drops| &mut drops.closed);
                        state.queue.abandon();
                    }
                }
                return Err(error);
            }
            state.queue.count_taken_sent();
        }
        Ok(())
    }

    /// Waits until no other thread flushes: one thread at a time takes log records out of the
    /// queue.
    fn await_other_flush(&self, deadline: Instant) -> Result<MutexGuard<'_, State>, SendError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.flushed.wait_timeout_while(self.lock(), left, |state| state.is_flushing);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_flushing { Err(SendError::TimedOut) } else { Ok(state) }
    }
}

impl State {
    /// Attempts to send a log record whose header contains the number of records lost before it.
    fn attempt(&mut self, sender: &SharedSender, record: &[u8]) -> Result<(), DropReason> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(Header::record(self.queue.lost()).as_bytes());
        scratch.extend_from_slice(record);
        let sent = self.try_send(sender, &scratch);
        if scratch.capacity() <= SCRATCH_BYTES_MAX {
            self.scratch = scratch;
        }
        if sent.is_ok() {
            self.queue.count_new_sent();
        }
        sent
    }

    /// Sends at most `count` queued log records; stops earlier if the channel has no more room.
    fn drain(&mut self, sender: &SharedSender, count: usize) {
        for _ in 0..count {
            let Some(front) = self.queue.front() else { return };
            let bytes = entry_bytes(front);
            match self.try_send(sender, &bytes) {
                Ok(()) => self.queue.count_front_sent(),
                Err(DropReason::Full) => return,
                Err(DropReason::TooLarge) => self.queue.drop_oldest(|drops| &mut drops.too_large),
                Err(DropReason::Closed) => return self.queue.abandon(),
            }
        }
    }

    fn try_send(&mut self, sender: &SharedSender, bytes: &[u8]) -> Result<(), DropReason> {
        for _ in 0..BUSY_ATTEMPTS {
            match sender.try_send(bytes) {
                Ok(()) => return Ok(()),
                // Another thread's flush is using the channel, so this thread tries again.
                Err(TrySendError::Busy) => std::thread::yield_now(),
                Err(TrySendError::Full) => return Err(DropReason::Full),
                Err(TrySendError::TooLarge(_)) => return Err(DropReason::TooLarge),
                // The channel is closed or has failed. Every later attempt to send would fail as
                // well, so the sender drops all log records from now on.
                Err(_) => {
                    self.is_over = true;
                    return Err(DropReason::Closed);
                }
            }
        }
        Err(DropReason::Full)
    }

    /// Returns the reason for dropping a log record after an error of the channel. If the receiver
    /// is gone, also sets `is_over`, so that all later records are dropped.
    const fn reason_of(&mut self, error: &SendError) -> DropReason {
        match error {
            SendError::TimedOut | SendError::Full => DropReason::Full,
            SendError::TooLarge(_) => DropReason::TooLarge,
            _ => {
                self.is_over = true;
                DropReason::Closed
            }
        }
    }

    fn enqueue(&mut self, record: &[u8]) -> SendOutcome {
        if self.queue.enqueue(record) {
            SendOutcome::Queued
        } else {
            SendOutcome::Dropped(DropReason::TooLarge)
        }
    }

    fn drop_newest(&mut self, reason: DropReason) -> SendOutcome {
        self.queue.drop_newest(|drops| match reason {
            DropReason::Full => &mut drops.full,
            DropReason::TooLarge => &mut drops.too_large,
            DropReason::Closed => &mut drops.closed,
        });
        SendOutcome::Dropped(reason)
    }
}

fn after(wait: Duration) -> Instant {
    Instant::now() + wait.min(WAIT_MAX)
}

/// Makes the message of a queued log record: header and payload.
fn entry_bytes(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + entry.bytes.len());
    bytes.extend_from_slice(Header::record(entry.lost).as_bytes());
    bytes.extend_from_slice(&entry.bytes);
    bytes
}

impl Drop for Shared {
    fn drop(&mut self) {
        // An error of the flush is ignored: log records that cannot be sent within `flush_on_drop`
        // are lost, and no later message can report them.
        let _ = self.flush(after(self.config.flush_on_drop));
    }
}
