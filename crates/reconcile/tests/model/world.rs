// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two sides, their files, their processes and the network between them.
//!
//! ```text
//!   sides[0] client   file ─ life?          connections: a queue to each side, first in first out
//!   sides[1] server   file ─ life?          cut: sent frames are lost, those under way may arrive
//! ```
//!
//! Positions count records. Numbers that would be random (nonces, streams, stores) are counted.

use partywall_reconcile::attach::Nonce;
use partywall_reconcile::{
    AckedOffset, ConnectionNumber, Decision, Identity, Incarnation, Incoming, Past, Peer, Position,
    Present, ReceiverView, SenderView, Skip, StreamId,
};

use crate::bounds::Bounds;
use crate::file::{File, Record};

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

/// A frame on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    Attach(Attach),
    Attached {
        attach: Attach,
        echo: Nonce,
        decision: Decision,
    },
    Refuse {
        echo: Nonce,
        reason: Reason,
    },
    /// From `fresh_from` on, `ack_pos` is of the stream that is now consumed.
    Confirm {
        echo: Nonce,
        decision: Decision,
        fresh_from: Position,
    },
    Begin {
        stream: Option<StreamId>,
        consumed: Position,
        fresh_from: Position,
    },
    Record {
        stream: StreamId,
        record: Record,
    },
    Ack {
        stream: StreamId,
        consumed: Position,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attach {
    pub nonce: Nonce,
    pub identity: Identity,
    pub sending: SenderView,
    pub receiving: ReceiverView,
    pub past: Option<Past>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    Stale(ConnectionNumber),
    Fenced(Incarnation),
    Quarantined,
}

/// The state of a handshake on one side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Shake {
    None,
    /// Client: sent ATTACH with this view.
    Asked(ReceiverView),
    /// Server: answered this, with its own view and decision.
    Answered(Box<(Attach, ReceiverView, Decision)>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    pub connection_number: ConnectionNumber,
    pub shm: bool,
    pub replayed: bool,
    pub cut: bool,
    /// Whether the side has the connection open.
    pub open: [bool; 2],
    /// The frames under way to the side.
    pub queue: [Vec<Frame>; 2],
    pub shake: [Shake; 2],
    /// The frames that the client has sent, to be replayed.
    pub history: Vec<Frame>,
}

/// A process that owns a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    pub connection_number: ConnectionNumber,
    pub present: Present,
    pub attaching: Option<usize>,
    pub active: Option<usize>,
    pub peer: Option<Peer>,
    pub acked_offset: Option<AckedOffset>,
    pub incoming: Incoming,
    pub buffer: Vec<Record>,
    /// Next record to go on the active connection.
    pub next: Position,
    /// How far was acknowledged on it.
    pub acked: Position,
    /// From here on the peer's `ack_pos` is of our stream.
    pub acks_from: Position,
    pub fresh_from: Position,
    /// A skip that was decided here and may not be applied yet.
    pub decided: Option<Skip>,
    pub replying: bool,
    /// Reports that are not stored yet; there are some only with a fault.
    pub unstored: Vec<partywall_reconcile::Report>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Side {
    pub file: File,
    pub copy: Option<Box<File>>,
    pub life: Option<Life>,
    pub fenced: bool,
    /// Its file was lost, or replaced by an older copy.
    pub damaged: bool,
}

/// A world whose safeguards are as `bounds` says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub sides: [Side; 2],
    pub links: Vec<Link>,
    pub left: Left,
    pub numbers: u32,
    pub streams: u64,
    pub stores: u128,
    /// A side saw a frame that an honest peer never sends.
    pub violated: bool,
    /// A connection was confirmed that is only a replay, or that is older than another.
    pub usurped: bool,
}

/// The steps that may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    pub messages: [u8; 2],
    pub replies: [u8; 2],
    pub connections: u8,
    pub switches: u8,
    pub cuts: u8,
    pub replays: u8,
    pub crashes: [u8; 2],
    pub losses: [u8; 2],
    pub rollbacks: [u8; 2],
    pub epochs: [u8; 2],
}

impl Life {
    pub fn of(file: &File, acked_offset: Option<AckedOffset>) -> Self {
        let at = acked_offset.map_or(Position::START, |acked_offset| acked_offset.position);
        Self {
            connection_number: ConnectionNumber(0),
            present: None,
            attaching: None,
            active: None,
            peer: None,
            acked_offset,
            incoming: Incoming::at(at),
            buffer: Vec::new(),
            next: file.out.base(),
            acked: at,
            acks_from: Position::START,
            fresh_from: Position::START,
            decided: None,
            replying: false,
            unstored: Vec::new(),
        }
    }

    pub fn consumed(&self) -> Position {
        self.incoming.consumed()
    }
}

impl Side {
    fn new(store_id: u128, stream: u64) -> Self {
        let file = File::new(store_id, 1, stream);
        let life = Some(Life::of(&file, None));
        Self { file, copy: None, life, fenced: false, damaged: false }
    }

    /// How far it acknowledged, as its process or, without one, its file says.
    pub fn acked_offset(&self) -> Option<AckedOffset> {
        self.life.as_ref().map_or_else(|| self.file.recovered(), |life| life.acked_offset)
    }
}

impl World {
    pub fn new(bounds: &Bounds) -> Self {
        let left = Left {
            messages: bounds.messages,
            replies: bounds.replies,
            connections: bounds.connections,
            switches: bounds.switches,
            cuts: bounds.cuts,
            replays: bounds.replays,
            crashes: bounds.crashes,
            losses: bounds.losses,
            rollbacks: bounds.rollbacks,
            epochs: bounds.epochs,
        };
        Self {
            sides: [Side::new(1, 1), Side::new(2, 2)],
            links: Vec::new(),
            left,
            numbers: 0,
            streams: 2,
            stores: 2,
            violated: false,
            usurped: false,
        }
    }

    pub fn stream(&mut self) -> u64 {
        self.streams += 1;
        self.streams
    }

    pub fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// Sends a frame from `side`, unless the network is cut.
    pub fn push(&mut self, link: usize, from: usize, frame: Frame) {
        let link = &mut self.links[link];
        if link.cut {
            return;
        }
        if from == CLIENT && self.left.replays > 0 {
            link.history.push(frame.clone());
        }
        if link.open[1 - from] {
            link.queue[1 - from].push(frame);
        }
    }

    /// `side` no longer has the connection.
    pub fn close(&mut self, link: usize, side: usize) {
        let connection = &mut self.links[link];
        connection.open[side] = false;
        connection.queue[side].clear();
        connection.shake[side] = Shake::None;
        if let Some(life) = &mut self.sides[side].life {
            if life.active == Some(link) {
                life.active = None;
                life.decided = None;
            }
            if life.attaching == Some(link) {
                life.attaching = None;
            }
        }
        let keeps = self.left.replays > 0;
        let connection = &mut self.links[link];
        if connection.open == [false, false] {
            connection.cut = true;
            if !keeps {
                connection.history.clear();
            }
        }
    }

    /// The active connection of a side, if both sides have it and take it for theirs.
    pub fn attached(&self) -> Option<usize> {
        let [client, server] = &self.sides;
        let link = client.life.as_ref()?.active?;
        let both = server.life.as_ref()?.active == Some(link);
        (both && !self.links[link].cut).then_some(link)
    }
}
