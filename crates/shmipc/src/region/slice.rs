// SPDX-License-Identifier: MIT OR Apache-2.0
//! A slice that this process has taken, to write a message into.
//!
//! ```text
//!   │◀──────────── capacity ────────────▶│
//!   │◀── len: what will be sent ──▶│     │      dropped: back to its list · sent: the other side's
//! ```

use super::BufferRegion;
use partywall_sys::Piece;
use std::fmt;
use std::sync::Arc;

/// Contiguous shared memory for a message, or for a part of one. Dropped, it goes back to its list.
///
/// What it holds at first is whatever was last written there, by either process.
pub struct Slice {
    region: Arc<BufferRegion>,
    list: usize,
    /// Something until it is given up.
    piece: Option<Piece>,
    len: usize,
}

impl Slice {
    pub(super) fn new(region: Arc<BufferRegion>, list: usize, piece: Piece, len: usize) -> Self {
        Self { region, list, piece: Some(piece), len }
    }

    /// How many bytes will be sent.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes it takes.
    pub fn capacity(&self) -> usize {
        self.region.list(self.list).geometry().capacity as usize
    }

    /// The bytes that will be sent.
    pub fn as_slice(&self) -> &[u8] {
        let pieces = self.region.list(self.list).pieces();
        self.piece.as_ref().map_or(&[], |piece| pieces.bytes(piece, 0, self.len))
    }

    /// The bytes that will be sent, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let pieces = self.region.list(self.list).pieces();
        let len = self.len;
        self.piece.as_mut().map_or(&mut [], |piece| &mut pieces.bytes_mut(piece)[..len])
    }

    /// How many bytes will be sent.
    ///
    /// # Panics
    ///
    /// If there is no room for so many.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "a slice of {} bytes cannot send {len}", self.capacity());
        self.len = len;
    }

    /// Shortens it to `len` bytes; nothing if it is as short already.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes it part of a message of `region`, before what begins at `next`; where it begins itself.
    pub(super) fn give_up(mut self, region: &Arc<BufferRegion>, next: Option<u32>) -> u32 {
        assert!(self.region.is_same_as(region), "a slice of another region");
        let list = region.list(self.list);
        // Taken only here and in `drop`, which comes later.
        let Some(piece) = self.piece.take() else { return 0 };
        // Within the capacity, which is a u32.
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
