// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connected stream socket, Unix or TCP: bytes, and on Unix descriptors and credentials beside them.
//!
//! ```text
//!   read / write      bytes only: the fast path
//!   receive / send    bytes, up to FDS_MAX descriptors, credentials (Unix only)
//! ```
//!
//! It frames nothing: a stream may cut and join what was sent as it likes, and a short count is no error.
//! How sockets come to be is in [`connect`](crate::connect) and [`listener`](crate::listener).
//!
//! # Invariants
//!
//! - The socket stays in blocking mode; each call says for itself whether it may block (`MSG_DONTWAIT`).
//!   A peer cannot change that, as it could on a shared description such as an eventfd.
//! - No call raises SIGPIPE. Descriptors arrive close-on-exec.

use core::mem::MaybeUninit;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{RecvFlags, ReturnFlags, SendFlags, Shutdown, UCred};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sockopt};
use rustix::process::{getegid, geteuid, getpid};

use crate::ancillary;
use crate::peer::Credentials;
use crate::send_queue;

/// A connected stream socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    family: Family,
}

/// What a socket is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A Unix stream socket: same machine, passes descriptors and credentials.
    Unix,
    /// TCP over IPv4 or IPv6.
    Tcp,
}

/// What one [`Socket::receive`] brought.
#[derive(Debug)]
#[non_exhaustive]
pub struct Received {
    /// How many bytes; 0 is the end of the stream.
    pub bytes: usize,
    /// The descriptors, at most [`FDS_MAX`].
    pub fds: Vec<OwnedFd>,
    /// The sender, as the kernel vouches for it.
    pub credentials: Option<Credentials>,
    /// Descriptors were lost: our descriptor limit, a security module, or more than [`FDS_MAX`].
    pub truncated: bool,
}

impl Socket {
    /// Two Unix sockets connected to each other.
    ///
    /// # Errors
    ///
    /// `EMFILE`/`ENFILE`: no descriptor left. `ENOMEM`.
    pub fn pair() -> io::Result<(Socket, Socket)> {
        let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        sockopt::set_socket_passcred(&a, true)?;
        sockopt::set_socket_passcred(&b, true)?;
        Ok((Socket::new(a, Family::Unix), Socket::new(b, Family::Unix)))
    }

    pub(crate) fn new(fd: OwnedFd, family: Family) -> Socket {
        Socket { fd, family }
    }

    /// What this socket is made of.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Reads bytes only; 0 is the end of the stream. Descriptors that come along are closed.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if `nonblocking` and nothing is there; `ECONNRESET` and others from the network.
    pub fn read(&self, buf: &mut [u8], nonblocking: bool) -> io::Result<usize> {
        let flags = receive_flags(nonblocking);
        let (count, _) = retry_on_intr(|| rustix::net::recv(&self.fd, &mut *buf, flags))?;
        Ok(count)
    }

    /// Writes bytes only and returns how many were taken, possibly not all.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if `nonblocking` and there is no room; `BrokenPipe` if the peer has gone.
    pub fn write(&self, bufs: &[IoSlice<'_>], nonblocking: bool) -> io::Result<usize> {
        if let [buf] = bufs {
            // Costs the kernel less.
            let flags = send_flags(nonblocking);
            return Ok(retry_on_intr(|| rustix::net::send(&self.fd, buf, flags))?);
        }
        self.send_message(bufs, &mut SendAncillaryBuffer::default(), nonblocking)
    }

    /// Receives bytes and whatever the sender put beside them.
    ///
    /// # Errors
    ///
    /// As [`Socket::read`].
    pub fn receive(&self, buf: &mut [u8], nonblocking: bool) -> io::Result<Received> {
        let flags = receive_flags(nonblocking) | RecvFlags::CMSG_CLOEXEC;
        let (message, beside) =
            retry_on_intr(|| ancillary::receive(&self.fd, &mut [IoSliceMut::new(buf)], flags))?;
        Ok(Received {
            bytes: message.bytes,
            fds: beside.fds,
            credentials: beside.credentials,
            truncated: message.flags.contains(ReturnFlags::CTRUNC) || beside.excess,
        })
    }

    /// Who is at the other end of a connection that we made: whoever called `listen` there. `None` over TCP.
    #[must_use]
    pub fn peer_credentials(&self) -> Option<Credentials> {
        if self.family == Family::Tcp {
            return None;
        }
        let found = sockopt::socket_peercred(&self.fd).ok()?;
        let pid = found.pid.as_raw_nonzero().get();
        Some(Credentials { pid, uid: found.uid.as_raw(), gid: found.gid.as_raw() })
    }

    /// Sends bytes and, beside the first of them, descriptors and (if asked) our own credentials.
    /// Returns how many bytes were taken, possibly not all; what is beside them went with the first.
    ///
    /// # Errors
    ///
    /// As [`Socket::write`]; `ETOOMANYREFS` if too many descriptors are under way.
    ///
    /// # Panics
    ///
    /// With more than [`FDS_MAX`] descriptors; with anything beside no bytes at all, or on TCP.
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
        assert!(!has_descriptors || has_bytes, "a stream carries nothing beside no bytes");
        assert!(!has_descriptors || self.family == Family::Unix, "TCP carries bytes only");

        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX), ScmCredentials(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if credentials {
            let own = UCred { pid: getpid(), uid: geteuid(), gid: getegid() };
            let fits = control.push(SendAncillaryMessage::ScmCredentials(own));
            assert!(fits); // the space above is made for it
        }
        if !fds.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(fds));
            assert!(fits); // likewise, for FDS_MAX of them
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

