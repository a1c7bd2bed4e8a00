// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivers each received record to its stream, and applies the record's effect to the stream (SPEC
//! 11).
//!
//! Every value from the peer is checked before use. A broken rule is a violation, which ends the
//! session.

use super::credit::cost;
use super::driver::Driver;
use super::error::SessionError;
use super::lifecycle::{Arrival, Receiving, Sending};
use super::stream::{StreamShared, StreamState};
use crate::channel::AnyReceiver;
use crate::message::Message;
use crate::transport::Assembly;
use partywall_layout::stream::{
    ANSWER, BODY_BYTES_MAX, CreditBody, GoAwayBody, OpenHead, PingBody, REASON_BYTES_MAX,
    ResetBody, SESSION, index,
};
use partywall_layout::{Kind, RecordHeader, Violation};
use std::sync::Arc;
use std::task::Waker;

/// Length in bytes of the field at the start of a first fragment that holds the message's total
/// length. The payload follows the field.
const TOTAL_BYTES: usize = size_of::<u64>();

/// An entry of the driver's table of streams: the state of one stream index.
#[derive(Debug, Default)]
pub(super) enum Slot {
    /// No stream has this index: it was never opened, or has ended and its number is free.
    #[default]
    Never,
    /// The stream is open. Or this side, as the stream's answerer, has ended the stream with the
    /// record END, and the driver has not yet changed the entry to [`Ended`](Self::Ended).
    Open {
        stream: Arc<StreamShared>,
        /// The waker that the driver called last for a message of the stream.
        receiver: Option<Waker>,
        /// The window of the driver's pacer in which the stream was last counted.
        counted: u32,
    },
    /// The stream has ended. Records of its opener may still arrive.
    Ended,
}

impl Slot {
    const fn open(stream: Arc<StreamShared>) -> Self {
        Self::Open { stream, receiver: None, counted: 0 }
    }

    /// Whether the entry has a stream that has not ended.
    fn is_live(&self) -> bool {
        matches!(self, Self::Open { stream, .. } if !stream.lock().lifecycle.has_ended())
    }
}

impl Driver {
    /// Delivers the receiver's current message, which is whole, to its stream, and the credit that
    /// the message carries.
    #[inline]
    pub(super) fn deliver(&mut self) -> Result<(), SessionError> {
        let (number, credit) = (self.wire.stream(), self.wire.take_credit());
        let (is_own, at) = self.locate(number)?;
        let Self { own, theirs, wire, pacer, .. } = self;
        let slot = if is_own { &mut own[at] } else { &mut theirs[at] };
        let Slot::Open { stream, receiver, counted } = slot else {
            wire.done();
            return Ok(());
        };
        let mut state = stream.lock();
        if state.lifecycle.has_ended() {
            drop(state);
            wire.done();
            return Ok(());
        }
        if let Some(credited) = credit {
            let received = state.received_credit(number, credited);
            received.map_err(|violation| violated(wire, violation))?;
        }
        let arrival = state.received_message(number, cost(wire.current_len()));
        let is_kept = arrival.map_err(|violation| violated(wire, violation))? == Arrival::Keep;
        let (mut is_awaited, mut replaced) = (false, None);
        if is_kept {
            // The message is copied to its place in the queue at once (decision 0064).
            wire.append_to(&mut state.queue);
            (is_awaited, replaced) = stream.claim_wait(&state, receiver);
            pacer.count(counted);
        }
        // The sender's waker is taken only after the message was checked. If the message is a
        // violation, the end of the session wakes the sender instead.
        let sender = credit.and_then(|_| state.sender.take());
        drop(state);
        wire.done();
        if let Some(receiver) = receiver.as_ref().filter(|_| is_awaited) {
            receiver.wake_by_ref();
        }
        if let Some(sender) = sender {
            sender.wake();
        }
        drop(replaced);
        Ok(())
    }

