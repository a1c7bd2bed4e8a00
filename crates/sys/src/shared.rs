// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that two processes write: words, accessed atomically, and pieces. A piece is claimed by
//! the one user in this process that may access it.
//!
//! ```text
//!   SharedMap   ┌ words ┬──────── an area of equal pieces ────────┬ words ┐
//!               │ u32   │ head│piece 0 │ head│piece 1 │ head│ …    │ u32   │
//!               └───────┴─────────────────────────────────────────┴───────┘
//!   Pieces      claim(1) ─▶ Piece: &mut [u8] in this process, until it is released
//! ```
//!
//! Partywall's own protocol never needs such memory (each region has one writer); other protocols
//! do. This file knows neither queues nor lists, and trusts no word: the caller checks an offset
//! that it read from a word before using it.
//!
//! # Invariants
//!
//! - The bytes stay mapped while the [`SharedMap`] lives, in the process that mapped them.
//! - Each piece has at most one live [`Piece`] in this process. So two parts of this process never
//!   write the same piece, whatever the other process claims about its owner.
//! - Words are accessed atomically, and never within a claimed piece: the code that lays out an
//!   area knows its words.
//! - "Committed bytes do not change": the other process does not write a piece that this process
//!   has claimed. That is the other process's promise (`Trust::Trusted`). If it breaks the promise,
//!   a reader gets a mixture of bytes.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::mapping::Mapping;
use crate::sigbus::{Guarded, TableFull};

/// A mapping of memory that another process writes as well.
///
/// Every load is an acquire, every store a release, and every read-modify-write is sequentially
/// consistent. The protocols that use this memory were written for x86, where acquire and release
/// are free.
///
/// # Panics
///
/// Each access panics beyond the end, at an unaligned offset, and in a forked child: the caller
/// checks offsets first.
pub struct SharedMap {
    // Fields are dropped in the order of their declaration: `guard`, by which this process survives
    // a truncation of the file, is unregistered before the range is unmapped.
    guard: OnceLock<Guarded>,
    /// Serialises the registration of the SIGBUS guard: two guards for one range would each see the
    /// other's faults.
    guarding: Mutex<()>,
    mapping: Mapping,
}

impl SharedMap {
    /// Maps the first `len` bytes of `fd`, which the caller may close after the call.
    ///
    /// # Errors
    ///
    /// The error of mmap; `EINVAL` if `len` is 0.
    pub fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<SharedMap> {
        let mapping = Mapping::writable(fd, len)?;
        Ok(SharedMap { guard: OnceLock::new(), guarding: Mutex::new(()), mapping })
    }

    /// Makes this process survive the truncation of the mapped file: see [`sigbus`](crate::sigbus).
    /// The call does nothing if the mapping is guarded already.
    ///
    /// # Errors
    ///
    /// [`TableFull`] if too many mappings are guarded already.
    pub fn guard(&self) -> Result<(), TableFull> {
        let _one = self.guarding.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_guarded() {
            let start = self.mapping.cells().as_ptr().expose_provenance();
            let _ = self.guard.set(Guarded::register(start, self.len())?);
        }
        Ok(())
    }

    /// Whether any holder of this mapping has called [`guard`](Self::guard).
    pub fn is_guarded(&self) -> bool {
        self.guard.get().is_some()
    }

