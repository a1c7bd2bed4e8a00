// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
)

// A Stream is one side of a stream that any number of goroutines may use, one at a time in each
// direction. It carries messages, or bytes (SPEC 11.8).
type Stream struct {
	session *Session
	state   *session.Stream

	sending, receiving turn // one goroutine at a time
	writeDeadline      deadline
	readDeadline       deadline

	// The lock of the session guards what follows.
	readable, writable broadcast
	outgoing           *Outgoing // the message under way

	isClosed atomic.Bool     // set under the lock of the session
	rest     session.Message // what Read has not read of a message; the receiving turn guards it
}

// A turn is held by at most one goroutine.
type turn chan struct{}

// take waits for the turn.
func (t turn) take(l limit) error {
	if err := l.check(); err != nil {
		return err
	}
	select {
	case <-t:
		return nil
	default:
		return l.wait(t)
	}
}

// give lets the next goroutine have the turn.
func (t turn) give() { t <- struct{}{} }

func newTurn() turn {
	t := make(turn, 1)
	t.give()
	return t
}

// newStream returns the stream of the state. The lock of the session is held.
func newStream(s *Session, state *session.Stream) *Stream {
	stream := &Stream{session: s, state: state, sending: newTurn(), receiving: newTurn()}
	state.User = stream
	return stream
}

// Number returns the number of the stream.
func (s *Stream) Number() uint32 { return s.state.Number() }

// Content returns what the opener says the stream carries.
func (s *Stream) Content() uint16 { return s.state.Content() }

// Metadata returns the metadata that the opener gave.
func (s *Stream) Metadata() []byte { return s.state.Metadata() }

// Session returns the session of the stream.
func (s *Stream) Session() *Session { return s.session }

// A Message is a message that was received. Release gives its memory back.
type Message struct {
	session.Message
	session *Session
}

// Release gives the memory of the message back. Nobody reads its bytes afterwards.
func (m Message) Release() {
	if m.Owner != nil {
		m.session.mu.Lock()
		defer m.session.mu.Unlock()
		m.Message.Release()
	}
}

// Recv waits for a message. The error is [io.EOF] after the last one, a [session.Error], that of
// the context, or why the session is over.
func (s *Stream) Recv(ctx context.Context) (Message, error) {
	return s.recv(limit{ctx: ctx, deadline: &s.readDeadline})
}

func (s *Stream) recv(l limit) (Message, error) {
	if err := s.receiving.take(l); err != nil {
		return Message{}, err
	}
	defer s.receiving.give()
	m, err := s.next(l)
	return Message{m, s.session}, err
}

// next waits for a message. The receiving turn is held.
func (s *Stream) next(l limit) (session.Message, error) {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	for {
		if s.isClosed.Load() {
			return session.Message{}, net.ErrClosed
		}
		m, err := s.state.Recv()
		s.session.flush()
		if !errors.Is(err, session.ErrEmpty) {
			return m, err
		}
		if err := s.session.wait(l, &s.readable); err != nil {
			return session.Message{}, err
		}
	}
}

// Send sends a message. It waits for credit and for room. If the error is that of the context, the
// message is not sent; other errors are a [session.Error], or why the session is over.
func (s *Stream) Send(ctx context.Context, payload []byte) error {
	l := limit{ctx: ctx, deadline: &s.writeDeadline}
	if err := s.sending.take(l); err != nil {
		return err
	}
	defer s.sending.give()
	return s.send(l, payload)
}

// send sends one message. The sending turn is held.
func (s *Stream) send(l limit, payload []byte) error {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	s.outgoing = &Outgoing{Stream: s.state.Number(), Payload: payload}
	defer func() { s.outgoing = nil }()
	for {
		if s.isClosed.Load() {
			return net.ErrClosed
		}
		isSent, event, err := s.trySend(s.outgoing)
		if err != nil || isSent {
			return err
		}
		if err := s.session.wait(l, event); err != nil {
			s.giveUp()
			return err
		}
	}
}

// trySend goes on with a message after what is pending. If the message is not sent then, it returns
// the event to wait for. The lock is held.
func (s *Stream) trySend(m *Outgoing) (bool, *broadcast, error) {
	if err := s.state.SendErr(); err != nil {
		return false, nil, err
	}
	if !s.session.flush() {
		return false, &s.session.room, nil
	}
	hadBegun := m.HasBegun
	if !hadBegun {
		err := s.state.MayBegin(uint64(len(m.Payload)))
		if errors.Is(err, session.ErrNoCredit) {
			s.session.flush() // credit for the peer may be pending now
			return false, &s.writable, nil
		}
		if err != nil {
			return false, nil, err
		}
		m.Credit, m.HasCredit = s.state.DueCredit()
	}
	hadCredit := m.HasCredit
	isDone, err := s.session.conn.WriteMessage(m)
	if m.HasBegun && !hadBegun {
		if hadCredit && !m.HasCredit {
			s.state.Credited(m.Credit)
		}
		s.state.Begun(uint64(len(m.Payload)))
		m.HasCredit = false
	}
	if err != nil {
		s.session.cutOff(err)
		return false, nil, s.state.SendErr()
	}
	if !isDone {
		s.session.requestRoom(s.session.conn.Room())
	}
	return isDone, &s.session.room, nil
}

