// SPDX-License-Identifier: MIT OR Apache-2.0
//! ATTACH, ATTACHED, CONFIRM, BEGIN: what each side does about each (SPEC 12.2).
//!
//! ```text
//!  client                                server
//!  attach ────────── ATTACH ──────────▶  asked       stores nothing
//!  answered ◀─────── ATTACHED ─────────              has reconciled server→client
//!   one commit, then
//!         ─── SHARE?, CONFIRM ────────▶  confirmed   one commit; now it replaces its connection
//!  begun   ◀──────── BEGIN ────────────
//! ```
//!
//! The order within each function is that of `handshake.rs` in the model of `partywall_reconcile`, where each line that is
//! left out makes it fail.

use partywall_layout::seeded_fault;
use std::os::fd::OwnedFd;

use partywall_reconcile::attach::{Admission, Meeting, Nonce, admit};
use partywall_reconcile::{
    Applied, Connection, ConnectionNumber, Decision, Direction, Identity, Past, Peer, Position,
    ReceivedPast, ReceiverView, SentPast, StreamId, Unfit, epoch, reconcile,
};

use super::LinkState;
use super::conn::{Answered, Conn, End, Stage};
use crate::event::Event;
use crate::protocol::frame::{Attach, Frame, Names, Refusal, Window};
use crate::shown::Shown;
use partywall_sys::nonce;

/// What a server does about an ATTACH.
#[derive(Debug)]
pub(crate) enum Answer {
    /// ATTACHED is in the connection, to be sent.
    Attached(Conn),
    /// REFUSE is in the connection, to be sent before it is closed.
    Refused(Conn, End),
}

/// What became of a connection by a frame.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Nothing to be done.
    Nothing,
    /// It is now the present one: any other is to be closed. Holds what the neighbour's application said at login.
    Active,
}

impl LinkState {
    /// A client's new connection; ATTACH is in it. `None` if this end attaches no more: it is fenced or in quarantine.
    pub(crate) fn attach(&mut self, names: Names, login: Vec<u8>) -> Option<Conn> {
        self.attach_with(names, login, None)
    }

    /// As [`attach`](Self::attach), to a server of the same user on this machine: it is shown this end's memory, if that can be.
    pub(crate) fn attach_showing(&mut self, names: Names, login: Vec<u8>) -> Option<Conn> {
        let descriptor = self.memory.descriptor();
        self.attach_with(names, login, descriptor)
    }

    fn attach_with(
        &mut self,
        names: Names,
        login: Vec<u8>,
        descriptor: Option<OwnedFd>,
    ) -> Option<Conn> {
        if self.life.is_fenced || self.durable.quarantine.is_some() {
            return None;
        }
        if !seeded_fault("link_generation_kept") {
            self.life.connection_number =
                self.life.connection_number.next_above(self.life.connection_number)?;
        }
        let own = Nonce(chance());
        let shows = descriptor.is_some();
        let attach = Attach { shows, ..self.views(own, self.life.connection_number) };
        let stage = Stage::Asked(attach.receiving);
        let mut conn = Conn::new(self.life.next_id(), self.life.connection_number, own, stage);
        (conn.shows, conn.descriptor) = (shows, descriptor);
        conn.say(&Frame::Attach { attach, names, login });
        Some(conn)
    }

    /// A server reads ATTACH, which it may: `login` is what its application answers. `shown`: by a client of the same user on this
    /// machine.
    pub(crate) fn asked_showing(
        &mut self,
        attach: Attach,
        login: Vec<u8>,
        shown: Option<Shown>,
    ) -> Answer {
        let own = Nonce(chance());
        let connection_number = attach.identity.connection_number;
        let mut conn = Conn::new(self.life.next_id(), connection_number, own, Stage::Over);
        if let Err(refusal) = self.admits(&attach.identity) {
            conn.say(&Frame::Refuse { echo: attach.nonce, refusal: refusal.clone() });
            return Answer::Refused(conn, End::Refused { by_us: true, refusal });
        }
        let decision = self.decide(&attach.receiving);
        let shown = shown.filter(|_| attach.shows);
        // Shown only to who was found to show its own.
        let peer_memory = shown.and_then(|shown| shown.of(&attach));
        conn.descriptor = peer_memory.as_ref().and_then(|_| self.memory.descriptor());
        conn.peer_memory = peer_memory.filter(|_| conn.descriptor.is_some());
        conn.shows = conn.peer_memory.is_some();
        let answer = Attach { shows: conn.shows, ..self.views(own, connection_number) };
        let (echo, given) = (attach.nonce, answer.receiving);
        conn.window = Some(attach.window);
        conn.say(&Frame::Attached { attach: answer, echo, decision, login });
        conn.stage = Stage::Answered(Box::new(Answered { attach, given, decision }));
        Answer::Attached(conn)
    }

