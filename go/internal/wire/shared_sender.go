// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"time"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/ring"
	"partywall.test/go/internal/wait"
)

// sharedSender is the [Sender] of a connection over shared memory. It writes the record ring and
// the blocks of this side.
//
//	short message  copied into the ring              DATA
//	long message   copied into a block of the slab   BLOB, or written there by its author
type sharedSender struct {
	memory   *sharedMemory
	producer *ring.Producer
	waker    *ring.Waker // of the reader of the peer
	blocks   *blocks
	inline   uint64 // longest message in the ring, in bytes

	sleeper  *ring.Sleeper
	mode     wait.Mode
	budget   wait.Budget
	consumed uint64 // word of the peer before the last attempt
	released uint64
	poll     func() bool
	look     func(uintptr) bool

	isClosed  bool // CLOSE_WRITE was sent
	announced int  // announcements in the open batch
	counts    sendCounts
}

// sendCounts are the counters of a sender. They are published in this side's region, where tools
// read them (SPEC 3.3).
type sendCounts struct{ messages, bytes, blobs, sleeps, doorbells uint64 }

var _ Sender = (*sharedSender)(nil)

func newSharedSender(m *sharedMemory, s *Settings, limits sendLimits) *sharedSender {
	p := &sharedSender{
		memory:   m,
		producer: ring.NewProducer(m.own.ring, m.peer.control),
		waker:    ring.NewWaker(m.peer.control, ring.Records),
		blocks:   newBlocks(m, limits, s.IdleMemory),
		sleeper:  ring.NewSleeper(m.own.control, ring.Room),
		mode:     s.Wait,
		budget:   m.newBudget(s.SpinBudget),
	}
	p.inline = min(s.InlineMax, p.producer.PayloadMax(), limits.messageMax)
	p.poll = p.isWorthAnAttempt
	p.look = func(uintptr) bool {
		p.sleeper.Arm(false)
		return p.isWorthAnAttempt()
	}
	return p
}

// begin checks that the connection can send. It also loads how far the peer has consumed records
// and returned blocks, because a change of either may make room.
func (p *sharedSender) begin() error {
	if err := p.memory.check(); err != nil {
		return err
	}
	if p.isClosed {
		return ErrClosed
	}
	if p.memory.isGone.Load() || p.waker.IsGone() {
		p.producer.Abort()
		p.announced = 0
		return ErrDisconnected
	}
	p.consumed = p.memory.peer.control.Load(layout.ControlConsumed)
	p.released = p.memory.peer.control.Load(layout.ControlReleased)
	return nil
}

func (p *sharedSender) isWorthAnAttempt() bool {
	control := p.memory.peer.control
	return control.Load(layout.ControlConsumed) != p.consumed ||
		control.Load(layout.ControlReleased) != p.released ||
		p.waker.IsGone() || p.memory.isOver()
}

func (p *sharedSender) TryMessage(stream uint32, payload []byte, credit Credit) error {
	if err := p.begin(); err != nil {
		return err
	}
	n := uint64(len(payload))
	if n <= p.inline {
		into, err := p.reserve(layout.KindData, stream, n)
		if err != nil {
			return err
		}
		copy(into, payload)
		p.count(n)
		return nil
	}
	// Room for the BLOB is checked before the message is copied into a block. Otherwise the copy
	// could be in vain.
	if err := p.roomForBlob(); err != nil {
		return err
	}
	block, err := p.blocks.reserve(n, p.consumed)
	if err != nil {
		return p.failure(err)
	}
	copy(block.Bytes(), payload)
	if err := p.appendBlock(block, stream, n, credit); err != nil {
		p.blocks.slab.Free(block)
		return err
	}
	return nil
}

func (p *sharedSender) TryRecord(kind layout.Kind, stream uint32, parts ...[]byte) error {
	if err := p.begin(); err != nil {
		return err
	}
	return p.append(kind, stream, parts...)
}

func (p *sharedSender) RecordMax() uint64 { return p.producer.PayloadMax() }

func (p *sharedSender) CarriesCredit(n int) bool { return uint64(n) > p.inline }

