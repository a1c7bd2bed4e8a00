// SPDX-License-Identifier: MIT OR Apache-2.0
//! A place of the pool: one session, with its idle streams.
//!
//! ```text
//!   open ── idle: the oldest one, if it is still quiet ─▶ in use
//!     └──── none ─▶ a new one ─────────────────────────▶ in use
//!   keep ◀─ quiet, no message of the session used the socket, fewer than max_stream_num idle
//! ```
//!
//! A stream is quiet if it has nothing to receive: neither a message nor the end of the stream.
//!
//! # Invariants
//!
//! - An idle stream has nothing unread and is open both ways. The pool checks that again when it
//!   hands the stream out.
//! - A place whose session was replaced has no idle streams. That session ends when its last stream
//!   in use and the last `Arc` of the place are dropped.

use crate::transport::Control;
use partywall::tokio::{Session, Stream};
use partywall::{OpenError, StreamRecvError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct Place {
    pub(super) session: Session,
    pub(super) control: Arc<Control>,
    /// Index among the pool's places, each of which holds one session.
    pub(super) index: usize,
    /// Epoch of the hot restart after which the session was connected; 0 before the first hot
    /// restart.
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

    /// Whether the session of this place can open streams.
    pub(super) fn is_open(&self) -> bool {
        self.session.close_reason().is_none() && !self.control.is_ended()
    }

    /// Returns an idle stream of the session, or opens a new one.
    pub(super) async fn open(&self) -> Result<Stream, OpenError> {
        loop {
            let Some(mut stream) = self.lock().streams.pop_front() else { break };
            if is_quiet(&mut stream) {
                return Ok(stream);
            }
            // The peer has closed this idle stream, or sent a message on it that no call expected.
            // So the pool drops the stream and tries the next one.
        }
        self.session.open(&[]).await
    }

    /// Keeps `stream` as idle if it is quiet, the place has room for one more idle stream, and no
    /// message of the session has used the socket since the stream was handed out; returns whether
    /// the stream was kept. `fallbacks` is the session's number of such messages at that time: a
    /// stream with a message on the socket uses the socket until its end.
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

    /// Marks the session of this place as replaced by another: closes its idle streams, and keeps
    /// no stream idle from now on.
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

fn is_quiet(stream: &mut Stream) -> bool {
    matches!(stream.try_recv(), Err(StreamRecvError::Empty))
}
