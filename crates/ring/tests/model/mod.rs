// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the loom models: a bounded exploration of interleavings, and records whose every word
//! is known.
#![allow(dead_code, reason = "each model uses its part")]

use loom::model::Builder;
use partywall_layout::record_ring::Kind;
use partywall_ring::{AppendError, Consumer, Producer};
use std::sync::{Arc, Mutex};

/// Explores `body` with at most `preemptions` preemptions and prints the number of executions. The
/// variable `LOOM_MAX_PREEMPTIONS` overrides the bound.
pub fn explore(name: &str, preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    // The count of executions is in a mutex of the standard library, not of loom, because the count
    // is no part of the model.
    let executions = Arc::new(Mutex::new(0_u64));
    let counter = Arc::clone(&executions);
    builder.check(move || {
        *counter.lock().unwrap() += 1;
        body();
    });
    println!("{name}: {} executions", executions.lock().unwrap());
}

/// The payload of record `number`: `words` words, each of which occurs in no other record.
pub fn payload(number: u32, words: usize) -> Vec<u8> {
    let word = |index| u64::from(number) << 32 | 0xff00 | index;
    (0..words as u64).flat_map(|index| word(index).to_le_bytes()).collect()
}

/// Appends record `number`, with `words` words of payload, to the open batch.
pub fn append(producer: &mut Producer, number: u32, words: usize) -> Result<(), AppendError> {
    producer.append(Kind::Data, number, &payload(number, words))
}

/// Takes the next record out of the ring and returns `true`; returns `false` if the ring has none.
/// The record must be record `number`, and every word of its payload is checked.
pub fn take(consumer: &mut Consumer, number: u32, words: usize) -> bool {
    let Some(record) = consumer.peek().expect("an honest producer") else { return false };
    assert_eq!((record.kind, record.stream), (Kind::Data, number));
    let mut found = vec![0; record.len as usize];
    consumer.copy(&record, 0, &mut found);
    assert_eq!(found, payload(number, words), "torn or stale");
    consumer.advance(&record);
    true
}
