// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of another protocol's connection: sends messages under the protocol's stream
//! ids, and closes streams.

use super::streams::Streams;
use super::{Names, ProtocolSpace};
use crate::error::{Fault, SendError};
use crate::protocol::{ConnectionSender, DriverWaker};
use crate::stats::SenderStats;
use crate::transport::{Memory, NotSent, Progress, SpaceWaiter, TransportSender};
use partywall_layout::Kind;
use partywall_layout::stream::{RECEIVING, ResetBody, SENDING};
use std::sync::Arc;
use zerocopy::FromBytes;

/// The sending end of a connection of another protocol, to which a session writes messages and
/// control records.
#[derive(Debug)]
pub(crate) struct ProtocolSender {
    connection: Box<dyn ConnectionSender>,
    streams: Arc<Streams>,
    driver_waker: DriverWaker,
    space: Arc<ProtocolSpace>,
    names: Arc<Names>,
    /// The protocol's id for the stream of the next message; `None` if the peer has closed the
    /// stream.
    name: Option<u32>,
    /// Whether the session has ended. No further message is sent, and `flush` succeeds once the
    /// peer has taken all bytes sent before.
    is_leaving: bool,
    /// Whether the session has stopped waiting for the peer to take the unsent bytes. Every later
    /// call fails.
    is_given_up: bool,
}

impl ProtocolSender {
    pub(super) fn new(
        connection: Box<dyn ConnectionSender>,
        streams: Arc<Streams>,
        driver_waker: DriverWaker,
        space: Arc<ProtocolSpace>,
        names: Arc<Names>,
    ) -> Self {
        Self {
            connection,
            streams,
            driver_waker,
            space,
            names,
            name: None,
            is_leaving: false,
            is_given_up: false,
        }
    }

    const fn check(&self) -> Result<(), NotSent> {
        if self.is_given_up {
            return Err(NotSent::Disconnected);
        }
        Ok(())
    }

    /// Notes which directions of stream `number` have ended at this side: `sending`, `receiving` or
    /// both. Closes the stream in the protocol once both directions have ended.
    fn over(&mut self, number: u32, sending: bool, receiving: bool) -> Result<(), NotSent> {
        let closing = self.streams.lock().note_over(number, sending, receiving);
        let Some(name) = closing else { return Ok(()) };
        self.connection.close(name).map_err(|unsent| self.names.unsent(unsent, 0))?;
        self.streams.lock().closed_here(number);
        self.streams.note_made();
        // The session's driver is woken, because it delivers the END of the stream to the session.
        self.driver_waker.wake();
        Ok(())
    }
}

impl TransportSender for ProtocolSender {
    fn set_stream(&mut self, number: u32, _credit: Option<u64>) -> Result<(), NotSent> {
        self.name = self.streams.lock().name(number);
        Ok(())
    }

    fn try_send(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        let Some(name) = self.name.filter(|_| !payload.is_empty()) else { return Ok(()) };
        let sent = self.connection.send(name, payload);
        sent.map_err(|unsent| self.names.unsent(unsent, payload.len()))
    }

    fn send_on(&mut self, payload: &[u8], _: &mut Progress) -> Result<(), NotSent> {
        self.try_send(payload)
    }

    fn give_up(&mut self, _: &[u8], _: &Progress) -> Result<(), SendError> {
        Err(SendError::TimedOut)
    }

    fn control(&mut self, kind: Kind, number: u32, body: &[u8]) -> Result<(), NotSent> {
        self.check()?;
        match kind {
            Kind::Open => {
                let opened = self.connection.open();
                let name = opened.map_err(|unsent| self.names.unsent(unsent, 0))?;
                self.streams.lock().begin(number, name);
                Ok(())
            }
            Kind::CloseWrite => self.over(number, true, false),
            Kind::Reset => {
                let directions =
                    ResetBody::read_from_bytes(body).map_or(0, |body| body.directions.get());
                self.over(number, directions & SENDING != 0, directions & RECEIVING != 0)
            }
            Kind::End => {
                self.streams.lock().ended(number);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn publish(&mut self) -> Result<(), NotSent> {
        Ok(())
    }

    fn reserve(&mut self, len: usize) -> Result<Memory, NotSent> {
        self.check()?;
        let buffer = if len == 0 { Ok(None) } else { self.connection.reserve(len) };
        match buffer {
            Ok(Some(buffer)) => Ok(Memory::SendBuffer(buffer)),
            Ok(None) => Ok(Memory::Private(vec![0; len])),
            Err(unsent) => Err(self.names.unsent(unsent, len)),
        }
    }

    fn commit(
        &mut self,
        memory: &mut Option<Memory>,
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        match memory.take() {
            None => Ok(()),
            Some(Memory::SendBuffer(buffer)) if !buffer.as_slice().is_empty() => {
                self.check()?;
                let Some(name) = self.name else { return Ok(()) };
                let (len, mut buffer) = (buffer.as_slice().len(), Some(buffer));
                let sent = self.connection.commit(name, &mut buffer);
                *memory = buffer.map(Memory::SendBuffer);
                sent.map_err(|unsent| self.names.unsent(unsent, len))
            }
            Some(taken) => {
                let sent = self.send_on(taken.as_slice(), progress);
                if sent.is_err() {
                    *memory = Some(taken);
                }
                sent
            }
        }
    }

    fn release(&mut self, memory: Memory) {
        drop(memory);
    }

    fn add_to_batch(&mut self, _: &[u8]) -> Result<(), NotSent> {
        Err(NotSent::Full)
    }

    fn commit_batch(&mut self) -> Result<(), NotSent> {
        Err(NotSent::Full)
    }

    fn abort_batch(&mut self) {}

    fn trim(&mut self, _all: bool) -> Result<(), NotSent> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NotSent> {
        self.check()?;
        self.connection.flush().map_err(|unsent| self.names.unsent(unsent, 0))?;
        if self.is_leaving {
            // Only the flush of an ended session calls `finish`. The session sends the pending
            // records of its streams before that flush.
            self.connection.finish();
            if !self.connection.is_taken() {
                return Err(NotSent::Full);
            }
        }
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.connection.keeps() || self.is_leaving && !self.connection.is_taken()
    }

    fn leave(&mut self) {
        self.is_leaving = true;
    }

    fn arm(&mut self, _quiet: bool) -> Result<(), Fault> {
        self.connection.arm().map_err(|source| Fault::system("waiting for room", source))
    }

    fn disarm(&mut self) {
        self.connection.disarm();
    }

    fn note_hang_up(&mut self) {
        self.is_given_up = true;
    }

    fn close(&mut self) {
        self.connection.hang_up();
    }

    fn stats(&self) -> SenderStats {
        self.connection.stats()
    }

    fn space(&self) -> Arc<dyn SpaceWaiter> {
        Arc::clone(&self.space) as _
    }
}