    /// Handles a record that is not a whole message.
    pub(super) fn route(&mut self, record: &RecordHeader) -> Result<(), SessionError> {
        if record.stream == SESSION {
            return self.act_on_session(record);
        }
        if record.kind == Kind::Open {
            return self.open(record);
        }
        let (is_own, at) = self.locate(record.stream)?;
        let Slot::Open { stream, .. } = &self.table(is_own)[at] else { return Ok(()) };
        let has_ended = self.act(record, stream).map_err(|violation| self.violated(violation))?;
        if record.kind == Kind::Credit && !has_ended {
            // CREDIT is the most frequent of the records that are no messages, and never makes
            // another record pending, so nothing else is to be done.
            return Ok(());
        }
        if has_ended {
            if is_own {
                self.own[at] = Slot::Never;
                self.shared.forget_own(record.stream);
            } else {
                self.theirs[at] = Slot::Ended;
            }
            return Ok(());
        }
        self.shared.send_pending(stream);
        if matches!(record.kind, Kind::CloseWrite | Kind::Reset) {
            // Mostly no further message arrives, so the driver forgets the receiver's waker. For a
            // message that does arrive, the driver clones it again.
            let Self { own, theirs, .. } = self;
            if let Slot::Open { receiver, .. } = if is_own { &mut own[at] } else { &mut theirs[at] }
            {
                *receiver = None;
            }
        }
        Ok(())
    }

    /// Applies a record to its stream. Returns whether the stream has ended.
    fn act(&self, record: &RecordHeader, stream: &StreamShared) -> Result<bool, Violation> {
        let number = record.stream;
        let mut state = stream.lock();
        if state.lifecycle.has_ended() {
            return Ok(true);
        }
        let wakers = match record.kind {
            Kind::CloseWrite => {
                self.no_body(record)?;
                state.lifecycle.received_close_write(number)?;
                state.assembly = None;
                [stream.end_wait(&mut state), None]
            }
            Kind::End => {
                self.no_body(record)?;
                state.lifecycle.received_end(number)?;
                [None, None]
            }
            Kind::Reset => {
                let body = self.body(record)?;
                let body = ResetBody::read(record, &body[..record.len as usize])?;
                let (code, directions) = (body.code.get(), body.directions.get());
                state.lifecycle.received_reset(number, code, directions)?;
                if state.lifecycle.sending() != Sending::Open {
                    stream.note_sending_over();
                }
                if state.lifecycle.receiving() != Receiving::Open {
                    state.assembly = None;
                }
                [stream.end_wait(&mut state), state.sender.take()]
            }
            Kind::Credit => {
                let body = self.body(record)?;
                let body = CreditBody::read(record, &body[..record.len as usize])?;
                state.received_credit(number, body.credited.get())?;
                [None, state.sender.take()]
            }
            _ => [self.assemble(record, stream, &mut state)?, None],
        };
        let has_ended = state.lifecycle.has_ended();
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
        Ok(has_ended)
    }

    /// Adds a fragment to the message that is being assembled from fragments (SPEC 5.5).
    fn assemble(
        &self,
        record: &RecordHeader,
        stream: &StreamShared,
        state: &mut StreamState,
    ) -> Result<Option<Waker>, Violation> {
        let bad = |what| Violation::Fragment { position: record.position.0, what };
        let mut from = 0;
        match record.kind {
            Kind::FragmentFirst => {
                if state.assembly.is_some() {
                    return Err(bad("begins a message within another"));
                }
                let total = self.total(record)?;
                let whole = usize::try_from(total).unwrap_or(usize::MAX);
                if state.received_message(record.stream, cost(whole))? == Arrival::Drop {
                    return Ok(None);
                }
                state.assembly = Some(Box::new(Assembly::begin(total)));
                from = TOTAL_BYTES;
            }
            Kind::FragmentAbort => {
                self.no_body(record)?;
                if state.is_dropping(record.stream)? {
                    return Ok(None);
                }
                let aborted = state.assembly.take().ok_or_else(|| bad("ends no message"))?;
                let whole = usize::try_from(aborted.total()).unwrap_or(usize::MAX);
                state.credit_pending |= state.recv_credit.took(cost(whole));
                return Ok(None);
            }
            Kind::FragmentMid | Kind::FragmentLast => {
                if state.is_dropping(record.stream)? {
                    return Ok(None);
                }
            }
            other => {
                let (position, kind) = (record.position.0, other as u8);
                return Err(Violation::Unexpected { position, kind });
            }
        }
        let assembly = state.assembly.as_mut().ok_or_else(|| bad("continues no message"))?;
        let room = assembly.extend(record.len as usize - from);
        let room = room.ok_or_else(|| bad("exceeds the announced length"))?;
        self.wire.body(record, from, room);
        if record.kind != Kind::FragmentLast {
            return Ok(None);
        }
        let whole = state.assembly.take().and_then(|assembly| assembly.finish());
        let bytes = whole.ok_or_else(|| bad("ends before the announced length"))?;
        state.queue.push_back(Message::from_vec(bytes));
        Ok(stream.end_wait(state))
    }

