// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake by which two ends of a link agree on a connection, and on the position at which
//! each stream continues (SPEC 12.2 to 12.4). Each end sends its views of both streams. The sender
//! of a stream decides from the two views.
//!
//! ```text
//!  client                                server
//!  attach ────────── ATTACH ──────────▶  answer_attach  stores nothing; reconciles the
//!  on_attached ◀──── ATTACHED ─────────                 stream from server to client
//!   one update, then
//!         ── maybe SHARE, CONFIRM ────▶  on_confirm     one update; ends its old connection
//!  on_begin ◀─────── BEGIN ────────────
//! ```
//!
//! The order of the steps in each function is that of `handshake.rs` in the model of
//! `partywall_reconcile`. The model fails if any of these steps is left out.
//!
//! # Invariants
//!
//! - Each report for the application is in the same update of the store as the change that it
//!   reports.
//! - Only the present connection changes the positions `acked`, up to which the peer has
//!   acknowledged, and `received`, up to which the peer's stream has arrived.

use std::os::fd::OwnedFd;

use partywall_layout::seeded_fault;
use partywall_reconcile::attach::{Admission, Nonce, PeerOrder, Present, admit};
use partywall_reconcile::{
    Applied, Cause, Connection, ConnectionNumber, Decision, Direction, Epoch, Identity, Impossible,
    Outgoing, Past, Peer, Position, ReceivedPast, ReceiverView, RecordDigest, Report, Reports,
    SentPast, Skip, Span, StreamId, Unfit, epoch, reconcile, skip,
};
use partywall_sys::nonce;

use super::LinkState;
use super::conn::{Answered, Conn, ConnId, Stage};
use super::end::{End, Violation};
use super::events::Event;
use super::peer_memory::PeerMapping;
use crate::protocol::frame::{Attach, Frame, Names, Refusal, Window};
use crate::store::Quarantine;

/// State of a link's end that concerns its connections to the peer. It exists only in this process:
/// a later owner of the end gets none of it.
#[derive(Debug, Default)]
pub(super) struct Attachment {
    /// The number of the client's last connection, which a server takes from ATTACH.
    pub(super) connection_number: ConnectionNumber,
    /// At a server, the present connection: the one on which CONFIRM arrived last.
    pub(super) present: Present,
    /// The present connection, while records can flow on it; `None` otherwise.
    pub(super) active: Option<ConnId>,
    /// The process that owned the peer's file or memory on the last connection. Only if the same
    /// process attaches again, messages in the inbox (received and not acknowledged) remain valid.
    pub(super) peer: Option<Peer>,
    /// Position up to which the peer has received this end's acknowledgements on the present
    /// connection.
    pub(super) acked: Position,
    /// The position up to which a record of the open, unpublished batch acknowledges the peer's
    /// stream. Publishing the batch tells the peer this position, which then becomes `acked`.
    pub(super) acked_by_batch: Option<Position>,
    /// Position in the peer's stream from which on the field `ack_pos` of the peer's records (the
    /// position that a record acknowledges) refers to our present stream. `None` until the peer has
    /// sent that position.
    pub(super) acks_from: Option<Position>,
    /// Position in our stream from which on our records carry acknowledgements for the present
    /// connection. Earlier records were written before it.
    pub(super) fresh_from: Position,
    /// A skip in our stream, which this end decided as the sender. The peer may not have applied it
    /// yet.
    pub(super) decided: Option<Skip>,
    pub(super) is_fenced: bool,
    /// The stream and the position at which the peer's messages end, once the peer has closed its
    /// end in good order. `None` before, and after the application was notified.
    pub(super) finished_at: Option<(Option<StreamId>, Position)>,
    /// Number of connections that this process has begun so far; it gives each connection its id.
    connections: u64,
    pub(super) login: Vec<u8>,
}

impl Attachment {
    fn next_id(&mut self) -> ConnId {
        self.connections += 1;
        ConnId(self.connections)
    }

