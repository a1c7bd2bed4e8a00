// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slab: a sender's allocator of blocks, the memory for payloads that are too large for the
//! record ring (SPEC 5.1).
//!
//! ```text
//!  segment 0 (in the region)    |in flight|  free  |reserved|in flight|   free       |
//!  segment 1 (a further memfd)  |             free                                   |
//!
//!        allocate            commit                       reclaim (the peer returned the id)
//!  free ──────────▶ reserved ───────▶ in flight (the peer reads) ───────▶ free
//!         ▲────────────┘ free
//! ```
//!
//! The allocation state is private memory of the owner. The peer names a block only by its id,
//! which is checked against the blocks in flight. Free memory is held as [`OwnMem`] values:
//! allocation splits one and freeing joins adjacent ones. So two blocks cannot overlap, whatever
//! this file does.
//!
//! The slab allocates no memory from the system, because its user adds segments. It has no lock.

use crate::bins::{Bins, NONE};
use crate::mem::OwnMem;
use crate::recent::Recent;
use alloc::vec::Vec;
use partywall_layout::Violation;
use partywall_layout::record_ring::SLOT_BYTES;
use partywall_layout::seeded_fault;

/// The unit in which the slab allocates, in bytes: one cache line.
const UNIT: usize = 64;
const _: () = assert!(UNIT as u64 == SLOT_BYTES);

/// A piece of a segment of the slab: free, reserved for a message, or in flight to the peer.
#[derive(Debug)]
struct Chunk {
    /// The chunk's memory, or `None` while a [`Block`] holds it.
    mem: Option<OwnMem>,
    is_free: bool,
    /// Index of the chunk's segment in `Slab::segments`.
    segment: u32,
    offset: u64,
    units: u64,
    /// The chunks directly before and after this chunk in its segment; `NONE` where there is none.
    before: u32,
    after: u32,
}

#[derive(Debug)]
struct Segment {
    number: u32,
    bytes: u64,
    /// Index in `Slab::chunks` of the chunk at offset 0 of the segment.
    first: u32,
    /// Number of bytes of the segment that are reserved for a message or in flight to the peer.
    used: u64,
}

/// An entry of the slab's table `tickets`, to which a block id refers. There is one ticket for each
/// block that may be in flight.
#[derive(Debug)]
struct Ticket {
    generation: u32,
    /// Index in `Slab::chunks` of the chunk that holds the block in flight; `NONE` while the ticket
    /// has no block in flight.
    chunk: u32,
}

/// Number of chunks for which the tables of a new slab have entries. The tables grow when more
/// chunks are cut. Most slabs never have more, and tables for all blocks would take 150 KiB of
/// memory per connection.
const CHUNKS_FIRST: usize = 32;

/// A reserved block: memory for one message that only its holder may write, until the block is put
/// in flight or freed.
#[derive(Debug)]
pub struct Block {
    mem: OwnMem,
    chunk: u32,
    len: usize,
}

/// The location of a block in flight, as its BLOB record contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The id of the block in flight, which the peer writes to its release ring.
    pub id: u64,
    /// The number of the segment in which the block lies.
    pub segment: u32,
    /// Offset in bytes of the block in its segment.
    pub offset: u64,
    /// Length in bytes of the message in the block.
    pub length: u64,
}

/// The allocation state of a slab, in its owner's private memory.
#[derive(Debug)]
pub struct Slab {
    bins: Bins,
    chunks: Vec<Chunk>,
    /// Indices of the entries of `Slab::chunks` that hold no chunk and can be reused.
    spare: Vec<u32>,
    /// All segments of the slab by index; `None` where a segment was removed.
    segments: Vec<Option<Segment>>,
    tickets: Vec<Ticket>,
    /// Indices of the entries of `tickets` without a block in flight.
    idle: Vec<u32>,
    reserved: usize,
    bytes: u64,
    recent: Recent,
}