    /// How much of what was written the other side has not taken: on Unix sockets what it has not read, with what
    /// the bytes lie in; over TCP the bytes that its system has not acknowledged. 0 if all was taken.
    ///
    /// # Errors
    ///
    /// What a sandbox says to ioctl.
    pub fn untaken_bytes(&self) -> io::Result<usize> {
        send_queue::untaken(self.fd.as_fd())
    }

    /// Ends our direction: the peer reads the end of the stream after what we sent.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the peer has gone already.
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Write)?)
    }

    /// Ends the peer's direction as far as we are concerned: a Unix peer that writes on gets an error, a TCP
    /// peer is not told.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the peer has gone already.
    pub fn shutdown_read(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Read)?)
    }

    /// Ends both directions, for every holder of this socket, and wakes those who wait on it.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the peer has gone already.
    pub fn shutdown_both(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Both)?)
    }

    /// Sends small writes at once instead of collecting them. Set already on every TCP socket made here;
    /// no effect on Unix sockets.
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

    /// Has the kernel give a TCP connection up once the other side has been silent for `dead_after`, whether or
    /// not anything was sent: 1 s to 9 h. No effect on Unix sockets, which learn of a death at once.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the peer has gone.
    pub fn set_dead_after(&self, dead_after: Duration) -> io::Result<()> {
        if self.family == Family::Unix {
            return Ok(());
        }
        let dead_after = dead_after.clamp(Duration::from_secs(1), DEAD_AFTER_MAX);
        // Sent and not acknowledged: after all of it. Nothing sent: half of it, then PROBES times a share of the rest.
        let millis = u32::try_from(dead_after.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&self.fd, millis)?;
        let second = Duration::from_secs(1);
        sockopt::set_tcp_keepidle(&self.fd, (dead_after / 2).max(second))?;
        sockopt::set_tcp_keepintvl(&self.fd, (dead_after / 2 / PROBES).max(second))?;
        sockopt::set_tcp_keepcnt(&self.fd, PROBES)?;
        Ok(sockopt::set_socket_keepalive(&self.fd, true)?)
    }

    /// Our end's address; `None` on Unix sockets.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`.
    pub fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        Ok(SocketAddr::try_from(rustix::net::getsockname(&self.fd)?).ok())
    }

    /// The other end for people to read, such as `unix:/run/app.sock`, `unix:@name` or
    /// `tcp:10.0.0.7:4000`. The clients of a Unix listener have no name; theirs is that of the listener.
    pub fn peer_label(&self) -> String {
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

    /// Another descriptor of the same socket.
    ///
    /// # Errors
    ///
    /// `EMFILE`: no descriptor left.
    pub fn try_clone(&self) -> io::Result<Socket> {
        Ok(Socket { fd: self.fd.try_clone()?, family: self.family })
    }

    /// Gives up the descriptor.
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

/// An address for people to read; `None` if it has no name.
pub(crate) fn label(address: SocketAddrAny) -> Option<String> {
    if let Ok(internet) = SocketAddr::try_from(address.clone()) {
        return Some(format!("tcp:{internet}"));
    }
    let unix = SocketAddrUnix::try_from(address).ok()?;
    if let Some(path) = unix.path_bytes() {
        return Some(format!("unix:{}", String::from_utf8_lossy(path)));
    }
    // Who did not bind has none, which is told as an empty one.
    let name = unix.abstract_name().filter(|name| !name.is_empty())?;
    Some(format!("unix:@{}", String::from_utf8_lossy(name)))
}

/// True for the name of a client that did not bind: with SO_PASSCRED the kernel gives it an abstract one
/// of five hexadecimal digits when it connects.
fn is_given_by_kernel(label: &str) -> bool {
    label.strip_prefix("unix:@").is_some_and(|name| {
        name.len() == 5 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

/// How often a silent peer is asked before its connection is given up.
const PROBES: u32 = 5;
/// What the kernel's fields for times of silence can hold.
const DEAD_AFTER_MAX: Duration = Duration::from_secs(32_000);

/// The most descriptors one message carries.
pub const FDS_MAX: usize = 8;
