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
//! or "full". Only the low word of the peer's counter is loaded, because this side's own counter
//! determines the upper word. A queue knows no streams and writes nothing to the socket.
//!
//! # Invariants
//!
//! - `0 <= tail - head <= cap`, or the result is [`Damage`]. Of head and tail, this side counts its
//!   own, and loads the other one from the word that the peer writes.
//! - One producer and one consumer per ring: a [`Queue`] is split once, into values that cannot be
//!   cloned.

use crate::region::Damage;
use partywall_sys::{SharedMap, shared::full_fence};
use std::sync::Arc;

/// An element of a queue, which announces a message, or the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The id of the stream to which the message belongs, or which ends.
    pub stream: u32,
    /// Offset of the message in the buffer region; 0 if the element has no message.
    pub offset: u32,
    /// Whether the element announces data or the close of its stream; only the low eight bits
    /// count.
    pub status: u32,
}

/// Offsets in bytes of the words in a ring's header, which differ between processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    pub(crate) head: usize,
    pub(crate) tail: usize,
    pub(crate) flag: usize,
}

impl QueueLayout {
    /// Layout of a ring's header on x86-64, where the counters are not aligned.
    pub const LEGACY: Self = Self { head: 4, tail: 12, flag: 20 };
    /// Layout of a ring's header on arm64, where the counters are aligned.
    pub const ALIGNED: Self = Self { head: 8, tail: 16, flag: 4 };
    /// Layout of a ring's header on this processor, which versions 2 and 3 of the protocol use.
    pub const NATIVE: Self =
        if cfg!(target_arch = "x86_64") { Self::LEGACY } else { Self::ALIGNED };
}

/// A side of the connection, which has one end of each ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that connected, and created the memory.
    Client,
    /// The side that accepted the connection.
    Server,
}

/// A mapped queue region, before it is split into producer and consumer.
#[derive(Debug)]
pub struct Queue {
    map: Arc<SharedMap>,
    layout: QueueLayout,
    half: usize,
    capacity: u32,
}

impl Queue {
    /// Size in bytes of the memory for two rings of `capacity` elements, with `capacity` rounded up
    /// to a multiple of 16; `None` if the size is too large.
    pub fn size_bytes(capacity: u32) -> Option<usize> {
        let capacity = rounded(capacity)?;
        Some(2 * region_bytes(capacity))
    }

    /// Creates a queue in fresh, zeroed memory of [`size_bytes`](Self::size_bytes). The capacity is
    /// rounded up to a multiple of 16. With another capacity a counter of the second ring may cross
    /// a cache line, and then the locked instructions of the peer stall every processor.
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
    /// [`Damage`] if the headers of the rings are impossible.
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

    /// Capacity of each ring of the queue region, in elements.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Splits the queue region into the producer and the consumer that `side` uses.
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

/// One of the two rings of a queue region, as producer and consumer access it.
#[derive(Clone, Debug)]
struct Ring {
    map: Arc<SharedMap>,
    layout: QueueLayout,
    base: usize,
    capacity: u32,
}

impl Ring {
    /// Returns the value of the counter at offset `at` of the ring's header. It must be a counter
    /// that only this side stores, or one in memory that the peer does not use yet: the peer must
    /// not change it between the loads of its two words.
    fn counter(&self, at: usize) -> u64 {
        let [low, high] = [0, 4].map(|part| self.map.load(self.base + at + part));
        u64::from(high) << 32 | u64::from(low)
    }

    fn store_counter(&self, at: usize, before: u64, value: u64) {
        let at = self.base + at;
        self.map.store(at, low(value));
        if before >> 32 != value >> 32 {
            // The low word of the counter is stored before the high word. For a moment the peer may
            // see a lower counter than before, but never one above the new value.
            self.map.store(at + 4, low(value >> 32));
        }
    }

    fn load_low(&self, at: usize) -> u32 {
        self.map.load(self.base + at)
    }

    /// Number of elements in the ring: those between the counters `head` and `tail`. [`Damage`] if
    /// the ring cannot have so many.
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
        // The index `slot` is below the capacity of the ring in elements, so the element lies
        // within the mapped memory.
        let slot = low(position % u64::from(self.capacity));
        self.base + HEADER_BYTES + slot as usize * ELEMENT_BYTES
    }

    fn flag(&self) -> usize {
        self.base + self.layout.flag
    }
}

/// Why [`Producer::put`] did not add an element to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutError {
    /// The ring has no room for another element.
    Full,
    /// The peer's counter has an impossible value.
    Damaged(Damage),
}

/// The end of a ring that adds elements. One thread at a time uses it.
#[derive(Debug)]
pub struct Producer {
    ring: Ring,
    tail: u64,
}

impl Producer {
    /// Adds an element to the ring. The caller then calls [`mark_working`](Self::mark_working),
    /// which returns whether to notify the peer.
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

    /// Number of elements that can be added to the ring now.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the peer's counter is impossible.
    pub fn room(&self) -> Result<u32, Damage> {
        let head = self.ring.load_low(self.ring.layout.head);
        Ok(self.ring.capacity - self.ring.pending(head, low(self.tail))?)
    }

    /// Sets the ring's flag. Returns `true` if the peer was idle, so that the caller must notify
    /// the peer by one Polling message.
    pub fn mark_working(&self) -> bool {
        // The fence orders this producer's store of the ring's tail before its load of the ring's
        // flag. The peer, which consumes, does the reverse: it stores the flag and then loads the
        // tail. So at least one of the two sees the other's store, and no wake-up is lost.
        full_fence();
        // The ring's flag is loaded before it is exchanged: an exchange takes the flag's cache line
        // away from a working consumer, and is needed only if the flag is clear.
        self.ring.map.load(self.ring.flag()) == 0
            && self.ring.map.exchange(self.ring.flag(), 0, 1).is_ok()
    }

