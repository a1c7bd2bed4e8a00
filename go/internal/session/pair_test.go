// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"partywall.test/go/internal/layout"
)

// A pair is two sessions, joined by two queues of records, and the applications that use them. At
// each step, chosen at random, an application acts on a stream, a session writes its pending
// records, or a session reads its next record.
//
// The test compares the result with what the applications know: the messages that they sent, and
// how they ended each direction. No side may find a violation, and no byte may reach another
// stream.
type pair struct {
	t      *testing.T
	random *rand.Rand
	ends   [2]*end
	flows  map[string]*flow // by the stream's metadata and the side that sends
	opened int
}

// An end is one side of a pair of sessions: its session, the queue of records that it will read,
// and its streams.
type end struct {
	session  *Session
	incoming []wireRecord
	room     int // records that the queue to the peer holds
	written  int // records so far
	peer     *end
	streams  []*testStream
	owned    int // messages that are lent and not given back
}

// A wireRecord is a record that one side has written and the other has not read yet.
type wireRecord struct {
	header  layout.Header
	payload []byte
	message []byte
}

// A testStream is one side's stream, with the message that its application is sending.
type testStream struct {
	stream      *Stream
	out, in     *flow
	outgoing    []byte // message that waits, or that is under way in fragments
	sentParts   int    // bytes of it that are written
	isFragments bool
	hasBegun    bool
}

// A flow is one direction of a stream: the messages that its sender sent, and how each side ended
// it.
type flow struct {
	sent     [][]byte // whole messages in order, as they were written
	received int
	finished bool
	reset    uint32 // the sender's code, if it gave up
	stopped  uint32 // the receiver's code, if it stopped
}

// WriteRecord appends a record to the peer's queue, as the interface [Writer] demands. It returns
// false while the queue has as many records as it may hold.
func (e *end) WriteRecord(kind layout.Kind, stream uint32, payload []byte) (bool, error) {
	return e.writeMessage(kind, stream, payload, nil), nil
}

func (e *end) writeMessage(kind layout.Kind, stream uint32, payload, message []byte) bool {
	if len(e.peer.incoming) >= e.room {
		return false
	}
	header := layout.Header{Kind: kind, Len: uint32(len(payload)), Stream: stream}
	record := wireRecord{header, bytes.Clone(payload), bytes.Clone(message)}
	e.peer.incoming = append(e.peer.incoming, record)
	e.written++
	return true
}

func (e *end) Release(uint64) { e.owned-- }

func newPair(t *testing.T, seed uint64) *pair {
	random := rand.New(rand.NewPCG(seed, 0))
	p := &pair{t: t, random: random, flows: make(map[string]*flow)}
	windows := [2]uint64{uint64(random.IntN(3000)), uint64(random.IntN(3000))}
	streams := [2]uint32{uint32(random.IntN(4)), uint32(1 + random.IntN(4))}
	for i := range p.ends {
		config := Config{
			Role:           uint32(i),
			Limits:         layout.Limits{MessageMax: 1 << 20, MapMax: 1 << 30, SegmentsMax: 1},
			Window:         windows[i],
			StreamsMax:     streams[i],
			PeerMessageMax: 1 << 20,
			PeerWindow:     windows[1-i],
			PeerStreamsMax: streams[1-i],
		}
		segments := layout.NewSegments(config.Limits, 1<<21, 1<<21)
		p.ends[i] = &end{session: New(config, segments), room: 1 + random.IntN(6)}
	}
	p.ends[0].peer, p.ends[1].peer = p.ends[1], p.ends[0]
	return p
}

func (p *pair) step() {
	e := p.ends[p.random.IntN(2)]
	switch p.random.IntN(10) {
	case 0, 1, 2:
		p.read(e)
	case 3, 4:
		p.flush(e)
	case 5:
		p.open(e)
	case 6:
		p.accept(e)
	default:
		if len(e.streams) > 0 {
			p.use(e, e.streams[p.random.IntN(len(e.streams))])
		}
	}
}

// read lets a side read its next record, and returns whether there was one. It fails the test if
// the session refuses the record.
func (p *pair) read(e *end) bool {
	if len(e.incoming) == 0 {
		return false
	}
	record := e.incoming[0]
	e.incoming = e.incoming[1:]
	m := Message{}
	switch record.header.Kind {
	case layout.KindData:
		m = Message{Bytes: record.payload}
	case layout.KindBlob:
		e.owned++
		m = Message{Bytes: record.message, Owner: e}
	}
	if _, err := e.session.Receive(record.header, record.payload, m); err != nil {
		p.t.Fatalf("%v of stream %d: %v", record.header.Kind, record.header.Stream, err)
	}
	return true
}