    /// Returns the total length of the message that a first fragment announces.
    fn total(&self, record: &RecordHeader) -> Result<u64, Violation> {
        let mut total = [0; TOTAL_BYTES];
        if (record.len as usize) < total.len() {
            let (position, found) = (record.position.0, record.len.into());
            return Err(Violation::Body { position, what: "length of a first part", found });
        }
        self.wire.body(record, 0, &mut total);
        let (len, max) = (u64::from_le_bytes(total), self.message_max);
        if len > max {
            return Err(Violation::MessageLength { len, max });
        }
        Ok(len)
    }

    /// Applies an OPEN record: puts the stream that the peer opens into the driver's table, and
    /// offers the stream to `accept`.
    fn open(&mut self, record: &RecordHeader) -> Result<(), SessionError> {
        let number = record.stream;
        let bad = |what| Violation::Stream { stream: number, what };
        let (at, by_acceptor) = index(number).unwrap_or_default();
        if by_acceptor == self.shared.is_acceptor {
            return Err(self.violated(bad("is opened by the wrong side")));
        }
        if at >= self.shared.terms.accepts_max {
            return Err(self.violated(bad("is beyond the most streams agreed")));
        }
        let at = at as usize;
        if self.theirs.get(at).is_some_and(Slot::is_live) {
            return Err(self.violated(bad("is opened twice")));
        }
        let metadata = if self.shared.is_foreign {
            // Another protocol has no OPEN record and no metadata, so the metadata is empty.
            Box::default()
        } else {
            let len = OpenHead::metadata_len(record);
            let len = len.map_err(|violation| self.violated(violation))?;
            let mut metadata = vec![0; len].into_boxed_slice();
            self.wire.body(record, size_of::<OpenHead>(), &mut metadata);
            metadata
        };
        let stream = Arc::new(self.shared.stream(number, false, metadata));
        if at >= self.theirs.len() {
            self.theirs.resize_with(at + 1, Slot::default);
        }
        self.theirs[at] = Slot::open(Arc::clone(&stream));
        self.shared.received_open(&stream);
        Ok(())
    }

    /// Handles a record of the session itself: PING or GO_AWAY.
    fn act_on_session(&self, record: &RecordHeader) -> Result<(), SessionError> {
        if matches!(
            record.kind,
            Kind::FragmentFirst | Kind::FragmentMid | Kind::FragmentLast | Kind::FragmentAbort
        ) {
            let what = "is the session's own and carries a message";
            return Err(self.violated(Violation::Stream { stream: SESSION, what }));
        }
        if !matches!(record.kind, Kind::GoAway | Kind::Ping) {
            let (position, kind) = (record.position.0, record.kind as u8);
            return Err(self.violated(Violation::Unexpected { position, kind }));
        }
        let received = if record.kind == Kind::GoAway {
            self.received_go_away(record)
        } else {
            self.body(record).and_then(|body| {
                let ping = PingBody::read(record, &body[..record.len as usize])?;
                self.received_ping(&ping);
                Ok(())
            })
        };
        received.map_err(|violation| self.violated(violation))
    }

    fn received_go_away(&self, record: &RecordHeader) -> Result<(), Violation> {
        let mut body = [0; size_of::<GoAwayBody>() + REASON_BYTES_MAX];
        let Some(body) = body.get_mut(..record.len as usize) else {
            let (position, found) = (record.position.0, record.len.into());
            return Err(Violation::Body { position, what: "body length", found });
        };
        self.wire.body(record, 0, body);
        let (go_away, reason) = GoAwayBody::read(record, body)?;
        if go_away.is_closing() {
            self.shared.received_farewell(go_away.code.get(), reason);
        } else {
            self.shared.received_go_away(go_away.code.get());
        }
        Ok(())
    }

