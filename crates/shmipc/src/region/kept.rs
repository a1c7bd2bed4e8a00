// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slices that came back and lie ready for the next who takes: the last one first, because it is in the cache still.
//!
//! ```text
//!   give ─▶ is there a place? ─▶ kept ─▶ take
//!                          └ no ─▶ the list
//! ```
//!
//! The other side cannot take them meanwhile, so they are few, and given back when the session ends.

use partywall_sys::Piece;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What one user keeps, list by list.
#[derive(Debug)]
pub(super) struct Kept {
    lists: Vec<OfList>,
}

#[derive(Debug, Default)]
struct OfList {
    pieces: Mutex<Vec<Piece>>,
    pieces_max: AtomicUsize,
}

impl Kept {
    /// Of so many lists; nothing is kept before [`keep`](Self::keep) says so.
    pub(super) fn new(lists: usize) -> Self {
        Self { lists: (0..lists).map(|_| OfList::default()).collect() }
    }

    /// How many slices of a list may be kept from now on.
    pub(super) fn keep(&self, list: usize, pieces_max: usize) {
        // ORDER: Relaxed: one slice more or less does not matter; they are given back in the end.
        self.lists[list].pieces_max.store(pieces_max, Ordering::Relaxed);
    }

    /// The slice that was kept last.
    pub(super) fn take(&self, list: usize) -> Option<Piece> {
        // ORDER: Relaxed: see `keep`.
        if self.lists[list].pieces_max.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.pieces(list).pop()
    }

    /// Keeps a slice if there is a place for it; else it is the caller's again.
    pub(super) fn give(&self, list: usize, piece: Piece) -> Option<Piece> {
        // ORDER: Relaxed: see `keep`.
        let pieces_max = self.lists[list].pieces_max.load(Ordering::Relaxed);
        if pieces_max == 0 {
            return Some(piece);
        }
        let mut pieces = self.pieces(list);
        if pieces.len() >= pieces_max {
            return Some(piece);
        }
        pieces.push(piece);
        None
    }

    /// Everything that is kept of a list; the user gives it back.
    pub(super) fn all(&self, list: usize) -> Vec<Piece> {
        std::mem::take(&mut *self.pieces(list))
    }

    /// How many slices of a list are kept.
    pub(super) fn count(&self, list: usize) -> usize {
        self.pieces(list).len()
    }

    fn pieces(&self, list: usize) -> MutexGuard<'_, Vec<Piece>> {
        self.lists[list].pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
