// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"partywall.test/go/internal/clock"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
	"partywall.test/go/internal/wire"
)

// A fakeConn is one side of a [Conn] without shared memory or sockets, for tests. Each direction is
// a queue of records with bounded room. The length of a message decides whether it goes as DATA,
// BLOB or fragments.
type fakeConn struct {
	in, out  *fakeQueue
	borrowed *int // number of messages of kind BLOB that the receiver has not released
	isWoken  bool // the lock of the queue in guards it
}

// A fakeQueue holds the records of one direction that were written and are not read yet.
type fakeQueue struct {
	mu       sync.Mutex
	records  []fakeRecord
	bytes    int
	isHungUp bool          // no more records come
	isClosed bool          // nobody reads any more
	changed  chan struct{} // channel that is closed at the next change of the queue
	isFull   bool          // a write has found no room since the last read
}

type fakeRecord struct {
	header  layout.Header
	payload []byte
	message []byte
}

// Maximum lengths in bytes: of all records in a queue, of a message that goes as DATA, and of one
// that goes as BLOB. Longer messages go in fragments.
const (
	fakeQueueMax = 16 << 10
	fakeDataMax  = 1 << 10
	fakeBlobMax  = 4 << 10
)

func newFakes() [2]*fakeConn {
	queues := [2]*fakeQueue{{changed: make(chan struct{})}, {changed: make(chan struct{})}}
	return [2]*fakeConn{
		{in: queues[0], out: queues[1], borrowed: new(int)},
		{in: queues[1], out: queues[0], borrowed: new(int)},
	}
}

// change calls f, which changes the queue, and wakes the goroutines that wait for a change.
func (q *fakeQueue) change(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	close(q.changed)
	q.changed = make(chan struct{})
}

func (w *fakeConn) WriteRecord(kind layout.Kind, stream uint32, payload []byte) (bool, error) {
	return w.write(kind, stream, payload, nil)
}

func (w *fakeConn) write(kind layout.Kind, stream uint32, payload, message []byte) (bool, error) {
	isWritten, isClosed := false, false
	w.out.change(func() {
		size := layout.RecordHeaderBytes + len(payload) + len(message)
		isClosed = w.out.isClosed || w.out.isHungUp
		isWritten = w.out.bytes == 0 || w.out.bytes+size <= fakeQueueMax
		w.out.isFull = w.out.isFull || !isWritten
		if isClosed || !isWritten {
			return
		}
		w.out.bytes += size
		header := layout.Header{Kind: kind, Len: uint32(len(payload)), Stream: stream}
		record := fakeRecord{header, bytes.Clone(payload), bytes.Clone(message)}
		w.out.records = append(w.out.records, record)
	})
	if isClosed {
		return false, io.ErrClosedPipe
	}
	return isWritten, nil
}

func (w *fakeConn) WriteMessage(m *Outgoing) (bool, error) {
	switch {
	case len(m.Payload) <= fakeDataMax:
		isWritten, err := w.write(layout.KindData, m.Stream, m.Payload, nil)
		m.HasBegun = isWritten
		return isWritten, err
	case len(m.Payload) <= fakeBlobMax:
		blob := layout.Blob{Length: uint64(len(m.Payload)), HasCredit: m.HasCredit, Credited: m.Credit}
		isWritten, err := w.write(layout.KindBlob, m.Stream, blob.Append(nil), m.Payload)
		if isWritten {
			m.HasBegun, m.HasCredit = true, false
		}
		return isWritten, err
	}
	for m.Written < len(m.Payload) {
		part := m.Payload[m.Written:min(len(m.Payload), m.Written+fakeDataMax)]
		kind, payload := layout.KindFragmentMid, part
		if !m.HasBegun {
			kind = layout.KindFragmentFirst
			payload = append(binary.LittleEndian.AppendUint64(nil, uint64(len(m.Payload))), part...)
		} else if m.Written+len(part) == len(m.Payload) {
			kind = layout.KindFragmentLast
		}
		if isWritten, err := w.write(kind, m.Stream, payload, nil); !isWritten || err != nil {
			return false, err
		}
		m.HasBegun = true
		m.Written += len(part)
	}
	return true, nil
}

func (w *fakeConn) HasBlock(n int) bool { return n > fakeDataMax && n <= fakeBlobMax }

func (w *fakeConn) Reserve(n int) (*wire.Reservation, error) {
	return &wire.Reservation{Bytes: make([]byte, n)}, nil
}

func (w *fakeConn) Free(*wire.Reservation) {}

func (w *fakeConn) Unwritten() func() error { return nil }

func (w *fakeConn) Room() func() error { return w.waitRoom }

func (w *fakeConn) waitRoom() error {
	for {
		w.out.mu.Lock()
		changed, isFull, isOver := w.out.changed, w.out.isFull, w.out.isClosed || w.out.isHungUp
		w.out.mu.Unlock()
		if isOver {
			return io.ErrClosedPipe
		}
		if !isFull {
			return nil
		}
		<-changed
	}
}

