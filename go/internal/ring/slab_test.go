// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"math/rand/v2"
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

func newSlab(blocksMax uint32, bytes uint64) *Slab {
	s := NewSlab(blocksMax)
	s.AddSegment(0, mem.Allocate(bytes))
	return s
}

func reserve(t *testing.T, s *Slab, n uint64) Block {
	t.Helper()
	block, isThere := s.Reserve(n)
	if !isThere || uint64(len(block.Bytes())) != n {
		t.Fatalf("no block of %d bytes", n)
	}
	return block
}

func TestBlockSaysWhereItLies(t *testing.T) {
	memory := mem.Allocate(4096)
	s := NewSlab(8)
	s.AddSegment(0, memory)
	first := reserve(t, s, 100)
	second := reserve(t, s, 64)
	copy(second.Bytes(), "message")
	blob := s.Commit(second)
	if blob.Segment != 0 || blob.Length != 64 || blob.HasCredit {
		t.Errorf("%+v", blob)
	}
	if got := memory.Bytes(blob.Offset, 7); string(got) != "message" {
		t.Errorf("the message lies elsewhere: %q", got)
	}
	s.Free(first)
	if s.InFlight() != 1 {
		t.Errorf("%d blocks in flight", s.InFlight())
	}
	if err := s.Reclaim(blob.Block); err != nil {
		t.Error(err)
	}
}

func TestBlockReturnedTwiceIsRefused(t *testing.T) {
	s := newSlab(1, 4096)
	blob := s.Commit(reserve(t, s, 10))
	if err := s.Reclaim(blob.Block); err != nil {
		t.Fatal(err)
	}
	isViolation(t, s.Reclaim(blob.Block), layout.ViolationBlock)
	// The new block has the ticket of the old one, with another generation. So the old id must not
	// be taken for the new block.
	next := s.Commit(reserve(t, s, 10))
	isViolation(t, s.Reclaim(blob.Block), layout.ViolationBlock)
	if err := s.Reclaim(next.Block); err != nil {
		t.Error(err)
	}
}

func TestBlockNeverGivenIsRefused(t *testing.T) {
	s := newSlab(4, 4096)
	blob := s.Commit(reserve(t, s, 10))
	reserve(t, s, 10)
	for _, id := range []uint64{1, 3, 4, 1 << 32, ^uint64(0), blob.Block + 1<<32} {
		isViolation(t, s.Reclaim(id), layout.ViolationBlock)
	}
	if s.InFlight() != 1 {
		t.Errorf("%d blocks in flight", s.InFlight())
	}
}

func TestBlocksAreBounded(t *testing.T) {
	s := newSlab(3, 1<<20)
	committed := s.Commit(reserve(t, s, 1))
	held := reserve(t, s, 1)
	s.Commit(reserve(t, s, 1))
	if _, isThere := s.Reserve(1); isThere {
		t.Error("more blocks than the release ring has entries")
	}
	s.Free(held)
	reserve(t, s, 1)
	if err := s.Reclaim(committed.Block); err != nil {
		t.Fatal(err)
	}
	reserve(t, s, 1)
}

func TestAdjacentFreeChunksAreJoined(t *testing.T) {
	s := newSlab(8, 4*unitBytes)
	blocks := []Block{reserve(t, s, 64), reserve(t, s, 64), reserve(t, s, 64), reserve(t, s, 64)}
	for _, i := range []int{0, 2, 1, 3} {
		s.Free(blocks[i])
	}
	s.Free(reserve(t, s, 4*unitBytes))
}

func TestLengthBeyondMemoryIsRefused(t *testing.T) {
	s := newSlab(8, 4096)
	for _, n := range []uint64{4097, 1 << 40, ^uint64(0), ^uint64(62)} {
		if _, isThere := s.Reserve(n); isThere {
			t.Errorf("a block of %d bytes", n)
		}
	}
	s.Free(reserve(t, s, 0))
	s.Free(reserve(t, s, 4096))
}