func (p *pair) flush(e *end) {
	if _, err := e.session.Flush(e); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) open(e *end) {
	name := fmt.Sprintf("stream %d", p.opened)
	stream, err := e.session.Open(0, []byte(name))
	var e2 *Error
	if errors.Is(err, ErrNoNumber) ||
		errors.As(err, &e2) && (e2.Number == layout.ErrorNoStreams || e2.Number == layout.ErrorGoingAway) {
		return
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.opened++
	p.flows[name+" out"], p.flows[name+" back"] = &flow{}, &flow{}
	e.streams = append(e.streams,
		&testStream{stream: stream, out: p.flows[name+" out"], in: p.flows[name+" back"]})
}

func (p *pair) accept(e *end) bool {
	stream, err := e.session.Accept()
	if errors.Is(err, ErrEmpty) {
		return false
	}
	if err != nil {
		p.t.Fatal(err)
	}
	name := string(stream.Metadata())
	e.streams = append(e.streams,
		&testStream{stream: stream, out: p.flows[name+" back"], in: p.flows[name+" out"]})
	return true
}

// use performs one random operation that an application may perform on a stream.
func (p *pair) use(e *end, s *testStream) {
	code := uint32(1 + p.random.IntN(3))
	switch n := p.random.IntN(40); {
	case n < 14:
		p.recv(s)
	case n < 34:
		if s.outgoing == nil && !s.out.finished && s.out.reset == 0 {
			s.outgoing = p.message()
			s.isFragments = p.random.IntN(3) == 0
		}
		p.send(e, s)
	case n < 36:
		if s.outgoing == nil && s.out.reset == 0 {
			s.stream.CloseWrite()
			s.out.finished = true
		}
	case n < 37:
		if !s.out.finished && s.out.reset == 0 {
			s.stream.Reset(code)
			s.out.reset, s.outgoing, s.hasBegun, s.sentParts = code, nil, false, 0
		}
	case n < 38:
		p.stop(s, code)
	default:
		if s.hasBegun {
			s.stream.Abort()
			s.outgoing, s.hasBegun, s.sentParts = nil, false, 0
		}
	}
}

func (p *pair) stop(s *testStream, code uint32) {
	if s.in.stopped == 0 {
		s.in.stopped = code
		s.stream.Stop(code)
	}
}

func (p *pair) message() []byte {
	m := make([]byte, p.random.IntN(1500))
	for i := range m {
		m[i] = byte(p.random.Uint32())
	}
	return m
}

// send begins or continues the message that the stream is sending, if credit and room allow it.
func (p *pair) send(e *end, s *testStream) {
	if s.outgoing == nil {
		return
	}
	if isFlushed, err := e.session.Flush(e); err != nil || !isFlushed {
		return
	}
	if s.hasBegun {
		p.sendPart(e, s)
		return
	}
	length := uint64(len(s.outgoing))
	if err := s.stream.MayBegin(length); err != nil {
		p.giveUp(s, err)
		return
	}
	switch {
	case s.isFragments:
		cut := p.random.IntN(len(s.outgoing) + 1)
		payload := append(binary.LittleEndian.AppendUint64(nil, length), s.outgoing[:cut]...)
		if !e.writeMessage(layout.KindFragmentFirst, s.stream.Number(), payload, nil) {
			return
		}
		s.hasBegun, s.sentParts = true, cut
		s.stream.Begun(length)
		return
	case p.random.IntN(2) == 0:
		if !e.writeMessage(layout.KindData, s.stream.Number(), s.outgoing, nil) {
			return
		}
	default:
		blob := layout.Blob{Length: length}
		if credited, isDue := s.stream.DueCredit(); isDue {
			blob.HasCredit, blob.Credited = true, credited
		}
		if !e.writeMessage(layout.KindBlob, s.stream.Number(), blob.Append(nil), s.outgoing) {
			return
		}
		if blob.HasCredit {
			s.stream.Credited(blob.Credited)
		}
	}
	s.stream.Begun(length)
	s.out.sent = append(s.out.sent, s.outgoing)
	s.outgoing = nil
}

func (p *pair) sendPart(e *end, s *testStream) {
	if err := s.stream.SendErr(); err != nil {
		p.giveUp(s, err)
		return
	}
	rest := s.outgoing[s.sentParts:]
	part, kind := rest, layout.KindFragmentLast
	if p.random.IntN(2) == 0 {
		part, kind = rest[:p.random.IntN(len(rest)+1)], layout.KindFragmentMid
	}
	if !e.writeMessage(kind, s.stream.Number(), part, nil) {
		return
	}
	s.sentParts += len(part)
	if kind == layout.KindFragmentLast {
		s.out.sent = append(s.out.sent, s.outgoing)
		s.outgoing, s.hasBegun, s.sentParts = nil, false, 0
	}
}

// giveUp drops the message that the stream is sending, because err says that the receiver has
// stopped the stream. It fails the test if err is anything else, except ErrNoCredit.
func (p *pair) giveUp(s *testStream, err error) {
	if errors.Is(err, ErrNoCredit) {
		return
	}
	var e *Error
	isStopped := errors.As(err, &e) && e.Number == layout.ErrorStreamStopped
	isRefused := isStopped && e.Code == layout.ResetRefused
	if !isRefused && !(isStopped && s.out.stopped == e.Code) {
		p.t.Fatalf("stream %d cannot send: %v; its receiver stopped with %d", s.stream.Number(), err,
			s.out.stopped)
	}
	if s.out.finished || s.out.reset != 0 {
		p.t.Fatalf("a message on a stream that its sender has ended: %v", err)
	}
	s.outgoing, s.hasBegun, s.sentParts = nil, false, 0
	if isRefused {
		s.out.stopped = e.Code
	}
}

// recv takes the next message of the stream, and compares it with the one that was sent. It returns
// whether there was one.
func (p *pair) recv(s *testStream) bool {
	m, err := s.stream.Recv()
	flow := s.in
	var e2 *Error
	switch {
	case err == nil:
		if flow.received >= len(flow.sent) || !bytes.Equal(m.Bytes, flow.sent[flow.received]) {
			p.t.Fatalf("stream %d: message %d is not what was sent", s.stream.Number(), flow.received)
		}
		flow.received++
		m.Release()
		return true
	case errors.Is(err, ErrEmpty):
	case err == io.EOF:
		if !flow.finished || flow.stopped == 0 && flow.received != len(flow.sent) {
			p.t.Fatalf("stream %d: the end after %d of %d messages, finished %v", s.stream.Number(),
				flow.received, len(flow.sent), flow.finished)
		}
	case errors.As(err, &e2) && e2.Number == layout.ErrorStreamReset:
		if e2.Code != flow.reset && e2.Code != layout.ResetRefused {
			p.t.Fatalf("stream %d: %v, but its sender has reset it with %d", s.stream.Number(), err,
				flow.reset)
		}
	case errors.As(err, &e2) && e2.Number == layout.ErrorStreamStoppedHere && flow.stopped != 0:
	default:
		p.t.Fatalf("stream %d: %v", s.stream.Number(), err)
	}
	return false
}

// settle lets both sides write, read and take messages until nothing is left to do. It fails the
// test if a message was begun and is never completed.
func (p *pair) settle() {
	for _, e := range p.ends {
		e.room = max(e.room, 2)
	}
	for isBusy := true; isBusy; {
		isBusy = false
		for _, e := range p.ends {
			before := e.written
			for p.read(e) || p.accept(e) {
				isBusy = true
			}
			for _, s := range e.streams {
				for p.recv(s) {
					isBusy = true
				}
				p.send(e, s)
			}
			p.flush(e)
			isBusy = isBusy || e.written > before
		}
	}
	for _, e := range p.ends {
		for _, s := range e.streams {
			if s.outgoing != nil {
				p.t.Fatalf("stream %d: a message of %d bytes is never sent", s.stream.Number(),
					len(s.outgoing))
			}
		}
	}
}

// end ends all streams at both sides. It fails the test if a session still has a stream, a pending
// record, a message that was not released, or a number that is not free.
func (p *pair) end() {
	for _, e := range p.ends {
		for _, s := range e.streams {
			s.stream.CloseWrite()
			s.out.finished = s.out.finished || s.out.reset == 0
		}
	}
	p.settle()
	for i, e := range p.ends {
		if e.session.StreamCount() != 0 || e.session.HasPending() || e.owned != 0 {
			p.t.Errorf("side %d: %d streams are left, pending %v, %d messages lent", i,
				e.session.StreamCount(), e.session.HasPending(), e.owned)
		}
		if free := len(e.session.numbers.freed); free != int(e.session.numbers.fresh) {
			p.t.Errorf("side %d: %d of %d numbers are free", i, free, e.session.numbers.fresh)
		}
		for _, s := range e.streams {
			if !s.stream.life.hasEnded {
				p.t.Errorf("side %d: stream %d has not ended", i, s.stream.Number())
			}
		}
	}
}

func TestTwoHonestSidesNeverSeeViolation(t *testing.T) {
	seeds := uint64(2000)
	if raceEnabled || testing.Short() {
		seeds = 200
	}
	streams, messages := 0, 0
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPair(t, seed)
			steps := 100 + p.random.IntN(2000)
			for i := range steps {
				p.step()
				if i == steps/2 && seed%7 == 0 {
					p.ends[seed%2].session.GoAway(5)
				}
			}
			p.settle()
			p.end()
			streams += p.opened
			for _, flow := range p.flows {
				messages += flow.received
			}
		})
	}
	if streams < int(seeds) || messages < 10*int(seeds) {
		t.Errorf("only %d streams and %d messages", streams, messages)
	}
	t.Logf("%d streams, %d messages", streams, messages)
}
