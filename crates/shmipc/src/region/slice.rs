// SPDX-License-Identifier: MIT OR Apache-2.0
//! A slice that this process has allocated, to write a message into.
//!
//! ```text
//!   │◀──────────── capacity ────────────▶│
//!   │◀── len: will be sent ───────▶│     │      dropped: freed · sent: owned by the peer
//! ```

use super::BufferRegion;
use partywall_sys::Piece;
use std::fmt;
use std::sync::Arc;

/// Contiguous shared memory for a message, or for a part of a message. Dropping the value frees the
/// slice.
///
/// The initial content consists of bytes that either process wrote into the slice earlier.
pub struct Slice {
    region: Arc<BufferRegion>,
    list: usize,
    /// This value's claim to the slice: nothing else in this process may use or free the slice.
    /// `None` once the slice is in a message.
    piece: Option<Piece>,
    len: usize,
}

impl Slice {
    pub(super) fn new(region: Arc<BufferRegion>, list: usize, piece: Piece, len: usize) -> Self {
        Self { region, list, piece: Some(piece), len }
    }

    /// Number of bytes of the message, or of its part, in the slice: so many will be sent.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the slice has no bytes that will be sent.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Capacity of the slice in bytes.
    pub fn capacity(&self) -> usize {
        self.region.list(self.list).geometry().capacity as usize
    }

    /// The bytes in the slice that will be sent.
    pub fn as_slice(&self) -> &[u8] {
        let pieces = self.region.list(self.list).pieces();
        self.piece.as_ref().map_or(&[], |piece| pieces.bytes(piece, 0, self.len))
    }

    /// The bytes in the slice that will be sent, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let pieces = self.region.list(self.list).pieces();
        let len = self.len;
        self.piece.as_mut().map_or(&mut [], |piece| &mut pieces.bytes_mut(piece)[..len])
    }

    /// Sets the number of bytes in the slice that will be sent.
    ///
    /// # Panics
    ///
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "a slice of {} bytes cannot send {len}", self.capacity());
        self.len = len;
    }

    /// Shortens the message in the slice to `len` bytes; does nothing if the message is not longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes the slice part of a message in `region`, and links it to the message's next slice, at
    /// offset `next`. Returns the slice's own offset.
    pub(super) fn give_up(mut self, region: &Arc<BufferRegion>, next: Option<u32>) -> u32 {
        assert!(self.region.is_same_as(region), "a slice of another region");
        let list = region.list(self.list);
        // Only this function and `drop`, which runs later, take the field `piece` out of the value.
        // So the field is still `Some`.
        let Some(piece) = self.piece.take() else { return 0 };
        // The length of the slice is at most its capacity, which is a u32. So the conversion does
        // not fail.
        let size = u32::try_from(self.len).unwrap_or(list.geometry().capacity);
        list.write(&piece, size, next);
        let offset = list.offset(&piece);
        list.pieces().release(piece);
        offset
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.region.give(self.list, piece);
        }
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.piece.as_ref().map(Piece::index);
        let mut out = f.debug_struct("Slice");
        out.field("list", &self.list).field("index", &index).field("len", &self.len).finish()
    }
}

impl partywall::protocol::SendBuffer for Slice {
    fn as_slice(&self) -> &[u8] {
        self.as_slice()
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }

    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}
