// SPDX-License-Identifier: MIT OR Apache-2.0
//! The listener of `echo serve`: for Partywall channels, or for plain sockets.
//!
//! A plain client gets its bytes back as they arrive, even parts of lines. Each newline counts as a
//! message.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use partywall::{AcceptError, Address, Channel, Config, Listener};
use partywall_sys::{Family, Socket};

use super::endpoint::Endpoint;
use crate::command::advice::InFlags;

/// The listener of an echo server, for Partywall channels or for plain sockets.
pub struct EchoListener {
    endpoint: String,
    kind: Kind,
}

enum Kind {
    Channel(Box<Listener>),
    Plain(partywall_sys::Listener),
}

/// A client of the echo server that the listener has accepted.
pub enum Client {
    /// A client with a Partywall channel.
    Channel(Box<Channel>),
    /// A client that sends lines over a plain socket.
    Plain(PlainClient),
}

/// The two directions of a client's plain socket.
pub struct PlainClient {
    read: Box<dyn Read + Send>,
    write: Box<dyn Write + Send>,
}

impl EchoListener {
    /// Binds the address of `endpoint`; a socket file gets the permission bits `mode`.
    pub fn bind(endpoint: &Endpoint, config: &Config, mode: u32) -> Result<Self, String> {
        if !endpoint.is_plain {
            let listener = Listener::bind_with(&endpoint.address, config);
            let listener = listener.map_err(|error| error.in_flags())?;
            let endpoint = listener.local_address().to_string();
            return Ok(Self { endpoint, kind: Kind::Channel(Box::new(listener)) });
        }
        let listener = match &endpoint.address {
            Address::Path(path) => partywall_sys::Listener::listen_unix_path(path, mode, BACKLOG),
            Address::Abstract(name) => partywall_sys::Listener::listen_unix_abstract(name, BACKLOG),
            other => {
                let resolved = other.resolve().map_err(|error| error.to_string())?;
                if !resolved.ip().is_loopback() {
                    return Err("plain lines are served on loopback addresses only".to_owned());
                }
                partywall_sys::Listener::listen_tcp(resolved, BACKLOG)
            }
        };
        let listener = listener.map_err(|error| error.to_string())?;
        let bound = listener.local_addr().ok().flatten().map(Address::from);
        let address = bound.unwrap_or_else(|| endpoint.address.clone());
        Ok(Self { endpoint: format!("plain:{address}"), kind: Kind::Plain(listener) })
    }

    /// The endpoint to which clients connect, as text with the port that was bound.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Accepts the next client if one is pending; the call does not block.
    pub fn try_accept(&mut self) -> Result<Option<Client>, String> {
        match &mut self.kind {
            Kind::Channel(listener) => match listener.try_accept() {
                Ok(channel) => Ok(Some(Client::Channel(Box::new(channel)))),
                Err(AcceptError::TimedOut) => Ok(None),
                Err(error) => Err(error.to_string()),
            },
            Kind::Plain(listener) => match listener.accept() {
                Ok(None) => Ok(None),
                Ok(Some(socket)) => PlainClient::new(socket)
                    .map(|client| Some(Client::Plain(client)))
                    .map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

impl AsFd for EchoListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Channel(listener) => listener.as_fd(),
            Kind::Plain(listener) => listener.as_fd(),
        }
    }
}

impl PlainClient {
    fn new(socket: Socket) -> io::Result<Self> {
        Ok(match socket.family() {
            Family::Unix => {
                let stream = UnixStream::from(socket.into_fd());
                Self { read: Box::new(stream.try_clone()?), write: Box::new(stream) }
            }
            Family::Tcp => {
                let stream = TcpStream::from(socket.into_fd());
                stream.set_nodelay(true)?;
                Self { read: Box::new(stream.try_clone()?), write: Box::new(stream) }
            }
        })
    }

    /// Echoes the bytes of this plain client until the client closes its socket, or `counted`
    /// returns true. `counted` gets the number of messages and bytes of each echo.
    pub fn echo(mut self, counted: impl Fn(u64, u64) -> bool) -> Result<(), String> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = match self.read.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            match self.write.write_all(&buffer[..count]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
            let lines = buffer[..count].iter().filter(|byte| **byte == b'\n').count();
            if counted(lines as u64, (count - lines) as u64) {
                return Ok(());
            }
        }
    }
}

/// Size in bytes of the buffer in which a plain client's bytes are echoed: the most that one read
/// and one write carry.
const BUFFER_BYTES: usize = 64 << 10;

/// Length of the listen backlog: number of plain clients that may be connected and wait to be
/// accepted.
const BACKLOG: i32 = 128;
