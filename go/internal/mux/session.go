// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
)

// A Session is one side of a session. Any number of goroutines may use it.
type Session struct {
	conn   Conn
	linger time.Duration

	mu            sync.Mutex // guards what follows, and the writing methods of conn
	state         *session.Session
	changed       broadcast // something has changed for callers of the session's own methods
	room          broadcast // there may be room
	isRoomAwaited bool      // a goroutine waits for room
	isLeaving     bool      // the driver has ended: nothing waits for room any more

	waits  sync.WaitGroup // the goroutine that waits for room
	driven chan struct{}  // closed when the connection is closed
	once   sync.Once      // of Close
}

// Start returns the session over a connection, and starts its driver, the goroutine that reads the
// records of the peer. [Session.Close] ends both, and waits for at most the linger time until the
// last records are written (SPEC 11.6).
func Start(conn Conn, state *session.Session, linger time.Duration) *Session {
	s := &Session{conn: conn, linger: linger, state: state, driven: make(chan struct{})}
	go s.drive()
	return s
}

// Open opens a stream (SPEC 11.2). While as many streams of this side are open as the peer allows,
// it waits.
func (s *Session) Open(ctx context.Context, content uint16, metadata []byte) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		state, err := s.state.Open(content, metadata)
		if err == nil {
			stream := newStream(s, state)
			s.flush()
			return stream, nil
		}
		if !errors.Is(err, session.ErrNoNumber) {
			return nil, err
		}
		if err := s.wait(limit{ctx: ctx}, s.changed.wait()); err != nil {
			return nil, err
		}
	}
}

// Accept waits for the next stream that the peer opens.
func (s *Session) Accept(ctx context.Context) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		state, err := s.state.Accept()
		if err == nil {
			stream := newStream(s, state)
			s.flush()
			return stream, nil
		}
		if !errors.Is(err, session.ErrEmpty) {
			return nil, err
		}
		if err := s.wait(limit{ctx: ctx}, s.changed.wait()); err != nil {
			return nil, err
		}
	}
}

// Ping sends PING, and waits until the peer has answered it.
func (s *Session) Ping(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := s.state.Ping()
	s.flush()
	for s.state.Answered() < token {
		if err := s.state.Err(); err != nil {
			return err
		}
		if err := s.wait(limit{ctx: ctx}, s.changed.wait()); err != nil {
			return err
		}
	}
	return nil
}

// GoAway asks the peer to open no more streams.
func (s *Session) GoAway(code uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.GoAway(code)
	s.flush()
}

// PeerGoAway waits until the peer has asked this side to open no more streams. It returns the
// [session.Error] with which [Session.Open] then fails.
func (s *Session) PeerGoAway(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.state.PeerGoAway() == nil {
		if err := s.state.Err(); err != nil {
			return err
		}
		if err := s.wait(limit{ctx: ctx}, s.changed.wait()); err != nil {
			return err
		}
	}
	return s.state.PeerGoAway()
}

// Drained waits until all streams have ended.
func (s *Session) Drained(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.state.StreamCount() > 0 {
		if err := s.state.Err(); err != nil {
			return err
		}
		if err := s.wait(limit{ctx: ctx}, s.changed.wait()); err != nil {
			return err
		}
	}
	return nil
}

// StreamCount returns the number of streams that have not ended.
func (s *Session) StreamCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.StreamCount()
}

// Err returns why the session is over, or nil.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Err()
}

// Done returns a channel that is closed once the session is over and its connection closed.
func (s *Session) Done() <-chan struct{} { return s.driven }

// Close ends the session and all its streams, and sends code and reason to the peer. It waits until
// the connection is closed, at most for the linger time.
func (s *Session) Close(code uint32, reason string) {
	s.once.Do(func() { s.close(code, reason) })
	<-s.driven
}

func (s *Session) close(code uint32, reason string) {
	s.mu.Lock()
	s.state.Close(code, reason)
	s.wakeAll()
	var lingering deadline
	lingering.set(time.Now().Add(s.linger))
	isWritten := s.isWritten()
	for !isWritten && s.wait(limit{deadline: &lingering}, s.room.wait()) == nil {
		isWritten = s.isWritten()
	}
	if isWritten || s.conn.Unwritten() == nil {
		s.closeWrite()
	}

	s.mu.Unlock()
	lingering.set(time.Time{})
	s.conn.Interrupt()
}