    /// Ends the present connection if its id is `id`. Returns whether the present connection had
    /// this id.
    pub(super) fn end(&mut self, id: ConnId) -> bool {
        if self.active != Some(id) {
            return false;
        }
        self.active = None;
        self.decided = None;
        self.acks_from = None;
        self.acked_by_batch = None;
        true
    }

    /// Whether the peer that attaches, whose identity is `claim`, is the same process as the peer
    /// on the last connection.
    fn is_continuous(&self, claim: &Identity) -> bool {
        self.peer == Some(Peer::of(claim))
    }
}

/// A server's answer to ATTACH. The answer is queued on the contained connection.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The client was accepted: the frame ATTACHED is queued on the connection.
    Attached(Conn),
    /// The client was refused: the frame REFUSE is queued on the connection. The driver, which has
    /// the socket, then has to close the connection.
    Refused(Conn, End),
}

/// The effect of a control frame on the connection on which it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handled {
    /// The frame was handled, and has not made its connection the present one.
    Unchanged,
    /// The connection has become the present one. The driver, which has the sockets, must close any
    /// other connection.
    Activated,
}

/// Reason why an epoch was not begun: its number is not higher than that of the present epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link is in epoch {present}: a new one must be higher")]
pub struct StaleEpoch {
    /// The number of the present epoch of the link.
    pub present: u64,
}

impl LinkState {
    /// Begins a client's connection, and queues ATTACH on it. Returns `None` if this end is fenced
    /// or quarantined.
    pub(crate) fn attach(&mut self, names: Names, login: Vec<u8>) -> Option<Conn> {
        self.attach_with(names, login, None)
    }

    /// Begins a client's connection over a Unix socket to a process of the same user, and queues
    /// ATTACH on it. The frame offers this end's memory to the server, if the memory can be mapped.
    pub(crate) fn attach_shm(&mut self, names: Names, login: Vec<u8>) -> Option<Conn> {
        let descriptor = self.store.descriptor();
        self.attach_with(names, login, descriptor)
    }

    fn attach_with(
        &mut self,
        names: Names,
        login: Vec<u8>,
        descriptor: Option<OwnedFd>,
    ) -> Option<Conn> {
        if self.attachment.is_fenced || self.store.durable.quarantine.is_some() {
            return None;
        }
        let number = self.attachment.connection_number;
        if !seeded_fault("link_connection_number_kept") {
            self.attachment.connection_number = number.next_above(number)?;
        }
        let own = Nonce(random());
        let shares = descriptor.is_some();
        let number = self.attachment.connection_number;
        let attach = Attach { shares, ..self.views(own, number) };
        let stage = Stage::Asked(attach.receiving);
        let mut conn = Conn::new(self.attachment.next_id(), number, own, stage);
        (conn.shares, conn.descriptor) = (shares, descriptor);
        conn.push_frame(&Frame::Attach { attach, names, login });
        Some(conn)
    }

    /// Answers ATTACH of a client that the server's application has accepted. The answer carries
    /// `login` to the client's application.
    ///
    /// `mapping` is the mapped memory that a client of the same user on this machine sent with that
    /// frame.
    pub(crate) fn answer_attach(
        &mut self,
        attach: Attach,
        login: Vec<u8>,
        mapping: Option<PeerMapping>,
    ) -> Answer {
        let own = Nonce(random());
        let connection_number = attach.identity.connection_number;
        let mut conn = Conn::new(self.attachment.next_id(), connection_number, own, Stage::Over);
        if let Err(refusal) = self.admits(&attach.identity) {
            conn.push_frame(&Frame::Refuse { echo: attach.nonce, refusal: refusal.clone() });
            return Answer::Refused(conn, End::Refused { by_us: true, refusal });
        }
        let decision = self.decide(&attach.receiving);
        let mapping = mapping.filter(|_| attach.shares);
        let peer_memory = mapping.and_then(|mapping| mapping.parts(&attach, conn.id()));
        // This end offers its memory only to a client that has sent its own memory. The store id in
        // that memory must be the one that ATTACH names.
        conn.descriptor = peer_memory.as_ref().and_then(|_| self.store.descriptor());
        conn.peer_memory = peer_memory.filter(|_| conn.descriptor.is_some());
        conn.shares = conn.peer_memory.is_some();
        let answer = Attach { shares: conn.shares, ..self.views(own, connection_number) };
        let (echo, given) = (attach.nonce, answer.receiving);
        conn.window = Some(attach.window);
        conn.push_frame(&Frame::Attached { attach: answer, echo, decision, login });
        conn.stage = Stage::Answered(Box::new(Answered { attach, given, decision }));
        Answer::Attached(conn)
    }

