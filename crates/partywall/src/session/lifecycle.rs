// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of one stream at one side: the states of its two directions, its pending control
//! records, and when its number is free again (SPEC 11.3, 11.5).
//!
//! ```text
//!   sending     Open ──finish─▶ Closed            receiving   Open ──CLOSE_WRITE──▶ Finished
//!                    ──reset──▶ Reset                              ──RESET {s}────▶ Reset(code)
//!                    ──RESET {r}▶ Stopped(code)                    ──stop─────────▶ Stopped
//!
//!   both over:  the answerer writes END and forgets the stream
//!               the opener waits for END; then the number is free
//!
//!   RESET {s} ends the direction in which the sender of this record sends messages,
//!   RESET {r} the direction in which it receives messages.
//! ```
//!
//! A pure state machine. Its inputs are calls of the application and received records. Its outputs
//! are pending records, one at a time, in an order that is valid for both sides. The tests visit
//! every state that two machines, joined by two queues of records, can reach.

use partywall_layout::Violation;
use partywall_layout::stream::{RECEIVING, SENDING};

/// State of the direction of a stream in which this side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sending {
    Open,
    /// The application has finished the direction. The record CLOSE_WRITE may not have been written
    /// yet.
    Closed,
    /// This side reset its sending direction.
    Reset,
    /// The peer stopped receiving, with the contained code.
    Stopped(u32),
}

/// State of the direction of a stream in which this side receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Receiving {
    Open,
    /// The peer finished its sending direction, and everything that it sent has arrived.
    Finished,
    /// The peer reset its sending direction, with the contained code.
    Reset(u32),
    /// The local application stopped receiving. `is_over_there` is whether the peer has ended its
    /// sending direction, too.
    Stopped {
        is_over_there: bool,
    },
}

/// Whether the session keeps or drops a message that arrived on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Keep,
    /// Drop the message: the peer sent it before it learned that this side stopped receiving.
    Drop,
}

/// A control record of a stream that is not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PendingControl {
    /// A FRAGMENT_ABORT record, because a message of which fragments were sent will not be
    /// completed.
    Abort,
    /// A RESET record. The first number is its code, and the second names the directions that it
    /// ends.
    Reset(u32, u32),
    CloseWrite,
    End,
}

/// One side's state of a stream. The fields that are read for every message come first, in one
/// cache line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct Lifecycle {
    receiving: Receiving,
    /// Whether the stream's END was written (at the answerer) or received (at the opener).
    has_ended: bool,
    is_opener: bool,
    abort_pending: bool,
    close_pending: bool,
    sending: Sending,
    /// Codes of the pending RESET records: `reset_pending` ends the sending direction,
    /// `stop_pending` the receiving direction.
    reset_pending: Option<u32>,
    stop_pending: Option<u32>,
}

impl Lifecycle {
    pub(crate) const fn new(is_opener: bool) -> Self {
        Self {
            is_opener,
            sending: Sending::Open,
            receiving: Receiving::Open,
            abort_pending: false,
            close_pending: false,
            reset_pending: None,
            stop_pending: None,
            has_ended: false,
        }
    }

    #[inline]
    pub(crate) const fn sending(&self) -> Sending {
        self.sending
    }

    #[inline]
    pub(crate) const fn receiving(&self) -> Receiving {
        self.receiving
    }

    /// Whether this side sends and receives no more records of the stream, because the stream has
    /// ended.
    pub(crate) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether this side may still send the record CREDIT for the stream.
    pub(crate) const fn wants_credit(&self) -> bool {
        matches!(self.receiving, Receiving::Open)
    }

    /// Applies the application's `finish`: the record CLOSE_WRITE becomes pending if the sending
    /// direction was open.
    pub(crate) fn finish(&mut self) {
        if self.sending == Sending::Open {
            self.sending = Sending::Closed;
            self.close_pending = true;
        }
    }

    /// Applies the application's `reset` of its sending direction: a RESET record with `code`
    /// becomes pending.
    pub(crate) fn reset(&mut self, code: u32) {
        if self.sending == Sending::Open {
            self.sending = Sending::Reset;
            self.reset_pending = Some(code);
            self.abort_pending = false;
        }
    }

    /// Applies the application's `stop` of its receiving direction: a RESET record with `code`
    /// becomes pending.
    pub(crate) fn stop(&mut self, code: u32) {
        if self.receiving == Receiving::Open {
            self.receiving = Receiving::Stopped { is_over_there: false };
            self.stop_pending = Some(code);
        }
    }

