// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening stream sockets, Unix and TCP.
//!
//! A listener never blocks: `accept` takes a pending connection, and callers poll the descriptor to
//! wait. A listener admits every peer that the kernel admits; checking credentials is the caller's
//! policy.
//!
//! # Invariants
//!
//! - SO_PASSCRED is set before listening, so even bytes sent before `accept` carry credentials.
//! - The socket file is removed on drop, only by the process that created it, and only if the path
//!   still names that file.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{acceptfrom_with, bind, getsockname, listen, socket_with, sockopt};

use crate::connect::internet_family;
use crate::socket::{Family, Socket, is_given_by_kernel, label};
use crate::socket_path::SocketPath;

/// A listening socket, whose calls never block.
///
/// ```
/// use partywall_sys::{Listener, connect_tcp};
///
/// let listener = Listener::listen_tcp("127.0.0.1:0".parse()?, 16)?;
/// let address = listener.local_addr()?.ok_or("no internet address")?;
/// let client = connect_tcp(address, None)?;
/// assert!(listener.accept()?.is_some());
/// assert!(listener.accept()?.is_none());
/// # drop(client);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    // `drop` removes the socket file at this path before it closes the descriptor in the next
    // field.
    path: Option<SocketPath>,
    fd: OwnedFd,
    family: Family,
    /// Whether another process made the listening socket. If so, pending connections may be older
    /// than the options that this module sets on the socket.
    is_adopted: bool,
    /// The address in readable form to which the listening socket is bound.
    label: Option<String>,
}

impl Listener {
    /// Listens at `path`, a socket file with permission bits `mode` (such as 0o600), and replaces a
    /// socket file that a dead process left. The kernel queues up to `backlog` connections.
    ///
    /// The call may block for up to a second while another process holds the lock of the directory.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BindError`].
    pub fn listen_unix_path(
        path: impl AsRef<Path>,
        mode: u32,
        backlog: i32,
    ) -> Result<Listener, BindError> {
        let path = path.as_ref();
        let fd = unix_socket().map_err(|e| BindError::explain(&unix_label(path), e))?;
        let path = SocketPath::listen(&fd, path, mode, backlog)?;
        Ok(Listener::new(Some(path), fd, Family::Unix))
    }

    /// Listens on the abstract name `name` (without the leading zero byte). An abstract name has no
    /// file and no permissions: any process of this network namespace may connect.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BindError`].
    pub fn listen_unix_abstract(name: &str, backlog: i32) -> Result<Listener, BindError> {
        let fail = |errno| BindError::explain(&format!("unix:@{name}"), errno);
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(fail)?;
        let fd = unix_socket().map_err(fail)?;
        bind(&fd, &address).map_err(fail)?;
        listen(&fd, backlog).map_err(fail)?;
        Ok(Listener::new(None, fd, Family::Unix))
    }

    /// Listens on `address` over TCP. Port 0 picks a free port, which [`Listener::local_addr`]
    /// returns.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`BindError`].
    pub fn listen_tcp(address: SocketAddr, backlog: i32) -> Result<Listener, BindError> {
        let fail = |errno| BindError::explain(&format!("tcp:{address}"), errno);
        let family = internet_family(address);
        let fd = socket_with(family, SocketType::STREAM, LISTENER_FLAGS, None).map_err(fail)?;
        // Without SO_REUSEADDR a restart would have to wait for the TIME_WAIT of earlier
        // connections.
        sockopt::set_socket_reuseaddr(&fd, true).map_err(fail)?;
        bind(&fd, &address).map_err(fail)?;
        listen(&fd, backlog).map_err(fail)?;
        Ok(Listener::new(None, fd, Family::Tcp))
    }

    fn new(path: Option<SocketPath>, fd: OwnedFd, family: Family) -> Listener {
        let label = getsockname(&fd).ok().and_then(label);
        Listener { path, fd, family, is_adopted: false, label }
    }

    /// Takes over a listening socket that another process made. If the socket has a socket file,
    /// the file stays in place.
    ///
    /// # Errors
    ///
    /// [`BindError::Other`] if the descriptor is no listening stream socket, Unix or TCP.
    pub fn adopt(fd: OwnedFd) -> Result<Listener, BindError> {
        let fail = |errno: Errno| BindError::explain("the descriptor", errno);
        let is_listening = sockopt::socket_acceptconn(&fd).map_err(fail)?;
        let is_stream = sockopt::socket_type(&fd).map_err(fail)? == SocketType::STREAM;
        let family = match sockopt::socket_domain(&fd).map_err(fail)? {
            AddressFamily::UNIX => Family::Unix,
            AddressFamily::INET | AddressFamily::INET6 => Family::Tcp,
            _ => return Err(fail(Errno::AFNOSUPPORT)),
        };
        if !is_listening || !is_stream {
            return Err(fail(Errno::INVAL));
        }
        // Another process that shares the socket may take a pending connection first. So the socket
        // becomes non-blocking, and `accept` then returns instead of waiting.
        let flags = fcntl_getfl(&fd).map_err(fail)?;
        fcntl_setfl(&fd, flags | OFlags::NONBLOCK).map_err(fail)?;
        if family == Family::Unix {
            sockopt::set_socket_passcred(&fd, true).map_err(fail)?;
        }
        let mut listener = Listener::new(None, fd, family);
        listener.is_adopted = true;
        Ok(listener)
    }

