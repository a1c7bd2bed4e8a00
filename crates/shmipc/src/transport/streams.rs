// SPDX-License-Identifier: MIT OR Apache-2.0
//! The open streams of a connection, and those that were closed recently.
//!
//! ```text
//!   server    unknown id  ─▶ opened            client    unknown id  ─▶ discarded
//!             closed here ─▶ discarded                   closed here ─▶ discarded
//! ```
//!
//! The first data of a stream opens the stream, and a close is not answered. So data that is in
//! flight when a server closes a stream would open it again, with only a part of a message. The
//! side that closes a stream therefore remembers its id for a while.

use partywall::protocol::StreamIdMap;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct Streams {
    table: Mutex<Table>,
    /// Whether the data of any stream of the connection uses or has used the socket. While the flag
    /// is `false`, a sender needs no lock to learn that a stream's data uses the ring.
    has_fallen: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Table {
    is_client: bool,
    /// Ids of open streams, and whether the data of each uses the socket from now on.
    open: StreamIdMap<bool>,
    /// Ids of streams that this side closed, in the order of closing.
    closed: VecDeque<u32>,
    is_closed: HashSet<u32>,
    last: u32,
    /// Upper bound of the closed streams whose id is remembered.
    closed_max: usize,
}

/// The kind of stream to which received data belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The data belongs to a stream that is open.
    Known,
    /// The data belongs to no stream that was open before: it opens a new stream.
    New,
    /// The data belongs to a stream that is closed or was never open, and is discarded.
    None,
}

impl Streams {
    pub(super) fn new(is_client: bool, ring_capacity: usize) -> Self {
        let table = Table {
            is_client,
            open: StreamIdMap::default(),
            closed: VecDeque::new(),
            is_closed: HashSet::new(),
            last: FIRST_NAME - 1,
            closed_max: ring_capacity.max(CLOSED_MIN),
        };
        Self { table: Mutex::new(table), has_fallen: AtomicBool::new(false) }
    }

    /// Whether the data of the stream with id `name` uses the socket; `None` if the stream was
    /// closed meanwhile.
    pub(super) fn falls_back(&self, name: u32) -> Option<bool> {
        // ORDER: Relaxed: only one sender at a time writes the flag `has_fallen`, and it sees its
        // own stores. While the flag is clear, this function does not look whether the stream was
        // closed just now; the peer discards data of such a stream.
        if !self.has_fallen.load(Ordering::Relaxed) {
            return Some(false);
        }
        self.lock().falls_back(name)
    }

    /// Records that the data of the stream with id `name` uses the socket from now on.
    pub(super) fn fall_back(&self, name: u32) {
        // ORDER: Relaxed: only one sender at a time writes the flag `has_fallen`, which says that
        // the data of some stream uses the socket.
        self.has_fallen.store(true, Ordering::Relaxed);
        self.lock().fall_back(name);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Chooses an id for a stream that this side opens. Ids wrap around after 2³² streams, and skip
    /// open ones.
    pub(super) fn open(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1).max(FIRST_NAME);
            if !self.open.contains_key(&self.last) {
                break;
            }
        }
        let name = self.last;
        if self.is_closed.remove(&name) {
            self.closed.retain(|closed| *closed != name);
        }
        self.open.insert(name, false);
        name
    }

    /// Returns the stream to which received data with id `name` belongs. If the data opens the
    /// stream, the stream is open from now on.
    pub(super) fn owner(&mut self, name: u32) -> Owner {
        if self.open.contains_key(&name) {
            return Owner::Known;
        }
        if self.is_client || self.is_closed.contains(&name) {
            return Owner::None;
        }
        self.open.insert(name, false);
        Owner::New
    }

    pub(super) fn falls_back(&self, name: u32) -> Option<bool> {
        self.open.get(&name).copied()
    }

    pub(super) fn fall_back(&mut self, name: u32) {
        if let Some(falls_back) = self.open.get_mut(&name) {
            *falls_back = true;
        }
    }

    pub(super) fn closed_here(&mut self, name: u32) {
        self.close(name);
    }

    /// Removes the stream with id `name` from the open ones. Returns whether the stream was open;
    /// its id is then remembered.
    fn close(&mut self, name: u32) -> bool {
        if self.open.remove(&name).is_none() {
            return false;
        }
        if self.is_closed.insert(name) {
            self.closed.push_back(name);
            if self.closed.len() > self.closed_max {
                if let Some(oldest) = self.closed.pop_front() {
                    self.is_closed.remove(&oldest);
                }
            }
        }
        true
    }

    /// Records that the peer closed the stream with id `name`; returns whether the stream was open.
    /// Data of the stream that is still in flight, on a TCP socket for example, opens no stream.
    pub(super) fn closed_there(&mut self, name: u32) -> bool {
        self.close(name)
    }

    pub(super) fn count(&self) -> usize {
        self.open.len()
    }
}

/// The id of the first stream that a side opens, as in other implementations.
const FIRST_NAME: u32 = 2;
/// Number of closed streams whose id is remembered, if the ring's capacity is not larger. With a
/// larger ring the number is the ring's capacity, because so many elements of closed streams may be
/// in flight.
const CLOSED_MIN: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_at_two_and_go_round() {
        let streams = Streams::new(true, 16);
        let mut table = streams.lock();
        assert_eq!([table.open(), table.open()], [2, 3]);
        table.last = u32::MAX;
        assert_eq!(table.open(), 4, "2 and 3 are open still");
        table.closed_here(2);
        table.last = u32::MAX;
        assert_eq!(table.open(), 2);
        assert_eq!(table.owner(2), Owner::Known);
    }

    #[test]
    fn late_data_opens_no_ghost() {
        let streams = Streams::new(false, 16);
        let mut table = streams.lock();
        assert_eq!(table.owner(7), Owner::New);
        assert_eq!(table.owner(7), Owner::Known);
        table.closed_here(7);
        assert_eq!(table.owner(7), Owner::None);
        assert!(!table.closed_there(7));
        for name in 8..8 + u32::try_from(CLOSED_MIN).unwrap() {
            assert_eq!(table.owner(name), Owner::New);
            table.closed_here(name);
        }
        assert_eq!((table.closed.len(), table.is_closed.len()), (CLOSED_MIN, CLOSED_MIN));
        assert_eq!(table.owner(8), Owner::None);
    }

    #[test]
    fn data_after_close_opens_no_ghost() {
        let streams = Streams::new(false, 16);
        let mut table = streams.lock();
        assert_eq!(table.owner(7), Owner::New);
        assert!(table.closed_there(7));
        assert_eq!(table.owner(7), Owner::None);
    }

    #[test]
    fn a_client_opens_nothing_that_it_did_not_open() {
        let streams = Streams::new(true, 16);
        assert_eq!(streams.lock().owner(9), Owner::None);
    }
}
