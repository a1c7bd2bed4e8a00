// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages become records of the open batch (SPEC 14.2).
//!
//! ```text
//!   append         DATA, or BLOB with the bytes in the slab       says how far the other direction was consumed
//!   append_bare    BARE, where it may be; else as `append`        says nothing
//!
//!   each is        place ─▶ append_placed: somebody writes the message there
//!   but mostly     place_short_bare ─▶ append_short_bare: the same, for what is short and BARE
//!
//!   short          put together elsewhere, sealed, written at once
//!   long           written where it is to lie, sealed there
//! ```
//!
//! Whether a message needs to say how far was consumed, its caller knows.
//!
//! # Invariants
//!
//! - A BARE record never begins where the ring does: a first slot is judged by the tag in it (see [`super`]).

use super::{Boundary, Refused, Retained, as_usize};
use partywall_layout::link::LinkPrefix;
use partywall_layout::link::compact;
use partywall_layout::link::record::{self, Ack, BLOB_PAYLOAD_BYTES, LinkBlob, PREFIX_BYTES};
use partywall_layout::record_ring::{self, HEADER_BYTES, Kind, footprint};
use partywall_layout::seeded_fault;
use partywall_reconcile::{AckedOffset, Position, RecordDigest};
use zerocopy::IntoBytes;