    /// Takes a pending connection, whose socket is in blocking mode. Returns `None` if no
    /// connection is pending, or if another process has taken it. The call itself never blocks.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`AcceptError`]. The listener stays usable after any of
    /// them. After [`AcceptError::DescriptorLimit`] its descriptor stays readable, so the caller
    /// should pause before the next attempt.
    pub fn accept(&self) -> Result<Option<Socket>, AcceptError> {
        for _ in 0..ACCEPT_ATTEMPTS_MAX {
            match acceptfrom_with(&self.fd, SocketFlags::CLOEXEC) {
                Ok((fd, address)) => {
                    let label = self.label_of_peer(address.and_then(label));
                    let socket = Socket::labelled(fd, self.family, &label);
                    if self.is_adopted && self.family == Family::Unix {
                        // A connection that was queued before this process took over the listening
                        // socket has not inherited SO_PASSCRED, so the option is set on the
                        // connection.
                        sockopt::set_socket_passcred(&socket, true)
                            .map_err(|errno| AcceptError::Other { source: errno.into() })?;
                    }
                    // Setting TCP_NODELAY fails only if the peer has gone, which the first read
                    // will report.
                    let _ = socket.set_nodelay(true);
                    return Ok(Some(socket));
                }
                Err(Errno::INTR) => continue,
                Err(errno) if is_of_one_connection(errno) => return Ok(None),
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => {
                    return Err(AcceptError::DescriptorLimit { source: errno.into() });
                }
                Err(errno @ (Errno::NOMEM | Errno::NOBUFS)) => {
                    return Err(AcceptError::OutOfMemory { source: errno.into() });
                }
                Err(errno) => return Err(AcceptError::Other { source: errno.into() }),
            }
        }
        Ok(None)
    }

    /// The label of a peer that connected from the address `name`. Clients of a Unix listener have
    /// no address, so their label is made from the listener's.
    fn label_of_peer(&self, name: Option<String>) -> String {
        let named = name.filter(|name| !is_given_by_kernel(name));
        named.unwrap_or_else(|| format!("client of {}", self.label()))
    }

    /// The address family of the connections that the listener accepts.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The internet address to which the listener is bound, with its actual port; `None` on Unix
    /// sockets.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if the kernel has no buffer left.
    pub fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        Ok(SocketAddr::try_from(getsockname(&self.fd)?).ok())
    }

    /// The address in readable form to which the listener is bound, such as `unix:/run/app.sock`.
    pub fn label(&self) -> String {
        self.label.clone().unwrap_or_else(|| "unnamed".to_owned())
    }

    /// Removes the socket file now instead of on drop, if the listener has a socket file and the
    /// path still names that file. New clients cannot connect any more; queued connections can
    /// still be accepted. In a forked child the call does nothing.
    pub fn remove_path(&mut self) {
        if let Some(path) = self.path.take() {
            path.remove();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove_path();
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, LISTENER_FLAGS, None)?;
    sockopt::set_socket_passcred(&fd, true)?;
    Ok(fd)
}

fn unix_label(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// Whether the error `errno` of `accept` concerns only the connection that `accept` would have
/// returned, not the listener.
fn is_of_one_connection(errno: Errno) -> bool {
    // The manual page accept(2) lists the errors of one connection: Linux reports pending network
    // errors of the new connection as errors of `accept`.
    matches!(
        errno,
        Errno::AGAIN
            | Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NONET
            | Errno::TIMEDOUT
            | Errno::PERM
    )
}

/// The advice for an operator whose process lacks the permission to listen on the address `to`.
fn permitted(to: &str) -> &'static str {
    if to.starts_with("tcp:") {
        "use a port from 1024 up"
    } else {
        "check the directory, which this user must be able to write"
    }
}

/// Why a listener could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another socket listens on the address.
    #[error("{to} is in use: stop the process that listens there, or choose another address")]
    AddressInUse {
        /// The address to listen on, in readable form.
        to: String,
    },
    /// The path names a file of another kind, which the listener does not replace: it replaces only
    /// stale sockets.
    #[error("{} exists and is not a socket: move it away, or choose another path", path.display())]
    NotASocket {
        /// The path of the socket file to listen on.
        path: PathBuf,
    },
    /// The socket file is stale, but this process cannot replace it: another process holds the lock
    /// of the socket file's directory.
    #[error(
        "{} is stale, but its directory is locked by another process: remove the file by hand",
        path.display()
    )]
    Locked {
        /// The path of the socket file to listen on.
        path: PathBuf,
    },
    /// This process lacks the permission to listen on the address.
    #[error("no permission to listen on {to}: {}", permitted(to))]
    Denied {
        /// The address to listen on, in readable form.
        to: String,
    },
    /// The directory of the socket path does not exist.
    #[error("the directory of {to} does not exist: create it first")]
    NoDirectory {
        /// The address to listen on, in readable form.
        to: String,
    },
    /// The path or name is too long for a socket address.
    #[error(
        "{to} is too long for a socket address: a path may have 108 bytes, an abstract name 107"
    )]
    NameTooLong {
        /// The address to listen on, in readable form.
        to: String,
    },
    /// No file descriptor is left, in this process or in the system.
    #[error("no file descriptor left to listen ({source}): raise RLIMIT_NOFILE (ulimit -n)")]
    DescriptorLimit {
        /// The kernel's error for the attempt to listen.
        source: io::Error,
    },
    /// Listening failed with an error that no other variant names.
    #[error("listening on {to} failed: {source}")]
    Other {
        /// The address to listen on, in readable form.
        to: String,
        /// The kernel's error for the attempt to listen.
        source: io::Error,
    },
}

