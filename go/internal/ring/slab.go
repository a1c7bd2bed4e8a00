// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"fmt"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

// Slab divides the memory for payloads that are too long for the ring into blocks (SPEC 5.1).
//
//	segment 0 (in the region)    |in flight|  free  |reserved|in flight|  free  |
//	segment 1 (a further memfd)  |                   free                       |
//
//	     Reserve             Commit                    Reclaim (the peer returned the id)
//	free ──────────▶ reserved ───────▶ in flight (the peer reads) ───────▶ free
//	     ◀────────── Free
//
// All of its state is private memory of this process. The peer knows a block by its id, which is
// checked against the blocks in flight.
//
// Invariants: the chunks of a segment cover it without overlap, and no two adjacent ones are free.
type Slab struct {
	free     freeIndex
	chunks   []chunk
	spare    []uint32 // indices of chunks that are no part of a segment
	segments []slabSegment
	tickets  []ticket
	idle     []uint32 // indices of tickets without a block in flight
	reserved int      // number of blocks
}

// chunk is a contiguous piece of a segment of the slab: free, reserved, or in flight.
type chunk struct {
	segment       uint32 // number of the segment
	offset, units uint64 // in the segment in bytes, and length in units of unitBytes
	before, after uint32 // adjacent chunks of the segment, or none
	isFree        bool
}

type slabSegment struct {
	number uint32
	memory mem.Own
	first  uint32 // the chunk at offset 0
	used   uint64 // units that are reserved or in flight
}

// ticket is what a block id refers to. Its generation counts the blocks that have used it, so that
// an id which the peer returns twice does not free a later block.
type ticket struct {
	generation uint32
	chunk      uint32 // none while no block is in flight
}

// Block is a reserved block of the slab. Its memory holds bytes of earlier messages until the
// caller writes it.
type Block struct {
	memory mem.Own
	chunk  uint32
}

// Bytes returns the memory of the block, with the length that was reserved. The caller writes it
// before [Slab.Commit], and does not use it later.
func (b Block) Bytes() []byte { return b.memory.Bytes(0, b.memory.Len()) }

// NewSlab returns a slab without memory. At most blocksMax of its blocks are reserved or in flight
// at once; the peer states this number in its HELLO, as "peer blocks max" (SPEC 5.3).
func NewSlab(blocksMax uint32) *Slab {
	s := &Slab{tickets: make([]ticket, blocksMax), idle: make([]uint32, blocksMax)}
	for i := range s.tickets {
		s.tickets[i].chunk = none
		s.idle[i] = blocksMax - 1 - uint32(i)
	}
	s.free.init()
	return s
}

// AddSegment adds the memory of the segment with this number to the slab; number 0 is the part of
// the region. Bytes after the last whole unit of 64 stay unused. AddSegment panics if the slab has
// the segment already.
func (s *Slab) AddSegment(number uint32, memory mem.Own) {
	if s.segment(number) != nil {
		panic(fmt.Sprintf("ring: segment %d is there already", number))
	}
	units := memory.Len() / unitBytes
	if units == 0 {
		return
	}
	first := s.newChunk(chunk{segment: number, units: units, before: none, after: none})
	s.segments = append(s.segments, slabSegment{number: number, memory: memory, first: first})
	s.setFree(first)
}

// Reserve reserves a block of n bytes. It returns false if no free memory is large enough, or if as
// many blocks are in use as the slab may have.
func (s *Slab) Reserve(n uint64) (Block, bool) {
	if s.reserved >= len(s.idle) || n > 1<<62 {
		return Block{}, false
	}
	units := (max(n, 1) + unitBytes - 1) / unitBytes
	found := s.free.find(units)
	if found == none {
		return Block{}, false
	}
	s.free.remove(found)
	s.split(found, units)
	this := &s.chunks[found]
	this.isFree = false
	segment := s.segment(this.segment)
	segment.used += units
	s.reserved++
	return Block{memory: segment.memory.Part(this.offset, n), chunk: found}, true
}

// Commit puts a reserved block in flight, and returns the content of the record BLOB with which the
// caller then publishes the block. This process must not write to the block until the peer has
// returned its id.
func (s *Slab) Commit(b Block) layout.Blob {
	last := len(s.idle) - 1
	// A ticket is free here, because Reserve allows no more blocks than there are tickets.
	index := s.idle[last]
	s.idle = s.idle[:last]
	s.reserved--
	t := &s.tickets[index]
	t.chunk = b.chunk
	this := &s.chunks[b.chunk]
	return layout.Blob{
		Block:   uint64(t.generation)<<32 | uint64(index),
		Segment: this.segment,
		Offset:  this.offset,
		Length:  b.memory.Len(),
	}
}

