// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory as values: `OwnMem`, which only this process writes, and `PeerMem`, which this
//! process only reads.
//!
//! ```text
//!   own region                                     peer's region
//!   ┌──────── OwnMem ────────┐                     ┌─────── PeerMem ───────┐
//!   │ split_at → two OwnMem  │ one owner per byte  │ clone, part           │ any number of
//!   │ join     → one OwnMem  │                     │ load, copy, slice     │ readers
//!   └────────────────────────┘                     └───────────────────────┘
//! ```
//!
//! [`OwnMem`] is owned like any value: a split gives two that cannot overlap, a join needs two that
//! are adjacent. So no part of this crate can write memory that another part owns, and the slab's
//! free list *is* the list of free memory. Every holder of a [`PeerMem`] may read it.
//!
//! This is the crate's only file with `unsafe`. The file knows nothing of records. Invariants:
//!
//! 1. every byte of an own region belongs to exactly one live [`OwnMem`];
//! 2. the pages stay mapped as long as any [`OwnMem`] or [`PeerMem`] of them lives;
//! 3. words are loaded and stored atomically, so a hostile peer can make this process read wrong
//!    words, but no torn ones.
//!
//! Under loom, `mem_loom.rs` takes this file's place, with the same methods.

use crate::sync::{AtomicU64, Ordering, fence};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;
use partywall_layout::seeded_fault;

/// Memory that this process alone writes, for as long as the value lives.
///
/// The code that maps the memory implements this trait. The peer may read the bytes at any time.
pub trait Writable: Send + Sync + 'static {
    /// Returns the whole memory. Its start and length must be multiples of 64 bytes.
    fn as_mut_slice(&mut self) -> &mut [u8];
}

/// Memory that another process writes, mapped for as long as the value lives. The code that maps
/// the memory implements this trait.
pub trait Readable: Send + Sync + 'static {
    /// Returns the whole memory. Its start must be aligned to 64 bytes.
    fn cells(&self) -> &[UnsafeCell<u8>];
}

/// Keeps the pages of an [`OwnMem`] mapped as long as any part of that memory lives.
struct Keep {
    memory: Box<dyn Writable>,
}

/// A part of this process's own region, or of one of its own segments, which only this process
/// writes.
pub struct OwnMem {
    base: NonNull<u8>,
    len: usize,
    keep: Arc<Keep>,
    owns: PhantomData<UnsafeCell<u8>>,
}

// SAFETY: invariant 1 of this module (each byte of an own region belongs to one `OwnMem`) makes an
// `OwnMem` the one owner of its bytes in this process, like a `Box<[u8]>`: a writer has `&mut`, and
// a holder of `&` only reads.
unsafe impl Send for OwnMem {}
// SAFETY: threads that share `&OwnMem` only read, because all writes need `&mut`; and no other
// `OwnMem` has the same bytes (invariant 1 of this module).
unsafe impl Sync for OwnMem {}

impl OwnMem {
    /// Owns the whole of `memory`.
    ///
    /// # Panics
    /// If the start or the length of the memory is not a multiple of 64 bytes.
    #[must_use]
    pub fn new(memory: Box<dyn Writable>) -> Self {
        let mut keep = Arc::new(Keep { memory });
        // The pointer to the memory is taken after the box that owns the memory was moved into
        // `keep`, because moving the box would invalidate the pointer.
        let bytes = Arc::get_mut(&mut keep).expect("made above").memory.as_mut_slice();
        let len = bytes.len();
        let base = NonNull::from(bytes).cast::<u8>();
        assert!((base.addr().get() | len) % 64 == 0, "shared memory is in units of 64 bytes");
        Self { base, len, keep, owns: PhantomData }
    }

    /// The length in bytes of this part of the process's own memory.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether this part of the process's own memory is empty (0 bytes long).
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Splits the memory into the first `middle` bytes and the rest.
    ///
    /// # Panics
    /// If `middle` is beyond the end of the memory or not a multiple of 64.
    #[must_use]
    pub fn split_at(self, middle: usize) -> (Self, Self) {
        assert!(middle <= self.len && middle % 64 == 0, "no part can begin at byte {middle}");
        // SAFETY: `middle` is within the memory or just past its end, as this function asserts.
        let second = unsafe { self.base.add(middle) };
        let rest = Self {
            base: second,
            len: self.len - middle,
            keep: Arc::clone(&self.keep),
            owns: PhantomData,
        };
        (Self { len: middle, ..self }, rest)
    }