impl Slab {
    /// Creates a slab without memory; [`add_segment`](Self::add_segment) adds memory. At most
    /// `blocks_max` blocks can be reserved or in flight at the same time. `blocks_max` is the
    /// number of entries of the peer's release ring.
    #[must_use]
    pub fn new(blocks_max: u32) -> Self {
        Self {
            bins: Bins::new(CHUNKS_FIRST),
            chunks: Vec::with_capacity(CHUNKS_FIRST),
            spare: Vec::new(),
            segments: Vec::new(),
            tickets: (0..blocks_max).map(|_| Ticket { generation: 0, chunk: NONE }).collect(),
            idle: (0..blocks_max).rev().collect(),
            reserved: 0,
            bytes: 0,
            recent: Recent::new(),
        }
    }

    /// Adds the memory of segment `number`. Bytes after the last whole unit of 64 bytes stay
    /// unused.
    ///
    /// # Panics
    /// If the slab has a segment of that number already.
    pub fn add_segment(&mut self, number: u32, mem: OwnMem) {
        assert!(
            self.segments.iter().flatten().all(|known| known.number != number),
            "segment {number} exists"
        );
        let units = (mem.len() / UNIT) as u64;
        if units == 0 {
            return;
        }
        let bytes = units * SLOT_BYTES;
        let index = self.segments.iter().position(Option::is_none).unwrap_or_else(|| {
            self.segments.push(None);
            self.segments.len() - 1
        });
        #[expect(clippy::cast_possible_truncation, reason = "few segments")]
        let first = self.new_chunk(Chunk {
            mem: Some(mem),
            is_free: true,
            segment: index as u32,
            offset: 0,
            units,
            before: NONE,
            after: NONE,
        });
        self.segments[index] = Some(Segment { number, bytes, first, used: 0 });
        self.bytes += bytes;
        self.bins.insert(first, units);
    }

    /// Reserves a block of `len` bytes. Returns `None` if no free memory is large enough, or too
    /// many blocks are in use.
    #[inline]
    #[must_use]
    pub fn allocate(&mut self, len: usize) -> Option<Block> {
        if self.reserved >= self.idle.len() {
            return None;
        }
        let units = (len.max(1)).div_ceil(UNIT) as u64;
        let chunk = match self.recent.take(units) {
            Some(chunk) => chunk,
            None => self.cut(units)?,
        };
        self.hand_out(chunk, len)
    }

    #[inline(always)]
    fn hand_out(&mut self, chunk: u32, len: usize) -> Option<Block> {
        let this = &mut self.chunks[chunk as usize];
        this.is_free = false;
        let mem = this.mem.take()?;
        let (segment, units) = (this.segment, this.units);
        self.segment_mut(segment).used += units * SLOT_BYTES;
        self.reserved += 1;
        Some(Block { mem, chunk, len })
    }

    /// Reserves a block of `len` bytes without a search, in a recently freed chunk of that size.
    /// Returns `None` if there is no such chunk, or too many blocks are in use.
    #[inline(always)]
    #[must_use]
    pub fn allocate_recent(&mut self, len: usize) -> Option<Block> {
        if self.reserved >= self.idle.len() {
            return None;
        }
        let chunk = self.recent.take((len.max(1)).div_ceil(UNIT) as u64)?;
        self.hand_out(chunk, len)
    }

    /// Whether a recently freed chunk fits a block of `len` bytes exactly, so that
    /// [`allocate_recent`](Self::allocate_recent) would find it without a search.
    #[inline]
    #[must_use]
    pub fn has_recent(&self, len: usize) -> bool {
        self.recent.has((len.max(1)).div_ceil(UNIT) as u64)
    }

    /// Cuts a chunk of `units` units of 64 bytes out of a free chunk that is large enough.
    fn cut(&mut self, units: u64) -> Option<u32> {
        let chunk = match self.bins.find(units) {
            Some(chunk) => chunk,
            None => {
                // No free chunk is large enough. Joining the recently freed chunks with adjacent
                // free ones may make such a chunk.
                self.join_recent();
                self.bins.find(units)?
            }
        };
        self.bins.remove(chunk);
        self.split(chunk, units);
        Some(chunk)
    }