// Free frees a reserved block that was not committed.
func (s *Slab) Free(b Block) {
	s.reserved--
	s.release(b.chunk)
}

// Reclaim frees the block with this id, which the peer returned. The error is a violation: no such
// block is in flight.
func (s *Slab) Reclaim(id uint64) error {
	index, generation := uint32(id), uint32(id>>32)
	if uint64(index) >= uint64(len(s.tickets)) {
		return fmt.Errorf("block %#x was never given: %w", id, layout.ViolationBlock)
	}
	t := &s.tickets[index]
	if t.chunk == none || t.generation != generation {
		return fmt.Errorf("block %#x is not in flight: %w", id, layout.ViolationBlock)
	}
	freed := t.chunk
	t.chunk = none
	if !fault.Is("same_generation") {
		t.generation++
	}
	s.idle = append(s.idle, index)
	s.release(freed)
	return nil
}

// TakeIdleSegment removes a segment of which no block is reserved or in flight, if there is one. It
// returns the segment's number and memory. Segment 0 always stays.
func (s *Slab) TakeIdleSegment() (uint32, mem.Own, bool) {
	for i, segment := range s.segments {
		if segment.number == 0 || segment.used != 0 {
			continue
		}
		// The segment is now a single free chunk, because adjacent free chunks are always joined.
		s.free.remove(segment.first)
		s.spare = append(s.spare, segment.first)
		s.segments = append(s.segments[:i], s.segments[i+1:]...)
		return segment.number, segment.memory, true
	}
	return 0, mem.Own{}, false
}

// InFlight returns the number of blocks in flight.
func (s *Slab) InFlight() uint64 { return uint64(len(s.tickets) - len(s.idle)) }

// Bytes returns the total size of all segments of the slab in bytes, where each segment counts in
// whole units of 64.
func (s *Slab) Bytes() uint64 {
	var bytes uint64
	for _, segment := range s.segments {
		bytes += segment.memory.Len() / unitBytes * unitBytes
	}
	return bytes
}

// split shortens a chunk to the given number of units, and makes the rest of it a free chunk.
func (s *Slab) split(index uint32, units uint64) {
	this := s.chunks[index]
	if this.units == units {
		return
	}
	rest := s.newChunk(chunk{
		segment: this.segment,
		offset:  this.offset + units*unitBytes,
		units:   this.units - units,
		before:  index,
		after:   this.after,
	})
	if this.after != none {
		s.chunks[this.after].before = rest
	}
	s.chunks[index].units, s.chunks[index].after = units, rest
	s.setFree(rest)
}

// release frees a chunk, and joins it with adjacent free chunks.
func (s *Slab) release(index uint32) {
	this := &s.chunks[index]
	s.segment(this.segment).used -= this.units
	if after := this.after; after != none && s.chunks[after].isFree && !fault.Is("no_join") {
		s.free.remove(after)
		s.join(index, after)
	}
	if before := this.before; before != none && s.chunks[before].isFree && !fault.Is("no_join") {
		s.free.remove(before)
		s.join(before, index)
		index = before
	}
	s.setFree(index)
}

// join adds the chunk second to the chunk first, which lies directly before it.
func (s *Slab) join(first, second uint32) {
	after := s.chunks[second].after
	s.chunks[first].units += s.chunks[second].units
	s.chunks[first].after = after
	if after != none {
		s.chunks[after].before = first
	}
	s.spare = append(s.spare, second)
}

func (s *Slab) setFree(index uint32) {
	s.chunks[index].isFree = true
	s.free.insert(index, s.chunks[index].units)
}

func (s *Slab) newChunk(c chunk) uint32 {
	if last := len(s.spare) - 1; last >= 0 {
		index := s.spare[last]
		s.spare = s.spare[:last]
		s.chunks[index] = c
		return index
	}
	s.chunks = append(s.chunks, c)
	return uint32(len(s.chunks) - 1)
}

// segment returns the segment with this number, or nil. A linear search is enough for a few
// segments.
func (s *Slab) segment(number uint32) *slabSegment {
	for i := range s.segments {
		if s.segments[i].number == number {
			return &s.segments[i]
		}
	}
	return nil
}

const (
	// unitBytes is the unit in which the slab allocates memory: one cache line.
	unitBytes = layout.SlotBytes

	// none is the chunk number that means "no chunk".
	none = ^uint32(0)
)