// giveUp notes that the message under way will not be completed. The lock is held.
func (s *Stream) giveUp() {
	if s.outgoing != nil && s.outgoing.HasBegun {
		s.state.Abort()
		s.session.flush()
	}
}

// Read reads bytes (SPEC 11.8). The error is [os.ErrDeadlineExceeded], [net.ErrClosed] after
// [Stream.Close], or that of [Stream.Recv].
func (s *Stream) Read(b []byte) (int, error) {
	l := limit{deadline: &s.readDeadline}
	if err := s.receiving.take(l); err != nil {
		return 0, err
	}
	defer s.receiving.give()
	for len(s.rest.Bytes) == 0 && len(b) > 0 || s.isClosed.Load() {
		s.release()
		m, err := s.next(l)
		if err != nil {
			return 0, err
		}
		s.rest = m
	}
	n := copy(b, s.rest.Bytes)
	s.rest.Bytes = s.rest.Bytes[n:]
	if len(s.rest.Bytes) == 0 || s.isClosed.Load() {
		s.release()
	}
	return n, nil
}

// release gives the memory back of the message that was read last. The receiving turn is held.
func (s *Stream) release() {
	Message{s.rest, s.session}.Release()
	s.rest = session.Message{}
}

// Write sends bytes (SPEC 11.8). The errors are those of [Stream.Send], [os.ErrDeadlineExceeded],
// or [net.ErrClosed] after [Stream.Close]. With an error it returns how many bytes were sent.
func (s *Stream) Write(b []byte) (int, error) {
	l := limit{deadline: &s.writeDeadline}
	if err := s.sending.take(l); err != nil {
		return 0, err
	}
	defer s.sending.give()
	written := 0
	for len(b) > 0 {
		part := b[:min(len(b), writeBytesMax)]
		if err := s.send(l, part); err != nil {
			return written, err
		}
		written += len(part)
		b = b[len(part):]
	}
	return written, s.checkWrite(written)
}

// checkWrite returns why nothing can be written, for a write of nothing.
func (s *Stream) checkWrite(written int) error {
	if written > 0 {
		return nil
	}
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	if s.isClosed.Load() {
		return net.ErrClosed
	}
	return s.state.SendErr()
}

// CloseWrite ends the sending after what was sent. A message under way is given up.
func (s *Stream) CloseWrite() {
	s.change(func() {
		s.giveUp()
		s.state.CloseWrite()
	})
}

// Reset ends the sending, and gives up what is under way. The peer gets the code.
func (s *Stream) Reset(code uint32) { s.change(func() { s.state.Reset(code) }) }

// Refuse ends both directions of a stream that the application has not seen.
func (s *Stream) Refuse() {
	s.change(func() {
		s.state.Reset(layout.ResetRefused)
		s.state.Stop(layout.ResetRefused)
	})
}

// Stop ends the receiving, and drops what is unread. The peer gets the code.
func (s *Stream) Stop(code uint32) { s.change(func() { s.state.Stop(code) }) }

// Close ends both directions: everything that was sent is delivered, and what is unread is dropped.
// Calls that wait return with [net.ErrClosed], as a second Close does.
func (s *Stream) Close() error {
	if s.isClosed.Load() {
		return net.ErrClosed
	}
	s.change(func() {
		s.giveUp()
		s.state.CloseWrite()
		s.state.Stop(layout.ResetDropped)
		s.isClosed.Store(true)
	})
	select {
	case <-s.receiving:
		s.release()
		s.receiving.give()
	default: // Read has the turn, and releases the message itself
	}
	return nil
}

// change changes the state under the lock, writes what is pending then, and wakes those that wait.
func (s *Stream) change(change func()) {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	if s.isClosed.Load() {
		return
	}
	change()
	s.session.flush()
	s.readable.wake()
	s.writable.wake()
	s.session.room.wake()
}

// Stopped waits until this side can send no more, and returns why.
func (s *Stream) Stopped(ctx context.Context) error {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	for s.state.SendErr() == nil {
		if err := s.session.wait(limit{ctx: ctx}, &s.writable); err != nil {
			return err
		}
	}
	return s.state.SendErr()
}

// SetReadDeadline moves the deadline of calls that receive, also of those that wait. The zero time
// never passes. The error is [net.ErrClosed] after [Stream.Close].
func (s *Stream) SetReadDeadline(t time.Time) error { return s.setDeadlines(t, &s.readDeadline) }

// SetWriteDeadline moves the deadline of calls that send, as [Stream.SetReadDeadline] does.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.setDeadlines(t, &s.writeDeadline) }

// SetDeadline moves both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	return s.setDeadlines(t, &s.readDeadline, &s.writeDeadline)
}

func (s *Stream) setDeadlines(t time.Time, deadlines ...*deadline) error {
	if s.isClosed.Load() {
		return net.ErrClosed
	}
	for _, d := range deadlines {
		d.set(t)
	}
	return nil
}

// writeBytesMax is the longest message that [Stream.Write] sends, in bytes (SPEC 11.8).
const writeBytesMax = 64 << 10

var _ io.ReadWriteCloser = (*Stream)(nil)
