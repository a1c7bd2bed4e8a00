// SPDX-License-Identifier: MIT OR Apache-2.0
//! Property tests that a ring behaves as a queue. Any sequence of appends, publications, aborts and
//! reads runs against a model that knows only the rules of the specification.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use crate::one_way;

use partywall_layout::record_ring::{Kind, footprint};
use partywall_ring::{AppendError, Consumer, Producer};
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Step {
    /// Append a record whose payload is this many 255ths of the longest payload.
    Append(u8),
    /// Append and publish such a record plainly, if it fits plainly; drop it before, if true.
    AppendPlainly(u8, bool),
    Publish,
    /// Prepare the next slots once as for a stream, then this many times as for answers.
    Prepare(u8),
    Abort,
    Consume(u8),
    Report,
}

#[derive(Clone, Debug, PartialEq)]
struct Record {
    stream: u32,
    payload: Vec<u8>,
}

/// The model of a ring: a queue with the limits of a ring, which adds up positions and stores no
/// bytes.
struct Model {
    bytes: u64,
    tail: u64,
    published: u64,
    read: u64,
    reported: u64,
    /// Published records that were not read, each with the positions of its begin and end.
    queue: VecDeque<(Record, u64)>,
    open: Vec<(Record, u64)>,
    sent: u32,
}

impl Model {
    fn new(bytes: u64) -> Self {
        let (queue, open) = (VecDeque::new(), Vec::new());
        Self { bytes, tail: 0, published: 0, read: 0, reported: 0, queue, open, sent: 0 }
    }

    /// Length in bytes of the padding before a record of `len` bytes, which must not cross the end
    /// of the ring.
    fn padding(&self, len: usize) -> u64 {
        let until_end = self.bytes - self.tail % self.bytes;
        if footprint(len as u64) > until_end { until_end } else { 0 }
    }

    /// Whether the ring has room for the padding, a record of `len` bytes, the zeroed slot after
    /// it, and one slot for the closing record.
    fn has_room(&self, len: usize) -> bool {
        let needed = self.padding(len) + footprint(len as u64) + 64 + 64;
        self.tail - self.reported + needed <= self.bytes
    }

    fn is_batch_full(&self, len: usize) -> bool {
        self.tail - self.published + footprint(len as u64) > self.bytes / 2
    }

    fn next_record(&mut self, len: usize) -> Record {
        self.sent += 1;
        let stream = self.sent;
        let payload = (0..len).map(|index| (index as u32 * 31 + stream * 7) as u8).collect();
        Record { stream, payload }
    }
}

struct Run {
    model: Model,
    producer: Producer,
    consumer: Consumer,
}

