// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake of the model: each side's steps when it reads the frames ATTACH, ATTACHED, CONFIRM
//! and BEGIN (SPEC 12.2).
//!
//! ```text
//!   client `connect`    sends ATTACH
//!   server `asked`      reads ATTACH, decides about the direction to the client, stores nothing,
//!                       sends ATTACHED
//!   client `answered`   reads ATTACHED, applies that decision in one update, decides about the
//!                       direction to the server, sends CONFIRM
//!   server `confirmed`  reads CONFIRM, applies the client's decision in one update, replaces its
//!                       connection, sends BEGIN with what it applied
//!   client `begun`      reads BEGIN
//! ```

use partywall_reconcile::attach::{Admission, Nonce, PeerOrder, admit};
use partywall_reconcile::{
    AckedOffset, Applied, Connection, Decision, Direction, Identity, Incoming, Past, Peer,
    Position, ReceiverView, RecordDigest, Report, Skip, epoch, reconcile, skip,
};

use crate::bounds::{Bounds, Fault};
use crate::world::{Attach, CLIENT, Frame, Life, Link, Reason, SERVER, Shake, World};

impl World {
    fn receiver_view(&self, side: usize, bounds: &Bounds) -> ReceiverView {
        let Some(life) = &self.sides[side].life else { unreachable!("a view of the dead") };
        let file = &self.sides[side].file;
        let skip = file.skip.filter(|_| !bounds.forgets(Fault::SkipUnreported));
        ReceiverView::new(file.epoch, life.acked_offset, life.incoming.received(), skip).unwrap()
    }

    fn views(&self, side: usize, nonce: Nonce, link: usize, bounds: &Bounds) -> Attach {
        let file = &self.sides[side].file;
        let identity = Identity {
            store_id: file.store_id,
            incarnation: file.incarnation,
            connection_number: self.links[link].connection_number,
            epoch: file.epoch,
        };
        let receiving = self.receiver_view(side, bounds);
        let past = file.past.filter(|_| !bounds.forgets(Fault::PastForgotten));
        Attach { nonce, identity, sending: file.sender_view(), receiving, past }
    }

    fn decide(&self, side: usize, receiver: &ReceiverView, bounds: &Bounds) -> Decision {
        let file = &self.sides[side].file;
        let sender = file.sender_view();
        let mut receiver = *receiver;
        if bounds.forgets(Fault::NoStreamId) {
            if let Some(mut acked_offset) = receiver.consumed() {
                acked_offset.stream = sender.stream();
                let view = ReceiverView::new(
                    receiver.epoch(),
                    Some(acked_offset),
                    receiver.received(),
                    None,
                );
                receiver = view.unwrap();
            }
        }
        let claimed = receiver.consumed().map(|acked_offset| acked_offset.digest);
        let decision = reconcile(&sender, &receiver, |at| {
            if bounds.forgets(Fault::NoDigest) { claimed } else { file.digest_at(at) }
        });
        match decision {
            Decision::Resume(_) if bounds.forgets(Fault::ResumeAtTail) => {
                Decision::Resume(sender.tail())
            }
            other => other,
        }
    }

    /// Step of the client: it opens a connection, and sends ATTACH.
    pub fn connect(&mut self, bounds: &Bounds) {
        let link = self.links.len();
        let Some(life) = &mut self.sides[CLIENT].life else { return };
        let number = life.connection_number;
        life.connection_number = life.connection_number.next_above(number).unwrap();
        life.attaching = Some(link);
        let connection_number = life.connection_number;
        self.links.push(Link {
            connection_number,
            shm: bounds.shms && link % 2 == 0,
            replayed: false,
            cut: false,
            open: [true, self.sides[SERVER].life.is_some()],
            queue: [Vec::new(), Vec::new()],
            shake: [Shake::None, Shake::None],
            history: Vec::new(),
        });
        let attach = self.views(CLIENT, nonce(link, CLIENT), link, bounds);
        self.links[link].shake[CLIENT] = Shake::Asked(attach.receiving);
        self.push(link, CLIENT, Frame::Attach(attach));
    }

