// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept, what is dropped, and what was lost where: the rules, without a channel or a clock.
//!
//! ```text
//!   front                                        back
//!   ┌──────────┬──────────┬──────────┐
//!   │ 3 before │ 0 before │ 1 before │  2 after       "how many were lost before this one"
//!   └──────────┴──────────┴──────────┘
//!   drop the front: its 3, and itself, were lost before the next: 4
//! ```
//!
//! # Invariants
//!
//! - noted = sent + queued (with what is `out`) + dropped.
//! - The losses told with records that went, those of the queue, those after it and those `out` are
//!   together all that were dropped.

use std::collections::VecDeque;

/// What happens to a record for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnFull {
    /// It is dropped: what happened first is kept. Costs no memory besides the channel's.
    #[default]
    DropNewest,
    /// It waits in a queue of this process; when that is full, the oldest of the queue is dropped:
    /// what happened last is kept. Costs an allocation and a copy for each record that has to wait, and
    /// up to `queue_records` and `queue_bytes` of [`LossyConfig`](super::LossyConfig) in memory.
    DropOldest,
    /// `log` waits until there is room, but at most this long; then the record is dropped.
    Block(std::time::Duration),
}

/// How many records were dropped, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Drops {
    /// There was no room.
    pub full: u64,
    /// The record is longer than the channel, or the queue, can ever take.
    pub too_large: u64,
    /// Nobody receives any more, or the channel is broken.
    pub closed: u64,
}

impl Drops {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.full + self.too_large + self.closed
    }
}

/// Counters of a [`LossySender`](super::LossySender). All records ever logged are
/// `sent + queued + drops.total()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LossyStats {
    /// Records that went into the channel.
    pub sent: u64,
    /// Records that wait in the queue now.
    pub queued: u64,
    /// Records that were dropped.
    pub drops: Drops,
}

/// A record that waits, and how many were lost before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) bytes: Vec<u8>,
    pub(super) lost: u64,
}

/// The books of a sender.
#[derive(Debug)]
pub(super) struct Book {
    records_max: usize,
    bytes_max: usize,
    queue: VecDeque<Entry>,
    queue_bytes: usize,
    /// Taken out to be sent: neither sent nor dropped yet.
    out: u64,
    /// Lost after the last of the queue.
    lost: u64,
    sent: u64,
    drops: Drops,
}

impl Book {
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

    /// Lost after the last record, and not told yet.
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

    /// The oldest that waits.
    pub(super) fn front(&self) -> Option<&Entry> {
        self.queue.front()
    }

    /// Puts a record at the back, and drops as many of the oldest as it takes. `false` if it is too long
    /// for the queue and was dropped itself.
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

    /// The record at hand is lost.
    pub(super) fn drop_newest(&mut self, reason: impl Fn(&mut Drops) -> &mut u64) {
        *reason(&mut self.drops) += 1;
        self.lost += 1;
    }

    /// The oldest that waits is lost.
    pub(super) fn drop_oldest(&mut self, reason: impl Fn(&mut Drops) -> &mut u64) {
        let Some(entry) = self.queue.pop_front() else { return };
        self.queue_bytes -= entry.bytes.len();
        *reason(&mut self.drops) += 1;
        self.add_lost(entry.lost + 1);
    }

    /// The record at hand went, and told of all losses: there was nothing in the queue.
    pub(super) const fn went(&mut self) {
        self.sent += 1;
        self.lost = 0;
    }

    /// The oldest that waits went, with what was lost before it.
    pub(super) fn front_went(&mut self) {
        if let Some(entry) = self.queue.pop_front() {
            self.queue_bytes -= entry.bytes.len();
            self.sent += 1;
        }
    }

    /// Takes the oldest out, to be sent without the lock.
    pub(super) fn take_front(&mut self) -> Option<Entry> {
        let entry = self.queue.pop_front()?;
        self.queue_bytes -= entry.bytes.len();
        self.out += 1;
        Some(entry)
    }

    /// What was taken out went.
    pub(super) const fn taken_went(&mut self) {
        self.out -= 1;
        self.sent += 1;
    }

    /// What was taken out did not go: back to its place, if that is still there.
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

    /// What was taken out can never go.
    pub(super) fn taken_dropped(&mut self, entry: &Entry, reason: impl Fn(&mut Drops) -> &mut u64) {
        self.out -= 1;
        *reason(&mut self.drops) += 1;
        self.add_lost(entry.lost + 1);
    }