    pub(super) fn on_frame(&mut self, conn: &mut Conn, frame: Frame) -> Result<Handled, End> {
        match frame {
            Frame::Attached { attach, echo, decision, login } => {
                let handled = self.on_attached(conn, &attach, echo, decision)?;
                self.attachment.login = login;
                Ok(handled)
            }
            Frame::Share => on_share(conn),
            Frame::Confirm { echo, decision, tail } => self.on_confirm(conn, echo, decision, tail),
            Frame::Refuse { echo, refusal } => Err(self.on_refuse(conn, echo, refusal)),
            Frame::Attach { .. } => Err(End::violation(Violation::OutOfPlace("ATTACH"))),
            Frame::Leave if conn.is_active() => Err(End::Left),
            Frame::Leave => Err(End::violation(Violation::OutOfPlace("LEAVE"))),
            // Only the present connection may change the state of the link. A frame on another
            // connection ends that other connection.
            _ if self.attachment.active != Some(conn.id()) => Err(End::Replaced),
            Frame::Begin { stream, consumed, tail } => self.on_begin(stream, consumed, tail),
            Frame::Ack { stream, consumed } => {
                self.on_ack(stream, consumed)?;
                Ok(Handled::Unchanged)
            }
        }
    }

    /// Handles ATTACHED, the server's answer to ATTACH, at the client: checks the server's
    /// decision, stores the outcome, and sends CONFIRM.
    fn on_attached(
        &mut self,
        conn: &mut Conn,
        answer: &Attach,
        echo: Nonce,
        decision: Decision,
    ) -> Result<Handled, End> {
        let Stage::Asked(given) = conn.stage else { return Err(End::NotFresh) };
        if !conn.nonce.is_echoed_by(echo) && !seeded_fault("link_echo_unchecked") {
            return Err(End::NotFresh);
        }
        let known = self.store.durable.peer;
        if let PeerOrder::Older(highest) = Peer::compare(known.as_ref(), &answer.identity) {
            let refusal = Refusal::Fenced(highest);
            conn.push_frame(&Frame::Refuse { echo: answer.nonce, refusal: refusal.clone() });
            return Err(End::Refused { by_us: true, refusal });
        }
        conn.window = Some(answer.window);
        // The server's view names the last skip in this end's stream. The skip is recorded first,
        // even if the epochs differ: when this end takes over the server's epoch, it may forget the
        // stream to which the skip refers.
        self.learn(answer.receiving.skip());
        if answer.identity.epoch > self.store.durable.epoch {
            self.store.durable.peer = Some(Peer::of(&answer.identity));
            self.adopt(answer.identity.epoch, answer.past);
            return Err(End::EpochAdopted);
        }
        let mine = self.decide(&answer.receiving);
        let tail = self.retained.tail();
        let confirm = Frame::Confirm { echo: answer.nonce, decision: mine, tail };
        if answer.identity.epoch < self.store.durable.epoch {
            conn.push_frame(&confirm);
            return Err(End::EpochAdopted);
        }
        if given.epoch() != self.store.durable.epoch {
            // In ATTACH this end stated how far it had received the server's stream. An epoch has
            // ended since, so the server's answer no longer fits.
            return Err(End::Moved);
        }
        // The server decided where its stream continues, or that its stream cannot continue. The
        // decision must follow from two views: the server's own one, and the client's in ATTACH.
        if decision.check(&answer.sending, &given).is_err() {
            return Err(End::violation(Violation::Decision));
        }
        if self.quarantines(decision, mine) {
            conn.push_frame(&confirm);
            return Err(End::Quarantined);
        }
        let applied = self.fits(answer, decision, &given)?;
        let has_skip = applied.skip.is_some();
        let mapping = conn.peer_mapping.take().filter(|_| conn.shares && answer.shares);
        conn.peer_memory = mapping.and_then(|mapping| mapping.parts(answer, conn.id()));
        conn.is_shared = conn.peer_memory.is_some();
        if conn.is_shared {
            conn.push_frame(&Frame::Share);
        }
        self.settle_in(conn, answer, applied);
        self.attachment.decided = mine.skip(&self.sender_view());
        self.flow(conn, answer, &mine);
        conn.push_frame(&confirm);
        // `given` is what this end stated as the receiver in ATTACH: the position up to which it
        // had consumed the server's stream. If the application has acknowledged more messages since
        // then, the frame ACK, which tells the server so, is due now.
        let viewed = given.consumed().map_or(Position::START, |acked_offset| acked_offset.position);
        self.attachment.acked = if has_skip { self.inbox.consumed() } else { viewed };
        conn.is_ack_due = self.inbox.consumed() > self.attachment.acked;
        Ok(Handled::Activated)
    }

