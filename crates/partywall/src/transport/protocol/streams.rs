// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of a session's streams over another protocol. The table maps the session's stream
//! numbers to the protocol's ids ("names"), and notes which directions have ended.
//!
//! ```text
//!   stream that this side opened
//!     begin ─▶ this side has ended both directions ─▶ close, END to the session ─▶ removed
//!         └─▶ the peer closes ─▶ CLOSE_WRITE, RESET {receiving}, END to the session ─▶ removed
//!   stream that the peer opened
//!     meet ─▶ either side closes the stream ─▶ the session writes END ─▶ removed
//! ```
//!
//! The sending and the receiving end of the connection share the table. Its lock is held briefly,
//! and never during a call of the protocol.

use crate::protocol::StreamIdMap;
use partywall_layout::Kind;
use partywall_layout::stream::{RECEIVING, index, number};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The table of a session's streams over another protocol, shared by the sending and the receiving
/// end of the connection.
#[derive(Debug)]
pub(super) struct Streams {
    table: Mutex<Table>,
    /// Whether the table may contain records, derived from events of the protocol, that the session
    /// has not received yet.
    has_made: AtomicBool,
}

/// A record that is derived from an event of another protocol, so that the session handles it like
/// a received one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub kind: Kind,
    pub number: u32,
    /// The directions of the stream that the derived record ends, if it is a record RESET. The
    /// error code that such a record carries is always 0.
    pub directions: u32,
}

/// The entries of all streams of the connection, and the records that wait for the session.
/// `Streams` holds the table behind a lock.
#[derive(Debug)]
pub(super) struct Table {
    is_acceptor: bool,
    own: Vec<Option<Entry>>,
    theirs: Vec<Option<Entry>>,
    /// Free indices in `theirs`, the entries of the streams that the peer opened. The peer's next
    /// streams take these indices.
    free: Vec<usize>,
    numbers: StreamIdMap<u32>,
    /// Records that were derived from events of the protocol and that the session has not received
    /// yet.
    pub(super) made: VecDeque<Made>,
}

/// The state of one stream in the table of streams: the id that the other protocol (shmipc) gave
/// the stream, and which of its directions have ended.
#[derive(Clone, Copy, Debug)]
struct Entry {
    name: u32,
    is_sending_over: bool,
    is_receiving_over: bool,
    is_closed_here: bool,
    is_closed_there: bool,
}

impl Streams {
    pub(super) fn new(is_acceptor: bool) -> Self {
        let table = Table {
            is_acceptor,
            own: Vec::new(),
            theirs: Vec::new(),
            free: Vec::new(),
            numbers: StreamIdMap::default(),
            made: VecDeque::new(),
        };
        Self { table: Mutex::new(table), has_made: AtomicBool::new(false) }
    }

    /// Takes the next record that was derived from an event of the protocol, if there is any. The
    /// call may miss a record that another thread adds at the same time. So a session's driver that
    /// is about to sleep reads the table of streams itself.
    pub(super) fn take_made(&self) -> Option<Made> {
        // ORDER: Relaxed: the flag `has_made` is only a hint whether locking the table is worth it;
        // the table's lock orders the accesses to the table.
        if !self.has_made.load(Ordering::Relaxed) {
            return None;
        }
        let mut table = self.lock();
        let made = table.made.pop_front();
        // ORDER: Relaxed: this store runs under the table's lock. A call of `note_made` for a later
        // record comes after the table was changed under that lock. So the `false` of this store
        // cannot replace the `true` of that call.
        self.has_made.store(!table.made.is_empty(), Ordering::Relaxed);
        made
    }

