// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a handshake: the sending and the receiving end of the connection, and the limits
//! that both sides agreed on.

use crate::channel::{AnyReceiver, AnySender, Channel};
use crate::config::Config;
use crate::peer::PeerIdentity;
use crate::transport::LiveTransport;

/// A connection after its handshake, ready for a channel or a session.
#[derive(Debug)]
pub(crate) struct Established {
    pub sender: AnySender,
    pub receiver: AnyReceiver,
    pub peer: PeerIdentity,
    pub transport: LiveTransport,
    pub is_acceptor: bool,
    /// The limits for streams that the peer stated in its HELLO.
    pub peer_streams: StreamTerms,
}

impl Established {
    pub(super) fn into_channel(self, config: &Config) -> Channel {
        let Self { sender, receiver, peer, transport, .. } = self;
        Channel::new((sender, receiver), peer, transport, config)
    }
}

/// The limits for streams that one side states in its HELLO (SPEC 2.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTerms {
    /// Credit of each new stream for messages to the side that sent the HELLO, in bytes.
    pub window: u64,
    /// Most streams that the receiver of the HELLO may have open at a time.
    pub streams_max: u32,
    /// Whether the sender of the HELLO may open streams.
    pub opens: bool,
}
