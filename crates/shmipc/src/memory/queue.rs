// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue region: two rings, one per direction, of twelve bytes an element, and the flag that saves wake-ups.
//!
//! ```text
//!   first half: client → server                        second half: server → client
//!   ┌──────────────── header 24 ────────────────┬─────────────────────┐
//!   │ cap │ head, tail: 64 bits │ flag          │ elements: cap × 12  │   stream │ offset │ status
//!   └───────────────────────────────────────────┴─────────────────────┘
//!   x86-64   cap 0   head 4   tail 12   flag 20        elsewhere   cap 0   flag 4   head 8   tail 16
//! ```
//!
//! On x86-64 the counters are not aligned to their size, so each is two words here: the low one is stored first, so that
//! the other side sees for a moment a smaller number at most, which means "empty" or "full"; and only the low one
//! is loaded, since our own count says which it belongs to. It knows no streams and sends nothing.
//!
//! # Invariants
//!
//! - `0 <= tail - head <= cap` by our own count of one and the other side's word of the other, or [`Damage`].
//! - One producer and one consumer per ring: a [`Queue`] is split once, into values that are not cloned.

use crate::region::Damage;
use partywall_sys::{SharedMap, shared::full_fence};
use std::sync::Arc;

/// What is told of a message, or of the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Which stream.
    pub stream: u32,
    /// Where the message begins in the buffer region; 0 if there is none.
    pub offset: u32,
    /// What it says; only the low eight bits mean anything.
    pub status: u32,
}

/// Where the words of a ring's header are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    pub(crate) head: usize,
    pub(crate) tail: usize,
    pub(crate) flag: usize,
}

impl QueueLayout {
    /// As on x86-64.
    pub const LEGACY: Self = Self { head: 4, tail: 12, flag: 20 };
    /// As on arm64.
    pub const ALIGNED: Self = Self { head: 8, tail: 16, flag: 4 };
    /// As on this processor, which is what versions 2 and 3 of the protocol mean.
    pub const NATIVE: Self =
        if cfg!(target_arch = "x86_64") { Self::LEGACY } else { Self::ALIGNED };
}

/// Whose end of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It connected, and made the memory.
    Client,
    /// It accepted.
    Server,
}

/// A mapped queue region, before it is used.
#[derive(Debug)]
pub struct Queue {
    map: Arc<SharedMap>,
    layout: QueueLayout,
    half: usize,
    capacity: u32,
}

impl Queue {
    /// How large the memory for rings of `capacity` elements is, rounded up as [`create`](Self::create) wants it;
    /// `None` if that is too much.
    pub fn size_bytes(capacity: u32) -> Option<usize> {
        let capacity = rounded(capacity)?;
        Some(2 * region_bytes(capacity))
    }

    /// Makes a queue of fresh memory, which must be zeros, as large as [`size_bytes`](Self::size_bytes) says. Rings
    /// hold a multiple of 16 elements: with some other numbers a counter lies in two cache lines, and the locked
    /// instructions of a peer stop every processor.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the memory has another size.
    pub fn create(map: SharedMap, capacity: u32, layout: QueueLayout) -> Result<Self, Damage> {
        let size = Self::size_bytes(capacity);
        let (Some(capacity), true) = (rounded(capacity), size == Some(map.len())) else {
            return Err(Damage::new("this is no size for a queue region", map.len() as u64));
        };
        let half = region_bytes(capacity);
        for base in [0, half] {
            map.store(base, capacity);
        }
        Ok(Self { map: Arc::new(map), layout, half, capacity })
    }

    /// Uses a queue that the other side made.
    ///
    /// # Errors
    ///
    /// [`Damage`] where its headers say what cannot be.
    pub fn map(map: SharedMap, layout: QueueLayout) -> Result<Self, Damage> {
        let size = map.len();
        let half = size / 2;
        if size % 8 != 0 || half < region_bytes(1) {
            return Err(Damage::new("this is no size for a queue region", size as u64));
        }
        let capacity = map.load(0);
        let fits = u64::from(capacity) * ELEMENT_BYTES as u64 + HEADER_BYTES as u64 <= half as u64;
        if capacity == 0 || capacity > CAPACITY_MAX || !fits {
            return Err(Damage::new("a ring of this capacity is not what is there", capacity));
        }
        let other = map.load(half);
        if other != capacity {
            return Err(Damage::new("the two rings have different capacities", other));
        }
        Ok(Self { map: Arc::new(map), layout, half, capacity })
    }