    /// Handles CONFIRM, the client's last frame of the handshake, at the server. The frame has the
    /// client's decision at which position the client's stream continues.
    fn on_confirm(
        &mut self,
        conn: &mut Conn,
        echo: Nonce,
        theirs: Decision,
        tail: Position,
    ) -> Result<Handled, End> {
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
        if attach.identity.epoch > self.store.durable.epoch {
            self.learn(attach.receiving.skip());
            self.store.durable.peer = Some(Peer::of(&attach.identity));
            self.adopt(attach.identity.epoch, attach.past);
            return Err(End::EpochAdopted);
        }
        let epoch = self.store.durable.epoch;
        if given.epoch() != epoch || attach.identity.epoch < epoch {
            return Err(End::EpochAdopted);
        }
        // An honest client may have freed records of its ring, or begun an epoch, since it made its
        // view. So a decision that fails to match that view counts as outdated instead of a
        // violation, and both ends attach again.
        if theirs.check(&attach.sending, &given).is_err() {
            return Err(End::Moved);
        }
        if self.quarantines(theirs, mine) {
            return Err(End::Quarantined);
        }
        let continuous = self.attachment.is_continuous(&attach.identity);
        if !mine.stands(self.retained.base(), continuous) {
            return Err(End::Moved);
        }
        let applied = self.fits(&attach, theirs, &given)?;
        let own_skip = mine.skip(&self.sender_view());
        let connection_number = conn.connection_number;
        let peer = Peer::of(&attach.identity);
        self.attachment.present = Some(Connection { peer, connection_number });
        self.attachment.connection_number = connection_number;
        self.settle_in(conn, &attach, applied);
        self.learn(own_skip);
        self.flow(conn, &attach, &mine);
        self.attachment.acks_from = Some(tail);
        self.attachment.acked = self.inbox.consumed();
        conn.push_frame(&Frame::Begin {
            stream: self.acked_offset().map(|acked_offset| acked_offset.stream),
            consumed: self.inbox.consumed(),
            tail: self.attachment.fresh_from,
        });
        Ok(Handled::Activated)
    }

    /// Handles BEGIN, the last frame of the handshake, at the client. The server sends BEGIN after
    /// it has applied the client's decision.
    fn on_begin(
        &mut self,
        stream: Option<StreamId>,
        consumed: Position,
        tail: Position,
    ) -> Result<Handled, End> {
        if let Some(stream) = stream {
            self.on_ack(stream, consumed)?;
        }
        self.attachment.acks_from = Some(tail);
        let decided = self.attachment.decided.take();
        self.learn(decided);
        Ok(Handled::Unchanged)
    }

