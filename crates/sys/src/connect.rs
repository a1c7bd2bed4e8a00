// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connecting a stream socket before a deadline.
//!
//! ```text
//!   Unix  SO_PASSCRED, O_NONBLOCK, connect, O_NONBLOCK off
//!         backlog full: SO_SNDTIMEO = time left, connect, SO_SNDTIMEO = none
//!   TCP   O_NONBLOCK, connect, poll until writable, SO_ERROR, O_NONBLOCK off, TCP_NODELAY
//!
//!   begin_…  never blocks; for event loops: O_NONBLOCK, connect ─▶ Begun ─ writable ─▶ finish
//! ```
//!
//! A Unix `connect` blocks while the listener's backlog is full, and polling does not report when
//! the backlog has room. So this file lets the kernel wait, with the send time-out as the limit.
//! The alternative, non-blocking attempts with short sleeps, would wake needlessly and connect
//! late.
//!
//! This module resolves no names and does not retry a refused connection: retries are policy.
//!
//! # Invariants
//!
//! - SO_PASSCRED is set before connecting, so even the peer's first bytes carry its credentials.
//! - A returned socket is in blocking mode and has no send time-out.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, stat};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::net::{getpeername, getsockname};

use crate::poll;
use crate::socket::{Family, Socket};

/// Connects to the Unix socket at `path`. Without a deadline the call blocks while the listener's
/// backlog is full.
///
/// # Errors
///
/// Fails for one of the reasons in [`ConnectError`].
pub fn connect_unix_path(
    path: impl AsRef<Path>,
    deadline: Option<Instant>,
) -> Result<Socket, ConnectError> {
    let path = path.as_ref();
    let to = format!("unix:{}", path.display());
    let address = SocketAddrUnix::new(path).map_err(|e| explain(&to, e))?;
    connect_unix(&address, &to, deadline).map_err(|errno| match other_file(path) {
        // The kernel reports a connection to a file that is not a socket with the same error as a
        // refused connection.
        Some(kind) if errno == Errno::CONNREFUSED => ConnectError::NotASocket { to, kind },
        _ => explain(&to, errno),
    })
}

/// Connects to the abstract Unix socket `name` (without the leading zero byte).
///
/// # Errors
///
/// Fails for one of the reasons in [`ConnectError`].
pub fn connect_unix_abstract(
    name: &str,
    deadline: Option<Instant>,
) -> Result<Socket, ConnectError> {
    let to = format!("unix:@{name}");
    let address =
        SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|e| explain(&to, e))?;
    connect_unix(&address, &to, deadline).map_err(|e| explain(&to, e))
}

/// Connects to `address` over TCP. Without a deadline the call blocks while the kernel retries,
/// which takes some minutes.
///
/// # Errors
///
/// Fails for one of the reasons in [`ConnectError`].
pub fn connect_tcp(address: SocketAddr, deadline: Option<Instant>) -> Result<Socket, ConnectError> {
    let to = format!("tcp:{address}");
    let connected = connect_tcp_fd(address, deadline).map_err(|e| explain(&to, e))?;
    Ok(Socket::labelled(connected, Family::Tcp, &to))
}

/// Begins to connect to the Unix socket at `path`, without blocking.
///
/// # Errors
///
/// Fails for one of the reasons in [`ConnectError`]. [`ConnectError::TimedOut`] means that the
/// backlog is full: try again later.
pub fn begin_unix_path(path: impl AsRef<Path>) -> Result<Begun, ConnectError> {
    let path = path.as_ref();
    let to = format!("unix:{}", path.display());
    let address = SocketAddrUnix::new(path).map_err(|e| explain(&to, e))?;
    begin_unix(&address, &to).map_err(|errno| match other_file(path) {
        Some(kind) if errno == Errno::CONNREFUSED => ConnectError::NotASocket { to, kind },
        _ => explain(&to, errno),
    })
}

/// Begins to connect to the abstract Unix socket `name`, without blocking.
///
/// # Errors
///
/// Fails for one of the reasons in [`ConnectError`]. [`ConnectError::TimedOut`] means that the
/// backlog is full: try again later.
pub fn begin_unix_abstract(name: &str) -> Result<Begun, ConnectError> {
    let to = format!("unix:@{name}");
    let address =
        SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|e| explain(&to, e))?;
    begin_unix(&address, &to).map_err(|e| explain(&to, e))
}

