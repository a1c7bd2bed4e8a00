// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status and counters of a link.

use std::fmt;

use partywall::Peer;

/// Present status of a link. In all of these but `Closed`, messages that were sent are kept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Status {
    /// There is no connection. A client makes one while a thread waits for the link or its group.
    Detached,
    /// A connection is being made.
    Attaching,
    /// A connection carries records.
    Attached {
        /// Transport of the connection.
        transport: Transport,
        /// Identity of the peer.
        peer: Peer,
    },
    /// A later owner of this end has taken its place.
    Fenced,
    /// The two ends contradict each other, and keep all bytes until an operator decides.
    Quarantined,
    /// The link was closed in this process, or belongs to the parent of this process.
    Closed,
}

/// Transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory: each end reads what the other writes.
    SharedMemory,
    /// A Unix stream socket.
    Unix,
    /// A TCP connection.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SharedMemory => "shared memory",
            Self::Unix => "a Unix socket",
            Self::Tcp => "TCP",
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Detached => f.write_str("detached"),
            Self::Attaching => f.write_str("attaching"),
            Self::Attached { transport, peer } => write!(f, "attached over {transport} to {peer}"),
            Self::Fenced => f.write_str("fenced: a later owner of this end was here"),
            Self::Quarantined => f.write_str("in quarantine"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// Counters of one end of a link since this process opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages that were sent.
    pub messages_sent: u64,
    /// Bytes of those messages.
    pub bytes_sent: u64,
    /// Messages that were delivered; each delivery counts.
    pub messages_received: u64,
    /// Bytes of those messages.
    pub bytes_received: u64,
    /// Number of times that the link was attached.
    pub connections: u64,
    /// Acknowledgements that were frames of their own. Those that went with messages are not
    /// counted.
    pub acknowledgements: u64,
}