    /// Handles REFUSE at either end. Returns the reason why the connection ends.
    pub(super) fn on_refuse(&mut self, conn: &Conn, echo: Nonce, refusal: Refusal) -> End {
        if !conn.nonce.is_echoed_by(echo) {
            return End::NotFresh;
        }
        let own = self.attachment.connection_number;
        match &refusal {
            // This end cannot have made as many connections as the peer's refusal states, so the
            // stated number is false. If this end believed it, no higher number might be left for
            // later connections.
            Refusal::Stale(present) if present.0.saturating_sub(own.0) > STEP_MAX => {
                return End::NotFresh;
            }
            Refusal::Stale(present) => self.attachment.connection_number = own.max(*present),
            Refusal::Fenced(_) => {
                self.attachment.is_fenced = true;
                self.push_event(Event::Fenced);
            }
            _ => {}
        }
        End::Refused { by_us: false, refusal }
    }

    /// Returns the fields that describe this end in ATTACH and ATTACHED: its identity and its
    /// views.
    fn views(&self, nonce: Nonce, connection_number: ConnectionNumber) -> Attach {
        let provenance = self.store.provenance();
        let identity = Identity {
            store_id: provenance.store_id,
            incarnation: provenance.incarnation,
            connection_number,
            epoch: self.store.durable.epoch,
        };
        Attach {
            nonce,
            identity,
            sending: self.sender_view(),
            receiving: self.receiver_view(),
            past: self.store.durable.past,
            window: Window {
                ring_bytes: self.retained.ring_bytes(),
                slab_bytes: self.retained.slab_bytes(),
            },
            shares: false,
        }
    }

    fn admits(&self, claim: &Identity) -> Result<(), Refusal> {
        let durable = &self.store.durable;
        if durable.quarantine.is_some() {
            return Err(Refusal::Quarantined);
        }
        match admit(durable.peer.as_ref(), self.attachment.present, claim) {
            Admission::Accept => Ok(()),
            Admission::Stale(connection_number) => Err(Refusal::Stale(connection_number)),
            Admission::Fenced(highest) => Err(Refusal::Fenced(highest)),
        }
    }

    fn decide(&self, receiver: &ReceiverView) -> Decision {
        reconcile(&self.sender_view(), receiver, |at| self.retained.digest_at(at))
    }

    /// Puts the link into quarantine if one of the two decisions says that its stream cannot
    /// continue. Returns whether the link is in quarantine.
    fn quarantines(&mut self, theirs: Decision, mine: Decision) -> bool {
        for (direction, decision) in [(Direction::Incoming, theirs), (Direction::Outgoing, mine)] {
            if let Decision::Impossible(why) = decision {
                self.quarantine(direction, why);
            }
        }
        self.store.durable.quarantine.is_some()
    }

    /// Applies the peer's decision, at which position its stream continues, to this end's state as
    /// a receiver. Returns the new state, which the caller stores, or an error if the decision no
    /// longer fits.
    fn fits(
        &self,
        answer: &Attach,
        decision: Decision,
        given: &ReceiverView,
    ) -> Result<Applied, End> {
        let now = self.receiver_view();
        let continuous = self.attachment.is_continuous(&answer.identity);
        decision.apply(&answer.sending, given, &now, continuous).map_err(|unfit| match unfit {
            Unfit::Contradiction => End::violation(Violation::Decision),
            _ => End::Moved,
        })
    }

