// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams that nobody reads, while their senders never stop.
//!
//! ```text
//! client   send send send …│ waits for credit      as long as the measurement takes
//! server                    (accepted, never received from)
//! ```
//! What was sent lies unread: nothing of it is received before the clock stops.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::super::cell::Cell;
use super::lane::Lane;
use super::play::payload;

/// The senders at work; they end when this is dropped.
pub struct Unread {
    senders: JoinSet<Result<()>>,
    messages: Arc<Mutex<u64>>,
}

impl Unread {
    /// Lets each of `lanes` be sent to without end. The first of them is stream number `first`.
    pub fn start<L: Lane>(runtime: &Runtime, cell: Cell, first: usize, lanes: Vec<L>) -> Self {
        let messages = Arc::new(Mutex::new(0));
        let mut senders = JoinSet::new();
        for (stream, lane) in (first as u64..).zip(lanes) {
            let counted = Arc::clone(&messages);
            senders.spawn_on(send_without_end(lane, cell, stream, counted), runtime.handle());
        }
        Self { senders, messages }
    }

    /// Messages that were sent so far, and so lie unread.
    ///
    /// # Errors
    /// If a sender has ended: then there was nothing to measure.
    pub fn messages(&mut self) -> Result<u64> {
        if let Some(ended) = self.senders.try_join_next() {
            ended.context("the sender of an unread stream panicked")??;
        }
        Ok(*self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn send_without_end(
    mut lane: impl Lane,
    cell: Cell,
    stream: u64,
    messages: Arc<Mutex<u64>>,
) -> Result<()> {
    for operation in 0.. {
        lane.send(payload(cell, stream, operation)).await.context("on an unread stream")?;
        *messages.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
    Ok(())
}
