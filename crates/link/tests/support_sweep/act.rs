// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tested operations on a link (acts). The test single-steps a worker process through an act,
//! and kills it. Before the act, both ends of the link exchange fixed messages, the act's script.
//! This module names the state before each act, and the states that may be found after the worker's
//! death.
//!
//! ```text
//!   script ── before ──▶ act ── instruction by instruction ──▶ after
//!                         └─ the worker is killed: new owners find `before` or `after`,
//!                            and `after` at each instruction behind one that gave `after`
//! ```

use partywall_testkit::variable;
use std::fmt;

/// A tested operation on a link. The worker process makes it, while the test single-steps the
/// worker and kills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The worker process sends a message that fits into the ring.
    Send,
    /// The worker process sends a message whose bytes go into the slab.
    SendLong,
    /// The worker process sends three messages as a batch, one of them in the slab.
    Batch,
    /// The worker process acknowledges two of the three messages that it has received.
    Commit,
    /// The worker process receives a message from the socket, and acknowledges it.
    Receive,
    /// The worker process receives a message by reading it in place, which acknowledges it.
    Read,
    /// The worker process acknowledges a request and sends the reply.
    Reply,
    /// The worker process sends a message that does not fit before the end of the ring, and so
    /// overwrites acknowledged messages.
    Wrap,
    /// The worker process receives an acknowledgement, and sends a message into the room that the
    /// acknowledgement freed.
    Acknowledged,
    /// The worker process creates its link file, sends a message and attaches the first connection.
    Create,
    /// The worker process is a client whose previous owner was killed: it opens the link file,
    /// attaches and sends.
    Attach,
    /// The worker process is a server whose previous owner was killed: it opens the link file,
    /// attaches and sends.
    Serve,
    /// The worker process begins a new epoch, which drops messages in both directions.
    Begin,
}

/// One message of the script: the messages that both ends exchange before the tested operation
/// begins. The variant says which end sends the message; the fields are its number and how far it
/// was delivered.
#[derive(Clone, Copy, Debug)]
pub enum Line {
    Worker(u64, Liveness),
    Peer(u64, Liveness),
}

/// How far a message of the script was delivered when the tested operation begins. The script is
/// the messages that both ends exchange before that operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The receiver has acknowledged the message, and the sender has received the acknowledgement.
    Consumed,
    /// The receiver has acknowledged the message, but the sender has not received the
    /// acknowledgement.
    Unheard,
    /// The message was delivered to the receiving application, which has not acknowledged it.
    Handed,
    /// The message was sent, but not received.
    Kept,
}

/// A view of the link after the worker's death: the messages and reports that the new owners of
/// both ends find, or are expected to find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub epoch: u64,
    /// The numbers of the messages that the peer will receive, and of those that the worker will
    /// receive.
    pub to_peer: Vec<u64>,
    pub to_worker: Vec<u64>,
    /// Whether the new owner of the worker's end finds a report that an epoch dropped messages
    /// which the worker had sent.
    pub is_reported: bool,
}

impl Act {
    pub const ALL: [Self; 13] = [
        Self::Send,
        Self::SendLong,
        Self::Batch,
        Self::Commit,
        Self::Receive,
        Self::Read,
        Self::Reply,
        Self::Wrap,
        Self::Acknowledged,
        Self::Create,
        Self::Attach,
        Self::Serve,
        Self::Begin,
    ];

