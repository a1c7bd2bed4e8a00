// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"io"
	"net"
	"time"

	"partywall.test/go/internal/mux"
)

// A Stream is a pipe within a [Session], with messages or bytes in each direction. Both
// applications have to know which of the two the stream carries: Send and RecvMessage are for
// messages, Read and Write for bytes. A Stream is a [net.Conn].
//
// Any number of goroutines may use a stream. Calls that send run one after the other, and so do
// calls that receive. The application closes a stream that it no longer needs, even if the stream
// has ended.
type Stream struct {
	stream  *mux.Stream
	session *Session
	isOnly  bool // the session is of no use without the stream
}

var (
	_ net.Conn    = (*Stream)(nil)
	_ io.WriterTo = (*Stream)(nil)
)

// Session returns the session that carries the stream.
func (s *Stream) Session() *Session { return s.session }

// Peer returns the process at the other end of the stream.
func (s *Stream) Peer() Peer { return s.session.Peer() }

// Transport returns the transport, shared memory or a socket, that carries the stream.
func (s *Stream) Transport() Transport { return s.session.Transport() }

// Metadata returns the bytes with which the stream's opener described the stream.
func (s *Stream) Metadata() []byte { return s.stream.Metadata() }

// Number returns the number of the stream in its session. When the stream has ended, a later stream
// may get the same number.
func (s *Stream) Number() uint32 { return s.stream.Number() }

// Send sends a message. Once it returns without an error, the peer receives the message over shared
// memory even if this process dies. Send waits for room, and until the peer's application has taken
// enough earlier messages. If the deadline passes, the message is not sent.
func (s *Stream) Send(message []byte) error {
	return wrap("send", s.stream.Send(context.Background(), message))
}

// SendParts sends one message that consists of the parts, and waits for room and credit, as
// [Stream.Send] does. If ctx ends first, the message is not sent, and the error is that of ctx. A
// long message is copied once, into the memory where the peer reads it.
func (s *Stream) SendParts(ctx context.Context, parts ...[]byte) error {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if size <= shortPartsMax {
		var short [shortPartsMax]byte
		gather(short[:], parts)
		return wrap("send", s.stream.Send(ctx, short[:size]))
	}
	memory, err := s.stream.Reserve(size)
	if err != nil {
		return wrap("send", err)
	}
	gather(memory.Bytes(), parts)
	return wrap("send", memory.Commit(ctx, size))
}

// shortPartsMax is the size in bytes of the longest message that SendParts copies into private
// memory first, instead of reserving memory.
const shortPartsMax = 512

func gather(into []byte, parts [][]byte) {
	for _, part := range parts {
		into = into[copy(into, part):]
	}
}

// RecvMessage receives a message, which the caller releases. The error is [io.EOF] once the peer
// has ended its direction and every message was received.
func (s *Stream) RecvMessage() (*Message, error) {
	message, err := s.stream.Recv(context.Background())
	if err != nil {
		return nil, wrap("recv", err)
	}
	return received(message.Wire()), nil
}

// Read reads bytes of the stream. The error is [io.EOF] once the peer has ended its direction and
// all bytes were read. If the peer resets the stream, dies or closes the session before, the error
// is another one. Errors but io.EOF are a [*net.OpError] around an [*Error].
func (s *Stream) Read(b []byte) (int, error) {
	n, err := s.stream.Read(b)
	return n, s.opError("read", err)
}

// Write writes bytes to the stream. It returns once the last of them are where the peer reads them.
func (s *Stream) Write(b []byte) (int, error) {
	n, err := s.stream.Write(b)
	return n, s.opError("write", err)
}

// ReadMessage waits for bytes as Read does, and returns those of one message that are unread,
// without a copy. The caller releases the message that is returned. What one Write of the peer has
// written may come as several messages.
func (s *Stream) ReadMessage() (*Message, error) {
	message, err := s.stream.Take()
	if err != nil {
		return nil, s.opError("read", err)
	}
	return received(message.Wire()), nil
}

// Peek returns the next n bytes of the stream without reading them, and waits until they have come.
// If the error is not nil, fewer bytes are returned. The bytes may lie in the peer's memory, and
// are valid until the next call that reads, or Close.
func (s *Stream) Peek(n int) ([]byte, error) {
	b, err := s.stream.Peek(n)
	return b, s.opError("read", err)
}

