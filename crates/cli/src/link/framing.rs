// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of a file or pipe cut into messages, and messages made bytes again.
//!
//! ```text
//!   lines    message ⏎ message ⏎ mess…            without its ⏎; the last line needs none, and is given one when it is written
//!   length   [4][message][4][message][4][mes…     4 bytes, little-endian, say how many follow
//!
//!   buffer   taken │ whole messages │ part of one │ room          offset: where `taken` ends, counted in the input
//! ```
//!
//! It reads and writes nothing itself. No message is longer than the limit it was made with, and so neither is what it holds.

use std::fmt;
use std::ops::Range;

/// How messages lie one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Framing {
    /// One message a line
    Lines,
    /// 4 bytes, little-endian, with the length of the message that follows
    Length,
}

impl Framing {
    /// Puts a message behind others that are to be written.
    pub fn write(self, message: &[u8], into: &mut Vec<u8>) {
        match self {
            Self::Lines => {
                into.extend_from_slice(message);
                into.push(LINE_END);
            }
            Self::Length => {
                // `recv` takes no peer whose slab is larger than 1 GiB.
                let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
                into.extend_from_slice(&len.to_le_bytes());
                into.extend_from_slice(message);
            }
        }
    }
}

/// See the module.
pub struct Splitter {
    framing: Framing,
    buffer: Vec<u8>,
    /// What of `buffer` is in use.
    filled: usize,
    taken: usize,
    /// Where `taken` lies in the input.
    offset: u64,
    /// In what lies before this there is no line's end that was not taken.
    searched: usize,
    message_max: usize,
    is_ended: bool,
}

/// Input that makes no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It is longer than the link takes.
    TooLong {
        /// Where it begins.
        offset: u64,
        /// The most there may be.
        max: usize,
    },
    /// The input ends before the message does.
    CutShort {
        /// Where it begins.
        offset: u64,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { offset, max } => write!(
                f,
                "the message at byte {offset} of the input is longer than the {max} bytes that --slab leaves room for"
            ),
            Self::CutShort { offset } => write!(
                f,
                "the input ends within the message at byte {offset}: it was cut, or is not of --framing length"
            ),
        }
    }
}

impl Splitter {
    /// For input that is read from `offset` on.
    pub fn new(framing: Framing, offset: u64, message_max: usize) -> Self {
        let buffer = Vec::new();
        Self {
            framing,
            buffer,
            filled: 0,
            taken: 0,
            offset,
            searched: 0,
            message_max,
            is_ended: false,
        }
    }

    /// Where the next message begins in the input.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether nothing will come any more.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Room for more of the input. What [`bytes`](Self::bytes) gave before is gone.
    pub fn room(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.searched = self.searched.saturating_sub(self.taken);
        self.taken = 0;
        self.buffer.resize(self.filled + READ_BYTES, 0);
        &mut self.buffer[self.filled..]
    }

    /// So many bytes of the room were filled; none: the input has ended.
    pub fn filled(&mut self, count: usize) {
        self.filled += count;
        self.is_ended |= count == 0;
    }

    /// The next message that is whole, in [`bytes`](Self::bytes).
    pub fn next(&mut self) -> Result<Option<Range<usize>>, Malformed> {
        let (offset, max) = (self.offset, self.message_max);
        let found = match self.framing {
            Framing::Lines => self.line(),
            Framing::Length => self.prefixed(),
        };
        match found {
            Some((message, _)) if message.len() > max => Err(Malformed::TooLong { offset, max }),
            Some((message, end)) => {
                self.offset += (end - self.taken) as u64;
                self.taken = end;
                Ok(Some(message))
            }
            None if self.filled - self.taken > max.saturating_add(PREFIX_BYTES) => {
                Err(Malformed::TooLong { offset, max })
            }
            None if self.is_ended && self.taken < self.filled => {
                Err(Malformed::CutShort { offset })
            }
            None => Ok(None),
        }
    }

