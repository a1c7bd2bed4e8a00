// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of a lossy sender and its counts of losses, without a channel or a clock.
//!
//! ```text
//!   front                                        back
//!   ┌──────────┬──────────┬──────────┐
//!   │ 3 before │ 0 before │ 1 before │  2 after       numbers of records lost at each position
//!   └──────────┴──────────┴──────────┘
//!   if the front record is dropped, it and its 3 losses count before the next record: 4
//! ```
//!
//! # Invariants
//!
//! - The number of logged records is the sum of the sent, the queued and the dropped ones. Records
//!   that were taken out of the queue to be sent (`out`) count as queued.
//! - Every dropped record is counted at exactly one place: before a sent record, before a queued
//!   record, before a record that was taken `out`, or after the queue.

use std::collections::VecDeque;

/// The policy for a log record for which the channel has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnFull {
    /// Drops the new log record, so the earliest records are kept. Uses no memory besides the
    /// channel's.
    #[default]
    DropNewest,
    /// Queues the log record in this process. A full queue drops its oldest record, so the latest
    /// records are kept. Each queued record takes an allocation and a copy. The queue takes memory
    /// up to `queue_records` and `queue_bytes` of [`LossyConfig`](super::LossyConfig).
    DropOldest,
    /// Blocks the call of `log` until the channel has room, at most for this time. After this time
    /// `log` drops the log record.
    Block(std::time::Duration),
}

/// Numbers of dropped log records, by the reason of the drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Drops {
    /// Records dropped because the channel or the queue had no room.
    pub full: u64,
    /// Records dropped because they are longer than the channel, or the queue, can ever take.
    pub too_large: u64,
    /// Records dropped because the receiver is gone or the channel failed.
    pub closed: u64,
}

impl Drops {
    /// Returns the number of all dropped log records.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.full + self.too_large + self.closed
    }
}

/// Counters of a [`LossySender`](super::LossySender). The number of records that the application
/// has logged is `sent + queued + drops.total()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LossyStats {
    /// Records that were sent into the channel.
    pub sent: u64,
    /// Records that wait in the queue now.
    pub queued: u64,
    /// Records that were dropped, by reason.
    pub drops: Drops,
}

/// A queued log record, with the number of records that were dropped directly before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) bytes: Vec<u8>,
    pub(super) lost: u64,
}

/// The queue of a lossy sender, and its counters.
#[derive(Debug)]
pub(super) struct LossyQueue {
    records_max: usize,
    bytes_max: usize,
    queue: VecDeque<Entry>,
    queue_bytes: usize,
    /// Number of log records that were taken out of the queue to be sent without the sender's lock,
    /// and are neither sent nor dropped yet.
    out: u64,
    /// Number of log records that were lost after the last record of the queue, and are not
    /// reported to the receiver yet.
    lost: u64,
    sent: u64,
    drops: Drops,
}