impl BindError {
    /// The number of this error in the specification's table of errors (SPEC 17).
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            BindError::NameTooLong { .. } => 302,
            BindError::DescriptorLimit { .. } => 306,
            BindError::AddressInUse { .. } => 311,
            BindError::NotASocket { .. } => 312,
            BindError::Locked { .. } => 313,
            BindError::Denied { .. } => 314,
            BindError::NoDirectory { .. } => 315,
            BindError::Other { .. } => 316,
        }
    }

    pub(crate) fn explain(to: &str, errno: Errno) -> BindError {
        let to = to.to_owned();
        match errno {
            Errno::ADDRINUSE => BindError::AddressInUse { to },
            Errno::ACCESS | Errno::PERM => BindError::Denied { to },
            Errno::NOENT | Errno::NOTDIR => BindError::NoDirectory { to },
            Errno::NAMETOOLONG => BindError::NameTooLong { to },
            Errno::MFILE | Errno::NFILE => BindError::DescriptorLimit { source: errno.into() },
            _ => BindError::Other { to, source: errno.into() },
        }
    }
}

/// Why a pending connection could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// No file descriptor is left, in this process or in the system.
    #[error("no file descriptor left to accept a connection ({source}): raise RLIMIT_NOFILE")]
    DescriptorLimit {
        /// The kernel's error for `accept`.
        source: io::Error,
    },
    /// The kernel has no memory for the pending connection.
    #[error("no memory to accept a connection: {source}")]
    OutOfMemory {
        /// The kernel's error for `accept`.
        source: io::Error,
    },
    /// Accepting failed with an error that no other variant names.
    #[error("accepting a connection failed unexpectedly: {source}")]
    Other {
        /// The kernel's error for `accept`.
        source: io::Error,
    },
}

impl AcceptError {
    /// The number of this error in the specification's table of errors (SPEC 17).
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            AcceptError::DescriptorLimit { .. } => 306,
            AcceptError::OutOfMemory { .. } => 307,
            AcceptError::Other { .. } => 321,
        }
    }
}

const LISTENER_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Number of attempts of one `accept`, each interrupted by a signal, after which the call reports
/// that no connection is pending. The caller then waits for the descriptor again.
const ACCEPT_ATTEMPTS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::ConnectError;
    use crate::error_numbers::NumberTable;
    use crate::walk_variants;

    #[test]
    fn every_error_of_a_socket_has_the_number_of_the_specification() {
        let to = String::new;
        let source = || io::Error::from_raw_os_error(5);
        let mut table = NumberTable::of_section("17.4 Addresses, listening, connecting");
        walk_variants!(table, BindError::code, BindError {
            AddressInUse = BindError::AddressInUse { to: to() } => "address in use",
            NotASocket = BindError::NotASocket { path: PathBuf::new() } => "listening on a file",
            Locked = BindError::Locked { path: PathBuf::new() } => "directory locked",
            Denied = BindError::Denied { to: to() } => "listening denied",
            NoDirectory = BindError::NoDirectory { to: to() } => "no directory",
            NameTooLong = BindError::NameTooLong { to: to() } => "address too long",
            DescriptorLimit = BindError::DescriptorLimit { source: source() } => "descriptor limit",
            Other = BindError::Other { to: to(), source: source() } => "listening failed",
        });
        walk_variants!(table, AcceptError::code, AcceptError {
            DescriptorLimit = AcceptError::DescriptorLimit { source: source() } => "descriptor limit",
            OutOfMemory = AcceptError::OutOfMemory { source: source() } => "no memory",
            Other = AcceptError::Other { source: source() } => "accepting failed",
        });
        walk_variants!(table, ConnectError::code, ConnectError {
            TimedOut = ConnectError::TimedOut { to: to() } => "connecting timed out",
            NotFound = ConnectError::NotFound { to: to() } => "no socket",
            Refused = ConnectError::Refused { to: to() } => "no listener",
            NotASocket = ConnectError::NotASocket { to: to(), kind: "" } => "connecting to a file",
            Denied = ConnectError::Denied { to: to() } => "connecting denied",
            NameTooLong = ConnectError::NameTooLong { to: to() } => "address too long",
            DescriptorLimit = ConnectError::DescriptorLimit { source: source() } => "descriptor limit",
            Other = ConnectError::Other { to: to(), source: source() } => "connecting failed",
        });
        table.assert_all_met(306..=399);
    }
}