    /// How many elements each ring takes.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The two ends that `side` has.
    ///
    /// # Errors
    ///
    /// [`Damage`] where the counters say what cannot be.
    pub fn split(self, side: Side) -> Result<(Producer, Consumer), Damage> {
        let (sending, receiving) = match side {
            Side::Client => (0, self.half),
            Side::Server => (self.half, 0),
        };
        let ring = |base| Ring {
            map: Arc::clone(&self.map),
            layout: self.layout,
            base,
            capacity: self.capacity,
        };
        let (sending, receiving) = (ring(sending), ring(receiving));
        let tail = sending.counter(self.layout.tail);
        let head = receiving.counter(self.layout.head);
        sending.pending(low(sending.counter(self.layout.head)), low(tail))?;
        receiving.pending(low(head), low(receiving.counter(self.layout.tail)))?;
        Ok((
            Producer { ring: sending, tail },
            Consumer { ring: receiving, head, published: head, tail: low(head) },
        ))
    }
}

/// One of the two rings.
#[derive(Clone, Debug)]
struct Ring {
    map: Arc<SharedMap>,
    layout: QueueLayout,
    base: usize,
    capacity: u32,
}

impl Ring {
    /// A counter that only this side stores, or of memory that nobody uses yet.
    fn counter(&self, at: usize) -> u64 {
        let [low, high] = [0, 4].map(|part| self.map.load(self.base + at + part));
        u64::from(high) << 32 | u64::from(low)
    }

    fn store_counter(&self, at: usize, before: u64, value: u64) {
        let at = self.base + at;
        self.map.store(at, low(value));
        if before >> 32 != value >> 32 {
            // Lower than it was, for a moment: never higher.
            self.map.store(at + 4, low(value >> 32));
        }
    }

    fn load_low(&self, at: usize) -> u32 {
        self.map.load(self.base + at)
    }

    /// How many elements there are between the two.
    fn pending(&self, head: u32, tail: u32) -> Result<u32, Damage> {
        let pending = tail.wrapping_sub(head);
        if pending > self.capacity {
            let what = if self.map.is_damaged() {
                "the queue region was truncated"
            } else {
                "a ring holds more elements than it can"
            };
            return Err(Damage::new(what, pending));
        }
        Ok(pending)
    }

    fn element(&self, position: u64) -> usize {
        // Less than the capacity, so it is within the memory.
        let slot = low(position % u64::from(self.capacity));
        self.base + HEADER_BYTES + slot as usize * ELEMENT_BYTES
    }

    fn flag(&self) -> usize {
        self.base + self.layout.flag
    }
}

/// Why an element was not put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutError {
    /// No room now.
    Full,
    /// The other side's count is impossible.
    Damaged(Damage),
}

/// The end that puts elements: one thread at a time.
#[derive(Debug)]
pub struct Producer {
    ring: Ring,
    tail: u64,
}

impl Producer {
    /// Puts an element. Then [`mark_working`](Self::mark_working) says whether the other side has to be told.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`PutError`].
    pub fn put(&mut self, element: Element) -> Result<(), PutError> {
        if self.room().map_err(PutError::Damaged)? == 0 {
            return Err(PutError::Full);
        }
        let at = self.ring.element(self.tail);
        let words = [element.stream, element.offset, element.status];
        for (index, word) in words.into_iter().enumerate() {
            self.ring.map.store(at + 4 * index, word);
        }
        let before = self.tail;
        self.tail = before.wrapping_add(1);
        self.ring.store_counter(self.ring.layout.tail, before, self.tail);
        Ok(())
    }

    /// How many elements can be put now.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the other side's count is impossible.
    pub fn room(&self) -> Result<u32, Damage> {
        let head = self.ring.load_low(self.ring.layout.head);
        Ok(self.ring.capacity - self.ring.pending(head, low(self.tail))?)
    }

    /// Says that there is work; `true` if the other side had none and must be told (one Polling message).
    pub fn mark_working(&self) -> bool {
        // Between storing the tail and looking at the flag: the consumer stores the flag and looks at the tail.
        full_fence();
        // Looked at first: a consumer that is at work keeps the word.
        self.ring.map.load(self.ring.flag()) == 0
            && self.ring.map.exchange(self.ring.flag(), 0, 1).is_ok()
    }

    /// Whether the other side has taken all that was put.
    pub fn is_drained(&self) -> bool {
        self.room() == Ok(self.ring.capacity)
    }

    /// How many elements the ring has.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity
    }

    /// For those who wait for room without holding the producer.
    pub fn room_watch(&self) -> RoomWatch {
        let head = self.ring.base + self.ring.layout.head;
        RoomWatch { map: Arc::clone(&self.ring.map), head }
    }

    /// For those who only want to know how full the ring is.
    pub fn fill_watch(&self) -> FillWatch {
        FillWatch { ring: self.ring.clone() }
    }

    /// Whether the file that the queue lies in was truncated under us.
    pub fn is_damaged(&self) -> bool {
        self.ring.map.is_damaged()
    }
}

