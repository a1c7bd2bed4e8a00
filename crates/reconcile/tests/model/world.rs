// SPDX-License-Identifier: MIT OR Apache-2.0
//! The world of the model: two sides, their files, their processes, and the network between them.
//!
//! ```text
//!   sides[0]      the client: a file, and a process (`Life`) while one runs
//!   sides[1]      the server: a file, and a process (`Life`) while one runs
//!   a connection  a queue of frames to each side, first in, first out
//!   a cut         frames sent afterwards are lost; frames under way may still arrive
//! ```
//!
//! Positions count records. Numbers that are random in reality (nonces, stream ids, store ids) are
//! counted here.

use partywall_reconcile::attach::Nonce;
use partywall_reconcile::{
    AckedOffset, ConnectionNumber, Decision, Identity, Incarnation, Incoming, Past, Peer, Position,
    Present, ReceiverView, SenderView, Skip, StreamId,
};

use crate::bounds::Bounds;
use crate::file::{File, Record};

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

/// A frame on a connection of the model: of the handshake, a record, an ACK or a refusal.
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
    /// CONFIRM. In the client's records from `fresh_from` on, the acknowledged position `ack_pos`
    /// refers to the stream that the client now consumes.
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

/// The state of a connection's handshake on one side of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Shake {
    None,
    /// The client has sent ATTACH with this view.
    Asked(ReceiverView),
    /// The server has answered this ATTACH with this view and this decision how the stream to the
    /// client resumes.
    Answered(Box<(Attach, ReceiverView, Decision)>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    pub connection_number: ConnectionNumber,
    pub shm: bool,
    pub replayed: bool,
    pub cut: bool,
    /// For each side, whether that side has the connection open.
    pub open: [bool; 2],
    /// For each side, the frames under way to that side.
    pub queue: [Vec<Frame>; 2],
    pub shake: [Shake; 2],
    /// The frames that the client has sent, which an attacker may replay.
    pub history: Vec<Frame>,
}

/// A process that owns a file, with the state that dies with the process.
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
    /// The position of the next record that this side sends on the active connection.
    pub next: Position,
    /// The position up to which this side has sent acknowledgements on the active connection.
    pub acked: Position,
    /// In the peer's records from this position on, the acknowledged position `ack_pos` refers to
    /// the stream that this side sends now.
    pub acks_from: Position,
    pub fresh_from: Position,
    /// A skip that this side decided as a sender, and that the peer may not have applied.
    pub decided: Option<Skip>,
    pub replying: bool,
    /// Reports that this process has not yet stored in its file. There are some only with the fault
    /// `ReportLater`: reports are stored later than the changes that they report.
    pub unstored: Vec<partywall_reconcile::Report>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Side {
    pub file: File,
    pub copy: Option<Box<File>>,
    pub life: Option<Life>,
    pub fenced: bool,
    /// Whether the side's file was lost, or replaced by an older copy.
    pub damaged: bool,
}

/// A state of the model: both sides and the network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub sides: [Side; 2],
    pub links: Vec<Link>,
    pub left: Left,
    pub numbers: u32,
    pub streams: u64,
    pub stores: u128,
    /// Whether a side has read a frame that a peer which follows the protocol never sends.
    pub violated: bool,
    /// Whether the server replaced its present connection by a mere replay, or by an older
    /// connection.
    pub usurped: bool,
}

/// How many events of each kind may still happen within the bounds of the exploration.
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

    /// The acked offset of this side: from its process if one runs, otherwise from its file.
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

    /// Sends a frame from `side`; the frame is lost if the network is cut.
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

    /// Returns the number of the active connection, if the client and the server consider the same
    /// connection attached.
    pub fn attached(&self) -> Option<usize> {
        let [client, server] = &self.sides;
        let link = client.life.as_ref()?.active?;
        let both = server.life.as_ref()?.active == Some(link);
        (both && !self.links[link].cut).then_some(link)
    }
}
