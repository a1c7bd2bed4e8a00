// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of two threads and one ring: in every interleaving records arrive whole, in order and
//! once.
//!
//! Each model first sends some records in one thread, so that the concurrent part crosses the end
//! of the ring and overwrites old records. Payload words are Relaxed atomics, so a missing Release
//! or fence shows as a torn or stale payload.
//!
//! | model | ring | concurrent records | preemptions | executions |
//! |---|---|---|---|---|
//! | single_records_over_two_laps | 256 | 6, one by one | 3 | 161,352 |
//! | batch_is_visible_as_a_whole | 256 | 3 batches of 2 | 5 | 81,287 |
//! | batch_after_pad_is_visible_as_a_whole | 512 | 5 of 1 or 2 slots in 3 batches | 5 | 4,209 |
//! | aborted_batch_is_never_visible | 512 | 3 aborted, 2 published | 5 | 58 |
//! | plain_records_over_two_laps | 256 | 6, plainly where one fits | 3 | 161,352 |
//! | full_ring_has_room_for_closing_record | 256 | up to 4, and the closing one | 5 | 4,331 |
#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::model;
use crate::one_way;

use loom::thread;
use model::{append, explore, take};
use partywall_layout::record_ring::Kind;
use partywall_ring::{AppendError, Consumer, Producer};

/// The records of a batch: the number of payload words of each.
type Batch = &'static [usize];

/// Runs one model: sends the batch `warm_up` in one thread, and then `batches` from a second
/// thread. Checks every record that arrives.
fn run(ring_bytes: u64, warm_up: Batch, batches: &'static [Batch]) {
    let (mut producer, mut consumer) = one_way::ring(ring_bytes);
    let mut first = 0;
    for words in warm_up {
        append(&mut producer, first, *words).unwrap();
        producer.publish();
        assert!(take(&mut consumer, first, *words));
        consumer.report();
        first += 1;
    }
    let writer = thread::spawn(move || {
        let mut number = first;
        for batch in batches {
            for words in *batch {
                append_when_free(&mut producer, number, *words);
                number += 1;
            }
            producer.publish();
            producer.prepare_ahead();
        }
    });
    for (number, words) in (first..).zip(batches.iter().copied().flatten()) {
        take_when_there(&mut consumer, number, *words);
    }
    writer.join().unwrap();
    assert_eq!(consumer.peek(), Ok(None), "a record that was never sent");
}

fn append_when_free(producer: &mut Producer, number: u32, words: usize) {
    while let Err(error) = append(producer, number, words) {
        assert_eq!(error, AppendError::Full);
        thread::yield_now();
    }
}

fn take_when_there(consumer: &mut Consumer, number: u32, words: usize) {
    while !take(consumer, number, words) {
        thread::yield_now();
    }
    if consumer.is_report_due() {
        consumer.report();
    }
}

#[test]
fn single_records_over_two_laps() {
    explore("single_records_over_two_laps", 3, || {
        run(256, &[2, 2, 2], &[&[2], &[1], &[2], &[1], &[2], &[1]]);
    });
}

/// Rule: a record that is put and published plainly is visible as a whole, with a zero after it, as
/// a batch of one record is. The others go the ordinary way, which looks at `consumed`.
#[test]
fn plain_records_over_two_laps() {
    explore("plain_records_over_two_laps", 3, || {
        let (mut producer, mut consumer) = one_way::ring(256);
        for number in 0..3 {
            append(&mut producer, number, 2).unwrap();
            producer.publish();
            assert!(take(&mut consumer, number, 2));
            consumer.report();
        }
        let sizes = [2, 1, 2, 1, 2, 1];
        let writer = thread::spawn(move || {
            let mut plain = 0;
            for (number, words) in (3..).zip(sizes) {
                let bytes = model::payload(number, words);
                if producer.fits_plainly(bytes.len()) {
                    producer.put_plainly(number, bytes.len(), |room| room.copy_from_slice(&bytes));
                    producer.publish_plainly(Kind::Data);
                    plain += 1;
                } else {
                    append_when_free(&mut producer, number, words);
                    producer.publish();
                }
                producer.prepare_ahead();
            }
            // There is known room for the first record. Whether later ones go plainly depends on
            // how far the reader has come.
            assert!(plain > 0, "no record went plainly");
        });
        for (number, words) in (3..).zip(sizes) {
            take_when_there(&mut consumer, number, words);
        }
        writer.join().unwrap();
        assert_eq!(consumer.peek(), Ok(None), "a record that was never sent");
    });
}

#[test]
fn batch_is_visible_as_a_whole() {
    explore("batch_is_visible_as_a_whole", 5, || {
        run(256, &[2, 2, 2], &[&[1, 2], &[2, 1], &[1, 2]]);
    });
}

/// Rule: a batch that begins with a PAD becomes visible as a whole. The word that the producer
/// stores last belongs to the PAD.
#[test]
fn batch_after_pad_is_visible_as_a_whole() {
    explore("batch_after_pad_is_visible_as_a_whole", 5, || {
        run(512, &[8, 8, 8, 2], &[&[8, 2], &[2, 8], &[2]]);
    });
}

#[test]
fn aborted_batch_is_never_visible() {
    explore("aborted_batch_is_never_visible", 5, || {
        let (mut producer, mut consumer) = one_way::ring(512);
        for number in 0..6 {
            append(&mut producer, number, 2).unwrap();
            producer.publish();
            assert!(take(&mut consumer, number, 2));
            consumer.report();
        }
        let writer = thread::spawn(move || {
            for number in [97, 98, 99] {
                append_when_free(&mut producer, number, 2);
            }
            producer.abort();
            // Record 6 ends exactly where the second record of the aborted batch began. The aborted
            // record must not become visible.
            append_when_free(&mut producer, 6, 1);
            producer.publish();
            append_when_free(&mut producer, 7, 2);
            producer.publish();
        });
        take_when_there(&mut consumer, 6, 1);
        take_when_there(&mut consumer, 7, 2);
        writer.join().unwrap();
        assert_eq!(consumer.peek(), Ok(None), "a ghost of the aborted batch");
    });
}

#[test]
fn full_ring_has_room_for_closing_record() {
    explore("full_ring_has_room_for_closing_record", 5, || {
        let (mut producer, mut consumer) = one_way::ring(256);
        let writer = thread::spawn(move || {
            let mut sent = 0;
            while sent < 4 && append(&mut producer, sent, 1).is_ok() {
                producer.publish();
                sent += 1;
            }
            producer.close(Kind::CloseWrite, sent);
        });
        let mut taken = 0;
        let closing = loop {
            match consumer.peek().unwrap() {
                Some(record) if record.kind == Kind::CloseWrite => break record,
                Some(_) => {
                    assert!(take(&mut consumer, taken, 1));
                    consumer.report();
                    taken += 1;
                }
                None => thread::yield_now(),
            }
        };
        assert_eq!(closing.stream, taken, "all that was sent came before the closing record");
        consumer.advance(&closing);
        writer.join().unwrap();
        assert_eq!(consumer.peek(), Ok(None));
    });
}
