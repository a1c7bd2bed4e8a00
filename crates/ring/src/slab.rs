// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for payloads too large to go inline (SPEC 5.1).
//!
//! ```text
//!  segment 0 (in the half)      |out 3|  free  |reserved|out 7|      free            |
//!  segment 1 (a further memfd)  |             free                                   |
//!
//!        allocate            commit                     reclaim (its id came home)
//!  free ──────────▶ reserved ───────▶ out (the neighbour reads) ───────▶ free
//!         ▲────────────┘ free
//! ```
//!
//! All bookkeeping is private memory of the owner; the neighbour only ever names a block by the id
//! it was given, and that id is checked against what is really out. Free memory is held as
//! [`OwnMem`] values: allocating splits one, freeing joins neighbours, so two blocks cannot overlap
//! whatever this file does.
//!
//! What this does *not* do: it makes no memory (segments are given to it) and has no lock.

use crate::bins::{Bins, NONE};
use crate::mem::OwnMem;
use crate::recent::Recent;
use alloc::vec::Vec;
use partywall_layout::Violation;
use partywall_layout::record_ring::SLOT_BYTES;
use partywall_layout::seeded_fault;

/// The unit of allocation: one cache line.
const UNIT: usize = 64;
const _: () = assert!(UNIT as u64 == SLOT_BYTES);

/// A piece of a segment: free, reserved or out.
#[derive(Debug)]
struct Chunk {
    /// The memory; `None` while a [`Block`] holds it.
    mem: Option<OwnMem>,
    is_free: bool,
    /// Index in `Slab::segments`.
    segment: u32,
    offset: u64,
    units: u64,
    /// The chunks that touch this one in its segment.
    before: u32,
    after: u32,
}

#[derive(Debug)]
struct Segment {
    number: u32,
    bytes: u64,
    /// The chunk at offset 0.
    first: u32,
    /// Bytes that are reserved or out.
    used: u64,
}

/// One that may be out with the neighbour; ids name these.
#[derive(Debug)]
struct Ticket {
    generation: u32,
    /// The chunk that is out, or `NONE`.
    chunk: u32,
}

/// A reserved block: memory that nobody else has, until it is committed or freed.
#[derive(Debug)]
pub struct Block {
    mem: OwnMem,
    chunk: u32,
    len: usize,
}

/// Where a committed block lies, as a BLOB record tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the neighbour writes to its release ring.
    pub id: u64,
    /// The segment's number.
    pub segment: u32,
    /// Where in the segment.
    pub offset: u64,
    /// How many bytes of it are the message.
    pub length: u64,
}

/// The owner's books over its slab.
#[derive(Debug)]
pub struct Slab {
    bins: Bins,
    chunks: Vec<Chunk>,
    /// Numbers of `chunks` that stand for nothing.
    spare: Vec<u32>,
    /// `None` where a segment was taken away.
    segments: Vec<Option<Segment>>,
    tickets: Vec<Ticket>,
    /// Numbers of `tickets` that are not out.
    idle: Vec<u32>,
    reserved: usize,
    bytes: u64,
    recent: Recent,
}

impl Slab {
    /// A slab without memory, of which at most `blocks_max` blocks can be reserved or out at a
    /// time: the size of the neighbour's release ring.
    #[must_use]
    pub fn new(blocks_max: u32) -> Self {
        let chunks = 2 * blocks_max as usize + 64;
        Self {
            bins: Bins::new(chunks),
            chunks: Vec::with_capacity(chunks),
            spare: Vec::with_capacity(chunks),
            segments: Vec::with_capacity(64),
            tickets: (0..blocks_max).map(|_| Ticket { generation: 0, chunk: NONE }).collect(),
            idle: (0..blocks_max).rev().collect(),
            reserved: 0,
            bytes: 0,
            recent: Recent::new(),
        }
    }