    /// The client reads ATTACHED.
    pub(super) fn answered(
        &mut self,
        conn: &mut Conn,
        answer: &Attach,
        echo: Nonce,
        decision: Decision,
    ) -> Result<Heard, End> {
        let Stage::Asked(given) = conn.stage else { return Err(End::NotFresh) };
        if !conn.nonce.is_echoed_by(echo) && !seeded_fault("link_echo_unchecked") {
            return Err(End::NotFresh);
        }
        if let Meeting::Older(highest) = Peer::meet(self.durable.peer.as_ref(), &answer.identity) {
            let refusal = Refusal::Fenced(highest);
            conn.say(&Frame::Refuse { echo: answer.nonce, refusal: refusal.clone() });
            return Err(End::Refused { by_us: true, refusal });
        }
        conn.window = Some(answer.window);
        // Even if the epochs differ: later its own streams may be forgotten.
        self.learn(answer.receiving.skip());
        if answer.identity.epoch > self.durable.epoch {
            self.durable.peer = Some(Peer::of(&answer.identity));
            self.adopt(answer.identity.epoch, answer.past);
            return Err(End::EpochAdopted);
        }
        let mine = self.decide(&answer.receiving);
        let tail = self.retained.tail();
        let confirm = Frame::Confirm { echo: answer.nonce, decision: mine, tail };
        if answer.identity.epoch < self.durable.epoch {
            conn.say(&confirm);
            return Err(End::EpochAdopted);
        }
        if given.epoch() != self.durable.epoch {
            // Its answer is to a view of an epoch that is over.
            return Err(End::Moved);
        }
        // What it says about its records must follow from the views, even if it says that it cannot go on.
        if decision.check(&answer.sending, &given).is_err() {
            return Err(End::Violation(super::Violation::Decision));
        }
        if self.quarantines(decision, mine) {
            conn.say(&confirm);
            return Err(End::Quarantined);
        }
        let applied = self.fits(answer, decision, &given)?;
        let has_skip = applied.skip.is_some();
        let shown = conn.shown.take().filter(|_| conn.shows && answer.shows);
        conn.peer_memory = shown.and_then(|shown| shown.of(answer));
        conn.is_shared = conn.peer_memory.is_some();
        if conn.is_shared {
            conn.say(&Frame::Share);
        }
        self.settle_in(conn, answer, applied);
        self.life.decided = mine.skip(&self.sender_view());
        self.flow(conn, answer, &mine);
        conn.say(&confirm);
        // The view told less than what was consumed since: more may be due at once.
        let told = given.consumed().map_or(Position::START, |acked_offset| acked_offset.position);
        self.life.told = if has_skip { self.inbox.consumed() } else { told };
        conn.is_ack_due = self.inbox.consumed() > self.life.told;
        Ok(Heard::Active)
    }

    /// The server reads SHARE, which comes before CONFIRM.
    pub(super) fn shared(&self, conn: &mut Conn) -> Result<Heard, End> {
        let is_in_place = matches!(conn.stage, Stage::Answered(_)) && conn.peer_memory.is_some();
        if !is_in_place || conn.is_shared {
            return Err(End::Violation(super::Violation::OutOfPlace("SHARE")));
        }
        conn.is_shared = true;
        Ok(Heard::Nothing)
    }