// isWritten reports whether everything was written and has left this process. If not, the session
// waits for that from now on. The lock is held.
func (s *Session) isWritten() bool {
	if !s.flush() {
		return false
	}
	wait := s.conn.Unwritten()
	if wait == nil || s.isLeaving {
		return true
	}
	s.requestRoom(wait)
	return false
}

// closeWrite writes the last record, unless the connection is closed already. Its error changes
// nothing: the connection is closed in any case. The lock is held.
func (s *Session) closeWrite() {
	if !s.isLeaving {
		_ = s.conn.CloseWrite()
	}
}

// drive reads the records of the peer until the connection ends, and closes the connection.
func (s *Session) drive() {
	defer close(s.driven)
	for s.readNext() {
	}
	s.mu.Lock()
	s.isLeaving = true
	s.mu.Unlock()
	s.conn.Interrupt()
	s.waits.Wait()
	s.conn.Close()
}

// readNext reads and applies one record of the peer, and returns whether another may follow.
func (s *Session) readNext() bool {
	header, payload, message, err := s.conn.ReadRecord()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.end(err)
		return false
	}
	wasOver := s.state.Err() != nil
	event, err := s.state.Receive(header, payload, message)
	s.flush()
	s.wake(event)
	if wasOver || s.state.Err() == nil {
		return true
	}
	// The peer has closed the session or broken a rule, so the driver reads no more (SPEC 11.6).
	s.wakeAll()
	if err == nil {
		s.closeWrite()
	}
	return false
}

// end ends the session because its connection has ended. The caller holds the session's lock.
func (s *Session) end(err error) {
	if errors.Is(err, io.EOF) {
		err = &session.Error{Number: layout.ErrorDisconnected}
	}
	s.state.End(err)
	s.wakeAll()
}

// flush writes the pending records, and returns whether all of them are written. If not, a
// goroutine waits for room and writes the rest. The caller holds the session's lock.
func (s *Session) flush() bool {
	if !s.state.HasPending() {
		return true
	}
	before := s.state.StreamCount()
	isDone, err := s.state.Flush(s.conn)
	if s.state.StreamCount() != before {
		s.changed.wake()
	}
	if err != nil {
		s.cutOff(err)
		return true // nothing more can be written
	}
	if !isDone {
		s.requestRoom(s.conn.Room())
	}
	return isDone
}

// cutOff notes that nothing more can be written. The driver reads on until the connection ends,
// unless the peer has broken a rule. The lock is held.
func (s *Session) cutOff(err error) {
	var violation layout.Violation
	if errors.As(err, &violation) {
		s.end(err)
		s.conn.Interrupt()
		return
	}
	s.state.CutOff()
	s.wakeAll()
}

// requestRoom lets a goroutine wait for room, which then writes what is pending and wakes those
// that wait to send. The lock is held.
func (s *Session) requestRoom(wait func() error) {
	if s.isRoomAwaited || s.isLeaving {
		return
	}
	s.isRoomAwaited = true
	s.waits.Go(func() {
		err := wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.isRoomAwaited = false
		if err != nil {
			s.cutOff(err)
		} else {
			s.flush()
		}
		s.room.wake()
	})
}

// wait waits for an event without the lock, which is held before and after.
func (s *Session) wait(l limit, event <-chan struct{}) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	return l.wait(event)
}

// wake wakes the goroutines that wait for what the event has changed. The caller holds the
// session's lock.
func (s *Session) wake(event session.Event) {
	if event.Stream != nil {
		if stream, isUsed := event.Stream.User.(*Stream); isUsed {
			if event.Change&session.Readable != 0 {
				stream.readable.wake()
			}
			if event.Change&session.Writable != 0 {
				stream.wakeSenders()
			}
		}
	}
	if event.Change&^(session.Readable|session.Writable) != 0 {
		s.changed.wake()
	}
}

// wakeAll wakes all goroutines that wait, because the session is over. The caller holds the
// session's lock.
func (s *Session) wakeAll() {
	for state := range s.state.Streams() {
		if stream, isUsed := state.User.(*Stream); isUsed {
			stream.readable.wake()
			stream.wakeSenders()
		}
	}
	s.changed.wake()
	s.room.wake()
}
