// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps that can happen next in a state of the model, and the state after each.
//!
//! ```text
//!   steps    the possible steps within the remaining bounds
//!   take     one step, and everything that follows from it at once
//! ```
//!
//! Sending on a connection is not a step of its own: a side sends within the step that makes the
//! frame, and a cut may lose any sent frame.

use partywall_reconcile::{AckedOffset, Incarnation, Prepared, RecordDigest};

use crate::bounds::{Bounds, Fault};
use crate::file::{File, Record};
use crate::world::{CLIENT, Life, Link, SERVER, Shake, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Send(usize),
    Prepare(usize),
    Reply(usize),
    Consume(usize),
    Trim(usize),
    LookAtAck(usize),
    StoreReports(usize),
    Connect,
    Deliver(usize, usize),
    Cut(usize),
    SeeEnd(usize, usize),
    Replay(usize),
    Crash(usize),
    Restart(usize),
    Copy(usize),
    Lose(usize),
    PutBack(usize),
    Raise(usize),
}

impl World {
    pub fn steps(&self, bounds: &Bounds, steps: &mut Vec<Step>) {
        for side in [CLIENT, SERVER] {
            self.steps_of(side, bounds, steps);
        }
        if self.left.connections > 0 && self.may_connect() {
            steps.push(Step::Connect);
        }
        for (index, link) in self.links.iter().enumerate() {
            for side in [CLIENT, SERVER] {
                if !link.open[side] {
                    continue;
                }
                if !link.queue[side].is_empty() {
                    steps.push(Step::Deliver(index, side));
                }
                if link.cut || !link.open[1 - side] {
                    steps.push(Step::SeeEnd(index, side));
                }
            }
            if self.left.cuts > 0 && !link.cut {
                steps.push(Step::Cut(index));
            }
            if self.left.replays > 0 && link.history.len() > 1 && !link.open[CLIENT] {
                steps.push(Step::Replay(index));
            }
        }
    }

    fn steps_of(&self, side: usize, bounds: &Bounds, steps: &mut Vec<Step>) {
        let left = &self.left;
        let this = &self.sides[side];
        let Some(life) = &this.life else {
            steps.push(Step::Restart(side));
            if left.losses[side] > 0 {
                steps.push(Step::Lose(side));
            }
            if this.copy.is_some() {
                steps.push(Step::PutBack(side));
            }
            return;
        };
        let out = &this.file.out;
        let full = out.tail().since(out.base()) >= bounds.window;
        if !life.replying && !this.file.quarantined {
            if left.messages[side] > 0 && !full {
                steps.push(Step::Send(side));
            }
            if self.next_record(side).is_some() {
                steps.push(Step::Consume(side));
                if left.replies[side] > 0 && !full {
                    steps.push(Step::Prepare(side));
                }
            }
        }
        if life.replying {
            steps.push(Step::Reply(side));
        }
        if bounds.lazy_trim && out.acked() > out.base() {
            steps.push(Step::Trim(side));
        }
        if self.seen_ack(side).is_some_and(|(_, position)| position > out.acked()) {
            steps.push(Step::LookAtAck(side));
        }
        if !life.unstored.is_empty() {
            steps.push(Step::StoreReports(side));
        }
        if left.crashes[side] > 0 {
            steps.push(Step::Crash(side));
        }
        if left.rollbacks[side] > 0 && this.copy.is_none() {
            steps.push(Step::Copy(side));
        }
        if left.epochs[side] > 0 {
            steps.push(Step::Raise(side));
        }
    }

    pub fn may_connect(&self) -> bool {
        let this = &self.sides[CLIENT];
        let Some(life) = &this.life else { return false };
        let free = life.active.is_none() || self.left.switches > 0;
        let listening = self.sides[SERVER].life.is_some();
        listening && free && life.attaching.is_none() && !this.fenced && !this.file.quarantined
    }

