// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connected stream socket, Unix or TCP: bytes, and on Unix also descriptors and credentials.
//!
//! ```text
//!   read / write      bytes only: the fast path
//!   receive / send    bytes, up to FDS_MAX descriptors, credentials (Unix only)
//! ```
//!
//! This file knows no boundaries of messages: a stream may split and join sent bytes at will, and a
//! short count is no error. [`connect`](crate::connect) and [`listener`](crate::listener) create
//! sockets.
//!
//! # Invariants
//!
//! - The socket stays in blocking mode; each call decides whether it may block (`MSG_DONTWAIT`). A
//!   peer cannot change the mode of the socket, unlike that of a shared description such as an
//!   eventfd.
//! - No call raises SIGPIPE. Descriptors arrive close-on-exec.

use core::mem::MaybeUninit;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{RecvFlags, ReturnFlags, SendFlags, Shutdown, UCred};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sockopt};
use rustix::process::{getegid, geteuid};

use crate::ancillary;
use crate::peer::{Credentials, PidFd, one_process, own_pid};
use crate::{pass_pidfd, peer_credentials, send_queue};

/// A connected stream socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    family: Family,
    /// Label of the peer, its address in readable form, if the code that made the socket knew the
    /// label.
    label: Option<Arc<str>>,
}

/// The address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A Unix stream socket: both ends are on one machine, and the socket carries descriptors and
    /// credentials.
    Unix,
    /// A TCP socket, over IPv4 or IPv6.
    Tcp,
}

/// The result of one [`Socket::receive`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Received {
    /// Number of bytes that were received; 0 means the end of the stream.
    pub bytes: usize,
    /// The descriptors that were received with the bytes, at most [`FDS_MAX`].
    pub fds: Vec<OwnedFd>,
    /// The credentials of the sender, as the kernel verified them; `None` over TCP.
    pub credentials: Option<Credentials>,
    /// A pidfd, made by the kernel, of the process that the credentials name. `None` unless
    /// [`Socket::set_pass_pidfd`] is on.
    pub process: Option<PidFd>,
    /// Whether descriptors were lost: because of this process's descriptor limit, a security
    /// module, or more than [`FDS_MAX`] descriptors.
    pub truncated: bool,
}

impl Socket {
    /// Creates two Unix sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// `EMFILE` or `ENFILE` if no descriptor is left, `ENOMEM`.
    pub fn pair() -> io::Result<(Socket, Socket)> {
        let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        sockopt::set_socket_passcred(&a, true)?;
        sockopt::set_socket_passcred(&b, true)?;
        Ok((Socket::new(a, Family::Unix), Socket::new(b, Family::Unix)))
    }

    /// Makes a socket from a descriptor that a peer sent as one end of a pair of connected sockets.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the descriptor is no Unix stream socket, or listens; `ENOTCONN` if it has no
    /// other end; `ENOTSOCK`, or `EBADF` for a descriptor without a file (`O_PATH`).
    pub fn adopt_pair(fd: OwnedFd) -> io::Result<Socket> {
        let is_unix = sockopt::socket_domain(&fd)? == AddressFamily::UNIX;
        let is_stream = sockopt::socket_type(&fd)? == SocketType::STREAM;
        if !is_unix || !is_stream || sockopt::socket_acceptconn(&fd)? {
            return Err(rustix::io::Errno::INVAL.into());
        }
        rustix::net::getpeername(&fd)?;
        // The peer may have turned SO_PASSCRED off before it sent this end of the pair, so it is
        // turned on again.
        sockopt::set_socket_passcred(&fd, true)?;
        Ok(Socket::labelled(fd, Family::Unix, "a socket pair"))
    }

    pub(crate) fn new(fd: OwnedFd, family: Family) -> Socket {
        Socket { fd, family, label: None }
    }

    /// Makes a socket from a descriptor, with `label` as the readable address of its peer. So no
    /// system call has to find that address.
    pub(crate) fn labelled(fd: OwnedFd, family: Family, label: &str) -> Socket {
        Socket { fd, family, label: Some(label.into()) }
    }

    /// The address family of this socket, Unix or TCP.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Reads bytes into `buf`; a result of 0 means the end of the stream. The call closes
    /// descriptors that arrive with the bytes.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if `nonblocking` and no byte has arrived; `ECONNRESET` and other errors of the
    /// network.
    pub fn read(&self, buf: &mut [u8], nonblocking: bool) -> io::Result<usize> {
        let flags = receive_flags(nonblocking);
        let (count, _) = retry_on_intr(|| rustix::net::recv(&self.fd, &mut *buf, flags))?;
        Ok(count)
    }

