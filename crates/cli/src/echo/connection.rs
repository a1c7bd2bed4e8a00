// SPDX-License-Identifier: MIT OR Apache-2.0
//! The asking side of a connection: one door to a Partywall channel and to a plain socket.
//!
//! ```text
//!   Asker   send(payload)            Answerer  receive(expected): the same bytes, or an error
//!   channel  one message             channel   one message, looked at where it lies
//!   plain    payload and a line end  plain     bytes up to the line end
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
    RETRY_PERIOD, connect_patiently, hint, hint_of, lies_ahead, may_come,
};
use crate::command::advice::InFlags;
use crate::command::exit::Exit;

/// The sending half of a connection.
pub enum Asker {
    /// A channel.
    Channel(Box<Sender>),
    /// Lines.
    Plain(Box<dyn Write + Send>),
}

/// The receiving half.
pub enum Answerer {
    /// A channel.
    Channel(Box<Receiver>),
    /// Lines, and a buffer with room for one.
    Plain(Box<dyn Read + Send>, Vec<u8>),
}

/// A connection.
pub struct Wire {
    /// Sends.
    pub asker: Asker,
    /// Receives.
    pub answerer: Answerer,
    /// The transport, for people.
    pub transport: String,
}

/// Why an experiment failed.
#[derive(Debug)]
pub struct Trouble {
    /// How to end.
    pub exit: Exit,
    /// What happened.
    pub reason: String,
}

impl Trouble {
    /// Something that is nobody else's fault.
    pub fn ours(reason: &str) -> Self {
        Self { exit: Exit::Failure, reason: reason.to_owned() }
    }
}

impl Wire {
    /// Connects to `endpoint`; `line` bytes fit into one answer, and `patience` is how long a plain
    /// socket waits for anything.
    pub fn connect(
        endpoint: &Endpoint,
        config: &Config,
        retry: Option<Duration>,
        patience: Duration,
        line: usize,
    ) -> Result<Self, Trouble> {
        let unreached = |reason: String| Trouble { exit: Exit::NoConnection, reason };
        if endpoint.is_plain {
            let socket = connect_plain(&endpoint.address, retry);
            let socket =
                socket.map_err(|error| unreached(format!("{error}{}", hint_of(&error, retry))))?;
            let (write, read) =
                streams(socket, patience).map_err(|error| unreached(error.to_string()))?;
            let (asker, answerer) = (Asker::Plain(write), Answerer::Plain(read, vec![0; line + 1]));
            return Ok(Self { asker, answerer, transport: "plain lines on a bare socket".into() });
        }
        let channel = connect_patiently(&endpoint.address, config, retry).map_err(|error| {
            let reason = format!("{}{}", error.in_flags(), hint(&error, retry));
            Trouble { exit: Exit::from(&error), reason }
        })?;
        let transport = channel.transport().to_string();
        let (sender, receiver) = channel.split();
        Ok(Self {
            asker: Asker::Channel(Box::new(sender)),
            answerer: Answerer::Channel(Box::new(receiver)),
            transport,
        })
    }
}

impl Asker {
    /// Sends one message; on a channel until `deadline`.
    pub fn send(&mut self, payload: &[u8], deadline: Instant) -> Result<(), Trouble> {
        match self {
            Self::Channel(sender) => {
                sender.send_deadline(payload, deadline).map_err(|error| Trouble {
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

impl Answerer {
    /// Receives one message, which must be `expected`; on a channel until `deadline`.
    pub fn receive(&mut self, expected: &[u8], deadline: Instant) -> Result<(), Trouble> {
        match self {
            Self::Channel(receiver) => {
                match receiver.recv_ref_deadline(deadline) {
                    Ok(Some(message)) => verify(&message, expected),
                    // The end is too early here, also in good order.
                    Ok(None) => Err(no_answer(Exit::PeerDied, &Closed::Finished)),
                    Err(error) => {
                        let is_over =
                            matches!(error, RecvError::Disconnected | RecvError::TimedOut);
                        Err(no_answer(late_or(is_over, Exit::from(&error)), &error))
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

/// Writes all of `parts`, in as few calls as the kernel allows.
fn write_all(stream: &mut dyn Write, parts: &[&[u8]; 2]) -> io::Result<()> {
    let mut slices = parts.map(IoSlice::new);
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0); // leaves empty parts behind
    while !rest.is_empty() {
        match stream.write_vectored(rest) {
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The two directions of a bare socket, neither of which waits longer than `patience`.
fn streams(
    socket: Socket,
    patience: Duration,
) -> io::Result<(Box<dyn Write + Send>, Box<dyn Read + Send>)> {
    match socket.family() {
        Family::Unix => {
            let stream = UnixStream::from(socket.into_fd());
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok((Box::new(stream.try_clone()?), Box::new(stream)))
        }
        Family::Tcp => {
            let stream = TcpStream::from(socket.into_fd());
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok((Box::new(stream.try_clone()?), Box::new(stream)))
        }
    }
}

fn connect_plain(
    address: &Address,
    retry: Option<Duration>,
) -> Result<Socket, partywall_sys::ConnectError> {
    let until = retry.map(|retry| Instant::now() + retry);
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
            Err(error) if may_come(&error) && lies_ahead(until) => thread::sleep(RETRY_PERIOD),
            other => return other,
        }
    }
}

fn verify(found: &[u8], expected: &[u8]) -> Result<(), Trouble> {
    if found == expected { Ok(()) } else { Err(wrong(found.len(), expected.len())) }
}

fn wrong(found: usize, expected: usize) -> Trouble {
    let reason = format!(
        "the echo is not what was sent ({found} bytes came back for {expected}): is this an echo server?"
    );
    Trouble { exit: Exit::Protocol, reason }
}

fn no_answer(exit: Exit, reason: &dyn fmt::Display) -> Trouble {
    Trouble { exit, reason: format!("no echo came: {reason}") }
}

/// Who answers nothing for so long counts as dead.
const fn late_or(is_late: bool, other: Exit) -> Exit {
    if is_late { Exit::PeerDied } else { other }
}

fn broken(what: &str, error: &io::Error) -> Trouble {
    let reason = match error.kind() {
        ErrorKind::WouldBlock => format!("{what}: nothing happened in time"),
        ErrorKind::UnexpectedEof => "no echo came: the other side has closed".to_owned(),
        _ => format!("{what} failed: {error}"),
    };
    Trouble { exit: Exit::PeerDied, reason }
}

/// How long one attempt to connect a plain socket may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