    /// Changes this state of the model by one step, and by everything that follows from the step at
    /// once.
    pub fn take(&mut self, step: Step, bounds: &Bounds) {
        match step {
            Step::Send(side) => {
                self.left.messages[side] -= 1;
                self.send(side, None, bounds);
            }
            Step::Prepare(side) => self.prepare(side, bounds),
            Step::Reply(side) => self.reply(side, bounds),
            Step::Consume(side) => self.consume(side, bounds),
            Step::Trim(side) => self.trim(side, bounds),
            Step::LookAtAck(side) => {
                if let Some((stream, position)) = self.seen_ack(side) {
                    self.hear_ack(side, stream, position, bounds);
                }
            }
            Step::StoreReports(side) => {
                let this = &mut self.sides[side];
                let life = this.life.as_mut().unwrap();
                this.file.reports.append(&mut life.unstored);
            }
            Step::Connect => {
                self.left.connections -= 1;
                let active = self.sides[CLIENT].life.as_ref().unwrap().active;
                self.left.switches -= u8::from(active.is_some());
                self.connect(bounds);
            }
            Step::Deliver(link, side) => self.deliver(link, side, bounds),
            Step::Cut(link) => {
                self.left.cuts -= 1;
                self.links[link].cut = true;
            }
            Step::SeeEnd(link, side) => self.close(link, side),
            Step::Replay(link) => self.replay(link),
            Step::Raise(side) => {
                self.left.epochs[side] -= 1;
                self.raise(side, bounds);
            }
            _ => self.disaster(step, bounds),
        }
        for side in [CLIENT, SERVER] {
            self.pump(side);
            if !bounds.lazy_trim {
                self.trim(side, bounds);
            }
        }
    }

    fn disaster(&mut self, step: Step, bounds: &Bounds) {
        match step {
            Step::Crash(side) => {
                self.left.crashes[side] -= 1;
                self.crash(side);
            }
            Step::Restart(side) => self.restart(side, bounds),
            Step::Copy(side) => {
                self.left.rollbacks[side] -= 1;
                let this = &mut self.sides[side];
                this.copy = Some(Box::new(this.file.clone()));
            }
            Step::Lose(side) => {
                self.left.losses[side] -= 1;
                self.stores += 1;
                let (store_id, stream) = (self.stores, self.stream());
                let epoch = self.sides[side].file.epoch.0;
                let mut file = File::new(store_id, epoch, stream);
                file.incarnation = Incarnation(0);
                self.sides[side].file = file;
                self.sides[side].damaged = true;
                self.unmap();
            }
            Step::PutBack(side) => {
                let this = &mut self.sides[side];
                this.file = *this.copy.take().unwrap();
                this.damaged = true;
                self.unmap();
            }
            _ => {}
        }
    }

    /// Closes the shared-memory connections to a side whose file was replaced while it was down.
    /// The peer can no longer read the old file's memory.
    fn unmap(&mut self) {
        for link in 0..self.links.len() {
            if self.links[link].shm {
                self.close(link, CLIENT);
                self.close(link, SERVER);
            }
        }
    }

    pub fn crash(&mut self, side: usize) {
        self.sides[side].life = None;
        self.sides[side].fenced = false;
        for link in 0..self.links.len() {
            self.close(link, side);
        }
    }

    pub fn restart(&mut self, side: usize, bounds: &Bounds) {
        let this = &mut self.sides[side];
        this.file.incarnation = Incarnation(this.file.incarnation.0 + 1);
        let lost = bounds.forgets(Fault::ReplyNotCounted);
        let acked_offset = if lost { this.file.stored } else { this.file.recovered() };
        this.file.stored = acked_offset;
        this.file.prepared = None;
        this.life = Some(Life::of(&this.file, acked_offset));
    }

    fn replay(&mut self, link: usize) {
        self.left.replays -= 1;
        let old = &self.links[link];
        let again = Link {
            replayed: true,
            cut: false,
            open: [false, self.sides[SERVER].life.is_some()],
            queue: [Vec::new(), old.history.clone()],
            shake: [Shake::None, Shake::None],
            history: Vec::new(),
            ..old.clone()
        };
        self.links.push(again);
    }

