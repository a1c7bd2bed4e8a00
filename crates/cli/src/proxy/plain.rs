// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain sockets, TCP or Unix, of programs that know nothing of Partywall.
//!
//! A reset passes through TCP only: a Unix socket cannot be made to say it, its other end reads the end and
//! fails to write.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{Shutdown, TcpListener as StdTcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use partywall::Address;
use partywall_sys::Family;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, tcp, unix};

/// A plain socket.
#[derive(Debug)]
pub enum Plain {
    /// Over TCP, without delay.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Plain {
    /// Connects; waits as long as a listener's backlog is full.
    pub async fn connect(address: &Address) -> io::Result<Self> {
        let path = match address {
            Address::Path(path) => path.clone(),
            Address::Abstract(name) => format!("\0{name}").into(),
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                return Self::tcp(stream);
            }
            other => return Err(io::Error::new(ErrorKind::Unsupported, other.to_string())),
        };
        loop {
            match UnixStream::connect(&path).await {
                // The kernel tells nobody when there is room in the backlog. The caller bounds the time.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    tokio::time::sleep(BACKLOG_PERIOD).await;
                }
                other => return other.map(Self::Unix),
            }
        }
    }

    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Both directions, to be used at once.
    pub fn split(&mut self) -> (PlainReader<'_>, PlainWriter<'_>) {
        match self {
            Self::Tcp(stream) => {
                let (reader, writer) = stream.split();
                (PlainReader::Tcp(reader), PlainWriter::Tcp(writer))
            }
            Self::Unix(stream) => {
                let (reader, writer) = stream.split();
                (PlainReader::Unix(reader), PlainWriter::Unix(writer))
            }
        }
    }

    /// From now on, closing it tells the other end that something is missing, where the socket can say so.
    pub fn reset_on_close(&self) {
        if let Self::Tcp(stream) = self {
            // Fails only on a socket that is broken already.
            #[allow(
                deprecated,
                reason = "zero never blocks; set_zero_linger asks for a newer tokio"
            )]
            let _ = stream.set_linger(Some(Duration::ZERO));
        }
    }
}

/// The direction that comes from the program.
pub enum PlainReader<'a> {
    Tcp(tcp::ReadHalf<'a>),
    Unix(unix::ReadHalf<'a>),
}

/// The direction that goes to the program.
pub enum PlainWriter<'a> {
    Tcp(tcp::WriteHalf<'a>),
    Unix(unix::WriteHalf<'a>),
}

/// Calls the same method on whichever socket it is.
macro_rules! on {
    ($socket:expr, $half:ident => $call:expr) => {
        match $socket {
            Self::Tcp($half) => $call,
            Self::Unix($half) => $call,
        }
    };
}

impl PlainReader<'_> {
    /// Waits until there is something to read.
    pub async fn readable(&self) -> io::Result<()> {
        on!(self, half => half.readable().await)
    }

    /// Waits until the socket is broken.
    pub async fn broken(&self) {
        let _ = on!(self, half => half.ready(Interest::ERROR).await);
    }

    /// Reads no more. On a Unix socket the program learns of it when it next writes; on TCP nobody can say so
    /// without giving up the other direction.
    pub fn stop(&self) {
        let Self::Unix(half) = self else { return };
        let stream: &UnixStream = half.as_ref();
        if let Ok(descriptor) = stream.as_fd().try_clone_to_owned() {
            let _ = StdUnixStream::from(descriptor).shutdown(Shutdown::Read);
        }
    }
}

impl AsyncRead for PlainReader<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on!(self.get_mut(), half => Pin::new(half).poll_read(context, buffer))
    }
}

impl PlainWriter<'_> {
    /// Waits until the socket is broken.
    pub async fn broken(&self) {
        let _ = on!(self, half => half.ready(Interest::ERROR).await);
    }

    /// Whether a failure to write tells that the program just reads no more: on a Unix socket, each
    /// direction can be closed alone. On TCP it means that the whole connection is gone.
    pub fn reads_no_more(&self, error: &io::Error) -> bool {
        matches!(self, Self::Unix(_)) && error.kind() == ErrorKind::BrokenPipe
    }
}

impl AsyncWrite for PlainWriter<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on!(self.get_mut(), half => Pin::new(half).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on!(self.get_mut(), half => Pin::new(half).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self.get_mut(), half => Pin::new(half).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self.get_mut(), half => Pin::new(half).poll_shutdown(context))
    }
}

/// Where plain sockets are accepted. Dropping it removes its socket file.
#[derive(Debug)]
pub struct PlainListener {
    /// Owns the socket file.
    listener: partywall_sys::Listener,
    accepting: Accepting,
}

#[derive(Debug)]
enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl PlainListener {
    /// Listens; beyond loopback only if `allow_remote` says so.
    pub fn bind(address: &Address, mode: u32, allow_remote: bool) -> Result<Self, String> {
        let listener = match address {
            Address::Path(path) => partywall_sys::Listener::listen_unix_path(path, mode, BACKLOG),
            Address::Abstract(name) => partywall_sys::Listener::listen_unix_abstract(name, BACKLOG),
            other => {
                let resolved = other.resolve().map_err(|error| error.to_string())?;
                if !allow_remote && !resolved.ip().is_loopback() {
                    return Err(format!(
                        "{other} can be reached from other hosts: add --allow-remote if they may use \
                         what is behind it, or listen on a loopback address"
                    ));
                }
                partywall_sys::Listener::listen_tcp(resolved, BACKLOG)
            }
        };
        let listener = listener.map_err(|error| error.to_string())?;
        let accepting = Accepting::over(&listener)
            .map_err(|error| format!("listening on {address} failed: {error}"))?;
        Ok(Self { listener, accepting })
    }

    /// The address, with the port that the system chose where 0 was asked for.
    pub fn local_address(&self, asked: &Address) -> Address {
        let bound = self.listener.local_addr().ok().flatten();
        bound.map_or_else(|| asked.clone(), Address::from)
    }

    /// The next socket. Cancel-safe.
    pub async fn accept(&self) -> io::Result<Plain> {
        match &self.accepting {
            Accepting::Tcp(listener) => Plain::tcp(listener.accept().await?.0),
            Accepting::Unix(listener) => Ok(Plain::Unix(listener.accept().await?.0)),
        }
    }
}

impl Accepting {
    fn over(listener: &partywall_sys::Listener) -> io::Result<Self> {
        let descriptor = listener.as_fd().try_clone_to_owned()?;
        Ok(match listener.family() {
            Family::Tcp => Self::Tcp(TcpListener::from_std(StdTcpListener::from(descriptor))?),
            Family::Unix => Self::Unix(UnixListener::from_std(StdUnixListener::from(descriptor))?),
        })
    }
}

/// Sockets that may wait to be accepted; the system may allow fewer.
const BACKLOG: i32 = 1024;

/// How often to look whether a Unix listener's backlog has room.
const BACKLOG_PERIOD: Duration = Duration::from_millis(2);
