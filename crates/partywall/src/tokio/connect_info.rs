// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is at the other end of a stream, kept apart from the stream: frameworks hand it to handlers.

use super::io::StreamIo;
use super::session::Session;
use super::stream::Stream;
use crate::peer::Peer;
use crate::transport::Transport;
use std::fmt;

/// The other end of a stream: who, over which transport, and what it opened the stream with.
///
/// On a stream that this side opened, it is the one who accepted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectInfo {
    /// The other process, as the kernel vouches for it.
    pub peer: Peer,
    /// Which transport the session uses, and why.
    pub transport: Transport,
    /// What the other side opened the stream with; empty if this side did.
    pub metadata: Box<[u8]>,
}

impl ConnectInfo {
    /// Its process, as seen from this one's namespace; `None` over TCP.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.peer.credentials.map(|who| who.pid)
    }

    /// Its user; `None` over TCP.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        self.peer.credentials.map(|who| who.uid)
    }

    /// Its primary group; `None` over TCP.
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
