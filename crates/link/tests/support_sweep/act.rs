// SPDX-License-Identifier: MIT OR Apache-2.0
//! The act of a worker that is stepped, the state before it, and the states that may be found after
//! its death.
//!
//! ```text
//!   script ── before ──▶ act ── instruction by instruction ──▶ after
//!                         └─ killed: `before` or `after`, nothing else, and never `before` again
//! ```

use partywall_testkit::variable;
use std::fmt;

/// One act of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A message that fits into the ring.
    Send,
    /// One that lies in the slab.
    SendLong,
    /// Three at once, one of them in the slab.
    Batch,
    /// Two of three messages that came.
    Commit,
    /// Takes a message from the socket and commits it.
    Receive,
    /// The same, of a message that is read where it lies.
    Read,
    /// A request is consumed and answered.
    Reply,
    /// A message that does not fit before the end of the ring, over acknowledged messages.
    Wrap,
    /// An acknowledgement comes, and the next message takes the room.
    Acknowledged,
    /// The file is made, a message sent and the first connection attached.
    Create,
    /// A client whose owner before was killed opens its file, attaches and sends.
    Attach,
    /// The worker is a server.
    Serve,
    /// A new epoch, with messages left behind in both directions.
    Begin,
}

/// Before the act, as both sides play it.
#[derive(Clone, Copy, Debug)]
pub enum Line {
    Worker(u64, Liveness),
    Peer(u64, Liveness),
}

/// The fate of a message of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Committed, and its sender knows.
    Consumed,
    /// Committed; the acknowledgement is under way.
    Unheard,
    /// Handed to the application, which has not committed it.
    Handed,
    /// It was not received.
    Kept,
}

/// The state that new owners find, or should find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub epoch: u64,
    /// Which messages come to the peer, which to the worker.
    pub to_peer: Vec<u64>,
    pub to_worker: Vec<u64>,
    /// Something was left behind, and the worker's end says so.
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

    /// All, or the one that the environment names.
    pub fn chosen() -> Vec<Self> {
        let name = variable("PARTYWALL_SWEEP_ACT");
        name.map_or(Self::ALL.to_vec(), |name| vec![Self::from_name(&name)])
    }

    /// The worker listens, and the peer connects.
    pub fn is_served(self) -> bool {
        self == Self::Serve
    }

    /// The act begins before the link is open, and needs the peer to answer.
    pub fn opens(self) -> bool {
        matches!(self, Self::Create | Self::Attach | Self::Serve)
    }

    /// An owner plays the script, and is killed before the act.
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

    /// Messages that the worker sends in the act.
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

    /// The state if the act did not happen.
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

    /// The state if the act happened.
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

    /// Further states if the peer lives: it may acknowledge received messages before it learns of a
    /// new epoch.
    pub fn after_consumed(self) -> Option<View> {
        let before = self.before();
        (self == Self::Begin).then(|| View { epoch: 1, to_peer: before.to_peer, ..View::default() })
    }

    /// The attempts that a message for the worker may say: at least, and at most.
    pub fn attempts(self, number: u64) -> (u32, u32) {
        let is_handed =
            |line: &Line| matches!(line, Line::Peer(of, Liveness::Handed) if *of == number);
        match self {
            // Killed while it opens: it may have counted the owner before, and not yet forgotten
            // what that one noted. Once too often is meant to be possible, not at all is not.
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

/// How long each message is.
pub const fn length(number: u64) -> usize {
    match number {
        0 | LAST_OF_WORKER | LAST_OF_PEER => 8,
        // Five of these and a shorter one, and another does not fit before the end of the ring.
        11..16 | 17 => 600,
        16 => 300,
        21 => 50,
        22 => 2000,
        23 => 200,
        31 => 3000,
        _ => 100,
    }
}

/// The last messages of both sides, after a death.
pub const LAST_OF_WORKER: u64 = 90;
pub const LAST_OF_PEER: u64 = 190;