    /// Stores the outcome of an attach in one update of the store: the peer's identity, and the
    /// position up to which this end has consumed the peer's stream. The update also has the
    /// skipped ranges, all reports, and how the previous epoch ended for both directions.
    fn settle_in(&mut self, conn: &Conn, answer: &Attach, applied: Applied) {
        let continuous = self.attachment.is_continuous(&answer.identity);
        let peer = Peer::of(&answer.identity);
        let durable = &mut self.store.durable;
        durable.peer = Some(peer);
        let before = durable.acked_offset.replace(applied.consumed);
        if let Some(skip) = applied.skip {
            durable.skip = Some(skip);
            durable.report_all(skip.reports(Direction::Incoming));
        }
        let settlement = epoch::settle(durable.past, answer.past);
        durable.past = settlement.past;
        durable.report_all(settlement.reports);
        self.note_skip(answer.receiving.skip());
        let is_new_stream =
            before.map(|acked_offset| acked_offset.stream) != Some(applied.consumed.stream);
        if is_new_stream {
            self.store.durable.forget_delivered();
        }
        if !seeded_fault("link_attach_not_committed") {
            self.commit_state();
        }
        let goes_on =
            continuous && !is_new_stream && self.inbox.consumed() == applied.consumed.position;
        if !goes_on && !seeded_fault("link_inbox_outlives_jump") {
            self.inbox.begin(applied.consumed);
        }
        self.attachment.fresh_from = self.retained.tail();
        self.attachment.peer = Some(peer);
        self.attachment.active = Some(conn.id());
        self.peer_memory = None;
        self.push_event(Event::Attached { resumed: !is_new_stream });
    }

    /// Begins to send this end's stream on the connection, at the position that this end decided as
    /// the sender. If records there were freed since, sending begins at the base.
    fn flow(&mut self, conn: &mut Conn, answer: &Attach, mine: &Decision) {
        if let (Decision::Resume(_), Some(acked_offset)) = (mine, answer.receiving.consumed()) {
            // The decision to resume implies that the peer's acked offset belongs to our stream and
            // is not beyond its tail. So this call, which notes what the peer has acknowledged,
            // does not fail.
            let _ = self.retained.acknowledged(acked_offset.position);
        }
        // Acknowledgements in the peer's records are ignored until the peer says from which record
        // on they refer to our present stream.
        self.attachment.acks_from = None;
        if let (true, Some(peer_memory)) = (conn.is_shared, conn.peer_memory.take()) {
            conn.begin(None);
            self.peer_memory = Some(peer_memory);
            if let Some(acked_offset) = self.acked_offset() {
                // A reply, or a skip of lost messages, may have changed this end's acked offset in
                // the stored state only, which the peer does not read. The peer now reads the
                // offset from the control page of this end's memory, so the offset is stored there,
                // too.
                self.store.consume(acked_offset);
            }
            return;
        }
        let from = mine.resume_at().unwrap_or_default().max(self.retained.base());
        let from = if seeded_fault("link_resume_at_tail") { self.retained.tail() } else { from };
        // A record begins at the position `from`, so a cursor can be set there: `from` is either
        // the peer's acked offset, where the digest matched, or our base.
        let Some(cursor) = self.retained.cursor(from) else { return };
        conn.begin(Some(cursor));
    }

