// SPDX-License-Identifier: MIT OR Apache-2.0
//! The work that an event loop does in its thread for one source: the driver of a session, a source
//! of another crate, or the last bytes of a dropped sender.
//!
//! An armed task has asked its peer to notify the loop of records and of room. The loop arms a task
//! before its thread waits, or after several turns without work, because each notification costs
//! the peer a system call.
//!
//! ```text
//!   session:  turn ─┬─ records were handled ─▶ turn again
//!                   ├─ none ─▶ unarmed ─ before the thread waits ─▶ arm ─▶ until an event
//!                   └─ over ─▶ its last record finds room, a TCP peer closes ─▶ finished
//!   source:   try_poll ─▶ readable, as long as it returns true
//!   closing:  write what the socket accepts ─▶ until an event ─▶ all written, or 1 s ─▶ finished
//! ```

use super::event::Kinds;
use super::ready_list::Key;
use super::registration::{Interest, Purpose, Registration, Shared};
use super::source::Source;
use crate::channel::Readiness;
use crate::config::{BackPressure, Config};
use crate::handshake::Established;
use crate::session::{Closing, Driver, Handle, Sleep, Turn};
use crate::transport::has_passed;
use crate::transport::socket::LINGER;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// One task of an event loop: the driver of a session, or a source of another crate.
pub(super) enum Task {
    Session(Box<SessionTask>),
    Source(SourceTask),
    Closing(Box<ClosingTask>),
}

/// Result of a task's turn, by which the loop decides when the task gets its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The task gets another turn in the next pass of the loop over its sources.
    Again,
    /// The task had no work. Before its thread waits, the loop has to call `arm`, so that the peer
    /// of the task notifies the loop.
    Unarmed,
    /// The task waits for an event of its descriptors, or for its timer.
    Waits,
    /// The task has no further work, and the loop drops it.
    Finished,
}

impl Task {
    pub(super) fn turn(&mut self) -> io::Result<Step> {
        match self {
            Self::Session(task) => Ok(task.turn()),
            Self::Source(task) => task.turn(),
            Self::Closing(task) => Ok(task.turn()),
        }
    }

    /// Prepares the task for a wait of the loop's thread: afterwards records and room cause events.
    pub(super) fn arm(&mut self) -> Step {
        match self {
            Self::Session(task) => task.arm(),
            Self::Source(_) | Self::Closing(_) => Step::Waits,
        }
    }

    pub(super) const fn note_room(&mut self) {
        if let Self::Session(task) = self {
            task.has_room = true;
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        match self {
            Self::Session(task) => task.next_timer(),
            Self::Source(task) => task.source.next_timer(),
            Self::Closing(task) => Some(task.next_turn.min(task.until)),
        }
    }

    /// Whether the task may set a timer between two of its turns, as a source of another crate
    /// does.
    pub(super) const fn keeps_timer(&self) -> bool {
        matches!(self, Self::Source(_))
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session(_) => "Session",
            Self::Source(_) => "Source",
            Self::Closing(_) => "Closing",
        })
    }
}

/// The driver of a session, which an event loop runs instead of a thread.
pub(super) struct SessionTask {
    // The fields `records` and `room` are declared before the driver, so that their descriptors
    // leave the epoll set before the driver is dropped. Users of the session learn of its end when
    // the driver is dropped.
    records: Interest,
    room: Interest,
    driver: Driver,
    registration: Arc<Registration>,
    waker: Waker,
    /// Whether the descriptor that shows room to send had an event since the last turn.
    has_room: bool,
    is_closing: bool,
}

impl SessionTask {
    /// Adds a new session to an event loop. Returns its first handle, and its registration.
    pub(super) fn start(
        shared: &Arc<Shared>,
        established: Established,
        config: &Config,
        tag: u64,
    ) -> io::Result<(Handle, Arc<Registration>)> {
        let registration = Registration::new(shared, tag);
        // No call of a session in an event loop waits, so the back-pressure policies `Block` and
        // `Error` mean the same for it. The session gets `Block`, because under `Error` it would
        // register no waker for credit and room.
        let mut config = config.clone();
        if config.back_pressure == BackPressure::Error {
            config.back_pressure = BackPressure::Block;
        }
        let (session, driver) = Driver::new(established, &config);
        let handle = Handle::new(session);
        let mut task = Self {
            records: Interest::new(Arc::clone(&registration), Purpose::TaskRecords),
            room: Interest::new(Arc::clone(&registration), Purpose::TaskRoom),
            driver,
            waker: turn_waker(&registration),
            registration: Arc::clone(&registration),
            has_room: false,
            is_closing: false,
        };
        task.records.watch(task.driver.records_descriptor())?;
        shared.add_task(registration.key(), Task::Session(Box::new(task)));
        Ok((handle, registration))
    }

    fn turn(&mut self) -> Step {
        if self.is_closing {
            return self.close();
        }
        if std::mem::take(&mut self.has_room) {
            self.driver.found_room();
        }
        // The driver's waker is registered before the driver's turn. A user of the session that
        // calls the waker during the turn then causes another turn.
        self.driver.register(&self.waker);
        match self.driver.turn() {
            Turn::Busy => Step::Again,
            Turn::Idle => Step::Unarmed,
            Turn::Over => self.close(),
        }
    }

    fn arm(&mut self) -> Step {
        let armed = self.driver.arm(false);
        let added = armed.and_then(|sleep| self.watch(sleep).map(|()| sleep));
        match added {
            Ok(Sleep::No) => Step::Again,
            Ok(Sleep::ForRecords | Sleep::ForBoth) => Step::Waits,
            Err(fault) => {
                self.driver.fail(fault);
                self.close()
            }
        }
    }

