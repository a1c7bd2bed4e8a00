// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's end of an echo connection: a Partywall channel or a plain socket behind one
//! interface.
//!
//! ```text
//!             EchoSender              EchoReceiver: the expected bytes, or an error
//!   channel   one message             one message, compared where it lies
//!   plain     payload and a newline   the bytes up to the newline
//! ```

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use partywall::{Address, Closed, Config, Receiver, RecvError, SendError, Sender};
use partywall_sys::{Family, Socket, connect_tcp, connect_unix_abstract, connect_unix_path};

use super::endpoint::Endpoint;
use crate::channel::connect::{
    RETRY_PERIOD, connect_with_retry, hint, hint_of, is_ahead, may_appear,
};
use crate::command::advice::InFlags;
use crate::command::exit::Exit;

/// The sending direction of a client's connection to an echo server.
pub enum EchoSender {
    /// The messages are sent on a Partywall channel.
    Channel(Box<Sender>),
    /// The messages are sent on a plain socket.
    Plain(Box<dyn Write + Send>),
}

/// The receiving direction of a client's connection to an echo server.
pub enum EchoReceiver {
    /// The echoes are received from a Partywall channel.
    Channel(Box<Receiver>),
    /// The echoes are received from a plain socket, into a buffer for one line.
    Plain(Box<dyn Read + Send>, Vec<u8>),
}

/// A connection to an echo server: a Partywall channel or a plain socket.
pub struct Connection {
    /// The connection's sending direction.
    pub sender: EchoSender,
    /// The connection's receiving direction.
    pub receiver: EchoReceiver,
    /// The transport of the connection, as text.
    pub transport: String,
}

/// The reason why sending messages to an echo server, or receiving the echoes, failed.
#[derive(Debug)]
pub struct EchoError {
    /// The exit code with which the command ends because of this error.
    pub exit: Exit,
    /// The text of the error that the command prints.
    pub reason: String,
}

impl EchoError {
    /// Makes the error for a failure of this process, and not of the peer.
    pub fn failure(reason: &str) -> Self {
        Self { exit: Exit::Failure, reason: reason.to_owned() }
    }
}

impl Connection {
    /// Connects to `endpoint`. A plain socket gets a buffer of `line` bytes, the longest line that
    /// can be echoed, and each call waits for up to `timeout`.
    pub fn connect(
        endpoint: &Endpoint,
        config: &Config,
        retry: Option<Duration>,
        timeout: Duration,
        line: usize,
    ) -> Result<Self, EchoError> {
        let unreached = |reason: String| EchoError { exit: Exit::NoConnection, reason };
        if endpoint.is_plain {
            let socket = connect_plain(&endpoint.address, retry);
            let socket =
                socket.map_err(|error| unreached(format!("{error}{}", hint_of(&error, retry))))?;
            let (write, read) =
                streams(socket, timeout).map_err(|error| unreached(error.to_string()))?;
            let (sender, receiver) =
                (EchoSender::Plain(write), EchoReceiver::Plain(read, vec![0; line + 1]));
            return Ok(Self { sender, receiver, transport: "plain lines over a socket".into() });
        }
        let channel = connect_with_retry(&endpoint.address, config, retry).map_err(|error| {
            let reason = format!("{}{}", error.in_flags(), hint(&error, retry));
            EchoError { exit: Exit::from(&error), reason }
        })?;
        let transport = channel.transport().to_string();
        let (sender, receiver) = channel.split();
        Ok(Self {
            sender: EchoSender::Channel(Box::new(sender)),
            receiver: EchoReceiver::Channel(Box::new(receiver)),
            transport,
        })
    }
}

impl EchoSender {
    /// Sends one message. A channel waits for room until `deadline`; a plain socket has a time-out
    /// of its own.
    pub fn send(&mut self, payload: &[u8], deadline: Instant) -> Result<(), EchoError> {
        match self {
            Self::Channel(sender) => {
                sender.send_deadline(payload, deadline).map_err(|error| EchoError {
                    exit: late_or(matches!(error, SendError::TimedOut), Exit::from(&error)),
                    reason: format!("sending failed: {}", error.in_flags()),
                })
            }
            Self::Plain(stream) => {
                write_all(stream, &[payload, b"\n"]).map_err(|error| broken("sending", &error))
            }
        }
    }
}