// append appends the pending announcements of segments, and after them a record.
func (p *sharedSender) append(kind layout.Kind, stream uint32, parts ...[]byte) error {
	var n uint64
	for _, part := range parts {
		n += uint64(len(part))
	}
	payload, err := p.reserve(kind, stream, n)
	if err != nil {
		return err
	}
	for _, part := range parts {
		payload = payload[copy(payload, part):]
	}
	return nil
}

// reserve appends the pending announcements of segments, and after them a record. It returns the
// memory of the record's payload of n bytes, which the caller fills before the batch is committed.
func (p *sharedSender) reserve(kind layout.Kind, stream uint32, n uint64) ([]byte, error) {
	if len(p.blocks.pending) > p.announced {
		if err := p.announce(); err != nil {
			return nil, err
		}
	}
	if !p.producer.FitsBatch(n) {
		if err := p.Commit(); err != nil {
			return nil, err
		}
	}
	payload, err := p.producer.Reserve(kind, stream, n)
	if err != nil {
		return nil, p.failure(err)
	}
	return payload, nil
}

// announce appends the pending records SEGMENT and SEGMENT_RETIRE to the open batch.
func (p *sharedSender) announce() error {
	for _, a := range p.blocks.pending[p.announced:] {
		var body [layout.SegmentBytes]byte
		if !p.producer.FitsBatch(layout.SegmentBytes) {
			if err := p.Commit(); err != nil {
				return err
			}
			return p.announce()
		}
		if err := p.producer.Append(a.kind, 0, a.segment.Append(body[:0])); err != nil {
			return p.failure(err)
		}
		p.announced++
	}
	return nil
}

// roomForBlob returns ErrFull if the ring has no room for a BLOB and the announcements of segments
// that must come before it.
func (p *sharedSender) roomForBlob() error {
	const footprint = 64 // of an announcement and of a BLOB
	due := uint64(len(p.blocks.pending)-p.announced+announcementsMax) * footprint
	hasRoom, err := p.producer.HasRoom(min(due+layout.BlobCreditBytes, p.producer.PayloadMax()))
	if err != nil {
		return p.failure(err)
	}
	if !hasRoom {
		return ErrFull
	}
	return nil
}

// appendBlock appends the BLOB of a block, whose first n bytes are the message. After an error the
// block still belongs to the caller.
func (p *sharedSender) appendBlock(block ring.Block, stream uint32, n uint64, c Credit) error {
	size := uint64(layout.BlobBytes)
	if c.IsThere {
		size = layout.BlobCreditBytes
	}
	payload, err := p.reserve(layout.KindBlob, stream, size)
	if err != nil {
		return err
	}
	blob := p.blocks.slab.Commit(block)
	blob.Length, blob.HasCredit, blob.Credited = n, c.IsThere, c.Credited
	blob.Append(payload[:0])
	p.counts.blobs++
	p.count(n)
	return nil
}

// Reserve returns a block for a long message, or private memory for a short one.
func (p *sharedSender) Reserve(n uint64) (*Reservation, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	if n <= p.inline {
		return &Reservation{Bytes: make([]byte, n)}, nil
	}
	block, err := p.blocks.reserve(n, p.consumed)
	if err != nil {
		return nil, p.failure(err)
	}
	p.memory.own.retain()
	return &Reservation{Bytes: block.Bytes(), block: block, memory: p.memory.own.mapping}, nil
}

func (p *sharedSender) TryReserved(
	r *Reservation, stream uint32, n uint64, credit Credit,
) error {
	if r.memory == nil {
		return p.TryMessage(stream, r.Bytes[:n], credit)
	}
	if err := p.begin(); err != nil {
		return err
	}
	if err := p.roomForBlob(); err != nil {
		return err
	}
	if err := p.appendBlock(r.block, stream, n, credit); err != nil {
		return err
	}
	r.memory.release()
	return nil
}

// Free frees a reservation whose message was not sent, even after the connection has ended.
func (p *sharedSender) Free(r *Reservation) {
	if r.memory == nil {
		return
	}
	if !p.memory.isClosed.Load() {
		p.blocks.slab.Free(r.block)
	}
	r.memory.release()
}

