// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that two processes write: words, loaded and stored atomically, and pieces, claimed one by one.
//!
//! ```text
//!   SharedMap   ┌ words ┬──────── an area of equal pieces ────────┬ words ┐
//!               │ u32   │ head│piece 0 │ head│piece 1 │ head│ …    │ u32   │
//!               └───────┴─────────────────────────────────────────┴───────┘
//!   Pieces      claim(1) ─▶ Piece: &mut [u8] in this process, until it is released
//! ```
//!
//! Our own protocol never needs this (each half has one writer); older protocols do. It knows neither queue nor
//! list, and believes no word: offsets that a word named are checked by the caller, before they are used.
//!
//! # Invariants
//!
//! - The bytes stay mapped as long as the [`SharedMap`] lives, in the process that made it.
//! - Each piece has at most one live [`Piece`] in this process. So two parts of this process never write the same
//!   piece, whatever the other process says about who owns it.
//! - Words are accessed atomically, and never within a claimed piece: whoever cuts an area knows its words.
//! - "Committed bytes do not change": while this process has claimed a piece, the other one leaves it alone. That
//!   is the other one's promise (`Trust::Trusted`); where it is not kept, what is read is some mixture of bytes.

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
/// Every load acquires, every store releases and every change in one step is sequentially consistent: the
/// protocols spoken here were written for x86, where the first two cost nothing.
///
/// # Panics
///
/// Each access panics beyond the end, off its alignment, and in a forked child: offsets are checked before.
pub struct SharedMap {
    // Forgotten before the range is unmapped: fields are dropped in this order.
    guard: OnceLock<Guarded>,
    /// One at a time registers a guard: two for one range would each see the other's faults.
    guarding: Mutex<()>,
    mapping: Mapping,
}

impl SharedMap {
    /// Maps the first `len` bytes of `fd`, which may be closed afterwards.
    ///
    /// # Errors
    ///
    /// What mmap says; `EINVAL` where `len` is 0.
    pub fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<SharedMap> {
        let mapping = Mapping::writable(fd, len)?;
        Ok(SharedMap { guard: OnceLock::new(), guarding: Mutex::new(()), mapping })
    }

    /// From now on this process survives that somebody truncates the file: see [`sigbus`](crate::sigbus). Nothing if
    /// it does already.
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

    /// Whether [`guard`](Self::guard) was asked for, by anybody who has this mapping.
    pub fn is_guarded(&self) -> bool {
        self.guard.get().is_some()
    }

    /// Whether the file was truncated under a guarded mapping, and this process has noticed: the memory is private
    /// now, and zeros.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        self.guard.get().is_some_and(Guarded::is_damaged)
    }

    /// True in a process forked from the one that made this: the memory is not there.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.mapping.is_inherited()
    }

    /// The size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// The word at byte `offset`.
    #[inline]
    pub fn load(&self, offset: usize) -> u32 {
        // ORDER: Acquire pairs with the other process's store of the same word, whichever it is: what it wrote
        // before is visible after.
        self.word(offset).load(Ordering::Acquire)
    }

    /// Stores the word at byte `offset`.
    #[inline]
    pub fn store(&self, offset: usize, value: u32) {
        // ORDER: Release pairs with the Acquire of `load` in the other process: it sees what we wrote before.
        self.word(offset).store(value, Ordering::Release);
    }

    /// Replaces the word at byte `offset` by `new` if it is `current`.
    ///
    /// # Errors
    ///
    /// What it was instead.
    #[inline]
    pub fn exchange(&self, offset: usize, current: u32, new: u32) -> Result<(), u32> {
        // ORDER: SeqCst, as the peers' locked instructions are: what stood before in either process is visible
        // behind it in the other.
        let order = Ordering::SeqCst;
        self.word(offset).compare_exchange(current, new, order, order).map(|_| ())
    }

    /// Replaces the word at byte `offset`; what it was.
    #[inline]
    pub fn swap(&self, offset: usize, new: u32) -> u32 {
        // ORDER: see `exchange`.
        self.word(offset).swap(new, Ordering::SeqCst)
    }

    /// Adds to the word at byte `offset`, wrapping; what it was.
    #[inline]
    pub fn add(&self, offset: usize, addend: u32) -> u32 {
        // ORDER: see `exchange`.
        self.word(offset).fetch_add(addend, Ordering::SeqCst)
    }

    /// The byte at `offset`.
    #[inline]
    pub fn load_byte(&self, offset: usize) -> u8 {
        // ORDER: see `load`.
        self.byte(offset).load(Ordering::Acquire)
    }

    /// Stores the byte at `offset`.
    #[inline]
    pub fn store_byte(&self, offset: usize, value: u8) {
        // ORDER: see `store`.
        self.byte(offset).store(value, Ordering::Release);
    }

    /// Sets bits of the byte at `offset`; what it was.
    #[inline]
    pub fn set_bits(&self, offset: usize, bits: u8) -> u8 {
        // ORDER: see `exchange`.
        self.byte(offset).fetch_or(bits, Ordering::SeqCst)
    }

    /// Copies from `offset` into `into`, byte by byte: for looking, not for messages.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        for (index, byte) in into.iter_mut().enumerate() {
            // ORDER: Relaxed: a look at memory that may be changing promises nothing.
            *byte = self.byte(offset + index).load(Ordering::Relaxed);
        }
    }

    /// Copies `bytes` to `offset`, byte by byte: for first contents and for tests.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        for (index, byte) in bytes.iter().enumerate() {
            // ORDER: Relaxed: whoever is to see it is told by a word that is stored behind.
            self.byte(offset + index).store(*byte, Ordering::Relaxed);
        }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        let all = self.len();
        assert!(offset <= all && len <= all - offset, "beyond the memory");
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        self.check(offset, len);
        let base = NonNull::from(self.mapping.cells()).cast::<u8>();
        // SAFETY: `offset` is within the mapping or just past its end, as checked above.
        unsafe { base.add(offset) }
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0, "words lie at multiples of four bytes");
        let word = self.at(offset, 4);
        // SAFETY: four bytes within the mapping (checked by `at`), which lives as long as the borrow; aligned,
        // because the mapping begins at a page; accessed atomically by all of this process (invariant).
        unsafe { AtomicU32::from_ptr(word.cast::<u32>().as_ptr()) }
    }

    #[inline]
    fn byte(&self, offset: usize) -> &AtomicU8 {
        let byte = self.at(offset, 1);
        // SAFETY: a byte within the mapping (checked by `at`), which lives as long as the borrow, and accessed
        // atomically by all of this process (invariant).
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
    }
}