    /// Joins two adjacent parts: `self`, then `after`.
    ///
    /// # Panics
    /// If `after` does not begin where `self` ends in the same mapping.
    #[must_use]
    pub fn join(self, after: Self) -> Self {
        assert!(
            Arc::ptr_eq(&self.keep, &after.keep)
                && self.base.addr().get() + self.len == after.base.addr().get(),
            "only adjacent parts can be joined"
        );
        Self { len: self.len + after.len, ..self }
    }

    /// Loads the word at byte `offset`, as this process last stored it.
    #[inline]
    #[must_use]
    pub fn load(&self, offset: usize) -> u64 {
        // ORDER: Relaxed: only this process stores the word, and `&self` excludes a concurrent
        // store.
        u64::from_le(self.word(offset).load(Ordering::Relaxed))
    }

    /// Stores `value` at byte `offset`. A peer that sees the value need not see earlier stores yet.
    #[inline]
    pub fn store(&mut self, offset: usize, value: u64) {
        // ORDER: Relaxed: this store orders no other access. A caller whose earlier stores the peer
        // must see first calls `publish` instead, or executes a fence itself.
        self.word(offset).store(value.to_le(), Ordering::Relaxed);
    }

    /// Stores consecutive words of eight bytes, from byte `offset` on. A peer that sees one of them
    /// need not see earlier stores yet.
    ///
    /// # Panics
    /// If a word lies outside the memory.
    #[inline]
    pub fn store_all(&mut self, offset: usize, words: impl ExactSizeIterator<Item = u64>) {
        let count = words.len();
        assert!(offset % 8 == 0 && offset <= self.len, "offset {offset} is not that of a word");
        assert!(count <= (self.len - offset) / 8, "{count} words exceed the memory");
        // SAFETY: `offset` is within the memory, as this function asserts.
        let first = unsafe { self.base.add(offset) };
        // SAFETY: `count` words are within this part of the memory, as this function asserts, and
        // aligned (the base to 64 bytes, the offset to 8); mapped while `keep` lives (invariant 2
        // of this module).
        let places =
            unsafe { core::slice::from_raw_parts(first.cast::<AtomicU64>().as_ptr(), count) };
        for (place, word) in places.iter().zip(words) {
            // ORDER: Relaxed: these stores order no other access. A caller whose earlier stores the
            // peer must see first calls `publish` afterwards, or executes a fence.
            place.store(word.to_le(), Ordering::Relaxed);
        }
    }

    /// Stores `value` at byte `offset`. A peer that sees the value sees everything stored before
    /// it.
    #[inline]
    pub fn publish(&mut self, offset: usize, value: u64) {
        // ORDER: Release pairs with the acquire fence that the peer executes after it has loaded
        // this value (`PeerMem::load`): it then sees everything stored before.
        let is_faulty = seeded_fault("relaxed_publish");
        let order = if is_faulty { Ordering::Relaxed } else { Ordering::Release };
        self.word(offset).store(value.to_le(), order);
    }

    /// Orders every store before this call before every word stored after it. It serves words whose
    /// order matters if this process is killed between the stores.
    #[inline]
    pub fn order_stores(&self) {
        // ORDER: Release, before Relaxed stores: pairs with a reader that loads those words and
        // then fences (`PeerMem::load`), or that opens the memory after this process's death.
        // Without the fence a store could be moved before an earlier `publish`.
        fence(Ordering::Release);
    }

