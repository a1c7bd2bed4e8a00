// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peer of a stream, as a value apart from the stream: frameworks pass it to handlers.

use super::io::StreamIo;
use super::session::Session;
use super::stream::Stream;
use crate::peer::Peer;
use crate::transport::Transport;
use std::fmt;

/// The peer of a stream: its process, the transport, and the metadata of the stream.
///
/// For a stream that this side opened, the peer is the side that accepted it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectInfo {
    /// The other process, as the kernel reports it.
    pub peer: Peer,
    /// The session's transport, and the reason for it.
    pub transport: Transport,
    /// Metadata with which the peer opened the stream; empty if this side opened it.
    pub metadata: Box<[u8]>,
}

impl ConnectInfo {
    /// Process number of the peer in this process's namespace; `None` over TCP.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.peer.credentials.map(|who| who.pid)
    }

    /// User of the peer; `None` over TCP.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        self.peer.credentials.map(|who| who.uid)
    }

    /// Primary group of the peer; `None` over TCP.
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