    /// Whether the peer has taken all elements from this producer's ring.
    pub fn is_drained(&self) -> bool {
        self.room() == Ok(self.ring.capacity)
    }

    /// Capacity of the producer's ring, in elements.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity
    }

    /// Returns a handle for a sender that waits for room in the ring without holding the producer.
    pub fn room_watch(&self) -> RoomWatch {
        let head = self.ring.base + self.ring.layout.head;
        RoomWatch { map: Arc::clone(&self.ring.map), head }
    }

    /// A handle for metrics that reads how full the ring is.
    pub fn fill_watch(&self) -> FillWatch {
        FillWatch { ring: self.ring.clone() }
    }

    /// Whether the file of the queue region was truncated while it was mapped. Reads of the region
    /// then return zeros.
    pub fn is_damaged(&self) -> bool {
        self.ring.map.is_damaged()
    }
}

/// A handle for metrics that reads how full a ring is, while the ring is in use.
#[derive(Clone, Debug)]
pub struct FillWatch {
    ring: Ring,
}

impl FillWatch {
    /// Number of elements in the ring; at most the capacity, even if the peer's counter is
    /// impossible.
    pub fn count(&self) -> u32 {
        let Ring { layout, capacity, .. } = self.ring;
        let head = self.ring.load_low(layout.head);
        self.ring.load_low(layout.tail).wrapping_sub(head).min(capacity)
    }
}

/// A handle by which a waiting sender detects that the peer has taken elements, so that the ring
/// may have room.
#[derive(Clone, Debug)]
pub struct RoomWatch {
    map: Arc<SharedMap>,
    head: usize,
}

impl RoomWatch {
    /// Returns the low word of the counter of elements that the peer has taken. A waiting sender
    /// compares it with an earlier value: if the values differ, the ring may have room.
    pub fn snapshot(&self) -> u32 {
        self.map.load(self.head)
    }
}

/// The end of a ring that takes elements, which the peer adds. One thread at a time uses it.
#[derive(Debug)]
pub struct Consumer {
    ring: Ring,
    head: u64,
    /// The value of this consumer's head that was last stored in the ring, where the peer reads it.
    published: u64,
    /// The low 32 bits of the ring's tail, the peer's counter of added elements, as last loaded.
    tail: u32,
}

impl Consumer {
    /// Takes the next element from the ring, if there is one.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the peer's counter is impossible.
    pub fn pop(&mut self) -> Result<Option<Element>, Damage> {
        if low(self.head) == self.tail {
            // The tail is loaded only when it is needed, because the peer writes the tail's cache
            // line with every element.
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

    /// Stores the head of the ring in shared memory, so that the peer sees the room. The caller
    /// does so when the ring is empty, or when an eighth of its elements was taken.
    pub fn publish_head(&mut self) {
        if self.published == self.head {
            return;
        }
        self.ring.store_counter(self.ring.layout.head, self.published, self.head);
        self.published = self.head;
    }

    /// Number of elements in the consumer's ring.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the peer's counter is impossible.
    pub fn pending(&self) -> Result<u32, Damage> {
        let tail = self.ring.load_low(self.ring.layout.tail);
        self.ring.pending(low(self.head), tail)
    }

    /// Whether the consumer's ring has no elements.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the peer's counter is impossible.
    pub fn is_empty(&self) -> Result<bool, Damage> {
        Ok(self.pending()? == 0)
    }

    /// Clears the ring's flag: from now on the peer notifies when it adds an element. The peer may
    /// not have notified of elements that it added just before, so the caller checks the ring
    /// again.
    pub fn set_idle(&self) {
        self.ring.map.store(self.ring.flag(), 0);
        // The fence orders this consumer's store of the ring's flag before its load of the ring's
        // tail. The producer stores the tail and then loads the flag, with a fence in
        // `mark_working` between. So either the producer sees the cleared flag and notifies, or the
        // consumer sees the new tail.
        full_fence();
    }

    /// Sets the ring's flag: from now on the peer need not notify of elements, because this side
    /// polls the ring.
    pub fn set_working(&self) {
        self.ring.map.store(self.ring.flag(), 1);
    }

    /// Clears the ring's flag, and checks the ring again as [`set_idle`](Self::set_idle) requires.
    /// If the ring has elements, sets its flag again and returns `true`.
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

    /// A handle for metrics that reads how full the ring is.
    pub fn fill_watch(&self) -> FillWatch {
        FillWatch { ring: self.ring.clone() }
    }

    /// Whether the file of the queue region was truncated while it was mapped. Reads of the region
    /// then return zeros.
    pub fn is_damaged(&self) -> bool {
        self.ring.map.is_damaged()
    }
}

/// The consumer stores its head for the peer after it has taken this fraction of the ring's
/// elements: one part in `PUBLISHED_PARTS`.
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

/// Default capacity of a queue in the other implementations, in elements.
pub const CAPACITY_DEFAULT: u32 = 8192;
/// The largest accepted capacity of a ring in elements; such a ring takes 192 MiB.
pub const CAPACITY_MAX: u32 = 1 << 24;
/// The capacity of a created ring is a multiple of this number of elements, so that no counter
/// crosses a cache line.
const CAPACITY_STEP: u32 = 16;
pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const ELEMENT_BYTES: usize = 12;
