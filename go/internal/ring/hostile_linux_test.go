// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
	"partywall.test/go/internal/sys"
)

// A hostile peer changes a record's header while a consumer reads it. The consumer loads each word
// once, so it never uses a length that it has not checked.
func TestConsumerSurvivesHeadersThatChange(t *testing.T) {
	region, err := sys.NewRegion("partywall-test", layout.GrainBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Unmap()
	mapped, err := sys.MapPeer(region.Descriptor(), layout.GrainBytes, layout.GrainBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Unmap()
	ring := region.Memory().Part(0, testRing)
	var isOver atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		lengths := []uint32{0, 48, 1008, 1009, 5000, 1 << 31, 0xffffffff}
		kinds := []layout.Kind{layout.KindData, layout.KindBlob, layout.KindPad, 30}
		for i := 0; !isOver.Load(); i++ {
			ring.Publish(mem.WordBytes, layout.Word1(lengths[i%len(lengths)], 0))
			ring.Publish(0, layout.Word0(0, kinds[i/3%len(kinds)]))
		}
	}()
	defer func() {
		isOver.Store(true)
		<-done
	}()
	into := make([]byte, testRing)
	control := mem.Allocate(layout.PageBytes)
	var records, violations int
	end := time.Now().Add(deadline)
	for i := 0; i < 100_000 || records == 0 || violations == 0; i++ {
		if time.Now().After(end) {
			t.Fatalf("%d records, %d violations: both were expected", records, violations)
		}
		consumer := NewConsumer(mapped.Memory().Part(0, testRing), control)
		header, isThere, err := consumer.Peek()
		var violation layout.Violation
		switch {
		case errors.As(err, &violation):
			violations++
		case err != nil:
			t.Fatal(err)
		case isThere:
			records++
			if layout.Footprint(uint64(header.Len)) > testRing/4 {
				t.Fatalf("a record of %d bytes passed", header.Len)
			}
			consumer.Copy(into[:header.Len], header, 0)
			consumer.Advance(header)
		}
	}
}

// The peer's control page and release ring hold random words. The sender accepts these words or
// returns a violation, and never panics.
func TestSenderSurvivesAnyControlPage(t *testing.T) {
	random := seeded(t, 1)
	for range 5_000 {
		p := newPair(testRing)
		released := newReleasePair()
		slab := newSlab(testEntries, 4096)
		for range random.IntN(4) {
			slab.Commit(reserve(t, slab, 64))
		}
		for p.producer.Append(layout.KindData, 0, make([]byte, random.IntN(1000))) == nil {
			p.producer.Commit()
		}
		p.reading.Publish(layout.ControlConsumed, random.Uint64()>>random.IntN(64))
		released.control.Publish(layout.ControlReleased, random.Uint64()>>random.IntN(64))
		for i := range uint64(testEntries) {
			released.entries.Store(i*mem.WordBytes, random.Uint64()>>random.IntN(64))
		}
		if err := p.producer.loadConsumed(); err != nil {
			isViolation(t, err, layout.ViolationConsumed)
		} else if p.producer.Consumed() > p.producer.Published() {
			t.Fatalf("consumed %d passed", p.producer.Consumed())
		}
		for {
			id, isThere, err := released.reclaimer.Next(slab.InFlight())
			if err != nil {
				isViolation(t, err, layout.ViolationReleased)
				break
			}
			if !isThere {
				break
			}
			if err := slab.Reclaim(id); err != nil {
				isViolation(t, err, layout.ViolationBlock)
				break
			}
		}
	}
}
