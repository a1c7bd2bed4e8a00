// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing one end of a link in this process. Sent messages go out first, if time permits. Messages
//! that do not go out stay in the link's file, if it has one.
//!
//! ```text
//!   close(deadline)   all written ─▶ write LEAVE ─▶ the peer's system has LEAVE ───▶ closed
//!                       └ not in time ──────────────────────────────────────────────▶ closed
//!   detach            no LEAVE ─────────────────────────────────────────────────────▶ closed
//!   drop              write what the kernel takes; if that is all, LEAVE too ──────▶ closed
//! ```
//!
//! The frame LEAVE says that every record was sent. Without LEAVE the peer waits for this end to
//! return.
//!
//! `close` and `detach` then write the link file to the disk, so that the file is trusted after a
//! reboot (SPEC 13.8). `drop` does not write to the disk.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use partywall_sys::Family;
use partywall_wait::has_passed;

use super::connections::Connections;
use super::dialer::Phase;
use super::waiter::Waits;
use super::{Endpoint, Locked, State};
use crate::error::{Awaited, Stopped, WaitError};
use crate::link_state::{End, LinkState};

#[derive(Clone, Copy)]
pub(crate) struct Shutdown<'a> {
    pub(super) end: &'a Endpoint,
}

impl Shutdown<'_> {
    /// Closes the link in good order. An error means that not all messages went out, or that the
    /// link file could not be written to the disk. The link is closed even then.
    pub(crate) fn close(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        Self::close_all(&[self.end], deadline)
    }

    /// Closes several links in good order, one after the other, and then writes all their link
    /// files to the disk together.
    pub(crate) fn close_all<E: Deref<Target = Endpoint>>(
        ends: &[E],
        deadline: Option<Instant>,
    ) -> Result<(), WaitError> {
        let mut result = Ok(());
        let mut cores = Vec::new();
        for end in ends {
            let (left, core) = end.shutdown().leave_in_time(deadline);
            result = result.and(left);
            cores.extend(core.map(|core| *core));
        }
        // Writing the link files to the disk may take long, so no link is locked meanwhile.
        let closed = LinkState::close_all(cores);
        result = result.and(closed.map_err(|error| Stopped::System(Arc::new(error)).into()));
        // Other owners may open the link files only after these were written to the disk. So only
        // now the servers are notified that their links are closed, and may be opened again.
        ends.iter().for_each(|end| end.shutdown().report_closed());
        result
    }

    /// Closes the link and its file without the frame LEAVE, which would end the stream of
    /// messages. So the peer waits for a later owner.
    pub(crate) fn detach(&self) -> Result<(), Stopped> {
        let core = self.take(Farewell::Unsaid);
        let closed = LinkState::close_all(
            core.into_iter()
                .map(|mut core| {
                    core.set_notified(false);
                    *core
                })
                .collect(),
        );
        self.report_closed();
        closed.map_err(|error| Stopped::System(Arc::new(error)))
    }

    /// Closes the link in good order, except that the link file is not written to the disk. An
    /// error means that not all messages went out. The link is closed even then.
    #[cfg(feature = "tokio")]
    pub(crate) fn close_unsynced(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let (result, core) = self.leave_in_time(deadline);
        drop(core);
        self.report_closed();
        result
    }

    /// Notifies the server that made this end, if one did, that the link is closed and may be
    /// opened again.
    fn report_closed(&self) {
        if let Some(home) = self.end.home.as_ref().and_then(Weak::upgrade) {
            home.closed(self.end);
        }
    }

    /// Sends all messages and then LEAVE, the frame that says that all were sent. Waits until
    /// `deadline` for the peer's system to have them, and takes the link's state out of this end,
    /// which is closed from then on.
    fn leave_in_time(
        &self,
        deadline: Option<Instant>,
    ) -> (Result<(), WaitError>, Option<Box<LinkState>>) {
        let left = self.end.waiter().wait_for(deadline, Waits::ForRoom, |state| {
            self.end.exchange().push(state);
            self.end.exchange().poll_acks(state);
            if state.core.is_none() {
                return Some(Err(Stopped::Closed));
            }
            // If the link has no connection, the thread keeps waiting, because a connection may
            // still be made.
            let is_out = state.active().is_some() && !state.has_outgoing();
            let is_done = is_out || state.is_all_acked() || state.stopped().is_some();
            // LEAVE, the frame that says that all messages were sent, is sent before the lock is
            // released: once the lock is free, another thread may send a message, which must not
            // follow LEAVE.
            is_done.then(|| Ok(self.leave(state)))
        });
        let gone = left.and_then(|left| match left {
            Some(Ok(Some(token))) => Ok(self.wait_taken(token, deadline)?.then_some(Ok(()))),
            left => Ok(left.map(|left| left.map(drop))),
        });
        let core = self.take(Farewell::Said);
        let waiter = self.end.waiter();
        let result = gone.map_err(WaitError::from);
        let result = result.and_then(|gone| waiter.waited(gone, Awaited::Closed));
        (result, core)
    }

    /// Closes the link, and waits neither for the peer nor for the disk.
    pub(crate) fn abandon(&self) {
        drop(self.take(Farewell::Said));
    }

    /// Ends all connections of this end, and takes out and returns the state of the link, so that
    /// the link is closed. The link file stays owned until the returned state is dropped.
    fn take(&self, farewell: Farewell) -> Option<Box<LinkState>> {
        if self.end.guard.is_child() {
            return None;
        }
        let mut state = self.end.monitor.lock();
        if farewell == Farewell::Said {
            self.leave(&mut state);
        }
        if let Some(Phase::Connecting { begun, token, .. }) =
            state.connections.dialer.take().as_ref().map(|dialer| &dialer.phase)
        {
            self.end.group.reactor.unwatch(begun, *token);
        }
        while !state.connections.wires.is_empty() {
            self.end.connections().end(&mut state, 0, End::Left);
        }
        let core = state.core.take();
        self.end.wakeups().forget_doorbell(&mut state);
        self.end.connections().set_timer(&mut state);
        self.end.report_change(&mut state);
        core
    }

    /// Waits until the peer's system has all bytes of the connection, the last frame (LEAVE)
    /// included. Returns `false` if the deadline passes first. Closing a TCP socket while bytes
    /// arrive discards bytes that are still under way. No event reports when the peer's system has
    /// all bytes, so this end asks its own system at intervals.
    fn wait_taken(&self, token: u64, deadline: Option<Instant>) -> Result<bool, Stopped> {
        loop {
            let step = Instant::now() + ASKED_EVERY;
            let until = deadline.map_or(step, |deadline| deadline.min(step));
            let found = self.end.monitor.wait_for(Some(until), |state| {
                let Some(index) = state.connections.index(token) else { return Some(()) };
                self.end.connections().write(state, index);
                self.discard(state, token)
            })?;
            if found.is_some() || has_passed(deadline) {
                return Ok(found.is_some());
            }
        }
    }

    /// Sends all records, and after them LEAVE, the frame that says that all were sent. The kernel
    /// may take some of these bytes only later. Returns the token of the connection that is to be
    /// closed, if there is one.
    fn leave(&self, state: &mut Locked<'_>) -> Option<u64> {
        state.active()?;
        // The dialer is removed, because it would connect to the server again after this connection
        // ends.
        state.connections.dialer = None;
        self.end.exchange().push(state);
        let index = state.active()?;
        let State { core: Some(core), connections: Connections { wires, .. }, .. } = &mut **state
        else {
            return None;
        };
        let token = wires[index].token;
        core.leave(&mut wires[index].conn);
        self.end.connections().write(state, index);
        Some(token)
    }

    /// Reads and discards all bytes that have arrived on the connection with this `token`. Returns
    /// `Some` once the connection may be closed without losing sent bytes, because the peer's
    /// system has them or the connection is gone.
    fn discard(&self, state: &mut Locked<'_>, token: u64) -> Option<()> {
        let index = state.connections.index(token)?;
        let State { core: Some(core), connections: Connections { wires, .. }, .. } = &mut **state
        else {
            return Some(());
        };
        let wire = &mut wires[index];
        for _ in 0..DISCARDED_MAX {
            match super::read_some(&wire.socket, &mut wire.input) {
                Ok((0, _)) => return Some(()),
                Ok(_) => wire.input.clear(),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    // Bytes that a Unix socket has taken have already reached the peer's system.
                    let is_taken = wire.socket.family() == Family::Unix
                        || wire.socket.untaken_bytes().is_ok_and(|bytes| bytes == 0);
                    return (is_taken && !core.has_outgoing(&wire.conn)).then_some(());
                }
                Err(_) => return Some(()),
            }
        }
        None
    }
}

/// Whether an end that closes sends the frame LEAVE, which ends its stream of messages. It may do
/// so only if all its records are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    Said,
    Unsaid,
}

/// Interval at which an end that closes its link asks its own system whether the peer's system has
/// all bytes.
const ASKED_EVERY: Duration = Duration::from_millis(5);
/// Maximum number of reads from the socket in one call of `discard`, which drops arrived bytes, so
/// that the call returns even if the peer sends without end.
const DISCARDED_MAX: u32 = 64;