// Tick returns a timer of the Go runtime, whose time a bubble of package synctest decides.
func (w *fakeConn) Tick(call func()) clock.Tick { return clock.NewRuntimeTick(call) }

func (w *fakeConn) Wake() { w.in.change(func() { w.isWoken = true }) }

func (w *fakeConn) ReadRecord(bool) (layout.Header, []byte, session.Message, error) {
	for {
		var record fakeRecord
		var changed chan struct{}
		err := errEmpty
		w.in.mu.Lock()
		hasRecord := len(w.in.records) > 0 && !w.in.isClosed
		changed = w.in.changed
		if w.in.isClosed {
			err = net.ErrClosed
		} else if !hasRecord && w.in.isHungUp {
			err = io.EOF
		} else if !hasRecord && w.isWoken {
			err, w.isWoken = errWoken, false
		}
		w.in.mu.Unlock()
		switch {
		case hasRecord:
			w.in.change(func() {
				record = w.in.records[0]
				w.in.records = w.in.records[1:]
				w.in.bytes -= layout.RecordHeaderBytes + len(record.payload) + len(record.message)
				w.in.isFull = false
			})
			message := session.Message{Bytes: record.payload}
			if record.header.Kind == layout.KindBlob {
				message = session.Message{Bytes: record.message, Owner: w}
				w.in.change(func() { *w.borrowed++ })
			}
			return record.header, record.payload, message, nil
		case !errors.Is(err, errEmpty):
			return layout.Header{}, nil, session.Message{}, err
		}
		<-changed
	}
}

var errEmpty = errors.New("empty")

func (w *fakeConn) Release(uint64) { w.in.change(func() { *w.borrowed-- }) }

func (w *fakeConn) CloseWrite() error {
	w.out.change(func() {
		if !w.out.isHungUp {
			header := layout.Header{Kind: layout.KindCloseWrite}
			w.out.records = append(w.out.records, fakeRecord{header: header})
			w.out.bytes += layout.RecordHeaderBytes
		}
	})
	return nil
}

func (w *fakeConn) Interrupt() {
	w.out.change(func() { w.out.isHungUp = true })
	w.in.change(func() { w.in.isClosed = true })
}

func (w *fakeConn) Close() { w.Interrupt() }

// testDeadline is the longest time that a test waits for an expected event.
const testDeadline = 30 * time.Second

// testWindow is the stream window of both sides, in bytes.
const testWindow = 8 << 10

// A starter is a function that starts a session: Start, or startReference, in which the supervisor
// alone drives.
type starter = func(Conn, *session.Session, time.Duration) *Session

// start returns two sessions over a fake connection, which are closed when the test ends.
func start(t *testing.T, conns [2]*fakeConn) [2]*Session { return startBy(t, Start, conns) }

func startBy(t *testing.T, start starter, conns [2]*fakeConn) [2]*Session {
	t.Helper()
	var sessions [2]*Session
	for i, conn := range conns {
		limits := layout.Limits{MapMax: 1 << 40, MessageMax: 1 << 30, SegmentsMax: 1}
		state := session.New(session.Config{
			Role:           uint32(i),
			Limits:         limits,
			Window:         testWindow,
			StreamsMax:     8,
			PeerMessageMax: 1 << 30,
			PeerWindow:     testWindow,
			PeerStreamsMax: 8,
		}, layout.NewSegments(limits, 1<<39, math.MaxInt32))
		sessions[i] = start(conn, state, 5*time.Second)
	}
	closeAtEnd(t, sessions)
	return sessions
}

func closeAtEnd(t *testing.T, sessions [2]*Session) {
	t.Cleanup(func() {
		for _, s := range sessions {
			s.Close(0, "")
		}
	})
}

// newPair returns two sessions over a fake connection, and its two sides. The test fails if the
// memory of a message is not given back in the end.
func newPair(t *testing.T) ([2]*Session, [2]*fakeConn) {
	t.Helper()
	conns := newFakes()
	t.Cleanup(func() {
		for i, conn := range conns {
			if *conn.borrowed != 0 {
				t.Errorf("side %d has not given back %d messages", i, *conn.borrowed)
			}
		}
	})
	return start(t, conns), conns
}

// overEach runs a test with two sessions, once over each kind of connection: a fake one, shared
// memory, and sockets. It also runs the test over a fake connection where the supervisor alone
// reads the records.
func overEach(t *testing.T, test func(*testing.T, [2]*Session)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) {
		sessions, _ := newPair(t)
		test(t, sessions)
	})
	t.Run("reference", func(t *testing.T) { test(t, startBy(t, startReference, newFakes())) })
	for _, transport := range transports {
		t.Run(transport.name, func(t *testing.T) { test(t, transport.connect(t)) })
	}
}
