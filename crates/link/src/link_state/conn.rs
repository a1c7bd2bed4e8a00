// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is agreed and under way on one connection.
//!
//! ```text
//!  client:  Asked ── ATTACHED ──▶ Active                server:  Answered ── CONFIRM ──▶ Active
//!              └────── anything unfit ──────▶ Over                  └──── anything unfit ──▶ Over
//!
//!  out:  control frames, whole ─┐
//!        records, from a cursor ┴─ one after another; a frame waits until the record that was begun is out
//! ```

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use partywall_reconcile::attach::Nonce;
use partywall_reconcile::{ConnectionNumber, Decision, ReceiverView};

use super::arriving::Violation;
use crate::protocol::codec;
use crate::protocol::frame::{Attach, Frame, Refusal, Window};
use crate::retained::Unsent;
use crate::shown::{PeerMemory, Shown};

/// Which connection of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnId(pub u64);

/// One connection of a link, without its socket.
#[derive(Debug)]
pub(crate) struct Conn {
    id: ConnId,
    pub(super) connection_number: ConnectionNumber,
    /// What this side made by chance.
    pub(super) nonce: Nonce,
    pub(super) stage: Stage,
    /// The most the neighbour may have under way, once it has said so.
    pub(super) window: Option<Window>,
    /// Control frames that are not yet out.
    pub(super) control: Vec<u8>,
    /// Where in it the last frame begins, if that is an acknowledgement.
    pub(super) last_ack: Option<usize>,
    /// How much of `control` is out.
    pub(super) control_sent: usize,
    /// The records to go, while it is active.
    pub(super) cursor: Option<Unsent>,
    /// The record that was begun and the control frames go out, and nothing more.
    pub(super) is_leaving: bool,
    /// An acknowledgement is due, and may wait for a record that carries it.
    pub(super) is_ack_due: bool,
    /// ATTACH or ATTACHED says that descriptors come with it.
    pub(super) shows: bool,
    /// This memory, until the first byte goes out.
    pub(super) descriptor: Option<OwnedFd>,
    /// What the neighbour shows, not yet looked at.
    pub(super) shown: Option<Shown>,
    /// What it shows, found to be the memory it speaks of; the present connection's is the wall's.
    pub(super) peer_memory: Option<PeerMemory>,
    /// No record goes over the socket.
    pub(super) is_shared: bool,
}

/// How far the agreement is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Client: sent ATTACH with this view.
    Asked(ReceiverView),
    /// Server: answered.
    Answered(Box<Answered>),
    /// Records flow.
    Active,
    /// What is still in `control` goes out; nothing is read any more.
    Over,
}

/// What a server remembers until CONFIRM.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) attach: Attach,
    pub(super) given: ReceiverView,
    pub(super) decision: Decision,
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The neighbour refused, or this side did.
    Refused { by_us: bool, refusal: Refusal },
    /// One side went to the other's epoch: attach again.
    EpochAdopted,
    /// What was decided does not fit any more: attach again.
    Moved,
    /// It did not prove that it is alive on this connection.
    NotFresh,
    /// A newer connection has taken its place.
    Replaced,
    /// The views contradict each other: both sides keep all bytes.
    Quarantined,
    /// The neighbour closed its end.
    Left,
    /// The neighbour broke the rules.
    Violation(Violation),
    /// The network.
    Broken(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { by_us: false, refusal } => write!(f, "the peer refused: {refusal}"),
            Self::Refused { by_us: true, refusal } => write!(f, "the peer was refused: {refusal}"),
            Self::EpochAdopted => f.write_str("an epoch began"),
            Self::Moved => f.write_str(
                "an epoch began, or more was consumed, while the two agreed: they agree anew",
            ),
            Self::NotFresh => {
                f.write_str("the peer did not answer what was asked on this connection")
            }
            Self::Replaced => f.write_str("a newer connection took its place"),
            Self::Quarantined => f.write_str("the link is in quarantine"),
            Self::Left => f.write_str("the peer closed its end"),
            Self::Violation(violation) => write!(f, "the peer broke the rules: {violation}"),
            Self::Broken(words) => f.write_str(words),
        }
    }
}

impl Conn {
    pub(super) fn new(
        id: ConnId,
        connection_number: ConnectionNumber,
        nonce: Nonce,
        stage: Stage,
    ) -> Self {
        Self {
            id,
            connection_number,
            nonce,
            stage,
            window: None,
            control: Vec::new(),
            control_sent: 0,
            last_ack: None,
            cursor: None,
            is_leaving: false,
            is_ack_due: false,
            shows: false,
            descriptor: None,
            shown: None,
            peer_memory: None,
            is_shared: false,
        }
    }

    /// What has to go with the first byte, and the bell behind it.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// It cannot be sent: then the connection goes on over the socket.
    pub(crate) fn show_nothing(&mut self) {
        self.descriptor = None;
    }

    /// The server's memory came with the first byte of its answer: to be said before that is received.
    pub(crate) fn show(&mut self, shown: Shown) {
        self.shown = Some(shown);
    }

    /// Whether no record goes over the socket; final once it is active.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether control frames are not yet out.
    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        self.control_sent < self.control.len()
    }

    /// Which one.
    #[inline]
    pub(crate) fn id(&self) -> ConnId {
        self.id
    }

    /// The most the neighbour may have under way, once it has said so.
    pub(crate) fn window(&self) -> Option<Window> {
        self.window
    }

    /// Whether records flow.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Active)
    }

    /// Whether nothing more is to be read from it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Queues a frame.
    ///
    /// An acknowledgement that did not go yet gives way to the next: a neighbour that reads nothing makes nothing pile up.
    pub(super) fn say(&mut self, frame: &Frame) {
        let is_ack = matches!(frame, Frame::Ack { .. });
        match self.last_ack.filter(|at| is_ack && *at >= self.control_sent) {
            Some(at) => self.control.truncate(at),
            None => self.last_ack = is_ack.then_some(self.control.len()),
        }
        codec::encode(frame, &mut self.control);
    }

    pub(super) fn end(&mut self, end: End) -> End {
        self.stage = Stage::Over;
        if self.is_within_record() {
            // In the middle of a record nothing else can be said.
            self.control.clear();
            self.control_sent = 0;
            self.last_ack = None;
        }
        self.cursor = None;
        self.is_ack_due = false;
        self.shown = None;
        self.peer_memory = None;
        end
    }

    /// Whether the rest of a record is still to go.
    pub(super) fn is_within_record(&self) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| !cursor.is_at_start())
    }

    /// Where the first record goes from; `None` if none goes over the socket.
    pub(super) fn begin(&mut self, cursor: Option<Unsent>) {
        self.stage = Stage::Active;
        self.cursor = cursor;
    }
}
