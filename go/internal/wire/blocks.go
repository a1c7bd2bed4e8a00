// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/ring"
	"partywall.test/go/internal/sys"
)

// blocks is the memory of a sender for long messages (SPEC 5). It consists of the slab of its
// region and of segments: a segment is made when there is no room, and retired when no message has
// used it for the idle time.
//
//	Reserve ── no room ──▶ grow: make a segment, send its descriptor, announce it in the ring
//	                       retire: announce in the ring that an idle one is used no more
type blocks struct {
	memory    *sharedMemory
	slab      *ring.Slab
	reclaimer *ring.Reclaimer
	limits    sendLimits

	segments     []ownSegment
	segmentBytes uint64
	next         uint32         // number of the next segment
	pending      []announcement // records to be written before the next message
	underWay     []uint64       // ends of the records SEGMENT that the peer may not have read
	idleTime     time.Duration
	lastUsed     time.Time // when a segment was last of use
}

type ownSegment struct {
	region *sys.Region
	number uint32
	size   uint64
}

// announcement is a record SEGMENT or SEGMENT_RETIRE that is not published yet.
type announcement struct {
	kind    layout.Kind
	segment layout.Segment
}

func newBlocks(m *sharedMemory, limits sendLimits, idle time.Duration) *blocks {
	b := &blocks{
		memory: m, limits: limits, next: 1, idleTime: idle,
		slab:      ring.NewSlab(limits.blocksMax),
		reclaimer: ring.NewReclaimer(m.peer.releases, m.peer.control),
	}
	b.slab.AddSegment(0, m.own.slab)
	unmap := m.own.unmap
	m.own.unmap = func() error { return errors.Join(b.unmap(), unmap()) }
	return b
}

// largest returns the length in bytes of the longest message that could get memory within the
// limits of both sides.
func (b *blocks) largest() uint64 {
	return min(max(b.memory.own.slab.Len()/64*64, b.limits.memoryMax), b.limits.messageMax)
}

// reserve returns a block for a message of n bytes. The argument consumed is the position up to
// which the peer has consumed records. The error is ErrFull, a [TooLongError], a violation, or a
// failure of the system.
func (b *blocks) reserve(n, consumed uint64) (ring.Block, error) {
	if largest := b.largest(); n > largest {
		return ring.Block{}, &TooLongError{Size: n, Max: largest}
	}
	if err := b.reclaim(); err != nil {
		return ring.Block{}, err
	}
	block, ok := b.slab.Reserve(n)
	if !ok {
		if err := b.grow(n, consumed); err != nil {
			return ring.Block{}, err
		}
		if block, ok = b.slab.Reserve(n); !ok {
			return ring.Block{}, ErrFull
		}
	}
	if len(b.segments) > 0 {
		b.retireIdle(n)
	}
	return block, nil
}

// reclaim frees every block of the slab that the peer has returned.
func (b *blocks) reclaim() error {
	for {
		id, ok, err := b.reclaimer.Next(b.slab.InFlight())
		if err != nil || !ok {
			return err
		}
		if err := b.slab.Reclaim(id); err != nil {
			return err
		}
	}
}

// grow makes a segment that holds a message of n bytes. If the limits allow no segment now, the
// error is ErrFull.
func (b *blocks) grow(n, consumed uint64) error {
	needed := roundUp(max(n, 1), layout.GrainBytes)
	if needed > b.limits.memoryMax || uint64(b.slab.InFlight()) >= uint64(b.limits.blocksMax) {
		return ErrFull
	}
	for b.segmentBytes+needed > b.limits.memoryMax || len(b.segments) >= b.limits.segmentsMax {
		if !b.retire() {
			return ErrFull
		}
	}
	// A segment counts against the number that the peer can receive at once until the peer has
	// consumed the segment's record (SPEC 5.4).
	for len(b.underWay) > 0 && b.underWay[0] <= consumed {
		b.underWay = b.underWay[1:]
	}
	if len(b.underWay)+b.announced() >= b.limits.segmentsMax || len(b.pending) >= pendingMax {
		return ErrFull
	}
	doubled := max(b.segmentBytes, segmentBytesMin)
	size := max(needed, min(doubled, roundDown(b.limits.memoryMax-b.segmentBytes)))
	return b.addSegment(size, needed)
}

