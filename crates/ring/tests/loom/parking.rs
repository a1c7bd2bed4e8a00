// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of both sleepers at once: a writer of a ring that sleeps for room and a reader that
//! sleeps for records always wake each other. A lost wake-up is a deadlock, which loom reports.
//!
//! ```text
//!  writer                                      reader
//!  append, publish, check ─ records doorbell ▶ drain, arm, poll again, wait
//!  drain, arm, poll again, wait ◀─── room ──── advance, report, check
//!                                  doorbell
//! ```
//!
//! A doorbell is a level, as an eventfd is: it stays notified until it is drained. The reader
//! reports its progress after each eighth of the ring and before it sleeps, and at no other time.
//! In the picture, `arm` stores in this side's sleeper word that this side sleeps. `check` looks at
//! the peer's sleeper word, and notifies a peer that sleeps. A quiet reader has asked not to be
//! notified of each record. In the table, `after 6` means six records before the concurrent part.
//! No thread spins: a poll that finds nothing leads to sleep.
//!
//! | model | ring | threads | concurrent records | preemptions | executions |
//! |---|---|---|---|---|---|
//! | writer_and_reader_wake_each_other | 256 | 2 | 4 | 3 | 151,532 |
//! | progress_reported_every_eighth_wakes_writer | 1024 | 2 | 2, after 6 | 3 | 44,566 |
//! | writer_short_of_room_wakes_quiet_reader | 256 | 2 | 4 | 3 | 54,210 |
//! | writer_learns_that_reader_left | 256 | 2 | 1, then the reader leaves | 4 | 63,148 |
//! | waker_shared_by_two_threads_loses_no_wakeup | 256 | 3 | 1 report, 1 release | 4 | 38,248 |
#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::model;
use crate::one_way;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use model::{append, explore, take};
use partywall_layout::record_ring::Kind;
use partywall_ring::{
    AppendError, Consumer, Producer, Reclaimer, Releaser, Slab, Sleeper, Wake, Waker, mem,
};

/// A model of an eventfd: a flag that one thread sets and another waits for.
struct Doorbell {
    is_notified: Mutex<bool>,
    changed: Condvar,
}

impl Doorbell {
    fn new() -> Arc<Self> {
        Arc::new(Self { is_notified: Mutex::new(false), changed: Condvar::new() })
    }

    fn notify(&self) {
        *self.is_notified.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn drain(&self) {
        *self.is_notified.lock().unwrap() = false;
    }

    fn wait(&self) {
        let mut is_notified = self.is_notified.lock().unwrap();
        while !*is_notified {
            is_notified = self.changed.wait(is_notified).unwrap();
        }
    }
}

/// The part of a sleeper that the waiting side has: the word by which this side declares that it
/// sleeps, and its doorbell.
struct Waiting {
    sleeper: Sleeper,
    doorbell: Arc<Doorbell>,
}

/// The part of a sleeper that the waking side has: its view of the peer's sleeper word, and the
/// peer's doorbell.
struct Waking {
    waker: Waker,
    doorbell: Arc<Doorbell>,
}

fn sleeper() -> (Waiting, Waking) {
    let (word, seen) = mem::pair(64);
    let doorbell = Doorbell::new();
    let waking = Waking { waker: Waker::new(&seen, 0), doorbell: Arc::clone(&doorbell) };
    (Waiting { sleeper: Sleeper::new(word), doorbell }, waking)
}

impl Waiting {
    /// Declares in the sleeper word that this side sleeps, and then waits for the doorbell, unless
    /// `found` returns that there is something to do. If `quiet`, the peer need not notify of each
    /// record.
    fn sleep(&mut self, quiet: bool, found: impl FnOnce() -> bool) {
        self.doorbell.drain();
        self.sleeper.arm(quiet);
        if !found() {
            self.doorbell.wait();
        }
        self.sleeper.disarm();
    }
}

impl Waking {
    fn wake(&self) {
        if self.waker.check() == Wake::Notify {
            self.doorbell.notify();
        }
    }