impl Retained {
    /// Appends a message, given in parts, to the open batch; where its record ends. `ack` is how far this side has
    /// consumed the other direction as of this message.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn append(
        &mut self,
        parts: &[&[u8]],
        ack: Option<AckedOffset>,
    ) -> Result<Position, Refused> {
        let len = len_of(parts);
        let place = self.place(len, false)?;
        Ok(self.append_placed(place, len, |room| join(parts, room), ack))
    }

    /// As [`append`](Self::append), but without `ack` where that saves its room: for who says it in another place, before.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn append_compact(
        &mut self,
        parts: &[&[u8]],
        ack: Option<AckedOffset>,
    ) -> Result<Position, Refused> {
        let len = len_of(parts);
        let place = self.place(len, true)?;
        Ok(self.append_placed(place, len, |room| join(parts, room), ack))
    }

    /// Appends a short message at a place that [`place_short_compact`](Self::place_short_compact) gave. `fill` writes it, every byte: this is the
    /// way of nearly all messages where two processes are in step.
    #[inline(always)]
    pub fn append_short_compact(
        &mut self,
        begin: record_ring::Position,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Position {
        let gathered = &mut self.gathered.0[..HEADER + len];
        let (header, message) = gathered.split_at_mut(HEADER);
        #[expect(clippy::cast_possible_truncation, reason = "a short message")]
        header.copy_from_slice(&compact::sealed_header(begin, self.tag, len as u32));
        fill(message);
        let crc = compact::crc_of(gathered);
        let message = &gathered[HEADER..];
        self.producer.append_placed(begin, Kind::CompactRecord, crc, message);
        self.appended(begin, len, crc, false)
    }

    /// Appends a message at a place that [`place`](Self::place) gave; `fill` writes it, every byte.
    pub fn append_placed(
        &mut self,
        place: Place,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        ack: Option<AckedOffset>,
    ) -> Position {
        // Whoever waits for a short message looks at its line all the time, and would take it away between two stores.
        match place {
            Place::Ring if len <= SHORT_MAX => self.append_short(len, fill, ack),
            Place::CompactRecord if len <= SHORT_MAX => {
                self.append_short_compact(self.producer.next_position(len), len, fill)
            }
            _ => {
                let mut reservation = Reservation { retained: self, len, place };
                fill(reservation.bytes());
                reservation.commit(ack)
            }
        }
    }

    fn append_short(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        ack: Option<AckedOffset>,
    ) -> Position {
        let payload = PREFIX + len;
        let begin = self.producer.next_position(payload);
        let gathered = &mut self.gathered.0[..payload];
        let (prefix, body) = gathered.split_at_mut(PREFIX);
        fill(body);
        let ack = ack.map_or(Ack::default(), ack_of);
        let sealed = LinkPrefix::sealed(begin, Kind::Data, self.tag, ack, 0, &[body]);
        prefix.copy_from_slice(sealed.as_bytes());
        let appended = self.producer.append(Kind::Data, self.tag, gathered);
        assert!(appended.is_ok(), "there was room when it was reserved");
        self.appended(begin, payload, sealed.crc.get(), false)
    }

    /// The record is in the open batch; where it ends.
    #[inline(always)]
    fn appended(
        &mut self,
        begin: record_ring::Position,
        payload: usize,
        crc: u32,
        is_blob: bool,
    ) -> Position {
        let position = Position(begin.0 + footprint(payload as u64));
        self.boundaries.append(Boundary { position, digest: RecordDigest(crc) }, is_blob);
        position
    }

    /// Room for a message of `len` bytes, to be written in place and then committed to the open batch. If it is
    /// dropped instead, nothing changes.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, Refused> {
        let place = self.place(len, false)?;
        Ok(Reservation { retained: self, len, place })
    }

    /// Where a message goes now, until anything else is done here. `is_said`: how far was consumed is said elsewhere.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    pub fn place(&mut self, len: usize, is_said: bool) -> Result<Place, Refused> {
        let is_inline = len <= self.inline_max;
        if !is_inline && len as u64 > self.blobs.length_max() {
            return Err(Refused::TooLarge { len, max: self.message_max() });
        }
        let place = match (is_inline, is_said) {
            (false, _) => Place::Slab { offset: 0 },
            (true, true) if self.may_be_compact(self.producer.next_position(len)) => {
                Place::CompactRecord
            }
            (true, _) => Place::Ring,
        };
        let payload = place.payload(len);
        let batch = self.producer.open_bytes() + footprint(payload as u64);
        if batch > self.producer.size().batch_max() {
            return Err(Refused::BatchFull);
        }
        if !self.producer.has_room(payload).unwrap_or(false) {
            return Err(Refused::Full);
        }
        if is_inline {
            return Ok(place);
        }
        let offset = self.blobs.place(len as u64).ok_or(Refused::Full)?;
        Ok(Place::Slab { offset })
    }

    /// Where a BARE record of a short message begins now, until anything else is done here. `None`: it is not short, or may not be BARE.
    ///
    /// # Errors
    ///
    /// [`Refused`]; nothing changed.
    #[inline(always)]
    pub fn place_short_compact(
        &mut self,
        len: usize,
    ) -> Result<Option<record_ring::Position>, Refused> {
        if len > SHORT_MAX || len > self.inline_max {
            return Ok(None);
        }
        let (begin, has_room) = self.producer.place(len).map_err(|_| Refused::Full)?;
        if !self.may_be_compact(begin) {
            return Ok(None);
        }
        let batch = self.producer.open_bytes() + footprint(len as u64);
        if batch > self.producer.size().batch_max() {
            return Err(Refused::BatchFull);
        }
        if has_room { Ok(Some(begin)) } else { Err(Refused::Full) }
    }

    /// Whether a record that begins there, perhaps behind a PAD, may be BARE. If not, one with a prefix lies there too: it
    /// is longer.
    #[inline(always)]
    fn may_be_compact(&self, begin: record_ring::Position) -> bool {
        record::may_be_compact(begin, self.producer.size()) || seeded_fault("link_compact_first")
    }
}

/// Room for a message.
#[derive(Debug)]
pub struct Reservation<'a> {
    retained: &'a mut Retained,
    len: usize,
    place: Place,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// With a prefix.
    Ring,
    /// Without.
    CompactRecord,
    /// With a record that says where it lies.
    Slab {
        /// There.
        offset: u64,
    },
}

impl Place {
    /// How long the payload of the record is for a message of `len` bytes.
    #[inline]
    const fn payload(self, len: usize) -> usize {
        match self {
            Self::Ring => as_usize(PREFIX_BYTES) + len,
            Self::CompactRecord => len,
            Self::Slab { .. } => as_usize(BLOB_PAYLOAD_BYTES),
        }
    }
}