// Commit publishes the open batch and the counters of this sender, and notifies the peer if it
// sleeps.
func (p *sharedSender) Commit() error {
	p.producer.Commit()
	if p.announced > 0 {
		p.blocks.published(p.announced, p.producer.Published())
		p.announced = 0
	}
	control := p.memory.own.control
	control.Store(layout.ControlSendingCounters, p.counts.messages)
	control.Store(layout.ControlSendingCounters+8, p.counts.bytes)
	control.Store(layout.ControlSendingCounters+8*layout.CounterSendingTail,
		p.producer.Published())
	if p.waker.Check() == ring.WakeNotify {
		p.counts.doorbells++
		p.memory.notifyRecords()
		p.storeCounts()
	}
	p.producer.ZeroAhead()
	return nil
}

// CommitAll makes all appended records visible to the peer, as Commit does. It never waits, because
// these records lie in the ring, and nothing of the caller's memory is needed any more.
func (p *sharedSender) CommitAll() error { return p.Commit() }

// storeCounts publishes those counters of this sender that seldom change.
func (p *sharedSender) storeCounts() {
	store := func(counter, value uint64) {
		p.memory.own.control.Store(layout.ControlSendingCounters+8*counter, value)
	}
	store(layout.CounterSendingBlobs, p.counts.blobs)
	store(layout.CounterSendingDoorbells, p.counts.doorbells)
	store(layout.CounterSendingSleeps, p.counts.sleeps)
	store(layout.CounterSendingMemory, p.blocks.slab.Bytes())
	store(layout.CounterSendingBlocksOut, p.blocks.slab.InFlight())
}

func (p *sharedSender) count(n uint64) {
	p.counts.messages++
	p.counts.bytes += n
}

// Close publishes the record CLOSE_WRITE in the slot of the ring that is kept free for it, even
// after an interrupt.
func (p *sharedSender) Close(stream uint32) error {
	if err := p.memory.brokenBy(); err != nil {
		return err
	}
	if p.isClosed {
		return ErrClosed
	}
	if err := p.Commit(); err != nil {
		return err
	}
	p.producer.Close(stream)
	p.isClosed = true
	return p.Commit()
}

// WaitRoom waits until the peer has consumed records or returned blocks, or the connection ends.
func (p *sharedSender) WaitRoom() error {
	if p.announced > 0 {
		// The attempt that found no room may have appended records of segments before, which must
		// become visible.
		if err := p.Commit(); err != nil {
			return err
		}
	}
	if p.waker.CheckBeforeWait() == ring.WakeNotify {
		p.memory.notifyRecords()
	}
	for {
		if p.budget.Poll(p.mode, p.poll) {
			return nil
		}
		if p.memory.room.limit.hasPassed() {
			return ErrTimedOut
		}
		if p.mode != wait.Spin {
			break
		}
	}
	p.counts.sleeps++
	p.storeCounts()
	return p.sleep(p.look)
}

// sleep waits for notifications of the doorbell until look returns true. After an interrupt, by
// which a peer in this process notifies, it calls look again.
func (p *sharedSender) sleep(look func(uintptr) bool) error {
	p.memory.beginSleep(p.memory.room)
	defer p.sleeper.Disarm()
	for {
		if err := p.memory.room.wait(look); err != errInterrupted {
			return waitError(err)
		}
	}
}

func (p *sharedSender) SetDeadline(t time.Time) error {
	return p.memory.room.setLimit(t)
}

func (p *sharedSender) IsLate() bool { return p.memory.room.limit.hasPassed() }

// failure converts an error of package ring, from the ring or the slab, to an error of this
// package. A violation of the peer also ends the connection.
func (p *sharedSender) failure(err error) error {
	var violation layout.Violation
	switch {
	case errors.Is(err, ring.ErrFull):
		return ErrFull
	case errors.As(err, &violation) && !fault.Is("violation_survived"):
		return p.memory.fail(err)
	}
	return err
}

// announcementsMax is the most announcements that a BLOB may need before it: one of a new segment,
// and one of a segment that was retired to make this possible.
const announcementsMax = 2
