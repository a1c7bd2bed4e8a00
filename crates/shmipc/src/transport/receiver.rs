// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end of a connection. It takes elements, the entries that name a message or a
//! close, from the ring first, and then reads frames, the messages on the socket.
//!
//! ```text
//!   ring ── element ─▶ event: message, new stream; a close waits until the socket was read
//!     └─ empty ─▶ socket, if must_read ─┬─ frame ─▶ ring again, then act on the frame
//!                                       ├─ dry ───▶ report pending closes if no data is in flight
//!                                       └─ end ───▶ ring again, report closes if no data is lost
//! ```
//!
//! The receiver reads the socket after a sleep, for pending closes, and from time to time if the
//! session's driver never sleeps. A ring that is never empty does not delay a frame for ever: the
//! elements that precede the frame are counted when it is read.

use super::control::Control;
use super::counters::{ConnectionCounters, RareCount};
use super::heap::Heap;
use super::inlet::{End, Inflow, Inlet};
use super::pending_closes::PendingCloses;
use super::sender::{CLOSE, DATA};
use super::streams::{Owner, Streams};
use crate::frame::Frame;
use crate::memory::Backing;
use crate::memory::queue::{Consumer, Element};
use crate::region::{BufferRegion, Damage};
use crate::transport::metrics::Count;
use partywall::protocol::{ConnectionEvent, ConnectionReceiver, ProtocolError};
use partywall::{Closed, Message, ReceiverStats};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Receiver {
    inlet: Inlet,
    region: Arc<BufferRegion>,
    consumer: Consumer,
    streams: Arc<Streams>,
    heap: Heap,
    /// Whether the receiver copies messages out of the shared memory, because the peer is
    /// untrusted.
    copies: bool,
    counters: Arc<ConnectionCounters>,
    control: Arc<Control>,
    /// Events that were found together with an event that was returned first. The receiver's next
    /// calls return them; there are few.
    events: VecDeque<ConnectionEvent>,
    /// A frame received over the socket, which waits until the elements before it are taken from
    /// the ring.
    frame: Option<Frame>,
    /// Streams whose close came through the ring, while their last data may still be on the socket.
    closing: PendingCloses,
    /// Number of queue elements that the receiver may still take before it turns to the socket:
    /// reads it, or processes the frame that it has read.
    turn: u32,
    /// Whether the receiver must read the socket, because data may have arrived on it.
    must_read: bool,
    /// Whether this side's flag in the ring is clear, so that the peer must notify of elements.
    is_idle: bool,
    /// Whether the unread bytes on the heap exceed their limit, so that the receiver does not read
    /// the socket.
    is_held: bool,
    polls: u32,
    end: Option<End>,
    _backing: Vec<Arc<Backing>>,
}

impl Receiver {
    pub(super) fn new(
        inlet: Inlet,
        (region, consumer): (Arc<BufferRegion>, Consumer),
        streams: Arc<Streams>,
        (heap, copies): (Heap, bool),
        (counters, control): (Arc<ConnectionCounters>, Arc<Control>),
        backing: Vec<Arc<Backing>>,
    ) -> Self {
        Self {
            inlet,
            region,
            consumer,
            streams,
            heap,
            copies,
            counters,
            control,
            events: VecDeque::new(),
            frame: None,
            closing: PendingCloses::default(),
            turn: TURN,
            must_read: true,
            is_idle: false,
            is_held: false,
            polls: 0,
            end: None,
            _backing: backing,
        }
    }