impl EchoReceiver {
    /// Receives one message, which must equal `expected`. A channel waits until `deadline`; a plain
    /// socket has a time-out of its own.
    pub fn receive(&mut self, expected: &[u8], deadline: Instant) -> Result<(), EchoError> {
        match self {
            Self::Channel(receiver) => {
                match receiver.recv_ref_deadline(deadline) {
                    Ok(Some(message)) => verify(&message, expected),
                    // The server ended its direction although it has not sent the expected echo, so
                    // even an end in good order is an error.
                    Ok(None) => Err(no_echo(Exit::PeerDied, &Closed::Finished)),
                    Err(error) => {
                        let is_over =
                            matches!(error, RecvError::Disconnected | RecvError::TimedOut);
                        Err(no_echo(late_or(is_over, Exit::from(&error)), &error))
                    }
                }
            }
            Self::Plain(stream, line) => {
                let line = &mut line[..=expected.len()];
                stream.read_exact(line).map_err(|error| broken("receiving", &error))?;
                match line.split_last() {
                    Some((b'\n', text)) => verify(text, expected),
                    _ => Err(wrong(line.len(), expected.len() + 1)),
                }
            }
        }
    }
}

/// Writes all bytes of both `parts` to the socket, with vectored writes.
fn write_all(stream: &mut dyn Write, parts: &[&[u8]; 2]) -> io::Result<()> {
    let mut slices = parts.map(IoSlice::new);
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0); // skips parts without bytes
    while !rest.is_empty() {
        match stream.write_vectored(rest) {
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the two directions of a plain socket, in which each call waits for at most `timeout`.
fn streams(
    socket: Socket,
    timeout: Duration,
) -> io::Result<(Box<dyn Write + Send>, Box<dyn Read + Send>)> {
    match socket.family() {
        Family::Unix => {
            let stream = UnixStream::from(socket.into_fd());
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok((Box::new(stream.try_clone()?), Box::new(stream)))
        }
        Family::Tcp => {
            let stream = TcpStream::from(socket.into_fd());
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok((Box::new(stream.try_clone()?), Box::new(stream)))
        }
    }
}

fn connect_plain(
    address: &Address,
    retry: Option<Duration>,
) -> Result<Socket, partywall_sys::ConnectError> {
    let deadline_of_retry = retry.map(|retry| Instant::now() + retry);
    loop {
        let deadline = Some(Instant::now() + CONNECT_MAX);
        let connected = match address {
            Address::Path(path) => connect_unix_path(path, deadline),
            Address::Abstract(name) => connect_unix_abstract(name, deadline),
            _ => match address.resolve() {
                Ok(resolved) => connect_tcp(resolved, deadline),
                Err(error) => Err(partywall_sys::ConnectError::Other {
                    to: address.to_string(),
                    source: io::Error::other(error),
                }),
            },
        };
        match connected {
            Err(error) if may_appear(&error) && is_ahead(deadline_of_retry) => {
                thread::sleep(RETRY_PERIOD)
            }
            other => return other,
        }
    }
}

fn verify(found: &[u8], expected: &[u8]) -> Result<(), EchoError> {
    if found == expected { Ok(()) } else { Err(wrong(found.len(), expected.len())) }
}

fn wrong(found: usize, expected: usize) -> EchoError {
    let reason = format!(
        "the echo is not what was sent ({found} bytes instead of {expected}): is this an echo server?"
    );
    EchoError { exit: Exit::Protocol, reason }
}

fn no_echo(exit: Exit, reason: &dyn fmt::Display) -> EchoError {
    EchoError { exit, reason: format!("no echo was received: {reason}") }
}

/// Returns the exit code of a command whose peer did not echo. A peer that is late (`is_late`)
/// counts as dead; for any other failure the code is `other`.
const fn late_or(is_late: bool, other: Exit) -> Exit {
    if is_late { Exit::PeerDied } else { other }
}

fn broken(what: &str, error: &io::Error) -> EchoError {
    let reason = match error.kind() {
        ErrorKind::WouldBlock => format!("{what}: timed out"),
        ErrorKind::UnexpectedEof => "no echo was received: the peer has closed".to_owned(),
        _ => format!("{what} failed: {error}"),
    };
    EchoError { exit: Exit::PeerDied, reason }
}

/// Longest time for one attempt to connect a plain socket.
const CONNECT_MAX: Duration = Duration::from_secs(5);