func TestIdleSegmentIsTaken(t *testing.T) {
	s := newSlab(8, 4096)
	s.AddSegment(1, mem.Allocate(65536))
	if s.Bytes() != 4096+65536 {
		t.Errorf("%d bytes", s.Bytes())
	}
	blob := s.Commit(reserve(t, s, 60000))
	if blob.Segment != 1 {
		t.Errorf("%+v", blob)
	}
	if _, _, isThere := s.TakeIdleSegment(); isThere {
		t.Error("a segment with a block in flight was taken")
	}
	if err := s.Reclaim(blob.Block); err != nil {
		t.Fatal(err)
	}
	number, memory, isThere := s.TakeIdleSegment()
	if !isThere || number != 1 || memory.Len() != 65536 || s.Bytes() != 4096 {
		t.Errorf("segment %d of %d bytes, %v", number, memory.Len(), isThere)
	}
	if _, isThere := s.Reserve(60000); isThere {
		t.Error("a block of a segment that was taken")
	}
	if _, _, isThere := s.TakeIdleSegment(); isThere {
		t.Error("the slab itself was taken")
	}
	mustPanic(t, "segment 0 again", func() { s.AddSegment(0, memory) })
}

// A slabModel performs random operations on a slab. It keeps a list of the blocks in use, and fills
// each with its own stamp, so that overlapping blocks are noticed.
type slabModel struct {
	slab     *Slab
	memories map[uint32]mem.Own
	reserved []Block
	inFlight []layout.Blob
	stamp    byte
	stamps   map[uint64]byte // by block id: what its bytes were filled with
}

func TestSlabAgreesWithIntervals(t *testing.T) {
	for seed := range uint64(20) {
		random := seeded(t, seed)
		m := &slabModel{
			slab:     NewSlab(16),
			memories: map[uint32]mem.Own{0: mem.Allocate(8192), 1: mem.Allocate(65536)},
			stamps:   map[uint64]byte{},
		}
		for number, memory := range m.memories {
			m.slab.AddSegment(number, memory)
		}
		for range 2000 {
			m.step(t, random)
		}
		for _, block := range m.reserved {
			m.slab.Free(block)
		}
		for _, blob := range m.inFlight {
			if err := m.slab.Reclaim(blob.Block); err != nil {
				t.Fatal(err)
			}
		}
		// All blocks were freed before, so the whole larger segment can be reserved as one block.
		m.slab.Free(reserve(t, m.slab, 65536))
	}
}

// step performs a random operation on the slab: reserve, free, commit or reclaim a block. It checks
// that the bytes of a reclaimed block are unchanged.
func (m *slabModel) step(t *testing.T, random *rand.Rand) {
	t.Helper()
	switch action := random.IntN(4); {
	case action <= 1:
		if block, isThere := m.slab.Reserve(random.Uint64N(9000)); isThere {
			m.reserved = append(m.reserved, block)
		}
	case action == 2 && len(m.reserved) > 0:
		i := random.IntN(len(m.reserved))
		block := m.reserved[i]
		m.reserved = append(m.reserved[:i], m.reserved[i+1:]...)
		if random.IntN(4) == 0 {
			m.slab.Free(block)
			return
		}
		m.stamp++
		for j := range block.Bytes() {
			block.Bytes()[j] = m.stamp
		}
		blob := m.slab.Commit(block)
		if _, isThere := m.stamps[blob.Block]; isThere {
			t.Fatalf("two blocks in flight have the id %#x", blob.Block)
		}
		m.stamps[blob.Block] = m.stamp
		m.inFlight = append(m.inFlight, blob)
	case action == 3 && len(m.inFlight) > 0:
		i := random.IntN(len(m.inFlight))
		blob := m.inFlight[i]
		m.inFlight = append(m.inFlight[:i], m.inFlight[i+1:]...)
		for _, b := range m.memories[blob.Segment].Bytes(blob.Offset, blob.Length) {
			if b != m.stamps[blob.Block] {
				t.Fatalf("the bytes of block %#x changed in flight", blob.Block)
			}
		}
		delete(m.stamps, blob.Block)
		if err := m.slab.Reclaim(blob.Block); err != nil {
			t.Fatal(err)
		}
	}
	if m.slab.InFlight() != uint64(len(m.inFlight)) {
		t.Fatalf("%d blocks in flight, want %d", m.slab.InFlight(), len(m.inFlight))
	}
}
