// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

const testEntries = layout.ReleaseEntriesMin

type releasePair struct {
	entries, control mem.Own // of the releasing side
	releaser         *Releaser
	reclaimer        *Reclaimer
}

func newReleasePair() *releasePair {
	p := &releasePair{
		entries: mem.Allocate(testEntries * mem.WordBytes),
		control: mem.Allocate(layout.PageBytes),
	}
	p.releaser = NewReleaser(p.entries, p.control)
	p.reclaimer = NewReclaimer(p.entries.Peer(), p.control.Peer())
	return p
}

func TestReleasedBlocksComeInOrder(t *testing.T) {
	p := newReleasePair()
	for lap := range uint64(5) {
		if p.reclaimer.HasReturned() {
			t.Fatal("blocks where none was released")
		}
		for i := range uint64(testEntries) {
			p.releaser.Release(lap<<32 | i)
		}
		if !p.reclaimer.HasReturned() {
			t.Fatal("released blocks are not seen")
		}
		for i := range uint64(testEntries) {
			id, isThere, err := p.reclaimer.Next(testEntries - i)
			if err != nil || !isThere || id != lap<<32|i {
				t.Fatalf("block %d of lap %d: %#x, %v, %v", i, lap, id, isThere, err)
			}
		}
		if _, isThere, err := p.reclaimer.Next(0); isThere || err != nil {
			t.Fatalf("one block too many: %v", err)
		}
	}
}

func TestReleasedOutsideRangeIsViolation(t *testing.T) {
	cases := []struct {
		name            string
		found, inFlight uint64
	}{
		{"below the last value", 1, 8},
		{"beyond the blocks in flight", 6, 3},
		{"beyond none in flight", 3, 0},
		{"beyond the entries", 11, 100},
		{"huge", 1 << 63, 8},
		{"all bits", ^uint64(0), 8},
	}
	for _, c := range cases {
		p := newReleasePair()
		p.releaser.Release(1)
		p.releaser.Release(2)
		for range 2 {
			if _, _, err := p.reclaimer.Next(2); err != nil {
				t.Fatal(err)
			}
		}
		p.control.Publish(layout.ControlReleased, c.found)
		_, isThere, err := p.reclaimer.Next(c.inFlight)
		if isThere {
			t.Errorf("%s: a block came", c.name)
		}
		t.Run(c.name, func(t *testing.T) { isViolation(t, err, layout.ViolationReleased) })
	}
}

func TestReleaseRingOfImpossibleSizePanics(t *testing.T) {
	for _, entries := range []uint64{0, 4, 9, 12} {
		memory := mem.Allocate(entries * mem.WordBytes)
		mustPanic(t, "releaser", func() { NewReleaser(memory, mem.Own{}) })
		mustPanic(t, "reclaimer", func() { NewReclaimer(memory.Peer(), mem.Peer{}) })
	}
	mustPanic(t, "odd size", func() { NewReleaser(mem.Allocate(65), mem.Own{}) })
}

// FuzzReleases lets a peer write any words into its release ring, between the blocks that this side
// gives out. This side must take back each block that it has given out at most once, and no other
// block ever. Each error must be a violation.
//
// Each of the bytes acts is an operation, unless it belongs to an id or count. Its two lowest bits
// say which: give out a block, return one that is in flight, return any id, or set the count of the
// entries.
func FuzzReleases(f *testing.F) {
	f.Add([]byte{0, 4, 8, 1, 1, 0, 5})
	f.Add([]byte{0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{0, 0, 3, 2, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, acts []byte) {
		p, s := newReleasePair(), newSlab(testEntries, 4096)
		var inFlight []layout.Blob
		word := func() uint64 {
			var bytes [8]byte
			acts = acts[copy(bytes[:], acts):]
			return binary.LittleEndian.Uint64(bytes[:])
		}
		for len(acts) > 0 {
			act := acts[0]
			acts = acts[1:]
			switch act & 3 {
			case 0:
				if block, isThere := s.Reserve(uint64(act>>2)*32 + 1); isThere {
					blob := s.Commit(block)
					mustNotOverlap(t, inFlight, blob)
					inFlight = append(inFlight, blob)
				}
			case 1:
				if len(inFlight) > 0 {
					p.releaser.Release(inFlight[int(act>>2)%len(inFlight)].Block)
				}
			case 2:
				p.releaser.Release(word())
			default:
				p.control.Publish(layout.ControlReleased, word())
			}
			var err error
			if inFlight, err = takeBack(t, p.reclaimer, s, inFlight); err != nil {
				return
			}
		}
	})
}

// mustNotOverlap checks that a new block does not overlap any block in flight, and has an id of its
// own.
func mustNotOverlap(t *testing.T, inFlight []layout.Blob, blob layout.Blob) {
	for _, other := range inFlight {
		isBefore := blob.Offset+blob.Length <= other.Offset
		isBehind := other.Offset+other.Length <= blob.Offset
		if other.Block == blob.Block || !isBefore && !isBehind {
			t.Fatalf("%+v and %+v are in flight at once", other, blob)
		}
	}
}

// takeBack frees the blocks whose ids the peer has returned. It returns the blocks that are still
// in flight.
func takeBack(
	t *testing.T, r *Reclaimer, s *Slab, inFlight []layout.Blob,
) ([]layout.Blob, error) {
	var violation layout.Violation
	for {
		id, isThere, err := r.Next(s.InFlight())
		if err == nil && isThere {
			at := slices.IndexFunc(inFlight, func(b layout.Blob) bool { return b.Block == id })
			if err = s.Reclaim(id); (err == nil) != (at >= 0) {
				t.Fatalf("block %#x, in flight at %d, is taken back with %v", id, at, err)
			}
			if at >= 0 {
				inFlight = slices.Delete(inFlight, at, at+1)
			}
		}
		if err != nil && !errors.As(err, &violation) {
			t.Fatalf("an error without a number: %v", err)
		}
		if err != nil || !isThere {
			if s.InFlight() != uint64(len(inFlight)) {
				t.Fatalf("%d blocks are in flight, want %d", s.InFlight(), len(inFlight))
			}
			return inFlight, err
		}
	}
}