    /// Notes that a message of which some fragments were sent will not be completed: the record
    /// FRAGMENT_ABORT becomes pending.
    pub(crate) fn abort(&mut self) {
        if self.sending == Sending::Open {
            self.abort_pending = true;
        }
    }

    /// Whether the record FRAGMENT_ABORT must be written before the next message of the stream.
    #[cfg(test)]
    pub(crate) const fn abort_pending(&self) -> bool {
        self.abort_pending
    }

    /// Checks that a message, or its first fragment, may arrive in the present state of the stream.
    /// Returns whether to keep the message.
    #[inline]
    pub(crate) fn received_message(&self, stream: u32) -> Result<Arrival, Violation> {
        match self.receiving {
            Receiving::Open => Ok(Arrival::Keep),
            Receiving::Stopped { is_over_there: false } => Ok(Arrival::Drop),
            _ => Err(Violation::Stream { stream, what: "came after the end of its direction" }),
        }
    }

    /// Applies a CLOSE_WRITE record from the peer: the peer has finished its sending direction.
    pub(crate) fn received_close_write(&mut self, stream: u32) -> Result<(), Violation> {
        self.received_end_of_sending(stream, Receiving::Finished)
    }

    /// Applies a RESET record from the peer, which ends the directions that the record names.
    pub(crate) fn received_reset(
        &mut self,
        stream: u32,
        code: u32,
        directions: u32,
    ) -> Result<(), Violation> {
        if directions & SENDING != 0 {
            self.received_end_of_sending(stream, Receiving::Reset(code))?;
        }
        if directions & RECEIVING != 0 {
            if self.sending == Sending::Open {
                self.sending = Sending::Stopped(code);
            }
            // The peer receives no more of this stream, so records about the sending direction are
            // pointless.
            (self.close_pending, self.abort_pending, self.reset_pending) = (false, false, None);
        }
        Ok(())
    }

    fn received_end_of_sending(&mut self, stream: u32, how: Receiving) -> Result<(), Violation> {
        match &mut self.receiving {
            Receiving::Open => self.receiving = how,
            Receiving::Stopped { is_over_there: is_over @ false } => *is_over = true,
            _ => return Err(Violation::Stream { stream, what: "ends a direction twice" }),
        }
        // The peer has ended the direction, so this side need not ask the peer to stop sending.
        self.stop_pending = None;
        Ok(())
    }

    /// Applies an END record from the peer: the stream's number is free again.
    pub(crate) fn received_end(&mut self, stream: u32) -> Result<(), Violation> {
        if !self.is_opener {
            return Err(Violation::Stream { stream, what: "is ended by its opener" });
        }
        if self.sending == Sending::Open || self.receiving == Receiving::Open {
            return Err(Violation::Stream { stream, what: "is ended while it is open" });
        }
        (self.abort_pending, self.close_pending) = (false, false);
        (self.reset_pending, self.stop_pending) = (None, None);
        self.has_ended = true;
        Ok(())
    }

    /// Returns the next record that must be written for the stream, if any.
    pub(crate) fn pending(&self) -> Option<PendingControl> {
        if self.has_ended {
            return None;
        }
        if self.abort_pending {
            return Some(PendingControl::Abort);
        }
        match (self.reset_pending, self.stop_pending) {
            (Some(code), Some(stop)) if code == stop => {
                return Some(PendingControl::Reset(code, SENDING | RECEIVING));
            }
            (Some(code), _) => return Some(PendingControl::Reset(code, SENDING)),
            (None, Some(code)) => return Some(PendingControl::Reset(code, RECEIVING)),
            (None, None) => {}
        }
        if self.close_pending {
            return Some(PendingControl::CloseWrite);
        }
        let is_over = self.sending != Sending::Open && self.receiving != Receiving::Open;
        (!self.is_opener && is_over).then_some(PendingControl::End)
    }