    pub fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|act| act.to_string() == name).expect("a name of an act")
    }

    /// All tested operations, or the one that the environment variable `PARTYWALL_SWEEP_ACT` names.
    pub fn chosen() -> Vec<Self> {
        let name = variable("PARTYWALL_SWEEP_ACT");
        name.map_or(Self::ALL.to_vec(), |name| vec![Self::from_name(&name)])
    }

    /// Whether the worker, the process that is single-stepped and killed, is the server of the
    /// link; otherwise it is the client.
    pub fn is_served(self) -> bool {
        self == Self::Serve
    }

    /// Whether the worker opens its end of the link in this operation. The peer then has to make
    /// its part of the handshake while the worker is single-stepped.
    pub fn opens(self) -> bool {
        matches!(self, Self::Create | Self::Attach | Self::Serve)
    }

    /// Whether a process that was killed earlier owned the worker's link file. That process then
    /// exchanged the preceding messages, and the worker opens the file after it.
    pub fn has_past(self) -> bool {
        matches!(self, Self::Attach | Self::Serve)
    }

    pub fn script(self) -> Vec<Line> {
        use Line::{Peer, Worker};
        use Liveness::{Consumed, Handed, Kept, Unheard};
        let mut lines = vec![Worker(0, Consumed), Peer(100, Consumed)];
        match self {
            Self::Create => return Vec::new(),
            Self::Send | Self::SendLong | Self::Batch => lines.push(Worker(1, Kept)),
            Self::Commit => {
                lines.extend([Peer(101, Handed), Peer(102, Handed), Peer(103, Kept)]);
            }
            Self::Receive | Self::Read => lines.push(Peer(101, Kept)),
            Self::Reply => lines.push(Peer(101, Handed)),
            Self::Wrap => {
                lines.extend((11..16).map(|number| Worker(number, Consumed)));
                lines.push(Worker(16, Kept));
            }
            Self::Acknowledged => lines.extend([Worker(1, Unheard), Worker(2, Unheard)]),
            Self::Attach | Self::Serve => lines.extend([Worker(1, Kept), Peer(101, Handed)]),
            Self::Begin => lines.extend([Worker(1, Kept), Peer(101, Kept)]),
        }
        lines
    }

    pub fn sends(self) -> &'static [u64] {
        match self {
            Self::Send | Self::Reply | Self::Attach | Self::Serve => &[2],
            Self::SendLong => &[31],
            Self::Batch => &[21, 22, 23],
            Self::Wrap => &[17],
            Self::Acknowledged => &[3],
            Self::Create => &[0],
            Self::Commit | Self::Receive | Self::Read | Self::Begin => &[],
        }
    }

    /// The messages and reports that new owners of both ends are expected to find if this operation
    /// has not taken effect.
    pub fn before(self) -> View {
        let mut view = View::default();
        for line in self.script() {
            match line {
                Line::Worker(number, Liveness::Kept) => view.to_peer.push(number),
                Line::Peer(number, Liveness::Kept | Liveness::Handed) => {
                    view.to_worker.push(number)
                }
                _ => {}
            }
        }
        view
    }

    /// The messages and reports that new owners of both ends are expected to find if this operation
    /// has taken effect.
    pub fn after(self) -> View {
        let mut view = self.before();
        view.to_peer.extend(self.sends());
        match self {
            Self::Commit => drop(view.to_worker.drain(..2)),
            Self::Receive | Self::Read | Self::Reply => view.to_worker.clear(),
            Self::Begin => view = View { epoch: 1, is_reported: true, ..View::default() },
            _ => {}
        }
        view
    }

    /// Returns one more state that is allowed after this operation if only the worker dies. The
    /// worker begins an epoch, which drops messages. The living peer may acknowledge received
    /// messages before it learns of the epoch. Returns `None` if the operation begins no epoch.
    pub fn after_consumed(self) -> Option<View> {
        let before = self.before();
        (self == Self::Begin).then(|| View { epoch: 1, to_peer: before.to_peer, ..View::default() })
    }

    /// The lowest and the highest delivery count allowed for message `number`, when the new owner
    /// of the killed worker's link file receives it.
    pub fn attempts(self, number: u64) -> (u32, u32) {
        let is_handed =
            |line: &Line| matches!(line, Line::Peer(of, Liveness::Handed) if *of == number);
        match self {
            // A worker that is killed while it opens its link file may have counted the delivery by
            // the previous owner, without having erased the position up to which that owner
            // delivered. So the next owner may count one delivery twice, but none may be missed.
            _ if self.script().iter().any(is_handed) => (2, if self.opens() { 3 } else { 2 }),
            Self::Receive | Self::Read => (1, 2),
            _ => (1, 1),
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

pub const fn length(number: u64) -> usize {
    match number {
        0 | LAST_OF_WORKER | LAST_OF_PEER => 8,
        // The operation `Wrap` sends a message that does not fit before the end of the ring. After
        // five messages of 600 bytes and one of 300, another of 600 bytes does not fit.
        11..16 | 17 => 600,
        16 => 300,
        21 => 50,
        22 => 2000,
        23 => 200,
        31 => 3000,
        _ => 100,
    }
}

/// The numbers of the last messages: after the worker's death, the new owner of its end sends
/// message 90, and the peer sends message 190.
pub const LAST_OF_WORKER: u64 = 90;
pub const LAST_OF_PEER: u64 = 190;
