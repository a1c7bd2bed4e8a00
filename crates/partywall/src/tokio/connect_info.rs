// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peer of a stream, as a separate value that frameworks can pass to handlers.

use super::io::StreamIo;
use super::session::Session;
use super::stream::Stream;
use crate::peer::Peer;
use crate::transport::Transport;
use std::fmt;

/// The identity of a stream's peer, the transport, and the metadata of the stream.
///
/// For a stream that this side opened, the peer is the process that accepted the stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectInfo {
    /// The peer process, as the kernel reports it.
    pub peer: Peer,
    /// The transport of the session; for a socket, with the reason why memory is not shared.
    pub transport: Transport,
    /// Metadata with which the peer opened the stream; empty if this side opened it.
    pub metadata: Box<[u8]>,
}

impl ConnectInfo {
    /// Returns the peer's process number, valid in this process's namespace; `None` over TCP.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.peer.credentials.map(|who| who.pid)
    }

    /// Returns the user id of the peer; `None` over TCP.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        self.peer.credentials.map(|who| who.uid)
    }

    /// Returns the primary group id of the peer; `None` over TCP.
    #[must_use]
    pub fn gid(&self) -> Option<u32> {
        self.peer.credentials.map(|who| who.gid)
    }
}

impl fmt::Display for ConnectInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over the {}", self.peer, self.transport)
    }
}

impl From<&StreamIo> for ConnectInfo {
    fn from(stream: &StreamIo) -> Self {
        Self {
            peer: stream.peer().clone(),
            transport: stream.transport(),
            metadata: stream.metadata().into(),
        }
    }
}

impl From<&Stream> for ConnectInfo {
    fn from(stream: &Stream) -> Self {
        Self {
            peer: stream.peer().clone(),
            transport: stream.transport(),
            metadata: stream.metadata().into(),
        }
    }
}

impl From<&Session> for ConnectInfo {
    fn from(session: &Session) -> Self {
        Self {
            peer: session.peer().clone(),
            transport: session.transport(),
            metadata: Box::default(),
        }
    }
}