impl Reservation<'_> {
    /// Where the message is to be written; holds anything before.
    #[must_use]
    pub fn bytes(&mut self) -> &mut [u8] {
        let payload = self.place.payload(self.len);
        if let Place::Slab { offset } = self.place {
            return self.retained.slab.slice_mut(as_usize(offset), self.len);
        }
        match self.retained.producer.payload_ahead(payload) {
            Ok(bytes) => &mut bytes[payload - self.len..],
            Err(_) => &mut [], // not reached: there was room when it was reserved
        }
    }

    /// Appends the message to the open batch; where its record ends.
    pub fn commit(mut self, ack: Option<AckedOffset>) -> Position {
        if matches!(self.place, Place::CompactRecord) {
            return self.commit_compact();
        }
        let Self { retained, len, place } = self;
        let ack = ack.map_or(Ack::default(), ack_of);
        let (kind, crc, blob) = match place {
            Place::Slab { offset } => {
                let crc = record::blob_crc(retained.slab.slice(as_usize(offset), len));
                let blob = LinkBlob { offset: offset.into(), length: (len as u64).into() };
                (Kind::Blob, crc, Some((offset, blob)))
            }
            _ => (Kind::Data, 0, None),
        };
        let (payload, tag) = (place.payload(len), retained.tag);
        let begin = retained.producer.next_position(payload);
        let mut digest = 0;
        let appended = retained.producer.append_with(kind, tag, payload, |payload| {
            let (prefix, body) = payload.split_at_mut(PREFIX);
            if let Some((_, blob)) = blob {
                body.copy_from_slice(blob.as_bytes());
            }
            let sealed = LinkPrefix::sealed(begin, kind, tag, ack, crc, &[body]);
            prefix.copy_from_slice(sealed.as_bytes());
            digest = sealed.crc.get();
        });
        assert!(appended.is_ok(), "there was room when it was reserved");
        let position = retained.appended(begin, payload, digest, blob.is_some());
        if let Some((offset, _)) = blob {
            let is_put = retained.blobs.put(position, offset, len as u64);
            assert!(is_put, "there was room when it was reserved");
        }
        position
    }

    /// The message lies where it is to be: the header needs its crc.
    fn commit_compact(&mut self) -> Position {
        let begin = self.retained.producer.next_position(self.len);
        let (tag, bytes) = (self.retained.tag, self.bytes());
        let crc = compact::crc(begin, tag, &[bytes]);
        let appended =
            self.retained.producer.append_with(Kind::CompactRecord, crc, self.len, |_| {});
        assert!(appended.is_ok(), "there was room when it was reserved");
        self.retained.appended(begin, self.len, crc, false)
    }
}

/// How long the parts are together.
#[inline(always)]
pub fn len_of(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// Copies the parts one behind the other; the room is as long as all of them.
#[inline(always)]
pub fn join(parts: &[&[u8]], mut room: &mut [u8]) {
    for part in parts {
        let (here, behind) = room.split_at_mut(part.len());
        here.copy_from_slice(part);
        room = behind;
    }
}

fn ack_of(acked_offset: AckedOffset) -> Ack {
    Ack {
        position: acked_offset.position.0,
        digest: acked_offset.digest.0,
        tag: record::tag(acked_offset.stream.0.get()),
    }
}

/// The payload of a record that is put together, or header and payload. It is kept, because making its bytes zero each time takes longer
/// than writing them.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Gathered([u8; GATHERED_BYTES]);

impl Default for Gathered {
    fn default() -> Self {
        Self([0; GATHERED_BYTES])
    }
}

/// Messages up to so many bytes are put together elsewhere.
const SHORT_MAX: usize = 104;
const GATHERED_BYTES: usize = PREFIX + SHORT_MAX;
const PREFIX: usize = as_usize(PREFIX_BYTES);
const HEADER: usize = as_usize(HEADER_BYTES);

const _: () = assert!(HEADER <= PREFIX, "one or the other stands before the message");
