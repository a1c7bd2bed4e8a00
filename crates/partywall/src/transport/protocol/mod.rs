// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of other protocols as a session sees them: the records of streams are made of what a protocol tells, and
//! the other way round.
//!
//! ```text
//!   session                     here                                protocol
//!   OPEN, message             ▶ number ─▶ name                    ▶ open, send
//!   CLOSE_WRITE and RESET {r} ▶ both directions over              ▶ close
//!   END of a stream of ours   ◀ at once
//!   OPEN, message             ◀ name ─▶ number                    ◀ Opened, Message
//!   CLOSE_WRITE, RESET {r}    ◀ (and END of a stream of ours)     ◀ Closed
//!   CREDIT, GO_AWAY           ▶ nothing
//! ```
//!
//! A session's numbers are small and used again; a protocol's names are its own business. `streams.rs` keeps both.
//!
//! Nothing here waits, and nothing is known of any protocol.

mod receiver;
mod sender;
mod streams;

pub(crate) use receiver::ProtocolReceiver;
pub(crate) use sender::ProtocolSender;

use crate::error::{Fault, Limit, TooLarge};
use crate::protocol::{Connection, ConnectionSpace, DriverWaker, ProtocolError, TrySendError};
use crate::transport::{ProgressSnapshot, Unsent};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{EpollSet, ForkGuard, epoll::EventFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;
use streams::Streams;

/// Credit of a stream where there is none: more than can ever be sent.
pub(crate) const WINDOW: u64 = 1 << 62;

/// What both ends are made of.
pub(crate) struct Parts {
    pub connection: Connection,
    pub driver_waker: DriverWaker,
    pub protocol: &'static str,
    pub peer: String,
    pub guard: ForkGuard,
    pub is_acceptor: bool,
}

/// Both ends of a connection.
pub(crate) fn assemble(parts: Parts) -> io::Result<(ProtocolSender, ProtocolReceiver)> {
    let Parts { connection, driver_waker, protocol, peer, guard, is_acceptor } = parts;
    let set = EpollSet::new()?;
    set.add(driver_waker.doorbell(), EventFlags::IN | EventFlags::ET, CALLED)?;
    set.add(connection.receiver.descriptor(), INTEREST, HEARD)?;
    let streams = Arc::new(Streams::new(is_acceptor));
    let other = Arc::new(Other { protocol, peer });
    let room = Arc::new(ProtocolRoom { guard, room: connection.sender.room() });
    let sender = ProtocolSender::new(
        connection.sender,
        Arc::clone(&streams),
        driver_waker.clone(),
        room,
        Arc::clone(&other),
    );
    Ok((sender, ProtocolReceiver::new(connection.receiver, streams, driver_waker, set, other)))
}

const CALLED: u64 = 0;
const HEARD: u64 = 1;
/// What a line's descriptor is watched for.
const INTEREST: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

/// Who is at the other end, for errors.
#[derive(Debug)]
struct Other {
    protocol: &'static str,
    peer: String,
}

impl Other {
    #[cold]
    fn fault(&self, reason: ProtocolError) -> Fault {
        Fault::Protocol { peer: self.peer.clone(), protocol: self.protocol, reason }
    }

    #[cold]
    fn unsent(&self, unsent: TrySendError, len: usize) -> Unsent {
        match unsent {
            TrySendError::Full => Unsent::Full,
            TrySendError::Closed(closed) => Unsent::Closed(closed),
            TrySendError::TooLarge(max) => {
                Unsent::TooLarge(TooLarge { len: len as u64, max, limit: Limit::Protocol })
            }
            TrySendError::Broken(source) => Unsent::Fault(self.fault(source)),
        }
    }
}

/// Where one waits for room on a connection.
#[derive(Debug)]
pub(crate) struct ProtocolRoom {
    guard: ForkGuard,
    room: Arc<dyn ConnectionSpace>,
}

impl ProtocolRoom {
    /// Whether this is a forked child.
    pub(crate) fn is_inherited(&self) -> bool {
        self.guard.is_child()
    }

    pub(crate) fn snapshot(&self) -> ProgressSnapshot {
        ProgressSnapshot(self.room.snapshot())
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.room.is_writable()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.room.descriptor()
    }

    /// Sleeps until there may be room; never tells of a hang-up, which whoever receives hears of.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool> {
        let mut descriptors = [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)];
        poll::wait(&mut descriptors, deadline).map(|_| false)
    }
}
