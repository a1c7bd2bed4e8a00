// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end: the ring first, then the socket.
//!
//! ```text
//!   ring ── element ─▶ message, stream opened          closed: believed once the socket was read dry
//!     └─ empty ─▶ socket, if there is a reason to look ── frame ─▶ ring again ─▶ act
//!                                                       ├─ dry ──▶ what is closed, unless more of it is under way; nothing
//!                                                       └─ end ──▶ ring again, what is closed, unless some of it is lost; the end
//! ```
//!
//! The socket is looked at after a sleep, to believe an end, and now and then by one who never sleeps. Nothing waits
//! for a ring that is never empty: what has to come before a frame is counted when the frame is read.

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
    /// Messages are copied before anybody looks at them.
    copies: bool,
    counters: Arc<ConnectionCounters>,
    control: Arc<Control>,
    /// Found, and not told yet: few.
    events: VecDeque<ConnectionEvent>,
    /// Came by the socket; waits until the ring is empty.
    frame: Option<Frame>,
    /// Streams whose end came through the ring; their last data may still be in the socket.
    closing: PendingCloses,
    /// So many elements are taken before the socket is looked at, or what came by it is acted on.
    turn: u32,
    /// There is a reason to look at the socket.
    must_read: bool,
    /// The other side was told that it must wake us.
    is_resting: bool,
    /// Too much lies unread.
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
            is_resting: false,
            is_held: false,
            polls: 0,
            end: None,
            _backing: backing,
        }
    }

    /// What is behind the ring: on the socket, or the end.
    fn check_socket(&mut self) -> Result<Option<ConnectionEvent>, ProtocolError> {
        if let Some(frame) = self.frame.take() {
            return Ok(Some(self.act(frame)));
        }
        if self.consumer.is_damaged() || self.region.is_damaged() {
            return Err(truncated());
        }
        if let Some(end) = self.end {
            if self.may_believe() {
                self.believe();
            }
            return Ok(Some(self.events.pop_front().unwrap_or_else(|| self.ended(end))));
        }
        if !self.must_read && !self.may_believe() {
            return Ok(Some(ConnectionEvent::Nothing));
        }
        let inflow = self.inlet.next()?;
        // One read may have brought several frames: there is a reason to look on until it is dry.
        self.must_read = !matches!(inflow, Inflow::Dry);
        match inflow {
            Inflow::Frame(Frame::Polling) => {
                self.counters.add(Count::PollingReceived, 1);
                self.control.polled();
                Ok(Some(ConnectionEvent::Internal))
            }
            // What was put in the ring before it is there by now; what comes later does not delay it.
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
                if self.may_believe() {
                    self.believe();
                }
                Ok(Some(self.events.pop_front().unwrap_or(ConnectionEvent::Nothing)))
            }
        }
    }

    /// Whether there are ends of streams that become true once the socket is dry.
    fn may_believe(&self) -> bool {
        !self.closing.is_empty() && !self.inlet.is_behind()
    }

    /// The ends of streams that came through the ring are true: nothing of them is left on the socket.
    fn believe(&mut self) {
        for name in self.closing.take() {
            if self.streams.lock().closed_there(name) {
                self.events.push_back(ConnectionEvent::Closed(name));
            }
        }
    }

    /// The connection has ended, and everything before it was told. Nobody says whether that was in good order; but
    /// streams were left open where it was not.
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
                // Of other statuses none is ever sent on purpose: a stream that is open has data, no other is opened.
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

    /// What the other side put for us and nobody will take goes back to the lists.
    fn drain(&mut self) {
        // Not what comes meanwhile: it may come for ever.
        for _ in 0..self.consumer.pending().unwrap_or(0) {
            let Ok(Some(element)) = self.consumer.pop() else { break };
            if element.status & STATUS_BITS != CLOSE {
                drop(self.region.receive(element.offset));
            }
        }
        self.consumer.tell();
    }
}

impl ConnectionReceiver for Receiver {
    fn find(&mut self) -> Result<ConnectionEvent, ProtocolError> {
        if let Some(event) = self.events.pop_front() {
            return Ok(event);
        }
        if std::mem::take(&mut self.is_resting) {
            self.consumer.set_working();
            self.region.wake();
            self.must_read = true;
        }
        self.is_held = self.heap.holds();
        if self.is_held {
            self.consumer.tell();
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
            // However busy the ring is, the socket is read now and then.
            self.must_read |= is_their_turn;
            match self.check_socket()? {
                // The ring may have more.
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
        if has_more || self.may_believe() {
            return Ok(true);
        }
        if quiet {
            // It need not be woken, neither by the ring nor by the socket: the next look reads both.
            self.must_read = true;
            return self.consumer.is_empty().map(|is_empty| !is_empty).map_err(damaged);
        }
        let has_more = self.consumer.rest().map_err(damaged)?;
        self.is_resting = !has_more;
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
        // The next look reads it; that there is something is not known yet, and nobody is to look longer for it.
        self.must_read |= self.polls % LOOKS_PER_READ == 0;
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

/// Of a status, only these mean anything.
const STATUS_BITS: u32 = 0xff;
/// After so many elements the socket is looked at, if there is a reason to: a ring that is never empty holds up nothing.
const TURN: u32 = 256;
/// One who never sleeps reads the socket as often as this.
const LOOKS_PER_READ: u32 = 64;