    /// Begins an epoch because the application asks for it. Both streams are then empty, and every
    /// connection ends.
    pub(crate) fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), StaleEpoch> {
        let present = self.store.durable.epoch;
        if epoch <= present {
            return Err(StaleEpoch { present: present.0 });
        }
        // Over shared memory the peer sends no ACK frame, so its acked offset is read from its
        // memory once more. Fewer messages are then reported as dropped.
        self.poll_acked();
        let settlement = epoch::leave(self.past(), self.store.durable.past);
        self.enter(epoch, settlement.past, settlement.reports);
        Ok(())
    }

    /// Takes over the peer's epoch, which is higher than the epoch of this end. `theirs` has the
    /// positions up to which the peer sent and consumed in the epoch that it left.
    fn adopt(&mut self, epoch: Epoch, theirs: Option<Past>) {
        self.poll_acked();
        let settlement = epoch::adopt(self.past(), self.store.durable.past, theirs);
        self.enter(epoch, settlement.past, settlement.reports);
    }

    fn enter(&mut self, epoch: Epoch, past: Option<Past>, reports: Reports) {
        let stream = self.other_stream();
        let durable = &mut self.store.durable;
        durable.epoch = epoch;
        durable.past = past;
        durable.acked_offset = None;
        durable.forget_delivered();
        if !seeded_fault("link_epoch_unreported") {
            durable.report_all(reports);
        }
        durable.outgoing = Some(Outgoing::new(stream));
        durable.base_digest = RecordDigest::START;
        self.retained.end(stream);
        // This update of the store makes the ring belong to the new stream, although records of the
        // former stream still lie in the ring.
        self.store.commit();
        self.store.publish_stream(stream);
        self.retained.begin(stream);
        self.inbox.forget();
        self.attachment.peer = None;
        self.attachment.active = None;
        self.peer_memory = None;
        self.attachment.decided = None;
        self.attachment.acks_from = None;
        self.push_event(Event::Epoch { epoch: epoch.0 });
    }

    /// Returns a summary of the present epoch, which is about to end: the positions up to which
    /// each stream was sent, acknowledged and consumed.
    fn past(&self) -> Past {
        let out = &self.retained;
        let sending = Some(SentPast { stream: out.stream(), acked: out.acked(), tail: out.tail() });
        let receiving = self.acked_offset().map(|acked_offset| ReceivedPast {
            stream: acked_offset.stream,
            consumed: acked_offset.position,
        });
        Past { epoch: self.store.durable.epoch, sending, receiving, settled: false }
    }

    /// Records a skip in our stream. If the skip is new, one update of the store adds it and its
    /// reports.
    fn learn(&mut self, skip: Option<Skip>) {
        if self.note_skip(skip) {
            self.commit_state();
        }
    }

    /// Records a skip in our stream, which the caller then has to write to the store. Returns
    /// whether the skip is new.
    fn note_skip(&mut self, skip: Option<Skip>) -> bool {
        let durable = &mut self.store.durable;
        let before = durable.past.and_then(|past| past.sending).map(|sent| sent.stream);
        let mine = [Some(self.retained.stream()), before];
        let reports = skip::learn(skip, durable.skip_reported, &mine);
        let Some(reports) = reports else { return false };
        durable.skip_reported = skip;
        durable.report_all(reports);
        true
    }

    /// Puts the link into quarantine, and reports that to the application.
    fn quarantine(&mut self, direction: Direction, why: Impossible) {
        if self.store.durable.quarantine.is_some() {
            return;
        }
        self.store.durable.quarantine = Some(Quarantine { direction, why });
        let (from, known_to) = match direction {
            Direction::Outgoing => (self.retained.base(), self.retained.tail()),
            Direction::Incoming => (self.inbox.consumed(), self.inbox.received()),
        };
        let span = Span { from, to: None, known_to, exact: false };
        let (cause, epoch) = (Cause::Quarantined(why), self.store.durable.epoch);
        self.store.durable.report(Report { direction, cause, epoch, stream: None, span });
        self.commit_state();
        self.push_event(Event::Quarantined);
    }

    /// Draws a random id for a new stream, whose tag differs from that of the present one. So no
    /// record that is still in the ring passes for one of the new stream.
    fn other_stream(&self) -> StreamId {
        loop {
            let stream = new_stream();
            if self.retained.is_distinct_from(stream) {
                return stream;
            }
        }
    }
}

/// Handles at the server SHARE, the frame that says that the client has mapped the server's memory.
/// The client sends it before CONFIRM, its last frame of the handshake.
fn on_share(conn: &mut Conn) -> Result<Handled, End> {
    let is_in_place = matches!(conn.stage, Stage::Answered(_)) && conn.peer_memory.is_some();
    if !is_in_place || conn.is_shared {
        return Err(End::violation(Violation::OutOfPlace("SHARE")));
    }
    conn.is_shared = true;
    Ok(Handled::Unchanged)
}

/// Draws the id of a new stream: a random number other than 0.
pub(super) fn new_stream() -> StreamId {
    loop {
        if let Some(stream) = StreamId::new(random()) {
            return stream;
        }
    }
}

/// Draws a random number that an attacker cannot guess.
fn random() -> u64 {
    let bytes = nonce();
    u64::from_le_bytes([
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
    ])
}

/// Maximum distance from this end's connection number to a higher one that a server reports. Even
/// an end restored from an old copy of its file lacks fewer connections, so a client believes no
/// higher number.
const STEP_MAX: u64 = 1 << 32;
