// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
	"partywall.test/go/internal/wire"
)

// A Reservation is memory for one message of a stream. Commit or Abort ends the reservation. One
// goroutine uses it at a time.
type Reservation struct {
	stream *Stream
	memory *wire.Reservation
}

// Reserve returns memory for a message of n bytes, without waiting. If no memory is free that the
// peer could read, the result is private memory, whose bytes Commit copies as Send does.
func (s *Stream) Reserve(n int) (*Reservation, error) {
	memory, err := s.reserve(n)
	if err != nil {
		return nil, err
	}
	return &Reservation{s, memory}, nil
}

func (s *Stream) reserve(n int) (*wire.Reservation, error) {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	if err := s.sendErr(); err != nil {
		return nil, err
	}
	if uint64(n) > s.state.MessageMax() {
		return nil, &session.Error{Number: layout.ErrorMessageTooLong}
	}
	return s.session.conn.Reserve(n)
}

// reserveNow returns a block for a message of n bytes if the stream has the credit to send it now,
// and otherwise nil. A stream that waits for credit keeps no block, because other streams may need
// it.
func (s *Stream) reserveNow(n int) *wire.Reservation {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	conn := s.session.conn
	if s.sendErr() != nil || !conn.HasBlock(n) || !s.state.HasCredit(uint64(n)) {
		return nil
	}
	// The error is ignored: without a block the message is sent from private memory, and the
	// sending reports the error if the connection has one.
	memory, err := conn.Reserve(n)
	if err != nil {
		return nil
	}
	return memory
}

// Bytes returns the reserved memory.
func (r *Reservation) Bytes() []byte { return r.memory.Bytes }

// Commit sends the first n bytes of the reserved memory as one message. Its errors are those of
// [Stream.Send]. Even after an error the reservation has ended.
func (r *Reservation) Commit(ctx context.Context, n int) error {
	s := r.stream
	l := limit{ctx: ctx, deadline: &s.writeDeadline}
	if err := s.sending.take(l); err != nil {
		r.Abort()
		return err
	}
	defer s.sending.give()
	return s.sendOutgoing(l, Outgoing{
		Stream: s.state.Number(), Payload: r.memory.Bytes[:n], Reserved: r.memory,
	})
}

// Abort frees the reserved memory without sending a message.
func (r *Reservation) Abort() {
	r.stream.session.mu.Lock()
	defer r.stream.session.mu.Unlock()
	r.stream.session.conn.Free(r.memory)
}
