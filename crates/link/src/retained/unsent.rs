// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a stream for a socket: from any boundary, straight out of ring and slab, stopping anywhere.
//!
//! ```text
//!   ring     │header│prefix, message│unused│header│prefix, blob│unused│PAD header│ · · ·
//!   socket   │header│prefix, message│header│prefix, blob│ bytes from the slab │PAD header│      a BARE record has no prefix
//!                      ▲
//!   Unsent { next ─────┘ this record, sent: so many of its bytes }
//! ```
//!
//! A cursor is a place and holds nothing: it stays right while messages are appended, and is told if its record was
//! given up. Nothing here knows of a socket.

use super::{Retained, as_usize, at};
use partywall_layout::RecordHeader;
use partywall_layout::link::LinkBlob;
use partywall_layout::link::record::{PREFIX_BYTES, wire_bytes};
use partywall_layout::record_ring::{HEADER_BYTES, Kind};
use partywall_reconcile::Position;
use std::fmt;
use std::io::IoSlice;
use zerocopy::FromBytes;

/// What of a stream was not yet sent on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    next: Position,
    /// Bytes of the record at `next`, and of its BLOB, that went already.
    sent: u64,
}

impl Unsent {
    /// The record that is the next to be sent, or half sent.
    #[must_use]
    pub const fn next(&self) -> Position {
        self.next
    }

    /// Whether nothing of that record went yet.
    #[must_use]
    pub const fn is_at_start(&self) -> bool {
        self.sent == 0
    }
}

/// Why a cursor can go no further: the connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Its record was given up: the neighbour has acknowledged what it was not sent.
    Passed,
    /// What lies there is no record any more.
    Damaged(Position),
    /// It was moved beyond what was to be sent.
    Beyond,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("the neighbour acknowledged what it was not sent"),
            Self::Damaged(position) => {
                write!(f, "the stream is damaged at position {}", position.0)
            }
            Self::Beyond => f.write_str("more was counted as sent than there is"),
        }
    }
}

impl std::error::Error for Stuck {}

/// A record as it goes over a socket: its own bytes, and those of its BLOB.
struct Pieces<'a> {
    header: RecordHeader,
    parts: [&'a [u8]; 2],
}

impl Retained {
    /// A cursor at `from`; `None` unless that is the base, the tail, or the end of a record between them.
    #[must_use]
    pub fn unsent(&self, from: Position) -> Option<Unsent> {
        self.digest_at(from).map(|_| Unsent { next: from, sent: 0 })
    }

    /// Puts the next bytes to be sent into `slices`, at most `bytes_max` of them; how many slices there are. 0 if all
    /// that is published was sent.
    ///
    /// # Errors
    ///
    /// [`Stuck`]: the connection is over.
    pub fn slices<'a>(
        &'a self,
        from: &Unsent,
        bytes_max: usize,
        slices: &mut [IoSlice<'a>],
    ) -> Result<usize, Stuck> {
        self.check_kept(from)?;
        let (mut count, mut room) = (0, bytes_max);
        let (mut next, mut skip) = (from.next, as_usize(from.sent));
        while next < self.tail() && room > 0 && count < slices.len() {
            let Pieces { header, parts } = self.pieces(next)?;
            for part in parts {
                let part = &part[skip.min(part.len())..];
                skip = skip.saturating_sub(parts[0].len());
                let part = &part[..part.len().min(room)];
                if let (false, Some(slot)) = (part.is_empty(), slices.get_mut(count)) {
                    *slot = IoSlice::new(part);
                    count += 1;
                    room -= part.len();
                }
            }
            skip = 0;
            next = Position(next.0 + header.footprint());
        }
        Ok(count)
    }

    /// Moves a cursor on by `bytes` that were sent.
    ///
    /// # Errors
    ///
    /// [`Stuck`]: the connection is over.
    pub fn advance(&self, cursor: &mut Unsent, bytes: usize) -> Result<(), Stuck> {
        self.check_kept(cursor)?;
        let mut sent = cursor.sent.checked_add(bytes as u64).ok_or(Stuck::Beyond)?;
        let mut next = cursor.next;
        while next < self.tail() {
            let Pieces { header, parts } = self.pieces(next)?;
            let whole = parts.iter().map(|part| part.len() as u64).sum();
            if sent < whole {
                break;
            }
            sent -= whole;
            next = Position(next.0 + header.footprint());
        }
        if next >= self.tail() && sent > 0 {
            return Err(Stuck::Beyond);
        }
        *cursor = Unsent { next, sent };
        Ok(())
    }

    fn check_kept(&self, cursor: &Unsent) -> Result<(), Stuck> {
        if cursor.next < self.base() { Err(Stuck::Passed) } else { Ok(()) }
    }

    fn pieces(&self, position: Position) -> Result<Pieces<'_>, Stuck> {
        let damaged = Stuck::Damaged(position);
        let (header, bytes) = self.producer.retained(at(position)).ok_or(damaged)?;
        let own = &bytes[..as_usize(wire_bytes(&header)).min(bytes.len())];
        if header.kind != Kind::Blob {
            return Ok(Pieces { header, parts: [own, &[]] });
        }
        let body = own.get(as_usize(HEADER_BYTES + PREFIX_BYTES)..).unwrap_or(&[]);
        let blob = LinkBlob::read_from_bytes(body).map_err(|_| damaged)?;
        let end = blob.offset.get().checked_add(blob.length.get());
        if end.is_none_or(|end| end > self.slab.len() as u64) {
            return Err(damaged);
        }
        let bytes = self.slab.slice(as_usize(blob.offset.get()), as_usize(blob.length.get()));
        Ok(Pieces { header, parts: [own, bytes] })
    }
}
