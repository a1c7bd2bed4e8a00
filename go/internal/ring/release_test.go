// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

const testEntries = layout.ReleaseEntriesMin

// A releasePair is a release ring with its releaser and its reclaimer.
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