/// Looks how full a ring is.
#[derive(Clone, Debug)]
pub struct FillWatch {
    ring: Ring,
}

impl FillWatch {
    /// How many elements lie in it. Where the other side writes what cannot be, as many as fit at most.
    pub fn count(&self) -> u32 {
        let Ring { layout, capacity, .. } = self.ring;
        let head = self.ring.load_low(layout.head);
        self.ring.load_low(layout.tail).wrapping_sub(head).min(capacity)
    }
}

/// Looks whether the other side has taken elements.
#[derive(Clone, Debug)]
pub struct RoomWatch {
    map: Arc<SharedMap>,
    head: usize,
}

impl RoomWatch {
    /// The other side's count, or a part of it: it differs once there is more room.
    pub fn snapshot(&self) -> u32 {
        self.map.load(self.head)
    }
}

/// The end that takes elements.
#[derive(Debug)]
pub struct Consumer {
    ring: Ring,
    head: u64,
    /// What the other side was told of it.
    published: u64,
    /// The other side's count, as far as it was read.
    tail: u32,
}

impl Consumer {
    /// Takes the next element, if there is one.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the other side's count is impossible.
    pub fn pop(&mut self) -> Result<Option<Element>, Damage> {
        if low(self.head) == self.tail {
            // Only now: the word lies where the other side writes with every element.
            self.tail = low(self.head).wrapping_add(self.pending()?);
            if low(self.head) == self.tail {
                self.tell();
                return Ok(None);
            }
        }
        let at = self.ring.element(self.head);
        let [stream, offset, status] = [0, 4, 8].map(|word| self.ring.map.load(at + word));
        self.head = self.head.wrapping_add(1);
        if self.head.wrapping_sub(self.published) >= u64::from(self.ring.capacity / PUBLISHED_PARTS)
        {
            self.tell();
        }
        Ok(Some(Element { stream, offset, status }))
    }

    /// Tells the other side what was taken: at the latest when the ring is empty, or an eighth of it was taken.
    pub fn tell(&mut self) {
        if self.published == self.head {
            return;
        }
        self.ring.store_counter(self.ring.layout.head, self.published, self.head);
        self.published = self.head;
    }

    /// How many elements there are.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the other side's count is impossible.
    pub fn pending(&self) -> Result<u32, Damage> {
        let tail = self.ring.load_low(self.ring.layout.tail);
        self.ring.pending(low(self.head), tail)
    }

    /// Whether there is none.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the other side's count is impossible.
    pub fn is_empty(&self) -> Result<bool, Damage> {
        Ok(self.pending()? == 0)
    }

    /// From now on the other side tells when it puts an element. What came just before may not be told: look again.
    pub fn set_idle(&self) {
        self.ring.map.store(self.ring.flag(), 0);
        // Between storing the flag and looking at the tail: see `mark_working`.
        full_fence();
    }

    /// From now on the other side need not tell: somebody looks.
    pub fn set_working(&self) {
        self.ring.map.store(self.ring.flag(), 1);
    }

    /// [`set_idle`](Self::set_idle), unless there is something: then the flag stays, and it says `true`.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the other side's count is impossible.
    pub fn rest(&self) -> Result<bool, Damage> {
        self.set_idle();
        let has_more = !self.is_empty()?;
        if has_more {
            self.set_working();
        }
        Ok(has_more)
    }

    /// For those who only want to know how full the ring is.
    pub fn fill_watch(&self) -> FillWatch {
        FillWatch { ring: self.ring.clone() }
    }

    /// Whether the file that the queue lies in was truncated under us.
    pub fn is_damaged(&self) -> bool {
        self.ring.map.is_damaged()
    }
}

/// The other side is told after this part of the ring.
const PUBLISHED_PARTS: u32 = 8;

#[allow(clippy::cast_possible_truncation, reason = "that is what it is for")]
const fn low(counter: u64) -> u32 {
    (counter & 0xffff_ffff) as u32
}

fn rounded(capacity: u32) -> Option<u32> {
    let rounded = capacity.checked_next_multiple_of(CAPACITY_STEP)?;
    (1..=CAPACITY_MAX).contains(&rounded).then_some(rounded)
}

const fn region_bytes(capacity: u32) -> usize {
    HEADER_BYTES + capacity as usize * ELEMENT_BYTES
}

/// What unmodified peers use by default.
pub const CAPACITY_DEFAULT: u32 = 8192;
/// A ring of this many elements has 192 MiB; nobody needs one.
pub const CAPACITY_MAX: u32 = 1 << 24;
/// Capacities of rings that we make are multiples of this.
const CAPACITY_STEP: u32 = 16;
pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const ELEMENT_BYTES: usize = 12;
