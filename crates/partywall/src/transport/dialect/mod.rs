// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of other protocols as a session sees them: the records of streams are made of what a dialect tells, and
//! the other way round.
//!
//! ```text
//!   session                     here                                dialect
//!   OPEN, message             ▶ number ─▶ name                    ▶ open, send
//!   CLOSE_WRITE and RESET {r} ▶ both directions over              ▶ close
//!   END of a stream of ours   ◀ at once
//!   OPEN, message             ◀ name ─▶ number                    ◀ Opened, Message
//!   CLOSE_WRITE, RESET {r}    ◀ (and END of a stream of ours)     ◀ Closed
//!   CREDIT, GO_AWAY           ▶ nothing
//! ```
//!
//! A session's numbers are small and used again; a dialect's names are its own business. `streams.rs` keeps both.
//!
//! Nothing here waits, and nothing is known of any dialect.

mod caller;
mod names;
mod receiver;
mod sender;
mod streams;

pub use caller::Caller;
pub use names::{NameHasher, NameMap, NameSecrets};
pub(crate) use receiver::DialectReceiver;
pub(crate) use sender::DialectSender;

use crate::dialect::{DialectError, Line, LineRoom, Unsent as LineUnsent};
use crate::error::{Fault, Limit, TooLarge};
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
    pub line: Line,
    pub caller: Caller,
    pub dialect: &'static str,
    pub peer: String,
    pub guard: ForkGuard,
    pub is_acceptor: bool,
}

/// Both ends of a line.
pub(crate) fn assemble(parts: Parts) -> io::Result<(DialectSender, DialectReceiver)> {
    let Parts { line, caller, dialect, peer, guard, is_acceptor } = parts;
    let set = EpollSet::new()?;
    set.add(caller.doorbell(), EventFlags::IN | EventFlags::ET, CALLED)?;
    set.add(line.receiver.descriptor(), INTEREST, HEARD)?;
    let streams = Arc::new(Streams::new(is_acceptor));
    let other = Arc::new(Other { dialect, peer });
    let room = Arc::new(DialectRoom { guard, room: line.sender.room() });
    let sender = DialectSender::new(
        line.sender,
        Arc::clone(&streams),
        caller.clone(),
        room,
        Arc::clone(&other),
    );
    Ok((sender, DialectReceiver::new(line.receiver, streams, caller, set, other)))
}

const CALLED: u64 = 0;
const HEARD: u64 = 1;
/// What a line's descriptor is watched for.
const INTEREST: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

/// Who is at the other end, for errors.
#[derive(Debug)]
struct Other {
    dialect: &'static str,
    peer: String,
}

impl Other {
    #[cold]
    fn fault(&self, reason: DialectError) -> Fault {
        Fault::Dialect { peer: self.peer.clone(), dialect: self.dialect, reason }
    }

    #[cold]
    fn unsent(&self, unsent: LineUnsent, len: usize) -> Unsent {
        match unsent {
            LineUnsent::Full => Unsent::Full,
            LineUnsent::Closed(closed) => Unsent::Closed(closed),
            LineUnsent::TooLarge(max) => {
                Unsent::TooLarge(TooLarge { len: len as u64, max, limit: Limit::Dialect })
            }
            LineUnsent::Broken(source) => Unsent::Fault(self.fault(source)),
        }
    }
}

/// Where one waits for room on a line.
#[derive(Debug)]
pub(crate) struct DialectRoom {
    guard: ForkGuard,
    room: Arc<dyn LineRoom>,
}

impl DialectRoom {
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
