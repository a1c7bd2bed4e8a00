// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logging from any thread, without waiting for whoever receives.

use super::book::{Book, Entry, LossyStats, OnFull};
use super::header::{HEADER_BYTES, Header};
use partywall::Sender;
use partywall::SharedSender;
use partywall::{SendError, TrySendError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// How a [`LossySender`] behaves, with defaults for everything.
#[derive(Clone, Debug)]
pub struct LossyConfig {
    on_full: OnFull,
    queue_records: usize,
    queue_bytes: usize,
    flush_on_drop: Duration,
}

impl LossyConfig {
    /// The defaults, and what to do without room.
    #[must_use]
    pub const fn new(on_full: OnFull) -> Self {
        Self {
            on_full,
            queue_records: 1024,
            queue_bytes: 1 << 20,
            flush_on_drop: Duration::from_millis(100),
        }
    }

    /// How many records may wait in the queue of [`OnFull::DropOldest`]. Default: 1,024.
    #[must_use]
    pub const fn queue_records(mut self, count: usize) -> Self {
        self.queue_records = count;
        self
    }

    /// How many bytes of records may wait in that queue. Default: 1 MiB.
    #[must_use]
    pub const fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// How long dropping the last sender waits for the agent to take what is queued, and the count of
    /// what was lost. Default: 100 ms; zero does not wait at all.
    #[must_use]
    pub const fn flush_on_drop(mut self, at_most: Duration) -> Self {
        self.flush_on_drop = at_most;
        self
    }
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// It is in the channel: it will be received if the agent lives, even if this process dies.
    Sent,
    /// It waits in the queue of this process. The oldest of the queue may have been dropped for it.
    Queued,
    /// It was dropped.
    Dropped(DropReason),
}

/// Why a record was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// There was no room.
    Full,
    /// It is longer than the channel, or the queue, can ever take.
    TooLarge,
    /// Nobody receives any more, or the channel is broken.
    Closed,
}

/// Sends records that may be lost, from any number of threads; clones send through the same channel.
///
/// `log` takes a lock that is private to this process, for as long as a few attempts take, and never
/// while anybody waits. Dropping the last clone waits a little for the agent:
/// [`LossyConfig::flush_on_drop`].
#[derive(Clone, Debug)]
pub struct LossySender {
    core: Arc<Core>,
}

#[derive(Debug)]
struct Core {
    sender: SharedSender,
    config: LossyConfig,
    state: Mutex<State>,
    /// Nobody flushes the queue any more, perhaps.
    flushed: Condvar,
}

#[derive(Debug)]
struct State {
    book: Book,
    /// Header and payload of the record at hand.
    scratch: Vec<u8>,
    /// Somebody flushes the queue, without the lock: others only add to it.
    is_flushing: bool,
    /// Nobody will receive any more.
    is_over: bool,
}

/// Waits that users ask for are no longer than this: later instants may not exist.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// At most so many that wait go with one call of `log`: it stays short.
const DRAIN_MAX: usize = 32;
/// How often an attempt is made again while a flush of another thread is at the channel.
const BUSY_ATTEMPTS: u32 = 100;
/// What is kept of the scratch space between two records.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

impl LossySender {
    /// Sends through `sender` from now on, and does `on_full` without room.
    #[must_use]
    pub fn new(sender: Sender, on_full: OnFull) -> Self {
        Self::with(sender, LossyConfig::new(on_full))
    }

    /// Sends through `sender` from now on, as `config` says.
    #[must_use]
    pub fn with(sender: Sender, config: LossyConfig) -> Self {
        let book = Book::new(config.queue_records, config.queue_bytes);
        let state = State { book, scratch: Vec::new(), is_flushing: false, is_over: false };
        let state = Mutex::new(state);
        let core = Core { sender: sender.shared(), config, state, flushed: Condvar::new() };
        Self { core: Arc::new(core) }
    }