    /// Whether this process has noticed that the file of a guarded mapping was truncated. Private
    /// memory, filled with zeros, has then replaced the mapping.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        self.guard.get().is_some_and(Guarded::is_damaged)
    }

    /// Whether the calling process was forked from the process that mapped the memory: in such a
    /// child the memory is not mapped.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.mapping.is_inherited()
    }

    /// The size of the mapping in bytes.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Loads the word at byte `offset` of the mapping.
    #[inline]
    pub fn load(&self, offset: usize) -> u32 {
        // ORDER: Acquire pairs with the other process's store of the same word: the other process's
        // earlier writes are visible after this load.
        self.word(offset).load(Ordering::Acquire)
    }

    /// Stores the word at byte `offset` of the mapping.
    #[inline]
    pub fn store(&self, offset: usize, value: u32) {
        // ORDER: Release pairs with the Acquire by which the other process loads this word: a
        // process that sees the word sees the earlier writes of this process.
        self.word(offset).store(value, Ordering::Release);
    }

    /// Replaces the word at byte `offset` by `new` if the word is `current`.
    ///
    /// # Errors
    ///
    /// The actual value of the word.
    #[inline]
    pub fn exchange(&self, offset: usize, current: u32, new: u32) -> Result<(), u32> {
        // ORDER: SeqCst, like the locked instructions by which the other process changes the same
        // word: the second process to change it sees everything that the first did before that.
        let order = Ordering::SeqCst;
        self.word(offset).compare_exchange(current, new, order, order).map(|_| ())
    }

    /// Replaces the word at byte `offset` by `new` and returns the word's old value.
    #[inline]
    pub fn swap(&self, offset: usize, new: u32) -> u32 {
        // ORDER: SeqCst, like the locked instructions by which the other process changes the same
        // word: the second process to change it sees everything that the first did before that.
        self.word(offset).swap(new, Ordering::SeqCst)
    }

    /// Adds `addend` to the word at byte `offset`, wrapping, and returns the word's old value.
    #[inline]
    pub fn add(&self, offset: usize, addend: u32) -> u32 {
        // ORDER: SeqCst, like the locked instructions by which the other process changes the same
        // word: the second process to change it sees everything that the first did before that.
        self.word(offset).fetch_add(addend, Ordering::SeqCst)
    }

    /// Loads the byte at `offset` in the mapping.
    #[inline]
    pub fn load_byte(&self, offset: usize) -> u8 {
        // ORDER: Acquire pairs with the other process's store of the same byte: the other process's
        // earlier writes are visible after this load.
        self.byte(offset).load(Ordering::Acquire)
    }

    /// Stores the byte at `offset` in the mapping.
    #[inline]
    pub fn store_byte(&self, offset: usize, value: u8) {
        // ORDER: Release pairs with the Acquire by which the other process loads this byte: a
        // process that sees the byte sees the earlier writes of this process.
        self.byte(offset).store(value, Ordering::Release);
    }

    /// Sets the bits `bits` of the byte at `offset` and returns the byte's old value.
    #[inline]
    pub fn set_bits(&self, offset: usize, bits: u8) -> u8 {
        // ORDER: SeqCst, like the locked instructions by which the other process changes the same
        // byte: the second process to change it sees everything that the first did before that.
        self.byte(offset).fetch_or(bits, Ordering::SeqCst)
    }

    /// Copies the bytes from `offset` on into `into`, byte by byte. The method serves diagnostics,
    /// not messages.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        for (index, byte) in into.iter_mut().enumerate() {
            // ORDER: Relaxed: the copy serves diagnostics and promises nothing about memory that
            // changes meanwhile.
            *byte = self.byte(offset + index).load(Ordering::Relaxed);
        }
    }

    /// Copies `bytes` into the mapping at `offset`, byte by byte. The method serves initialisation
    /// and tests.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        for (index, byte) in bytes.iter().enumerate() {
            // ORDER: Relaxed: the other process reads these bytes only after it has seen a word
            // that the caller stores later, with Release.
            self.byte(offset + index).store(*byte, Ordering::Relaxed);
        }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        let all = self.len();
        assert!(offset <= all && len <= all - offset, "offset beyond the mapping");
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        self.check(offset, len);
        let base = NonNull::from(self.mapping.cells()).cast::<u8>();
        // SAFETY: `offset` is within the mapping or just past its end, as this function checks.
        unsafe { base.add(offset) }
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0, "the offset of a word is not a multiple of four");
        let word = self.at(offset, 4);
        // SAFETY: `at` has checked that the four bytes of the word are within the mapping, which
        // lives as long as the borrow. The address is aligned, because the mapping begins at a page
        // and this function checks the offset. All code of this process accesses words only
        // atomically.
        unsafe { AtomicU32::from_ptr(word.cast::<u32>().as_ptr()) }
    }

    #[inline]
    fn byte(&self, offset: usize) -> &AtomicU8 {
        let byte = self.at(offset, 1);
        // SAFETY: `at` has checked that the byte is within the mapping, which lives as long as the
        // borrow. All code of this process accesses such bytes only atomically.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
    }
}

impl fmt::Debug for SharedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMap").field("len", &self.len()).field("guard", &self.guard).finish()
    }
}

/// Orders every earlier access of this thread before every later one. A caller needs the fence
/// between storing a word and checking whether the peer sleeps.
#[inline]
pub fn full_fence() {
    // ORDER: SeqCst: of two processes that each store and then load the other's word, at least one
    // sees the other's store.
    fence(Ordering::SeqCst);
}

/// The place of an area of pieces in a mapping, and the size of the pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Offset of the first piece in the mapping, in bytes.
    pub offset: usize,
    /// Distance from the start of one piece to the start of the next piece, in bytes.
    pub stride: usize,
    /// Size of a piece in bytes; at most the stride.
    pub size: usize,
    /// Number of pieces in the area.
    pub count: usize,
}

/// An area that is divided into equal pieces. The value knows which pieces are claimed, that is,
/// used by some code of this process alone.
#[derive(Debug)]
pub struct Pieces {
    map: Arc<SharedMap>,
    area: Area,
    /// Number of this area, unique in the process. It distinguishes the pieces of this area from
    /// those of other areas.
    number: u64,
    claimed: Box<[AtomicBool]>,
}

/// One piece of an area, claimed for one user within this process. No other code of this process
/// may use the piece until it is released. The other process does not know of the claim; only its
/// own rules keep it from the piece.
#[derive(Debug)]
#[must_use = "it stays claimed until it is released"]
pub struct Piece {
    area: u64,
    index: u32,
}

