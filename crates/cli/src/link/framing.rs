// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splitting the bytes of a file or pipe into messages, and writing messages as bytes.
//!
//! ```text
//!   lines    message ⏎ message ⏎ mess…           without ⏎; a last line without ⏎ gets one
//!   length   [4][message][4][message][4][mes…    4 bytes, little-endian: length of the message
//!
//!   buffer   taken │ whole messages │ part of one │ free     offset: end of `taken` in the input
//! ```
//!
//! The buffer has four parts, in this order: messages that were taken, whole messages, a part of
//! the next one, and free space. The code in this file does no I/O. The limit on the length of a
//! message bounds the buffer.

use std::fmt;
use std::ops::Range;

/// How messages are delimited in a stream of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Framing {
    /// One message per line
    Lines,
    /// Before each message its length, as 4 bytes in little-endian order
    Length,
}

impl Framing {
    /// Appends a message to the buffer `into`, with its delimiter.
    pub fn write(self, message: &[u8], into: &mut Vec<u8>) {
        match self {
            Self::Lines => {
                into.extend_from_slice(message);
                into.push(LINE_END);
            }
            Self::Length => {
                // A message fits into the slab of the link's sender, which has at most 1 GiB, so
                // its length fits into 32 bits.
                let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
                into.extend_from_slice(&len.to_le_bytes());
                into.extend_from_slice(message);
            }
        }
    }
}

/// A buffer of input, from which the caller takes messages.
pub struct Splitter {
    framing: Framing,
    buffer: Vec<u8>,
    /// Number of bytes at the start of `buffer` that hold input.
    filled: usize,
    taken: usize,
    /// Offset in the input of the byte at index `taken` of `buffer`.
    offset: u64,
    /// Index in `buffer` up to which a newline was sought: the bytes from index `taken` up to it
    /// have none.
    searched: usize,
    message_max: usize,
    is_ended: bool,
}

/// The reason why bytes of the input are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A message in the input exceeds the longest length that the link accepts.
    TooLong {
        /// Offset in the input of the message's first byte.
        offset: u64,
        /// The length of the longest message that the link accepts, in bytes.
        max: usize,
    },
    /// The input ends in the middle of a message.
    CutShort {
        /// Offset in the input of the message's first byte.
        offset: u64,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { offset, max } => write!(
                f,
                "the message at byte {offset} of the input is longer than the {max} bytes that --slab allows"
            ),
            Self::CutShort { offset } => write!(
                f,
                "the input ends within the message at byte {offset}: it was truncated, or has another --framing"
            ),
        }
    }
}

impl Splitter {
    /// Makes a splitter for input of which the first `offset` bytes were taken before.
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

    /// Offset in the input of the first byte of the next message.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether all of the input has been read into the buffer.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Returns the free space of the buffer, into which the caller reads more input. The call moves
    /// the buffer's content, so the ranges of messages that were taken before are no longer valid.
    pub fn free_space(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.searched = self.searched.saturating_sub(self.taken);
        self.taken = 0;
        self.buffer.resize(self.filled + READ_BYTES, 0);
        &mut self.buffer[self.filled..]
    }

    /// Records that `count` bytes were read into the free space; 0 means that the input has ended.
    pub fn filled(&mut self, count: usize) {
        self.filled += count;
        self.is_ended |= count == 0;
    }

    /// Takes the next whole message; returns the range of its bytes in the buffer, which
    /// [`bytes`](Self::bytes) reads.
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

    /// The bytes of the message at `range` of the buffer, valid until the next
    /// [`free_space`](Self::free_space).
    pub fn bytes(&self, range: &Range<usize>) -> &[u8] {
        &self.buffer[range.clone()]
    }

    /// Finds the next line in the buffer of input that has not been taken. Returns the range of the
    /// line, and the index of the byte after its newline.
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
        // A message that is longer than the link accepts is returned before all its bytes have
        // arrived, so that the caller reports an error at once.
        (end <= self.filled || len > self.message_max).then_some((start..end, end))
    }
}

/// Maximum number of bytes that one read of the input takes; the buffer has at least this much free
/// space before each read.
const READ_BYTES: usize = 64 << 10;
const PREFIX_BYTES: usize = 4;
const LINE_END: u8 = b'\n';

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits input that arrives in pieces; returns all messages, with the offset after each.
    fn split(
        framing: Framing,
        pieces: &[&[u8]],
        max: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>, Malformed> {
        let mut splitter = Splitter::new(framing, 100, max);
        let mut found = Vec::new();
        for piece in pieces.iter().chain([&&b""[..]]) {
            splitter.free_space()[..piece.len()].copy_from_slice(piece);
            splitter.filled(piece.len());
            while let Some(range) = splitter.next()? {
                found.push((splitter.bytes(&range).to_vec(), splitter.offset()));
            }
        }
        assert!(splitter.is_ended());
        Ok(found)
    }

    #[test]
    fn lines_in_any_pieces_are_whole_messages() {
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
    fn prefixed_messages_in_any_pieces_are_whole_or_an_error() {
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
    fn message_written_is_read_again() {
        let messages = [&b"a"[..], b"", b"bc"];
        for framing in [Framing::Lines, Framing::Length] {
            let mut bytes = Vec::new();
            messages.iter().for_each(|message| framing.write(message, &mut bytes));
            let found = split(framing, &[&bytes], 9).unwrap();
            assert!(found.iter().map(|(message, _)| &message[..]).eq(messages), "{framing:?}");
        }
    }
}