    /// Notes that the caller has written the record that `pending` returned last.
    pub(crate) const fn wrote(&mut self, pending: PendingControl) {
        match pending {
            PendingControl::Abort => self.abort_pending = false,
            PendingControl::Reset(_, directions) => {
                if directions & SENDING != 0 {
                    self.reset_pending = None;
                }
                if directions & RECEIVING != 0 {
                    self.stop_pending = None;
                }
            }
            PendingControl::CloseWrite => self.close_pending = false,
            PendingControl::End => self.has_ended = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    /// A state that the test visits: the lifecycle of a stream at its opener and at its answerer,
    /// and the records on their way between the two.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct World {
        sides: [Lifecycle; 2],
        wires: [VecDeque<Said>; 2],
        messages_left: [u8; 2],
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    enum Said {
        Message,
        PendingControl(PendingControl),
    }

    impl World {
        fn new() -> Self {
            Self {
                sides: [Lifecycle::new(true), Lifecycle::new(false)],
                wires: [VecDeque::new(), VecDeque::new()],
                messages_left: [2, 1],
            }
        }

        /// Returns every state of a stream's two ends that one step of either end leads to.
        fn next(&self) -> Vec<Self> {
            let mut worlds = Vec::new();
            for side in 0..2 {
                let acts: [fn(&mut Lifecycle); 4] = [
                    Lifecycle::finish,
                    |side| side.reset(7),
                    |side| side.stop(7),
                    |side| side.stop(8),
                ];
                for act in acts {
                    let mut world = self.clone();
                    if !world.sides[side].has_ended() {
                        act(&mut world.sides[side]);
                    }
                    worlds.push(world);
                }
                worlds.extend(self.send(side));
                worlds.extend(self.send(side).map(|mut world| {
                    world.sides[side].abort();
                    world
                }));
                worlds.extend(self.write(side));
                worlds.extend(self.hear(side));
            }
            worlds
        }

        fn send(&self, side: usize) -> Option<Self> {
            let mut world = self.clone();
            let state = &world.sides[side];
            if state.sending() != Sending::Open || state.abort_pending() {
                return None;
            }
            world.messages_left[side] = world.messages_left[side].checked_sub(1)?;
            world.wires[side].push_back(Said::Message);
            Some(world)
        }

        fn write(&self, side: usize) -> Option<Self> {
            let mut world = self.clone();
            let pending = world.sides[side].pending()?;
            world.sides[side].wrote(pending);
            world.wires[side].push_back(Said::PendingControl(pending));
            Some(world)
        }

        fn hear(&self, side: usize) -> Option<Self> {
            let mut world = self.clone();
            let said = world.wires[1 - side].pop_front()?;
            let state = &mut world.sides[side];
            if state.has_ended() {
                // Only the answerer can receive records of the stream after END; the answerer drops
                // them.
                assert_eq!(side, 1, "{said:?} reached the opener after END");
                return Some(world);
            }
            let received = match said {
                Said::Message => state.received_message(1).map(|_| ()),
                Said::PendingControl(PendingControl::Abort) => Ok(()),
                Said::PendingControl(PendingControl::CloseWrite) => state.received_close_write(1),
                Said::PendingControl(PendingControl::Reset(code, directions)) => {
                    state.received_reset(1, code, directions)
                }
                Said::PendingControl(PendingControl::End) => state.received_end(1),
            };
            received.unwrap_or_else(|violation| panic!("an honest side was refused: {violation}"));
            Some(world)
        }
    }

    #[test]
    fn every_order_of_events_is_lawful_and_comes_to_an_end() {
        let mut seen = HashSet::new();
        let mut open = vec![World::new()];
        let mut ended = 0;
        while let Some(world) = open.pop() {
            if !seen.insert(world.clone()) {
                continue;
            }
            // Rule: once both sides have ended both directions, writing and receiving of records
            // alone must free the stream's number. No record of the stream may then be on its way
            // to the opener.
            let is_over = |side: &Lifecycle| {
                side.sending() != Sending::Open && side.receiving() != Receiving::Open
            };
            if world.sides.iter().all(is_over) {
                let mut rest = world.clone();
                while let Some(next) = rest
                    .write(0)
                    .or_else(|| rest.hear(1))
                    .or_else(|| rest.write(1))
                    .or_else(|| rest.hear(0))
                {
                    rest = next;
                }
                assert!(rest.sides.iter().all(Lifecycle::has_ended), "stuck: {:?}", rest.sides);
                assert!(rest.wires[1].is_empty());
                ended += 1;
            }
            open.extend(world.next());
        }
        assert!(seen.len() > 10_000 && ended > 1_000, "{} states, {ended} ended", seen.len());
    }

    #[test]
    fn impossible_records_are_refused() {
        let mut opener = Lifecycle::new(true);
        assert!(opener.received_end(1).is_err());
        opener.received_close_write(1).unwrap();
        assert!(opener.received_close_write(1).is_err());
        assert!(opener.received_message(1).is_err());
        assert!(opener.received_reset(1, 0, SENDING).is_err());
        let mut answerer = Lifecycle::new(false);
        answerer.finish();
        answerer.received_close_write(2).unwrap();
        assert!(answerer.received_end(2).is_err());
    }
}