    fn wake_before_wait(&self) {
        if self.waker.check_before_wait() == Wake::Notify {
            self.doorbell.notify();
        }
    }
}

struct Writer {
    producer: Producer,
    room: Waiting,
    records: Waking,
    /// Whether the writer checks for a sleeping reader also before it publishes, as senders of the
    /// library do.
    notifies_early: bool,
}

struct Reader {
    consumer: Consumer,
    records: Waiting,
    room: Waking,
}

fn sides(ring_bytes: u64) -> (Writer, Reader) {
    let (producer, consumer) = one_way::ring(ring_bytes);
    let (reader_sleeps, writer_wakes) = sleeper();
    let (writer_sleeps, reader_wakes) = sleeper();
    (
        Writer { producer, room: writer_sleeps, records: writer_wakes, notifies_early: false },
        Reader { consumer, records: reader_sleeps, room: reader_wakes },
    )
}

impl Writer {
    /// Sends record `number` to the reader; returns `false` if the reader has left.
    fn send(&mut self, number: u32, words: usize) -> bool {
        loop {
            if self.records.waker.is_gone() {
                return false;
            }
            match append(&mut self.producer, number, words) {
                Ok(()) => break,
                Err(AppendError::Full) => self.wait_for_room(words),
                Err(AppendError::Violation(violation)) => panic!("{violation}"),
            }
        }
        if self.notifies_early && self.records.waker.check_early() == Wake::Notify {
            self.records.doorbell.notify();
        }
        self.producer.publish();
        self.records.wake();
        true
    }

    fn wait_for_room(&mut self, words: usize) {
        // The writer is about to wait until the reader frees room. So the writer notifies even a
        // quiet reader, which is not notified of each record.
        self.records.wake_before_wait();
        let (producer, reader) = (&mut self.producer, &self.records.waker);
        self.room.sleep(false, || producer.has_room(words * 8).unwrap() || reader.is_gone());
    }
}

impl Reader {
    /// Receives record `number`, which has `words` words of payload. While the record is missing,
    /// the reader sleeps; if `quiet`, it is not notified of each record.
    fn receive(&mut self, number: u32, words: usize, quiet: bool) {
        while !take(&mut self.consumer, number, words) {
            // The reader reports its remaining progress before it waits, because the writer may
            // wait for that room.
            self.report();
            let consumer = &self.consumer;
            self.records.sleep(quiet, || consumer.is_ready());
        }
        if self.consumer.is_report_due() {
            self.report();
        }
    }

    fn report(&mut self) {
        if self.consumer.report() {
            self.room.wake();
        }
    }