    /// Logs a record. Never waits for the agent, except under [`OnFull::Block`].
    ///
    /// What becomes of it is counted; the return value may be ignored.
    pub fn log(&self, record: &[u8]) -> SendOutcome {
        if let OnFull::Block(at_most) = self.core.config.on_full {
            return self.log_deadline(record, after(at_most));
        }
        let mut state = self.core.lock();
        if state.is_over {
            return state.drop_newest(DropReason::Closed);
        }
        if !state.is_flushing {
            state.drain(&self.core.sender, DRAIN_MAX);
        }
        if state.is_flushing || !state.book.is_empty() {
            return state.enqueue(record);
        }
        match state.attempt(&self.core.sender, record) {
            Err(DropReason::Full) if self.core.config.on_full == OnFull::DropOldest => {
                state.enqueue(record)
            }
            Err(reason) => state.drop_newest(reason),
            Ok(()) => SendOutcome::Sent,
        }
    }

    /// Logs a record that is worth waiting for, whatever the policy: until there is room, or `deadline`.
    /// It goes behind what is queued.
    pub fn log_deadline(&self, record: &[u8], deadline: Instant) -> SendOutcome {
        if self.core.flush_queue(deadline).is_err() {
            return self.core.lock().drop_newest(DropReason::Full);
        }
        let mut state = self.core.lock();
        if state.is_over {
            return state.drop_newest(DropReason::Closed);
        }
        let lost = state.book.take_lost();
        drop(state);
        let bytes = [Header::record(lost).as_bytes(), record].concat();
        let sent = self.core.sender.send_deadline(&bytes, deadline);
        let mut state = self.core.lock();
        let Err(error) = sent else {
            state.book.count_sent();
            return SendOutcome::Sent;
        };
        state.book.put_lost_back(lost);
        let reason = state.judge(&error);
        state.drop_newest(reason)
    }

    /// Sends what is queued, and the count of what was lost, as far as there is room now. Never waits.
    ///
    /// For those who have a moment now and then, such as a timer: so that the last records do not wait for the
    /// next `log`.
    pub fn try_flush(&self) {
        let mut state = self.core.lock();
        if state.is_over || state.is_flushing {
            return;
        }
        state.drain(&self.core.sender, usize::MAX);
        if state.book.is_empty() && state.book.lost() > 0 {
            let report = Header::report(state.book.lost());
            if state.try_send(&self.core.sender, report.as_bytes()).is_ok() {
                state.book.take_lost();
            }
        }
    }

    /// Waits until everything logged before is in the channel, the count of what was lost included.
    /// Others may log meanwhile.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] if the agent did not take enough before `deadline`: what is queued stays so.
    /// [`SendError::Closed`] or [`SendError::Fault`] if it never will.
    pub fn flush(&self, deadline: Instant) -> Result<(), SendError> {
        self.core.flush(deadline)
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> LossyStats {
        self.core.lock().book.stats()
    }

    /// Whether nobody receives any more: from then on every record is dropped. Connect anew, and make
    /// another sender.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.lock().is_over
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(&self, deadline: Instant) -> Result<(), SendError> {
        self.flush_queue(deadline)?;
        let lost = self.lock().book.take_lost();
        if lost == 0 {
            return Ok(());
        }
        let sent = self.sender.send_deadline(Header::report(lost).as_bytes(), deadline);
        if let Err(error) = &sent {
            let mut state = self.lock();
            state.book.put_lost_back(lost);
            state.judge(error);
        }
        sent
    }

    /// Sends what was queued before this call.
    fn flush_queue(&self, deadline: Instant) -> Result<(), SendError> {
        let mut state = self.await_other_flush(deadline)?;
        let count = state.book.queued();
        for _ in 0..count {
            let Some(entry) = state.book.take_front() else { break };
            state.is_flushing = true;
            drop(state);
            let bytes = entry_bytes(&entry);
            let sent = self.sender.send_deadline(&bytes, deadline);
            state = self.lock();
            state.is_flushing = false;
            self.flushed.notify_all();
            if let Err(error) = sent {
                match state.judge(&error) {
                    DropReason::Full => state.book.put_back(entry),
                    DropReason::TooLarge => {
                        state.book.taken_dropped(&entry, |drops| &mut drops.too_large);
                        continue;
                    }
                    DropReason::Closed => {
                        state.book.taken_dropped(&entry, |drops| &mut drops.closed);
                        state.book.abandon();
                    }
                }
                return Err(error);
            }
            state.book.taken_went();
        }
        Ok(())
    }

    /// Waits until nobody else flushes: one at a time takes from the queue.
    fn await_other_flush(&self, deadline: Instant) -> Result<MutexGuard<'_, State>, SendError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.flushed.wait_timeout_while(self.lock(), left, |state| state.is_flushing);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_flushing { Err(SendError::TimedOut) } else { Ok(state) }
    }
}

