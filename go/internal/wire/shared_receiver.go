// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
	"partywall.test/go/internal/ring"
	"partywall.test/go/internal/sys"
	"partywall.test/go/internal/wait"
)

// sharedReceiver is the [Receiver] of a connection over shared memory. It reads the record ring and
// the blocks of the peer.
//
//	trusted peer    BLOB is read where it lies, until its message is released
//	untrusted peer  BLOB is copied once, and its block returned at once (SPEC 9.1)
//	both            DATA is copied once, to where the caller wants it
type sharedReceiver struct {
	memory   *sharedMemory
	consumer *ring.Consumer
	waker    *ring.Waker // of the sender of the peer
	checker  Checker
	maps     map[uint32]peerSegment // mapped segments of the peer; 0 is the slab
	limits   layout.Limits

	current layout.Header // the record that Next returned
	isBlob  bool          // current is a BLOB whose block was not returned
	blob    layout.Blob
	place   peerSegment // in which the blob lies
	scratch []byte      // private copy of a payload that is checked

	releaseMutex sync.Mutex // messages are released by any goroutine
	releaser     *ring.Releaser
	isOver       bool // nothing is released any more

	sleeper         *ring.Sleeper
	mode            wait.Mode
	budget          wait.Budget
	poll            func() bool
	look            func(uintptr) bool
	isWoken         atomic.Bool // Wake was called, and no Wait has returned since
	misses          uint32      // polls that found nothing since the last record or report
	isReportPending bool        // a segment came or went, and its record is not reported as read
	counts          receiveCounts
}

// receiveCounts are the counters of a receiver. They are published in this side's region, where
// tools read them (SPEC 3.3).
type receiveCounts struct{ messages, bytes, blobs, sleeps, hits uint64 }

// peerSegment is a segment of the peer that this side has mapped, or the slab of the peer's region.
type peerSegment struct {
	*mapping
	memory mem.Peer
	lender *Lender
}

var _ Receiver = (*sharedReceiver)(nil)

func newSharedReceiver(m *sharedMemory, s *Settings) *sharedReceiver {
	limits := s.limits()
	segments := layout.NewSegments(limits, m.peer.header.Size, m.peer.slab.Len())
	r := &sharedReceiver{
		memory:   m,
		consumer: ring.NewConsumer(m.peer.ring, m.own.control),
		waker:    ring.NewWaker(m.peer.control, ring.Room),
		checker:  s.NewChecker(limits, segments),
		maps:     map[uint32]peerSegment{},
		limits:   limits,
		releaser: ring.NewReleaser(m.own.releases, m.own.control),
		sleeper:  ring.NewSleeper(m.own.control, ring.Records),
		mode:     s.Wait,
		budget:   m.newBudget(s.SpinBudget),
	}
	r.add(0, m.peer.mapping, m.peer.slab)
	r.poll = func() bool {
		isWoken := r.isWoken.Load() && !fault.Is("early_wake_lost")
		return r.consumer.IsReady() || isWoken || r.memory.isOver() || r.miss()
	}
	r.look = func(uintptr) bool {
		r.sleeper.Arm(false)
		return r.poll()
	}
	return r
}

func (r *sharedReceiver) Next() (Record, bool, error) {
	if err := r.memory.check(); err != nil {
		return Record{}, false, err
	}
	for {
		// isGone is loaded before the ring is read. So if it is true, all records that the peer
		// committed before it died are still found (SPEC 7.2).
		isGone := r.memory.isGone.Load()
		header, ok, err := r.consumer.Peek()
		switch {
		case err != nil:
			return Record{}, false, r.memory.fail(err)
		case !ok && isGone:
			return Record{}, false, ErrDisconnected
		case !ok:
			if r.isReportPending {
				r.report()
			}
			r.storeReceived()
			return Record{}, false, nil
		}
		record, isOurs, err := r.accept(header)
		if err != nil {
			return Record{}, false, r.memory.fail(err)
		}
		if !isOurs {
			return record, true, nil
		}
		r.Done()
	}
}

