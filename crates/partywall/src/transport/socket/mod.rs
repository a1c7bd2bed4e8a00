// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket transport: the records of shared memory on a stream socket, for remote peers or where
//! memory cannot be shared (SPEC 8).
//!
//! ```text
//!   DATA        header (16) │ payload
//!   BLOB        header (16) │ body (32) │ bytes of the message, not counted in positions
//!   other kinds header (16) │ payload                                   sessions only (streams.rs)
//!   CLOSE_WRITE header (16), then the sending direction is shut down
//!   Numbers in parentheses are lengths in bytes.
//! ```
//!
//! The kernel's socket buffer takes the place of the ring. So no doorbell is needed, and every
//! message is copied. Positions count the same footprints as in shared memory, so lost or repeated
//! bytes are noticed at the next record.
//!
//! A connection that began on a Unix socket may move to shared memory (SPEC 8.5): pending_move.rs.

mod current_space;
mod pending_move;
mod receiver;
mod sender;
mod streams;
mod wait_point;

pub(crate) use pending_move::{MoveFailed, MoveHandshake, PendingMove};
pub(crate) use receiver::SocketReceiver;
pub(crate) use sender::SocketSender;

use crate::config::Config;
use crate::error::Fault;
use crate::peer::Peer;
use crate::transport::{ConnectionState, FormerTransport, SpaceWaiter, has_passed};
use partywall_layout::{RecordHeader, Violation};
use partywall_sys::socket::Family;
use partywall_sys::{EpollSet, ForkGuard, PidFd, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use wait_point::{Awaited, WaitPoint, Woken};

/// Longest payload in bytes that SHOULD be sent as DATA (SPEC 8.2). This sender sends longer
/// messages as BLOB, or on a stream in fragments.
const DATA_BYTES_SHOULD: usize = 16 * 1024 - 16;
/// Longest payload of a DATA record in bytes (SPEC 8.2).
const DATA_BYTES_MAX: u32 = 64 * 1024;

/// Upper bound of the time that closing one direction of a connection takes. The caller waits until
/// the kernel accepts the bytes of sent messages. On TCP, it also waits until the peer closes, if
/// bytes are unread or may still arrive.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// Maximum number of reads, of 16 KiB each, in one step that discards the peer's unread bytes. A
/// peer that sends without end must not occupy the thread.
const DISCARDED_READS_MAX: u32 = 16;

/// State of a connection over a socket that the sender and the receiver of one side share.
#[derive(Debug)]
pub(crate) struct SocketShared {
    connection_state: ConnectionState,
    socket: Arc<Socket>,
    /// The pidfd of the peer's process, on Unix sockets only. A forked child of a dead peer may
    /// keep the socket open, so the socket alone does not show the death.
    process: Option<Arc<PidFd>>,
    /// The wait point on which the receiver sleeps until there may be bytes.
    records: WaitPoint,
    /// The wait point on which the sender sleeps until the socket may have room.
    space: WaitPoint,
    /// The move of the connection to shared memory, if both sides agreed that it may move.
    pending_move: Option<Arc<PendingMove>>,
    /// Length in bytes of the longest message that this side receives.
    message_max: u64,
    /// Length in bytes of the longest message that the peer receives.
    peer_message_max: u64,
    ends_open: Mutex<u8>,
    /// Set if the connection carries the streams of a session. A session's peer may write at any
    /// time, so closing the connection then reads until the peer closes.
    carries_streams: OnceLock<()>,
    /// Set if [`discard_step`](Self::discard_step) found bytes that the receiver had not read.
    found_unread: OnceLock<()>,
    /// Set once closing this connection need not wait until the peer closes: the peer's unread
    /// bytes were discarded, or it has not closed in time.
    end_given_up: OnceLock<()>,
}

pub(crate) struct SocketParts {
    pub socket: Arc<Socket>,
    pub peer: Peer,
    pub process: Option<Arc<PidFd>>,
    pub guard: ForkGuard,
    pub message_max: u64,
    pub peer_message_max: u64,
    /// The move of the connection to shared memory, if both sides agreed that it may move.
    pub pending_move: Option<Arc<PendingMove>>,
}

pub(crate) fn assemble(parts: SocketParts, config: &Config) -> (SocketSender, SocketReceiver) {
    let SocketParts { socket, peer, process, guard, message_max, peer_message_max, pending_move } =
        parts;
    let shared = Arc::new(SocketShared {
        connection_state: ConnectionState::new(guard, peer),
        socket,
        process,
        records: WaitPoint::new(Awaited::Bytes),
        space: WaitPoint::new(Awaited::Space),
        pending_move,
        message_max,
        peer_message_max,
        ends_open: Mutex::new(2),
        carries_streams: OnceLock::new(),
        found_unread: OnceLock::new(),
        end_given_up: OnceLock::new(),
    });
    (SocketSender::new(Arc::clone(&shared), config), SocketReceiver::new(shared))
}

impl SocketShared {
    #[inline]
    fn check(&self) -> Result<(), Fault> {
        self.connection_state.check()
    }

    fn violated(&self, violation: Violation) -> Fault {
        let fault = self.connection_state.violated(violation, &self.socket);
        if let Some(pending) = &self.pending_move {
            pending.violated(violation);
        }
        fault
    }

    fn sleep_for_records(&self, deadline: Option<Instant>) -> io::Result<Woken> {
        self.records.sleep(deadline, &self.socket, self.process.as_deref())
    }

    fn records_descriptor(&self) -> BorrowedFd<'_> {
        self.records.descriptor(&self.socket, self.process.as_deref())
    }

    /// Returns the epoll set that becomes readable when there may be room to send; `None` if the
    /// set cannot be made.
    fn space_set(&self) -> Option<&Arc<EpollSet>> {
        self.space.set(&self.socket, self.process.as_deref())
    }

    /// Returns the receiver's epoll set without the socket, for shared memory to use the set. The
    /// result is `None` if no set was made.
    fn hand_over_records_set(&self) -> Option<Arc<EpollSet>> {
        self.records.hand_over(&self.socket, self.process.as_deref())
    }

    /// Returns the sender's epoll set without the socket, for shared memory to use the set. The
    /// result is `None` if no set was made.
    fn hand_over_space_set(&self) -> Option<Arc<EpollSet>> {
        self.space.hand_over(&self.socket, self.process.as_deref())
    }

    fn has_died(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.is_dead())
    }

    /// Shuts the receiving direction of a Unix socket down. On TCP the peer would not notice, and
    /// bytes that it sends afterwards would make the kernel discard the bytes that this side has
    /// sent.
    fn stop_receiving(&self) {
        if self.socket.family() == Family::Unix {
            let _ = self.socket.shutdown_read();
        }
    }

    /// Notes that the sender or the receiver of this side has left the socket. When both have left
    /// it, shuts the socket down for every process that holds a descriptor of it.
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

    /// Reads and discards bytes until the peer closes, for at most [`LINGER`]. Closing a TCP socket
    /// with unread bytes resets the connection, and the last sent bytes may then never arrive.
    /// Without unread bytes there is no wait, except in a session. A session's peer may be writing
    /// at any time, and closes once it has read the end of this side's direction.
    fn read_to_the_end(&self) {
        if self.end_given_up.get().is_some() {
            return;
        }
        let mut scrap = [0; 16 * 1024];
        let mut deadline = self.carries_streams.get().map(|()| Instant::now() + LINGER);
        while !has_passed(deadline) {
            match self.socket.read(&mut scrap, true) {
                Ok(0) => return,
                Ok(_) => deadline = deadline.or_else(|| Some(Instant::now() + LINGER)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && deadline.is_some() => {
                    if self.sleep_for_records(deadline).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}

impl SocketShared {
    /// Discards the peer's unread bytes as [`read_to_the_end`](Self::read_to_the_end) does, but
    /// never waits. Returns whether more may come: then the caller waits for bytes on the returned
    /// socket, and calls again. Does nothing while both the sender and the receiver of this side
    /// are open.
    fn discard_step(&self) -> Option<BorrowedFd<'_>> {
        let is_last = *self.ends_open.lock().unwrap_or_else(PoisonError::into_inner) == 1;
        if !is_last || self.socket.family() != Family::Tcp {
            return None;
        }
        let _ = self.socket.shutdown_write();
        let mut scrap = [0; 16 * 1024];
        for _ in 0..DISCARDED_READS_MAX {
            match self.socket.read(&mut scrap, true) {
                Ok(0) => return None,
                Ok(_) => _ = self.found_unread.set(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        self.found_unread.get().map(|()| self.socket.as_fd())
    }
}

impl FormerTransport for SocketShared {
    fn violated_elsewhere(&self, violation: Violation) {
        let _ = self.connection_state.violated(violation, &self.socket);
    }
}

impl SpaceWaiter for SocketShared {
    fn is_inherited(&self) -> bool {
        self.connection_state.guard.is_child()
    }

    fn is_writable(&self) -> bool {
        let woken = self.space.sleep(Some(Instant::now()), &self.socket, self.process.as_deref());
        woken.is_ok_and(|woken| woken.socket || woken.died)
    }

    fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool> {
        Ok(self.space.sleep(deadline, &self.socket, self.process.as_deref())?.died)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.space.descriptor(&self.socket, self.process.as_deref())
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

/// Whether an error of a socket call means that the peer has closed the connection.
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
    use crate::peer::Trust;
    use crate::transport::{NotSent, Progress, TransportSender};
    use partywall_layout::Kind;
    use partywall_layout::record_ring::{BlobBody, WireHeader};

    /// Returns sender and receiver of a connection over `socket` that never moves to shared memory.
    fn ends(socket: Socket) -> (SocketSender, SocketReceiver) {
        let parts = SocketParts {
            socket: Arc::new(socket),
            peer: Peer::new(None, Trust::Untrusted, "other".into()),
            process: None,
            guard: ForkGuard::current(),
            message_max: 64 << 20,
            peer_message_max: 64 << 20,
            pending_move: None,
        };
        assemble(parts, &Config::default())
    }

    #[test]
    fn sent_bytes_of_a_socket_that_is_never_empty_are_freed() {
        let (socket, other) = Socket::pair().unwrap();
        let (mut sender, _receiver) = ends(socket);
        let (mut bytes, mut said) = (vec![0; 16 << 10], 0);
        while said < 64 << 20 {
            match sender.control(Kind::Ping, 0, &[0; 16]) {
                Ok(()) => said += 32,
                // The test, which plays the peer, reads some bytes now and then, but never all.
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
        let (mut sender, receiver) = ends(socket);
        let (payload, mut progress) = (vec![1; 32 << 20], Progress::default());
        assert!(matches!(sender.send_on(&payload, &mut progress), Err(NotSent::Full)));
        assert!(progress.started && progress.sent < payload.len());
        // The caller has not called `give_up`, so the peer still expects the other bytes of the
        // first message. Expected: sending another message ends the connection.
        let after = sender.try_send(b"another");
        assert!(matches!(after, Err(NotSent::Disconnected)), "{after:?}");
        assert!(matches!(sender.flush(), Err(NotSent::Disconnected)));
        sender.close();
        let (mut bytes, mut arrived) = (vec![0; 1 << 20], 0);
        while let Ok(count @ 1..) = other.read(&mut bytes, false) {
            arrived += count;
        }
        assert_eq!(arrived, progress.sent);
        drop(receiver);
    }

    #[test]
    fn closing_that_waits_for_space_writes_the_end_once() {
        let (socket, other) = Socket::pair().unwrap();
        let (mut sender, receiver) = ends(socket);
        let payload = vec![1; 4 << 20];
        sender.try_send(&payload).unwrap();
        assert!(sender.begin_close() && sender.begin_close(), "the socket is full");
        let (mut bytes, mut arrived) = (vec![0; 1 << 20], 0);
        while sender.begin_close() {
            arrived += other.read(&mut bytes, false).unwrap();
        }
        assert!(!sender.begin_close());
        sender.close();
        while let Ok(count @ 1..) = other.read(&mut bytes, false) {
            arrived += count;
        }
        let framing = size_of::<WireHeader>() + size_of::<BlobBody>();
        assert_eq!(arrived, framing + payload.len() + size_of::<WireHeader>());
        drop(receiver);
    }
}