    /// Prefetches the cache line at byte `offset` for writing, if it is within the memory.
    #[inline]
    pub fn prefetch_for_write(&self, offset: usize) {
        if offset >= self.len {
            return;
        }
        // SAFETY: `offset` is within the memory, as this function checks.
        let line = unsafe { self.base.add(offset) };
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch has no effect that the program can see, and cannot fault; on a
        // processor without the instruction, this code does nothing. (The intrinsic compiles to
        // this instruction only with a target feature.)
        unsafe {
            core::arch::asm!(
                "prefetchw [{}]",
                in(reg) line.as_ptr(),
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = line;
    }

    /// Copies `bytes` into the memory, to byte `offset`.
    ///
    /// # Panics
    /// If the bytes would exceed the memory.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.slice_mut(offset, bytes.len()).copy_from_slice(bytes);
    }

    /// Lets `fill` write the `len` bytes of this memory from byte `offset` on.
    ///
    /// # Panics
    /// If the range exceeds the memory.
    #[inline(always)]
    pub fn fill(&mut self, offset: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        fill(self.slice_mut(offset, len));
    }

    /// The `len` bytes of this memory from byte `offset` on, for writing in place.
    ///
    /// The result has the bytes that this process last wrote, never bytes of another process.
    ///
    /// # Panics
    /// If the range exceeds the memory.
    #[inline]
    pub fn slice_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset <= self.len && len <= self.len - offset, "beyond the memory");
        // SAFETY: `offset` is within the memory, as this function asserts.
        let start = unsafe { self.base.add(offset) };
        // SAFETY: the range is within this part of the memory, which has no other owner (invariant
        // 1 of this module) and stays mapped while `keep` lives (invariant 2); `&mut self` makes
        // the result the only reference to its bytes.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// The `len` bytes of this memory from byte `offset` on, for reading.
    ///
    /// # Panics
    /// If the range exceeds the memory.
    #[inline]
    #[must_use]
    pub fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset, "beyond the memory");
        // SAFETY: `offset` is within the memory, as this function asserts.
        let start = unsafe { self.base.add(offset) };
        // SAFETY: the range is within this part of the memory, mapped while `keep` lives (invariant
        // 2 of this module), and all writes need `&mut self` (invariant 1), so the bytes do not
        // change while the result lives.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), len) }
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && offset < self.len, "no such word");
        // SAFETY: `offset` is within the memory, as this function asserts.
        let word = unsafe { self.base.add(offset) };
        // SAFETY: the word is aligned (the base to 64 bytes, the offset to 8) and eight bytes long,
        // because every part is a multiple of 8 long; mapped while `keep` lives (invariant 2 of
        // this module).
        unsafe { AtomicU64::from_ptr(word.cast::<u64>().as_ptr()) }
    }
}

impl core::fmt::Debug for OwnMem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "OwnMem({} bytes)", self.len)
    }
}

/// A part of the peer's region, or of one of its segments, which this process can only read.
#[derive(Clone)]
pub struct PeerMem {
    /// Address of the first byte of the part, a multiple of eight.
    base: NonNull<u8>,
    len: usize,
    /// Length of the part in bytes, rounded down to whole words.
    words: usize,
    _keep: Arc<dyn Readable>,
}

// SAFETY: a `PeerMem` only loads, and words atomically; the pages stay mapped while `_keep` lives
// (invariant 2 of this module).
unsafe impl Send for PeerMem {}
// SAFETY: a `PeerMem` cannot store, so threads that share one only load; and the pages stay mapped
// while `_keep` lives.
unsafe impl Sync for PeerMem {}

impl PeerMem {
    /// A `PeerMem` of the whole of `memory`.
    ///
    /// # Panics
    /// If the memory does not start at a multiple of 64 bytes.
    #[must_use]
    pub fn new(memory: Arc<dyn Readable>) -> Self {
        let cells = memory.cells();
        let len = cells.len();
        let base = NonNull::from(cells).cast::<u8>();
        assert!(base.addr().get() % 64 == 0, "shared memory must be aligned to 64 bytes");
        Self { base, len, words: len - len % 8, _keep: memory }
    }

