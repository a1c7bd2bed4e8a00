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

// A Stream is one side of a stream, and carries messages or bytes (SPEC 11.8). Any number of
// goroutines may use it: calls that send run one after the other, and so do calls that receive.
type Stream struct {
	session *Session
	state   *session.Stream

	sending, receiving turn // one goroutine at a time
	writeDeadline      deadline
	readDeadline       deadline

	readable, writable notice // for the holders of the turns

	// The session's lock guards the following fields of the stream.
	outgoing  Outgoing // the message under way
	isSending bool     // there is one

	isClosed atomic.Bool     // set under the lock of the session
	rest     session.Message // what Read has not read of a message; the receiving turn guards it
	gathered []byte          // memory for short buffers; the sending turn guards it
}

// A turn is the right to send on a stream, or the right to receive on it. One goroutine at a time
// has the turn.
type turn chan struct{}

// take waits until no other goroutine has the turn, and takes it. The error says that the limit l
// was reached first.
func (t turn) take(l limit) error {
	if err := l.check(); err != nil {
		return err
	}
	select {
	case <-t:
		return nil
	default:
		_, err := l.wait(t, nil)
		return err
	}
}

func (t turn) give() { t <- struct{}{} }

func newTurn() turn {
	t := make(turn, 1)
	t.give()
	return t
}

// newStream returns the stream of session s whose state is given. The caller holds the session's
// lock.
func newStream(s *Session, state *session.Stream) *Stream {
	stream := &Stream{
		session: s, state: state, sending: newTurn(), receiving: newTurn(),
		readable: newNotice(), writable: newNotice(),
	}
	stream.readDeadline.wake, stream.writeDeadline.wake = s.wakes, s.wakes
	state.User = stream
	return stream
}

// Number returns the number of the stream.
func (s *Stream) Number() uint32 { return s.state.Number() }

// Content returns the number with which the stream's opener says what the stream carries.
func (s *Stream) Content() uint16 { return s.state.Content() }

// Metadata returns the bytes that the stream's opener sent in the record OPEN.
func (s *Stream) Metadata() []byte { return s.state.Metadata() }

// Session returns the session of the stream.
func (s *Stream) Session() *Session { return s.session }

// A Message is a message that was received. [Message.Release] frees its memory.
type Message struct {
	session.Message
	session *Session
}

// Release frees the memory of the message. The caller must not read the bytes afterwards.
func (m Message) Release() {
	if m.Owner != nil {
		m.session.mu.Lock()
		defer m.session.mu.Unlock()
		m.Message.Release()
	}
}

// Recv waits for a message. The error is [io.EOF] after the last message, a [session.Error], the
// error of ctx, or the reason why the session is over.
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

// next waits for the next message of the stream. The caller has the right to receive on the stream.
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
		if err := s.session.wait(l, s.readable, urgent); err != nil {
			return session.Message{}, err
		}
	}
}

// Send sends a message, and waits for credit and for room. If ctx ends first, the message is not
// sent, and the error is that of ctx. Other errors are a [session.Error], or the reason why the
// session is over.
func (s *Stream) Send(ctx context.Context, payload []byte) error {
	l := limit{ctx: ctx, deadline: &s.writeDeadline}
	if err := s.sending.take(l); err != nil {
		return err
	}
	defer s.sending.give()
	return s.send(l, payload)
}

// send sends one message. The caller has the right to send on the stream.
func (s *Stream) send(l limit, payload []byte) error {
	return s.sendOutgoing(l, Outgoing{Stream: s.state.Number(), Payload: payload})
}

// sendOutgoing sends one message. If the message lies in a reservation and is not sent, the
// reservation is freed. The caller has the right to send on the stream.
func (s *Stream) sendOutgoing(l limit, m Outgoing) error {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	s.outgoing = m
	s.isSending = true
	defer s.forget()
	for {
		if s.isClosed.Load() {
			return net.ErrClosed
		}
		isSent, event, err := s.trySend(&s.outgoing)
		if err != nil || isSent {
			return err
		}
		if err := s.session.wait(l, event, urgent); err != nil {
			s.giveUp()
			return err
		}
	}
}