impl fmt::Debug for SharedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMap").field("len", &self.len()).field("guard", &self.guard).finish()
    }
}

/// Orders every access before it, of this thread, before every access behind it: store, then look whether the other
/// side sleeps.
#[inline]
pub fn full_fence() {
    // ORDER: SeqCst: of two sides that each store and then load what the other stored, at least one sees it.
    fence(Ordering::SeqCst);
}

/// Where the pieces of an area lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Where the first piece begins.
    pub offset: usize,
    /// From one piece to the next.
    pub stride: usize,
    /// How long a piece is; not more than the stride.
    pub size: usize,
    /// How many.
    pub count: usize,
}

/// An area cut into equal pieces, and which of them somebody in this process has.
#[derive(Debug)]
pub struct Pieces {
    map: Arc<SharedMap>,
    area: Area,
    /// Tells the pieces of one area from those of another.
    number: u64,
    claimed: Box<[AtomicBool]>,
}

/// The right to one piece of an area, within this process. It says nothing about the other process.
#[derive(Debug)]
#[must_use = "it stays claimed until it is released"]
pub struct Piece {
    area: u64,
    index: u32,
}

impl Piece {
    /// Which one it is, from 0.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Pieces {
    /// The pieces of `area`; `None` if it is not all there. Areas of one map must not overlap.
    pub fn new(map: Arc<SharedMap>, area: Area) -> Option<Pieces> {
        u32::try_from(area.count).ok()?;
        let last = area.count.checked_sub(1)?;
        let end =
            last.checked_mul(area.stride)?.checked_add(area.offset)?.checked_add(area.size)?;
        if area.size > area.stride || end > map.len() {
            return None;
        }
        let claimed = (0..area.count).map(|_| AtomicBool::new(false)).collect();
        // ORDER: Relaxed: numbers only have to differ.
        let number = NEXT_AREA.fetch_add(1, Ordering::Relaxed);
        Some(Pieces { map, area, number, claimed })
    }

    /// Claims piece `index`; `None` if there is no such piece, or somebody in this process has it.
    #[inline]
    pub fn claim(&self, index: u32) -> Option<Piece> {
        let flag = self.claimed.get(index as usize)?;
        // ORDER: Acquire pairs with the Release in `release`: whoever had it before has done with it.
        let had = flag.swap(true, Ordering::Acquire);
        (!had).then_some(Piece { area: self.number, index })
    }

    /// Gives the right back. Do so before the other process may hand the piece out again.
    #[inline]
    pub fn release(&self, piece: Piece) {
        // ORDER: Release, see `claim`.
        self.flag(&piece).store(false, Ordering::Release);
    }

    /// Whether somebody in this process has piece `index`.
    pub fn is_claimed(&self, index: u32) -> bool {
        // ORDER: Relaxed: it may change at any time.
        self.claimed.get(index as usize).is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// How many pieces this process has.
    pub fn claimed(&self) -> usize {
        // ORDER: Relaxed: a count of what changes meanwhile.
        self.claimed.iter().filter(|flag| flag.load(Ordering::Relaxed)).count()
    }

    /// The piece's bytes `from..from + len`.
    ///
    /// Sound as far as the other process keeps "committed bytes do not change" for as long as the slice lives:
    /// `Trust::Trusted`. For others there is [`copy`](Self::copy).
    ///
    /// # Panics
    ///
    /// If they are not all in it, or it is a piece of another area.
    #[inline]
    pub fn bytes<'a>(&'a self, piece: &'a Piece, from: usize, len: usize) -> &'a [u8] {
        let start = self.start(piece, from, len);
        // SAFETY: within the mapping (`new`, `start`), which lives as long as the borrow; nobody in this process
        // writes it, since `piece` is the only one of its kind and borrowed; that the other process does not is
        // its promise (module invariant), as for the neighbour's half in partywall-ring.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The whole piece, to be written.
    ///
    /// # Panics
    ///
    /// If it is a piece of another area.
    #[inline]
    pub fn bytes_mut<'a>(&'a self, piece: &'a mut Piece) -> &'a mut [u8] {
        let start = self.start(piece, 0, self.area.size);
        // SAFETY: within the mapping (`new`), which lives as long as the borrow; nobody else in this process reads
        // or writes it, since `piece` is the only one of its kind and mutably borrowed; that the other process
        // leaves it alone is its promise (module invariant).
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), self.area.size) }
    }

    /// Copies from the piece's byte `from`; where the other process breaks its promise, some mixture arrives.
    ///
    /// # Panics
    ///
    /// If the bytes are not all in it, or it is a piece of another area.
    #[inline]
    pub fn copy(&self, piece: &Piece, from: usize, into: &mut [u8]) {
        let start = self.start(piece, from, into.len());
        // SAFETY: the source is within the mapping (`new`, `start`), the destination private, so they do not
        // overlap; bytes have no invalid values.
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
