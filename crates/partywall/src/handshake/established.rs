// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a handshake: the ends of a connection, and the terms that both sides agreed on.

use crate::channel::{AnyReceiver, AnySender, Channel};
use crate::config::Config;
use crate::peer::Peer;
use crate::transport::Transport;

/// A connection, ready for a channel or a session.
#[derive(Debug)]
pub(crate) struct Established {
    pub sender: AnySender,
    pub receiver: AnyReceiver,
    pub peer: Peer,
    pub transport: Transport,
    pub is_acceptor: bool,
    /// The stream terms in the peer's HELLO.
    pub peer_streams: StreamTerms,
}

impl Established {
    pub(super) fn into_channel(self, config: &Config) -> Channel {
        let Self { sender, receiver, peer, transport, .. } = self;
        Channel::new((sender, receiver), peer, transport, config)
    }
}

/// Stream terms in the HELLO of one side (SPEC 2.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTerms {
    /// Credit of each new stream towards this side, in bytes.
    pub window: u64,
    /// How many streams of its peer the side accepts at a time.
    pub streams_max: u32,
    /// Whether the side may open streams.
    pub opens: bool,
}