    /// What lies in this range, until the next [`room`](Self::room).
    pub fn bytes(&self, range: &Range<usize>) -> &[u8] {
        &self.buffer[range.clone()]
    }

    /// The next line, and where what is behind it begins.
    fn line(&mut self) -> Option<(Range<usize>, usize)> {
        let from = self.searched.max(self.taken);
        let found = self.buffer[from..self.filled].iter().position(|byte| *byte == LINE_END);
        let Some(found) = found else {
            self.searched = self.filled;
            let is_last = self.is_ended && self.taken < self.filled;
            return is_last.then_some((self.taken..self.filled, self.filled));
        };
        self.searched = from + found + 1;
        Some((self.taken..from + found, from + found + 1))
    }

    fn prefixed(&self) -> Option<(Range<usize>, usize)> {
        let (prefix, _) =
            self.buffer[self.taken..self.filled].split_first_chunk::<PREFIX_BYTES>()?;
        let len = usize::try_from(u32::from_le_bytes(*prefix)).ok()?;
        let start = self.taken + PREFIX_BYTES;
        let end = start.checked_add(len)?;
        // One that is too long is told before all of it is read.
        (end <= self.filled || len > self.message_max).then_some((start..end, end))
    }
}

/// As much is read at a time.
const READ_BYTES: usize = 64 << 10;
const PREFIX_BYTES: usize = 4;
const LINE_END: u8 = b'\n';

#[cfg(test)]
mod tests {
    use super::*;

    /// All messages, with the offset behind each, of input that comes in pieces.
    fn split(
        framing: Framing,
        pieces: &[&[u8]],
        max: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>, Malformed> {
        let mut splitter = Splitter::new(framing, 100, max);
        let mut found = Vec::new();
        for piece in pieces.iter().chain([&&b""[..]]) {
            splitter.room()[..piece.len()].copy_from_slice(piece);
            splitter.filled(piece.len());
            while let Some(range) = splitter.next()? {
                found.push((splitter.bytes(&range).to_vec(), splitter.offset()));
            }
        }
        assert!(splitter.is_ended());
        Ok(found)
    }

    #[test]
    fn lines_come_whole_however_they_are_read() {
        let expected = vec![(b"one".to_vec(), 104), (b"".to_vec(), 105), (b"three".to_vec(), 110)];
        for pieces in [&[&b"one\n\nthree"[..]][..], &[b"o", b"ne", b"\n", b"\nth", b"ree"]] {
            assert_eq!(split(Framing::Lines, pieces, 5), Ok(expected.clone()));
        }
        assert_eq!(split(Framing::Lines, &[b""], 5), Ok(vec![]));
        let error = Malformed::TooLong { offset: 104, max: 4 };
        assert_eq!(split(Framing::Lines, &[b"one\nthree\n"], 4), Err(error));
        assert_eq!(split(Framing::Lines, &[b"one\n0123", b"456789"], 4), Err(error));
    }

    #[test]
    fn prefixed_messages_come_whole_or_not_at_all() {
        let mut bytes = Vec::new();
        for message in [&b"one"[..], b"", b"a\nb"] {
            Framing::Length.write(message, &mut bytes);
        }
        let expected = vec![(b"one".to_vec(), 107), (b"".to_vec(), 111), (b"a\nb".to_vec(), 118)];
        for cut in 1..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(split(Framing::Length, &[first, second], 3), Ok(expected.clone()));
        }
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(split(Framing::Length, &[cut], 3), Err(Malformed::CutShort { offset: 111 }));
        let huge = split(Framing::Length, &[&[255; 4]], 3);
        assert_eq!(huge, Err(Malformed::TooLong { offset: 100, max: 3 }));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let messages = [&b"a"[..], b"", b"bc"];
        for framing in [Framing::Lines, Framing::Length] {
            let mut bytes = Vec::new();
            messages.iter().for_each(|message| framing.write(message, &mut bytes));
            let found = split(framing, &[&bytes], 9).unwrap();
            assert!(found.iter().map(|(message, _)| &message[..]).eq(messages), "{framing:?}");
        }
    }
}
