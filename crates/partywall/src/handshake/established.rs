// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both sides are ready: puts together what a channel or a session is made of.

use super::{Known, Pending, terms};
use crate::channel::{AnyReceiver, AnySender, Channel};
use crate::config::Config;
use crate::error::HandshakeError;
use crate::peer::Peer;
use crate::transport::shm::{self, Doorbells};
use crate::transport::{Transport, socket};
use partywall_layout::{FallbackReason, Refusal};
use partywall_sys::Doorbell;

/// Both sides are ready: what a channel or a session is made of.
#[derive(Debug)]
pub(crate) struct Established {
    pub sender: AnySender,
    pub receiver: AnyReceiver,
    pub peer: Peer,
    pub transport: Transport,
    pub is_acceptor: bool,
    /// What the other side's HELLO says of streams.
    pub peer_streams: StreamTerms,
}

impl Established {
    pub(super) fn into_channel(self, config: &Config) -> Channel {
        let Self { sender, receiver, peer, transport, .. } = self;
        Channel::new((sender, receiver), peer, transport, config)
    }
}

/// What a side says of streams in its HELLO (SPEC 2.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTerms {
    /// Credit of each new stream towards the other side, in bytes.
    pub window: u64,
    /// How many streams of the other side's it bears at a time.
    pub streams_max: u32,
    /// Whether it may open any.
    pub opens: bool,
}

impl Pending {
    /// A wall if both sides can have one, else the socket, if both are content with that.
    pub(super) fn assemble(
        &self,
        known: Known,
        peer: Peer,
        theirs: Option<FallbackReason>,
    ) -> Result<Established, HandshakeError> {
        let is_acceptor = self.is_acceptor;
        let peer_streams = StreamTerms {
            window: known.hello.stream_window.get(),
            streams_max: known.hello.streams_max.get(),
            opens: true,
        };
        let fallback = match (known.offered, known.accepted, theirs) {
            (Ok(mut offered), Ok((peer_region, doorbells)), None) => {
                if offered.doorbells_attached && matches!(doorbells, Doorbells::Byte) {
                    // Ours went out in vain: whoever holds them could make ringing them block.
                    let doorbell =
                        || Doorbell::new().map_err(|error| self.system("making a bell", error));
                    offered.doorbells = (doorbell()?, doorbell()?);
                }
                let parts = shm::Parts {
                    socket: self.take_socket()?,
                    peer: peer.clone(),
                    process: known.process,
                    guard: self.guard,
                    limits: known.limits,
                    own: offered.region,
                    peer_region,
                    own_doorbells: offered.doorbells,
                    doorbells,
                };
                let (sender, receiver) = shm::assemble(parts, &self.config)
                    .map_err(|error| self.system("setting up the wall", error))?;
                let (sender, receiver) =
                    (AnySender::SharedMemory(sender), AnyReceiver::SharedMemory(receiver));
                let transport = Transport::SharedMemory;
                return Ok(Established {
                    sender,
                    receiver,
                    peer,
                    transport,
                    is_acceptor,
                    peer_streams,
                });
            }
            (Err(reason), _, _) | (_, Err(reason), _) | (_, _, Some(reason)) => reason,
        };
        if !terms::socket_suits(&self.own_hello, &known.hello) {
            self.reject(Refusal::Transport, &fallback.to_string());
            return Err(HandshakeError::NoTransport { reason: fallback });
        }
        let parts = socket::Parts {
            socket: self.take_socket()?,
            peer: peer.clone(),
            process: known.process,
            guard: self.guard,
            message_max: known.limits.message,
            peer_message_max: known.limits.peer_message,
        };
        let (sender, receiver) = socket::assemble(parts, &self.config)
            .map_err(|error| self.system("setting up the socket", error))?;
        let (sender, receiver) = (AnySender::Socket(sender), AnyReceiver::Socket(receiver));
        let transport = Transport::Socket(fallback);
        Ok(Established { sender, receiver, peer, transport, is_acceptor, peer_streams })
    }
}
