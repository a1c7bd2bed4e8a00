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

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
)

// A twin is one side of a connection within the process: a queue of records with bounded room in
// each direction. Messages go as DATA, BLOB or fragments, by their length.
type twin struct {
	in, out *twinQueue
	lent    *int // messages of BLOB that nobody has released
}

// A twinQueue holds the records of one direction.
type twinQueue struct {
	mu       sync.Mutex
	records  []twinRecord
	bytes    int
	isHungUp bool          // no more records come
	isClosed bool          // nobody reads any more
	changed  chan struct{} // closed at the next change
	isFull   bool          // a write has failed since the last read
}

type twinRecord struct {
	header  layout.Header
	payload []byte
	message []byte
}

// Lengths in bytes: of a queue, of the longest DATA, and of the messages that go as BLOB.
const (
	twinQueueMax = 16 << 10
	twinDataMax  = 1 << 10
	twinBlobMax  = 4 << 10
)

// newTwins returns the two sides of a connection.
func newTwins() [2]*twin {
	queues := [2]*twinQueue{{changed: make(chan struct{})}, {changed: make(chan struct{})}}
	return [2]*twin{
		{in: queues[0], out: queues[1], lent: new(int)},
		{in: queues[1], out: queues[0], lent: new(int)},
	}
}

// change lets f change the queue, and wakes those that wait for a change.
func (q *twinQueue) change(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	close(q.changed)
	q.changed = make(chan struct{})
}

func (w *twin) WriteRecord(kind layout.Kind, stream uint32, payload []byte) (bool, error) {
	return w.write(kind, stream, payload, nil)
}

func (w *twin) write(kind layout.Kind, stream uint32, payload, message []byte) (bool, error) {
	isWritten, isClosed := false, false
	w.out.change(func() {
		size := layout.RecordHeaderBytes + len(payload) + len(message)
		isClosed = w.out.isClosed || w.out.isHungUp
		isWritten = w.out.bytes == 0 || w.out.bytes+size <= twinQueueMax
		w.out.isFull = w.out.isFull || !isWritten
		if isClosed || !isWritten {
			return
		}
		w.out.bytes += size
		header := layout.Header{Kind: kind, Len: uint32(len(payload)), Stream: stream}
		record := twinRecord{header, bytes.Clone(payload), bytes.Clone(message)}
		w.out.records = append(w.out.records, record)
	})
	if isClosed {
		return false, io.ErrClosedPipe
	}
	return isWritten, nil
}

func (w *twin) WriteMessage(m *Outgoing) (bool, error) {
	switch {
	case len(m.Payload) <= twinDataMax:
		isWritten, err := w.write(layout.KindData, m.Stream, m.Payload, nil)
		m.HasBegun = isWritten
		return isWritten, err
	case len(m.Payload) <= twinBlobMax:
		blob := layout.Blob{Length: uint64(len(m.Payload)), HasCredit: m.HasCredit, Credited: m.Credit}
		isWritten, err := w.write(layout.KindBlob, m.Stream, blob.Append(nil), m.Payload)
		if isWritten {
			m.HasBegun, m.HasCredit = true, false
		}
		return isWritten, err
	}
	for m.Written < len(m.Payload) {
		part := m.Payload[m.Written:min(len(m.Payload), m.Written+twinDataMax)]
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

func (w *twin) WaitRoom() error {
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

func (w *twin) ReadRecord() (layout.Header, []byte, session.Message, error) {
	for {
		var record twinRecord
		var changed chan struct{}
		err := errEmpty
		w.in.mu.Lock()
		hasRecord := len(w.in.records) > 0 && !w.in.isClosed
		changed = w.in.changed
		if w.in.isClosed {
			err = net.ErrClosed
		} else if !hasRecord && w.in.isHungUp {
			err = io.EOF
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
				w.in.change(func() { *w.lent++ })
			}
			return record.header, record.payload, message, nil
		case !errors.Is(err, errEmpty):
			return layout.Header{}, nil, session.Message{}, err
		}
		<-changed
	}
}

var errEmpty = errors.New("empty")

// Release implements [session.Owner].
func (w *twin) Release(uint64) { w.in.change(func() { *w.lent-- }) }

func (w *twin) CloseWrite() error {
	w.out.change(func() {
		if !w.out.isHungUp {
			header := layout.Header{Kind: layout.KindCloseWrite}
			w.out.records = append(w.out.records, twinRecord{header: header})
			w.out.bytes += layout.RecordHeaderBytes
		}
	})
	return nil
}

func (w *twin) Close() error {
	w.out.change(func() { w.out.isHungUp = true })
	w.in.change(func() { w.in.isClosed = true })
	return nil
}

// testDeadline is how long a test waits for what must happen.
const testDeadline = 30 * time.Second

// testWindow is the stream window of both sides.
const testWindow = 8 << 10

// newPair returns two sessions over a connection, which end with the test.
func newPair(t *testing.T) ([2]*Session, [2]*twin) {
	t.Helper()
	twins := newTwins()
	var sessions [2]*Session
	for i, twin := range twins {
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
		sessions[i] = Start(twin, state, 5*time.Second)
	}
	t.Cleanup(func() {
		for i, s := range sessions {
			s.Close(0, "")
			if *twins[i].lent != 0 {
				t.Errorf("side %d has not given back %d messages", i, *twins[i].lent)
			}
		}
	})
	return sessions, twins
}