    /// Reads the socket. Returns the next event that the read bytes cause, or the event for the end
    /// of the connection; `None` if the ring must be read first.
    fn check_socket(&mut self) -> Result<Option<ConnectionEvent>, ProtocolError> {
        if let Some(frame) = self.frame.take() {
            return Ok(Some(self.act(frame)));
        }
        if self.consumer.is_damaged() || self.region.is_damaged() {
            return Err(truncated());
        }
        if let Some(end) = self.end {
            if self.may_confirm() {
                self.confirm_closes();
            }
            return Ok(Some(self.events.pop_front().unwrap_or_else(|| self.ended(end))));
        }
        if !self.must_read && !self.may_confirm() {
            return Ok(Some(ConnectionEvent::Nothing));
        }
        let inflow = self.inlet.next()?;
        // One read may return several frames, so the receiver reads the socket again until it has
        // no more bytes.
        self.must_read = !matches!(inflow, Inflow::Dry);
        match inflow {
            Inflow::Frame(Frame::Polling) => {
                self.counters.add(Count::PollingReceived, 1);
                self.control.polled();
                Ok(Some(ConnectionEvent::Internal))
            }
            // Elements that the peer added to the ring before it sent this frame are in the ring by
            // now, and are taken first. Later elements do not delay the frame.
            Inflow::Frame(frame) => {
                self.frame = Some(frame);
                self.turn = self.consumer.pending().map_err(damaged)?;
                Ok(None)
            }
            Inflow::End(end) => {
                self.end = Some(end);
                self.turn = self.consumer.pending().map_err(damaged)?;
                Ok(None)
            }
            Inflow::Dry => {
                if self.may_confirm() {
                    self.confirm_closes();
                }
                Ok(Some(self.events.pop_front().unwrap_or(ConnectionEvent::Nothing)))
            }
        }
    }

    /// Whether closes of streams wait to be reported, and no data on the socket can belong to these
    /// streams any more.
    fn may_confirm(&self) -> bool {
        !self.closing.is_empty() && !self.inlet.is_behind()
    }

    /// Reports the ends of streams that the peer has closed. The reports were kept back while the
    /// socket could still contain data of these streams.
    fn confirm_closes(&mut self) {
        for name in self.closing.take() {
            if self.streams.lock().closed_there(name) {
                self.events.push_back(ConnectionEvent::Closed(name));
            }
        }
    }

    /// Returns the event for the end of the connection, once all earlier events were returned. The
    /// protocol has no message for an orderly end, so an end with open streams counts as not
    /// orderly.
    fn ended(&self, end: End) -> ConnectionEvent {
        let is_tidy = end == End::Clean && self.streams.lock().count() == 0;
        ConnectionEvent::End(if is_tidy { Closed::Finished } else { Closed::Disconnected })
    }

    fn element(&mut self, element: Element) -> Result<ConnectionEvent, ProtocolError> {
        let Element { stream, offset, status } = element;
        match status & STATUS_BITS {
            CLOSE => {
                let streams = self.streams.lock();
                let is_open = |stream| streams.falls_back(stream).is_some();
                self.closing.note(stream, streams.count(), is_open);
                Ok(ConnectionEvent::Internal)
            }
            status => {
                let chain = self.region.receive(offset).map_err(damaged)?;
                // No implementation sends a status other than data and close on purpose. An element
                // with another status is data if its stream is open, but it opens no stream.
                let is_data = status == DATA || self.streams.lock().falls_back(stream).is_some();
                if !is_data || chain.is_empty() {
                    self.counters.note(RareCount::Discarded);
                    return Ok(ConnectionEvent::Internal);
                }
                let owner = self.streams.lock().owner(stream);
                if owner == Owner::None {
                    self.counters.note(RareCount::Discarded);
                    return Ok(ConnectionEvent::Internal);
                }
                self.counters.received(chain.len(), !self.copies);
                let message = if self.copies {
                    self.heap.message(chain.to_vec())
                } else {
                    Message::from_recv_buffer(Box::new(chain))
                };
                Ok(self.arrived(stream, owner, message))
            }
        }
    }

    fn arrived(&mut self, stream: u32, owner: Owner, message: Message) -> ConnectionEvent {
        let arrived = ConnectionEvent::Message(stream, message);
        if owner == Owner::New {
            self.events.push_back(arrived);
            return ConnectionEvent::Opened(stream);
        }
        arrived
    }

    fn act(&mut self, frame: Frame) -> ConnectionEvent {
        match frame {
            Frame::StreamClose { stream } => {
                let was_open = self.streams.lock().closed_there(stream);
                if was_open { ConnectionEvent::Closed(stream) } else { ConnectionEvent::Internal }
            }
            Frame::Fallback { stream, payload, .. } => {
                self.counters.add(Count::FallbackReceived, 1);
                self.counters.received(payload.len(), false);
                let owner = self.streams.lock().owner(stream);
                if payload.is_empty() || owner == Owner::None {
                    return ConnectionEvent::Internal;
                }
                let message = self.heap.message(payload);
                self.arrived(stream, owner, message)
            }
            Frame::HotRestart { epoch } => {
                self.control.restart_announced(epoch);
                ConnectionEvent::Internal
            }
            Frame::HotRestartAck { epoch } => {
                self.control.restart_acknowledged(epoch);
                ConnectionEvent::Internal
            }
            Frame::Polling => ConnectionEvent::Internal,
        }
    }

