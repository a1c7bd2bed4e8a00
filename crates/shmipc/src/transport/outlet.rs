// SPDX-License-Identifier: MIT OR Apache-2.0
//! What we write on the socket: wake-ups, fallback data and ends of streams, in order, and kept where the system
//! does not take it at once.

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

/// The outlet of a line, for the sender and for whoever says something about the whole line.
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
        // ORDER: Relaxed: what is left is written in order by whoever holds the lock, whether or not it was known.
        self.keeps.store(outlet.keeps(), Ordering::Relaxed);
        written
    }

    /// Whether something is left to be written. A sender that has nothing for the socket asks no more than this.
    pub(super) fn keeps(&self) -> bool {
        // ORDER: Relaxed: see `with`.
        self.keeps.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(super) struct Outlet {
    socket: Arc<Socket>,
    version: u8,
    limits: FallbackLimits,
    counters: Arc<ConnectionCounters>,
    /// What the system did not take yet, and how much of it went.
    rest: Vec<u8>,
    sent: usize,
    is_closed: bool,
    /// The other side was told that nothing follows.
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

    /// Wakes the other side.
    pub(super) fn poll(&mut self) -> Result<(), TrySendError> {
        self.counters.add(Count::PollingSent, 1);
        self.write(&encode::polling(self.version), &[])
    }

    /// Ends a stream.
    pub(super) fn close_stream(&mut self, stream: u32) -> Result<(), TrySendError> {
        self.write(&encode::stream_close(self.version, stream), &[])
    }

    /// Answers a hot restart.
    #[cfg(feature = "tokio")]
    pub(super) fn acknowledge_restart(&mut self, epoch: u64) -> Result<(), TrySendError> {
        self.write(&encode::hot_restart_ack(self.version, epoch), &[])
    }

    /// Announces a hot restart.
    pub(super) fn restart(&mut self, epoch: u64) -> Result<(), TrySendError> {
        self.write(&encode::hot_restart(self.version, epoch), &[])
    }

    /// A message, as it is: in parts where it is longer than the other side takes at once.
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

    /// Writes what is left; `Full` if some is left still.
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

    /// Whether the other side has all that was written, so that hanging up destroys nothing of it: on a Unix socket,
    /// whether it has read everything. Over TCP nobody can say that before it hangs up, which `Room` sees.
    pub(super) fn is_taken(&self) -> bool {
        self.is_closed || self.family() == Family::Unix && self.has_arrived()
    }

    /// Nothing will follow. A TCP socket that is closed with something unread, or is written to afterwards, resets
    /// the connection: it takes along what is still under way here, and makes writing fail there, which some peers
    /// believe before they have read. So once everything has arrived the other side hears the end first, and this one
    /// reads on until it hangs up as well.
    pub(super) fn finish(&mut self) {
        if !self.has_finished && self.family() != Family::Unix && self.has_arrived() {
            self.has_finished = true;
            // Where this fails the connection is gone, which is seen otherwise.
            let _ = self.socket.shutdown_write();
        }
    }

    /// Whether nothing is left here nor in the system. Whoever cannot tell waits for nothing.
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

    /// Writes both, behind what is left, and keeps what does not go.
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

/// Memory for what the system did not take is kept up to this many bytes.
const REST_KEPT_MAX: usize = 64 << 10;
