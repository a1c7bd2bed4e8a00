// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reasons for which a connection of a link ends, and the protocol violations of a peer.

use std::fmt;

use partywall_layout::link::record::RecordFault;

use crate::protocol::codec::FrameFault;
use crate::protocol::frame::Refusal;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// One end refused to attach: this end if `by_us`, else the peer.
    Refused { by_us: bool, refusal: Refusal },
    /// One end has taken over the epoch of the other end, so both ends have to attach again.
    EpochAdopted,
    /// The decision at which position a stream continues no longer fits the state of one end,
    /// because messages were acknowledged or an epoch began meanwhile. Both ends have to attach
    /// again.
    Moved,
    /// The peer did not repeat the random number that this end sent on this connection. So its
    /// frame may be an old one of another connection.
    NotFresh,
    /// A newer connection of the same link has replaced the connection.
    Replaced,
    /// The stored positions of the two ends contradict each other, so both ends keep all bytes
    /// until an operator decides.
    Quarantined,
    /// The peer closed its end in good order.
    Left,
    /// The peer broke the protocol, as the contained violation says.
    Violation(Violation),
    /// The network failed, for the reason in the field, as text.
    Broken(String),
}

impl End {
    pub(super) fn violation(violation: impl Into<Violation>) -> Self {
        Self::Violation(violation.into())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { by_us: false, refusal } => write!(f, "the peer refused: {refusal}"),
            Self::Refused { by_us: true, refusal } => write!(f, "the peer was refused: {refusal}"),
            Self::EpochAdopted => f.write_str("an epoch began"),
            Self::Moved => f.write_str(
                "an epoch began or messages were acknowledged during the handshake: it is repeated",
            ),
            Self::NotFresh => f.write_str("the peer did not answer the request of this connection"),
            Self::Replaced => f.write_str("a newer connection replaced it"),
            Self::Quarantined => f.write_str("the link is in quarantine"),
            Self::Left => f.write_str("the peer closed its end"),
            Self::Violation(violation) => write!(f, "the peer broke the protocol: {violation}"),
            Self::Broken(reason) => f.write_str(reason),
        }
    }
}

/// A breach of the protocol by the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A control frame of the peer is malformed, for the reason given.
    #[error("a frame cannot be read: {0}")]
    Frame(#[from] FrameFault),
    /// A record of the peer contradicts its own header, prefix or checksum, as the error says.
    #[error("a record is invalid: {0}")]
    Record(#[from] RecordFault),
    /// The bytes of a BLOB, a message in the slab, differ from those that were sent. The BLOB's
    /// record begins at this position.
    #[error("the BLOB of the record at position {0} has another checksum")]
    BlobCrc(u64),
    /// The record at this position does not begin where the record before it ends.
    #[error("the record at position {0} is not the next one")]
    OutOfOrder(u64),
    /// The peer acknowledged our stream up to this position, which is beyond the end of our sent
    /// messages.
    #[error("it acknowledged position {0}, which was never sent")]
    AckBeyondTail(u64),
    /// The peer has sent more without an acknowledgement than its ring and slab can hold.
    #[error("more messages are unread than its ring and slab can hold")]
    Overfull,
    /// The peer's decision at which position its stream continues does not follow from what both
    /// ends stated about that stream in the handshake.
    #[error("its decision does not follow from the views of the two sides")]
    Decision,
    /// The peer sent a frame or record, which the text names, at a point of the connection where it
    /// is not allowed.
    #[error("{0} is out of place")]
    OutOfPlace(&'static str),
}