/// Begins to connect to `address` over TCP, without blocking.
///
/// # Errors
///
/// Fails for one of the reasons in [`ConnectError`].
pub fn begin_tcp(address: SocketAddr) -> Result<Begun, ConnectError> {
    let to = format!("tcp:{address}");
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let begun = || {
        let fd = socket_with(internet_family(address), SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&fd, &address) {
            Ok(()) => Ok((fd, true)),
            Err(Errno::INPROGRESS | Errno::INTR) => Ok((fd, false)),
            Err(errno) => Err(errno),
        }
    };
    let (fd, is_connected) = begun().map_err(|e| explain(&to, e))?;
    Ok(Begun { socket: Socket::labelled(fd, Family::Tcp, &to), to, is_connected })
}

/// A connection that a `begin_…` function has begun, and that may not be established yet.
#[derive(Debug)]
pub struct Begun {
    socket: Socket,
    to: String,
    is_connected: bool,
}

impl Begun {
    /// Whether the connection is established. If not, the caller waits until the descriptor is
    /// writable, and then calls [`finish`](Self::finish).
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Returns the established connection, with its socket in blocking mode. The caller waits until
    /// the descriptor is writable before this call.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`ConnectError`].
    pub fn finish(self) -> Result<Socket, ConnectError> {
        let Begun { socket, to, .. } = self;
        let finished = || {
            sockopt::socket_error(&socket)??;
            fcntl_setfl(&socket, fcntl_getfl(&socket)?.difference(OFlags::NONBLOCK))?;
            if socket.family() == Family::Tcp {
                // If no socket listens on an ephemeral port, the kernel may assign that port to
                // this connecting socket. The socket then connects to itself, and prevents a
                // listener from binding the port.
                if getsockname(&socket)? == getpeername(&socket)?.ok_or(Errno::NOTCONN)? {
                    return Err(Errno::CONNREFUSED);
                }
                sockopt::set_tcp_nodelay(&socket, true)?;
            }
            Ok(())
        };
        finished().map_err(|e| explain(&to, e))?;
        Ok(socket)
    }
}

impl AsFd for Begun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn begin_unix(address: &SocketAddrUnix, to: &str) -> Result<Begun, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_passcred(&fd, true)?;
    match rustix::io::retry_on_intr(|| rustix::net::connect(&fd, address)) {
        Ok(()) => {}
        // The listener's backlog is full. Polling would not report when the backlog has room, so
        // the attempt to connect ends with the error of a time-out.
        Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
        Err(errno) => return Err(errno),
    }
    let socket = Socket::labelled(fd, Family::Unix, to);
    Ok(Begun { socket, to: to.to_owned(), is_connected: true })
}

fn connect_unix(
    address: &SocketAddrUnix,
    to: &str,
    deadline: Option<Instant>,
) -> Result<Socket, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_passcred(&fd, true)?;
    let begun = rustix::net::connect(&fd, address);
    ioctl_fionbio(&fd, false)?;
    match begun {
        Ok(()) => {}
        Err(Errno::AGAIN | Errno::INTR) => wait_for_backlog(&fd, address, deadline)?,
        Err(errno) => return Err(errno),
    }
    Ok(Socket::labelled(fd, Family::Unix, to))
}

/// Connects `fd`, a socket in blocking mode, to a listener whose backlog is full, and waits until
/// the backlog has room.
fn wait_for_backlog(
    fd: &OwnedFd,
    address: &SocketAddrUnix,
    deadline: Option<Instant>,
) -> Result<(), Errno> {
    loop {
        if let Some(deadline) = deadline {
            // To the kernel a send time-out of zero means no limit. So if the deadline has passed
            // already, this function makes one short attempt with the time-out `ATTEMPT_MIN`.
            let left = deadline.saturating_duration_since(Instant::now()).max(ATTEMPT_MIN);
            sockopt::set_socket_timeout(fd, Timeout::Send, Some(left))?;
        }
        match rustix::net::connect(fd, address) {
            Ok(()) => break,
            Err(Errno::INTR) if !poll::has_passed(deadline) => continue,
            Err(Errno::AGAIN | Errno::INTR) => return Err(Errno::TIMEDOUT),
            Err(errno) => return Err(errno),
        }
    }
    if deadline.is_some() {
        sockopt::set_socket_timeout(fd, Timeout::Send, None)?;
    }
    Ok(())
}