    fn received_ping(&self, ping: &PingBody) {
        let token = ping.token.get();
        if ping.answer.get() == ANSWER {
            self.shared.received_answer(token);
            return;
        }
        let mut outbox = self.shared.outbox();
        outbox.pong = Some(token);
        let flushed = outbox.flush();
        self.shared.leave_outbox(outbox);
        self.shared.settle(flushed);
    }

    /// Finds the entry of a stream in the driver's tables, by the stream's number. A number that
    /// was never opened is a violation.
    #[inline]
    fn locate(&mut self, number: u32) -> Result<(bool, usize), SessionError> {
        let Some((at, by_acceptor)) = index(number) else {
            let what = "is the session's own and carries a message";
            return Err(self.violated(Violation::Stream { stream: number, what }));
        };
        let (at, is_own) = (at as usize, by_acceptor == self.shared.is_acceptor);
        if is_own && !matches!(self.own.get(at), Some(Slot::Open { .. })) {
            self.add_fresh();
        }
        match self.table(is_own).get(at) {
            Some(Slot::Open { .. } | Slot::Ended) => Ok((is_own, at)),
            Some(Slot::Never) | None => {
                let what = "comes without being open";
                Err(self.violated(Violation::Stream { stream: number, what }))
            }
        }
    }

    #[inline]
    fn table(&self, is_own: bool) -> &[Slot] {
        if is_own { &self.own } else { &self.theirs }
    }

    /// Adds the streams that this side opened since the last call to the driver's table of streams.
    fn add_fresh(&mut self) {
        let fresh = self.shared.take_fresh();
        for stream in fresh {
            let at = index(stream.number).map_or(0, |(at, _)| at as usize);
            if at >= self.own.len() {
                self.own.resize_with(at + 1, Slot::default);
            }
            self.own[at] = Slot::open(stream);
        }
    }

    fn no_body(&self, record: &RecordHeader) -> Result<(), Violation> {
        if record.len == 0 {
            return Ok(());
        }
        let (position, found) = (record.position.0, record.len.into());
        Err(Violation::Body { position, what: "body where none may be", found })
    }

    /// Copies the body of a short record into private memory, where the peer cannot change it.
    fn body(&self, record: &RecordHeader) -> Result<[u8; BODY_BYTES_MAX], Violation> {
        let mut body = [0; BODY_BYTES_MAX];
        let Some(place) = body.get_mut(..record.len as usize) else {
            let (position, found) = (record.position.0, record.len.into());
            return Err(Violation::Body { position, what: "body length", found });
        };
        self.wire.body(record, 0, place);
        Ok(body)
    }

    #[cold]
    fn violated(&self, violation: Violation) -> SessionError {
        violated(&self.wire, violation)
    }
}

/// Ends the connection because the peer has broken a rule. Returns the reason for the end of the
/// session.
#[cold]
fn violated(wire: &AnyReceiver, violation: Violation) -> SessionError {
    SessionError::from(wire.violated(violation))
}

impl StreamState {
    /// Checks the stream's state and credit when the first bytes of a message arrive. Returns
    /// whether to keep the message.
    #[inline]
    fn received_message(&mut self, number: u32, cost: u64) -> Result<Arrival, Violation> {
        let arrival = self.lifecycle.received_message(number)?;
        if arrival == Arrival::Keep {
            if self.assembly.is_some() {
                let what = "carries a message within another";
                return Err(Violation::Stream { stream: number, what });
            }
            self.recv_credit.arrived(number, cost)?;
        }
        Ok(arrival)
    }

    /// Handles CREDIT: the cost of all messages of this side that the peer's application has taken.
    fn received_credit(&mut self, number: u32, credited: u64) -> Result<(), Violation> {
        if matches!(self.lifecycle.sending(), Sending::Stopped(_)) {
            let what = "is credited after it was stopped";
            return Err(Violation::Stream { stream: number, what });
        }
        self.send_credit.received(number, credited)
    }

    /// Whether this side discards fragments of the stream, because it has stopped receiving on the
    /// stream.
    fn is_dropping(&self, number: u32) -> Result<bool, Violation> {
        Ok(self.lifecycle.received_message(number)? == Arrival::Drop)
    }
}