    /// Puts the reserved block in flight: its bytes stay unchanged until the peer returns its id.
    ///
    /// # Panics
    /// If the block belongs to another slab.
    #[inline]
    #[must_use]
    pub fn commit(&mut self, block: Block) -> Place {
        let Block { mem, chunk, len } = block;
        let this = &mut self.chunks[chunk as usize];
        assert!(this.mem.is_none() && !this.is_free, "the block belongs to another slab");
        this.mem = Some(mem);
        let (segment, offset) = (this.segment, this.offset);
        self.reserved -= 1;
        // Invariant: at most as many blocks are reserved or in flight as there are tickets. So a
        // reserved block finds an idle ticket.
        let ticket = self.idle.pop().unwrap_or(NONE);
        let slot = &mut self.tickets[ticket as usize];
        slot.chunk = chunk;
        let id = u64::from(ticket) | u64::from(slot.generation) << 32;
        let segment = self.segment_mut(segment).number;
        Place { id, segment, offset, length: len as u64 }
    }

    /// Frees a reserved block.
    ///
    /// # Panics
    /// If the block belongs to another slab.
    #[inline]
    pub fn free(&mut self, block: Block) {
        let this = &mut self.chunks[block.chunk as usize];
        assert!(this.mem.is_none() && !this.is_free, "the block belongs to another slab");
        this.mem = Some(block.mem);
        self.reserved -= 1;
        self.release_chunk(block.chunk);
    }

    /// Frees block `id`, which the peer returned.
    ///
    /// # Errors
    /// [`Violation::Block`] if that block is not in flight.
    #[inline]
    pub fn reclaim(&mut self, id: u64) -> Result<(), Violation> {
        #[expect(clippy::cast_possible_truncation, reason = "an id is ticket and generation")]
        let (ticket, generation) = (id as u32, (id >> 32) as u32);
        let Some(slot) = self.tickets.get_mut(ticket as usize) else {
            return Err(Violation::Block { id });
        };
        if slot.chunk == NONE || slot.generation != generation {
            return Err(Violation::Block { id });
        }
        let chunk = core::mem::replace(&mut slot.chunk, NONE);
        if !seeded_fault("same_generation") {
            slot.generation = slot.generation.wrapping_add(1);
        }
        self.idle.push(ticket);
        self.release_chunk(chunk);
        Ok(())
    }

    /// Removes a segment in which no block is reserved or in flight, if there is one. Segment 0
    /// always stays.
    #[must_use]
    pub fn take_idle_segment(&mut self) -> Option<(u32, OwnMem)> {
        self.join_recent();
        let index = self.segments.iter().position(|segment| {
            segment.as_ref().is_some_and(|segment| segment.number != 0 && segment.used == 0)
        })?;
        let segment = self.segments[index].take()?;
        self.bins.remove(segment.first);
        self.bytes -= segment.bytes;
        let mem = self.chunks[segment.first as usize].mem.take()?;
        self.spare.push(segment.first);
        Some((segment.number, mem))
    }

    /// Whether the slab has a segment, other than segment 0, in which no block is reserved or in
    /// flight.
    #[must_use]
    pub fn has_idle_segment(&self) -> bool {
        self.segments.iter().flatten().any(|segment| segment.number != 0 && segment.used == 0)
    }

