// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control frames of a link, by which its two ends attach and acknowledge, with the types of
//! `partywall_reconcile` (SPEC 12.2, 15).
//!
//! ```text
//!  client                                    server
//!  Attach ─────────────────────────────────▶
//!         ◀───────────── Attached, or Refuse
//!  Share (optional), Confirm ──────────────▶
//!         ◀──────────────────────────  Begin
//!  records, Ack, Leave ◀───────────────────▶ records, Ack, Leave
//! ```
//!
//! Records are not frames: a socket carries the same record bytes as the ring; see `record.rs` of
//! the layout crate. `codec.rs` encodes and decodes frames.

use std::fmt;

use partywall_reconcile::attach::Nonce;
use partywall_reconcile::{
    ConnectionNumber, Decision, Identity, Incarnation, Past, Position, ReceiverView, SenderView,
    StreamId,
};

/// A control frame: everything that the socket of a link carries except records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The frame ATTACH, the first of the handshake: a client asks to attach a new connection to a
    /// link.
    Attach {
        /// The identity of the client, and its views: how far it has sent and received both
        /// streams.
        attach: Attach,
        /// The three names of the link: client, server and link.
        names: Names,
        /// Bytes for the server's application, which decides about the login.
        login: Vec<u8>,
    },
    /// The frame ATTACHED, which answers ATTACH: the server accepts the client's connection.
    Attached {
        /// The identity of the server, and its views: how far it has sent and received both
        /// streams.
        attach: Attach,
        /// The random number (nonce) of the client's frame ATTACH, repeated to prove that this
        /// frame answers it.
        echo: Nonce,
        /// The server's decision at which position its outgoing stream continues.
        decision: Decision,
        /// Bytes from the server's application for the client's application.
        login: Vec<u8>,
    },
    /// The frame REFUSE: a side refuses to attach, or revokes its acceptance. The frame ends the
    /// connection.
    Refuse {
        /// The random number (nonce) of the peer's last frame, repeated to prove that this frame
        /// answers it.
        echo: Nonce,
        /// The reason why the sender of this frame refuses to attach.
        refusal: Refusal,
    },
    /// The frame CONFIRM, which answers ATTACHED: the client has applied the server's decision, at
    /// which position the server's stream continues. The echoed nonce proves that the client has
    /// read the frame ATTACHED of this connection.
    Confirm {
        /// The random number (nonce) of the server's frame ATTACHED, repeated to prove that this
        /// frame answers it.
        echo: Nonce,
        /// The client's decision at which position its outgoing stream continues.
        decision: Decision,
        /// The first position from which acknowledgements in the client's records refer to the
        /// stream that the client now consumes.
        tail: Position,
    },
    /// The frame BEGIN, the last of the handshake: the server has applied the client's decision, so
    /// records flow in both directions.
    Begin {
        /// The id of the stream that the server consumes; `None` if the client sends none.
        stream: Option<StreamId>,
        /// The position up to which the server has consumed the client's stream.
        consumed: Position,
        /// The first position from which acknowledgements in the server's records refer to the
        /// stream that the server now consumes.
        tail: Position,
    },
    /// The frame ACK: the application at the sender of this frame has acknowledged messages that it
    /// received.
    Ack {
        /// The id of the stream that the sender of this frame receives.
        stream: StreamId,
        /// The position up to which the sender of this frame has acknowledged the stream that it
        /// receives.
        consumed: Position,
    },
    /// The frame LEAVE: its sender closes the connection in good order, after all its records. Both
    /// sides keep every unacknowledged message.
    Leave,
    /// The frame SHARE, which the client sends before CONFIRM: the client has mapped the server's
    /// memory, so that the socket carries no records.
    Share,
}

/// The fields that describe a side in ATTACH and ATTACHED, the first frames of client and server:
/// its identity, and its views of both streams. The views belong to the epoch of the identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// A random number that the side draws for each connection.
    pub nonce: Nonce,
    /// The identity of the side: store id, incarnation, connection number and epoch.
    pub identity: Identity,
    /// The view of the side as a sender: how far its outgoing stream is kept, acknowledged and
    /// sent.
    pub sending: SenderView,
    /// The view of the side as a receiver: how far it has consumed the peer's stream.
    pub receiving: ReceiverView,
    /// The streams of the last epoch that the side left, with their positions at that time; `None`
    /// if it has left no epoch.
    pub past: Option<Past>,
    /// The number of bytes that the side may have sent without an acknowledgement.
    pub window: Window,
    /// Whether the side offers its memory to the peer: if so, descriptors come with the first byte
    /// of the frame.
    pub shares: bool,
}

/// The number of bytes that a sender may have sent without an acknowledgement, and that its
/// receiver may have to hold: the sizes of the sender's ring and slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The size of the sender's ring in bytes.
    pub ring_bytes: u64,
    /// The size of the sender's slab in bytes, which also limits its largest message.
    pub slab_bytes: u64,
}

/// The three names of a link, as its client gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The name of the client.
    pub client: String,
    /// The name of the server.
    pub server: String,
    /// The name of the link, unique among the links between the same client and server.
    pub link: String,
}

/// Reason why an end refuses to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client's connection number is not higher than that of the link's present connection,
    /// which the field gives.
    Stale(ConnectionNumber),
    /// A later owner of the refused end has already attached; the field gives its incarnation.
    Fenced(Incarnation),
    /// The link is in quarantine: it keeps all bytes until an operator decides.
    Quarantined,
    /// The server has a different name, or no link of this name; the text says which.
    Unknown(String),
    /// The server's application refused the login; the text gives its reason.
    Rejected(String),
    /// The peer's window exceeds what the side accepts; the text gives the sizes.
    TooLarge(String),
    /// The server is shutting down, or accepts no further connections; the text says which.
    Busy(String),
    /// The peers have no protocol version in common. The fields give the oldest and the newest
    /// version that the refusing end implements.
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
