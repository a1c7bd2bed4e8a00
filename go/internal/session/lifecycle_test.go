// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"testing"

	"partywall.test/go/internal/layout"
)

// A world is one state that the test visits: both sides of a stream, the opener first, and the
// records that each side has written and the other has not read.
type world struct {
	sides    [2]side
	queues   [2]queue // to the opener, to the answerer
	messages [2]uint8 // that the side may still send
}

// A side is the state of one side of a stream, without its messages.
type side struct {
	life     lifecycle
	wire     layout.Stream
	peerDone bool // CLOSE_WRITE or RESET {sending} has come
}

// A queue holds the records that one side has written and the other has not read, in order.
type queue struct {
	records [10]crossing
	length  uint8
}

// A crossing is a record that was written and not read yet. If it is a RESET, the fields code and
// directions are those of its payload.
type crossing struct {
	kind             layout.Kind
	code, directions uint8
}

// TestEveryOrderOfEventsIsLawful visits each state that two sides of a stream can reach, by any
// order of calls, writes and reads. No side may find a violation. Once both directions have ended
// at both sides, writing and reading must suffice to end the stream.
func TestEveryOrderOfEventsIsLawful(t *testing.T) {
	seed := maphash.MakeSeed()
	messages := [2]uint8{2, 1}
	if raceEnabled {
		messages = [2]uint8{1, 0}
	}
	visited := make(map[uint64]struct{})
	projections := make(map[uint64]struct{})
	ended := 0
	for open := []world{newWorld(messages)}; len(open) > 0; {
		w := open[len(open)-1]
		open = open[:len(open)-1]
		key := maphash.Comparable(seed, w)
		if _, isVisited := visited[key]; isVisited {
			continue
		}
		visited[key] = struct{}{}
		projections[maphash.Comparable(seed, w.project())] = struct{}{}
		if w.sides[0].life.isOver() && w.sides[1].life.isOver() {
			w.mustEnd(t)
			ended++
		}
		open = w.appendNext(t, open)
	}
	t.Logf("%d states, %d without what the wire has carried, %d over", len(visited), len(projections),
		ended)
	if !raceEnabled && len(projections) != statesOfStream {
		t.Errorf("%d states of the two sides, want %d", len(projections), statesOfStream)
	}
}

// statesOfStream is the number of different states that this test must find: the same test of the
// implementation in Rust visits as many.
const statesOfStream = 253943

func newWorld(messages [2]uint8) world {
	w := world{messages: messages}
	s := New(Config{Role: layout.RoleConnector}, nil)
	w.sides[0] = side{life: lifecycle{isOpener: true}, wire: *s.check.Open(1)}
	return w
}

// appendNext appends all states that follow from this one by one call, one write or one read at
// either side.
func (w world) appendNext(t *testing.T, to []world) []world {
	acts := []func(*Stream){
		(*Stream).CloseWrite,
		func(s *Stream) { s.Reset(7) },
		func(s *Stream) { s.Stop(7) },
		func(s *Stream) { s.Stop(8) },
	}
	for i := range w.sides {
		if !w.sides[i].life.hasEnded {
			for _, act := range acts {
				next := w
				next.sides[i].act(act)
				if next.sides[i] != w.sides[i] {
					to = append(to, next)
				}
			}
		}
		for _, kind := range []layout.Kind{layout.KindData, layout.KindFragmentFirst} {
			if next, can := w.send(i, kind); can {
				to = append(to, next)
			}
		}
		if next, can := w.write(i); can {
			to = append(to, next)
		}
		if next, can := w.read(t, i); can {
			to = append(to, next)
		}
	}
	return to
}

// send returns the state after side i has begun to send a message of this kind. If the message goes
// in fragments, the side aborts it at once. The second result is false if side i may not send.
func (w world) send(i int, kind layout.Kind) (world, bool) {
	life := &w.sides[i].life
	if life.sending != isOpen || life.isAbortPending || w.messages[i] == 0 {
		return w, false
	}
	w.messages[i]--
	w.queues[1-i].push(crossing{kind: kind})
	w.sides[i].act(func(s *Stream) {
		s.Begun(messageBytes)
		if kind == layout.KindFragmentFirst {
			s.Abort()
		}
	})
	return w, true
}