impl LossyQueue {
    pub(super) fn new(records_max: usize, bytes_max: usize) -> Self {
        Self {
            records_max,
            bytes_max,
            queue: VecDeque::new(),
            queue_bytes: 0,
            out: 0,
            lost: 0,
            sent: 0,
            drops: Drops::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of log records that were lost after the last queued record and are not
    /// reported yet.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn stats(&self) -> LossyStats {
        LossyStats {
            sent: self.sent,
            queued: self.queue.len() as u64 + self.out,
            drops: self.drops,
        }
    }

    pub(super) fn front(&self) -> Option<&Entry> {
        self.queue.front()
    }

    /// Appends a log record, after dropping the oldest ones until the new record fits. Returns
    /// `false` if the record is too long for the queue and was dropped itself.
    pub(super) fn enqueue(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.bytes_max || self.records_max == 0 {
            self.drop_newest(|drops| &mut drops.too_large);
            return false;
        }
        while self.queue.len() >= self.records_max
            || self.queue_bytes + bytes.len() > self.bytes_max
        {
            self.drop_oldest(|drops| &mut drops.full);
        }
        self.queue_bytes += bytes.len();
        self.queue.push_back(Entry { bytes: bytes.to_vec(), lost: std::mem::take(&mut self.lost) });
        true
    }

    /// Counts a new log record as dropped for `reason`.
    pub(super) fn drop_newest(&mut self, reason: impl Fn(&mut Drops) -> &mut u64) {
        *reason(&mut self.drops) += 1;
        self.lost += 1;
    }

    /// Drops the oldest queued log record for `reason`.
    pub(super) fn drop_oldest(&mut self, reason: impl Fn(&mut Drops) -> &mut u64) {
        let Some(entry) = self.queue.pop_front() else { return };
        self.queue_bytes -= entry.bytes.len();
        *reason(&mut self.drops) += 1;
        self.add_lost(entry.lost + 1);
    }

    /// Counts a new log record as sent. The caller sends a new record only while the queue is
    /// empty, so the record's header has reported all losses.
    pub(super) const fn count_new_sent(&mut self) {
        self.sent += 1;
        self.lost = 0;
    }

    /// Counts the oldest queued log record as sent. The record's header has reported the losses
    /// before it.
    pub(super) fn count_front_sent(&mut self) {
        if let Some(entry) = self.queue.pop_front() {
            self.queue_bytes -= entry.bytes.len();
            self.sent += 1;
        }
    }

    /// Takes the oldest queued log record out, so that the caller can send it without the sender's
    /// lock.
    pub(super) fn take_front(&mut self) -> Option<Entry> {
        let entry = self.queue.pop_front()?;
        self.queue_bytes -= entry.bytes.len();
        self.out += 1;
        Some(entry)
    }

    /// Counts as sent the log record that was taken out of the queue to be sent.
    pub(super) const fn count_taken_sent(&mut self) {
        self.out -= 1;
        self.sent += 1;
    }

    /// Puts the log record `entry`, which was taken out to be sent, back to the front of the queue.
    /// If the queue has no room, the record is dropped.
    pub(super) fn put_back(&mut self, entry: Entry) {
        self.out -= 1;
        let has_place = self.queue.len() < self.records_max
            && self.queue_bytes + entry.bytes.len() <= self.bytes_max;
        if has_place {
            self.queue_bytes += entry.bytes.len();
            self.queue.push_front(entry);
        } else {
            self.drops.full += 1;
            self.add_lost(entry.lost + 1);
        }
    }

    /// Counts as dropped for `reason` the log record that was taken out of the queue to be sent.
    pub(super) fn count_taken_dropped(
        &mut self,
        entry: &Entry,
        reason: impl Fn(&mut Drops) -> &mut u64,
    ) {
        self.out -= 1;
        *reason(&mut self.drops) += 1;
        self.add_lost(entry.lost + 1);
    }

    /// Takes the number of lost log records that no message has reported yet, for a message that
    /// the caller sends without the sender's lock.
    pub(super) const fn take_lost(&mut self) -> u64 {
        std::mem::replace(&mut self.lost, 0)
    }

    /// Adds `lost` back to the number of lost log records to report, because the message that would
    /// have reported them was not sent.
    pub(super) const fn return_lost(&mut self, lost: u64) {
        self.lost += lost;
    }

    /// Counts as sent a new log record that the caller sent without the sender's lock. The record's
    /// header reported the losses that the caller had taken for it.
    pub(super) const fn count_sent(&mut self) {
        self.sent += 1;
    }

    /// Drops all queued log records, because the receiver is gone.
    pub(super) fn abandon(&mut self) {
        while !self.queue.is_empty() {
            self.drop_oldest(|drops| &mut drops.closed);
        }
    }

    /// Adds `lost` to the losses before the oldest queued log record. If no record is queued, the
    /// losses count after the queue.
    fn add_lost(&mut self, lost: u64) {
        match self.queue.front_mut() {
            Some(front) => front.lost += lost,
            None => self.lost += lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A model of the receiver, a log agent, for a test of the queue: the model receives log
    /// records by number, and checks that each loss is reported exactly once.
    #[derive(Default)]
    struct Agent {
        received: Vec<u64>,
        lost: u64,
    }

    fn number(entry: &Entry) -> u64 {
        u64::from_le_bytes(entry.bytes[..8].try_into().unwrap())
    }

    impl Agent {
        /// Receives a log record. Every record between the last received record and this record
        /// must be reported as lost.
        fn receive(&mut self, number: u64, lost: u64) {
            self.lost += lost;
            assert_eq!(self.received.len() as u64 + self.lost, number, "losses before {number}");
            self.received.push(number);
        }
    }

    proptest! {
        /// Rule: in whatever order log records are queued, sent, dropped and put back, the receiver
        /// learns how many records were lost before each record that it gets.
        #[test]
        fn every_record_is_received_or_reported_lost(
            records_max in 1usize..6,
            bytes_max in 8usize..100,
            steps in proptest::collection::vec((0u8..6, 8usize..40), 1..300),
        ) {
            let mut queue = LossyQueue::new(records_max, bytes_max);
            let mut agent = Agent::default();
            let mut logged = 0u64;
            let mut out: Option<Entry> = None;
            for (step, len) in steps {
                match step {
                    0..3 => {
                        let mut bytes = vec![0; len];
                        bytes[..8].copy_from_slice(&logged.to_le_bytes());
                        logged += 1;
                        if step == 0 && queue.is_empty() && out.is_none() {
                            agent.receive(logged - 1, queue.lost());
                            queue.count_new_sent();
                        } else if step == 1 && queue.is_empty() && out.is_none() {
                            queue.drop_newest(|drops| &mut drops.full);
                        } else {
                            let fits = queue.enqueue(&bytes);
                            prop_assert_eq!(fits, len <= bytes_max);
                        }
                    }
                    3 if out.is_none() => {
                        if let Some(entry) = queue.front() {
                            agent.receive(number(entry), entry.lost);
                            queue.count_front_sent();
                        }
                    }
                    4 if out.is_none() => out = queue.take_front(),
                    5 => {
                        if let Some(entry) = out.take() {
                            if len % 2 == 0 {
                                agent.receive(number(&entry), entry.lost);
                                queue.count_taken_sent();
                            } else {
                                queue.put_back(entry);
                            }
                        }
                    }
                    _ => {}
                }
                let stats = queue.stats();
                prop_assert_eq!(logged, stats.sent + stats.queued + stats.drops.total());
                prop_assert!(queue.queued() <= records_max);
            }
            if let Some(entry) = out {
                queue.put_back(entry);
            }
            while let Some(entry) = queue.front() {
                agent.receive(number(entry), entry.lost);
                queue.count_front_sent();
            }
            agent.lost += queue.take_lost();
            prop_assert_eq!(logged, agent.received.len() as u64 + agent.lost);
            prop_assert_eq!(agent.lost, queue.stats().drops.total());
        }
    }

    #[test]
    fn losses_before_dropped_front_move_to_next_record() {
        let mut queue = LossyQueue::new(2, 100);
        queue.drop_newest(|drops| &mut drops.full);
        for text in [b"a", b"b", b"c"] {
            assert!(queue.enqueue(text));
        }
        let front = queue.front().unwrap();
        assert_eq!((&front.bytes[..], front.lost), (&b"b"[..], 2));
        assert_eq!(queue.stats().drops, Drops { full: 2, ..Drops::default() });
    }

    #[test]
    fn abandoned_queue_is_dropped_as_closed() {
        let mut queue = LossyQueue::new(8, 100);
        assert!(queue.enqueue(b"a") && queue.enqueue(b"b"));
        queue.abandon();
        assert_eq!(queue.stats().drops, Drops { closed: 2, ..Drops::default() });
        assert_eq!((queue.stats().queued, queue.lost()), (0, 2));
    }
}
