// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection of which nobody knows yet whose it is: its first frame has to be ATTACH, and nothing else is read of it.
//!
//! ```text
//!   bytes ─▶ header? ─▶ body, at most FRAME_BODY_MAX ─▶ ATTACH ─▶ the server asks its application
//!              ├ of versions that are not ours ─▶ REFUSE version
//!              └ a record, another kind, a rule broken ─▶ closed without a word
//! ```

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use bytes::{Buf, BytesMut};
use partywall_layout::link::frame::{FRAME_BODY_MAX, FRAME_HEADER_BYTES, FrameFault};
use partywall_reconcile::attach::Nonce;
use partywall_sys::{Credentials, Family, Socket};

use crate::end::{Adopted, is_of_our_user, read_some};
use crate::protocol::codec;
use crate::protocol::frame::{Attach, Frame, Names};
use crate::status::Transport;
use partywall::{Peer, Trust};

/// See the module.
pub(crate) struct Greeting {
    pub(crate) socket: Socket,
    /// It came to an abstract address.
    pub(crate) is_abstract: bool,
    /// What was read, and not yet understood.
    pub(crate) input: BytesMut,
    /// When it is given up.
    pub(crate) deadline: Instant,
    /// From then on its place may be taken by another, if nothing was heard.
    pub(crate) spared_until: Instant,
    /// What came with the first byte.
    pub(crate) descriptors: Vec<OwnedFd>,
    credentials: Option<Credentials>,
    has_received: bool,
}

/// What a client asks.
pub(crate) struct Asked {
    pub(crate) attach: Attach,
    pub(crate) names: Names,
    pub(crate) login: Vec<u8>,
}

/// It is to be closed.
pub(crate) enum Unfit {
    /// Without a word.
    Foreign,
    /// It speaks other versions, and is told so under this nonce.
    Version { min: u16, max: u16, nonce: Nonce },
}

impl From<FrameFault> for Unfit {
    fn from(fault: FrameFault) -> Self {
        match fault {
            FrameFault::Version { min, max, nonce } => {
                Self::Version { min, max, nonce: Nonce(nonce) }
            }
            _ => Self::Foreign,
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("a connection did not begin as that of a link"),
            Self::Version { min, max, .. } => {
                write!(f, "a client supports only versions {min} to {max} of the protocol of links")
            }
        }
    }
}

impl Greeting {
    pub(crate) fn new(
        socket: Socket,
        is_abstract: bool,
        deadline: Instant,
        spared_until: Instant,
    ) -> Self {
        Self {
            socket,
            is_abstract,
            input: BytesMut::new(),
            deadline,
            spared_until,
            descriptors: Vec::new(),
            credentials: None,
            has_received: false,
        }
    }

    /// Reads what is there; the question once it is whole.
    pub(crate) fn receive(&mut self) -> Result<Option<Asked>, Unfit> {
        match self.read() {
            Ok(0) => return Err(Unfit::Foreign),
            Ok(_) => self.has_received = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Unfit::Foreign),
        }
        let Some((header, rest)) = self.input.split_first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = codec::body_bytes(header)?;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = codec::decode(header, body)?;
        let Frame::Attach { attach, names, login } = frame else {
            return Err(Unfit::Foreign);
        };
        self.input.advance(FRAME_HEADER_BYTES + length);
        Ok(Some(Asked { attach, names, login }))
    }

    /// The connection under `token`, for the link that it asks for.
    pub(crate) fn into_adopted(self, token: u64) -> Adopted {
        let peer = self.peer();
        let Self { socket, input, descriptors, .. } = self;
        Adopted { socket, token, input, descriptors, peer }
    }

    /// Nothing was heard of it.
    pub(crate) const fn is_silent(&self) -> bool {
        !self.has_received
    }

    pub(crate) fn transport(&self) -> Transport {
        match self.socket.family() {
            Family::Unix => Transport::Unix,
            Family::Tcp => Transport::Tcp,
        }
    }

    /// Who it is, as far as the system vouches for it.
    pub(crate) fn peer(&self) -> Peer {
        let (credentials, label) = (self.credentials, self.socket.peer_label());
        Peer::new(credentials, Trust::Untrusted, label)
    }

    fn read(&mut self) -> io::Result<usize> {
        if self.socket.family() == Family::Tcp || self.credentials.is_some() {
            return read_some(&self.socket, &mut self.input).map(|(count, _)| count);
        }
        let mut buffer = [0; FRAME_HEADER_BYTES + FRAME_BODY_MAX];
        let received = self.socket.receive(&mut buffer, true)?;
        // A memory and a bell of our own user are kept until ATTACH is whole; any others are closed.
        if received.fds.len() == 2 && !received.truncated && is_of_our_user(&self.socket) {
            self.descriptors = received.fds;
        }
        self.credentials = received.credentials;
        self.input.extend_from_slice(&buffer[..received.bytes]);
        Ok(received.bytes)
    }
}
