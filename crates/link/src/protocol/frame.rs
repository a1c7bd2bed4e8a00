// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the two ends of a link say to each other, in the terms of `partywall_reconcile` (SPEC 12.2, 15).
//!
//! ```text
//!  client                                    server
//!  Attach ─────────────────────────────────▶
//!         ◀───────────── Attached, or Refuse
//!  Share?, Confirm ────────────────────────▶
//!         ◀──────────────────────────  Begin
//!  records, Ack, Leave ◀───────────────────▶ records, Ack, Leave
//! ```
//!
//! Records are not here: their bytes are those of the ring, see `record.rs` of the layout. How frames are written and
//! read is in `codec.rs`.

use std::fmt;

use partywall_reconcile::attach::Nonce;
use partywall_reconcile::{
    ConnectionNumber, Decision, Identity, Incarnation, Past, Position, ReceiverView, SenderView,
    StreamId,
};

/// A frame that is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A client asks.
    Attach {
        /// Who it is, and where it is.
        attach: Attach,
        /// Which link it means.
        names: Names,
        /// For the server's application.
        login: Vec<u8>,
    },
    /// A server answers.
    Attached {
        /// Who it is, and where it is.
        attach: Attach,
        /// The client's nonce.
        echo: Nonce,
        /// About the server's records.
        decision: Decision,
        /// For the client's application.
        login: Vec<u8>,
    },
    /// Not so, or not any more. It ends the connection.
    Refuse {
        /// The other side's nonce.
        echo: Nonce,
        /// Why.
        refusal: Refusal,
    },
    /// The client has taken the server's decision, and has read its nonce.
    Confirm {
        /// The server's nonce.
        echo: Nonce,
        /// About the client's records.
        decision: Decision,
        /// From here on `ack_pos` of the client's records is of the stream that is now consumed.
        tail: Position,
    },
    /// The server has taken the client's decision.
    Begin {
        /// What the server consumes.
        stream: Option<StreamId>,
        /// Up to where.
        consumed: Position,
        /// As in `Confirm`, of the server's records.
        tail: Position,
    },
    /// Consumed and committed.
    Ack {
        /// Which stream.
        stream: StreamId,
        /// Up to where.
        consumed: Position,
    },
    /// The side closes its end for now; both keep all that is not yet consumed.
    Leave,
    /// The client has mapped what the server shares: no record goes over this socket.
    Share,
}

/// What a side tells of itself when it attaches. Its views are of the epoch of its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// By chance, for this connection.
    pub nonce: Nonce,
    /// Which side this is.
    pub identity: Identity,
    /// Its own stream.
    pub sending: SenderView,
    /// What it has of the neighbour's.
    pub receiving: ReceiverView,
    /// How it left the last epoch.
    pub past: Option<Past>,
    /// The most that it may have under way.
    pub window: Window,
    /// It shares its memory: descriptors come with the first byte of the frame.
    pub shares: bool,
}

/// How much a sender can have sent that is not yet consumed, and so what its receiver may have to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Bytes of its ring.
    pub ring_bytes: u64,
    /// Bytes of its slab, and so of its largest message.
    pub slab_bytes: u64,
}

/// The three names of a link as its client says them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The client's own.
    pub client: String,
    /// Whom it wants to reach.
    pub server: String,
    /// Which of the links between the two.
    pub link: String,
}

/// Why an end does not attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not newer than the connection that there is, which has this generation.
    Stale(ConnectionNumber),
    /// A later owner, of this number, was here.
    Fenced(Incarnation),
    /// It keeps all bytes until a person decides.
    Quarantined,
    /// The server has another name, or has no such link.
    Unknown(String),
    /// The server's application said no, in these words.
    Rejected(String),
    /// The window of the other side is larger than this side will hold, in these words.
    TooLarge(String),
    /// The server is about to end, or has no room for one more connection.
    Busy(String),
    /// No version in common: it speaks these, the oldest first.
    Version(u16, u16),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(connection_number) => {
                write!(f, "there is a connection that is as new or newer, of generation {}", connection_number.0)
            }
            Self::Fenced(incarnation) => write!(
                f,
                "a later owner of this end, of incarnation {}, was there: this one takes no more part",
                incarnation.0
            ),
            Self::Quarantined => f.write_str(
                "the link is in quarantine: look at both ends with `partywall link inspect`, then adopt or reset one",
            ),
            Self::Unknown(words) | Self::Rejected(words) | Self::TooLarge(words) | Self::Busy(words) => {
                f.write_str(words)
            }
            Self::Version(min, max) => write!(f, "it speaks versions {min} to {max} of the protocol of links"),
        }
    }
}
