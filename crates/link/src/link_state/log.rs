// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short messages that were received and are not consumed, one behind the other in one piece of memory.
//!
//! ```text
//!   begin            head                                 end
//!   ├────────────────┼──────────────┬──────────┬──────────┤ place, rising for ever
//!   │ consumed       │ message      │ message  │ message  │
//!   └ given back when it is the larger half; all at once when nothing is kept
//! ```
//!
//! A message that is consumed before the next is received costs a copy, and no allocation and no count.

use std::ops::Range;

use super::arriving::as_usize;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Log {
    bytes: Vec<u8>,
    begin: u64,
    head: u64,
}

/// Where one message lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    at: u64,
    len: usize,
}

impl Entry {
    /// Nowhere.
    pub(super) const NONE: Self = Self { at: 0, len: 0 };

    pub(super) const fn len(self) -> usize {
        self.len
    }

    /// What lies there behind the first `bytes` of it.
    pub(super) const fn behind(self, bytes: usize) -> Self {
        let bytes = if bytes > self.len { self.len } else { bytes };
        Self { at: self.at + bytes as u64, len: self.len - bytes }
    }
}

impl Log {
    /// Adds what `write` appends; it appends and does nothing else.
    #[inline(always)]
    pub(super) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Entry {
        let start = self.bytes.len();
        write(&mut self.bytes);
        Entry { at: self.begin + start as u64, len: self.bytes.len() - start }
    }

    /// The same in two steps: what the caller appends, and nothing else, since the log [ended](Self::end) there.
    #[inline(always)]
    pub(super) const fn room(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Where that lies.
    #[inline(always)]
    pub(super) fn since(&self, end: u64) -> Entry {
        Entry { at: end, len: as_usize(self.end() - end) }
    }

    /// The bytes of what was added and not given up.
    #[inline]
    pub(super) fn get(&self, entry: Entry) -> &[u8] {
        self.range(entry).and_then(|range| self.bytes.get(range)).unwrap_or_default()
    }

    /// Where what is added next will lie.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// What was added since the log [ended](Self::end) there is none.
    pub(super) fn cut(&mut self, end: u64) {
        let kept = end.saturating_sub(self.begin);
        self.bytes.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
    }

    /// This and all before it is not needed any more.
    #[inline]
    pub(super) fn give_up(&mut self, entry: Entry) {
        self.head = entry.at + entry.len as u64;
        let unused = usize::try_from(self.head - self.begin).unwrap_or(usize::MAX);
        if unused >= UNUSED_MIN && unused >= self.bytes.len() / 2 {
            self.bytes.drain(..unused.min(self.bytes.len()));
            self.begin = self.head;
        }
    }

    /// Nothing of it is needed any more.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.begin += self.bytes.len() as u64;
        self.head = self.begin;
        self.bytes.clear();
        if self.bytes.capacity() > CAPACITY_KEPT {
            self.bytes = Vec::new();
        }
    }

    fn range(&self, entry: Entry) -> Option<Range<usize>> {
        let start = usize::try_from(entry.at.checked_sub(self.begin)?).ok()?;
        Some(start..start.checked_add(entry.len)?)
    }
}

/// Records up to so many bytes are copied side by side; larger ones are worth an allocation.
pub(super) const LOGGED_MAX: u32 = 1 << 10;
/// Less than this is not worth a move.
const UNUSED_MIN: usize = 16 << 10;
/// A link that has nothing keeps no more memory than this for what may come.
const CAPACITY_KEPT: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn bytes(number: u32) -> Vec<u8> {
        vec![number.to_le_bytes()[0]; number as usize * 37 % 300]
    }

    #[test]
    fn messages_stay_what_they_are_and_memory_does_not_grow() {
        let mut log = Log::default();
        let mut kept = VecDeque::new();
        for number in 0..50_000_u32 {
            let end = log.end();
            let entry = log.append(|log| log.extend_from_slice(&bytes(number)));
            if number % 7 == 3 {
                log.cut(end);
            } else {
                kept.push_back((number, entry));
            }
            // Never empty, so that only halves are given back.
            while kept.len() > 1 + number as usize % 90 {
                let (number, entry) = kept.pop_front().unwrap();
                assert_eq!(log.get(entry), bytes(number), "message {number}");
                log.give_up(entry);
            }
            assert!(log.bytes.len() < 2 * (UNUSED_MIN + 90 * 300), "{} bytes", log.bytes.len());
        }
        assert!(kept.iter().all(|(number, entry)| log.get(*entry) == bytes(*number)));
        log.clear();
        assert!(log.bytes.is_empty() && kept.iter().all(|(_, entry)| log.get(*entry).is_empty()));
    }

    #[test]
    fn a_part_of_a_message() {
        let mut log = Log::default();
        let entry = log.append(|log| log.extend_from_slice(b"headmessage"));
        assert_eq!(log.get(entry.behind(4)), b"message");
        assert_eq!(log.get(entry.behind(40)), b"");
        assert_eq!(entry.behind(4).len(), 7);
    }
}