// trySend writes the pending records of the session, and then as much of the message m as there is
// room and credit for. If m is not sent completely, trySend returns the event to wait for. The
// caller holds the session's lock.
func (s *Stream) trySend(m *Outgoing) (bool, <-chan struct{}, error) {
	if err := s.state.SendErr(); err != nil {
		return false, nil, err
	}
	if !s.session.flush() {
		return false, s.session.room.wait(), nil
	}
	hadBegun := m.HasBegun
	if !hadBegun {
		err := s.state.MayBegin(uint64(len(m.Payload)))
		if errors.Is(err, session.ErrNoCredit) {
			s.session.flush() // credit for the peer may be pending now
			return false, s.writable, nil
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
	if isDone {
		return true, nil, nil
	}
	s.session.requestRoom(s.session.conn.Room())
	return false, s.session.room.wait(), nil
}

// forget drops the message that the stream was sending, and frees its reservation. The caller holds
// the session's lock.
func (s *Stream) forget() {
	if s.outgoing.Reserved != nil {
		s.session.conn.Free(s.outgoing.Reserved)
	}
	s.outgoing, s.isSending = Outgoing{}, false
}

// sendErr returns the reason why this side can send no more on the stream, or nil. The caller holds
// the session's lock.
func (s *Stream) sendErr() error {
	if s.isClosed.Load() {
		return net.ErrClosed
	}
	return s.state.SendErr()
}

// giveUp tells the peer to drop the message that the stream is sending, if its first record is
// written. The caller holds the session's lock.
func (s *Stream) giveUp() {
	if s.isSending && s.outgoing.HasBegun {
		s.state.Abort()
		s.session.flush()
	}
}

// Read reads bytes of received messages (SPEC 11.8). The error is [os.ErrDeadlineExceeded],
// [net.ErrClosed] after [Stream.Close], or an error of [Stream.Recv].
func (s *Stream) Read(b []byte) (int, error) {
	l := limit{deadline: &s.readDeadline}
	if err := s.receiving.take(l); err != nil {
		return 0, err
	}
	defer s.receiving.give()
	if len(b) > 0 || s.isClosed.Load() {
		if err := s.refill(l); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.rest.Bytes)
	s.skip(n)
	return n, nil
}

// release frees the memory of the message from which Read last read. The caller has the right to
// receive on the stream.
func (s *Stream) release() {
	Message{s.rest, s.session}.Release()
	s.rest = session.Message{}
}

// Write sends bytes as messages of up to 64 KiB, or slightly more (SPEC 11.8). The errors are those
// of [Stream.Send], [os.ErrDeadlineExceeded], or [net.ErrClosed] after [Stream.Close]. With an
// error it returns how many bytes were sent.
func (s *Stream) Write(b []byte) (int, error) {
	l := limit{deadline: &s.writeDeadline}
	if err := s.sending.take(l); err != nil {
		return 0, err
	}
	defer s.sending.give()
	written := 0
	for len(b) > 0 {
		part := b[:s.cut(len(b))]
		if err := s.send(l, part); err != nil {
			return written, err
		}
		written += len(part)
		b = b[len(part):]
	}
	return written, s.checkWrite(written)
}

// cut returns how many of n unsent bytes the next message takes.
func (s *Stream) cut(n int) int {
	return cutBytes(n, s.state.MessageMax(), s.session.conn.HasBlock)
}

// cutBytes returns how many of n unsent bytes the next message takes: up to writeBytesMax, and no
// more than longest, which the peer receives. Where messages go in blocks, a rest that is too short
// for a block of its own, and at most restBytesMax, goes along. As another message it would wake
// the reader again, and be one more message that the reader returns credit for.
func cutBytes(n int, longest uint64, hasBlock func(int) bool) int {
	rest := n - writeBytesMax
	switch {
	case uint64(n) > longest:
		return int(max(min(writeBytesMax, longest), 1))
	case rest > restBytesMax, rest > 0 && (hasBlock(rest) || !hasBlock(n)):
		return writeBytesMax
	}
	return n
}

// checkWrite returns an error after a Write of no bytes if this side can send no more on the
// stream.
func (s *Stream) checkWrite(written int) error {
	if written > 0 {
		return nil
	}
	return s.SendErr()
}

// SendErr returns the reason why this side can send no more on the stream, or nil.
func (s *Stream) SendErr() error {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	return s.sendErr()
}

// CloseWrite ends this side's sending in good order: the peer receives all complete messages, then
// the end. It aborts a message that is only partly sent.
func (s *Stream) CloseWrite() {
	s.change(func() {
		s.giveUp()
		s.state.CloseWrite()
	})
}

// Reset ends this side's sending, aborts a message that is only partly sent, and sends the code to
// the peer.
func (s *Stream) Reset(code uint32) { s.change(func() { s.state.Reset(code) }) }

// Refuse ends both directions of a stream that the application has not seen.
func (s *Stream) Refuse() {
	s.change(func() {
		s.state.Reset(layout.ResetRefused)
		s.state.Stop(layout.ResetRefused)
	})
}

// Stop ends this side's receiving on the stream, drops unread messages, and sends the code to the
// peer.
func (s *Stream) Stop(code uint32) { s.change(func() { s.state.Stop(code) }) }

// Close ends both directions of the stream: everything that was sent is delivered, and unread
// messages are dropped. Calls that wait return [net.ErrClosed], and so does a second call of Close.
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

// change calls the function change under the session's lock, unless the stream is closed. It then
// writes the pending records, and wakes the goroutines that wait on the stream.
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
	s.session.wakeDriver()
}

// SetReadDeadline sets the deadline of calls that receive, even of those that wait already. With
// the zero time there is no deadline. The error is [net.ErrClosed] after [Stream.Close].
func (s *Stream) SetReadDeadline(t time.Time) error { return s.setDeadlines(t, &s.readDeadline) }

// SetWriteDeadline sets the deadline of calls that send, even of those that wait already. With the
// zero time there is no deadline. The error is [net.ErrClosed] after [Stream.Close].
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.setDeadlines(t, &s.writeDeadline) }

// SetDeadline sets the deadlines of both sending and receiving on the stream.
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

// writeBytesMax is the number of bytes after which [Stream.Write] begins another message (SPEC
// 11.8), unless only a short rest would follow: see [cutBytes].
//
// A message of this length costs 64 KiB of credit, so that the default window holds four such
// messages. If it were a byte longer, the window would hold only three.
const writeBytesMax = 64<<10 - layout.RecordHeaderBytes

// restBytesMax is the number of bytes that may go along with a message of writeBytesMax. It holds
// also where InlineMax lets longer messages go without a block.
const restBytesMax = 4 << 10

var _ io.ReadWriteCloser = (*Stream)(nil)
