// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a link stands, and what it has counted.

use std::fmt;

use partywall::Peer;

/// How a link stands at this moment. What was sent is kept in any of these but `Closed`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Status {
    /// There is no connection. A client makes one while somebody waits for the link or its group.
    Detached,
    /// A connection is being made.
    Attaching,
    /// Records flow.
    Attached {
        /// Over what.
        transport: Transport,
        /// Who is at the other end.
        peer: Peer,
    },
    /// A later owner of this end has taken its place.
    Fenced,
    /// What both ends know contradicts itself: all bytes are kept until a person decides.
    Quarantined,
    /// It was closed in this process, or belongs to the parent of this one.
    Closed,
}

/// Over what records flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory: each end reads what the other writes.
    SharedMemory,
    /// A Unix stream socket.
    Unix,
    /// TCP.
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

/// What one end of a link has counted since this process opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages that were taken to be sent.
    pub messages_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Messages that were handed out; one that is handed out again counts again.
    pub messages_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Times the link was attached.
    pub connections: u64,
    /// Acknowledgements that went by themselves. Those that went with messages are not counted.
    pub acknowledgements: u64,
}