impl Run {
    fn new(bytes: u64) -> Self {
        let (producer, consumer) = one_way::ring(bytes);
        Self { model: Model::new(bytes), producer, consumer }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(share) => self.append(*share),
            Step::AppendPlainly(share, is_dropped) => self.append_plainly(*share, *is_dropped),
            Step::Publish => {
                self.producer.publish();
                if self.model.tail % 128 == 0 {
                    self.producer.prepare_ahead();
                }
                self.model.published = self.model.tail;
                self.model.queue.extend(self.model.open.drain(..));
            }
            Step::Prepare(answers) => {
                self.producer.prepare(false);
                (0..*answers).for_each(|_| self.producer.prepare(true));
            }
            Step::Abort => {
                self.producer.abort();
                self.model.tail = self.model.published;
                self.model.open.clear();
            }
            Step::Consume(count) => (0..*count).for_each(|_| self.consume()),
            Step::Report => self.report(),
        }
        assert_eq!(self.producer.published().0, self.model.published);
        assert_eq!(self.producer.open_bytes(), self.model.tail - self.model.published);
        assert_eq!(self.consumer.is_ready(), !self.model.queue.is_empty());
    }

    fn append(&mut self, share: u8) {
        let payload_max = self.producer.size().payload_max() as usize;
        let len = payload_max * usize::from(share) / 255;
        if self.model.is_batch_full(len) {
            return;
        }
        let record = self.model.next_record(len);
        let has_room = self.model.has_room(len);
        assert_eq!(self.producer.has_room(len), Ok(has_room));
        let middle = len / 3;
        let result = match record.stream % 3 {
            0 => self.producer.append(Kind::Data, record.stream, &record.payload),
            1 => {
                let (first, second) = record.payload.split_at(middle);
                self.producer.append_parts(Kind::Data, record.stream, &[first, &[], second])
            }
            _ => self.producer.append_with(Kind::Data, record.stream, len, |place| {
                place.copy_from_slice(&record.payload);
            }),
        };
        assert_eq!(result, if has_room { Ok(()) } else { Err(AppendError::Full) });
        if has_room {
            self.model.tail += self.model.padding(len) + footprint(len as u64);
            self.model.open.push((record, self.model.tail));
        }
    }

    fn append_plainly(&mut self, share: u8, is_dropped: bool) {
        let len = self.producer.size().payload_max() as usize * usize::from(share) / 255;
        if !self.producer.fits_plainly(len) {
            return;
        }
        assert!(self.model.open.is_empty() && self.model.has_room(len));
        assert_eq!(self.model.padding(len), 0);
        let record = self.model.next_record(len);
        self.producer.put_plainly(record.stream, len, |room| room.copy_from_slice(&record.payload));
        if is_dropped {
            self.producer.abort();
            return;
        }
        self.producer.publish_plainly(Kind::Data);
        self.producer.prepare_ahead();
        self.model.tail += footprint(len as u64);
        self.model.published = self.model.tail;
        self.model.queue.push_back((record, self.model.tail));
    }

    fn consume(&mut self) {
        let header = self.consumer.peek().unwrap();
        assert_eq!(header, self.consumer.peek().unwrap(), "a look changes nothing");
        assert_eq!(header, self.consumer.peek_data());
        let Some(header) = header else {
            assert!(self.model.queue.is_empty());
            return;
        };
        let (record, end) = self.model.queue.pop_front().expect("nothing was published");
        assert_eq!((header.kind, header.stream), (Kind::Data, record.stream));
        let mut copy = vec![0; header.len as usize];
        self.consumer.copy(&header, 0, &mut copy);
        assert_eq!(copy, record.payload);
        assert_eq!(self.consumer.payload(&header), record.payload);
        self.consumer.advance(&header);
        self.model.read = end;
        assert_eq!(self.consumer.position().0, end);
        let unreported = end - self.model.reported;
        assert_eq!(self.consumer.is_report_due(), unreported >= self.model.bytes / 8);
    }

    fn report(&mut self) {
        let is_changed = self.consumer.report();
        // The reader never skips padding without the record after it, because padding and record
        // are in one batch. So the position changes exactly if a record was read.
        assert_eq!(is_changed, self.model.read != self.model.reported);
        self.model.reported = self.model.read;
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<u8>().prop_map(Step::Append),
        2 => (0u8..8).prop_map(Step::Append),
        3 => (0u8..60, prop::bool::weighted(0.2)).prop_map(|(n, is)| Step::AppendPlainly(n, is)),
        4 => Just(Step::Publish),
        1 => Just(Step::Abort),
        1 => (1u8..6).prop_map(Step::Prepare),
        3 => (1u8..6).prop_map(Step::Consume),
        3 => Just(Step::Report),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn ring_behaves_as_queue(power in 8u32..13, steps in steps(), is_closed in any::<bool>()) {
        let mut run = Run::new(1 << power);
        for step in &steps {
            run.step(step);
        }
        run.step(&Step::Abort);
        if is_closed {
            // The ring has room for its closing record, whatever steps came before.
            run.producer.close(Kind::CloseWrite, 77);
        }
        while !run.model.queue.is_empty() {
            run.consume();
        }
        let last = run.consumer.peek().unwrap();
        prop_assert_eq!(last.is_some(), is_closed);
        if let Some(header) = last {
            prop_assert_eq!((header.kind, header.stream, header.len), (Kind::CloseWrite, 77, 0));
            run.consumer.advance(&header);
            prop_assert_eq!(run.consumer.peek(), Ok(None));
        }
    }

    /// Rule: the writer eventually gets room for a batch of any allowed size, although the reader
    /// reports its progress only after each eighth of the ring.
    #[test]
    fn any_batch_fits_eventually(
        power in 8u32..13,
        batches in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 1..30),
    ) {
        let mut run = Run::new(1 << power);
        for batch in &batches {
            for share in batch {
                let sent = run.model.open.len();
                let len = run.producer.size().payload_max() as usize * usize::from(*share) / 255;
                if run.model.is_batch_full(len) {
                    break;
                }
                // The reader reads all published records. After that, the part of the ring that it
                // has read and not reported is less than an eighth of the ring.
                while !run.model.queue.is_empty() {
                    run.consume();
                    if run.consumer.is_report_due() {
                        run.report();
                    }
                }
                run.step(&Step::Append(*share));
                prop_assert_eq!(run.model.open.len(), sent + 1, "no room, and nothing to read");
            }
            run.step(&Step::Publish);
        }
    }
}