    /// The length in bytes of this part of the peer's memory.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether this part of the peer's memory is empty (0 bytes long).
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The range of `len` bytes from `offset`, or `None` if it exceeds the memory.
    #[inline]
    #[must_use]
    pub fn range(&self, offset: u64, len: u64) -> Option<Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let len = usize::try_from(len).ok()?;
        let is_there = start <= self.len && len <= self.len - start;
        is_there.then(|| start..start + len)
    }

    /// The part of `len` bytes from `offset`. `None` if the part exceeds the memory, or `offset` is
    /// not a multiple of eight.
    #[inline]
    #[must_use]
    pub fn part(&self, offset: u64, len: u64) -> Option<Self> {
        let Range { start, end } = self.range(offset, len).filter(|range| range.start % 8 == 0)?;
        // SAFETY: `start` is within the memory, as this function checks.
        let base = unsafe { self.base.add(start) };
        let len = end - start;
        Some(Self { base, len, words: len - len % 8, _keep: Arc::clone(&self._keep) })
    }

    /// Loads the word at byte `offset`. After the call, everything that the peer wrote before it
    /// published the word is visible.
    ///
    /// # Panics
    /// If no word is at `offset`. Callers check an offset that comes from the peer before the call.
    #[inline(always)]
    #[must_use]
    pub fn load(&self, offset: usize) -> u64 {
        let value = self.peek(offset);
        // ORDER: with the Relaxed load in `peek`, this fence pairs with the Release store of
        // `OwnMem::publish` in the other process. It is a fence and not an Acquire load, because
        // the language promises no more than Relaxed for atomics on read-only pages.
        if !seeded_fault("no_acquire_fence") {
            fence(Ordering::Acquire);
        }
        value
    }

    /// Loads the word at byte `offset` without ordering other accesses. It serves polling.
    ///
    /// # Panics
    /// If no word is at `offset`.
    #[inline(always)]
    #[must_use]
    pub fn peek(&self, offset: usize) -> u64 {
        assert!(offset % 8 == 0 && offset < self.words, "no such word");
        // SAFETY: `offset` is within the memory, as this function asserts.
        let word = unsafe { self.base.add(offset) };
        // SAFETY: the word is aligned (the base to eight bytes by its constructors, the offset as
        // this function asserts), and eight bytes within the part, because `words` is a multiple of
        // eight; mapped while `_keep` lives (invariant 2 of this module). Only loads follow, so a
        // read-only page is enough.
        let word = unsafe { AtomicU64::from_ptr(word.cast::<u64>().as_ptr()) };
        // ORDER: Relaxed: this load orders no other access. A caller that then reads what the peer
        // wrote before this word calls `load` instead, which adds the fence.
        u64::from_le(word.load(Ordering::Relaxed))
    }

    /// Loads the word at byte `offset`, and then the word after it. After the call, everything that
    /// the peer wrote before it published the first word is visible.
    ///
    /// # Panics
    /// If no two words are at `offset`.
    #[inline(always)]
    #[must_use]
    pub fn load_two(&self, offset: usize) -> (u64, u64) {
        assert!(offset % 8 == 0 && offset < self.words.saturating_sub(8), "no two words there");
        (self.load(offset), self.peek(offset + 8))
    }

    /// Orders every load and copy before this call before every word loaded after it.
    #[inline(always)]
    pub fn order_loads(&self) {
        // ORDER: Acquire, after Relaxed loads and copies: none of those moves after a later load.
        if !seeded_fault("no_acquire_fence") {
            fence(Ordering::Acquire);
        }
    }

    /// Prefetches the cache line at byte `offset`, if it is within the memory.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        if offset >= self.len {
            return;
        }
        // SAFETY: `offset` is within the memory, as this function checks.
        let line = unsafe { self.base.add(offset) };
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch has no effect that the program can see, and cannot fault.
        unsafe {
            core::arch::x86_64::_mm_prefetch(line.as_ptr().cast(), core::arch::x86_64::_MM_HINT_T0);
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = line;
    }

    /// Copies bytes of this memory, from byte `offset` on, into `into`.
    ///
    /// A peer that breaks the rules may change the bytes during the copy. The copy is then a
    /// mixture, but it is private, and the caller checks the copy.
    ///
    /// # Panics
    /// If the range exceeds the memory.
    #[inline]
    pub fn copy(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.len && into.len() <= self.len - offset, "beyond the memory");
        // SAFETY: `offset` is within the memory, as this function asserts.
        let start = unsafe { self.base.add(offset) };
        // SAFETY: the source is within this part of the peer's memory, which stays mapped while
        // `_keep` lives (invariant 2 of this module); the destination is private, so they do not
        // overlap. Bytes have no invalid values; a peer that writes meanwhile breaks "committed
        // bytes do not change" (SPEC 4.7) and causes the mixture itself.
        unsafe { start.as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    /// Appends a [`copy`](Self::copy) of `len` bytes from `offset` to `onto`, whose spare capacity
    /// need not be initialised before.
    ///
    /// # Panics
    /// If the range exceeds the memory.
    #[inline]
    pub fn copy_onto(&self, offset: usize, len: usize, onto: &mut Vec<u8>) {
        assert!(offset <= self.len && len <= self.len - offset, "beyond the memory");
        onto.reserve(len);
        // SAFETY: `offset` is within the memory, as this function asserts.
        let start = unsafe { self.base.add(offset) };
        let spare = onto.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: the source is within this part of the peer's memory, which stays mapped while
        // `_keep` lives. The destination is private memory, in which this function has reserved
        // `len` bytes.
        unsafe { start.as_ptr().copy_to_nonoverlapping(spare, len) };
        // SAFETY: the first `len` bytes of the spare capacity of `onto` were just written.
        unsafe { onto.set_len(onto.len() + len) };
    }

    /// Appends the two words of `head` and then a [`copy`](Self::copy) of `len` bytes from `offset`
    /// to `onto`. The words are stored directly: passing them in a buffer would mean one load over
    /// two recent stores, which stalls the processor.
    ///
    /// # Panics
    /// If the range exceeds the memory.
    #[inline(always)]
    pub fn copy_headed_onto(&self, head: [u64; 2], offset: usize, len: usize, onto: &mut Vec<u8>) {
        assert!(offset <= self.len && len <= self.len - offset, "beyond the memory");
        onto.reserve(HEAD_BYTES + len);
        // SAFETY: `offset` is within the memory, as this function asserts.
        let start = unsafe { self.base.add(offset) };
        let spare = onto.spare_capacity_mut().as_mut_ptr();
        // SAFETY: the destination is private and has room for two words and `len` bytes, which this
        // function has reserved; it need not be aligned.
        unsafe { spare.cast::<u64>().write_unaligned(head[0].to_le()) };
        // SAFETY: the second word lies within the bytes of `onto` that this function has reserved.
        let second = unsafe { spare.add(HEAD_BYTES / 2) };
        // SAFETY: the second word lies within the private bytes that this function has reserved; it
        // need not be aligned.
        unsafe { second.cast::<u64>().write_unaligned(head[1].to_le()) };
        // SAFETY: the bytes after the two words begin within the bytes of `onto` that this function
        // has reserved, or just past their end.
        let rest = unsafe { spare.add(HEAD_BYTES) }.cast::<u8>();
        // SAFETY: the source is within this part of the peer's memory, which stays mapped while
        // `_keep` lives. The destination is private memory, in which this function has reserved
        // `len` bytes after the two words.
        unsafe { start.as_ptr().copy_to_nonoverlapping(rest, len) };
        // SAFETY: the first `HEAD_BYTES + len` bytes of the spare capacity of `onto` were just
        // written.
        unsafe { onto.set_len(onto.len() + HEAD_BYTES + len) };
    }

    /// The `len` bytes of this memory from byte `offset` on, without a copy.
    ///
    /// Sound if the peer keeps "committed bytes do not change" (SPEC 4.7) while the result lives,
    /// which `Trust::Trusted` assumes. For untrusted peers there is [`copy`](Self::copy).
    ///
    /// # Panics
    /// If the range exceeds the memory.
    #[inline]
    #[must_use]
    pub fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset, "beyond the memory");
        // SAFETY: `offset` is within the memory, as this function asserts.
        let start = unsafe { self.base.add(offset) };
        // SAFETY: the range is within this part of the peer's memory and mapped while `_keep` lives
        // (invariant 2 of this module). The peer promises that the bytes do not change (SPEC 4.7),
        // and its own single-writer rule keeps the promise.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), len) }
    }
}

