// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outlet of a connection: writes wake-ups, fallback data and closes of streams to the
//! connection's socket, in order. Bytes that the system does not accept at once are buffered.

use super::FallbackLimits;
use super::counters::ConnectionCounters;
use crate::frame::encode;
use crate::transport::metrics::Count;
use partywall::Closed;
use partywall::protocol::{ProtocolError, TrySendError};
use partywall_sys::Socket;
use partywall_sys::socket::Family;
use std::io::{ErrorKind, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The outlet of a connection: writes to the socket, and buffers what the socket does not accept.
/// The connection's sender and its [`Control`](super::Control) share it.
#[derive(Debug)]
pub(super) struct SharedOutlet {
    outlet: Mutex<Outlet>,
    keeps: AtomicBool,
}

impl SharedOutlet {
    pub(super) const fn new(outlet: Outlet) -> Self {
        Self { outlet: Mutex::new(outlet), keeps: AtomicBool::new(false) }
    }

    pub(super) fn with<T>(&self, write: impl FnOnce(&mut Outlet) -> T) -> T {
        let mut outlet = self.outlet.lock().unwrap_or_else(PoisonError::into_inner);
        let written = write(&mut outlet);
        // ORDER: Relaxed: `keeps`, which says whether bytes are buffered for the socket, is only a
        // hint. A thread that reads a stale value loses nothing: threads write bytes to the socket
        // only under the lock of the `Outlet`, and buffered bytes first.
        self.keeps.store(outlet.keeps(), Ordering::Relaxed);
        written
    }

    /// Whether bytes are buffered for the socket; takes no lock. A sender without bytes for the
    /// socket calls nothing else.
    pub(super) fn keeps(&self) -> bool {
        // ORDER: Relaxed: `keeps`, which says whether bytes are buffered for the socket, is only a
        // hint. A stale value does no harm: threads write bytes to the socket only under the lock
        // of the `Outlet`, and buffered bytes first.
        self.keeps.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(super) struct Outlet {
    socket: Arc<Socket>,
    version: u8,
    limits: FallbackLimits,
    counters: Arc<ConnectionCounters>,
    /// Bytes for the socket that the system has not accepted yet.
    rest: Vec<u8>,
    sent: usize,
    is_closed: bool,
    /// Whether the write direction of the socket was shut down.
    has_finished: bool,
}

impl Outlet {
    pub(super) fn new(
        socket: Arc<Socket>,
        version: u8,
        limits: FallbackLimits,
        counters: Arc<ConnectionCounters>,
    ) -> Self {
        let (rest, sent, is_closed, has_finished) = (Vec::new(), 0, false, false);
        Self { socket, version, limits, counters, rest, sent, is_closed, has_finished }
    }

    /// Wakes the peer: sends it a Polling message.
    pub(super) fn poll(&mut self) -> Result<(), TrySendError> {
        self.counters.add(Count::PollingSent, 1);
        self.write(&encode::polling(self.version), &[])
    }

    pub(super) fn close_stream(&mut self, stream: u32) -> Result<(), TrySendError> {
        self.write(&encode::stream_close(self.version, stream), &[])
    }

    #[cfg(feature = "tokio")]
    pub(super) fn acknowledge_restart(&mut self, epoch: u64) -> Result<(), TrySendError> {
        self.write(&encode::hot_restart_ack(self.version, epoch), &[])
    }

    /// Sends the peer the announcement of a hot restart.
    pub(super) fn restart(&mut self, epoch: u64) -> Result<(), TrySendError> {
        self.write(&encode::hot_restart(self.version, epoch), &[])
    }

    /// Sends a message of `stream` over the socket, in parts if it is longer than the peer accepts
    /// at once.
    pub(super) fn fall_back(&mut self, stream: u32, payload: &[u8]) -> Result<(), TrySendError> {
        for part in payload.chunks(self.limits.fallback_message_max.max(1) as usize) {
            #[expect(clippy::cast_possible_truncation, reason = "the most a part has is a u32")]
            let header = encode::fallback_header(self.version, stream, part.len() as u32);
            self.write(&header, part)?;
        }
        Ok(())
    }

    fn keeps(&self) -> bool {
        self.sent < self.rest.len()
    }

    /// Writes the buffered bytes to the socket; returns `Full` if some bytes remain buffered.
    pub(super) fn flush(&mut self) -> Result<(), TrySendError> {
        self.check()?;
        while self.keeps() {
            match self.socket.write(&[IoSlice::new(&self.rest[self.sent..])], true) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(TrySendError::Full);
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
        self.rest.clear();
        if self.rest.capacity() > REST_KEPT_MAX {
            self.rest.shrink_to(REST_KEPT_MAX);
        }
        self.sent = 0;
        Ok(())
    }

    /// Whether the peer has received everything that this side has written to the socket, so that
    /// hanging up loses nothing. On a Unix socket, returns whether the peer has read everything.
    /// Over TCP, this side learns that only when the peer hangs up, which
    /// [`SpaceWaiter`](super::space_waiter::SpaceWaiter) detects.
    pub(super) fn is_taken(&self) -> bool {
        self.is_closed || self.family() == Family::Unix && self.has_arrived()
    }

    /// Shuts down the write direction after the last message. If a TCP socket is closed with unread
    /// data, or receives data afterwards, it resets the connection. A reset discards data in
    /// flight, and makes the peer's writes fail, upon which some peers stop reading. So the write
    /// direction is shut down only once everything has arrived, and this side continues to read
    /// until the peer hangs up as well.
    pub(super) fn finish(&mut self) {
        if !self.has_finished && self.family() != Family::Unix && self.has_arrived() {
            self.has_finished = true;
            // If the shutdown fails, the connection has ended, which the receiver detects.
            let _ = self.socket.shutdown_write();
        }
    }

    /// Whether the peer has all bytes that this side wrote for the socket: neither this process nor
    /// the system buffers any. Returns `true` if the system does not report its buffered bytes.
    fn has_arrived(&self) -> bool {
        !self.keeps() && self.socket.untaken_bytes().unwrap_or(0) == 0
    }

    fn family(&self) -> Family {
        self.socket.family()
    }

    pub(super) fn hang_up(&mut self) {
        self.is_closed = true;
        let _ = self.socket.shutdown_write();
    }

    /// Writes `head` and then `body` to the socket, after the buffered bytes. Buffers what the
    /// system does not accept.
    fn write(&mut self, head: &[u8], body: &[u8]) -> Result<(), TrySendError> {
        self.check()?;
        let mut sent = 0;
        let total = head.len() + body.len();
        while !self.keeps() && sent < total {
            let rest_of_head = &head[sent.min(head.len())..];
            let rest_of_body = &body[sent.saturating_sub(head.len())..];
            let parts = [IoSlice::new(rest_of_head), IoSlice::new(rest_of_body)];
            match self.socket.write(&parts, true) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(self.failed(error)),
            }
        }
        if sent < total {
            self.rest.extend_from_slice(&head[sent.min(head.len())..]);
            self.rest.extend_from_slice(&body[sent.saturating_sub(head.len())..]);
        }
        Ok(())
    }

    const fn check(&self) -> Result<(), TrySendError> {
        if self.is_closed {
            return Err(TrySendError::Closed(Closed::Disconnected));
        }
        Ok(())
    }

    #[cold]
    fn failed(&mut self, source: std::io::Error) -> TrySendError {
        match source.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                self.is_closed = true;
                TrySendError::Closed(Closed::Disconnected)
            }
            _ => {
                self.counters.add(Count::SocketFailed, 1);
                TrySendError::Broken(ProtocolError::System {
                    what: "writing to the socket",
                    source,
                })
            }
        }
    }
}

/// Capacity in bytes to which the buffer for unsent bytes shrinks once it is empty. So one long
/// message does not occupy memory for the rest of the connection.
const REST_KEPT_MAX: usize = 64 << 10;