    /// Step of the server: it reads ATTACH, and answers with ATTACHED or a refusal.
    pub fn asked(&mut self, link: usize, attach: Attach, bounds: &Bounds) {
        let side = &self.sides[SERVER];
        let Some(life) = &side.life else { return };
        let echo = attach.nonce;
        let admission = if bounds.forgets(Fault::OlderConnection) {
            Admission::Accept
        } else {
            admit(side.file.peer.as_ref(), life.present, &attach.identity)
        };
        let reason = match admission {
            _ if side.file.quarantined => Some(Reason::Quarantined),
            Admission::Accept => None,
            Admission::Stale(connection_number) => Some(Reason::Stale(connection_number)),
            Admission::Fenced(highest) => Some(Reason::Fenced(highest)),
        };
        if let Some(reason) = reason {
            self.push(link, SERVER, Frame::Refuse { echo, reason });
            self.close(link, SERVER);
            return;
        }
        let decision = self.decide(SERVER, &attach.receiving, bounds);
        let answer = self.views(SERVER, nonce(link, SERVER), link, bounds);
        let given = answer.receiving;
        if bounds.forgets(Fault::ReplacedAtAttach) {
            self.replace(SERVER, link, &attach.identity);
        }
        self.push(link, SERVER, Frame::Attached { attach: answer, echo, decision });
        self.links[link].shake[SERVER] = Shake::Answered(Box::new((attach, given, decision)));
    }

    /// Step of the client: it reads ATTACHED, and answers with CONFIRM, or closes the connection.
    pub fn answered(
        &mut self,
        link: usize,
        answer: Attach,
        echo: Nonce,
        decision: Decision,
        bounds: &Bounds,
    ) {
        let Shake::Asked(given) = self.links[link].shake[CLIENT].clone() else { return };
        if !nonce(link, CLIENT).is_echoed_by(echo) {
            return self.close(link, CLIENT);
        }
        let file = &mut self.sides[CLIENT].file;
        if let PeerOrder::Older(highest) = Peer::compare(file.peer.as_ref(), &answer.identity) {
            let reason = Reason::Fenced(highest);
            self.push(link, CLIENT, Frame::Refuse { echo: answer.nonce, reason });
            return self.close(link, CLIENT);
        }
        let (theirs, ours) = (answer.identity.epoch, file.epoch);
        // The answer contains the server's last skip. The client reports this skip even if the
        // epochs differ: after a change of epoch it may no longer know the stream that the skip
        // belongs to.
        self.learn(CLIENT, answer.receiving.skip(), bounds);
        if theirs > ours {
            let file = &mut self.sides[CLIENT].file;
            file.peer = Some(Peer::of(&answer.identity));
            self.adopt(CLIENT, &answer, bounds);
            return self.close(link, CLIENT);
        }
        let mine = self.decide(CLIENT, &answer.receiving, bounds);
        let fresh_from = self.sides[CLIENT].file.out.tail();
        let confirm = Frame::Confirm { echo: answer.nonce, decision: mine, fresh_from };
        if theirs < ours {
            self.push(link, CLIENT, confirm);
            return self.close(link, CLIENT);
        }
        if let Decision::Impossible(why) = decision {
            self.sides[CLIENT].file.quarantine(Direction::Incoming, why);
        }
        if let Decision::Impossible(why) = mine {
            self.sides[CLIENT].file.quarantine(Direction::Outgoing, why);
        }
        if self.sides[CLIENT].file.quarantined {
            self.push(link, CLIENT, confirm);
            return self.close(link, CLIENT);
        }
        let Some(applied) = self.fits(CLIENT, &answer, decision, &given, bounds) else {
            return self.close(link, CLIENT);
        };
        self.commit(CLIENT, link, &answer, applied, bounds);
        self.sides[CLIENT].life.as_mut().unwrap().decided =
            mine.skip(&self.sides[CLIENT].file.sender_view());
        self.flow(CLIENT, link, &answer, &mine);
        self.push(link, CLIENT, confirm);
        // If the client has consumed more since its view in ATTACH (`given`), it has to send an ACK
        // at once, so that the server learns the new acked offset.
        let viewed = given.consumed().map_or(Position::START, |acked_offset| acked_offset.position);
        let life = self.sides[CLIENT].life.as_mut().unwrap();
        let all = applied.skip.is_some() || bounds.forgets(Fault::AckedTooMuch);
        life.acked = if all { life.consumed() } else { viewed };
        self.acknowledge(CLIENT, bounds);
        self.links[link].shake[CLIENT] = Shake::None;
    }