impl State {
    /// Sends the record at hand, with the count of what was lost before it.
    fn attempt(&mut self, sender: &SharedSender, record: &[u8]) -> Result<(), DropReason> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(Header::record(self.book.lost()).as_bytes());
        scratch.extend_from_slice(record);
        let sent = self.try_send(sender, &scratch);
        if scratch.capacity() <= SCRATCH_BYTES_MAX {
            self.scratch = scratch;
        }
        if sent.is_ok() {
            self.book.went();
        }
        sent
    }

    /// Sends what waits, up to `count` of it, as long as there is room.
    fn drain(&mut self, sender: &SharedSender, count: usize) {
        for _ in 0..count {
            let Some(front) = self.book.front() else { return };
            let bytes = entry_bytes(front);
            match self.try_send(sender, &bytes) {
                Ok(()) => self.book.front_went(),
                Err(DropReason::Full) => return,
                Err(DropReason::TooLarge) => self.book.drop_oldest(|drops| &mut drops.too_large),
                Err(DropReason::Closed) => return self.book.abandon(),
            }
        }
    }

    fn try_send(&mut self, sender: &SharedSender, bytes: &[u8]) -> Result<(), DropReason> {
        for _ in 0..BUSY_ATTEMPTS {
            match sender.try_send(bytes) {
                Ok(()) => return Ok(()),
                // A flush of another thread is at it, for a moment.
                Err(TrySendError::Busy) => std::thread::yield_now(),
                Err(TrySendError::Full) => return Err(DropReason::Full),
                Err(TrySendError::TooLarge(_)) => return Err(DropReason::TooLarge),
                // A closed channel, a broken one, and whatever else no attempt can change.
                Err(_) => {
                    self.is_over = true;
                    return Err(DropReason::Closed);
                }
            }
        }
        Err(DropReason::Full)
    }

    /// What an error of the channel means for the record at hand, and for all to come.
    const fn judge(&mut self, error: &SendError) -> DropReason {
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
        if self.book.enqueue(record) {
            SendOutcome::Queued
        } else {
            SendOutcome::Dropped(DropReason::TooLarge)
        }
    }

    fn drop_newest(&mut self, reason: DropReason) -> SendOutcome {
        self.book.drop_newest(|drops| match reason {
            DropReason::Full => &mut drops.full,
            DropReason::TooLarge => &mut drops.too_large,
            DropReason::Closed => &mut drops.closed,
        });
        SendOutcome::Dropped(reason)
    }
}

/// The instant `wait` from now, or [`WAIT_MAX`] from now.
fn after(wait: Duration) -> Instant {
    Instant::now() + wait.min(WAIT_MAX)
}

/// The message of a record that waited.
fn entry_bytes(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + entry.bytes.len());
    bytes.extend_from_slice(Header::record(entry.lost).as_bytes());
    bytes.extend_from_slice(&entry.bytes);
    bytes
}

impl Drop for Core {
    fn drop(&mut self) {
        // What did not go by then is lost, and nobody is left to be told.
        let _ = self.flush(after(self.config.flush_on_drop));
    }
}
