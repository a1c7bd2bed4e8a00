// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
)

// A Session is one side of a session. Any number of goroutines may use it at once.
type Session struct {
	conn   Conn
	linger time.Duration

	mu            sync.Mutex // guards what follows, and the writing methods of conn
	state         *session.Session
	changed       broadcast // something has changed for callers of the session's own methods
	room          broadcast // there may be room
	isRoomAwaited bool      // a goroutine waits for room
	isInterrupted bool      // the connection is interrupted, or will be at once
	isLeaving     bool      // the connection closes: nothing waits for room any more
	role          role      // of the driver

	isWoken atomic.Bool // the driver looks at its limit and its event

	wakes func() // awaken, made once, so that it allocates nothing

	waits sync.WaitGroup // the goroutine that waits for room
	ended chan struct{}  // closed when the connection is closed
	once  sync.Once      // of Close
}

// Start returns the session over a connection. The goroutines that wait on the session read its
// records, and a supervisor does while none waits. [Session.Close] ends the session, and waits for
// at most the time linger until the last records are written (SPEC 11.6).
func Start(conn Conn, state *session.Session, linger time.Duration) *Session {
	s := newSession(conn, state, linger)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role.startTick()
	return s
}

// startReference starts a session as [Start] does, except that the supervisor alone reads the
// records. Tests compare other sessions with such a one.
func startReference(conn Conn, state *session.Session, linger time.Duration) *Session {
	s := newSession(conn, state, linger)
	s.role.isPermanent = true
	s.role.take(false)
	go s.keep()
	return s
}

func newSession(conn Conn, state *session.Session, linger time.Duration) *Session {
	s := &Session{conn: conn, linger: linger, state: state, ended: make(chan struct{})}
	s.wakes, s.role.tick = s.awaken, conn.Tick(s.onTick)
	return s
}

// Open opens a stream (SPEC 11.2). While this side has as many streams open as the peer allows,
// Open waits.
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
		if err := s.wait(limit{ctx: ctx}, s.changed.wait(), urgent); err != nil {
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
		if err := s.wait(limit{ctx: ctx}, s.changed.wait(), background); err != nil {
			return nil, err
		}
	}
}

// Ping sends a record PING, and waits until the peer has answered it.
func (s *Session) Ping(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := s.state.Ping()
	s.flush()
	return s.await(ctx, urgent, func() bool { return s.state.Answered() >= token })
}

// await waits until is() returns true, or the session is over. The caller holds the session's lock.
func (s *Session) await(ctx context.Context, isUrgent bool, is func() bool) error {
	for !is() {
		if err := s.state.Err(); err != nil {
			return err
		}
		if err := s.wait(limit{ctx: ctx}, s.changed.wait(), isUrgent); err != nil {
			return err
		}
	}
	return nil
}

// GoAway asks the peer to open no more streams in this session.
func (s *Session) GoAway(code uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.GoAway(code)
	s.flush()
}

// PeerGoAway waits until the peer has asked this side to open no more streams. It returns the
// [session.Error] that [Session.Open] returns from then on.
func (s *Session) PeerGoAway(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.await(ctx, background, func() bool { return s.state.PeerGoAway() != nil })
	if err != nil {
		return err
	}
	return s.state.PeerGoAway()
}

// IsGoingAway reports whether the peer has asked this side to open no more streams.
func (s *Session) IsGoingAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.PeerGoAway() != nil
}

// Drained waits until all streams of the session have ended.
func (s *Session) Drained(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.await(ctx, background, func() bool { return s.state.StreamCount() == 0 })
}

// StreamCount returns the number of streams that have not ended.
func (s *Session) StreamCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.StreamCount()
}

// Err returns the reason why the session is over, or nil while it is not.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Err()
}

// Done returns a channel that is closed once the session is over and its connection closed.
func (s *Session) Done() <-chan struct{} { return s.ended }

// Close ends the session and all its streams, and sends code and reason to the peer. It waits until
// the connection is closed, for at most the linger time given to [Start].
func (s *Session) Close(code uint32, reason string) {
	s.once.Do(func() { s.close(code, reason) })
	<-s.ended
}

func (s *Session) close(code uint32, reason string) {
	s.mu.Lock()
	s.state.Close(code, reason)
	s.wakeAll()
	lingering := deadline{wake: s.wakes}
	lingering.set(time.Now().Add(s.linger))
	isWritten := s.isWritten()
	for !isWritten && s.wait(limit{deadline: &lingering}, s.room.wait(), background) == nil {
		isWritten = s.isWritten()
	}
	if isWritten || s.conn.Unwritten() == nil {
		s.closeWrite()
	}
	s.interrupt()
	s.mu.Unlock()
	lingering.set(time.Time{})
}

// interrupt ends all waits on the connection, so that the driver notices that the session ends. The
// caller holds the session's lock.
func (s *Session) interrupt() {
	s.isInterrupted = true
	if s.role.state == roleDriven {
		s.conn.Interrupt()
	} else {
		s.finish()
	}
}

// isWritten reports whether all records were written and have left this process. If they have not,
// a goroutine now waits for that. The caller holds the session's lock.
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

// closeWrite writes the last record of this side, unless the connection is closed already. The
// error of writing it is ignored, because the connection is then closed in any case. The caller
// holds the session's lock.
func (s *Session) closeWrite() {
	if !s.isLeaving {
		_ = s.conn.CloseWrite()
	}
}

// end ends the session because its connection has ended with err. The caller holds the session's
// lock.
func (s *Session) end(err error) {
	if errors.Is(err, io.EOF) {
		err = &session.Error{Number: layout.ErrorDisconnected}
	}
	s.state.End(err)
	s.wakeAll()
}

// flush writes the pending records of the session and its streams, and returns whether all are
// written. If there is no room for some, a goroutine waits for room and writes them later. The
// caller holds the session's lock.
func (s *Session) flush() bool {
	if !s.state.HasPending() {
		return true
	}
	before := s.state.StreamCount()
	isDone, err := s.state.Flush(s.conn)
	if s.state.StreamCount() != before {
		s.changed.wake()
		s.wakeDriver()
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

// cutOff notes that the connection accepts no more records because of err. If err says that the
// peer has broken a rule, the session ends. Otherwise this side still reads records until the
// connection ends. The caller holds the session's lock.
func (s *Session) cutOff(err error) {
	var violation layout.Violation
	if errors.As(err, &violation) {
		s.end(err)
		s.interrupt()
		return
	}
	s.state.CutOff()
	s.wakeAll()
}

// requestRoom starts a goroutine that waits for room by calling wait. The goroutine then writes the
// pending records, and wakes the goroutines that wait to send. The caller holds the session's lock.
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
		s.wakeDriver()
	})
}

// wake wakes the goroutines that wait for a change which the event reports. The caller holds the
// session's lock.
func (s *Session) wake(event session.Event) {
	if event.Stream != nil {
		if stream, isUsed := event.Stream.User.(*Stream); isUsed {
			if event.Change&session.Readable != 0 {
				stream.readable.wake()
			}
			if event.Change&session.Writable != 0 {
				stream.writable.wake()
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
			stream.writable.wake()
		}
	}
	s.changed.wake()
	s.room.wake()
	s.wakeDriver()
}