    /// Step of the server: it reads CONFIRM, and may replace its present connection.
    pub fn confirmed(
        &mut self,
        link: usize,
        echo: Nonce,
        theirs: Decision,
        fresh_from: Position,
        bounds: &Bounds,
    ) {
        let Shake::Answered(kept) = self.links[link].shake[SERVER].clone() else { return };
        let (attach, given, mine) = *kept;
        if !nonce(link, SERVER).is_echoed_by(echo) && !bounds.forgets(Fault::NoNonce) {
            return self.close(link, SERVER);
        }
        let Some(life) = &self.sides[SERVER].life else { return };
        let file = &mut self.sides[SERVER].file;
        let admission = admit(file.peer.as_ref(), life.present, &attach.identity);
        if admission != Admission::Accept
            && !bounds.forgets(Fault::OlderConnection)
            && !bounds.forgets(Fault::ReplacedAtAttach)
        {
            return self.close(link, SERVER);
        }
        if attach.identity.epoch > file.epoch {
            self.learn(SERVER, attach.receiving.skip(), bounds);
            self.sides[SERVER].file.peer = Some(Peer::of(&attach.identity));
            self.adopt(SERVER, &attach, bounds);
            return self.close(link, SERVER);
        }
        if given.epoch() != file.epoch || attach.identity.epoch < file.epoch {
            return self.close(link, SERVER);
        }
        if let Decision::Impossible(why) = theirs {
            file.quarantine(Direction::Incoming, why);
        }
        if let Decision::Impossible(why) = mine {
            file.quarantine(Direction::Outgoing, why);
        }
        if file.quarantined {
            return self.close(link, SERVER);
        }
        let continuous = life.peer == Some(Peer::of(&attach.identity));
        let stands =
            mine.stands(file.out.base(), continuous) || bounds.forgets(Fault::TrimmedSinceIgnored);
        let applied = self.fits(SERVER, &attach, theirs, &given, bounds);
        let Some(applied) = applied.filter(|_| stands) else {
            return self.close(link, SERVER);
        };
        self.replace(SERVER, link, &attach.identity);
        let own = mine.skip(&self.sides[SERVER].file.sender_view());
        self.commit(SERVER, link, &attach, applied, bounds);
        self.learn(SERVER, own, bounds);
        self.flow(SERVER, link, &attach, &mine);
        let life = self.sides[SERVER].life.as_mut().unwrap();
        life.acks_from = fresh_from;
        life.acked = life.consumed();
        let begin = Frame::Begin {
            stream: life.acked_offset.map(|acked_offset| acked_offset.stream),
            consumed: life.consumed(),
            fresh_from: life.fresh_from,
        };
        self.push(link, SERVER, begin);
        self.links[link].shake[SERVER] = Shake::None;
    }

