// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection that a server has accepted, and whose link is not known yet. The client's first
//! frame has to be ATTACH, which names the link; further bytes are not decoded.
//!
//! ```text
//!   bytes ─▶ frame header ─▶ body, at most FRAME_BODY_MAX ─▶ ATTACH ─▶ the server judges it
//!              ├ the client supports only other versions ─▶ REFUSE with our versions
//!              └ a record, another frame, or a broken rule ─▶ closed without an answer
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

/// An accepted connection whose ATTACH has not arrived completely.
pub(crate) struct Greeting {
    pub(crate) socket: Socket,
    /// Whether the listener that accepted the connection has an abstract address.
    pub(crate) is_abstract: bool,
    pub(crate) input: BytesMut,
    /// Time at which the connection is closed if ATTACH has not arrived by then.
    pub(crate) deadline: Instant,
    /// Time from which the connection may be closed in favour of a new one, if it has sent nothing.
    pub(crate) spared_until: Instant,
    /// Descriptors that arrived with the connection's first byte, of the client's memory and
    /// doorbell.
    pub(crate) descriptors: Vec<OwnedFd>,
    credentials: Option<Credentials>,
    has_received: bool,
}

/// The contents of ATTACH, the frame by which a client asks to attach to a link.
pub(crate) struct Asked {
    pub(crate) attach: Attach,
    pub(crate) names: Names,
    pub(crate) login: Vec<u8>,
}

/// Reason why the first bytes of a client's connection make the server close the connection.
pub(crate) enum Unfit {
    /// The client's first bytes are no valid ATTACH frame: the connection is closed without an
    /// answer.
    Foreign,
    /// The client supports only the protocol versions from `min` to `max`, and this end supports
    /// none of these. The server answers with the frame REFUSE, which repeats the random number
    /// `nonce` of the client's first frame.
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

    /// Reads the bytes that have arrived on the connection. Returns the contents of ATTACH once the
    /// frame is complete.
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

    /// Converts this connection for the link that takes it over. `token` identifies the socket in
    /// the reactor.
    pub(crate) fn into_adopted(self, token: u64) -> Adopted {
        let peer = self.peer();
        let Self { socket, input, descriptors, .. } = self;
        Adopted { socket, token, input, descriptors, peer }
    }

    pub(crate) const fn is_silent(&self) -> bool {
        !self.has_received
    }

    pub(crate) fn transport(&self) -> Transport {
        match self.socket.family() {
            Family::Unix => Transport::Unix,
            Family::Tcp => Transport::Tcp,
        }
    }

    /// The client at the other end of the connection, with the credentials that the system vouches
    /// for.
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
        // If a process of our own user sent two descriptors, of its memory and its doorbell, they
        // are kept until ATTACH is complete. Any other descriptors are closed.
        if received.fds.len() == 2 && !received.truncated && is_of_our_user(&self.socket) {
            self.descriptors = received.fds;
        }
        self.credentials = received.credentials;
        self.input.extend_from_slice(&buffer[..received.bytes]);
        Ok(received.bytes)
    }
}