    /// Adds the descriptors whose events the sleeping driver awaits to the epoll set. They may be
    /// other descriptors than at its last sleep, because the connection may have moved to shared
    /// memory.
    fn watch(&mut self, sleep: Sleep) -> Result<(), crate::Fault> {
        let Self { driver, records, room, .. } = self;
        let mut added = records.watch(driver.records_descriptor());
        if sleep == Sleep::ForBoth {
            added = added.and_then(|()| room.watch(driver.room_descriptor()));
        }
        added.map_err(crate::transport::waiting_failed)
    }

    /// Closes the connection of a session that is over, as far as that is possible without waiting.
    fn close(&mut self) -> Step {
        self.is_closing = true;
        let Self { driver, records, room, .. } = self;
        // Only the descriptor for which the closing driver waits stays in the epoll set. The other
        // descriptor may be readable all the time, and would cause useless turns.
        let added = match driver.close_step() {
            Closing::Done => return Step::Finished,
            Closing::Again => return Step::Again,
            Closing::ForRoom => {
                records.unwatch();
                room.watch(driver.room_descriptor())
            }
            Closing::ForRecords => {
                room.unwatch();
                records.watch(driver.records_descriptor())
            }
        };
        if added.is_ok() { Step::Waits } else { Step::Finished }
    }

    fn next_timer(&self) -> Option<Instant> {
        if self.is_closing { self.driver.closing_until() } else { self.driver.linger_until() }
    }
}

impl Drop for SessionTask {
    fn drop(&mut self) {
        self.registration.mark(Kinds::ENDED);
    }
}

pub(super) struct SourceTask {
    /// The descriptor of the source in the epoll set. `records` is declared before the source, so
    /// that the descriptor leaves the set before the source closes it.
    records: Interest,
    source: Box<dyn Source>,
    registration: Arc<Registration>,
}

impl SourceTask {
    /// Adds a source that another crate implements to an event loop. Returns its registration.
    pub(super) fn start(
        shared: &Arc<Shared>,
        source: Box<dyn Source>,
        tag: u64,
    ) -> io::Result<Arc<Registration>> {
        let registration = Registration::new(shared, tag);
        let mut task = Self {
            records: Interest::new(Arc::clone(&registration), Purpose::Source),
            source,
            registration: Arc::clone(&registration),
        };
        task.records.watch(&task.source)?;
        shared.add_task(registration.key(), Task::Source(task));
        Ok(registration)
    }

    fn turn(&mut self) -> io::Result<Step> {
        if self.source.try_poll()? {
            self.registration.mark(Kinds::READABLE);
            return Ok(Step::Again);
        }
        self.registration.clear(Kinds::READABLE);
        Ok(Step::Waits)
    }
}

/// A sender that was dropped while its socket had not accepted all bytes of sent messages.
///
/// ```text
///   write what the socket accepts ─▶ all written ─▶ TCP: discard bytes, until the peer closes
/// ```
pub(super) struct ClosingTask {
    /// The sender's socket in the epoll set: the task waits for room in the socket, then for bytes
    /// to discard. `progress` is declared before the sender, so that the socket leaves the set
    /// before the sender closes it.
    progress: Interest,
    sender: crate::Sender,
    /// The time at which the task of a closing sender ends, even if the socket has not accepted all
    /// bytes.
    until: Instant,
    /// The time at which the task of a closing sender gets its next turn if its socket has no event
    /// before.
    next_turn: Instant,
    _registration: Arc<Registration>,
}

impl ClosingTask {
    /// Adds a sender, whose close has begun, to an event loop. The loop reports no event of this
    /// sender.
    pub(super) fn start(shared: &Arc<Shared>, sender: crate::Sender) {
        let registration = Registration::new(shared, 0);
        let (key, until) = (registration.key(), Instant::now() + LINGER);
        let task = Self {
            progress: Interest::new(Arc::clone(&registration), Purpose::TaskRoom),
            sender,
            until,
            next_turn: until,
            _registration: registration,
        };
        shared.add_task(key, Task::Closing(Box::new(task)));
    }

    /// Writes the bytes that the socket accepts now. Once all are written, discards the bytes that
    /// the peer sends.
    fn turn(&mut self) -> Step {
        let is_late = has_passed(Some(self.until));
        let added = if self.sender.begin_close() && !is_late {
            match self.sender.arm() {
                Ok(Readiness::Ready) => return Step::Again,
                Ok(Readiness::WillNotify) => self.progress.watch(&self.sender),
                Err(fault) => Err(io::Error::other(fault)),
            }
        } else if let Some(socket) = self.sender.discard_step().filter(|_| !is_late) {
            self.progress.watch(socket)
        } else {
            self.sender.give_up_end();
            return Step::Finished;
        };
        // If the process has no free descriptor, the socket cannot be watched, and a timer causes
        // the task's next turn.
        self.next_turn = if added.is_ok() { self.until } else { Instant::now() + RETRY_PERIOD };
        Step::Waits
    }
}

impl Drop for ClosingTask {
    /// Waits, until the time `until` at most, for the socket of the closing sender to accept the
    /// rest of the sent messages. The wait is needed only if the event loop is dropped before.
    fn drop(&mut self) {
        self.sender.wait_for_close(self.until);
    }
}

/// Time after which a closing sender, whose socket cannot be watched, tries again to write.
const RETRY_PERIOD: Duration = Duration::from_millis(10);

/// Returns the waker with which users of a session cause a turn of its driver.
fn turn_waker(registration: &Arc<Registration>) -> Waker {
    let (shared, key) = (Arc::clone(registration.shared()), registration.key());
    Waker::from(Arc::new(TurnWaker { shared, key }))
}

struct TurnWaker {
    shared: Arc<Shared>,
    key: Key,
}

impl Wake for TurnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.shared.list.request_turn(self.key);
    }
}
