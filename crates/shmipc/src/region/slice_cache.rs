// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slices that came back and lie ready for the next who takes: the last one first, because it is in the cache still.
//!
//! ```text
//!   give ─▶ is there a place? ─▶ kept ─▶ take
//!                          └ no ─▶ the list
//! ```
//!
//! The other side cannot take them meanwhile, so they are few, and given back when no stream is open, and at the end.

use partywall_sys::Piece;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What one user keeps, list by list.
#[derive(Debug)]
pub(super) struct SliceCache {
    lists: Vec<Mutex<Vec<Piece>>>,
    /// Whether anything is kept at all.
    is_keeping: AtomicBool,
}

impl SliceCache {
    /// Of so many lists; nothing is kept before [`keep`](Self::keep) says so.
    pub(super) fn new(lists: usize) -> Self {
        let lists = (0..lists).map(|_| Mutex::default()).collect();
        Self { lists, is_keeping: AtomicBool::new(false) }
    }

    /// Whether slices are kept from now on.
    pub(super) fn keep(&self, is_keeping: bool) {
        // ORDER: Relaxed: one slice more or less does not matter; they are given back in the end.
        self.is_keeping.store(is_keeping, Ordering::Relaxed);
    }

    /// Whether slices are kept.
    pub(super) fn is_keeping(&self) -> bool {
        // ORDER: Relaxed: see `keep`.
        self.is_keeping.load(Ordering::Relaxed)
    }

    /// The slice that was kept last.
    pub(super) fn take(&self, list: usize) -> Option<Piece> {
        if self.is_keeping() { self.pieces(list).pop() } else { None }
    }

    /// Keeps a slice if fewer than so many are; else it is the caller's again.
    pub(super) fn give(&self, list: usize, piece: Piece, pieces_max: usize) -> Option<Piece> {
        let mut pieces = self.pieces(list);
        if pieces.len() >= pieces_max {
            return Some(piece);
        }
        pieces.push(piece);
        None
    }

    /// What is kept of a list beyond so many, the first ones; the user gives it back.
    pub(super) fn beyond(&self, list: usize, pieces_max: usize) -> Vec<Piece> {
        let mut pieces = self.pieces(list);
        let excess = pieces.len().saturating_sub(pieces_max);
        pieces.drain(..excess).collect()
    }

    /// How many slices of a list are kept.
    pub(super) fn count(&self, list: usize) -> usize {
        self.pieces(list).len()
    }

    fn pieces(&self, list: usize) -> MutexGuard<'_, Vec<Piece>> {
        self.lists[list].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
