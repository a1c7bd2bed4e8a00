// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of `parallel` that are never read, while their senders never stop.
//!
//! ```text
//! client   send send send …│ waits for credit      until the measurement ends
//! server                    (accepted, never received from)
//! ```
//! All sent messages stay unread until the clock stops.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::stream_side::payload;
use crate::harness::cell::Cell;
use crate::transport::AsyncEndpoint;

/// The running senders of the unread streams; dropping the value ends them.
pub struct UnreadStreams {
    senders: JoinSet<Result<()>>,
    messages: Arc<Mutex<u64>>,
}

impl UnreadStreams {
    /// Starts a task on each of `endpoints` that sends without end; the streams are numbered from
    /// `first`.
    pub fn start<E: AsyncEndpoint>(
        runtime: &Runtime,
        cell: Cell,
        first: usize,
        endpoints: Vec<E>,
    ) -> Self {
        let messages = Arc::new(Mutex::new(0));
        let mut senders = JoinSet::new();
        for (stream, endpoint) in (first as u64..).zip(endpoints) {
            let counted = Arc::clone(&messages);
            senders.spawn_on(send_forever(endpoint, cell, stream, counted), runtime.handle());
        }
        Self { senders, messages }
    }

    /// The number of messages sent so far on the streams that the server never reads.
    ///
    /// # Errors
    /// The error of a sender that has ended.
    pub fn messages(&mut self) -> Result<u64> {
        if let Some(ended) = self.senders.try_join_next() {
            ended.context("the sender of an unread stream panicked")??;
        }
        Ok(*self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn send_forever(
    mut endpoint: impl AsyncEndpoint,
    cell: Cell,
    stream: u64,
    messages: Arc<Mutex<u64>>,
) -> Result<()> {
    for operation in 0.. {
        endpoint.send(payload(cell, stream, operation)).await.context("on an unread stream")?;
        *messages.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
    Ok(())
}
