// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue region: one ring per direction, elements of twelve bytes, and a flag that saves
//! wake-ups.
//!
//! ```text
//!   first ring: client → server                       second ring: server → client
//!   ┌──────────────── header 24 ────────────────┬─────────────────────┐
//!   │ cap │ head, tail: 64 bits │ flag          │ elements: cap × 12  │  stream │ offset │ status
//!   └───────────────────────────────────────────┴─────────────────────┘
//!   x86-64   cap 0   head 4   tail 12   flag 20     elsewhere   cap 0   flag 4   head 8   tail 16
//! ```
//!
//! On x86-64 the counters are not aligned to their size, so each is accessed as two words. The low
//! word is stored first: for a moment the peer sees at most a smaller number, which means "empty"
//! or "full". Only the low word is loaded, because our own count determines the rest. A queue knows
//! no streams and sends no messages.
//!
//! # Invariants
//!
//! - `0 <= tail - head <= cap`, with our own count of one and the peer's word of the other, or
//!   [`Damage`].
//! - One producer and one consumer per ring: a [`Queue`] is split once, into values that cannot be
//!   cloned.

use crate::region::Damage;
use partywall_sys::{SharedMap, shared::full_fence};
use std::sync::Arc;

/// An element: announces a message, or the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The stream's id.
    pub stream: u32,
    /// Offset of the message in the buffer region; 0 for none.
    pub offset: u32,
    /// Data or close; only the low eight bits count.
    pub status: u32,
}

/// Offsets of the words in a ring's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    pub(crate) head: usize,
    pub(crate) tail: usize,
    pub(crate) flag: usize,
}

impl QueueLayout {
    /// The layout on x86-64.
    pub const LEGACY: Self = Self { head: 4, tail: 12, flag: 20 };
    /// The layout on arm64.
    pub const ALIGNED: Self = Self { head: 8, tail: 16, flag: 4 };
    /// The layout on this processor, which versions 2 and 3 of the protocol use.
    pub const NATIVE: Self =
        if cfg!(target_arch = "x86_64") { Self::LEGACY } else { Self::ALIGNED };
}

/// An end of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that connected and created the memory.
    Client,
    /// The end that accepted.
    Server,
}

/// A mapped queue region, before it is split.
#[derive(Debug)]
pub struct Queue {
    map: Arc<SharedMap>,
    layout: QueueLayout,
    half: usize,
    capacity: u32,
}

impl Queue {
    /// Size of the memory for rings of `capacity` elements, rounded up as in
    /// [`create`](Self::create); `None` if that is too large.
    pub fn size_bytes(capacity: u32) -> Option<usize> {
        let capacity = rounded(capacity)?;
        Some(2 * region_bytes(capacity))
    }

    /// Creates a queue in fresh, zeroed memory of [`size_bytes`](Self::size_bytes). The capacity is
    /// a multiple of 16. With other values a counter may cross a cache line, and then the locked
    /// instructions of a peer stall every processor.
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

    /// Opens a queue that the peer created.
    ///
    /// # Errors
    ///
    /// [`Damage`] if its headers are impossible.
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

    /// Capacity of each ring, in elements.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The producer and the consumer of `side`.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the counters are impossible.
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
    /// A counter that only this side stores, or of memory that is not in use yet.
    fn counter(&self, at: usize) -> u64 {
        let [low, high] = [0, 4].map(|part| self.map.load(self.base + at + part));
        u64::from(high) << 32 | u64::from(low)
    }

    fn store_counter(&self, at: usize, before: u64, value: u64) {
        let at = self.base + at;
        self.map.store(at, low(value));
        if before >> 32 != value >> 32 {
            // For a moment it is lower than before, but never higher than the new value.
            self.map.store(at + 4, low(value >> 32));
        }
    }

    fn load_low(&self, at: usize) -> u32 {
        self.map.load(self.base + at)
    }

    /// Number of elements between the two.
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

/// Why an element was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutError {
    /// The ring is full.
    Full,
    /// The peer's counter is impossible.
    Damaged(Damage),
}

/// The end that adds elements. One thread at a time uses it.
#[derive(Debug)]
pub struct Producer {
    ring: Ring,
    tail: u64,
}

impl Producer {
    /// Adds an element. Then [`mark_working`](Self::mark_working) returns whether to notify the
    /// peer.
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

    /// Number of elements that can be added now.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the peer's counter is impossible.
    pub fn room(&self) -> Result<u32, Damage> {
        let head = self.ring.load_low(self.ring.layout.head);
        Ok(self.ring.capacity - self.ring.pending(head, low(self.tail))?)
    }

    /// Sets the flag. Returns `true` if the peer was idle and must be notified by one Polling
    /// message.
    pub fn mark_working(&self) -> bool {
        // Between our store of the tail and our load of the flag. The consumer stores the flag,
        // then loads the tail.
        full_fence();
        // Loaded before it is written: a consumer at work keeps the cache line.
        self.ring.map.load(self.ring.flag()) == 0
            && self.ring.map.exchange(self.ring.flag(), 0, 1).is_ok()
    }

