// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain sockets, TCP or Unix, of programs without Partywall.
//!
//! Only TCP has resets. When a Unix socket is closed instead, its peer reads the end of the stream
//! and fails to write.

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

/// A plain socket to a program that does not use Partywall.
#[derive(Debug)]
pub enum Plain {
    /// The plain socket is a TCP socket with `TCP_NODELAY`.
    Tcp(TcpStream),
    /// The plain socket is a Unix socket, which has no resets.
    Unix(UnixStream),
}

impl Plain {
    /// Connects to `address`, and waits while the backlog of a Unix listener is full.
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
                // The kernel reports no event when the backlog of a Unix listener has room again,
                // so the loop tries again after a pause. The caller of `connect` bounds the total
                // time.
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

    /// Splits the socket into its reading and its writing direction.
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

    /// Makes the later close of the socket send a reset (RST), if the socket is TCP. On a Unix
    /// socket the call does nothing.
    pub fn reset_on_close(&self) {
        if let Self::Tcp(stream) = self {
            // The option `SO_LINGER` makes the close send a reset. An error of setting it is
            // ignored: the call fails only on a broken socket.
            #[allow(
                deprecated,
                reason = "zero never blocks; set_zero_linger asks for a newer tokio"
            )]
            let _ = stream.set_linger(Some(Duration::ZERO));
        }
    }
}

/// The reading direction of a plain socket, which yields the bytes that the program sends to the
/// proxy.
pub enum PlainReader<'a> {
    Tcp(tcp::ReadHalf<'a>),
    Unix(unix::ReadHalf<'a>),
}

/// The writing direction of a plain socket, to which the proxy writes bytes for the program.
pub enum PlainWriter<'a> {
    Tcp(tcp::WriteHalf<'a>),
    Unix(unix::WriteHalf<'a>),
}

/// Calls the same method on a plain socket of either kind, TCP or Unix.
macro_rules! on {
    ($socket:expr, $half:ident => $call:expr) => {
        match $socket {
            Self::Tcp($half) => $call,
            Self::Unix($half) => $call,
        }
    };
}

impl PlainReader<'_> {
    /// Waits until the program has written bytes that can be read from the socket.
    pub async fn readable(&self) -> io::Result<()> {
        on!(self, half => half.readable().await)
    }

    /// Waits until the plain socket has an error or was reset.
    pub async fn broken(&self) {
        let _ = on!(self, half => half.ready(Interest::ERROR).await);
    }

    /// Shuts down the direction from the program to the proxy. On a Unix socket the next write of
    /// the program fails. TCP cannot make a write fail without ending the opposite direction, too,
    /// so on TCP the call does nothing.
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
    /// Waits until the plain socket has an error or was reset.
    pub async fn broken(&self) {
        let _ = on!(self, half => half.ready(Interest::ERROR).await);
    }

    /// Whether the error of a failed write means only that the program reads no more. On a Unix
    /// socket each direction closes alone. On TCP the whole connection has ended.
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

/// A listener for plain sockets. Dropping the value removes its socket file.
#[derive(Debug)]
pub struct PlainListener {
    /// The listener that owns the socket file, and removes it on drop.
    listener: partywall_sys::Listener,
    accepting: Accepting,
}

#[derive(Debug)]
enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl PlainListener {
    /// Binds a listener for plain sockets to the address; an address other than loopback is refused
    /// without `allow_remote`.
    pub fn bind(address: &Address, mode: u32, allow_remote: bool) -> Result<Self, String> {
        let listener = match address {
            Address::Path(path) => partywall_sys::Listener::listen_unix_path(path, mode, BACKLOG),
            Address::Abstract(name) => partywall_sys::Listener::listen_unix_abstract(name, BACKLOG),
            other => {
                let resolved = other.resolve().map_err(|error| error.to_string())?;
                if !allow_remote && !resolved.ip().is_loopback() {
                    return Err(format!(
                        "{other} can be reached from other hosts: bind a loopback address, or add \
                         --allow-remote to admit them"
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

    /// The address to which the listener is bound, with the chosen port if port 0 was requested.
    pub fn local_address(&self, requested: &Address) -> Address {
        let bound = self.listener.local_addr().ok().flatten();
        bound.map_or_else(|| requested.clone(), Address::from)
    }

    /// Accepts the next plain socket. Dropping the future loses no socket (cancel-safe).
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

/// Length of the listen backlog: number of connections that may wait until the proxy accepts them.
/// The system may allow fewer.
const BACKLOG: i32 = 1024;

/// Pause between two attempts while the backlog of a Unix listener is full.
const BACKLOG_PERIOD: Duration = Duration::from_millis(2);