    /// Number of blocks of the slab that are in flight to the peer.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        (self.tickets.len() - self.idle.len()) as u64
    }

    /// Size of all segments of the slab in bytes, used or not.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of segments of the slab, segment 0 included.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.iter().flatten().count()
    }

    /// Number of bytes of the slab that are reserved or in flight.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.segments.iter().flatten().map(|segment| segment.used).sum()
    }

    /// Whether the slab's limit of blocks is reached: `blocks_max` blocks are reserved or in
    /// flight, so more memory would not help.
    #[must_use]
    pub fn is_at_block_limit(&self) -> bool {
        self.reserved >= self.idle.len()
    }

    /// Shortens `chunk`, which is in no list of free chunks, to `units` units of 64 bytes. The rest
    /// becomes a free chunk.
    fn split(&mut self, chunk: u32, units: u64) {
        let this = &mut self.chunks[chunk as usize];
        let rest_units = this.units - units;
        if rest_units == 0 {
            return;
        }
        let Some(mem) = this.mem.take() else { return };
        #[expect(clippy::cast_possible_truncation, reason = "within mapped memory")]
        let (mem, rest) = mem.split_at((units * SLOT_BYTES) as usize);
        this.mem = Some(mem);
        this.units = units;
        let rest = Chunk {
            mem: Some(rest),
            is_free: true,
            segment: this.segment,
            offset: this.offset + units * SLOT_BYTES,
            units: rest_units,
            before: chunk,
            after: this.after,
        };
        let after = rest.after;
        let rest = self.new_chunk(rest);
        self.chunks[chunk as usize].after = rest;
        if after != NONE {
            self.chunks[after as usize].before = rest;
        }
        self.bins.insert(rest, rest_units);
    }

    /// Frees a chunk into the list of recently freed chunks. The next allocation of its size takes
    /// it from there without a search.
    #[inline]
    fn release_chunk(&mut self, chunk: u32) {
        let this = &self.chunks[chunk as usize];
        let (segment, units) = (this.segment, this.units);
        self.segment_mut(segment).used -= units * SLOT_BYTES;
        let [evicted, rest] = self.recent.insert(units, chunk);
        if let Some(evicted) = evicted {
            self.join(evicted);
        }
        if let Some(rest) = rest {
            self.join(rest);
        }
    }

    /// Empties the list of recently freed chunks: joins each of them with adjacent free chunks.
    fn join_recent(&mut self) {
        while let Some(chunk) = self.recent.take_any() {
            self.join(chunk);
        }
    }

    /// Frees `chunk`, and joins it with adjacent chunks that are free.
    fn join(&mut self, chunk: u32) {
        self.chunks[chunk as usize].is_free = true;
        let (before, after) =
            (self.chunks[chunk as usize].before, self.chunks[chunk as usize].after);
        if self.is_free(after) {
            self.bins.remove(after);
            self.absorb(chunk, after);
        }
        let mut whole = chunk;
        if self.is_free(before) {
            self.bins.remove(before);
            self.absorb(before, chunk);
            whole = before;
        }
        self.bins.insert(whole, self.chunks[whole as usize].units);
    }

    fn is_free(&self, chunk: u32) -> bool {
        self.chunks.get(chunk as usize).is_some_and(|chunk| chunk.is_free)
    }

    /// Joins chunk `left` with the adjacent chunk `right`. Both chunks are free, and in no list of
    /// free chunks.
    fn absorb(&mut self, left: u32, right: u32) {
        let right_chunk = &mut self.chunks[right as usize];
        let (mem, units, after) = (right_chunk.mem.take(), right_chunk.units, right_chunk.after);
        right_chunk.is_free = false;
        let left_chunk = &mut self.chunks[left as usize];
        left_chunk.mem = match (left_chunk.mem.take(), mem) {
            (Some(left), Some(right)) => Some(left.join(right)),
            (left, right) => left.or(right),
        };
        left_chunk.units += units;
        left_chunk.after = after;
        if after != NONE {
            self.chunks[after as usize].before = left;
        }
        self.spare.push(right);
    }

    fn new_chunk(&mut self, chunk: Chunk) -> u32 {
        if let Some(index) = self.spare.pop() {
            self.chunks[index as usize] = chunk;
            return index;
        }
        self.chunks.push(chunk);
        #[expect(clippy::cast_possible_truncation, reason = "bounded by blocks and segments")]
        let index = (self.chunks.len() - 1) as u32;
        index
    }

    #[inline]
    fn segment_mut(&mut self, index: u32) -> &mut Segment {
        // The chunk's segment exists, because `take_idle_segment` removes no segment of which a
        // chunk is used.
        #[expect(clippy::unwrap_used, reason = "the line above")]
        self.segments[index as usize].as_mut().unwrap()
    }
}

impl Block {
    /// The memory of the block for writing, up to the length of the message.
    #[cfg(not(loom))]
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len;
        self.mem.slice_mut(0, len)
    }

    /// The bytes of the block for reading, up to the length of the message.
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.mem.slice(0, self.len)
    }

    /// Copies `bytes` into the block, from the block's byte `offset` on.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "beyond the block");
        self.mem.write(offset, bytes);
    }

    /// Length in bytes of the message that the block holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the message that the block holds has length 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shortens the message in the block to `len` bytes. The block keeps its memory.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}
