// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same records on a stream socket: for remote peers, or where memory cannot be shared (SPEC 8).
//!
//! ```text
//!   DATA        header (16) │ payload
//!   BLOB        header (16) │ body (32) │ the message's bytes, not counted in positions
//!   others      header (16) │ payload                                   sessions only (streams.rs)
//!   CLOSE_WRITE header (16), then the sending direction is shut down
//! ```
//!
//! The kernel's socket buffer takes the place of the ring, so a bell is not needed, and everything is
//! copied. Positions count the same footprints as on a wall: a stream that lost or repeated bytes is
//! noticed at once.

mod receiver;
mod sender;
mod streams;

pub(crate) use receiver::SocketReceiver;
pub(crate) use sender::SocketSender;

use crate::config::Config;
use crate::error::Fault;
use crate::peer::Peer;
use crate::transport::connection_state::ConnectionState;
use crate::transport::has_passed;
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

/// How long the last end waits, when it is dropped: for room, if bytes of sent messages are still
/// unwritten; then on TCP, if bytes came that nobody read or may still come, for the other side to close as well.
const LINGER: Duration = Duration::from_secs(1);

const SOCKET: u64 = 0;
const PROCESS: u64 = 1;

/// What both ends of one side share.
#[derive(Debug)]
pub(crate) struct Line {
    connection_state: ConnectionState,
    socket: Socket,
    /// Unix only: a forked child of a dead peer may keep its socket open.
    process: Option<PidFd>,
    /// Readable when something may be there to receive.
    records: EpollSet,
    /// Readable when there may be room to send.
    room: EpollSet,
    /// The longest message we receive.
    message_max: u64,
    /// The longest message the other side receives.
    peer_message_max: u64,
    ends_open: Mutex<u8>,
    /// Set where it carries the streams of a session.
    carries_streams: OnceLock<()>,
}

/// Everything a socket transport is made of.
pub(crate) struct Parts {
    pub socket: Socket,
    pub peer: Peer,
    pub process: Option<PidFd>,
    pub guard: ForkGuard,
    pub message_max: u64,
    pub peer_message_max: u64,
}

/// Puts the parts together.
pub(crate) fn assemble(
    parts: Parts,
    config: &Config,
) -> io::Result<(SocketSender, SocketReceiver)> {
    let Parts { socket, peer, process, guard, message_max, peer_message_max } = parts;
    let (records, room) = (EpollSet::new()?, EpollSet::new()?);
    records.add(&socket, EventFlags::IN | EventFlags::RDHUP, SOCKET)?;
    room.add(&socket, EventFlags::OUT, SOCKET)?;
    if let Some(process) = &process {
        records.add(process, EventFlags::IN, PROCESS)?;
        room.add(process, EventFlags::IN, PROCESS)?;
    }
    let line = Arc::new(Line {
        connection_state: ConnectionState::new(guard, peer),
        socket,
        process,
        records,
        room,
        message_max,
        peer_message_max,
        ends_open: Mutex::new(2),
        carries_streams: OnceLock::new(),
    });
    Ok((SocketSender::new(Arc::clone(&line), config), SocketReceiver::new(line)))
}

impl Line {
    pub(crate) fn records_descriptor(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }

    pub(crate) fn room_descriptor(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    #[inline]
    fn check(&self) -> Result<(), Fault> {
        self.connection_state.check()
    }

    pub(crate) fn violated(&self, violation: Violation) -> Fault {
        self.connection_state.violated(violation, &self.socket)
    }

    /// Whether this is a forked child.
    pub(crate) fn is_inherited(&self) -> bool {
        self.connection_state.guard.is_child()
    }

    /// The longest message that may come.
    pub(crate) const fn message_max(&self) -> u64 {
        self.message_max
    }

    /// Sleeps until there may be room; whether the other process died.
    pub(crate) fn sleep_for_room(&self, deadline: Option<Instant>) -> io::Result<bool> {
        Ok(self.room.wait_tokens(deadline)? & 1 << PROCESS != 0)
    }

    /// Whether there is room, or nobody who would read.
    pub(crate) fn is_writable(&self) -> bool {
        self.room.wait_tokens(Some(Instant::now())).is_ok_and(|tokens| tokens != 0)
    }

    /// Sleeps until there may be something; whether the other process died.
    fn sleep_for_records(&self, deadline: Option<Instant>) -> io::Result<bool> {
        Ok(self.records.wait_tokens(deadline)? & 1 << PROCESS != 0)
    }

    /// Whether the other process is known to be dead.
    fn has_died(&self) -> bool {
        self.process.as_ref().is_some_and(PidFd::is_dead)
    }

    /// We receive no more. A TCP peer is not told; and with that direction shut down, what it sends
    /// would make the kernel drop what we have sent.
    fn stop_receiving(&self) {
        if self.socket.family() == Family::Unix {
            let _ = self.socket.shutdown_read();
        }
    }

    /// One of our ends closes; the socket goes with the last, for every holder of it.
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
}

impl Line {
    /// A TCP socket that is closed with unread bytes resets the connection, and what we sent last may
    /// never arrive. So these are read and dropped until the other side closes, or for as long as
    /// `LINGER`. Where nothing is unread, nothing is waited for; but for a session, whose other side may
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

/// No record's payload is longer than [`DATA_BYTES_MAX`] (SPEC 8.2).
fn check_payload(record: &RecordHeader) -> Result<(), Violation> {
    if record.len <= DATA_BYTES_MAX {
        return Ok(());
    }
    let (position, len, max) = (record.position.0, record.len, DATA_BYTES_MAX.into());
    Err(Violation::RecordLength { position, len, max })
}

/// Whether an error of the socket means that the other side is gone.
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
    use crate::transport::{Progress, Unsent};
    use partywall_layout::Kind;

    #[test]
    fn what_went_is_not_kept_while_the_socket_is_never_quite_empty() {
        let (socket, other) = Socket::pair().unwrap();
        let peer = Peer { credentials: None, trust: Trust::Untrusted, label: "other".into() };
        let guard = ForkGuard::current();
        let (message_max, peer_message_max) = (64 << 20, 64 << 20);
        let parts = Parts { socket, peer, process: None, guard, message_max, peer_message_max };
        let (mut sender, _receiver) = assemble(parts, &Config::default()).unwrap();
        let (mut bytes, mut said) = (vec![0; 16 << 10], 0);
        while said < 64 << 20 {
            match sender.control(Kind::Ping, 0, &[0; 16]) {
                Ok(()) => said += 32,
                // The other side reads, but never all.
                Err(Unsent::Full) => assert!(other.read(&mut bytes, false).unwrap() > 0),
                Err(error) => panic!("{error:?}"),
            }
        }
        let kept = sender.stats().memory_bytes;
        assert!(kept < 1 << 20, "{kept} bytes for what went long ago");
    }

    #[test]
    fn nothing_follows_a_message_that_broke_off() {
        let (socket, other) = Socket::pair().unwrap();
        let peer = Peer { credentials: None, trust: Trust::Untrusted, label: "other".into() };
        let guard = ForkGuard::current();
        let (message_max, peer_message_max) = (64 << 20, 64 << 20);
        let parts = Parts { socket, peer, process: None, guard, message_max, peer_message_max };
        let (mut sender, receiver) = assemble(parts, &Config::default()).unwrap();
        let (payload, mut progress) = (vec![1; 32 << 20], Progress::default());
        assert!(matches!(sender.send_on(&payload, &mut progress), Err(Unsent::Full)));
        assert!(progress.started && progress.sent < payload.len());
        // Whoever sent it gives up in disorder; its rest would be expected next.
        let after = sender.try_send(b"another");
        assert!(matches!(after, Err(Unsent::Closed(Closed::Disconnected))), "{after:?}");
        assert!(matches!(sender.flush(), Err(Unsent::Closed(Closed::Disconnected))));
        sender.close();
        let (mut bytes, mut arrived) = (vec![0; 1 << 20], 0);
        while let Ok(count @ 1..) = other.read(&mut bytes, false) {
            arrived += count;
        }
        assert_eq!(arrived, progress.sent);
        drop(receiver);
    }
}