    /// Notes that records for the session were added to the table. `take_made` locks the table only
    /// after such a note.
    pub(super) fn note_made(&self) {
        // ORDER: Relaxed: the flag `has_made` is only a hint for `take_made`; the table's lock
        // orders the accesses to the table.
        self.has_made.store(true, Ordering::Relaxed);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Adds a stream that this side opened to the table of the session's streams.
    pub(super) fn begin(&mut self, number: u32, name: u32) {
        let Some((at, _)) = index(number) else { return };
        let at = at as usize;
        if at >= self.own.len() {
            self.own.resize(at + 1, None);
        }
        self.own[at] = Some(Entry::new(name));
        self.numbers.insert(name, number);
    }

    /// Adds a stream that the peer opened to the table of the session's streams. Returns the number
    /// that the stream gets in the session.
    pub(super) fn meet(&mut self, name: u32) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.theirs.push(None);
            self.theirs.len() - 1
        });
        self.theirs[at] = Some(Entry::new(name));
        #[expect(
            clippy::cast_possible_truncation,
            reason = "as many as the protocol has names at most"
        )]
        let number = number(at as u32, !self.is_acceptor);
        self.numbers.insert(name, number);
        number
    }

    /// Returns the session's number of the stream with the protocol's id `name`, or `None` if the
    /// stream was closed.
    pub(super) fn number(&self, name: u32) -> Option<u32> {
        self.numbers.get(&name).copied()
    }

    /// Returns the protocol's id for sending on a stream, or `None` if the peer has closed the
    /// stream.
    pub(super) fn name(&mut self, number: u32) -> Option<u32> {
        let entry = self.entry(number).filter(|entry| !entry.is_closed_there)?;
        Some(entry.name)
    }

    /// Notes the directions of a stream that have ended at this side. Returns the protocol's id for
    /// closing the stream, once both directions have ended and neither side has closed the stream.
    pub(super) fn note_over(&mut self, number: u32, sending: bool, receiving: bool) -> Option<u32> {
        let entry = self.entry(number)?;
        entry.is_sending_over |= sending;
        entry.is_receiving_over |= receiving;
        let is_over = entry.is_sending_over && entry.is_receiving_over;
        (is_over && !entry.is_closed_here && !entry.is_closed_there).then_some(entry.name)
    }

    pub(super) fn closed_here(&mut self, number: u32) {
        let Some(entry) = self.entry(number) else { return };
        entry.is_closed_here = true;
        let name = entry.name;
        self.numbers.remove(&name);
        if self.is_own(number) {
            self.made.push_back(Made { kind: Kind::End, number, directions: 0 });
            self.forget(number);
        }
    }

    /// Notes that the peer has closed the stream; all messages that the peer sent on it were
    /// received.
    pub(super) fn closed_there(&mut self, name: u32) {
        let Some(number) = self.numbers.remove(&name) else { return };
        let Some(entry) = self.entry(number) else { return };
        entry.is_closed_there = true;
        self.made.push_back(Made { kind: Kind::CloseWrite, number, directions: 0 });
        self.made.push_back(Made { kind: Kind::Reset, number, directions: RECEIVING });
        if self.is_own(number) {
            self.made.push_back(Made { kind: Kind::End, number, directions: 0 });
            self.forget(number);
        }
    }

    /// Notes that the session has written END for a stream of the peer, which frees its number.
    pub(super) fn ended(&mut self, number: u32) {
        if let Some(entry) = self.entry(number) {
            let name = entry.name;
            // The protocol may already have given the id of this stream, which one side has closed,
            // to another stream. So the id is removed only if it still belongs to this stream.
            if self.numbers.get(&name) == Some(&number) {
                self.numbers.remove(&name);
            }
            self.forget(number);
            if let Some((at, _)) = index(number) {
                self.free.push(at as usize);
            }
        }
    }

    fn is_own(&self, number: u32) -> bool {
        index(number).is_some_and(|(_, by_acceptor)| by_acceptor == self.is_acceptor)
    }

    fn entry(&mut self, number: u32) -> Option<&mut Entry> {
        let (at, _) = index(number)?;
        let table = if self.is_own(number) { &mut self.own } else { &mut self.theirs };
        table.get_mut(at as usize)?.as_mut()
    }

    fn forget(&mut self, number: u32) {
        let Some((at, _)) = index(number) else { return };
        let table = if self.is_own(number) { &mut self.own } else { &mut self.theirs };
        if let Some(place) = table.get_mut(at as usize) {
            *place = None;
        }
    }
}

impl Entry {
    const fn new(name: u32) -> Self {
        Self {
            name,
            is_sending_over: false,
            is_receiving_over: false,
            is_closed_here: false,
            is_closed_there: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(table: &mut Table) -> Vec<(Kind, u32)> {
        table.made.drain(..).map(|made| (made.kind, made.number)).collect()
    }

    #[test]
    fn a_stream_of_ours_ends_when_both_directions_are_over_here() {
        let streams = Streams::new(false);
        let mut table = streams.lock();
        let ours = number(0, false);
        table.begin(ours, 7);
        assert_eq!(table.note_over(ours, true, false), None);
        assert_eq!(table.note_over(ours, false, true), Some(7));
        // Rule: if the protocol had no room for the message that closes the stream, the next call
        // of `note_over` returns the stream's id again, so that the close is repeated.
        assert_eq!(table.note_over(ours, false, true), Some(7));
        table.closed_here(ours);
        assert_eq!(made(&mut table), [(Kind::End, ours)]);
        assert_eq!((table.number(7), table.name(ours)), (None, None));
    }

    #[test]
    fn a_stream_of_ours_that_is_closed_there_ends_behind_its_data() {
        let streams = Streams::new(true);
        let mut table = streams.lock();
        let ours = number(3, true);
        table.begin(ours, 9);
        table.closed_there(9);
        assert_eq!(
            made(&mut table),
            [(Kind::CloseWrite, ours), (Kind::Reset, ours), (Kind::End, ours)]
        );
        assert_eq!(table.note_over(ours, true, true), None);
        table.closed_there(9);
        assert_eq!(made(&mut table), []);
    }

    #[test]
    fn a_number_of_theirs_is_free_when_the_session_has_ended_it() {
        let streams = Streams::new(false);
        let mut table = streams.lock();
        let (first, second) = (table.meet(2), table.meet(3));
        assert_ne!(first, second);
        table.closed_there(2);
        assert_eq!(made(&mut table), [(Kind::CloseWrite, first), (Kind::Reset, first)]);
        assert_eq!(table.name(first), None);
        assert_eq!(table.note_over(first, true, true), None);
        table.ended(first);
        assert_eq!(table.meet(4), first);
        assert_eq!(table.note_over(second, true, true), Some(3));
        table.closed_here(second);
        assert_eq!(made(&mut table), []);
        table.ended(second);
        assert_eq!(table.meet(5), second);
        assert_eq!((table.number(4), table.number(3)), (Some(first), None));
    }
}