// announced returns how many of the records that are not published yet announce a new segment, and
// not a retired one.
func (b *blocks) announced() int {
	count := 0
	for _, a := range b.pending {
		if a.kind == layout.KindSegment {
			count++
		}
	}
	return count
}

// addSegment makes a segment of size bytes, or of needed bytes if the system has no memory for
// more. It sends the segment's descriptor to the peer.
func (b *blocks) addSegment(size, needed uint64) error {
	region, err := sys.NewRegion("partywall-segment", size)
	if err != nil && size > needed {
		size = needed
		region, err = sys.NewRegion("partywall-segment", size)
	}
	if err != nil {
		if b.slab.InFlight() > 0 {
			return ErrFull // the peer returns blocks, which may be enough
		}
		return &SystemError{fmt.Errorf("memory for a message: %w", err)}
	}
	if err := b.memory.socket.sendSegment(b.next, region.Descriptor()); err != nil {
		isFull := errors.Is(err, sys.ErrWouldBlock) && b.slab.InFlight() > 0
		_ = region.Unmap()
		switch {
		case isFull:
			return ErrFull
		case errors.Is(err, sys.ErrHungUp), b.memory.isOver():
			return ErrDisconnected
		}
		return &SystemError{fmt.Errorf("sending memory for a message: %w", err)}
	}
	region.CloseDescriptor()
	b.segments = append(b.segments, ownSegment{region, b.next, size})
	b.segmentBytes += size
	b.slab.AddSegment(b.next, region.Memory())
	b.pending = append(b.pending, announcement{
		layout.KindSegment, layout.Segment{Number: b.next, Size: size},
	})
	b.next++
	b.lastUsed = time.Now()
	return nil
}

// retireIdle retires all segments without blocks in use, if for the idle time no block was in
// flight and no message was longer than the slab. The next message, of n bytes, counts too: if it
// is longer than the slab, nothing is retired.
func (b *blocks) retireIdle(n uint64) {
	if n > b.memory.own.slab.Len() || b.slab.InFlight() > 0 {
		b.lastUsed = time.Now()
		return
	}
	if time.Since(b.lastUsed) < b.idleTime {
		return
	}
	for len(b.pending) < pendingMax && b.retire() {
	}
}

// retire retires one segment in which no block is in use. It returns false if there is no such
// segment.
func (b *blocks) retire() bool {
	if len(b.pending) >= pendingMax {
		return false
	}
	number, _, ok := b.slab.TakeIdleSegment()
	if !ok {
		return false
	}
	for i, segment := range b.segments {
		if segment.number == number {
			b.segments = append(b.segments[:i], b.segments[i+1:]...)
			b.segmentBytes -= segment.size
			b.pending = append(b.pending, announcement{
				layout.KindSegmentRetire, layout.Segment{Number: number, Size: segment.size},
			})
			_ = segment.region.Unmap() // no block lies in it
			break
		}
	}
	return true
}

// published removes the first count announcements from those that are pending, because their
// records are published now. The records end before the position end.
func (b *blocks) published(count int, end uint64) {
	for _, a := range b.pending[:count] {
		if a.kind == layout.KindSegment {
			b.underWay = append(b.underWay, end)
		}
	}
	b.pending = b.pending[count:]
	if len(b.pending) == 0 {
		b.pending = nil
	}
}

// unmap unmaps all segments, once the connection is closed and no reservation is left.
func (b *blocks) unmap() error {
	var errs []error
	for _, segment := range b.segments {
		errs = append(errs, segment.region.Unmap())
	}
	b.segments = nil
	return errors.Join(errs...)
}

const (
	// segmentBytesMin is the size of the first segment in bytes, if the limits allow it.
	segmentBytesMin = 1 << 20
	// pendingMax bounds the announcements of segments that are not published yet. While there are
	// as many, no segment is made or retired.
	pendingMax = 16
)
