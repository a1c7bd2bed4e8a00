// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same records on a stream socket: for remote peers, or where memory cannot be shared (SPEC
//! 8).
//!
//! ```text
//!   DATA        header (16) │ payload
//!   BLOB        header (16) │ body (32) │ bytes of the message, not counted in positions
//!   others      header (16) │ payload                                   sessions only (streams.rs)
//!   CLOSE_WRITE header (16), then the sending direction is shut down
//! ```
//!
//! The kernel's socket buffer takes the place of the ring. So no doorbell is needed, and everything
//! is copied. Positions count the same footprints as in shared memory: a stream that lost or
//! repeated bytes is noticed at once.

mod receiver;
mod sender;
mod streams;

pub(crate) use receiver::SocketReceiver;
pub(crate) use sender::SocketSender;

use crate::config::Config;
use crate::error::Fault;
use crate::peer::Peer;
use crate::transport::{ConnectionState, SpaceWaiter, has_passed};
use partywall_layout::{RecordHeader, Violation};
use partywall_sys::epoll::EventFlags;
use partywall_sys::socket::Family;
use partywall_sys::{EpollSet, ForkGuard, PidFd, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Payloads up to this many bytes SHOULD be sent as DATA (SPEC 8.2).
const DATA_BYTES_SHOULD: usize = 16 * 1024 - 16;
/// Payloads of DATA are never longer than this (SPEC 8.2).
const DATA_BYTES_MAX: u32 = 64 * 1024;

/// How long the last end waits when it is dropped: for space, if bytes of sent messages are still
/// unwritten; then on TCP, if there are unread bytes or more may come, for the peer to close as
/// well.
const LINGER: Duration = Duration::from_secs(1);

const SOCKET: u64 = 0;
const PROCESS: u64 = 1;

/// State that both ends of one side share.
#[derive(Debug)]
pub(crate) struct SocketShared {
    connection_state: ConnectionState,
    socket: Socket,
    /// Unix only. A forked child of a dead peer may keep its socket open.
    process: Option<PidFd>,
    /// Readable when there may be something to receive.
    records: EpollSet,
    /// Readable when there may be space to send.
    space: EpollSet,
    /// Length of the longest message that this side receives.
    message_max: u64,
    /// Length of the longest message that the peer receives.
    peer_message_max: u64,
    ends_open: Mutex<u8>,
    /// Set if the connection carries the streams of a session.
    carries_streams: OnceLock<()>,
}

/// The parts of a connection over a socket.
pub(crate) struct SocketParts {
    pub socket: Socket,
    pub peer: Peer,
    pub process: Option<PidFd>,
    pub guard: ForkGuard,
    pub message_max: u64,
    pub peer_message_max: u64,
}

/// Makes the two ends of a connection.
pub(crate) fn assemble(
    parts: SocketParts,
    config: &Config,
) -> io::Result<(SocketSender, SocketReceiver)> {
    let SocketParts { socket, peer, process, guard, message_max, peer_message_max } = parts;
    let (records, space) = (EpollSet::new()?, EpollSet::new()?);
    records.add(&socket, EventFlags::IN | EventFlags::RDHUP, SOCKET)?;
    space.add(&socket, EventFlags::OUT, SOCKET)?;
    if let Some(process) = &process {
        records.add(process, EventFlags::IN, PROCESS)?;
        space.add(process, EventFlags::IN, PROCESS)?;
    }
    let shared = Arc::new(SocketShared {
        connection_state: ConnectionState::new(guard, peer),
        socket,
        process,
        records,
        space,
        message_max,
        peer_message_max,
        ends_open: Mutex::new(2),
        carries_streams: OnceLock::new(),
    });
    Ok((SocketSender::new(Arc::clone(&shared), config), SocketReceiver::new(shared)))
}

impl SocketShared {
    #[inline]
    fn check(&self) -> Result<(), Fault> {
        self.connection_state.check()
    }

    fn violated(&self, violation: Violation) -> Fault {
        self.connection_state.violated(violation, &self.socket)
    }

    /// Sleeps until there may be something to receive; whether the peer's process died.
    fn sleep_for_records(&self, deadline: Option<Instant>) -> io::Result<bool> {
        Ok(self.records.wait_tokens(deadline)? & 1 << PROCESS != 0)
    }

    /// Whether the peer's process is known to be dead.
    fn has_died(&self) -> bool {
        self.process.as_ref().is_some_and(PidFd::is_dead)
    }

    /// Shuts the receiving direction down. Not on TCP: the peer would not learn of it, and what it
    /// sends then would make the kernel drop the bytes that this side has sent.
    fn stop_receiving(&self) {
        if self.socket.family() == Family::Unix {
            let _ = self.socket.shutdown_read();
        }
    }

    /// Closes one of the two ends. With the last one the socket is shut down for every process that
    /// holds it.
    fn depart(&self) {
        let mut open = self.ends_open.lock().unwrap_or_else(PoisonError::into_inner);
        *open -= 1;
        if *open == 0 {
            if self.socket.family() == Family::Tcp {
                self.read_to_the_end();
            }
            let _ = self.socket.shutdown_both();
        }
    }

    /// Reads and discards until the peer closes, or for as long as [`LINGER`]. A TCP socket that is
    /// closed with unread bytes resets the connection, and the last bytes that were sent may never
    /// arrive. Without unread bytes there is nothing to wait for, except in a session: its peer may
    /// be writing at any time, and closes by itself as soon as it has read our end.
    fn read_to_the_end(&self) {
        let mut scrap = [0; 16 * 1024];
        let mut deadline = self.carries_streams.get().map(|()| Instant::now() + LINGER);
        while !has_passed(deadline) {
            match self.socket.read(&mut scrap, true) {
                Ok(0) => return,
                Ok(_) => deadline = deadline.or_else(|| Some(Instant::now() + LINGER)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && deadline.is_some() => {
                    if self.records.wait_tokens(deadline).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}

impl SpaceWaiter for SocketShared {
    fn is_inherited(&self) -> bool {
        self.connection_state.guard.is_child()
    }

    fn is_writable(&self) -> bool {
        self.space.wait_tokens(Some(Instant::now())).is_ok_and(|tokens| tokens != 0)
    }

    fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool> {
        Ok(self.space.wait_tokens(deadline)? & 1 << PROCESS != 0)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.space.as_fd()
    }
}

/// Checks that a payload is not longer than [`DATA_BYTES_MAX`] (SPEC 8.2).
fn check_payload(record: &RecordHeader) -> Result<(), Violation> {
    if record.len <= DATA_BYTES_MAX {
        return Ok(());
    }
    let (position, len, max) = (record.position.0, record.len, DATA_BYTES_MAX.into());
    Err(Violation::RecordLength { position, len, max })
}

/// Whether an error of the socket means that the peer is gone.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Closed;
    use crate::peer::Trust;
    use crate::transport::{NotSent, Progress, TransportSender};
    use partywall_layout::Kind;

    #[test]
    fn sent_bytes_of_a_socket_that_is_never_empty_are_freed() {
        let (socket, other) = Socket::pair().unwrap();
        let peer = Peer::new(None, Trust::Untrusted, "other".into());
        let guard = ForkGuard::current();
        let (message_max, peer_message_max) = (64 << 20, 64 << 20);
        let parts =
            SocketParts { socket, peer, process: None, guard, message_max, peer_message_max };
        let (mut sender, _receiver) = assemble(parts, &Config::default()).unwrap();
        let (mut bytes, mut said) = (vec![0; 16 << 10], 0);
        while said < 64 << 20 {
            match sender.control(Kind::Ping, 0, &[0; 16]) {
                Ok(()) => said += 32,
                // The peer reads, but never all.
                Err(NotSent::Full) => assert!(other.read(&mut bytes, false).unwrap() > 0),
                Err(error) => panic!("{error:?}"),
            }
        }
        let kept = sender.stats().memory_bytes;
        assert!(kept < 1 << 20, "{kept} bytes for records that were sent long ago");
    }

    #[test]
    fn message_after_one_that_broke_off_is_refused() {
        let (socket, other) = Socket::pair().unwrap();
        let peer = Peer::new(None, Trust::Untrusted, "other".into());
        let guard = ForkGuard::current();
        let (message_max, peer_message_max) = (64 << 20, 64 << 20);
        let parts =
            SocketParts { socket, peer, process: None, guard, message_max, peer_message_max };
        let (mut sender, receiver) = assemble(parts, &Config::default()).unwrap();
        let (payload, mut progress) = (vec![1; 32 << 20], Progress::default());
        assert!(matches!(sender.send_on(&payload, &mut progress), Err(NotSent::Full)));
        assert!(progress.started && progress.sent < payload.len());
        // The caller did not call `give_up`: the peer expects the rest of the message next.
        let after = sender.try_send(b"another");
        assert!(matches!(after, Err(NotSent::Closed(Closed::Disconnected))), "{after:?}");
        assert!(matches!(sender.flush(), Err(NotSent::Closed(Closed::Disconnected))));
        sender.close();
        let (mut bytes, mut arrived) = (vec![0; 1 << 20], 0);
        while let Ok(count @ 1..) = other.read(&mut bytes, false) {
            arrived += count;
        }
        assert_eq!(arrived, progress.sent);
        drop(receiver);
    }
}