    /// Whether the peer has taken all elements.
    pub fn is_drained(&self) -> bool {
        self.room() == Ok(self.ring.capacity)
    }

    /// Capacity of the ring, in elements.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity
    }

    /// For a sender that waits for room without holding the producer.
    pub fn room_watch(&self) -> RoomWatch {
        let head = self.ring.base + self.ring.layout.head;
        RoomWatch { map: Arc::clone(&self.ring.map), head }
    }

    /// For metrics: how full the ring is.
    pub fn fill_watch(&self) -> FillWatch {
        FillWatch { ring: self.ring.clone() }
    }

    /// Whether the file of the queue was truncated while it was mapped.
    pub fn is_damaged(&self) -> bool {
        self.ring.map.is_damaged()
    }
}

/// Reads how full a ring is.
#[derive(Clone, Debug)]
pub struct FillWatch {
    ring: Ring,
}

impl FillWatch {
    /// Number of elements; at most the capacity, even if the peer's counter is impossible.
    pub fn count(&self) -> u32 {
        let Ring { layout, capacity, .. } = self.ring;
        let head = self.ring.load_low(layout.head);
        self.ring.load_low(layout.tail).wrapping_sub(head).min(capacity)
    }
}

/// Reads whether the peer has taken elements.
#[derive(Clone, Debug)]
pub struct RoomWatch {
    map: Arc<SharedMap>,
    head: usize,
}

impl RoomWatch {
    /// The low word of the peer's counter: it differs once there is more room.
    pub fn snapshot(&self) -> u32 {
        self.map.load(self.head)
    }
}

/// The end that takes elements.
#[derive(Debug)]
pub struct Consumer {
    ring: Ring,
    head: u64,
    /// The head that the peer can see.
    published: u64,
    /// The peer's counter when it was last loaded.
    tail: u32,
}

impl Consumer {
    /// Takes the next element, if there is one.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the peer's counter is impossible.
    pub fn pop(&mut self) -> Result<Option<Element>, Damage> {
        if low(self.head) == self.tail {
            // Loaded only when needed: the peer writes this cache line with every element.
            self.tail = low(self.head).wrapping_add(self.pending()?);
            if low(self.head) == self.tail {
                self.publish_head();
                return Ok(None);
            }
        }
        let at = self.ring.element(self.head);
        let [stream, offset, status] = [0, 4, 8].map(|word| self.ring.map.load(at + word));
        self.head = self.head.wrapping_add(1);
        if self.head.wrapping_sub(self.published) >= u64::from(self.ring.capacity / PUBLISHED_PARTS)
        {
            self.publish_head();
        }
        Ok(Some(Element { stream, offset, status }))
    }

    /// Stores the head for the peer: at the latest when the ring is empty, or an eighth of it was
    /// taken.
    pub fn publish_head(&mut self) {
        if self.published == self.head {
            return;
        }
        self.ring.store_counter(self.ring.layout.head, self.published, self.head);
        self.published = self.head;
    }

    /// Number of elements.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the peer's counter is impossible.
    pub fn pending(&self) -> Result<u32, Damage> {
        let tail = self.ring.load_low(self.ring.layout.tail);
        self.ring.pending(low(self.head), tail)
    }

    /// Whether there are no elements.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the peer's counter is impossible.
    pub fn is_empty(&self) -> Result<bool, Damage> {
        Ok(self.pending()? == 0)
    }

    /// From now on the peer notifies when it adds an element. It may not have notified of the last
    /// ones: check again.
    pub fn set_idle(&self) {
        self.ring.map.store(self.ring.flag(), 0);
        // Between our store of the flag and our load of the tail: see `mark_working`.
        full_fence();
    }

    /// From now on the peer need not notify, because this side polls.
    pub fn set_working(&self) {
        self.ring.map.store(self.ring.flag(), 1);
    }

    /// [`set_idle`](Self::set_idle), unless there are elements: then the flag stays set, and it
    /// returns `true`.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the peer's counter is impossible.
    pub fn set_idle_if_empty(&self) -> Result<bool, Damage> {
        self.set_idle();
        let has_more = !self.is_empty()?;
        if has_more {
            self.set_working();
        }
        Ok(has_more)
    }

    /// For metrics: how full the ring is.
    pub fn fill_watch(&self) -> FillWatch {
        FillWatch { ring: self.ring.clone() }
    }

    /// Whether the file of the queue was truncated while it was mapped.
    pub fn is_damaged(&self) -> bool {
        self.ring.map.is_damaged()
    }
}

/// The head is stored after this part of the ring.
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

/// Default capacity of unmodified peers.
pub const CAPACITY_DEFAULT: u32 = 8192;
/// The largest capacity that is accepted: a ring of 192 MiB.
pub const CAPACITY_MAX: u32 = 1 << 24;
/// Capacities of rings that we create are multiples of this.
const CAPACITY_STEP: u32 = 16;
pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const ELEMENT_BYTES: usize = 12;