    /// Returns the state of `side`, as a receiver, after it has applied the peer's decision how the
    /// peer's stream resumes. Returns `None` if `side` must not apply the decision now.
    fn fits(
        &self,
        side: usize,
        answer: &Attach,
        decision: Decision,
        given: &ReceiverView,
        bounds: &Bounds,
    ) -> Option<Applied> {
        let now = self.receiver_view(side, bounds);
        let continuous = self.sides[side].life.as_ref()?.peer == Some(Peer::of(&answer.identity));
        let trusting = bounds.forgets(Fault::NoStreamId)
            || bounds.forgets(Fault::ResumeAtTail)
            || bounds.forgets(Fault::NoDigest);
        if let (true, Decision::Resume(resume)) = (trusting, decision) {
            // The exploration leaves out a check of the sender: of stream ids (`NoStreamId`), of
            // the position (`ResumeAtTail`) or of the digest (`NoDigest`). So the decision may rest
            // on data that the sender did not check. The receiver then applies the decision without
            // checks of its own, so that the fault takes effect.
            let stream = answer.sending.stream();
            let start = AckedOffset { stream, position: resume, digest: RecordDigest::START };
            let acked_offset = now.consumed().unwrap_or(start);
            let jumps = bounds.forgets(Fault::ResumeAtTail);
            let position =
                if jumps { acked_offset.position.max(resume) } else { acked_offset.position };
            let moved = now.consumed() != given.consumed() && !continuous;
            let consumed = AckedOffset { stream, position, ..acked_offset };
            return (!moved).then_some(Applied { consumed, skip: None });
        }
        let given = if bounds.forgets(Fault::MovedIgnored) {
            decision.check(&answer.sending, given).ok()?;
            if given.epoch() != now.epoch() {
                return None;
            }
            if let (Decision::Resume(_), Some(acked_offset)) = (decision, now.consumed()) {
                return Some(Applied { consumed: acked_offset, skip: None });
            }
            given
        } else {
            given
        };
        decision.apply(&answer.sending, given, &now, continuous).ok()
    }

    /// Stores in one update of a side's file: the applied decision, the peer's identity and last
    /// skip, the side's past, and the reports of these changes.
    fn commit(
        &mut self,
        side: usize,
        link: usize,
        answer: &Attach,
        applied: Applied,
        bounds: &Bounds,
    ) {
        let continuous =
            self.sides[side].life.as_ref().unwrap().peer == Some(Peer::of(&answer.identity));
        let file = &mut self.sides[side].file;
        file.peer = Some(Peer::of(&answer.identity));
        let moved = file.recovered() != Some(applied.consumed);
        let reports =
            if moved || applied.skip.is_some() { file.apply(applied) } else { Default::default() };
        let settlement = epoch::settle(file.past, answer.past);
        if !bounds.forgets(Fault::PastForgotten) {
            file.past = settlement.past;
            if bounds.forgets(Fault::NeverSettled) {
                file.past = file.past.map(|past| Past { settled: false, ..past });
            }
            self.report(side, settlement.reports.iter(), bounds);
        }
        self.report(side, reports.iter(), bounds);
        self.learn(side, answer.receiving.skip(), bounds);
        let tail = self.sides[side].file.out.tail();
        let life = self.sides[side].life.as_mut().unwrap();
        let position = applied.consumed.position;
        let same = life.acked_offset.map(|acked_offset| acked_offset.stream)
            == Some(applied.consumed.stream);
        life.acked_offset = Some(applied.consumed);
        if !(continuous && same && life.consumed() == position) {
            life.incoming = Incoming::at(position);
            life.buffer.clear();
            life.replying = false;
        }
        life.fresh_from = tail;
        life.peer = Some(Peer::of(&answer.identity));
        let old = life.active;
        if let Some(old) = old.filter(|old| *old != link) {
            self.close(old, side);
        }
        let life = self.sides[side].life.as_mut().unwrap();
        life.active = Some(link);
        life.attaching = life.attaching.filter(|attaching| *attaching != link);
    }

    /// Makes `side` resume sending: at the position that it decided in the handshake, or at its
    /// base if it has trimmed further since.
    fn flow(&mut self, side: usize, _link: usize, answer: &Attach, mine: &Decision) {
        let file = &mut self.sides[side].file;
        if let (Decision::Resume(_), Some(acked_offset)) = (mine, answer.receiving.consumed()) {
            let _ = file.out.acknowledge(acked_offset.stream, acked_offset.position);
        }
        let base = file.out.base();
        let life = self.sides[side].life.as_mut().unwrap();
        life.next = mine.resume_at().unwrap_or_default().max(base);
        // The sender ignores all acknowledgements until the peer says from which record on its
        // acknowledgements refer to the present stream.
        life.acks_from = Position(u64::MAX);
    }