// Buffered returns the number of bytes that [Stream.Peek] can return without receiving another
// message.
func (s *Stream) Buffered() int { return s.stream.Buffered() }

// Discard skips the next n bytes of the stream, and waits until they have come. It returns the
// number of skipped bytes, which is less than n only with an error.
func (s *Stream) Discard(n int) (int, error) {
	skipped, err := s.stream.Discard(n)
	return skipped, s.opError("read", err)
}

// WriteTo writes all bytes of the stream to w until the peer has ended its direction. It passes the
// received memory to w without copying it, so that [io.Copy] from a stream needs no buffer. Bytes
// that w does not accept stay unread.
func (s *Stream) WriteTo(w io.Writer) (int64, error) {
	n, errOfStream, errOfWriter := s.stream.Forward(w)
	if errOfWriter != nil {
		return n, errOfWriter
	}
	return n, s.opError("read", errOfStream)
}

// WriteBuffers writes the bytes of all buffers in their order, and does not change the buffers.
// Several short buffers share a message, which is impossible if [net.Buffers] writes them to a
// stream.
func (s *Stream) WriteBuffers(buffers ...[]byte) (int64, error) {
	n, err := s.stream.WriteBuffers(buffers)
	return n, s.opError("write", err)
}

// Reserve returns memory for a message of n bytes, without waiting. The peer receives the message
// by RecvMessage, or its bytes by Read.
func (s *Stream) Reserve(n int) (*Reservation, error) {
	r, err := s.stream.Reserve(n)
	if err != nil {
		return nil, wrap("reserve", err)
	}
	return &Reservation{reserved: streamReserved{r}}, nil
}

// opError returns err in the form that methods of [net.Conn] return, a [*net.OpError].
func (s *Stream) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{
		Op: op, Net: networkName, Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: wrap(op, err),
	}
}

// SendErr returns the reason why nothing more can be sent on the stream, or nil. A pool of idle
// streams uses it to find those that the peer has closed, or whose peer has died.
func (s *Stream) SendErr() error { return wrap("send", s.stream.SendErr()) }

// CloseWrite tells the peer that this side sends no more on the stream. This side still receives.
func (s *Stream) CloseWrite() error {
	s.stream.CloseWrite()
	return nil
}

// CloseRead stops receiving on the stream, and drops unread messages. The peer's sends fail.
func (s *Stream) CloseRead() error {
	s.stream.Stop(0)
	return nil
}

// Stop stops receiving on the stream, drops unread messages, and sends the peer's application a
// code less than 0xffffff00.
func (s *Stream) Stop(code uint32) { s.stream.Stop(applicationCode(code)) }

// Reset ends this side's sending at once, and gives up messages that are only partly sent. The peer
// gets an error with the code, which must be less than 0xffffff00.
func (s *Stream) Reset(code uint32) { s.stream.Reset(applicationCode(code)) }

// Close ends both directions of the stream. The peer receives everything that was sent; unread
// messages are dropped. Calls that wait return an error that wraps [net.ErrClosed].
func (s *Stream) Close() error {
	if s.stream.Close() != nil {
		return s.opError("close", net.ErrClosed)
	}
	if s.isOnly {
		return s.session.Close()
	}
	return nil
}

// LocalAddr returns the address of the session's listener.
func (s *Stream) LocalAddr() net.Addr { return s.session.address }

// RemoteAddr returns the address of the session's listener. [Stream.Peer] says who the peer is.
func (s *Stream) RemoteAddr() net.Addr { return s.session.address }

// SetDeadline sets the deadlines of both receiving and sending.
func (s *Stream) SetDeadline(t time.Time) error {
	return s.opError("set", s.stream.SetDeadline(t))
}

// SetReadDeadline sets the time at which receiving fails, even in calls that wait already. The zero
// time means never.
func (s *Stream) SetReadDeadline(t time.Time) error {
	return s.opError("set", s.stream.SetReadDeadline(t))
}

// SetWriteDeadline sets the time at which sending fails, even in calls that wait already. The zero
// time means never.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	return s.opError("set", s.stream.SetWriteDeadline(t))
}
