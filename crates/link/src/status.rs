// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status of a link, as `Link::status` returns it, and the counters of one end.

use std::fmt;

use partywall::Peer;

/// Present status of a link: whether messages flow, and if not, why. In every status except
/// `Closed`, the link keeps its unacknowledged messages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Status {
    /// The link has no connection. A client makes a connection while a thread blocks on the link or
    /// the link's group.
    Detached,
    /// The link's next connection is being made or is in its handshake, and does not carry messages
    /// yet.
    Attaching,
    /// The link has a connection on which messages can flow.
    Attached {
        /// Transport of the connection.
        transport: Transport,
        /// Identity of the peer.
        peer: Peer,
    },
    /// A later owner of the local end (another process that opened it) has replaced this process,
    /// which attaches no more.
    Fenced,
    /// The files of the two ends contradict each other. Both ends keep all bytes until an operator
    /// decides.
    Quarantined,
    /// This process closed the link, or is a forked child of the process that opened it.
    Closed,
}

/// Transport over which a connection carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory: each end reads the memory that the other end writes.
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
    /// Number of messages that were sent.
    pub messages_sent: u64,
    /// Total length in bytes of the sent messages.
    pub bytes_sent: u64,
    /// Number of deliveries to the application; a redelivered message counts again.
    pub messages_received: u64,
    /// Total length in bytes of the delivered messages.
    pub bytes_received: u64,
    /// Number of times that the link was attached.
    pub connections: u64,
    /// Number of acknowledgements sent in frames of their own. Those that a message's record
    /// carries, or that the peer reads in shared memory, are not counted.
    pub acknowledgements: u64,
}