    /// Step of the client: it reads BEGIN, so the server has applied the client's decision.
    pub fn begun(&mut self, fresh_from: Position, bounds: &Bounds) {
        let life = self.sides[CLIENT].life.as_mut().unwrap();
        life.acks_from = fresh_from;
        let decided = life.decided.take();
        self.learn(CLIENT, decided, bounds);
    }

    fn learn(&mut self, side: usize, skip: Option<Skip>, bounds: &Bounds) {
        let file = &mut self.sides[side].file;
        let before = file.past.and_then(|past| past.sending).map(|sent| sent.stream);
        let reports = skip::learn(skip, file.skip_reported, &[Some(file.out.stream()), before]);
        if let Some(reports) = reports {
            file.skip_reported = skip;
            self.report(side, reports.iter(), bounds);
        }
    }

    /// In one update of its file, the side `side` takes over the higher epoch of its peer, and
    /// reports the messages of its old streams that are lost.
    fn adopt(&mut self, side: usize, answer: &Attach, bounds: &Bounds) {
        let stream = self.stream();
        let Some(life) = &self.sides[side].life else { return };
        let acked_offset = life.acked_offset;
        let file = &mut self.sides[side].file;
        let settlement = if bounds.forgets(Fault::AdoptedSilently) {
            epoch::Settlement { past: None, reports: Default::default() }
        } else {
            epoch::adopt(file.live(acked_offset), file.past, answer.past)
        };
        file.begin(answer.identity.epoch, stream, settlement.past);
        self.report(side, settlement.reports.iter(), bounds);
        self.detach(side);
    }

    /// Step of a side: its application begins an epoch, so both of its streams begin anew.
    pub fn raise(&mut self, side: usize, bounds: &Bounds) {
        let stream = self.stream();
        let acked_offset = self.sides[side].acked_offset();
        let file = &mut self.sides[side].file;
        let settlement = epoch::leave(file.live(acked_offset), file.past);
        let next = partywall_reconcile::Epoch(file.epoch.0 + 1);
        file.begin(next, stream, settlement.past);
        self.report(side, settlement.reports.iter(), bounds);
        self.detach(side);
    }

    /// Closes the connections of a side that enters a new epoch, and drops the records that these
    /// connections had delivered.
    fn detach(&mut self, side: usize) {
        let life = self.sides[side].life.as_mut().unwrap();
        let (active, attaching) = (life.active, life.attaching);
        life.acked_offset = None;
        life.incoming = Incoming::at(Position::START);
        life.buffer.clear();
        life.replying = false;
        life.peer = None;
        for link in [active, attaching].into_iter().flatten() {
            self.close(link, side);
        }
    }

    fn report(&mut self, side: usize, reports: impl Iterator<Item = Report>, bounds: &Bounds) {
        let side = &mut self.sides[side];
        let life: Option<&mut Life> = side.life.as_mut();
        match life {
            Some(life) if bounds.forgets(Fault::ReportLater) => life.unstored.extend(reports),
            _ => side.file.reports.extend(reports),
        }
    }

    /// In one update of the server's file, the connection `link` replaces the server's present
    /// connection.
    fn replace(&mut self, side: usize, link: usize, claim: &Identity) {
        let connection = &self.links[link];
        let ghost = connection.replayed;
        let life = self.sides[side].life.as_mut().unwrap();
        let older = life.present.is_some_and(|present| {
            present.peer == Peer::of(claim) && present.connection_number > claim.connection_number
        });
        self.usurped |= ghost || older;
        life.present =
            Some(Connection { peer: Peer::of(claim), connection_number: claim.connection_number });
        let old = life.active.replace(link);
        if let Some(old) = old.filter(|old| *old != link) {
            self.close(old, side);
        }
    }
}

/// The nonce that `side` uses for a connection; it is counted, not random.
pub fn nonce(link: usize, side: usize) -> Nonce {
    Nonce(link as u64 * 2 + side as u64)
}
