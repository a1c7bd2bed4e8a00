// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of a connection: it sends messages through slices and the ring, or over the
//! socket when memory is exhausted.
//!
//! ```text
//!   enough slices? ── yes ─▶ chain ─▶ element ─▶ Polling, if the peer is idle
//!                  └─ no ──▶ BackPressure::Error: full
//!                            else fallback data: this stream uses the socket from now on
//! ```
//!
//! Waiting for slices could deadlock: both sides allocate from the same lists, so each may hold the
//! slices that the other waits for. So a sender that would have to wait uses the socket, as in
//! other implementations. Only a reservation waits for a moment, because a slice that is freed
//! meanwhile saves a copy.

use super::counters::{ConnectionCounters, RareCount};
use super::outlet::{Outlet, SharedOutlet};
use super::space_waiter::SpaceWaiter;
use super::streams::Streams;
use crate::memory::queue::{Element, Producer, PutError};
use crate::region::{BufferRegion, Damage, Slice};
use crate::transport::metrics::Count;
use partywall::protocol::{
    ConnectionSender, ConnectionSpace, ProtocolError, SendBuffer, TrySendError,
};
use partywall::{BackPressure, Closed, SenderStats};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Sender {
    outlet: Arc<SharedOutlet>,
    region: Arc<BufferRegion>,
    producer: Producer,
    streams: Arc<Streams>,
    policy: BackPressure,
    room: Arc<SpaceWaiter>,
    /// The time since which reservations have found no free slice; `None` if the last reservation
    /// found one.
    scarce_since: Option<Instant>,
    counters: Arc<ConnectionCounters>,
}

impl Sender {
    pub(super) fn new(
        outlet: Arc<SharedOutlet>,
        (region, producer): (Arc<BufferRegion>, Producer),
        (streams, policy): (Arc<Streams>, BackPressure),
        room: Arc<SpaceWaiter>,
        counters: Arc<ConnectionCounters>,
    ) -> Self {
        Self { outlet, region, producer, streams, policy, room, scarce_since: None, counters }
    }

    /// Checks that a message can be sent: the ring has room for its element, and no earlier bytes
    /// are buffered for the socket.
    fn check_room(&mut self) -> Result<(), TrySendError> {
        if self.outlet.keeps() {
            self.write_rest()?;
        }
        self.check_memory()?;
        if self.producer.room().map_err(damaged)? == 0 {
            self.counters.add(Count::QueueStayedFull, 1);
            return Err(self.full());
        }
        Ok(())
    }

    fn write_rest(&self) -> Result<(), TrySendError> {
        let written = self.outlet.with(Outlet::flush);
        written.map_err(
            |unsent| if matches!(unsent, TrySendError::Full) { self.full() } else { unsent },
        )
    }

    /// Returns the error for a message without room: `Closed` if the peer has hung up or shut down
    /// its write direction, so that there will never be room again; otherwise `Full`.
    fn full(&self) -> TrySendError {
        match self.room.has_hung_up() {
            true => TrySendError::Closed(Closed::Disconnected),
            false => TrySendError::Full,
        }
    }

    /// Allocates slices and copies `payload` into them; returns `None` if not enough slices are
    /// free.
    fn copied(&self, payload: &[u8]) -> Option<Vec<Slice>> {
        let mut slices = match self.region.reserve(payload.len()) {
            Some(slice) => vec![slice],
            None => self.region.reserve_chain(payload.len())?,
        };
        let mut rest = payload;
        for slice in &mut slices {
            let (part, behind) = rest.split_at(slice.len().min(rest.len()));
            slice.as_mut_slice()[..part.len()].copy_from_slice(part);
            rest = behind;
        }
        Some(slices)
    }

    /// Checks that neither the queue nor the buffers were truncated by the peer.
    fn check_memory(&self) -> Result<(), TrySendError> {
        if self.producer.is_damaged() || self.region.is_damaged() {
            let what = "the shared memory was truncated while it was in use".to_owned();
            return Err(TrySendError::Broken(ProtocolError::Violation { what }));
        }
        Ok(())
    }

    fn put(&mut self, stream: u32, offset: u32, status: u32) -> Result<(), TrySendError> {
        // The write into the slice may have met memory that the peer truncated, so the memory is
        // checked again before the message is sent.
        self.check_memory()?;
        match self.producer.put(Element { stream, offset, status }) {
            Ok(()) => {}
            Err(PutError::Full) => return Err(TrySendError::Full),
            Err(PutError::Damaged(damage)) => return Err(damaged(damage)),
        }
        if self.producer.mark_working() { self.outlet.with(Outlet::poll) } else { Ok(()) }
    }

    fn fall_back(&mut self, stream: u32, payload: &[u8]) -> Result<(), TrySendError> {
        self.outlet.with(|outlet| outlet.fall_back(stream, payload))?;
        self.streams.fall_back(stream);
        self.counters.add(Count::FallbackSent, 1);
        self.counters.sent(payload.len(), false);
        Ok(())
    }
}

