// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of a link, in the terms of `partywall_reconcile` (SPEC 12.2, 15).
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
//! Records are not here: their bytes are those of the ring, see `record.rs` of the layout.
//! `codec.rs` encodes and decodes frames.

use std::fmt;

use partywall_reconcile::attach::Nonce;
use partywall_reconcile::{
    ConnectionNumber, Decision, Identity, Incarnation, Past, Position, ReceiverView, SenderView,
    StreamId,
};

/// A control frame: everything on the socket of a link but records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A client asks to attach.
    Attach {
        /// The side that sends the frame.
        attach: Attach,
        /// The names of the link.
        names: Names,
        /// Data for the server's application.
        login: Vec<u8>,
    },
    /// A server accepts the client.
    Attached {
        /// The side that sends the frame.
        attach: Attach,
        /// The nonce of the client's ATTACH.
        echo: Nonce,
        /// About the server's records.
        decision: Decision,
        /// Data for the client's application.
        login: Vec<u8>,
    },
    /// A side refuses, or ends what it had accepted. It ends the connection.
    Refuse {
        /// The nonce of the peer's last frame.
        echo: Nonce,
        /// Why it refuses.
        refusal: Refusal,
    },
    /// The client has applied the server's decision, and has read its nonce.
    Confirm {
        /// The nonce of the server's ATTACHED.
        echo: Nonce,
        /// About the client's records.
        decision: Decision,
        /// From here on `ack_pos` of the client's records is of the stream that is now consumed.
        tail: Position,
    },
    /// The server has applied the client's decision.
    Begin {
        /// The stream that the server consumes.
        stream: Option<StreamId>,
        /// How far it has consumed.
        consumed: Position,
        /// As in `Confirm`, for the server's records.
        tail: Position,
    },
    /// Messages were consumed and acknowledged.
    Ack {
        /// The id of the stream.
        stream: StreamId,
        /// How far it is acknowledged.
        consumed: Position,
    },
    /// The side closes its end for now; both keep all that is not yet acknowledged.
    Leave,
    /// The client has mapped the server's memory: no record goes over this socket.
    Share,
}

/// A side that attaches. Its views are of the epoch of its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// A random number, for this connection.
    pub nonce: Nonce,
    /// The identity of the side.
    pub identity: Identity,
    /// The stream that it sends.
    pub sending: SenderView,
    /// The stream that it receives.
    pub receiving: ReceiverView,
    /// The streams of the last epoch, as it left them.
    pub past: Option<Past>,
    /// The most that it may have sent and not had acknowledged.
    pub window: Window,
    /// It offers its memory: descriptors come with the first byte of the frame.
    pub shares: bool,
}

/// The most that a sender may have sent and not had acknowledged: what its receiver may have to
/// hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The size of its ring in bytes.
    pub ring_bytes: u64,
    /// The size of its slab, and so of its largest message, in bytes.
    pub slab_bytes: u64,
}

/// The three names of a link, as its client gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The name of the client.
    pub client: String,
    /// The name of the server.
    pub server: String,
    /// The name of the link, among those between the two.
    pub link: String,
}

/// Why an end refuses to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The connection is not newer than the present one, which has this number.
    Stale(ConnectionNumber),
    /// A later owner, of this incarnation, has attached before.
    Fenced(Incarnation),
    /// The link keeps all bytes until an operator decides.
    Quarantined,
    /// The server has another name, or no such link.
    Unknown(String),
    /// The server's application refused, with this reason.
    Rejected(String),
    /// The window of the peer is larger than this side accepts, with the sizes as text.
    TooLarge(String),
    /// The server is about to end, or accepts no more connections.
    Busy(String),
    /// There is no version in common: the side implements these, the oldest first.
    Version(u16, u16),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(connection_number) => {
                write!(f, "there is a connection that is as new or newer, with number {}", connection_number.0)
            }
            Self::Fenced(incarnation) => write!(
                f,
                "a later owner of this end, of incarnation {}, has attached: this one attaches no more",
                incarnation.0
            ),
            Self::Quarantined => f.write_str(
                "the link is in quarantine: inspect both ends with `partywall link inspect`, then adopt or reset one",
            ),
            Self::Unknown(text) | Self::Rejected(text) | Self::TooLarge(text) | Self::Busy(text) => {
                f.write_str(text)
            }
            Self::Version(min, max) => write!(f, "it implements versions {min} to {max} of the link protocol"),
        }
    }
}
