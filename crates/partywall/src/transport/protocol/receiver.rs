// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end of another protocol's connection: turns events into records of streams.

use super::streams::{Made, Streams};
use super::{INTEREST, Names, RECEIVED};
use crate::error::Fault;
use crate::message::Message;
use crate::protocol::{ConnectionEvent, ConnectionReceiver, DriverWaker, ProtocolError};
use crate::stats::ReceiverStats;
use crate::transport::{Found, TransportReceiver, Waited};
use partywall_layout::stream::ResetBody;
use partywall_layout::{Kind, Position, RecordHeader, Violation};
use partywall_sys::EpollSet;
use partywall_wait::{Spinner, Wait};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

/// The receiving end of a connection of another protocol, which the session's driver polls.
#[derive(Debug)]
pub(crate) struct ProtocolReceiver {
    connection: Box<dyn ConnectionReceiver>,
    streams: Arc<Streams>,
    driver_waker: DriverWaker,
    /// The epoll set that watches the connection's descriptor, and the doorbell that wakes the
    /// session's driver.
    set: EpollSet,
    /// Whether `set` watches the connection's descriptor as well as the doorbell.
    is_listening: bool,
    names: Arc<Names>,
    /// Whether `find` stopped at its limit of events without a record, so more events may be
    /// waiting.
    has_more: bool,
    /// The current message; the field `number` is the number of its stream.
    message: Option<Message>,
    number: u32,
    /// The body of the RESET record that `find` returned last. The session copies it by the method
    /// `body`.
    body: ResetBody,
}

impl ProtocolReceiver {
    pub(super) const fn new(
        connection: Box<dyn ConnectionReceiver>,
        streams: Arc<Streams>,
        driver_waker: DriverWaker,
        set: EpollSet,
        names: Arc<Names>,
    ) -> Self {
        let body = ResetBody { code: U32::new(0), directions: U32::new(0) };
        let is_listening = true;
        let (has_more, message, number) = (false, None, 0);
        Self {
            connection,
            streams,
            driver_waker,
            set,
            is_listening,
            names,
            has_more,
            message,
            number,
            body,
        }
    }

    fn record(&mut self, made: Made) -> Found {
        self.body.directions = U32::new(made.directions);
        #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
        let len = if made.kind == Kind::Reset { size_of::<ResetBody>() as u32 } else { 0 };
        let position = Position(0);
        Found::Control(RecordHeader { position, kind: made.kind, len, stream: made.number })
    }
}

impl TransportReceiver for ProtocolReceiver {
    fn find(&mut self, _may_wait: bool) -> Result<Found, Fault> {
        self.has_more = false;
        for _ in 0..FRUITLESS_MAX {
            if let Some(made) = self.streams.take_made() {
                return Ok(self.record(made));
            }
            match self.connection.find().map_err(|error| self.names.fault(error))? {
                ConnectionEvent::Opened(name) => {
                    let number = self.streams.lock().meet(name);
                    return Ok(self.record(Made { kind: Kind::Open, number, directions: 0 }));
                }
                ConnectionEvent::Message(name, message) => {
                    let number = self.streams.lock().number(name);
                    // A stream without a number was closed by this side while the message was on
                    // its way, so this receiver drops the message.
                    if let Some(number) = number {
                        (self.number, self.message) = (number, Some(message));
                        return Ok(Found::Message);
                    }
                }
                ConnectionEvent::Closed(name) => {
                    self.streams.lock().closed_there(name);
                    self.streams.note_made();
                }
                ConnectionEvent::Internal => {}
                ConnectionEvent::Nothing => return Ok(Found::Nothing),
                ConnectionEvent::End(closed) => return Ok(Found::End(closed)),
            }
        }
        self.has_more = true;
        Ok(Found::Nothing)
    }

    fn stream(&self) -> u32 {
        self.number
    }

    fn body(&self, _: &RecordHeader, from: usize, into: &mut [u8]) {
        let bytes = self.body.as_bytes();
        into.copy_from_slice(&bytes[from..from + into.len()]);
    }

    fn pass(&mut self, _: &RecordHeader) {}

    #[cold]
    fn violated(&self, violation: Violation) -> Fault {
        self.names.fault(ProtocolError::Violation { what: violation.to_string() })
    }

    fn message_max(&self) -> u64 {
        u64::MAX
    }

    fn current(&self) -> &[u8] {
        self.message.as_deref().unwrap_or_default()
    }

    fn current_len(&self) -> usize {
        self.message.as_ref().map_or(0, Message::len)
    }

    fn take(&mut self) -> Message {
        self.message.take().unwrap_or_else(|| Message::from_vec(Vec::new()))
    }

    fn done(&mut self) {
        self.message = None;
    }

    /// Does nothing: only channels use views, and the receiver of another protocol serves only
    /// sessions.
    fn begin_view(&mut self) {}

    fn end_view(&mut self) -> bool {
        false
    }

    fn wait(&mut self, _: Wait, _: &mut Spinner, _: Option<Instant>) -> Result<Waited, Fault> {
        Ok(Waited::TimedOut)
    }

    fn arm(&mut self, quiet: bool) -> Result<bool, Fault> {
        // Wake-ups for which no thread waited are consumed first. Otherwise an external event loop
        // that polls the epoll set would be woken by the same wake-up again and again.
        let now = Some(Instant::now());
        self.set.wait_tokens(now).map_err(|source| Fault::system("waiting", source))?;
        self.driver_waker.arm();
        let has_made = !self.streams.lock().made.is_empty();
        if has_made {
            self.streams.note_made();
        }
        if self.has_more || has_made {
            return Ok(true);
        }
        if self.connection.arm(quiet).map_err(|error| self.names.fault(error))? {
            return Ok(true);
        }
        if self.connection.listens() != self.is_listening {
            self.is_listening = !self.is_listening;
            // The descriptor is removed from the epoll set. If it stayed in the set without any
            // awaited event, epoll would still report a hang-up again and again.
            let (set, descriptor) = (&self.set, self.connection.descriptor());
            let changed = match self.is_listening {
                true => set.add(descriptor, INTEREST, RECEIVED),
                false => set.remove(descriptor),
            };
            changed.map_err(|source| Fault::system("waiting", source))?;
        }
        Ok(false)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    fn close(&mut self) {
        self.connection.close();
    }

    fn notice_end(&mut self) -> Result<bool, Fault> {
        let has_more = self.connection.notice_end().map_err(|error| self.names.fault(error))?;
        Ok(has_more || self.has_more)
    }

    fn stats(&self) -> ReceiverStats {
        self.connection.stats()
    }
}

/// Most events without a record, such as wake-ups, that one `find` handles. A peer that sends such
/// events without end must not keep the session's driver from other work.
const FRUITLESS_MAX: usize = 256;