// write returns the state after side i has written its next pending record. The second result is
// false if side i has no pending record.
func (w world) write(i int) (world, bool) {
	record := w.sides[i].life.pending()
	if record.kind == 0 {
		return w, false
	}
	w.sides[i].act(func(s *Stream) { s.life.wrote(record, s.wire) })
	w.queues[1-i].push(crossing{record.kind, uint8(record.reset.Code), uint8(record.reset.Directions)})
	return w, true
}

// read returns the state after side i has read the next record of its queue. The second result is
// false if the queue is empty. The test fails if side i refuses the record.
func (w world) read(t *testing.T, i int) (world, bool) {
	if w.queues[i].length == 0 {
		return w, false
	}
	c := w.queues[i].pop()
	payload := c.payload()
	this := &w.sides[i]
	if i == 0 && this.life.hasEnded {
		t.Fatalf("%v came to the opener after END: %+v", c.kind, w)
	}
	hadEnded := this.life.hasEnded
	if _, err := this.wire.Receive(c.kind, payload, math.MaxUint64); err != nil {
		t.Fatalf("side %d refuses %v of an honest peer: %v, %+v", i, c.kind, err, w)
	}
	if hadEnded {
		return w, true
	}
	if c.kind == layout.KindEnd {
		this.life.receiveEnd()
		return w, true
	}
	this.act(func(s *Stream) { s.receive(c.kind, payload, Message{}) })
	this.peerDone = this.peerDone || c.kind == layout.KindCloseWrite ||
		c.kind == layout.KindReset && c.directions&layout.ResetSending != 0
	return w, true
}

// mustEnd lets both sides write and read until nothing is left. It then fails the test unless the
// stream has ended at both sides.
func (w world) mustEnd(t *testing.T) {
	for isBusy := true; isBusy; {
		isBusy = false
		for i := range w.sides {
			for _, step := range []func() (world, bool){
				func() (world, bool) { return w.write(i) },
				func() (world, bool) { return w.read(t, i) },
			} {
				for next, can := step(); can; next, can = step() {
					w, isBusy = next, true
				}
			}
		}
	}
	if !w.sides[0].life.hasEnded || !w.sides[1].life.hasEnded || w.queues[0].length != 0 {
		t.Fatalf("the stream does not end: %+v", w)
	}
}

// act makes a stream whose directions have the state of this side, and calls a function with it.
// Afterwards the side has the state that the function left in the stream. The stream has no
// messages.
func (s *side) act(act func(*Stream)) {
	wire := s.wire
	stream := &Stream{session: walkSession, life: s.life, wire: &wire, isSeen: true, isListed: true}
	act(stream)
	s.life, s.wire = stream.life, wire
}

// walkSession is the session to which all streams of the test belong. Its window is so large that
// it sets no limit on credit.
var walkSession = New(Config{Role: layout.RoleConnector, Window: math.MaxUint64}, nil)

// A projection is a state of the stream and of its two sides. It lacks the details that the same
// test in Rust does not keep, such as whether a message was sent in fragments. So the number of
// different projections that this test visits can be compared with the number of the Rust test.
type projection struct {
	sides    [2]lifecycle
	isOver   [2]bool
	queues   [2]queue
	messages [2]uint8
}

func (w world) project() projection {
	p := projection{queues: w.queues, messages: w.messages}
	for i, side := range w.sides {
		p.sides[i] = side.life
		p.isOver[i] = side.life.receiving == isStopped && side.peerDone
		for j := range p.queues[i].records {
			if p.queues[i].records[j].kind == layout.KindFragmentFirst {
				p.queues[i].records[j].kind = layout.KindData
			}
		}
	}
	return p
}

func (q *queue) push(c crossing) {
	q.records[q.length] = c
	q.length++
}

func (q *queue) pop() crossing {
	c := q.records[0]
	copy(q.records[:], q.records[1:])
	q.length--
	q.records[q.length] = crossing{}
	return c
}

func (c crossing) payload() []byte {
	switch c.kind {
	case layout.KindReset:
		return layout.Reset{Code: uint32(c.code), Directions: uint32(c.directions)}.Append(nil)
	case layout.KindFragmentFirst:
		return binary.LittleEndian.AppendUint64(nil, messageBytes)
	case layout.KindData:
		return make([]byte, messageBytes)
	}
	return nil
}

// messageBytes is the length of each message of the test, in bytes.
const messageBytes = 8
