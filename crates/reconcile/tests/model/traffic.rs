// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traffic of the model on a connection: the records, acknowledgements and refusals that a side
//! sends and reads.
//!
//! Connections begin in `handshake.rs`, not in this file.

use partywall_reconcile::{AckUnfit, Arrival, Position, StreamId, is_ack_due};

use crate::bounds::{Bounds, Fault};
use crate::file::Record;
use crate::handshake::nonce;
use crate::world::{CLIENT, Frame, Reason, SERVER, World};

impl World {
    /// The acked offset that `side` reads in its peer's memory; `None` if it cannot read that
    /// memory.
    pub fn seen_ack(&self, side: usize) -> Option<(StreamId, Position)> {
        let life = self.sides[side].life.as_ref()?;
        if !self.links[life.active?].shm {
            return None;
        }
        let acked_offset = self.sides[1 - side].file.recovered()?;
        (acked_offset.stream == self.sides[side].file.out.stream())
            .then_some((acked_offset.stream, acked_offset.position))
    }

    pub fn hear_ack(&mut self, side: usize, stream: StreamId, position: Position, bounds: &Bounds) {
        let out = &mut self.sides[side].file.out;
        let stream = if bounds.forgets(Fault::AckOfAnyStream) { out.stream() } else { stream };
        let answer = out.acknowledge(stream, position);
        if answer == Err(AckUnfit::BeyondTail) {
            self.violated = true;
        }
    }

    /// `side` sends all published records that it has not yet sent on its active connection. Over
    /// shared memory it sends none, because its peer reads them in memory.
    pub fn pump(&mut self, side: usize) {
        let this = &self.sides[side];
        let Some(life) = &this.life else { return };
        let Some(link) = life.active else { return };
        if self.links[link].shm {
            return;
        }
        let stream = this.file.out.stream();
        let (next, fresh) = (life.next, life.fresh_from);
        let records: Vec<Record> =
            this.file.records.iter().filter(|record| record.position >= next).copied().collect();
        for record in records {
            let life = self.sides[side].life.as_mut().unwrap();
            life.next = record.position.plus(1).unwrap();
            if record.position >= fresh {
                life.acked = life.acked.max(record.ack);
            }
            self.push(link, side, Frame::Record { stream, record });
        }
    }

    /// `side` sends its peer the frame ACK, if an acknowledgement is due.
    pub fn acknowledge(&mut self, side: usize, bounds: &Bounds) {
        let Some(life) = &self.sides[side].life else { return };
        let Some(acked_offset) = life.acked_offset else { return };
        let due =
            is_ack_due(bounds.window, life.acked, acked_offset.position, life.buffer.is_empty());
        if due && !bounds.forgets(Fault::AckWithData) {
            self.tell(side, acked_offset.stream, acked_offset.position);
        }
    }

    pub fn tell(&mut self, side: usize, stream: StreamId, consumed: Position) {
        let Some(life) = &mut self.sides[side].life else { return };
        let Some(link) = life.active else { return };
        if !self.links[link].shm {
            life.acked = consumed;
            self.push(link, side, Frame::Ack { stream, consumed });
        }
    }

    /// Step of `side`: it reads the next frame of the connection `link`.
    pub fn deliver(&mut self, link: usize, side: usize, bounds: &Bounds) {
        let frame = self.links[link].queue[side].remove(0);
        match frame {
            Frame::Attach(attach) if side == SERVER => self.asked(link, attach, bounds),
            Frame::Attached { attach, echo, decision } if side == CLIENT => {
                self.answered(link, attach, echo, decision, bounds);
            }
            Frame::Confirm { echo, decision, fresh_from } if side == SERVER => {
                self.confirmed(link, echo, decision, fresh_from, bounds);
            }
            Frame::Refuse { echo, reason } if nonce(link, side).is_echoed_by(echo) => {
                self.refused(link, side, reason);
            }
            frame if self.sides[side].life.as_ref().and_then(|life| life.active) != Some(link) => {
                // Frames that arrive on another connection than the present one change nothing.
                let _ = frame;
            }
            Frame::Begin { stream, consumed, fresh_from } => {
                if let Some(stream) = stream {
                    self.hear_ack(side, stream, consumed, bounds);
                }
                self.begun(fresh_from, bounds);
            }
            Frame::Ack { stream, consumed } => self.hear_ack(side, stream, consumed, bounds),
            Frame::Record { stream, record } => self.arrive(side, stream, record, bounds),
            _ => {}
        }
    }

    fn refused(&mut self, link: usize, side: usize, reason: Reason) {
        match reason {
            Reason::Stale(present) => {
                let life = self.sides[side].life.as_mut().unwrap();
                life.connection_number = life.connection_number.max(present);
            }
            Reason::Fenced(_) => self.sides[side].fenced = true,
            Reason::Quarantined => {}
        }
        self.close(link, side);
    }

    fn arrive(&mut self, side: usize, stream: StreamId, record: Record, bounds: &Bounds) {
        let own = self.sides[side].file.out.stream();
        let life = self.sides[side].life.as_mut().unwrap();
        if life.acked_offset.map(|acked_offset| acked_offset.stream) != Some(stream) {
            self.violated = true;
            return;
        }
        match life.incoming.arrive(record.position, 1) {
            Ok(Arrival::Next) => life.buffer.push(record),
            Ok(Arrival::Known) if bounds.forgets(Fault::KnownTaken) => life.buffer.push(record),
            Ok(Arrival::Known) => {}
            Err(_) => self.violated = true,
        }
        let life = self.sides[side].life.as_mut().unwrap();
        let fresh = record.position >= life.acks_from || bounds.forgets(Fault::AckOfAnyStream);
        if bounds.forgets(Fault::AckReceived) {
            let received = life.incoming.received();
            self.tell(side, stream, received);
        }
        if fresh {
            self.hear_ack(side, own, record.ack, bounds);
        }
    }
}