    /// The server reads CONFIRM.
    pub(super) fn confirmed(
        &mut self,
        conn: &mut Conn,
        echo: Nonce,
        theirs: Decision,
        tail: Position,
    ) -> Result<Heard, End> {
        let Stage::Answered(kept) = std::mem::replace(&mut conn.stage, Stage::Over) else {
            return Err(End::NotFresh);
        };
        let Answered { attach, given, decision: mine } = *kept;
        if !conn.nonce.is_echoed_by(echo) {
            return Err(End::NotFresh);
        }
        if let Err(refusal) = self.admits(&attach.identity) {
            return Err(End::Refused { by_us: true, refusal });
        }
        if attach.identity.epoch > self.durable.epoch {
            self.learn(attach.receiving.skip());
            self.durable.peer = Some(Peer::of(&attach.identity));
            self.adopt(attach.identity.epoch, attach.past);
            return Err(End::EpochAdopted);
        }
        if given.epoch() != self.durable.epoch || attach.identity.epoch < self.durable.epoch {
            return Err(End::EpochAdopted);
        }
        // An honest client may have trimmed, or begun an epoch, since it gave its view.
        if theirs.check(&attach.sending, &given).is_err() {
            return Err(End::Moved);
        }
        if self.quarantines(theirs, mine) {
            return Err(End::Quarantined);
        }
        let continuous = self.is_continuous(&attach.identity);
        if !mine.stands(self.retained.base(), continuous) {
            return Err(End::Moved);
        }
        let applied = self.fits(&attach, theirs, &given)?;
        let own_skip = mine.skip(&self.sender_view());
        let peer = Peer::of(&attach.identity);
        self.life.present = Some(Connection { peer, connection_number: conn.connection_number });
        self.life.connection_number = conn.connection_number;
        self.settle_in(conn, &attach, applied);
        self.learn(own_skip);
        self.flow(conn, &attach, &mine);
        self.life.acks_from = Some(tail);
        self.life.told = self.inbox.consumed();
        conn.say(&Frame::Begin {
            stream: self.durable.acked_offset.map(|acked_offset| acked_offset.stream),
            consumed: self.inbox.consumed(),
            tail: self.life.fresh_from,
        });
        Ok(Heard::Active)
    }

    /// The client reads BEGIN: the server has taken its decision.
    pub(super) fn begun(
        &mut self,
        stream: Option<StreamId>,
        consumed: Position,
        tail: Position,
    ) -> Result<Heard, End> {
        if let Some(stream) = stream {
            self.hear_ack(stream, consumed)?;
        }
        self.life.acks_from = Some(tail);
        let decided = self.life.decided.take();
        self.learn(decided);
        Ok(Heard::Nothing)
    }

    /// Either side reads REFUSE.
    pub(super) fn refused(&mut self, conn: &Conn, echo: Nonce, refusal: Refusal) -> End {
        if !conn.nonce.is_echoed_by(echo) {
            return End::NotFresh;
        }
        match &refusal {
            // No client of this memory was ever so far: a lie, after which there would be no higher one.
            Refusal::Stale(heard)
                if heard.0.saturating_sub(self.life.connection_number.0) > STEP_MAX =>
            {
                return End::NotFresh;
            }
            Refusal::Stale(heard) => {
                self.life.connection_number = self.life.connection_number.max(*heard)
            }
            Refusal::Fenced(_) => {
                self.life.is_fenced = true;
                self.life.tell(Event::Fenced);
            }
            _ => {}
        }
        End::Refused { by_us: false, refusal }
    }

    /// What this side tells of itself.
    fn views(&self, nonce: Nonce, connection_number: ConnectionNumber) -> Attach {
        let provenance = self.memory.provenance();
        let identity = Identity {
            store_id: provenance.store_id,
            incarnation: provenance.incarnation,
            connection_number,
            epoch: self.durable.epoch,
        };
        Attach {
            nonce,
            identity,
            sending: self.sender_view(),
            receiving: self.receiver_view(),
            past: self.durable.past,
            window: Window {
                ring_bytes: self.retained.ring_bytes(),
                slab_bytes: self.retained.slab_bytes(),
            },
            shows: false,
        }
    }

    fn admits(&self, claim: &Identity) -> Result<(), Refusal> {
        if self.durable.quarantine.is_some() {
            return Err(Refusal::Quarantined);
        }
        match admit(self.durable.peer.as_ref(), self.life.present, claim) {
            Admission::Accept => Ok(()),
            Admission::Stale(connection_number) => Err(Refusal::Stale(connection_number)),
            Admission::Fenced(highest) => Err(Refusal::Fenced(highest)),
        }
    }

    fn decide(&self, receiver: &ReceiverView) -> Decision {
        reconcile(&self.sender_view(), receiver, |at| self.retained.digest_at(at))
    }