    /// Ends the reader: it never reads again, and wakes a writer that waits for room.
    fn leave(&mut self) {
        self.records.sleeper.leave();
        self.room.wake();
    }
}

#[test]
fn writer_and_reader_wake_each_other() {
    explore("writer_and_reader_wake_each_other", 3, || {
        let (mut writer, mut reader) = sides(256);
        let sender = thread::spawn(move || {
            for number in 0..4 {
                assert!(writer.send(number, 1));
            }
        });
        for number in 0..4 {
            reader.receive(number, 1, false);
        }
        sender.join().unwrap();
    });
}

/// The writer of this model also notifies before it publishes a record, which wakes the reader
/// needlessly or too early. Rule: the early notification never replaces the one that is due after
/// the record is published.
#[test]
fn early_notification_loses_no_wakeup() {
    explore("early_notification_loses_no_wakeup", 3, || {
        let (mut writer, mut reader) = sides(256);
        writer.notifies_early = true;
        let sender = thread::spawn(move || {
            for number in 0..3 {
                assert!(writer.send(number, 1));
            }
        });
        for number in 0..3 {
            reader.receive(number, 1, false);
        }
        sender.join().unwrap();
    });
}

/// Rule: the reader's reports always wake a writer that waits for room. The reader reports its
/// progress before it sleeps, and after each eighth of the ring, which in this model is two small
/// records.
#[test]
fn progress_reported_every_eighth_wakes_writer() {
    explore("progress_reported_every_eighth_wakes_writer", 3, || {
        let (mut writer, mut reader) = sides(1024);
        // Each record takes 64 or 192 bytes of the ring's 1024 bytes. The first six records fill
        // the ring.
        let sizes = [1, 22, 22, 22, 22, 1, 1, 1];
        for (number, words) in (0..6).zip(sizes) {
            assert!(writer.send(number, words));
        }
        let sender = thread::spawn(move || {
            for (number, words) in (6..8).zip(&sizes[6..]) {
                assert!(writer.send(number, *words));
            }
        });
        for (number, words) in (0..8).zip(sizes) {
            reader.receive(number, words, false);
        }
        sender.join().unwrap();
    });
}

/// A quiet reader polls at intervals, so the writer does not notify it of each record. Rule: a
/// writer that is about to wait for room notifies a quiet reader. The reader of this model never
/// polls by itself: only that notification wakes it.
#[test]
fn writer_short_of_room_wakes_quiet_reader() {
    explore("writer_short_of_room_wakes_quiet_reader", 3, || {
        let (mut writer, mut reader) = sides(256);
        let sender = thread::spawn(move || {
            for number in 0..4 {
                assert!(writer.send(number, 1));
            }
            // The test wakes the reader once more, in place of the poll that a quiet reader would
            // do by itself.
            writer.records.wake_before_wait();
        });
        for number in 0..4 {
            reader.receive(number, 1, true);
        }
        sender.join().unwrap();
    });
}

#[test]
fn writer_learns_that_reader_left() {
    explore("writer_learns_that_reader_left", 4, || {
        let (mut writer, mut reader) = sides(256);
        let sender = thread::spawn(move || {
            let mut number = 0;
            while writer.send(number, 1) {
                number += 1;
                assert!(number < 4, "there is no room for more");
            }
        });
        reader.receive(0, 1, false);
        reader.leave();
        sender.join().unwrap();
    });
}

/// The writer waits until the reader's side frees memory. On that side one thread reports progress
/// and another returns a block of the slab, and both share one waker. Rule: a notification by one
/// thread does not suppress a notification by the other thread that the writer needs.
#[test]
fn waker_shared_by_two_threads_loses_no_wakeup() {
    explore("waker_shared_by_two_threads_loses_no_wakeup", 4, || {
        let (mut writer, reader) = sides(256);
        let Reader { mut consumer, room, .. } = reader;
        let (own, _) = mem::pair(64);
        let mut slab = Slab::new(1);
        slab.add_segment(0, own);
        let (ring, ring_seen) = mem::pair(64);
        let (released, released_seen) = mem::pair(64);
        let mut releaser = Releaser::new(ring, released);
        let mut reclaimer = Reclaimer::new(ring_seen, released_seen, 0);

        let held = slab.allocate(1).unwrap();
        let held = slab.commit(held).id;
        assert!(writer.send(0, 1) && writer.send(1, 1), "and now the ring is full");
        let room = Arc::new(room);
        let also_room = Arc::clone(&room);
        let reading = thread::spawn(move || {
            assert!(take(&mut consumer, 0, 1) && consumer.report());
            room.wake();
        });
        let releasing = thread::spawn(move || {
            releaser.release(held);
            also_room.wake();
        });

        let mut block = None;
        while block.is_none() || !writer.producer.has_room(0).unwrap() {
            let (producer, had_block) = (&mut writer.producer, block.is_some());
            writer.room.sleep(false, || {
                while let Some(id) = reclaimer.next(slab.in_flight()).unwrap() {
                    slab.reclaim(id).unwrap();
                }
                block = block.take().or_else(|| slab.allocate(1));
                block.is_some() != had_block || had_block && producer.has_room(0).unwrap()
            });
        }
        writer.producer.append(Kind::Data, 2, &[]).unwrap();
        reading.join().unwrap();
        releasing.join().unwrap();
    });
}
