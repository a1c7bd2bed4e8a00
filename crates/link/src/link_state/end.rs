// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a connection of a link ends.

use std::fmt;

use partywall_layout::link::record::RecordFault;

use crate::protocol::codec::FrameFault;
use crate::protocol::frame::Refusal;

/// Reason why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer refused to attach, or this end did.
    Refused { by_us: bool, refusal: Refusal },
    /// One end adopted the epoch of the other: both attach again.
    EpochAdopted,
    /// A decision no longer fits the state for which it was made: both ends attach again.
    Moved,
    /// The peer did not prove that it is alive on this connection.
    NotFresh,
    /// A newer connection has replaced this one.
    Replaced,
    /// The views contradict each other: both ends keep all bytes.
    Quarantined,
    /// The peer closed its end in good order.
    Left,
    /// The peer broke the protocol.
    Violation(Violation),
    /// The network failed, for the reason given.
    Broken(String),
}

impl End {
    /// The end of a connection because of this violation by the peer.
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
    /// A control frame is malformed, for the reason given.
    #[error("a frame cannot be read: {0}")]
    Frame(#[from] FrameFault),
    /// A record contradicts its own header, prefix or checksum.
    #[error("a record is invalid: {0}")]
    Record(#[from] RecordFault),
    /// The bytes of a BLOB, which begins at this position, differ from those that were sent.
    #[error("the BLOB of the record at position {0} has another checksum")]
    BlobCrc(u64),
    /// A record at this position leaves a gap, or overlaps the records before it.
    #[error("the record at position {0} is not the next one")]
    OutOfOrder(u64),
    /// The peer acknowledged this position, which is beyond the tail.
    #[error("it acknowledged position {0}, which was never sent")]
    AckBeyondTail(u64),
    /// The peer has sent more than its window without an acknowledgement.
    #[error("more messages are unread than its ring and slab can hold")]
    Overfull,
    /// The peer's decision does not follow from the two views.
    #[error("its decision does not follow from the views of the two sides")]
    Decision,
    /// A frame or record, which the text names, is not allowed at this point.
    #[error("{0} is out of place")]
    OutOfPlace(&'static str),
}