fn connect_tcp_fd(address: SocketAddr, deadline: Option<Instant>) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(internet_family(address), SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&fd, &address) {
        Ok(()) => {}
        // A connect that a signal has interrupted continues in the background, like a non-blocking
        // connect.
        Err(Errno::INPROGRESS | Errno::INTR) => {
            let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
            let ready = poll::wait(&mut fds, deadline)
                .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            if ready == 0 {
                return Err(Errno::TIMEDOUT);
            }
            sockopt::socket_error(&fd)??;
        }
        Err(errno) => return Err(errno),
    }
    fcntl_setfl(&fd, fcntl_getfl(&fd)?.difference(OFlags::NONBLOCK))?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    Ok(fd)
}

pub(crate) fn internet_family(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

/// The kind of the file at `path`, or `None` if the file is a socket. The function follows symbolic
/// links, as `connect` does.
fn other_file(path: &Path) -> Option<&'static str> {
    match FileType::from_raw_mode(stat(path).ok()?.st_mode) {
        FileType::RegularFile => Some("a regular file"),
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a named pipe"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        _ => None,
    }
}

fn explain(to: &str, errno: Errno) -> ConnectError {
    let to = to.to_owned();
    match errno {
        Errno::TIMEDOUT => ConnectError::TimedOut { to },
        Errno::NOENT => ConnectError::NotFound { to },
        Errno::CONNREFUSED => ConnectError::Refused { to },
        Errno::ACCESS | Errno::PERM => ConnectError::Denied { to },
        Errno::NAMETOOLONG => ConnectError::NameTooLong { to },
        Errno::MFILE | Errno::NFILE => ConnectError::DescriptorLimit { source: errno.into() },
        _ => ConnectError::Other { to, source: errno.into() },
    }
}

/// Why a connection was not established.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The deadline passed before the listener accepted the connection.
    #[error("timed out while connecting to {to}: it is overloaded, stopped or unreachable")]
    TimedOut {
        /// The address to which the attempt to connect was made, in readable form.
        to: String,
    },
    /// The path of the address does not exist in the file system.
    #[error("{to} does not exist: is the server running? Both sides need the same path")]
    NotFound {
        /// The address to which the attempt to connect was made, in readable form.
        to: String,
    },
    /// No socket listens on the address.
    #[error("no server listens on {to}: start it")]
    Refused {
        /// The address to which the attempt to connect was made, in readable form.
        to: String,
    },
    /// The path of the address is a file of another kind, not a socket.
    #[error("{to} is {kind}, not a socket: is the path right?")]
    NotASocket {
        /// The address to which the attempt to connect was made, in readable form.
        to: String,
        /// The kind of file that the path names.
        kind: &'static str,
    },
    /// This process lacks the permission to connect to the address.
    #[error(
        "no permission to connect to {to}: the socket file and its directories must admit this user"
    )]
    Denied {
        /// The address to which the attempt to connect was made, in readable form.
        to: String,
    },
    /// The path or name is too long for a socket address.
    #[error(
        "{to} is too long for a socket address: a path may have 108 bytes, an abstract name 107"
    )]
    NameTooLong {
        /// The address to which the attempt to connect was made, in readable form.
        to: String,
    },
    /// No file descriptor is left, in this process or in the system.
    #[error("no file descriptor left to connect ({source}): raise RLIMIT_NOFILE (ulimit -n)")]
    DescriptorLimit {
        /// The kernel's error for the attempt to connect.
        source: io::Error,
    },
    /// The attempt failed for another reason, mostly an error of the network.
    #[error("connecting to {to} failed: {source}")]
    Other {
        /// The address to which the attempt to connect was made, in readable form.
        to: String,
        /// The kernel's error for the attempt to connect.
        source: io::Error,
    },
}

impl ConnectError {
    /// The number of this error in the specification's table of errors (SPEC 17).
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            ConnectError::NameTooLong { .. } => 302,
            ConnectError::DescriptorLimit { .. } => 306,
            ConnectError::TimedOut { .. } => 331,
            ConnectError::NotFound { .. } => 332,
            ConnectError::Refused { .. } => 333,
            ConnectError::NotASocket { .. } => 334,
            ConnectError::Denied { .. } => 335,
            ConnectError::Other { .. } => 336,
        }
    }
}

/// Shortest time limit of one attempt to connect. The kernel rounds the limit up to its ticks of up
/// to 10 ms.
const ATTEMPT_MIN: Duration = Duration::from_millis(1);