    /// Adds the memory of segment `number`; what does not fill whole units is not used.
    ///
    /// # Panics
    /// If a segment of that number is there already.
    pub fn add_segment(&mut self, number: u32, mem: OwnMem) {
        assert!(self.segments.iter().flatten().all(|known| known.number != number), "known");
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

    /// A block of `len` bytes, or `None` if there is no such memory, or too many blocks are in use.
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

    #[inline]
    fn hand_out(&mut self, chunk: u32, len: usize) -> Option<Block> {
        let this = &mut self.chunks[chunk as usize];
        this.is_free = false;
        let mem = this.mem.take()?;
        let (segment, units) = (this.segment, this.units);
        self.segment_mut(segment).used += units * SLOT_BYTES;
        self.reserved += 1;
        Some(Block { mem, chunk, len })
    }

    /// A block of `len` bytes that was given back a moment ago, as it is.
    #[inline]
    #[must_use]
    pub fn allocate_recent(&mut self, len: usize) -> Option<Block> {
        if self.reserved >= self.idle.len() {
            return None;
        }
        let chunk = self.recent.take((len.max(1)).div_ceil(UNIT) as u64)?;
        self.hand_out(chunk, len)
    }

    /// Whether a block of `len` bytes was given back a moment ago and can be had at once.
    #[inline]
    #[must_use]
    pub fn has_recent(&self, len: usize) -> bool {
        self.recent.has((len.max(1)).div_ceil(UNIT) as u64)
    }

    /// Cuts a chunk of `units` out of the smallest that is large enough.
    fn cut(&mut self, units: u64) -> Option<u32> {
        let chunk = match self.bins.find(units) {
            Some(chunk) => chunk,
            None => {
                // What is kept apart may be what is missing.
                self.join_recent();
                self.bins.find(units)?
            }
        };
        self.bins.remove(chunk);
        self.split(chunk, units);
        Some(chunk)
    }

    /// Gives the block to the neighbour: it stays untouched until its id comes home.
    ///
    /// # Panics
    /// If the block is another slab's.
    #[inline]
    #[must_use]
    pub fn commit(&mut self, block: Block) -> Place {
        let Block { mem, chunk, len } = block;
        let this = &mut self.chunks[chunk as usize];
        assert!(this.mem.is_none() && !this.is_free, "the block is not one of this slab");
        this.mem = Some(mem);
        let (segment, offset) = (this.segment, this.offset);
        self.reserved -= 1;
        // Invariant: reserved + out ≤ tickets, so a reserved block finds one idle.
        let ticket = self.idle.pop().unwrap_or(NONE);
        let slot = &mut self.tickets[ticket as usize];
        slot.chunk = chunk;
        let id = u64::from(ticket) | u64::from(slot.generation) << 32;
        let segment = self.segment_mut(segment).number;
        Place { id, segment, offset, length: len as u64 }
    }

    /// Gives the block back unused.
    ///
    /// # Panics
    /// If the block is another slab's.
    #[inline]
    pub fn free(&mut self, block: Block) {
        let this = &mut self.chunks[block.chunk as usize];
        assert!(this.mem.is_none() && !this.is_free, "the block is not one of this slab");
        this.mem = Some(block.mem);
        self.reserved -= 1;
        self.release_chunk(block.chunk);
    }

    /// The neighbour says that it has finished with block `id`.
    ///
    /// # Errors
    /// [`Violation::Block`] if that block is not out.
    #[inline]
    pub fn reclaim(&mut self, id: u64) -> Result<(), Violation> {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of an id")]
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

    /// Takes a segment away of which nothing is in use; never number 0.
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

    /// Whether [`take_idle_segment`](Self::take_idle_segment) would find one.
    #[must_use]
    pub fn has_idle_segment(&self) -> bool {
        self.segments.iter().flatten().any(|segment| segment.number != 0 && segment.used == 0)
    }

    /// How many blocks the neighbour holds.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        (self.tickets.len() - self.idle.len()) as u64
    }

    /// How many bytes of memory there are, used or not.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many segments there are, the first included.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.iter().flatten().count()
    }

    /// How many bytes are reserved or out.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.segments.iter().flatten().map(|segment| segment.used).sum()
    }

    /// Whether as many blocks are reserved or out as may be: more memory would not help.
    #[must_use]
    pub fn is_at_block_limit(&self) -> bool {
        self.reserved >= self.idle.len()
    }

    /// Cuts the chunk, which is in no list, down to `units`; the rest becomes a free chunk.
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

    /// Takes back a chunk that was used. The next one of its size gets it as it is.
    #[inline]
    fn release_chunk(&mut self, chunk: u32) {
        let this = &self.chunks[chunk as usize];
        let (segment, units) = (this.segment, this.units);
        self.segment_mut(segment).used -= units * SLOT_BYTES;
        let [gone, rest] = self.recent.keep(units, chunk);
        if let Some(gone) = gone {
            self.join(gone);
        }
        if let Some(rest) = rest {
            self.join(rest);
        }
    }

    /// Makes all chunks free that were kept apart.
    fn join_recent(&mut self) {
        while let Some(chunk) = self.recent.take_any() {
            self.join(chunk);
        }
    }

    /// Makes a chunk free, joins it with free neighbours.
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

    /// `left` becomes one with `right`, which touches it; both are free and in no list.
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
        // A chunk's segment exists as long as any of it is used: `take_idle_segment` asks.
        #[expect(clippy::unwrap_used, reason = "the line above")]
        self.segments[index as usize].as_mut().unwrap()
    }
}

impl Block {
    /// The memory of the block, as long as was asked for.
    #[cfg(not(loom))]
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len;
        self.mem.slice_mut(0, len)
    }

    /// What was written so far.
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.mem.slice(0, self.len)
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "beyond the block");
        self.mem.write(offset, bytes);
    }

    /// How many bytes were asked for.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the block has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes the message shorter than was asked for; the block stays as it is.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}
