// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one owner of a link knows, and no later one will.

use std::collections::VecDeque;

use partywall_reconcile::{ConnectionNumber, Peer, Position, Present, Skip, StreamId};

use super::conn::{ConnId, End};
use crate::event::Event;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// The client's last connection; a server learns it from its client.
    pub(super) connection_number: ConnectionNumber,
    /// Whom the server has its present connection with.
    pub(super) present: Present,
    /// The present connection; nothing but it moves `acked` and `received`.
    pub(super) active: Option<ConnId>,
    /// The owner at the other end of the last one: what it said may be gone on with.
    pub(super) peer: Option<Peer>,
    /// How far was acknowledged on the present connection.
    pub(super) told: Position,
    /// What the open batch will have told once it is published.
    pub(super) to_be_told: Option<Position>,
    /// From here on `ack_pos` of the neighbour's records is of our stream; nothing is before it has said so.
    pub(super) acks_from: Option<Position>,
    /// From here on our own records say what the present connection consumes.
    pub(super) fresh_from: Position,
    /// A skip that was decided here and is not yet known to be applied.
    pub(super) decided: Option<Skip>,
    /// Replaced by a later owner: this one attaches no more.
    pub(super) is_fenced: bool,
    /// How many connections there were; the next one's number.
    pub(super) connections: u64,
    /// What the neighbour's application said at login.
    pub(super) login: Vec<u8>,
    /// End of what was received when the peer closed its end in good order, until the application learns of it.
    pub(super) finished_at: Option<(Option<StreamId>, Position)>,
    /// For the application.
    pub(super) events: VecDeque<Event>,
    /// Events that found no room.
    pub(super) events_dropped: u64,
}

impl Life {
    pub(super) fn next_id(&mut self) -> ConnId {
        self.connections += 1;
        ConnId(self.connections)
    }

    /// Tells the application, unless it takes no notice of a thousand others.
    pub(super) fn tell(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events_dropped += 1;
            return;
        }
        self.events.push_back(event);
    }

    /// The connection is over; the present one if it was that.
    pub(super) fn end(&mut self, id: ConnId, end: &End) {
        if self.active != Some(id) {
            return;
        }
        self.active = None;
        self.decided = None;
        self.acks_from = None;
        self.to_be_told = None;
        self.tell(Event::Detached { reason: end.to_string() });
    }
}

/// Events kept for an application that does not ask for them. Reports are not among these: the state keeps them.
const EVENTS_MAX: usize = 1024;
