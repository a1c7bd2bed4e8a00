// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

// deadline is the longest time that a test of rings waits for an expected event.
const deadline = 20 * time.Second

type record struct {
	kind    layout.Kind
	stream  uint32
	payload []byte
}

// A ringModel performs the same random operations on a ring and on a plain queue of records, and
// compares the results.
type ringModel struct {
	*pair
	random *rand.Rand
	open   []record // of the batch that is not published
	queue  []record // published and not consumed
}

func TestRingAgreesWithQueue(t *testing.T) {
	for seed := range uint64(30) {
		size := uint64(testRing) << (seed % 4)
		m := &ringModel{pair: newPair(size), random: seeded(t, seed)}
		for range 5000 {
			m.step(t)
		}
		m.producer.Commit()
		m.queue, m.open = append(m.queue, m.open...), nil
		m.producer.Close(9)
		m.queue = append(m.queue, record{kind: layout.KindCloseWrite, stream: 9})
		for len(m.queue) > 0 {
			m.take(t)
		}
		m.empty(t)
		if m.producer.Published() < 20*size {
			t.Errorf("seed %d: the ring went around %d times only", seed, m.producer.Published()/size)
		}
	}
}

// step performs a random operation on the ring and on the plain queue of the model: append, commit,
// abort, or take, and sometimes zeroes free slots before it.
func (m *ringModel) step(t *testing.T) {
	t.Helper()
	if m.random.IntN(3) == 0 {
		m.producer.ZeroAhead()
	}
	switch m.random.IntN(10) {
	case 0, 1, 2, 3:
		m.append(t)
	case 4, 5:
		m.producer.Commit()
		m.queue, m.open = append(m.queue, m.open...), nil
	case 6:
		if m.random.IntN(4) == 0 {
			m.producer.Abort()
			m.open = nil
		}
	default:
		for range m.random.IntN(8) {
			m.take(t)
		}
		if m.consumer.IsReportDue() {
			m.consumer.Report()
		}
	}
}