// accept checks a record of the peer. It handles the records SEGMENT and SEGMENT_RETIRE itself; for
// them its second result is true.
func (r *sharedReceiver) accept(header layout.Header) (Record, bool, error) {
	r.current, r.isBlob = header, false
	payload := r.consumer.Payload(header)
	if header.Kind != layout.KindData && (!r.memory.isTrusted || header.Kind == layout.KindBlob ||
		header.Kind == layout.KindSegment || header.Kind == layout.KindSegmentRetire) {
		// This code copies the payload of the record first, so that the peer cannot change the
		// payload after the check.
		r.scratch = append(r.scratch[:0], payload...)
		payload = r.scratch
	}
	if err := r.checker.Receive(header, payload); err != nil && !fault.Is("unchecked_ring") {
		return Record{}, false, fmt.Errorf("record at position %d: %w", header.Position, err)
	}
	record := Record{Kind: header.Kind, Stream: header.Stream, Len: int(header.Len)}
	switch header.Kind {
	case layout.KindSegment, layout.KindSegmentRetire:
		// The peer may wait for the position behind this record before it sends another segment
		// (SPEC 5.4). So the position is reported as soon as the ring is empty.
		r.isReportPending = !fault.Is("segment_unreported")
		if header.Kind == layout.KindSegment {
			return record, true, r.addSegment(payload)
		}
		return record, true, r.retireSegment(payload)
	case layout.KindBlob:
		blob, err := layout.ParseBlob(payload)
		if err != nil {
			return record, false, err
		}
		r.blob, r.place, r.isBlob = blob, r.maps[blob.Segment], true
		record.Len = int(blob.Length)
		record.Credit = Credit{blob.HasCredit, blob.Credited}
		r.counts.blobs++
		r.count(blob.Length)
	case layout.KindData:
		r.count(uint64(header.Len))
	}
	return record, false, nil
}

// addSegment maps the segment that a record SEGMENT of the peer announces.
func (r *sharedReceiver) addSegment(body []byte) error {
	segment, err := layout.ParseSegment(body)
	if err != nil {
		return err
	}
	descriptor, err := r.memory.socket.takeSegment(segment.Number)
	if err != nil {
		return err
	}
	defer sys.CloseDescriptor(descriptor)
	mapped, err := sys.MapPeer(descriptor, segment.Size, r.limits.MapMax)
	switch {
	case sys.IsViolation(err):
		return fmt.Errorf("segment %d: %w: %w", segment.Number, err, layout.ViolationBody)
	case err != nil:
		return &SystemError{fmt.Errorf("mapping segment %d: %w", segment.Number, err)}
	}
	r.add(segment.Number, newMapping(mapped.Unmap), mapped.Memory())
	return nil
}

// add registers memory in which messages of the peer may lie: a segment, or the slab of the peer's
// region as segment 0.
func (r *sharedReceiver) add(number uint32, place *mapping, memory mem.Peer) {
	r.maps[number] = peerSegment{place, memory, &Lender{r, place}}
}

// retireSegment ends the connection's use of a segment that the peer retires. The segment stays
// mapped while messages that lie in it are not released.
func (r *sharedReceiver) retireSegment(body []byte) error {
	segment, err := layout.ParseSegment(body)
	if err != nil {
		return err
	}
	r.maps[segment.Number].release()
	delete(r.maps, segment.Number)
	return nil
}

func (r *sharedReceiver) CopyTo(into []byte) int {
	if r.isBlob {
		n := min(uint64(len(into)), r.blob.Length)
		r.place.memory.Copy(into[:n], r.blob.Offset)
		return int(n)
	}
	n := min(len(into), int(r.current.Len))
	r.consumer.Copy(into[:n], r.current, 0)
	return n
}

func (r *sharedReceiver) Lend() (message []byte, lender *Lender, block uint64) {
	if !r.isBlob || !r.memory.isTrusted {
		return nil, nil, 0
	}
	r.isBlob = false
	r.place.retain()
	return r.place.memory.Bytes(r.blob.Offset, r.blob.Length), r.place.lender, r.blob.Block
}

func (r *sharedReceiver) Take() *Message {
	if bytes, lender, block := r.Lend(); lender != nil {
		return NewBorrowedMessage(bytes, lender, block)
	}
	n := uint64(r.current.Len)
	if r.isBlob {
		n = r.blob.Length
	}
	bytes := make([]byte, n)
	r.CopyTo(bytes)
	return NewMessage(bytes)
}

func (r *sharedReceiver) Payload() []byte {
	if r.memory.isTrusted {
		return r.consumer.Payload(r.current)
	}
	if r.current.Kind == layout.KindData {
		r.scratch = append(r.scratch[:0], r.consumer.Payload(r.current)...)
	}
	return r.scratch
}

// Done ends the use of the current record. If the record is a BLOB whose message was not taken,
// Done returns the block of the message to the peer.
func (r *sharedReceiver) Done() {
	if r.isBlob {
		r.isBlob = false
		r.release(r.blob.Block)
	}
	r.misses = 0
	r.consumer.Advance(r.current)
	if r.consumer.IsReportDue() {
		r.report()
	}
}

// miss counts a poll that has found nothing, and returns false. After missesMax of them it reports
// the position (SPEC 4.6). Reporting each time the ring is empty would move a cache line to this
// side and back for each message, because the peer's sender loads the word.
func (r *sharedReceiver) miss() bool {
	if r.misses++; r.misses >= missesMax && !fault.Is("polls_unreported") {
		r.misses = 0
		r.report()
	}
	return false
}

