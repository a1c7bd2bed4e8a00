// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session of the pool, with the streams of it that are kept for later.
//!
//! ```text
//!   open ── kept: the one that waits longest, if it is still quiet ─▶ in use
//!     └──── none ─▶ a new one ──────────────────────────────────────▶ in use
//!   keep ◀─ quiet, nothing of the session went by the socket meanwhile, and fewer than max_stream_num are kept
//! ```
//!
//! # Invariants
//!
//! - What is kept has nothing unread and is open both ways; that is looked at again when it is handed out.
//! - A place that was replaced keeps nothing. Its session ends with the last stream in use, and the last `Arc` of it.

use crate::transport::Control;
use partywall::tokio::{Session, Stream};
use partywall::{OpenError, StreamRecvError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct Place {
    pub(super) session: Session,
    pub(super) control: Arc<Control>,
    /// Which of the pool's places it is.
    pub(super) index: usize,
    /// Of which hot restart it is; 0: none.
    pub(super) epoch: u64,
    idle_max: usize,
    idle: Mutex<IdleStreams>,
}

#[derive(Debug, Default)]
struct IdleStreams {
    streams: VecDeque<Stream>,
    is_replaced: bool,
}

impl Place {
    pub(super) fn new(
        session: Session,
        control: Arc<Control>,
        (index, epoch): (usize, u64),
        idle_max: usize,
    ) -> Self {
        Self { session, control, index, epoch, idle_max, idle: Mutex::default() }
    }

    pub(super) fn number(&self) -> u64 {
        self.control.number()
    }

    /// Whether streams can be opened.
    pub(super) fn is_open(&self) -> bool {
        self.session.close_reason().is_none() && !self.control.is_ended()
    }

    /// A stream that was kept, or a new one.
    pub(super) async fn open(&self) -> Result<Stream, OpenError> {
        loop {
            let Some(mut stream) = self.lock().streams.pop_front() else { break };
            if is_quiet(&mut stream) {
                return Ok(stream);
            }
            // Closed by the other side, or it has something to say that nobody asked for.
        }
        self.session.open(&[]).await
    }

    /// Keeps a stream for later if that does no harm; whether it did. `fallbacks` is what the session counted when the
    /// stream was handed out: a stream of which something goes by the socket does so until its end.
    pub(super) fn keep(&self, mut stream: Stream, fallbacks: u64) -> bool {
        if self.control.fallbacks() != fallbacks || !self.is_open() || !is_quiet(&mut stream) {
            return false;
        }
        let mut idle = self.lock();
        if idle.is_replaced || idle.streams.len() >= self.idle_max {
            return false;
        }
        idle.streams.push_back(stream);
        true
    }

    /// Nothing is kept any more.
    pub(super) fn replace(&self) {
        let mut idle = self.lock();
        idle.is_replaced = true;
        let streams = std::mem::take(&mut idle.streams);
        drop(idle);
        drop(streams);
    }

    fn lock(&self) -> MutexGuard<'_, IdleStreams> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nothing is there to be received, not even an end.
fn is_quiet(stream: &mut Stream) -> bool {
    matches!(stream.try_recv(), Err(StreamRecvError::Empty))
}