impl Piece {
    /// The index of this piece in its area, from 0.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Pieces {
    /// Divides `area` of the mapping into pieces; `None` if the mapping does not contain all of
    /// them. The areas of one mapping must not overlap.
    pub fn new(map: Arc<SharedMap>, area: Area) -> Option<Pieces> {
        u32::try_from(area.count).ok()?;
        let last = area.count.checked_sub(1)?;
        let end =
            last.checked_mul(area.stride)?.checked_add(area.offset)?.checked_add(area.size)?;
        if area.size > area.stride || end > map.len() {
            return None;
        }
        let claimed = (0..area.count).map(|_| AtomicBool::new(false)).collect();
        // ORDER: Relaxed: the counter guards no other memory; it only has to give each area a
        // number that no other area has.
        let number = NEXT_AREA.fetch_add(1, Ordering::Relaxed);
        Some(Pieces { map, area, number, claimed })
    }

    /// Claims piece `index` of this area of the mapping: until the piece is released, no other
    /// caller in this process gets it. `None` if the piece does not exist, or is claimed at
    /// present.
    #[inline]
    pub fn claim(&self, index: u32) -> Option<Piece> {
        let flag = self.claimed.get(index as usize)?;
        // ORDER: Acquire pairs with the Release by which a thread releases its claim to the piece:
        // this thread sees everything that the piece's previous holder did with it.
        let had = flag.swap(true, Ordering::Acquire);
        (!had).then_some(Piece { area: self.number, index })
    }

    /// Releases the caller's claim to `piece`. The caller does so before the other process may hand
    /// out the piece again.
    #[inline]
    pub fn release(&self, piece: Piece) {
        // ORDER: Release pairs with the Acquire by which a thread claims the piece: the piece's
        // next holder sees everything that this thread did with it.
        self.flag(&piece).store(false, Ordering::Release);
    }

    /// Whether a caller in this process has claimed piece `index`.
    pub fn is_claimed(&self, index: u32) -> bool {
        // ORDER: Relaxed: another thread may claim or release this piece of the mapping at any
        // time, so no order could make the answer last.
        self.claimed.get(index as usize).is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Number of pieces of the area that callers in this process have claimed.
    pub fn claimed(&self) -> usize {
        // ORDER: Relaxed: other threads may claim or release pieces of the mapping during the call,
        // so no order could make the count exact.
        self.claimed.iter().filter(|flag| flag.load(Ordering::Relaxed)).count()
    }

    /// The bytes `from..from + len` of the piece, in place.
    ///
    /// The slice is sound while the other process keeps the promise "committed bytes do not
    /// change", which `Trust::Trusted` assumes. For untrusted peers there is [`copy`](Self::copy).
    ///
    /// # Panics
    ///
    /// If the bytes are not all within the piece, or the piece belongs to another area.
    #[inline]
    pub fn bytes<'a>(&'a self, piece: &'a Piece, from: usize, len: usize) -> &'a [u8] {
        let start = self.start(piece, from, len);
        // SAFETY: `Pieces::new` and `start` have checked that the bytes are within the mapping,
        // which lives as long as the borrow. No code of this process writes the piece, because
        // `piece` is its only claim and is borrowed. The other process promises not to write a
        // claimed piece.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The bytes of the whole piece, for writing in place.
    ///
    /// # Panics
    ///
    /// If the piece belongs to another area.
    #[inline]
    pub fn bytes_mut<'a>(&'a self, piece: &'a mut Piece) -> &'a mut [u8] {
        let start = self.start(piece, 0, self.area.size);
        // SAFETY: `Pieces::new` has checked that the piece is within the mapping, which lives as
        // long as the borrow. No other code of this process accesses the piece, because `piece` is
        // its only claim and is mutably borrowed. The other process promises not to access a
        // claimed piece.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), self.area.size) }
    }

    /// Copies the bytes of the piece from `from` on into `into`. If the other process writes the
    /// piece meanwhile, the copy is a mixture.
    ///
    /// # Panics
    ///
    /// If the bytes are not all within the piece, or the piece belongs to another area.
    #[inline]
    pub fn copy(&self, piece: &Piece, from: usize, into: &mut [u8]) {
        let start = self.start(piece, from, into.len());
        // SAFETY: `Pieces::new` and `start` have checked that the source is within the mapping. The
        // destination is private memory, so the two do not overlap. Bytes have no invalid values.
        unsafe { start.as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    #[inline]
    fn start(&self, piece: &Piece, from: usize, len: usize) -> NonNull<u8> {
        assert!(piece.area == self.number, "a piece of another area");
        assert!(from <= self.area.size && len <= self.area.size - from, "beyond the piece");
        self.map.at(self.area.offset + piece.index as usize * self.area.stride + from, len)
    }

    #[inline]
    fn flag(&self, piece: &Piece) -> &AtomicBool {
        assert!(piece.area == self.number, "a piece of another area");
        &self.claimed[piece.index as usize]
    }
}

static NEXT_AREA: AtomicU64 = AtomicU64::new(0);