impl core::fmt::Debug for PeerMem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PeerMem({} bytes)", self.len)
    }
}

/// Size in bytes of the two words that `copy_headed_onto` stores before the copied bytes.
const HEAD_BYTES: usize = 16;

/// Heap memory of this process as an [`OwnMem`] and a [`PeerMem`] of the same bytes. It serves
/// models, tests and benchmarks within one process.
///
/// # Panics
/// If `bytes` is not a multiple of 64.
#[must_use]
pub fn pair(bytes: usize) -> (OwnMem, PeerMem) {
    assert!(bytes % 64 == 0, "shared memory is in units of 64 bytes");
    let lines = (0..bytes / 64).map(|_| Line(UnsafeCell::new([0; 64]))).collect();
    let heap = Heap(lines);
    let own = OwnMem::new(Box::new(heap.clone()));
    (own, PeerMem::new(Arc::new(heap)))
}

/// One cache line of heap memory, aligned as [`OwnMem`] requires.
#[repr(C, align(64))]
struct Line(UnsafeCell<[u8; 64]>);

#[derive(Clone)]
struct Heap(Arc<[Line]>);

// SAFETY: the cells are reached only through the one `OwnMem` and the read-only `PeerMem`s that
// `pair` makes. The `OwnMem` writes through `&mut`, and the `PeerMem`s only load: so no byte is
// written while a reference to it exists.
unsafe impl Send for Heap {}
// SAFETY: threads share the cells only through the one `OwnMem`, which writes through `&mut`, and
// the `PeerMem`s of `pair`, which only load.
unsafe impl Sync for Heap {}

impl Writable for Heap {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        let cells = Readable::cells(self);
        // SAFETY: `pair` makes one `OwnMem` only, which is therefore the one writer of the cells
        // (invariant 1 of this module); the cells live as long as the `Arc`.
        unsafe { core::slice::from_raw_parts_mut(cells.as_ptr() as *mut u8, cells.len()) }
    }
}

impl Readable for Heap {
    fn cells(&self) -> &[UnsafeCell<u8>] {
        let start = self.0.as_ptr().cast::<UnsafeCell<u8>>();
        // SAFETY: an array of `Line`s is an array of 64 times as many cells of bytes without
        // padding, and lives as long as `self`.
        unsafe { core::slice::from_raw_parts(start, self.0.len() * 64) }
    }
}
