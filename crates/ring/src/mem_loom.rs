// SPDX-License-Identifier: MIT OR Apache-2.0
//! The substitute of `mem.rs` under loom, the model checker: the same types, whose memory is one
//! loom atomic per word.
//!
//! Loom cannot observe mapped bytes. In this file each eight bytes are one atomic word, payload
//! included, and payload words are Relaxed. So a missing Release or fence shows as a stale or torn
//! payload, which the models check for. This file gives no references to bytes, so under loom the
//! ring copies payloads.

use crate::sync::{AtomicU64, Ordering, fence};
use partywall_layout::seeded_fault;
use std::sync::Arc;

/// Under loom: memory that one thread of a model writes, or a part of that memory.
pub struct OwnMem {
    words: Arc<Vec<AtomicU64>>,
    start: usize,
    len: usize,
}

/// Memory of an [`OwnMem`], as another thread of the model reads it.
#[derive(Clone)]
pub struct PeerMem {
    words: Arc<Vec<AtomicU64>>,
    start: usize,
    len: usize,
}

/// `bytes` bytes of zeroed memory, as an [`OwnMem`] for the writer and a [`PeerMem`] for the
/// reader.
#[must_use]
pub fn pair(bytes: usize) -> (OwnMem, PeerMem) {
    let words = Arc::new((0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    (
        OwnMem { words: Arc::clone(&words), start: 0, len: bytes },
        PeerMem { words, start: 0, len: bytes },
    )
}

impl OwnMem {
    /// The length of the modelled memory in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the modelled memory is empty (0 bytes long).
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Splits the modelled memory into the first `middle` bytes and the rest.
    pub fn split_at(self, middle: usize) -> (Self, Self) {
        assert!(middle <= self.len && middle % 64 == 0);
        let rest = Self {
            words: Arc::clone(&self.words),
            start: self.start + middle,
            len: self.len - middle,
        };
        (Self { len: middle, ..self }, rest)
    }

    /// Joins two adjacent parts of the modelled memory: `self`, then `after`.
    pub fn join(self, after: Self) -> Self {
        assert!(
            Arc::ptr_eq(&self.words, &after.words) && self.start + self.len == after.start,
            "only adjacent parts can be joined"
        );
        Self { len: self.len + after.len, ..self }
    }

    /// Loads the word at byte `offset` of the modelled memory, as the writer last stored it.
    pub fn load(&self, offset: usize) -> u64 {
        // ORDER: Relaxed: only the writer's own thread stores the word, so it reads its own last
        // store.
        self.word(offset).load(Ordering::Relaxed)
    }

    /// Stores `value` at byte `offset` of the modelled memory, without ordering other stores.
    pub fn store(&mut self, offset: usize, value: u64) {
        // ORDER: Relaxed: this store orders no other access; a caller whose earlier stores the
        // reader must see first calls `publish`, or fences.
        self.word(offset).store(value, Ordering::Relaxed);
    }

    /// Stores `value` at byte `offset`. A reader that sees the value sees everything stored before
    /// it.
    pub fn publish(&mut self, offset: usize, value: u64) {
        // ORDER: Release pairs with the acquire fence in the reader's `PeerMem::load`: a reader
        // that sees the value sees all earlier stores.
        let is_faulty = seeded_fault("relaxed_publish");
        let order = if is_faulty { Ordering::Relaxed } else { Ordering::Release };
        self.word(offset).store(value, order);
    }

    /// Stores consecutive words from byte `offset` of the modelled memory on, without ordering
    /// other stores.
    pub fn store_all(&mut self, offset: usize, words: impl ExactSizeIterator<Item = u64>) {
        words.enumerate().for_each(|(index, word)| self.store(offset + index * 8, word));
    }

    /// Orders every store before this call before every word stored after it.
    pub fn order_stores(&self) {
        // ORDER: a Release fence before Relaxed stores: no earlier store moves after a later one.
        fence(Ordering::Release);
    }

    /// Does nothing: loom has no caches to prefetch into.
    pub fn prefetch_for_write(&self, _offset: usize) {}

    /// Copies `bytes` into the modelled memory, to byte `offset`. Their number is a multiple of
    /// eight, because loom sees the memory as words.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.store(offset + index * 8, u64::from_le_bytes(word));
        }
    }

    /// Lets `fill` write `len` bytes, which are then copied into the modelled memory, to byte
    /// `offset`.
    pub fn fill(&mut self, offset: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        let mut bytes = vec![0; len];
        fill(&mut bytes);
        self.write(offset, &bytes);
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && offset < self.len);
        &self.words[(self.start + offset) / 8]
    }
}

impl PeerMem {
    /// The length in bytes of the memory that the reader sees.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the memory that the reader sees is empty (0 bytes long).
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the part of the reader's memory that has `len` bytes from `offset` on; `None` if it
    /// exceeds the memory.
    pub fn part(&self, offset: u64, len: u64) -> Option<Self> {
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        if offset > self.len || len > self.len - offset {
            return None;
        }
        Some(Self { words: Arc::clone(&self.words), start: self.start + offset, len })
    }

    /// Loads the word at byte `offset`. After the call, everything written before its publication
    /// is visible.
    pub fn load(&self, offset: usize) -> u64 {
        let value = self.peek(offset);
        // ORDER: an Acquire fence after the Relaxed load pairs with the writer's Release store in
        // `OwnMem::publish`: this reader sees all stores before that one.
        if !seeded_fault("no_acquire_fence") {
            fence(Ordering::Acquire);
        }
        value
    }

    /// Loads the word at byte `offset`, without ordering other loads.
    pub fn peek(&self, offset: usize) -> u64 {
        assert!(offset % 8 == 0 && offset < self.len);
        // ORDER: Relaxed: this load orders no other access; `load` calls it and adds the fence.
        self.words[(self.start + offset) / 8].load(Ordering::Relaxed)
    }

    /// Loads the word at byte `offset` and the word after it.
    pub fn load_two(&self, offset: usize) -> (u64, u64) {
        (self.load(offset), self.peek(offset + 8))
    }

    /// Orders every load before this call before every word loaded after it.
    pub fn order_loads(&self) {
        // ORDER: an Acquire fence after Relaxed loads: no earlier load moves after a later one.
        if !seeded_fault("no_acquire_fence") {
            fence(Ordering::Acquire);
        }
    }

    /// Does nothing: loom has no caches to prefetch into.
    pub fn prefetch(&self, _offset: usize) {}

    /// Copies whole words from byte `offset` on into `into`.
    pub fn copy(&self, offset: usize, into: &mut [u8]) {
        for (index, chunk) in into.chunks_mut(8).enumerate() {
            let word = self.peek(offset + index * 8).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Appends a copy of `len` bytes of the memory from byte `offset` on to the vector `onto`.
    pub fn copy_onto(&self, offset: usize, len: usize, onto: &mut Vec<u8>) {
        let start = onto.len();
        onto.resize(start + len, 0);
        self.copy(offset, &mut onto[start..]);
    }

    /// Appends the two words of `head` and then a copy of `len` bytes of the memory from byte
    /// `offset` on to the vector `onto`.
    pub fn copy_headed_onto(&self, head: [u64; 2], offset: usize, len: usize, onto: &mut Vec<u8>) {
        head.iter().for_each(|word| onto.extend_from_slice(&word.to_le_bytes()));
        self.copy_onto(offset, len, onto);
    }
}

impl core::fmt::Debug for OwnMem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "OwnMem({} bytes)", self.len)
    }
}

impl core::fmt::Debug for PeerMem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PeerMem({} bytes)", self.len)
    }
}