impl ConnectionSender for Sender {
    fn open(&mut self) -> Result<u32, TrySendError> {
        Ok(self.streams.lock().open())
    }

    fn send(&mut self, stream: u32, payload: &[u8]) -> Result<(), TrySendError> {
        self.check_room()?;
        let falls_back = self.streams.falls_back(stream);
        match falls_back {
            // The stream was closed meanwhile, so the peer would discard the message: the send
            // succeeds without effect.
            None => return Ok(()),
            Some(true) => return self.fall_back(stream, payload),
            Some(false) => {}
        }
        let Some(slices) = self.copied(payload) else {
            self.check_memory()?;
            self.counters.add(Count::AllocationFailed, 1);
            if self.policy == BackPressure::Error {
                let bytes_max = self.region.chain_bytes_max();
                if payload.len() as u64 > bytes_max {
                    return Err(TrySendError::TooLarge(bytes_max));
                }
                return Err(TrySendError::Full);
            }
            return self.fall_back(stream, payload);
        };
        let Some(offset) = self.region.send(slices) else { return Ok(()) };
        self.counters.sent(payload.len(), false);
        self.put(stream, offset, DATA)
    }

    fn reserve(&mut self, len: usize) -> Result<Option<Box<dyn SendBuffer>>, TrySendError> {
        if let Some(slice) = self.region.reserve(len) {
            self.scarce_since = None;
            return Ok(Some(Box::new(slice)));
        }
        // The reservation waits for free slices only briefly. If the peer frees some, it does so
        // soon; it may also wait for slices that this side holds, and then never frees any.
        self.check_memory()?;
        let may_come = len <= self.region.slice_bytes_max() && self.policy != BackPressure::Error;
        if may_come {
            let since = *self.scarce_since.get_or_insert_with(Instant::now);
            if since.elapsed() < SCARCE_MAX {
                return Err(TrySendError::Full);
            }
        }
        Ok(None)
    }

    fn commit(
        &mut self,
        stream: u32,
        buffer: &mut Option<Box<dyn SendBuffer>>,
    ) -> Result<(), TrySendError> {
        self.check_room()?;
        let falls_back = self.streams.falls_back(stream);
        if falls_back == Some(true) {
            if let Some(buffer) = buffer {
                self.fall_back(stream, buffer.as_slice())?;
            }
        }
        let Some(taken) = buffer.take() else { return Ok(()) };
        if falls_back != Some(false) {
            return Ok(());
        }
        let Ok(slice) = taken.into_any().downcast::<Slice>() else { return Ok(()) };
        let len = slice.len();
        let Some(offset) = self.region.send_one(*slice) else { return Ok(()) };
        self.counters.sent(len, true);
        self.put(stream, offset, DATA)
    }

    fn close(&mut self, stream: u32) -> Result<(), TrySendError> {
        let falls_back = self.streams.lock().falls_back(stream);
        let Some(falls_back) = falls_back else { return Ok(()) };
        self.check_room()?;
        if falls_back {
            // The stream's data uses the socket. If its close were sent through the ring, the close
            // would overtake the data.
            self.outlet.with(|outlet| outlet.close_stream(stream))?;
        } else {
            self.put(stream, 0, CLOSE)?;
        }
        self.streams.lock().closed_here(stream);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TrySendError> {
        self.write_rest()
    }

    fn finish(&mut self) {
        if self.producer.is_drained() {
            self.outlet.with(Outlet::finish);
        }
    }

    fn keeps(&self) -> bool {
        self.outlet.keeps()
    }

    fn is_taken(&self) -> bool {
        let is_taken = self.producer.is_drained() && self.outlet.with(|outlet| outlet.is_taken());
        // A peer that has hung up takes no more messages, so this side does not wait for it, even
        // if this side has not yet read the end of the connection from the socket.
        is_taken || self.room.has_hung_up()
    }

    fn arm(&mut self) -> io::Result<()> {
        self.counters.note(RareCount::RoomSleeps);
        self.room.arm(self.outlet.keeps())
    }

    fn disarm(&mut self) {
        self.room.disarm();
    }

    fn room(&self) -> Arc<dyn ConnectionSpace> {
        Arc::clone(&self.room) as Arc<dyn ConnectionSpace>
    }

    fn hang_up(&mut self) {
        if !self.producer.is_drained() || self.streams.lock().count() > 0 {
            self.region.retire();
        }
        self.outlet.with(Outlet::hang_up);
    }

    fn stats(&self) -> SenderStats {
        self.counters.sender_stats()
    }
}

#[cold]
fn damaged(damage: Damage) -> TrySendError {
    TrySendError::Broken(ProtocolError::Violation { what: damage.to_string() })
}

/// Time for which a reservation waits for a free slice: about as long as copying one of the largest
/// messages takes. After that, the message is written to private memory and copied. A sender that
/// sleeps meanwhile looks for a free slice twice in that time.
const SCARCE_MAX: Duration = Duration::from_millis(2);

/// Statuses of the elements in a ring: the element announces data, or the close of its stream.
pub(super) const DATA: u32 = 0;
pub(super) const CLOSE: u32 = 1;