// missesMax is the most polls that find nothing before a position is reported.
const missesMax = 1024

// report tells the peer the position up to which this side has read the ring.
func (r *sharedReceiver) report() {
	r.isReportPending = false
	if r.consumer.Report() && r.waker.Check() == ring.WakeNotify {
		r.memory.notifyRoom()
	}
	r.storeReceived()
}

// storeReceived publishes the counters of this receiver that change with each message.
func (r *sharedReceiver) storeReceived() {
	control := r.memory.own.control
	control.Store(layout.ControlReceivingCounters, r.counts.messages)
	control.Store(layout.ControlReceivingCounters+8, r.counts.bytes)
	control.Store(layout.ControlReceivingCounters+8*layout.CounterReceivingBlobs, r.counts.blobs)
}

// release returns a block to the peer, and notifies the peer if it sleeps.
func (r *sharedReceiver) release(block uint64) {
	r.releaseMutex.Lock()
	defer r.releaseMutex.Unlock()
	if r.isOver {
		return
	}
	r.releaser.Release(block)
	if r.waker.Check() == ring.WakeNotify {
		r.memory.notifyRoom()
	}
}

func (r *sharedReceiver) count(n uint64) {
	r.counts.messages++
	r.counts.bytes += n
}

// Poll reads nothing, because Next finds all records in the ring that the peer has published. It
// counts a call of Next that has found none.
func (r *sharedReceiver) Poll() error {
	r.miss()
	return nil
}

func (r *sharedReceiver) Wait(polls bool) error {
	for {
		isThere := false
		if polls {
			isThere = r.budget.Poll(r.mode, r.poll)
		} else {
			isThere = r.poll()
		}
		if isThere {
			r.counts.hits++
			r.takeWake()
			return nil
		}
		r.report()
		if r.memory.records.limit.hasPassed() {
			return ErrTimedOut
		}
		if !polls || r.mode != wait.Spin {
			break
		}
	}
	r.counts.sleeps++
	r.storeCounts()
	err := r.sleep()
	r.takeWake()
	return waitError(err)
}

// sleep waits for notifications of the doorbell until there is something to do.
func (r *sharedReceiver) sleep() error {
	r.memory.beginSleep(r.memory.records)
	defer r.sleeper.Disarm()
	for {
		err := r.memory.records.wait(r.look)
		if err != errInterrupted {
			return err
		}
		// A peer in this process has notified, or Wake was called, perhaps during an earlier Wait.
		if r.poll() {
			return nil
		}
	}
}

// takeWake ends the effect of earlier calls of Wake. Whatever their callers have changed was
// changed before, so the waiting goroutine now sees it.
func (r *sharedReceiver) takeWake() {
	if r.isWoken.Load() {
		r.isWoken.Store(false)
	}
}

// Wake makes Wait return, without a system call, as the interface [Receiver] demands.
func (r *sharedReceiver) Wake() {
	r.isWoken.Store(true)
	if !fault.Is("sleep_uninterrupted") {
		r.memory.records.interrupt()
	}
}

// storeCounts publishes how often this receiver has slept, and how often polling has found a
// record.
func (r *sharedReceiver) storeCounts() {
	const counters = layout.ControlReceivingCounters
	control := r.memory.own.control
	control.Store(counters+8*layout.CounterReceivingSleeps, r.counts.sleeps)
	control.Store(counters+8*layout.CounterReceivingSpinsPaid, r.counts.hits)
}

func (r *sharedReceiver) SetDeadline(t time.Time) error {
	return r.memory.records.setLimit(t)
}

func (r *sharedReceiver) IsLate() bool { return r.memory.records.limit.hasPassed() }

// Leave tells the peer that this side reads no more records (SPEC 6.5).
func (r *sharedReceiver) Leave() {
	r.sleeper.Leave()
	if r.waker.Check() == ring.WakeNotify {
		r.memory.notifyRoom()
	}
}

// close ends the connection's use of the peer's segments. Messages that are released later no
// longer return their blocks to the peer.
func (r *sharedReceiver) close() {
	r.releaseMutex.Lock()
	r.isOver = true
	r.releaseMutex.Unlock()
	for number, segment := range r.maps {
		if number != 0 {
			segment.release()
		}
	}
	r.maps = nil
}

// A Lender takes back the blocks of messages that lie in one segment of a trusted peer, or in its
// slab.
type Lender struct {
	receiver *sharedReceiver
	place    *mapping
}

// Release returns a block to the peer, once for each message that [Receiver.Lend] returned. Any
// goroutine may call it, even after the end of the connection.
func (l *Lender) Release(block uint64) {
	l.receiver.release(block)
	l.place.release()
}