    fn send(&mut self, side: usize, answers: Option<u32>, bounds: &Bounds) {
        let number = self.number();
        let this = &mut self.sides[side];
        let acked_offset = this.life.as_ref().and_then(|life| life.acked_offset);
        this.file.publish(number, bounds.window, acked_offset, answers);
    }

    /// The record that `side` can consume next: one that it received, or that it reads in shared
    /// memory.
    pub fn next_record(&self, side: usize) -> Option<Record> {
        let life = self.sides[side].life.as_ref()?;
        if let Some(record) = life.buffer.first() {
            return Some(*record);
        }
        let link = &self.links[life.active?];
        let theirs = &self.sides[1 - side].file;
        let seen = link.shm && life.acked_offset?.stream == theirs.out.stream();
        seen.then(|| theirs.record_at(life.consumed())).flatten()
    }

    /// Takes the record that `side` can consume next. Returns the record, and the acked offset that
    /// acknowledges it.
    fn next_acked(&mut self, side: usize) -> Option<(Record, AckedOffset)> {
        let record = self.next_record(side)?;
        let life = self.sides[side].life.as_mut()?;
        let stream = life.acked_offset?.stream;
        if life.buffer.is_empty() {
            life.incoming.arrive(record.position, 1).ok()?;
            life.buffer.push(record);
        }
        let position = record.position.plus(1)?;
        Some((record, AckedOffset { stream, position, digest: RecordDigest(record.number) }))
    }

    pub fn consume(&mut self, side: usize, bounds: &Bounds) {
        let Some((record, acked_offset)) = self.next_acked(side) else { return };
        self.sides[side].file.stored = Some(acked_offset);
        self.consumed(side, record, acked_offset, bounds);
    }

    fn consumed(
        &mut self,
        side: usize,
        record: Record,
        acked_offset: AckedOffset,
        bounds: &Bounds,
    ) {
        let this = &mut self.sides[side];
        this.file.note(acked_offset, record);
        let life = this.life.as_mut().unwrap();
        life.buffer.remove(0);
        life.acked_offset = Some(acked_offset);
        if life.incoming.consume(acked_offset.position).is_err() {
            life.incoming = partywall_reconcile::Incoming::at(acked_offset.position);
        }
        self.acknowledge(side, bounds);
    }

    fn prepare(&mut self, side: usize, bounds: &Bounds) {
        self.left.replies[side] -= 1;
        let Some((_, acked_offset)) = self.next_acked(side) else { return };
        let this = &mut self.sides[side];
        let life = this.life.as_mut().unwrap();
        life.replying = true;
        this.file.stored = life.acked_offset;
        this.file.prepared = Some(Prepared { acked_offset, reply_at: this.file.out.tail() });
        if bounds.forgets(Fault::AckBeforeCommit) {
            self.tell(side, acked_offset.stream, acked_offset.position);
        }
    }

    pub fn reply(&mut self, side: usize, bounds: &Bounds) {
        let Some((record, acked_offset)) = self.next_acked(side) else { return };
        let number = self.number();
        let this = &mut self.sides[side];
        this.life.as_mut().unwrap().replying = false;
        let published =
            this.file.publish(number, bounds.window, Some(acked_offset), Some(record.number));
        if published.is_some() {
            self.consumed(side, record, acked_offset, bounds);
        }
    }

    fn trim(&mut self, side: usize, bounds: &Bounds) {
        let this = &mut self.sides[side];
        let mut to = this.file.out.acked();
        if bounds.forgets(Fault::TrimSent) {
            if let Some(life) = this.life.as_ref().filter(|life| life.active.is_some()) {
                to = to.max(life.next);
                let _ = this.file.out.acknowledge(this.file.out.stream(), to);
            }
        }
        this.file.trim(to, !bounds.forgets(Fault::TrimBeforeStored));
    }
}