// append adds a record of random length to the open batch. If the ring reports that it has no room
// for the record, the test fails unless the plain queue of the model confirms this.
func (m *ringModel) append(t *testing.T) {
	t.Helper()
	length := m.random.Uint64N(m.producer.PayloadMax() + 1)
	if m.random.IntN(2) == 0 {
		length = m.random.Uint64N(130)
	}
	if !m.producer.FitsBatch(length) {
		return
	}
	kinds := []layout.Kind{layout.KindData, layout.KindFragmentMid, layout.KindCredit}
	r := record{kinds[m.random.IntN(len(kinds))], m.random.Uint32(), make([]byte, length)}
	tail, padding := m.producer.tail, m.producer.paddingFor(length)
	payload, err := m.producer.Reserve(r.kind, r.stream, length)
	need := tail + padding + layout.Footprint(length) + 128 - m.consumer.reported
	if (err == nil) != (need <= m.producer.Size()) {
		t.Fatalf("%d bytes of %d are needed: %v", need, m.producer.Size(), err)
	}
	if errors.Is(err, ErrFull) {
		m.unread(t)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	begin := tail + padding + layout.RecordHeaderBytes
	forge(r.payload, begin, m.producer.Size())
	copy(payload, r.payload)
	m.open = append(m.open, r)
}

// unread checks that a ring without room has an unread record, unless the reader has still to
// report what it has consumed (SPEC 4.6). Otherwise producer and consumer would wait for each other
// for ever.
func (m *ringModel) unread(t *testing.T) {
	t.Helper()
	if m.consumer.IsReportDue() {
		return // the reader has not had its turn
	}
	if len(m.queue) == 0 {
		t.Fatalf("no room at %d, and nothing to read from %d on; reported %d", m.producer.tail,
			m.consumer.Position(), m.consumer.reported)
	}
}

// take takes the next record of the ring, and compares it with the first in the plain queue of the
// model.
func (m *ringModel) take(t *testing.T) {
	t.Helper()
	if len(m.queue) == 0 {
		m.empty(t)
		return
	}
	header, payload := m.next(t)
	want := m.queue[0]
	m.queue = m.queue[1:]
	if header.Kind != want.kind || header.Stream != want.stream ||
		!bytes.Equal([]byte(payload), want.payload) {
		t.Fatalf("the record at %d is %+v of %d bytes, want %s of stream %d, %d bytes",
			header.Position, header, len(payload), want.kind, want.stream, len(want.payload))
	}
}

// A side is one side of a connection between two goroutines: its producer and consumer, sleepers,
// wakers, and the doorbells of both sides.
type side struct {
	producer              *Producer
	consumer              *Consumer
	records, room         *Sleeper
	wakeRecords, wakeRoom *Waker
	ownRecords, ownRoom   chan struct{} // doorbells of this side
	peerRecords, peerRoom chan struct{}
	end                   <-chan time.Time
	polls                 int          // number of polls before each sleep
	sleeps                atomic.Int64 // number of sleeps so far
}

// newSides returns the two sides of a connection between two goroutines. The rings of size bytes
// lie in heap memory, which the race detector observes.
func newSides(size uint64) (*side, *side) {
	var sides [2]*side
	var rings, controls [2]mem.Own
	var doorbells [4]chan struct{}
	for i := range doorbells {
		doorbells[i] = make(chan struct{}, 1)
	}
	for i := range rings {
		rings[i], controls[i] = mem.Allocate(size), mem.Allocate(layout.PageBytes)
	}
	for i := range sides {
		own, peer := controls[i], controls[1-i].Peer()
		sides[i] = &side{
			producer:    NewProducer(rings[i], peer),
			consumer:    NewConsumer(rings[1-i].Peer(), own),
			records:     NewSleeper(own, Records),
			room:        NewSleeper(own, Room),
			wakeRecords: NewWaker(peer, Records),
			wakeRoom:    NewWaker(peer, Room),
			ownRecords:  doorbells[i],
			ownRoom:     doorbells[2+i],
			peerRecords: doorbells[1-i],
			peerRoom:    doorbells[3-i],
			end:         time.After(deadline),
		}
	}
	return sides[0], sides[1]
}

// notify notifies the doorbell of the other side if the waker's answer says that this is necessary.
func notify(wake Wake, doorbell chan struct{}) {
	if wake != WakeNotify {
		return
	}
	select {
	case doorbell <- struct{}{}:
	default: // a notification is pending
	}
}

// wait polls, and then sleeps as SPEC 6.2 says, until ready returns true. It returns false after
// the deadline of the side.
func (s *side) wait(sleeper *Sleeper, doorbell chan struct{}, ready func() bool) bool {
	for range s.polls {
		if ready() {
			return true
		}
		runtime.Gosched()
	}
	for {
		select {
		case <-doorbell:
		default:
		}
		sleeper.Arm(false)
		if ready() {
			sleeper.Disarm()
			return true
		}
		s.sleeps.Add(1)
		select {
		case <-doorbell:
		case <-s.end:
			return false
		}
		sleeper.Disarm()
		if ready() {
			return true
		}
	}
}

// send publishes count records of the kind DATA, numbered from 0. The number of a record is also
// its stream, and the lowest byte of the number fills its payload.
func (s *side) send(t *testing.T, count int, random *rand.Rand) {
	for i := 0; i < count; {
		length := 8 + random.Uint64N(s.producer.PayloadMax()-7)
		payload, err := s.producer.Reserve(layout.KindData, uint32(i), length)
		if errors.Is(err, ErrFull) {
			notify(s.wakeRecords.CheckBeforeWait(), s.peerRecords)
			hasRoom := func() bool {
				ok, err := s.producer.HasRoom(length)
				return ok || err != nil
			}
			if !s.wait(s.room, s.ownRoom, hasRoom) {
				t.Errorf("no room after %d records: a wake-up was lost", i)
				return
			}
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		for j := range payload {
			payload[j] = byte(i)
		}
		s.producer.Commit()
		notify(s.wakeRecords.Check(), s.peerRecords)
		i++
	}
	s.producer.Close(0)
	notify(s.wakeRecords.Check(), s.peerRecords)
}

// receive takes and checks the records that the other side has published, up to the record
// CLOSE_WRITE, and returns their number.
func (s *side) receive(t *testing.T) int {
	into := make([]byte, s.consumer.size)
	for count := 0; ; {
		header, isThere, err := s.consumer.Peek()
		if err != nil {
			t.Error(err)
			return count
		}
		if !isThere {
			if s.consumer.Report() {
				notify(s.wakeRoom.Check(), s.peerRoom)
			}
			if !s.wait(s.records, s.ownRecords, s.consumer.IsReady) {
				t.Errorf("no record after %d: a wake-up was lost", count)
				return count
			}
			continue
		}
		if header.Kind == layout.KindCloseWrite {
			return count
		}
		payload := into[:header.Len]
		s.consumer.Copy(payload, header, 0)
		for _, b := range payload {
			if b != byte(count) || header.Stream != uint32(count) {
				t.Errorf("record %d of stream %d holds %d", count, header.Stream, b)
				return count
			}
		}
		s.consumer.Advance(header)
		count++
		if s.consumer.IsReportDue() && s.consumer.Report() {
			notify(s.wakeRoom.Check(), s.peerRoom)
		}
	}
}

// One goroutine sends 20,000 records to another. The receiver sleeps when it finds no record, and
// the sender when it finds no room. The race detector reports accesses that the words of the ring
// do not order.
func TestNoWakeUpIsLostBetweenTwoSides(t *testing.T) {
	const count = 20000
	for seed := range uint64(3) {
		sender, receiver := newSides(testRing)
		sender.polls, receiver.polls = 4, 4
		done := make(chan struct{})
		random := seeded(t, seed)
		go func() {
			defer close(done)
			// The sender waits until the receiver sleeps at the empty ring, so at least one wake-up
			// is tested.
			limit := time.Now().Add(deadline)
			for receiver.sleeps.Load() == 0 && time.Now().Before(limit) {
				runtime.Gosched()
			}
			sender.send(t, count, random)
		}()
		if got := receiver.receive(t); got != count {
			t.Errorf("%d records came, want %d", got, count)
		}
		<-done
		if receiver.sleeps.Load() == 0 {
			t.Error("the receiver did not sleep, so no wake-up was tested")
		}
	}
}

// Two sides send a single record back and forth, and each sleeps until it comes. A lost wake-up
// would stop both.
func TestNoWakeUpIsLostInPingPong(t *testing.T) {
	const rounds = 20000
	first, second := newSides(testRing)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range rounds {
			if !second.take(t, i) || !second.post(t, i) {
				return
			}
		}
	}()
	for i := range rounds {
		if !first.post(t, i) || !first.take(t, i) {
			break
		}
	}
	<-done
	if first.sleeps.Load()+second.sleeps.Load() == 0 {
		t.Error("no side slept, so no wake-up was tested")
	}
}

// post publishes the record of round trip i, whose stream number is i.
func (s *side) post(t *testing.T, i int) bool {
	if err := s.producer.Append(layout.KindData, uint32(i), nil); err != nil {
		t.Errorf("round %d: %v", i, err)
		return false
	}
	s.producer.Commit()
	notify(s.wakeRecords.Check(), s.peerRecords)
	return true
}

// take waits for a record, and checks by its stream number that it belongs to round trip i.
func (s *side) take(t *testing.T, i int) bool {
	if !s.wait(s.records, s.ownRecords, s.consumer.IsReady) {
		t.Errorf("round %d: a wake-up was lost", i)
		return false
	}
	header, isThere, err := s.consumer.Peek()
	if err != nil || !isThere || header.Stream != uint32(i) {
		t.Errorf("round %d: %+v, %v", i, header, err)
		return false
	}
	s.consumer.Advance(header)
	s.consumer.Report()
	return true
}
