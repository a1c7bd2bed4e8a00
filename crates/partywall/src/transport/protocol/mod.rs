// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport of a session whose peer speaks another protocol than Partywall's own. This module
//! turns the protocol's events into records of streams, and the session's records into calls of the
//! protocol.
//!
//! ```text
//!   session                     transport/protocol/                 protocol
//!   OPEN, message             ▶ maps the number to a name         ▶ open, send
//!   CLOSE_WRITE and RESET {r} ▶ once both directions are over     ▶ close
//!   END of our own stream     ◀ right after close
//!   OPEN, message             ◀ maps the name to a number         ◀ Opened, Message
//!   CLOSE_WRITE, RESET {r},   ◀ immediately                       ◀ Closed
//!     END of our own stream
//!   CREDIT, GO_AWAY           ▶ discarded                           nothing
//! ```
//!
//! ▶ marks what this side sends, ◀ what it receives. RESET {r} is RESET of the direction in which
//! the sender of the record receives.
//!
//! The stream numbers of a session are small and are reused; a protocol chooses its own ids, which
//! these files call names. [`Streams`] maps numbers to names. No method blocks, and no code depends
//! on a particular protocol.

mod receiver;
mod sender;
mod streams;

pub(crate) use receiver::ProtocolReceiver;
pub(crate) use sender::ProtocolSender;

use crate::error::{Fault, Limit, TooLarge};
use crate::protocol::{Connection, ConnectionSpace, DriverWaker, ProtocolError, TrySendError};
use crate::transport::{NotSent, ProgressSnapshot, SpaceWaiter};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{EpollSet, ForkGuard, epoll::EventFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;
use streams::Streams;

/// Credit of a stream in a protocol that has no credit, in bytes: more than can ever be sent, so a
/// stream never waits for credit.
pub(crate) const WINDOW: u64 = 1 << 62;

/// The parts of an established connection of another protocol, from which [`assemble`] makes sender
/// and receiver.
pub(crate) struct ProtocolParts {
    pub connection: Connection,
    pub driver_waker: DriverWaker,
    pub protocol: &'static str,
    pub peer: String,
    pub guard: ForkGuard,
    pub is_acceptor: bool,
}

pub(crate) fn assemble(parts: ProtocolParts) -> io::Result<(ProtocolSender, ProtocolReceiver)> {
    let ProtocolParts { connection, driver_waker, protocol, peer, guard, is_acceptor } = parts;
    let set = EpollSet::new()?;
    set.add(driver_waker.doorbell(), EventFlags::IN | EventFlags::ET, WOKEN)?;
    set.add(connection.receiver.descriptor(), INTEREST, RECEIVED)?;
    let streams = Arc::new(Streams::new(is_acceptor));
    let other = Arc::new(Names { protocol, peer });
    let space = Arc::new(ProtocolSpace { guard, space: connection.sender.room() });
    let sender = ProtocolSender::new(
        connection.sender,
        Arc::clone(&streams),
        driver_waker.clone(),
        space,
        Arc::clone(&other),
    );
    Ok((sender, ProtocolReceiver::new(connection.receiver, streams, driver_waker, set, other)))
}

const WOKEN: u64 = 0;
const RECEIVED: u64 = 1;
/// The events for which epoll watches the descriptor of a connection: readable bytes, and a hang-up
/// of the peer.
const INTEREST: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

/// The names of the protocol and of the peer, for error texts.
#[derive(Debug)]
struct Names {
    protocol: &'static str,
    peer: String,
}

impl Names {
    #[cold]
    fn fault(&self, reason: ProtocolError) -> Fault {
        Fault::Protocol { peer: self.peer.clone(), protocol: self.protocol, reason }
    }

    #[cold]
    fn unsent(&self, unsent: TrySendError, len: usize) -> NotSent {
        match unsent {
            TrySendError::Full => NotSent::Full,
            TrySendError::Closed(closed) => closed.into(),
            TrySendError::TooLarge(max) => {
                NotSent::from(TooLarge { len: len as u64, max, limit: Limit::Protocol })
            }
            TrySendError::Broken(source) => NotSent::from(self.fault(source)),
        }
    }
}

/// The object on which the sender of another protocol's connection waits for room.
#[derive(Debug)]
struct ProtocolSpace {
    guard: ForkGuard,
    space: Arc<dyn ConnectionSpace>,
}

impl SpaceWaiter for ProtocolSpace {
    fn is_inherited(&self) -> bool {
        self.guard.is_child()
    }

    fn snapshot(&self) -> ProgressSnapshot {
        ProgressSnapshot(self.space.snapshot())
    }

    fn is_writable(&self) -> bool {
        self.space.is_writable()
    }

    /// Waits for room to send. Always returns `false` (no hang-up), because the receiving end
    /// detects a hang-up of the peer.
    fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool> {
        let mut descriptors = [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)];
        poll::wait(&mut descriptors, deadline).map(|_| false)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.space.descriptor()
    }
}