    /// Takes what is to be told, for a record or a report that goes without the lock.
    pub(super) const fn take_lost(&mut self) -> u64 {
        std::mem::replace(&mut self.lost, 0)
    }

    /// It was not told after all.
    pub(super) const fn put_lost_back(&mut self, lost: u64) {
        self.lost += lost;
    }

    /// A record that went without the lock, its losses taken before.
    pub(super) const fn count_sent(&mut self) {
        self.sent += 1;
    }

    /// Nobody will ever receive: drops what waits.
    pub(super) fn abandon(&mut self) {
        while !self.queue.is_empty() {
            self.drop_oldest(|drops| &mut drops.closed);
        }
    }

    /// So many were lost before what is now the oldest.
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

    /// What the agent may be told at most and at least: each record by number, and each loss once.
    #[derive(Default)]
    struct Agent {
        received: Vec<u64>,
        lost: u64,
    }

    fn number(entry: &Entry) -> u64 {
        u64::from_le_bytes(entry.bytes[..8].try_into().unwrap())
    }

    impl Agent {
        /// A record arrives: everything between it and the one before it must have been told as lost.
        fn hears(&mut self, number: u64, lost: u64) {
            self.lost += lost;
            assert_eq!(self.received.len() as u64 + self.lost, number, "losses before {number}");
            self.received.push(number);
        }
    }

    proptest! {
        /// However records come, wait, go and are given back: the agent knows where each loss was.
        #[test]
        fn every_record_is_received_or_told_as_lost(
            records_max in 1usize..6,
            bytes_max in 8usize..100,
            steps in proptest::collection::vec((0u8..6, 8usize..40), 1..300),
        ) {
            let mut book = Book::new(records_max, bytes_max);
            let mut agent = Agent::default();
            let mut logged = 0u64;
            let mut out: Option<Entry> = None;
            for (step, len) in steps {
                match step {
                    0..3 => {
                        let mut bytes = vec![0; len];
                        bytes[..8].copy_from_slice(&logged.to_le_bytes());
                        logged += 1;
                        if step == 0 && book.is_empty() && out.is_none() {
                            agent.hears(logged - 1, book.lost());
                            book.went();
                        } else if step == 1 && book.is_empty() && out.is_none() {
                            book.drop_newest(|drops| &mut drops.full);
                        } else {
                            let fits = book.enqueue(&bytes);
                            prop_assert_eq!(fits, len <= bytes_max);
                        }
                    }
                    3 if out.is_none() => {
                        if let Some(entry) = book.front() {
                            agent.hears(number(entry), entry.lost);
                            book.front_went();
                        }
                    }
                    4 if out.is_none() => out = book.take_front(),
                    5 => {
                        if let Some(entry) = out.take() {
                            if len % 2 == 0 {
                                agent.hears(number(&entry), entry.lost);
                                book.taken_went();
                            } else {
                                book.put_back(entry);
                            }
                        }
                    }
                    _ => {}
                }
                let stats = book.stats();
                prop_assert_eq!(logged, stats.sent + stats.queued + stats.drops.total());
                prop_assert!(book.queued() <= records_max);
            }
            if let Some(entry) = out {
                book.put_back(entry);
            }
            while let Some(entry) = book.front() {
                agent.hears(number(entry), entry.lost);
                book.front_went();
            }
            agent.lost += book.take_lost();
            prop_assert_eq!(logged, agent.received.len() as u64 + agent.lost);
            prop_assert_eq!(agent.lost, book.stats().drops.total());
        }
    }

    #[test]
    fn what_was_lost_before_the_oldest_is_told_with_the_next() {
        let mut book = Book::new(2, 100);
        book.drop_newest(|drops| &mut drops.full);
        for text in [b"a", b"b", b"c"] {
            assert!(book.enqueue(text));
        }
        let front = book.front().unwrap();
        assert_eq!((&front.bytes[..], front.lost), (&b"b"[..], 2));
        assert_eq!(book.stats().drops, Drops { full: 2, ..Drops::default() });
    }

    #[test]
    fn when_nobody_receives_all_that_waits_is_dropped_as_closed() {
        let mut book = Book::new(8, 100);
        assert!(book.enqueue(b"a") && book.enqueue(b"b"));
        book.abandon();
        assert_eq!(book.stats().drops, Drops { closed: 2, ..Drops::default() });
        assert_eq!((book.stats().queued, book.lost()), (0, 2));
    }
}