    /// Writes the bytes of `bufs`, without ancillary data. Returns how many bytes the kernel
    /// accepted, possibly not all.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if `nonblocking` and the send buffer has no room; `BrokenPipe` if the peer has
    /// gone.
    pub fn write(&self, bufs: &[IoSlice<'_>], nonblocking: bool) -> io::Result<usize> {
        if let [buf] = bufs {
            // For a single buffer, `send` costs the kernel less than `sendmsg`.
            let flags = send_flags(nonblocking);
            return Ok(retry_on_intr(|| rustix::net::send(&self.fd, buf, flags))?);
        }
        self.send_message(bufs, &mut SendAncillaryBuffer::default(), nonblocking)
    }

    /// Receives bytes with their ancillary data.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if `nonblocking` and no byte has arrived; `ECONNRESET` and other errors of the
    /// network, as in [`read`](Self::read).
    pub fn receive(&self, buf: &mut [u8], nonblocking: bool) -> io::Result<Received> {
        let flags = receive_flags(nonblocking) | RecvFlags::CMSG_CLOEXEC;
        let (message, control) =
            retry_on_intr(|| ancillary::receive(&self.fd, &mut [IoSliceMut::new(buf)], flags))?;
        Ok(Received {
            bytes: message.bytes,
            fds: control.fds,
            credentials: control.credentials,
            process: control.process.map(PidFd::from_kernel),
            truncated: message.flags.contains(ReturnFlags::CTRUNC) || control.excess,
        })
    }

    /// Sets whether each [`receive`](Self::receive) returns a descriptor of the sender's process.
    /// The setting applies even to bytes that the peer has sent before.
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT` before Linux 6.5; `EOPNOTSUPP` over TCP.
    pub fn set_pass_pidfd(&self, is_on: bool) -> io::Result<()> {
        pass_pidfd::set(self.fd.as_fd(), is_on)
    }

    /// Credentials of the process that called `listen`, if this process made the connection. Their
    /// process id is 0 if that process is not visible in the caller's pid namespace. `None` over
    /// TCP.
    #[must_use]
    pub fn peer_credentials(&self) -> Option<Credentials> {
        if self.family == Family::Tcp {
            return None;
        }
        peer_credentials::of(self.fd.as_fd()).ok()
    }

    /// Sends bytes and, with the first byte, descriptors and (on request) the credentials of this
    /// process. Returns how many bytes the kernel accepted, possibly not all; the ancillary data
    /// went with the first byte.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if `nonblocking` and the send buffer has no room; `BrokenPipe` if the peer has
    /// gone; `ETOOMANYREFS` if too many sent descriptors are not received yet.
    ///
    /// # Panics
    ///
    /// If there are more than [`FDS_MAX`] descriptors, or there is ancillary data without bytes or
    /// over TCP.
    pub fn send(
        &self,
        bufs: &[IoSlice<'_>],
        fds: &[BorrowedFd<'_>],
        credentials: bool,
        nonblocking: bool,
    ) -> io::Result<usize> {
        let has_bytes = bufs.iter().any(|buf| !buf.is_empty());
        let has_descriptors = credentials || !fds.is_empty();
        assert!(fds.len() <= FDS_MAX, "{} descriptors, the limit is {FDS_MAX}", fds.len());
        assert!(!has_descriptors || has_bytes, "a stream carries ancillary data only with bytes");
        assert!(!has_descriptors || self.family == Family::Unix, "TCP carries bytes only");

        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX), ScmCredentials(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if credentials {
            // User and group of this process may change at any time, so each call reads them. The
            // process id does not change.
            let pid = one_process(own_pid())?;
            let own = UCred { pid, uid: geteuid(), gid: getegid() };
            let fits = control.push(SendAncillaryMessage::ScmCredentials(own));
            assert!(fits); // the buffer above has space for credentials
        }
        if !fds.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(fds));
            assert!(fits); // the buffer above has space for FDS_MAX descriptors
        }
        self.send_message(bufs, &mut control, nonblocking)
    }

    fn send_message(
        &self,
        bufs: &[IoSlice<'_>],
        control: &mut SendAncillaryBuffer<'_, '_, '_>,
        nonblocking: bool,
    ) -> io::Result<usize> {
        let flags = send_flags(nonblocking);
        Ok(retry_on_intr(|| rustix::net::sendmsg(&self.fd, bufs, control, flags))?)
    }

    /// Number of written bytes that the peer has not taken. On a Unix socket these are the bytes
    /// that the peer has not read, buffer overhead included; over TCP, those that the peer's kernel
    /// has not acknowledged.
    ///
    /// # Errors
    ///
    /// The error of ioctl, which a sandbox may forbid.
    pub fn untaken_bytes(&self) -> io::Result<usize> {
        send_queue::untaken(self.fd.as_fd())
    }

    /// Ends the direction from this process to the peer: after the bytes sent before, the peer
    /// reads the end of the stream.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the peer has gone already.
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Write)?)
    }

    /// Ends the direction from the peer to this process: a Unix peer that continues to write gets
    /// an error, a TCP peer notices nothing.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the peer has gone already.
    pub fn shutdown_read(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Read)?)
    }

    /// Ends both directions, for every holder of this socket, and wakes all threads that wait for
    /// the socket.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the peer has gone already.
    pub fn shutdown_both(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Both)?)
    }

    /// Sets TCP_NODELAY: small writes are sent at once instead of being collected. Every TCP socket
    /// of this crate has the option set from the start. The call has no effect on Unix sockets.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the peer has gone.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self.family {
            Family::Unix => Ok(()),
            Family::Tcp => Ok(sockopt::set_tcp_nodelay(&self.fd, nodelay)?),
        }
    }

    /// Makes the kernel end a TCP connection once the peer has been silent for `dead_after`,
    /// whether or not bytes were sent. `dead_after` is limited to 1 s to 9 h. The call has no
    /// effect on Unix sockets, which report the death of a peer at once.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the peer has gone.
    pub fn set_dead_after(&self, dead_after: Duration) -> io::Result<()> {
        if self.family == Family::Unix {
            return Ok(());
        }
        let dead_after = dead_after.clamp(Duration::from_secs(1), DEAD_AFTER_MAX);
        // Sent bytes may stay unacknowledged for the whole of `dead_after`. The kernel sends a
        // first probe on an idle connection after half of that time, and `PROBES` of them over the
        // other half.
        let millis = u32::try_from(dead_after.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&self.fd, millis)?;
        let second = Duration::from_secs(1);
        sockopt::set_tcp_keepidle(&self.fd, (dead_after / 2).max(second))?;
        sockopt::set_tcp_keepintvl(&self.fd, (dead_after / 2 / PROBES).max(second))?;
        sockopt::set_tcp_keepcnt(&self.fd, PROBES)?;
        Ok(sockopt::set_socket_keepalive(&self.fd, true)?)
    }

    /// The local address of the socket; `None` on Unix sockets.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if the kernel has no buffer left.
    pub fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        Ok(SocketAddr::try_from(rustix::net::getsockname(&self.fd)?).ok())
    }

    /// The peer's address in readable form, such as `unix:/run/app.sock`, `unix:@name` or
    /// `tcp:10.0.0.7:4000`. A client of a Unix listener has no address of its own; its label is
    /// made from the listener's.
    pub fn peer_label(&self) -> String {
        if let Some(label) = &self.label {
            return label.to_string();
        }
        let peer = rustix::net::getpeername(&self.fd).ok().flatten().and_then(label);
        if let Some(name) = peer.filter(|name| !is_given_by_kernel(name)) {
            return name;
        }
        let own = rustix::net::getsockname(&self.fd).ok().and_then(label);
        match own.filter(|name| !is_given_by_kernel(name)) {
            Some(name) => format!("client of {name}"),
            None => "unnamed peer".to_owned(),
        }
    }

    /// Duplicates the descriptor of this socket: both values refer to one connection.
    ///
    /// # Errors
    ///
    /// `EMFILE`: no descriptor left.
    pub fn try_clone(&self) -> io::Result<Socket> {
        let (family, label) = (self.family, self.label.clone());
        Ok(Socket { fd: self.fd.try_clone()?, family, label })
    }

    /// Converts the socket into its descriptor, which the caller then owns.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Unix => "unix",
            Family::Tcp => "tcp",
        })
    }
}

fn send_flags(nonblocking: bool) -> SendFlags {
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::DONTWAIT, nonblocking);
    flags
}

fn receive_flags(nonblocking: bool) -> RecvFlags {
    if nonblocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() }
}

/// `address` in readable form; `None` if it is a Unix address without a name.
pub(crate) fn label(address: SocketAddrAny) -> Option<String> {
    if let Ok(internet) = SocketAddr::try_from(address.clone()) {
        return Some(format!("tcp:{internet}"));
    }
    let unix = SocketAddrUnix::try_from(address).ok()?;
    if let Some(path) = unix.path_bytes() {
        return Some(format!("unix:{}", String::from_utf8_lossy(path)));
    }
    // A Unix socket that was not bound has no name; the kernel reports an empty abstract name for
    // it.
    let name = unix.abstract_name().filter(|name| !name.is_empty())?;
    Some(format!("unix:@{}", String::from_utf8_lossy(name)))
}

/// Whether the kernel chose the name in `label`. It does so for a client with SO_PASSCRED that did
/// not bind: the kernel assigns an abstract name of five hexadecimal digits.
pub(crate) fn is_given_by_kernel(label: &str) -> bool {
    label.strip_prefix("unix:@").is_some_and(|name| {
        name.len() == 5 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

/// Number of probes that a silent peer may leave unanswered before its connection ends.
const PROBES: u32 = 5;
/// Longest silence of a peer that the kernel's settings for TCP can express.
const DEAD_AFTER_MAX: Duration = Duration::from_secs(32_000);

/// Upper bound of the descriptors that one message on a socket carries.
pub const FDS_MAX: usize = 8;