    /// Frees the messages in the ring, because no caller will receive them any more.
    fn drain(&mut self) {
        // Messages that arrive during this loop are not freed, because the peer could then prolong
        // the loop for ever.
        for _ in 0..self.consumer.pending().unwrap_or(0) {
            let Ok(Some(element)) = self.consumer.pop() else { break };
            if element.status & STATUS_BITS != CLOSE {
                drop(self.region.receive(element.offset));
            }
        }
        self.consumer.publish_head();
    }
}

impl ConnectionReceiver for Receiver {
    fn find(&mut self) -> Result<ConnectionEvent, ProtocolError> {
        if let Some(event) = self.events.pop_front() {
            return Ok(event);
        }
        if std::mem::take(&mut self.is_idle) {
            self.consumer.set_working();
            self.region.wake();
            self.must_read = true;
        }
        self.is_held = self.heap.holds();
        if self.is_held {
            self.consumer.publish_head();
            return Ok(ConnectionEvent::Nothing);
        }
        loop {
            let is_their_turn = self.turn == 0;
            if !is_their_turn {
                if let Some(element) = self.consumer.pop().map_err(damaged)? {
                    self.turn -= 1;
                    return self.element(element);
                }
            }
            self.turn = TURN;
            // After 256 elements (`TURN`) the receiver reads the socket, even if the ring is never
            // empty.
            self.must_read |= is_their_turn;
            match self.check_socket()? {
                // The receiver left the ring to read the socket, and the socket had no message. The
                // ring may have more elements, so the loop continues with the ring.
                Some(ConnectionEvent::Nothing) if is_their_turn => {}
                Some(event) => return Ok(event),
                None => {}
            }
        }
    }

    fn arm(&mut self, quiet: bool) -> Result<bool, ProtocolError> {
        if self.is_held {
            return Ok(!self.heap.holds());
        }
        let has_more = !self.events.is_empty() || self.frame.is_some() || self.must_read;
        if has_more || self.may_confirm() {
            return Ok(true);
        }
        if quiet {
            // If `quiet` is true, the receiver's caller polls again by itself and needs no wake-up.
            // Its next poll reads the ring and the socket.
            self.must_read = true;
            return self.consumer.is_empty().map(|is_empty| !is_empty).map_err(damaged);
        }
        let has_more = self.consumer.set_idle_if_empty().map_err(damaged)?;
        self.is_idle = !has_more;
        if !has_more {
            self.counters.note(RareCount::Rests);
            self.region.rest(self.streams.lock().count() == 0);
            self.control.tell_monitor();
        }
        Ok(has_more)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.inlet.descriptor()
    }

    fn listens(&self) -> bool {
        !self.is_held
    }

    fn notice_end(&mut self) -> Result<bool, ProtocolError> {
        self.polls = self.polls.wrapping_add(1);
        // After every 64th call (`POLLS_PER_READ`) the receiver's next poll reads the socket. This
        // function then reports no data: whether the socket has data is unknown, and the caller
        // might spin longer for nothing.
        self.must_read |= self.polls % POLLS_PER_READ == 0;
        Ok(false)
    }

    fn close(&mut self) {
        self.events.clear();
        self.drain();
        self.inlet.close();
        self.control.end();
    }

    fn stats(&self) -> ReceiverStats {
        self.counters.receiver_stats()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.control.end();
        self.region.leave();
    }
}

#[cold]
fn truncated() -> ProtocolError {
    let what = "the shared memory was truncated while it was in use".to_owned();
    ProtocolError::Violation { what }
}

#[cold]
fn damaged(damage: Damage) -> ProtocolError {
    ProtocolError::Violation { what: damage.to_string() }
}

/// The bits of an element's status that have a meaning; the receiver ignores the other bits.
const STATUS_BITS: u32 = 0xff;
/// Number of elements after which the receiver reads the socket, so that a ring that is never empty
/// does not delay the socket's data.
const TURN: u32 = 256;
/// Number of polls after which the receiver reads the socket once, if the session's driver never
/// sleeps. A read costs a system call, so not every poll reads.
const POLLS_PER_READ: u32 = 64;
