// SPDX-License-Identifier: MIT OR Apache-2.0
//! Freed slices that a session keeps for its next allocation. The slice that was freed last is used
//! first, because the processor has its memory cached.
//!
//! ```text
//!   give ─▶ below the limit? ─ yes ─▶ cache ─▶ take
//!                             └ no ─▶ the list
//! ```
//!
//! The peer cannot allocate cached slices, so the cache keeps only a few. The session frees them
//! when it has no open stream, and at its end.

use partywall_sys::Piece;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct SliceCache {
    lists: Vec<Mutex<Vec<Piece>>>,
    /// Whether the session caches slices at the moment.
    is_keeping: AtomicBool,
}

impl SliceCache {
    /// Creates an empty cache for the slices of this number of lists. It caches no slice before the
    /// first call of [`keep`](Self::keep).
    pub(super) fn new(lists: usize) -> Self {
        let lists = (0..lists).map(|_| Mutex::default()).collect();
        Self { lists, is_keeping: AtomicBool::new(false) }
    }

    /// Sets whether the session caches freed slices from now on.
    pub(super) fn keep(&self, is_keeping: bool) {
        // ORDER: Relaxed: a slice that another thread caches after caching was switched off does no
        // harm, because all cached slices are freed at the session's end.
        self.is_keeping.store(is_keeping, Ordering::Relaxed);
    }

    pub(super) fn is_keeping(&self) -> bool {
        // ORDER: Relaxed: a stale value only lets the session cache one more slice or one less. All
        // cached slices are freed at the session's end.
        self.is_keeping.load(Ordering::Relaxed)
    }

    /// Takes the slice of `list` that was cached last.
    pub(super) fn take(&self, list: usize) -> Option<Piece> {
        if self.is_keeping() { self.pieces(list).pop() } else { None }
    }

    /// Caches `piece` if fewer than `pieces_max` slices of the list are cached; otherwise returns
    /// `piece` to the caller.
    pub(super) fn give(&self, list: usize, piece: Piece, pieces_max: usize) -> Option<Piece> {
        let mut pieces = self.pieces(list);
        if pieces.len() >= pieces_max {
            return Some(piece);
        }
        pieces.push(piece);
        None
    }

    /// Removes the oldest cached slices of a list, until `pieces_max` are left; the caller frees
    /// the removed ones.
    pub(super) fn beyond(&self, list: usize, pieces_max: usize) -> Vec<Piece> {
        let mut pieces = self.pieces(list);
        let excess = pieces.len().saturating_sub(pieces_max);
        pieces.drain(..excess).collect()
    }

    pub(super) fn count(&self, list: usize) -> usize {
        self.pieces(list).len()
    }

    fn pieces(&self, list: usize) -> MutexGuard<'_, Vec<Piece>> {
        self.lists[list].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
