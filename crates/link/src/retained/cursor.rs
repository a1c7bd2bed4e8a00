// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cursor: the place in a link's outgoing stream from which a socket sends next. Sending may
//! start where any record begins and stop at any byte, and reads straight from ring and slab.
//!
//! ```text
//!   ring     │header│prefix, message│unused│header│prefix, blob│unused│PAD header│ · · ·
//!   socket   │header│prefix, message│header│prefix, blob│ bytes of the slab │PAD header│
//!                      ▲              (a compact record has no prefix)
//!   SendCursor { next: this record, sent: the number of its bytes that were sent }
//! ```
//!
//! A cursor borrows nothing from the stream. The cursor stays valid while messages are appended,
//! and its methods fail once its record was freed.

use super::{Retained, as_usize, at};
use partywall_layout::RecordHeader;
use partywall_layout::link::LinkBlob;
use partywall_layout::link::record::{PREFIX_BYTES, wire_bytes};
use partywall_layout::record_ring::{HEADER_BYTES, Kind};
use partywall_reconcile::Position;
use std::fmt;
use std::io::IoSlice;
use zerocopy::FromBytes;

/// The place in the outgoing stream from which one connection sends next: a record, and the number
/// of its bytes already sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendCursor {
    next: Position,
    /// Number of bytes already sent: of the record at `next`, and of its message in the slab, if it
    /// is a BLOB.
    sent: u64,
}

impl SendCursor {
    pub(super) const fn new(next: Position) -> Self {
        Self { next, sent: 0 }
    }

    /// The position of the record that is sent next, or was sent in part.
    #[must_use]
    pub const fn next(&self) -> Position {
        self.next
    }

    /// Whether no byte of the record at [`next`](Self::next) was sent yet.
    #[must_use]
    pub const fn is_at_start(&self) -> bool {
        self.sent == 0
    }

    /// Points `slices`, the entries of one vectored write, to the next bytes to send, at most
    /// `bytes_max`; returns the number of entries used.
    ///
    /// The number is 0 once all published records were sent.
    ///
    /// # Errors
    ///
    /// [`Stuck`] if the cursor cannot advance; the caller must close the connection.
    pub fn slices<'a>(
        &self,
        retained: &'a Retained,
        bytes_max: usize,
        slices: &mut [IoSlice<'a>],
    ) -> Result<usize, Stuck> {
        self.check_kept(retained)?;
        let (mut count, mut room) = (0, bytes_max);
        let (mut next, mut skip) = (self.next, as_usize(self.sent));
        while next < retained.tail() && room > 0 && count < slices.len() {
            let Pieces { header, parts } = Pieces::at(retained, next)?;
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

    /// Advances the cursor by `bytes`, which the socket has sent.
    ///
    /// # Errors
    ///
    /// [`Stuck`] if the cursor cannot advance; the caller must close the connection.
    pub fn advance(&mut self, retained: &Retained, bytes: usize) -> Result<(), Stuck> {
        self.check_kept(retained)?;
        let mut sent = self.sent.checked_add(bytes as u64).ok_or(Stuck::Beyond)?;
        let mut next = self.next;
        while next < retained.tail() {
            let Pieces { header, parts } = Pieces::at(retained, next)?;
            let whole = parts.iter().map(|part| part.len() as u64).sum();
            if sent < whole {
                break;
            }
            sent -= whole;
            next = Position(next.0 + header.footprint());
        }
        if next >= retained.tail() && sent > 0 {
            return Err(Stuck::Beyond);
        }
        *self = Self { next, sent };
        Ok(())
    }

    fn check_kept(&self, retained: &Retained) -> Result<(), Stuck> {
        if self.next < retained.base() { Err(Stuck::Passed) } else { Ok(()) }
    }
}

/// Reason why a cursor cannot advance, so that the connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// The cursor's record was freed: the peer acknowledged a record that was not completely sent.
    Passed,
    /// The record at the position in the field is invalid, because the sender's memory was damaged.
    Damaged(Position),
    /// The caller reported more bytes as sent than the stream has after the cursor.
    Beyond,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("the peer acknowledged a record that it was not sent"),
            Self::Damaged(position) => {
                write!(f, "the stream is damaged at position {}", position.0)
            }
            Self::Beyond => f.write_str("more bytes were counted as sent than there are"),
        }
    }
}

impl std::error::Error for Stuck {}

/// The bytes of one record, as a socket carries them: first the bytes in the ring, then, if its
/// message is in the slab (a BLOB), the bytes of that message.
struct Pieces<'a> {
    header: RecordHeader,
    parts: [&'a [u8]; 2],
}

impl<'a> Pieces<'a> {
    fn at(retained: &'a Retained, position: Position) -> Result<Self, Stuck> {
        let damaged = Stuck::Damaged(position);
        let (header, bytes) = retained.producer.retained(at(position)).ok_or(damaged)?;
        let own = &bytes[..as_usize(wire_bytes(&header)).min(bytes.len())];
        if header.kind != Kind::Blob {
            return Ok(Self { header, parts: [own, &[]] });
        }
        let body = own.get(as_usize(HEADER_BYTES + PREFIX_BYTES)..).unwrap_or(&[]);
        let blob = LinkBlob::read_from_bytes(body).map_err(|_| damaged)?;
        let end = blob.offset.get().checked_add(blob.length.get());
        if end.is_none_or(|end| end > retained.slab.len() as u64) {
            return Err(damaged);
        }
        let bytes = retained.slab.slice(as_usize(blob.offset.get()), as_usize(blob.length.get()));
        Ok(Self { header, parts: [own, bytes] })
    }
}