    /// Whether either direction cannot go on; then both ends keep all bytes until a person decides.
    fn quarantines(&mut self, theirs: Decision, mine: Decision) -> bool {
        for (direction, decision) in [(Direction::Incoming, theirs), (Direction::Outgoing, mine)] {
            if let Decision::Impossible(why) = decision {
                self.quarantine(direction, why);
            }
        }
        self.durable.quarantine.is_some()
    }

    /// Whether the neighbour is the very owner that the last connection was with.
    fn is_continuous(&self, claim: &Identity) -> bool {
        self.life.peer == Some(Peer::of(claim))
    }

    /// What applying a decision makes of the receiver, if it may be applied now.
    fn fits(
        &self,
        answer: &Attach,
        decision: Decision,
        given: &ReceiverView,
    ) -> Result<Applied, End> {
        let now = self.receiver_view();
        let continuous = self.is_continuous(&answer.identity);
        decision.apply(&answer.sending, given, &now, continuous).map_err(|unfit| match unfit {
            Unfit::Contradiction => End::Violation(super::Violation::Decision),
            _ => End::Moved,
        })
    }

    /// One commit: what was applied, the neighbour, its skip, the epoch before, and their reports.
    fn settle_in(&mut self, conn: &Conn, answer: &Attach, applied: Applied) {
        let continuous = self.is_continuous(&answer.identity);
        let peer = Peer::of(&answer.identity);
        self.durable.peer = Some(peer);
        let had = self.durable.acked_offset;
        self.durable.acked_offset = Some(applied.consumed);
        if let Some(skip) = applied.skip {
            self.durable.skip = Some(skip);
            self.report(skip.reports(Direction::Incoming));
        }
        let settlement = epoch::settle(self.durable.past, answer.past);
        self.durable.past = settlement.past;
        self.report(settlement.reports);
        self.note_skip(answer.receiving.skip());
        let is_new_stream =
            had.map(|acked_offset| acked_offset.stream) != Some(applied.consumed.stream);
        if is_new_stream {
            self.durable.forget_delivered();
        }
        if !seeded_fault("link_attach_not_committed") {
            self.commit();
        }
        let goes_on =
            continuous && !is_new_stream && self.inbox.consumed() == applied.consumed.position;
        if !goes_on && !seeded_fault("link_inbox_outlives_jump") {
            self.inbox.begin(applied.consumed);
        }
        self.life.fresh_from = self.retained.tail();
        self.life.peer = Some(peer);
        self.life.active = Some(conn.id());
        self.shm = None;
        self.life.tell(Event::Attached { resumed: !is_new_stream });
    }

    /// The sender goes on where it decided, unless it has heard more since.
    fn flow(&mut self, conn: &mut Conn, answer: &Attach, mine: &Decision) {
        if let (Decision::Resume(_), Some(acked_offset)) = (mine, answer.receiving.consumed()) {
            // It follows from the decision that it is of this stream, and not beyond its tail.
            let _ = self.retained.acknowledged(acked_offset.position);
        }
        // Nothing is believed before the neighbour says from where on.
        self.life.acks_from = None;
        if let (true, Some(peer_memory)) = (conn.is_shared, conn.peer_memory.take()) {
            conn.begin(None);
            return self.build_shm(conn.id(), peer_memory, answer.window);
        }
        let from = mine.resume_at().unwrap_or_default().max(self.retained.base());
        let from = if seeded_fault("link_resume_at_tail") { self.retained.tail() } else { from };
        // A boundary: the receiver's mark whose proof was looked up there, or the base.
        let Some(cursor) = self.retained.unsent(from) else { return };
        conn.begin(Some(cursor));
    }

    /// What an epoch that is left leaves.
    pub(super) fn live(&self) -> Past {
        let out = &self.retained;
        let sending = Some(SentPast { stream: out.stream(), acked: out.acked(), tail: out.tail() });
        let receiving = self.durable.acked_offset.map(|acked_offset| ReceivedPast {
            stream: acked_offset.stream,
            consumed: acked_offset.position,
        });
        Past { epoch: self.durable.epoch, sending, receiving, settled: false }
    }
}

/// How far beyond its own a client believes that its generations were: those of an older copy of its file.
const STEP_MAX: u64 = 1 << 32;

/// A number that nobody can guess.
pub(super) fn chance() -> u64 {
    let bytes = nonce();
    u64::from_le_bytes([
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
    ])
}
